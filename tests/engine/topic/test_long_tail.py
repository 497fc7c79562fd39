"""A reader that tails for long holds little: its state moves onto newer stored ones."""

from __future__ import annotations

import uuid

import pytest

import offsetlog
from offsetlog.engine.topic import stored_state


def test_a_tailing_reader_rests_on_newer_stored_states(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stored_state, "REBASE_EVERY", 20)
    url = f"memory://{uuid.uuid4().hex}"
    with offsetlog.open(url) as writing, offsetlog.open(url) as reading:
        writing.create_topic("orders")
        consumer = reading.consumer(topics="orders", auto_offset_reset="earliest")
        producer = writing.producer()
        seen = []
        longest = 0
        for number in range(200):
            producer.send("orders", b"%d" % number).result()
            if number % 10 == 9:
                writing.open_topic("orders").stored.publish()
            seen += [record.value for record in consumer.poll(timeout=1)]
            state = reading.open_topic("orders").chain.state
            longest = max(longest, state.tail_extents)
        assert seen == [b"%d" % number for number in range(200)]
        assert longest <= 40
        consumer.seek_to_beginning()
        again = []
        while len(again) < 200:
            again += consumer.poll(timeout=1)
        assert [record.offset for record in again] == list(range(200))
