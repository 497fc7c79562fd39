"""A root that commit e1a20b5 wrote is read, written, looked after and verified by this one."""

from __future__ import annotations

import copy
import shutil
from pathlib import Path
from typing import Any

import pytest

import offsetlog
from offsetlog import InvalidRequestError, UnknownTopicError
from tests.golden import yesterday

MEANING = yesterday.meaning("root")
KEYED = [each for each in MEANING["keyed"] if each["topic"] != "many"]
MANY = [each for each in MEANING["keyed"] if each["topic"] == "many"]


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return yesterday.unpack("root", tmp_path / "moved" / "here")


def told(root: Path) -> dict[str, Any]:
    """By a program that knows nothing yet."""
    with offsetlog.open(str(root)) as log:
        return yesterday.topics(log)


def sound(root: Path) -> None:
    with offsetlog.open(str(root)) as log:
        reports = {report.topic: report.sound for report in log.verify()}
    assert reports == dict.fromkeys(["_offsetlog.json", *MEANING["topics"], "gone"], True)


def again(log: Any, each: dict[str, Any], **more: Any) -> list[list[int]]:
    """Send a batch as it was sent then; where its records lie."""
    with log.producer(app_id=each["app"], sequence=each["sequence"]) as producer:
        futures = []
        for row in each["rows"]:
            value = row["value"] if isinstance(row["value"], str) else "".join(
                [row["value"][0]] * row["value"][1]
            )  # fmt: skip
            row = {**row, "key": row["key"].encode(), "value": value.encode(), **more}
            futures.append(producer.send(each["topic"], **row))
        producer.flush()
        return [[meta.partition, meta.offset] for meta in (f.result() for f in futures)]


def newest(sent: list[dict[str, Any]]) -> dict[tuple[str, str], dict[str, Any]]:
    """The last batch of each sender to each topic."""
    return {(each["topic"], each["app"]): each for each in sent}


def test_everything_is_read_and_sound(root: Path) -> None:
    assert told(root) == MEANING["topics"]
    sound(root)


def test_the_same_is_read_from_the_chain_alone(root: Path) -> None:
    for cache in ("_snapshot", "_index"):
        for folder in root.glob(f"*/{cache}"):
            shutil.rmtree(folder)
    assert told(root) == MEANING["topics"]


def test_the_same_is_read_in_memory(tmp_path: Path) -> None:
    with offsetlog.open(f"memory://{tmp_path.name}") as log:
        for name, data in yesterday.files_of("root"):
            log.store.put(name, data)
        assert yesterday.topics(log) == MEANING["topics"]


def test_what_was_sent_under_a_key_is_not_sent_again(root: Path, log: Any) -> None:
    last = newest(KEYED + MANY)
    assert len(last) == 12
    for each in last.values():
        assert again(log, each) == each["placed"]
    lower = KEYED[0]
    assert lower["sequence"] < last[lower["topic"], lower["app"]]["sequence"]
    with pytest.raises(InvalidRequestError, match="loader-a"):
        again(log, lower)
    assert told(root) == MEANING["topics"]
    following = {**last["payments", "loader-a"], "sequence": 6}
    ends = MEANING["topics"]["payments"]["end"]
    assert sorted(again(log, following)) == [
        [0, ends["0"]], [0, ends["0"] + 1], [1, ends["1"]], [1, ends["1"] + 1]
    ]  # fmt: skip


def append(log: Any, expected: dict[str, Any], value: bytes) -> None:
    """A record to each partition; it gets the next offset."""
    for name, topic in expected.items():
        for partition, end in topic["end"].items():
            with log.producer() as producer:
                sent = producer.send(name, value, b"k", partition=int(partition), timestamp=7)
                meta = sent.result()
            assert (meta.partition, meta.offset) == (int(partition), end), name
            kind = int(topic["config"].get("message.timestamp.type") == "LogAppendTime")
            stamp = meta.timestamp if kind else 7
            topic["records"].append([int(partition), end, "k", value.decode(), [], stamp, kind])
            topic["end"][partition] = end + 1
        topic["records"].sort(key=lambda record: record[:2])


def test_appends_upkeep_and_trims_go_on(root: Path, log: Any) -> None:
    expected = copy.deepcopy(MEANING["topics"])
    append(log, expected, b"today")
    assert told(root) == expected
    log.maintain()
    assert told(root) == expected
    log.maintain(grace_ms=0)
    append(log, expected, b"after upkeep")
    with offsetlog.open(str(root)) as other:
        done = other.maintain(grace_ms=0)
    assert {each.topic for each in done} >= {"gone", *expected}
    assert told(root) == expected
    sound(root)
    for topic in ("kept", "Shop.Plain"):
        start = expected[topic]["end"]["1"] - 3
        log.topic(topic).delete_records({1: start})
        expected[topic]["begin"]["1"] = start
        expected[topic]["records"] = [
            record for record in expected[topic]["records"] if record[0] != 1 or record[1] >= start
        ]
    log.maintain(grace_ms=0)
    assert told(root) == expected
    sound(root)


def test_partitions_are_added_and_keys_still_known_after_upkeep(root: Path, log: Any) -> None:
    for name in ("payments", "Shop.Plain"):
        log.topic(name).alter(partitions=3)
    log.maintain(grace_ms=0)
    [each] = [e for e in KEYED if e["app"] == "loader-b"]
    assert again(log, each) == each["placed"]
    with log.producer() as producer:
        assert producer.send("Shop.Plain", b"new", partition=2).result().offset == 0
    found = told(root)
    assert found["payments"]["end"] == {**MEANING["topics"]["payments"]["end"], "2": 0}
    sound(root)


def test_a_deleted_topic_goes_on_at_its_offsets(root: Path, log: Any) -> None:
    with pytest.raises(UnknownTopicError, match="was deleted"):
        log.topic("gone")
    log.create_topic("gone", 2, config={"retention.ms": -1})
    expected = {"gone": {"end": dict(MEANING["gone"]), "records": [], "config": {}}}
    append(log, expected, b"back")
    assert yesterday.records(log, "gone") == expected["gone"]["records"]
    with pytest.raises(offsetlog.OffsetOutOfRangeError), log.consumer(
        auto_offset_reset="none"
    ) as consumer:  # fmt: skip
        consumer.assign([("gone", 0)])
        consumer.seek(("gone", 0), 0)
        consumer.poll(0)
    sound(root)
