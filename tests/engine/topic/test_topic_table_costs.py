"""What publishing a version of a table asks of the storage, at any number of segments."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from random import Random
from typing import Any

import pytest

import offsetlog
from offsetlog.core.topic.entry import Append, Part, Replace, ReplacedRun, ReplacementPiece
from offsetlog.engine.topic.open_topic import OpenTopic
from offsetlog.format.topic_table import Head
from tests.core.topic.strategies import segment

RECORDS = 10
EACH = 1000
"""Segments that one entry brings."""


def grow(topic: OpenTopic, rng: Random, segments: int) -> None:
    """Rewritten segments of which nothing but their entries is there."""
    for low in range(0, segments, EACH):
        state = topic.refresh()
        count = min(EACH, segments - low)
        refs = [segment(rng, state.tip) for _ in range(count)]
        parts = tuple(Part(0, RECORDS, 100, 0, 9, ref) for ref in refs)
        made = state.created_at_entry
        append = Append(str(state.tip), 0, False, state.tip, made, 1, "0" * 16, 0, parts)
        assert topic.decide(append) is None
        end = state.end(0)
        pieces = tuple(
            ReplacementPiece(at, at + RECORDS, RECORDS, 100, 0, 9, 0, segment(rng, state.tip))
            for at in range(end, end + count * RECORDS, RECORDS)
        )
        run = ReplacedRun(0, end, end + count * RECORDS, pieces)
        assert topic.decide(Replace(topic.chain.state.tip, (run,))) is None


def counted(store: Any, monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """Counts the calls of a store from now on, and their bytes."""
    calls: Counter[str] = Counter()

    def counting(name: str) -> None:
        inner = getattr(store, name)

        def call(*args: Any, **more: Any) -> Any:
            out = inner(*args, **more)
            calls[name] += 1
            calls["bytes"] += sum(len(data) for data in (out, *args) if isinstance(data, bytes))
            return out

        monkeypatch.setattr(store, name, call)

    for name in ("get", "put", "offer", "info", "list", "folders"):
        counting(name)
    return calls


def spent(root: Path, segments: int, monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """Of one more version, by a process that opens the topic for it."""
    rng = Random(segments)
    with offsetlog.open(str(root)) as log:
        log.create_topic("t", config={"table.format": "delta"})
        topic = log.open_topic("t")
        grow(topic, rng, segments)
        topic.stored.publish()
        for _ in range(3):
            grow(topic, rng, 5)
            topic.stored.publish()
            head = topic.table.publish(0, 0)
        assert isinstance(head, Head) and head.files == segments + 15
        grow(topic, rng, 5)
        topic.stored.publish()
    with offsetlog.open(str(root)) as log:
        topic = log.open_topic("t")
        topic.refresh()
        calls = counted(topic.chain.store, monkeypatch)
        head = topic.table.publish(0, 0)
        assert isinstance(head, Head) and head.files == segments + 20
    return calls


def test_a_version_costs_the_same_requests_at_any_size(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    few, many = (spent(tmp_path / str(n), n, monkeypatch) for n in (100, 20_000))
    size = {"few": few.pop("bytes"), "many": many.pop("bytes")}
    assert sum(many.values()) <= sum(few.values()) + 2 <= 14, (few, many)
    assert size["many"] < 4 * size["few"] + 100_000, size
