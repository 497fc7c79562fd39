"""What bad input gets: one clear error at the earliest moment that Spark allows, without a Java
trace; and a damaged file never gives fewer rows."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.spark_plugin.live import fill, opened, source
from tests.waiting import until


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("bad") / "log"


@pytest.fixture(scope="module")
def log(root: Path) -> Iterator[Any]:
    with opened(root.parent) as log:
        log.create_topic("orders", partitions=2)
        fill(log, "orders", {0: 4, 1: 2})
        yield log


def said(call: Callable[[], Any]) -> str:
    """What a user reads: short, in our words, with nobody's stack."""
    with pytest.raises(Exception) as failed:
        call()
    text = str(failed.value)
    plain = text.split("JVM stacktrace:")[0]
    assert "\tat " not in plain and "java.lang" not in plain, text
    assert "Traceback (most recent call last)" not in plain, text
    assert len(plain) < 1500, text
    return plain


GOOD = {"subscribe": "orders"}
AT_LOAD = [
    ({}, "exactly one of subscribe, subscribePattern, assign. None of them is set"),
    ({**GOOD, "assign": '{"orders":[0]}'}, "subscribe and assign are set"),
    ({"assign": "{}"}, "The option assign cannot be '{}'"),
    ({"subscribePattern": "("}, "The option subscribePattern cannot be '('"),
    ({**GOOD, "startingOffset": "earliest"}, "Did you mean 'startingOffsets'?"),
    ({**GOOD, "startingOffsets": "soon"}, "The option startingOffsets cannot be 'soon'"),
    ({**GOOD, "startingOffsets": '{"orders":{"0":3.7,"1":0}}'}, "startingOffsets cannot be"),
    ({**GOOD, "startingTimestamp": "today"}, "The option startingTimestamp cannot be 'today'"),
    ({**GOOD, "maxOffsetsPerTrigger": "0"}, "The option maxOffsetsPerTrigger cannot be '0'"),
    ({**GOOD, "minPartitions": "1.0"}, "The option minPartitions cannot be '1.0'"),
    ({**GOOD, "failOnDataLoss": "no"}, "The option failOnDataLoss cannot be 'no'"),
    ({**GOOD, "startingOffsets": "group"}, "startingOffsets=group needs a group"),
    ({**GOOD, "group.id": "a b"}, "'a b' is not a legal group name"),
    ({**GOOD, "minOffsetsPerTrigger": "5", "maxOffsetsPerTrigger": "4"}, "is more than"),
    ({**GOOD, "topic": "x"}, "'topic' is not an option of the source"),
]


@pytest.mark.parametrize(("given", "told"), AT_LOAD, ids=lambda v: v if isinstance(v, str) else "")
def test_bad_options_fail_at_load(spark: Any, log: Any, root: Path, given: dict, told: str) -> None:
    assert told in said(lambda: source(spark, root, **given))


def test_bad_options_fail_at_load_of_a_stream_too(spark: Any, log: Any, root: Path) -> None:
    for given, told in AT_LOAD[:1] + AT_LOAD[5:6]:
        assert told in said(lambda given=given: source(spark, root, stream=True, **given))


def test_no_path(spark: Any) -> None:
    reader = spark.read.format("offsetlog").option("subscribe", "orders")
    assert "No path is set" in said(reader.load)
    reader = reader.option("kafka.bootstrap.servers", "broker:9092")
    assert "names Kafka brokers" in said(reader.load)


AT_PLAN = [
    ({"subscribe": "ordres"}, "There is no topic 'ordres'. Did you mean 'orders'?"),
    ({"subscribePattern": "zzz"}, "No topic matches subscribePattern='zzz'"),
    ({"assign": '{"orders":[0,7]}'}, "partition 7 of topic 'orders', which does not exist"),
    ({**GOOD, "startingOffsets": '{"orders":{"0":0}}'}, "leaves out orders-1"),
    ({**GOOD, "startingOffsets": '{"orders":{"0":9,"1":0}}'}, "and the next record gets 4"),
    ({**GOOD, "endingOffsets": '{"orders":{"0":9,"1":0}}'}, "endingOffsets is 9 for orders-0"),
    (
        {**GOOD, "startingOffsets": '{"orders":{"0":3,"1":0}}',
         "endingOffsets": '{"orders":{"0":2,"1":0}}'},
        "orders-0 would be read from 3 (startingOffsets) to 2 (endingOffsets)",
    ),
    ({**GOOD, "startingTimestamp": str(10**17)}, "has no record at or after"),
    ({**GOOD, "startingOffsets": "latest"}, "startingOffsets=latest would read nothing"),
    ({**GOOD, "endingOffsets": "earliest"}, "endingOffsets=earliest would read nothing"),
]  # fmt: skip


@pytest.mark.parametrize(("given", "told"), AT_PLAN, ids=lambda v: v if isinstance(v, str) else "")
def test_what_only_the_log_can_tell_fails_at_planning(
    spark: Any, log: Any, root: Path, given: dict, told: str
) -> None:
    frame = source(spark, root, **given)
    assert told in said(frame.count)


@pytest.mark.every_line
def test_no_log_is_not_an_empty_one(spark: Any, log: Any, tmp_path: Path) -> None:
    for given in (GOOD, {"subscribePattern": "orders"}):
        frame = source(spark, tmp_path / "nothing", **given)
        assert f"no log at file://{tmp_path}/nothing. Check the address" in said(frame.collect)


