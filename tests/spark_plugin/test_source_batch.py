"""Batch queries on a log: what Spark's own KafkaRelationSuite asks for, and more."""

from __future__ import annotations

import datetime as dt
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from chispa import assert_df_equality

from pyspark_offsetlog.lines.classes import FILTERS_KEPT_APART as KEPT_APART
from tests.spark_plugin.live import fill, opened, places, source

EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)


@pytest.fixture(scope="module")
def root(tasks_in: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("batch") / "log"


@pytest.fixture(scope="module")
def log(root: Path) -> Iterator[Any]:
    with opened(root.parent) as log:
        log.create_topic("orders", partitions=3)
        fill(log, "orders", {0: 10, 1: 6, 2: 4})
        log.create_topic("pre-orders-eu")
        fill(log, "pre-orders-eu", {0: 2})
        log.create_topic("timed", partitions=2)
        with log.producer() as producer:
            for partition, times in {0: [1000, 3000, 2000, 4000], 1: [5000]}.items():
                for at, time in enumerate(times):
                    value = b"timed-%d-%d" % (partition, at)
                    producer.send("timed", value, partition=partition, timestamp=time).result()
        yield log


ALL = {("orders", 0): [*range(10)], ("orders", 1): [*range(6)], ("orders", 2): [*range(4)]}


def test_defaults_are_all_that_is_there(spark: Any, log: Any, root: Path) -> None:
    frame = source(spark, root, subscribe="orders")
    assert places(frame.collect()) == ALL
    assert frame.count() == 20
    named = source(spark, root, subscribe="orders", startingOffsets="earliest",
                   endingOffsets="latest")  # fmt: skip
    assert_df_equality(frame, named, ignore_row_order=True)


def test_the_columns_are_those_of_kafka(spark: Any, log: Any, root: Path) -> None:
    assert source(spark, root, subscribe="orders").schema.simpleString() == (
        "struct<key:binary,value:binary,topic:string,partition:int,offset:bigint,"
        "timestamp:timestamp,timestampType:int>"
    )
    with_headers = source(spark, root, subscribe="orders", includeHeaders="true")
    assert with_headers.schema["headers"].simpleString() == (
        "headers:array<struct<key:string,value:binary>>"
    )


@pytest.mark.every_line(both_paths=True)
def test_every_column_of_a_record(spark: Any, log: Any, root: Path) -> None:
    log.create_topic("full", config={"message.timestamp.type": "LogAppendTime"})
    log.create_topic("made")
    sent = []
    with log.producer() as producer:
        for topic in ("full", "made"):
            sent.append(
                producer.send(
                    topic, b"\x00\xff", key=b"", headers=[("h", b"v"), ("h", None), ("", b"")],
                    timestamp=1234,
                ).result()
            )  # fmt: skip
            producer.send(topic, None, key=b"k", timestamp=1235).result()
    rows = {
        (row.topic, row.offset): row
        for row in source(spark, root, subscribe="full,made", includeHeaders="true").collect()
    }
    made = rows["made", 0]
    assert (bytes(made.key), bytes(made["value"])) == (b"", b"\x00\xff")
    assert (made.partition, made.timestampType) == (0, 0)
    assert [(h.key, h["value"] and bytes(h["value"])) for h in made.headers] == [
        ("h", b"v"), ("h", None), ("", bytearray(b"")),
    ]  # fmt: skip
    assert _millis(spark, root, "made") == [1234, 1235]
    assert rows["made", 1]["value"] is None and rows["made", 1].headers is None
    appended = rows["full", 0]
    assert appended.timestampType == 1
    assert _millis(spark, root, "full")[0] == sent[0].timestamp > 1_600_000_000_000


def _millis(spark: Any, root: Path, topic: str) -> list[int]:
    frame = source(spark, root, subscribe=topic).selectExpr("unix_millis(timestamp) as t", "offset")
    return [row.t for row in frame.orderBy("offset").collect()]


def test_explicit_offsets(spark: Any, log: Any, root: Path) -> None:
    frame = source(
        spark, root, subscribe="orders",
        startingOffsets='{"orders":{"0":8,"1":-2,"2":4}}',
        endingOffsets='{"orders":{"0":-1,"1":2,"2":4}}',
    )  # fmt: skip
    assert places(frame.collect()) == {("orders", 0): [8, 9], ("orders", 1): [0, 1]}


def test_a_batch_may_be_empty(spark: Any, log: Any, root: Path) -> None:
    log.create_topic("empty", partitions=2)
    assert source(spark, root, subscribe="empty").collect() == []
    frame = source(spark, root, subscribe="orders", endingOffsets='{"orders":{"0":0,"1":0,"2":0}}')
    assert frame.count() == 0


@pytest.mark.every_line
def test_times(spark: Any, log: Any, root: Path) -> None:
    def read(**given: Any) -> Any:
        return places(source(spark, root, subscribe="timed", **given).collect())

    assert read(startingTimestamp=2500) == {("timed", 0): [1, 2, 3], ("timed", 1): [0]}
    assert read(endingTimestamp=3000) == {("timed", 0): [0], }  # fmt: skip
    assert read(startingTimestamp=1000, endingTimestamp=4000) == {("timed", 0): [0, 1, 2]}
    each = json.dumps({"timed": {"0": 4000, "1": 0}})
    assert read(startingOffsetsByTimestamp=each) == {("timed", 0): [3], ("timed", 1): [0]}
    assert read(endingOffsetsByTimestamp=each) == {("timed", 0): [0, 1, 2]}
    latest = {"startingOffsetsByTimestampStrategy": "latest"}
    assert read(startingTimestamp=4500, **latest) == {("timed", 1): [0]}
    assert read(startingTimestamp="-PT10M") == {}
    wins = read(startingTimestamp=2500, startingOffsets='{"timed":{"0":0,"1":0}}')
    assert wins == {("timed", 0): [1, 2, 3], ("timed", 1): [0]}


def test_relative_and_group_starts(spark: Any, log: Any, root: Path) -> None:
    frame = source(spark, root, subscribe="orders", startingOffsets="-2")
    assert places(frame.collect()) == {
        ("orders", 0): [8, 9], ("orders", 1): [4, 5], ("orders", 2): [2, 3],
    }  # fmt: skip
    with log.consumer(group="reads") as consumer:
        consumer.assign([("orders", 0), ("orders", 1)])
        consumer.commit({("orders", 0): 7, ("orders", 1): 6})
    frame = source(
        spark, root, subscribe="orders", startingOffsets="group", group__id="reads",
        auto__offset__reset="earliest",
    )  # fmt: skip
    assert places(frame.collect()) == {("orders", 0): [7, 8, 9], ("orders", 2): [*range(4)]}


def test_a_pattern_finds_within_names(spark: Any, log: Any, root: Path) -> None:
    frame = source(spark, root, subscribePattern="order")
    assert places(frame.collect()) == {**ALL, ("pre-orders-eu", 0): [0, 1]}
    frame = source(spark, root, subscribePattern="^order")
    assert places(frame.collect()) == ALL


def test_assigned_partitions(spark: Any, log: Any, root: Path) -> None:
    frame = source(spark, root, assign='{"orders":[2],"pre-orders-eu":[0]}')
    assert places(frame.collect()) == {("orders", 2): [*range(4)], ("pre-orders-eu", 0): [0, 1]}


def test_topics_that_retention_has_shortened(spark: Any, log: Any, root: Path) -> None:
    log.create_topic("short")
    fill(log, "short", {0: 6})
    log.topic("short").delete_records({0: 4})
    assert places(source(spark, root, subscribe="short").collect()) == {("short", 0): [4, 5]}
    frame = source(
        spark, root, subscribe="short", startingOffsets='{"short":{"0":1}}', failOnDataLoss="false"
    )
    assert places(frame.collect()) == {("short", 0): [4, 5]}


def test_how_many_tasks(spark: Any, log: Any, root: Path) -> None:
    def tasks(**given: Any) -> int:
        frame = source(spark, root, subscribe="orders", **given)
        assert frame.count() == 20
        return int(frame.rdd.getNumPartitions())

    assert tasks() == 1, "few rows that lie in the same entries"
    assert tasks(minPartitions=1) == tasks(minPartitions=2) == 3
    assert tasks(minPartitions=6) == 6
    assert tasks(maxRecordsPerPartition=4) == 6
    assert tasks(minPartitions=1, maxRecordsPerPartition=5) == 5


def test_reused_and_joined_frames(spark: Any, log: Any, root: Path) -> None:
    frame = source(spark, root, subscribe="orders").selectExpr("offset", "partition as p")
    assert frame.union(frame).count() == 40
    joined = frame.alias("a").join(frame.alias("b"), ["offset", "p"])
    assert joined.count() == 20
    assert sorted(map(tuple, frame.groupBy("p").count().collect())) == [(0, 10), (1, 6), (2, 4)]


def test_sql_over_a_view(spark: Any, log: Any, root: Path) -> None:
    source(spark, root, subscribe="orders").createOrReplaceTempView("orders_of_a_batch")
    [row] = spark.sql(
        "select max(offset) as m, count(distinct value) as n from orders_of_a_batch "
        "where partition = 1"
    ).collect()
    assert (row.m, row.n) == (5, 6)


# --- fewer columns, fewer rows --------------------------------------------------------------


@pytest.fixture(scope="module")
def wide(log: Any) -> int:
    """A topic whose values are heavy, in segments; how many bytes they are."""
    import random

    log.create_topic("wide", partitions=2, config={"retention.ms": -1})
    chance = random.Random(1)
    with log.producer() as producer:
        for at in range(40):
            for partition in (0, 1):
                value = chance.randbytes(20_000)
                stamp = 1_000_000 + at * 1000
                producer.send("wide", value, key=b"k", partition=partition, timestamp=stamp)
        producer.flush()
    log.maintain(grace_ms=0)
    return 2 * 40 * 20_000


@pytest.mark.every_line
def test_a_schema_of_ones_own_reads_only_that(
    spark: Any, log: Any, root: Path, wide: int, tmp_path: Path
) -> None:
    frame = spark.read.format("offsetlog").schema("offset long, key binary, partition int")
    rows = frame.option("subscribe", "wide").load(str(root)).collect()
    assert len(rows) == 80
    assert rows[0].__fields__ == ["offset", "key", "partition"]
    assert {(row.partition, row.offset) for row in rows} == {
        (partition, offset) for partition in (0, 1) for offset in range(40)
    }
    assert {bytes(row.key) for row in rows} == {b"k"}
    for only in ("value binary", "timestamp timestamp", "topic string", "timestampType int"):
        one = spark.read.format("offsetlog").schema(only).option("subscribe", "wide")
        assert one.load(str(root)).count() == 80


def test_names_of_a_schema_are_in_any_case_as_spark_is_told(
    spark: Any, log: Any, root: Path, wide: int
) -> None:
    """By whichever way rows are read, and with a filter on such a name."""
    schema = "VALUE binary, Offset long, PARTITION int, timestamptype int, Topic string"

    def rows() -> Any:
        frame = spark.read.format("offsetlog").schema(schema).option("subscribe", "wide")
        return frame.load(str(root))

    expected = {(partition, offset) for partition in (0, 1) for offset in range(30, 40)}
    try:
        for reader in ("auto", "python", "rows"):
            spark.conf.set("spark.offsetlog.reader", reader)
            found = rows().where("offset >= 30").collect()
            names = ["VALUE", "Offset", "PARTITION", "timestamptype", "Topic"]
            assert found[0].__fields__ == names, reader
            assert {(row.PARTITION, row.Offset) for row in found} == expected, reader
            assert {(len(row.VALUE), row.timestamptype, row.Topic) for row in found} == {
                (20_000, 0, "wide")
            }, reader
            assert rows().select("value").count() == 80 == len(rows().select("vaLUE").collect())
        spark.conf.set("spark.sql.caseSensitive", "true")
        with pytest.raises(Exception, match="has a column 'VALUE'.* Did you mean 'value'?"):
            rows().collect()
    finally:
        for name in ("spark.offsetlog.reader", "spark.sql.caseSensitive"):
            spark.conf.unset(name)


def test_fewer_columns_are_fewer_bytes(log: Any, root: Path, wide: int) -> None:
    """Of what is unfolded and handed to Spark; files are fetched a row group at a time, since
    that is what their checksums cover."""
    from pyspark_offsetlog.options.spec import LogAddress
    from pyspark_offsetlog.schema import source_schema
    from pyspark_offsetlog.source.offsets import OffsetRange
    from pyspark_offsetlog.source.plans import LogPartition, PlannedRange
    from pyspark_offsetlog.source.read_tasks import read
    from pyspark_offsetlog.source.to_spark import output_columns

    work = LogPartition(LogAddress(str(root)), (PlannedRange(OffsetRange("wide", 0, 0, 40)),))
    full = source_schema(False)
    few = type(full)([full["key"], full["offset"], full["timestamp"]])
    handed = []
    for schema in (full, few):
        batches = list(read(work, output_columns(schema)))
        assert sum(batch.num_rows for batch in batches) == 40
        handed.append(sum(batch.nbytes for batch in batches))
    assert handed[0] > 40 * 20_000
    assert handed[1] < 40 * 100


@pytest.mark.every_line
def test_filters_are_pushed_down_and_narrow(spark: Any, log: Any, root: Path, wide: int) -> None:
    # Whoever says how many tasks there are gets one for each partition at least.
    frame = source(spark, root, subscribe="wide,orders", minPartitions=1)
    for condition, count, tasks in (
        ("topic = 'wide' and partition = 1", 40, 1),
        ("topic = 'wide' and partition = 1 and offset >= 5 and offset < 8", 3, 1),
        ("topic = 'wide' and partition in (0, 1) and offset = 7", 2, 2),
        ("topic = 'orders' and offset > 4", 6, 2),
        ("topic = 'wide' and timestamp >= timestamp_millis(1030000)", 20, 2),
        ("topic = 'wide' and timestamp > timestamp_millis(1038999)", 2, 2),
        ("topic = 'wide' and timestamp = timestamp_millis(1005000)", 2, 2),
        ("topic = 'nothing'", 0, 1),
        ("topic = 'wide' and offset < 0", 0, 1),
        ("topic = 'wide' and cast(value as string) = 'x'", 0, 2),
    ):
        chosen = frame.where(condition)
        assert chosen.count() == count, condition
        if KEPT_APART:
            assert chosen.rdd.getNumPartitions() == tasks, condition
    assert frame.count() == 100


@pytest.mark.parametrize("zone", ["UTC", "America/New_York"])
def test_filters_on_time_in_any_zone(
    spark: Any, log: Any, root: Path, wide: int, zone: str
) -> None:
    before = spark.conf.get("spark.sql.session.timeZone")
    spark.conf.set("spark.sql.session.timeZone", zone)
    try:
        frame = source(spark, root, subscribe="wide")
        moment = EPOCH + dt.timedelta(milliseconds=1_030_000)
        assert frame.where(frame.timestamp >= moment).count() == 20
        assert frame.where(frame.timestamp < moment).count() == 60
    finally:
        spark.conf.set("spark.sql.session.timeZone", before)


def test_without_pushdown_the_rows_are_the_same(
    spark: Any, log: Any, root: Path, wide: int
) -> None:
    name = "spark.sql.python.filterPushdown.enabled"
    before = spark.conf.get(name)
    spark.conf.set(name, "false")
    try:
        frame = source(spark, root, subscribe="wide").where("partition = 1 and offset < 3")
        assert frame.count() == 3
    finally:
        spark.conf.set(name, before)


# --- files that change between the plan and the reading --------------------------------------


def test_a_plan_that_grew_old_reads_the_same(spark: Any, log: Any, root: Path) -> None:
    """Maintenance rewrites everything and takes the old files away after the plan was made."""
    log.create_topic("old", partitions=2)
    for _ in range(6):
        fill(log, "old", {0: 4, 1: 3})
    plans = []
    for given, tasks in (({}, 1), ({"minPartitions": 1}, 2)):
        frame = source(spark, root, subscribe="old", **given)
        plans.append(frame.select("topic", "partition", "offset", "value").rdd)
        assert plans[-1].getNumPartitions() == tasks
    log.maintain(grace_ms=0)
    for planned in plans:
        assert places(planned.collect()) == {("old", 0): [*range(24)], ("old", 1): [*range(18)]}
