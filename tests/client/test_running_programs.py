"""A program that runs learns what others changed: settings to and fro, topics made again."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa
import pytest

import offsetlog
from offsetlog.client.log import Log
from offsetlog.client.producer import Producer
from offsetlog.errors import (
    InvalidRequestError,
    OffsetLogError,
    StorageError,
    UnknownTopicError,
)
from offsetlog.values import CONFIG_KEYS, TopicConfig

SENDERS = ["running", "new", "keyed", "arrow"]
WHO = ["another program", "this program"]


pytestmark = pytest.mark.root_in("local", "memory")


@pytest.fixture
def url(root: Path | str) -> str:
    return str(root)


@pytest.fixture
def log(log: Log) -> Log:
    log.create_topic("t")
    return log


class Program:
    """A log that stays open, and a producer that was used already."""

    def __init__(self, log: Log, sender: str) -> None:
        self.log, self.sender = log, sender
        self.running = log.producer()
        self.sequence = 0
        self._send(self.running, b"first", b"key", None)

    def send(self, value: bytes, key: bytes | None = b"key", timestamp: int | None = None) -> Any:
        if self.sender == "running":
            return self._send(self.running, value, key, timestamp)
        if self.sender == "new":
            with self.log.producer() as producer:
                return self._send(producer, value, key, timestamp)
        if self.sender == "keyed":
            self.sequence += 1
            with self.log.producer(app_id="a", sequence=self.sequence) as producer:
                return self._send(producer, value, key, timestamp)
        columns: dict[str, Any] = {
            "value": pa.array([value], pa.binary()),
            "key": pa.array([key], pa.binary()),
        }
        if timestamp is not None:
            columns["timestamp"] = [timestamp]
        return self.running.send_arrow("t", pa.table(columns)).result()

    @staticmethod
    def _send(producer: Producer, value: bytes, key: bytes | None, timestamp: int | None) -> Any:
        return producer.send("t", value, key, timestamp=timestamp).result()


def changed(log: Log, url: str, who: str, **config: object) -> None:
    settings = {name.replace("__", "."): value for name, value in config.items()}
    if who == "this program":
        log.topic("t").alter(config=settings)
        return
    with offsetlog.open(url) as other:
        other.topic("t").alter(config=settings)


def records(url: str) -> list[Any]:
    with offsetlog.open(url) as log:
        consumer = log.consumer(topics=["t"], auto_offset_reset="earliest")
        found: list[Any] = []
        while some := consumer.poll(0):
            found += some
        return found


# --- settings ------------------------------------------------------------------------------


class Judged(NamedTuple):
    """A setting by which records are judged or changed as they are sent."""

    strict: object
    mild: object
    send: Callable[[Program], Any]
    is_strict: Callable[[Any], bool]
    """Of what the send returned, or of the error that it raised."""


def _refused(outcome: Any) -> bool:
    return isinstance(outcome, InvalidRequestError)


JUDGED = {
    "max.message.bytes": Judged(100, 10_000, lambda p: p.send(bytes(5_000)), _refused),
    "cleanup.policy": Judged("compact", "delete", lambda p: p.send(b"x", None), _refused),
    "message.timestamp.type": Judged(
        "LogAppendTime", "CreateTime", lambda p: p.send(b"x", timestamp=1), lambda _: False
    ),
}
PASSIVE = {
    "retention.ms": ("-1", "60000"),
    "retention.bytes": ("1000000", "-1"),
    "segment.bytes": (2**20, 2**21),
    "compression.type": ("none", "lz4"),
    "producer.id.expiration.ms": (60_000, 120_000),
    "min.compaction.lag.ms": (1, 0),
    "max.compaction.lag.ms": (60_000, 120_000),
    "delete.retention.ms": (1, 2),
    "min.cleanable.dirty.ratio": (0.1, 0.9),
    "table.format": ("delta", "none"),
}
"""Settings that only upkeep and the layout of files follow: nothing of them refuses a record."""


def test_each_setting_is_here() -> None:
    assert JUDGED.keys() | PASSIVE.keys() == CONFIG_KEYS.keys()


def outcome(call: Callable[[], Any]) -> Any:
    try:
        return call()
    except OffsetLogError as error:
        return error


@pytest.mark.parametrize("who", WHO)
@pytest.mark.parametrize("sender", SENDERS)
@pytest.mark.parametrize("key", JUDGED)
def test_a_setting_to_and_fro_is_followed(
    log: Log, url: str, key: str, sender: str, who: str
) -> None:
    judged, program = JUDGED[key], Program(log, sender)
    for _ in range(2):
        for value, is_strict in ((judged.strict, True), (judged.mild, False)):
            changed(log, url, who, **{key: value})
            if is_strict:
                program.send(b"y", b"key")  # It learns of what forbids more with its next write.
            got = outcome(lambda: judged.send(program))
            if key == "message.timestamp.type":
                assert not isinstance(got, OffsetLogError), got
                if not is_strict and who == "another program":
                    got = judged.send(program)
                kept = records(url)[-1]
                assert (kept.timestamp == 1, kept.timestamp_type) == (not is_strict, is_strict)
            else:
                assert judged.is_strict(got) == is_strict, got


@pytest.mark.parametrize("sender", SENDERS)
@pytest.mark.parametrize("key", PASSIVE)
@pytest.mark.root_in("local")
def test_a_setting_of_upkeep_refuses_nothing(log: Log, url: str, key: str, sender: str) -> None:
    with offsetlog.open(url) as other:
        program = Program(log, sender)
        field = CONFIG_KEYS[key]
        for value in (*PASSIVE[key], *PASSIVE[key]):
            other.topic("t").alter(config={key: value})
            program.send(b"x", None)
            kind = type(getattr(TopicConfig(), field))
            assert getattr(log.open_topic("t").config, field) == kind(value)
            log.maintain("t", grace_ms=0)
        assert log.verify("t")[0].sound


# --- topics made again ---------------------------------------------------------------------


def made_again(url: str, partitions: int = 1, **config: object) -> None:
    with offsetlog.open(url) as other:
        other.delete_topic("t")
        other.create_topic("t", partitions, config)


@pytest.mark.parametrize("sender", SENDERS)
@pytest.mark.parametrize("seen", ["at once", "while it was gone"])
@pytest.mark.parametrize("size", [10, 300_000], ids=["inline", "segment"])
def test_a_producer_goes_on_in_a_topic_that_was_made_again(
    log: Log, url: str, sender: str, seen: str, size: int
) -> None:
    program = Program(log, sender)
    if seen == "at once":
        made_again(url, 3)
    else:
        with offsetlog.open(url) as other:
            other.delete_topic("t")
        for _ in range(2):
            with pytest.raises(UnknownTopicError, match="was deleted"):
                program.send(b"refused")
        with offsetlog.open(url) as other:
            other.create_topic("t", 3)
    values = [bytes(size) + b"%d" % number for number in range(3)]
    for value in values:
        program.send(value)
    assert sorted(record.value for record in records(url)) == values


def test_what_waited_goes_to_the_topic_that_was_made_again(log: Log, url: str) -> None:
    program = Program(log, "running")
    keyed = log.producer(app_id="a", sequence=9)
    keyed.send("t", b"keyed")
    lingering = log.producer(linger_ms=60_000)
    lingering.send("t", b"waited", partition=0)
    made_again(url, 2)
    keyed.flush()
    lingering.flush()
    program.send(b"then")
    assert sorted(record.value for record in records(url)) == [b"keyed", b"then", b"waited"]


def test_what_names_a_partition_that_is_not_there_any_more_is_refused(log: Log, url: str) -> None:
    log.topic("t").alter(partitions=3)
    producer = log.producer()
    producer.send("t", b"x", partition=2).result()
    made_again(url, 1)
    for _ in range(2):
        with pytest.raises((UnknownTopicError, InvalidRequestError), match="partition"):
            producer.send("t", b"y", partition=2).result()
    assert producer.send("t", b"z", partition=0).result().offset >= 0


@pytest.mark.parametrize("group", [None, "g"])
def test_a_consumer_goes_on_in_a_topic_that_was_made_again(
    log: Log, url: str, group: str | None
) -> None:
    Program(log, "running")
    consumer = log.consumer(group, ["t"], auto_offset_reset="earliest")
    assert [record.value for record in consumer.poll(1)] == [b"first"]
    with offsetlog.open(url) as other:
        other.delete_topic("t")
    for _ in range(3):
        outcome(lambda: consumer.poll(0))
    with offsetlog.open(url) as other:
        other.create_topic("t")
        with other.producer() as producer:
            producer.send("t", b"again")
    found: list[bytes] = []
    for _ in range(50):
        found += [record.value for record in consumer.poll(0.1)]
        if found:
            break
    assert found == [b"again"]


def test_a_keyed_sequence_is_there_once_whatever_was_made_again(log: Log, url: str) -> None:
    with log.producer(app_id="a", sequence=1) as producer:
        offset = producer.send("t", b"x").result().offset
    made_again(url)
    with log.producer(app_id="a", sequence=1) as producer:
        assert producer.send("t", b"x").result().offset == offset
    assert records(url) == []


def test_a_topic_that_another_program_makes_is_found(log: Log, url: str) -> None:
    producer = log.producer()
    with pytest.raises(UnknownTopicError):
        producer.send("later", b"x")
    with offsetlog.open(url) as other:
        other.create_topic("later")
    assert producer.send("later", b"x").result().offset == 0


def test_a_flush_whose_fate_was_open_goes_to_the_topic_that_was_made_again(
    log: Log, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The batch is empty by then: its rows are those of the first flush."""
    producer = log.producer(app_id="a", sequence=1)
    producer.send("t", b"kept", b"k")
    chain = log.open_topic("t").chain
    true = chain.land

    def lost(*given: Any) -> Any:
        monkeypatch.setattr(chain, "land", true)
        raise StorageError("No answer.", "Look.", may_have_landed=True)

    monkeypatch.setattr(chain, "land", lost)
    with pytest.raises(StorageError):
        producer.flush()
    made_again(url, 3)
    producer.flush()
    assert [record.value for record in records(url)] == [b"kept"]