@pytest.mark.every_line
def test_wrong_schemas(spark: Any, log: Any, root: Path) -> None:
    for schema, told in (
        ("valu binary", "has a column 'valu', which a log does not have"),
        ("value string", "The schema says that value is string; it is binary"),
        ("offset int, value binary", "The schema says that offset is int; it is bigint"),
        ("headers array<string>", "headers is array<string>"),
        ("offset long not null, value binary not null", "says that value is never null"),
        ("offset long, key binary, offset long", "The schema names offset more than once"),
    ):
        reader = spark.read.format("offsetlog").schema(schema).option("subscribe", "orders")
        assert told in said(lambda reader=reader: reader.load(str(root)).collect())


STREAMS = [
    ({**GOOD, "endingOffsets": "latest"}, "The option endingOffsets is set for a stream"),
    ({"subscribe": "ordres", "failOnDataLoss": "false"}, "There is no topic 'ordres'"),
    ({"assign": '{"orders":[0,7]}'}, "partition 7 of topic 'orders', which does not exist"),
    ({**GOOD, "startingOffsets": '{"orders":{"0":9,"1":0}}'}, "which is beyond its end"),
    ({**GOOD, "startingOffsets": "group", "group.id": "new", "auto.offset.reset": "none"},
     "The group 'new' has no committed offset"),
]  # fmt: skip


@pytest.mark.parametrize(("given", "told"), STREAMS, ids=lambda v: v if isinstance(v, str) else "")
def test_a_stream_says_it_when_it_starts(
    spark: Any, log: Any, root: Path, given: dict, told: str
) -> None:
    def run() -> None:
        frame = source(spark, root, stream=True, **given)
        query = frame.writeStream.format("noop").trigger(availableNow=True).start()
        query.awaitTermination(60)

    assert told in said(run)


def test_wrong_schema_of_a_stream(spark: Any, log: Any, root: Path) -> None:
    def run() -> None:
        reader = spark.readStream.format("offsetlog").schema("value string").options(**GOOD)
        reader.load(str(root)).writeStream.format("noop").start().awaitTermination(60)

    assert "The schema says that value is string; it is binary" in said(run)


def test_a_checkpoint_of_another_source(spark: Any, log: Any, root: Path, tmp_path: Path) -> None:
    checkpoint = tmp_path / "c"

    def run() -> None:
        frame = source(spark, root, stream=True, **GOOD)
        writer = frame.writeStream.format("noop").option("checkpointLocation", str(checkpoint))
        writer.trigger(availableNow=True).start().awaitTermination(60)

    run()
    offsets = checkpoint / "offsets"
    offsets.mkdir(exist_ok=True)
    metadata = {"batchWatermarkMs": 0, "batchTimestampMs": 0, "conf": {}}
    (offsets / "0").write_text(f"v1\n{json.dumps(metadata)}\n{json.dumps({'orders': 3})}")
    (checkpoint / "commits").mkdir(exist_ok=True)
    (checkpoint / "commits" / "0").write_text('v1\n{"nextBatchWatermarkMs":0}')
    assert "The checkpoint holds an offset that offsetlog did not write" in said(run)


# --- damaged files ---------------------------------------------------------------------------


def _damaged(tmp_path: Path, log_root: Path, damage: Callable[[bytes], bytes]) -> tuple[Path, str]:
    """A copy of the log in which one segment of ``heavy`` is not what it was."""
    copy = tmp_path / "copy"
    shutil.copytree(log_root, copy)
    [segment] = (copy / "heavy" / "partition=0").glob("*.parquet")
    segment.write_bytes(damage(segment.read_bytes()))
    return copy, segment.name


@pytest.fixture(scope="module")
def heavy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("heavy")
    with opened(place) as log:
        log.create_topic("heavy")
        with log.producer() as producer:
            for at in range(60):
                producer.send("heavy", bytes([at]) * 9000 + at.to_bytes(4, "big"))
        log.maintain(grace_ms=0)
    return place / "log"


@pytest.mark.parametrize("how", ["half", "empty", "bit", "tail", "zeros"])
def test_a_damaged_segment_fails_the_task_by_name(
    spark: Any, heavy: Path, tmp_path: Path, how: str
) -> None:
    def damage(data: bytes) -> bytes:
        middle = len(data) // 3
        return {
            "half": data[: len(data) // 2],
            "empty": b"",
            "bit": data[:middle] + bytes([data[middle] ^ 4]) + data[middle + 1 :],
            "tail": data[:-3],
            "zeros": data[: len(data) // 2].ljust(len(data), b"\0"),
        }[how]

    copy, name = _damaged(tmp_path, heavy, damage)
    frame = source(spark, copy, subscribe="heavy")
    told = said(frame.collect)
    assert name in told
    if how in ("half", "empty"):
        query = (
            source(spark, copy, stream=True, subscribe="heavy", startingOffsets="earliest")
            .writeStream.format("noop").trigger(availableNow=True).start()
        )  # fmt: skip
        until(lambda: not query.isActive)
        assert name in str(query.exception())


def test_a_segment_that_is_gone_fails_the_task_by_name(
    spark: Any, heavy: Path, tmp_path: Path
) -> None:
    copy = tmp_path / "copy"
    shutil.copytree(heavy, copy)
    [segment] = (copy / "heavy" / "partition=0").glob("*.parquet")
    segment.unlink()
    told = said(source(spark, copy, subscribe="heavy").collect)
    assert segment.name in told and "the log still names it" in told


def test_a_damaged_entry_is_named(spark: Any, log: Any, root: Path, tmp_path: Path) -> None:
    copy = tmp_path / "copy"
    shutil.copytree(root, copy)
    entries = sorted((copy / "orders" / "_log").rglob("*.parquet"))
    entries[-1].write_bytes(entries[-1].read_bytes()[:-9])
    told = said(source(spark, copy, subscribe="orders").collect)
    assert entries[-1].name in told
