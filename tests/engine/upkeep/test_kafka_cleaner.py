"""The same history in Kafka and here: what the broker's log cleaner leaves is what compaction does.

It needs confluent-kafka, and Maven or the broker's jars in ``.cache/bench``, as the figures do;
without them it is skipped."""

from __future__ import annotations

import shutil
import time
from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa
import pytest

import offsetlog
from bench.peers import kafka
from tests.engine.upkeep.test_compaction import read, sound

CACHE = Path(__file__).parents[3] / ".cache" / "bench"
CLEANER = "log.cleaner.backoff.ms=100\nlog.cleaner.threads=1\n"
ROLLS = {"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0.0", "segment.ms": "200"}
"""A segment is cleaned once a later record has closed it."""
SECONDS = 90.0
confluent_kafka = pytest.importorskip("confluent_kafka")
Records = list[tuple[int, bytes | None, bytes | None]]


@pytest.fixture(scope="module")
def broker(tmp_path_factory):
    there = (CACHE / "jars" / f"kafka-{kafka.VERSION}").exists()
    if shutil.which("java") is None or not (there or shutil.which("mvn")):
        pytest.skip("no Java, or neither Maven nor the broker's jars")
    properties = kafka._properties

    def cleaning(folder: Path, *ports: int) -> Path:
        path = properties(folder, *ports)
        path.write_text(path.read_text() + CLEANER)
        return path

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(kafka, "_properties", cleaning)
        with kafka.running(tmp_path_factory.mktemp("kafka"), CACHE) as running:
            yield running


def history(seed: int, count: int) -> list[tuple[bytes, bytes | None]]:
    rng = Random(seed)
    return [
        (
            b"key-%d" % rng.randint(0, 30),
            None if rng.random() < 0.25 else b"value-%d" % rng.getrandbits(32),
        )
        for _ in range(count)
    ]


class Kafka:
    def __init__(self, broker: Any, topic: str, config: dict[str, str]) -> None:
        from confluent_kafka.admin import NewTopic

        self._address, self._topic = broker.address, topic
        for made in broker._admin.create_topics([NewTopic(topic, 1, 1, config=config)]).values():
            made.result(30)
        self._producer = confluent_kafka.Producer(
            {"bootstrap.servers": broker.address, "acks": "all", "enable.idempotence": True}
        )
        self.rolled = 0

    def send(self, records: list[tuple[bytes, bytes | None]]) -> None:
        for key, value in records:
            self._producer.produce(self._topic, value, key, partition=0)
        assert self._producer.flush(30) == 0

    def roll(self) -> None:
        """Close the segment, by a record of a key of its own."""
        time.sleep(0.3)
        self.send([(b"roll-%d" % self.rolled, b"")])
        self.rolled += 1

    def read(self) -> Records:
        """All but the records that close segments."""
        consumer = confluent_kafka.Consumer(
            {"bootstrap.servers": self._address, "group.id": "none", "enable.auto.commit": False}
        )
        try:
            part = confluent_kafka.TopicPartition(self._topic, 0, 0)
            _, end = consumer.get_watermark_offsets(part, timeout=30)
            consumer.assign([part])
            out: Records = []
            while True:
                message = consumer.poll(30)
                assert message is not None and message.error() is None
                if not message.key().startswith(b"roll-"):
                    out.append((message.offset(), message.key(), message.value()))
                if message.offset() == end - 1:
                    return out
        finally:
            consumer.close()


def until(there: Kafka, expected: Records) -> Records:
    """What Kafka has left, once it is as expected or its time is over."""
    end = time.monotonic() + SECONDS
    while True:
        there.roll()
        found = there.read()
        if found == expected or time.monotonic() > end:
            return found


def ours(log: offsetlog.Log, topic: str) -> Records:
    return read(log, topic).get(0, [])


@pytest.mark.parametrize("seed", [1, 2])
def test_the_same_records_are_left(broker, tmp_path, seed):
    """With tombstones, then without: those whose time is over go in both."""
    topic = f"prices-{seed}"
    there = Kafka(broker, topic, {**ROLLS, "delete.retention.ms": "1"})
    keeping = Kafka(broker, f"{topic}-kept", ROLLS)
    records = history(seed, 400)
    with offsetlog.open(str(tmp_path)) as log:
        config = {"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0"}
        log.create_topic(topic, config={**config, "delete.retention.ms": 1})
        log.create_topic(f"{topic}-kept", config=config)
        for low in range(0, len(records), 50):
            some = records[low : low + 50]
            keys, values = zip(*some, strict=True)
            with log.producer() as producer:
                for name in (topic, f"{topic}-kept"):
                    table = {"key": pa.array(keys), "value": pa.array(values, pa.binary())}
                    producer.send_arrow(name, pa.table(table))
            for one in (there, keeping):
                one.send(some)
        log.maintain()
        kept = ours(log, f"{topic}-kept")
        time.sleep(0.01)
        log.maintain()
        gone = ours(log, topic)
        sound(log)
    assert any(value is None for _, _, value in kept)
    assert gone == [record for record in kept if record[2] is not None]
    assert until(keeping, kept) == kept
    assert until(there, gone) == gone
