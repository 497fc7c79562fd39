"""df.write to a log: what Spark's own KafkaSinkSuite asks for, and more."""

from __future__ import annotations

import datetime as dt
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import functions as sql
from pyspark.sql.types import StringType, StructField, StructType

import offsetlog
from offsetlog.format.partitioner import partitions_of
from pyspark_offsetlog.schema import HEADER_TYPE
from tests.spark_plugin.written import records, refused, values, write

pytestmark = pytest.mark.usefixtures("tasks_in")


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory, tasks_in: str) -> Path:
    root = tmp_path_factory.mktemp("sink") / "log"
    with offsetlog.open(str(root)) as log:
        log.create_topic("first")
    return root


@pytest.fixture
def topic(root: Path, request: pytest.FixtureRequest) -> str:
    """A new topic with four partitions."""
    name = f"topic-{abs(hash(request.node.name)) % 10**10}"
    with offsetlog.open(str(root)) as log:
        log.create_topic(name, partitions=4, config={"retention.ms": -1})
    return name


def numbers(spark: Any, count: int, tasks: int = 2) -> Any:
    return spark.range(0, count, 1, tasks).selectExpr(
        "cast(id AS STRING) AS key", "concat('value-', id) AS value"
    )


# --- what KafkaSinkSuite asks for ----------------------------------------------------------


@pytest.mark.every_line(both_paths=True)
def test_values_and_headers(spark: Any, root: Path, topic: str) -> None:
    """batch - write to kafka: headers are written whether or not includeHeaders is set."""
    headers = [
        [("a", b"b")],
        [("c", b"d"), ("e", b"f")],
        [("g", b"h"), ("g", b"i")],
        None,
        [("j", b"k"), ("j", b"l"), ("m", None)],
        [],
    ]
    schema = StructType(
        [
            StructField("topic", StringType()),
            StructField("value", StringType()),
            StructField("headers", HEADER_TYPE),
        ]
    )
    rows = [(topic, str(i), given) for i, given in enumerate(headers, 1)]
    frame = spark.createDataFrame(rows, schema)
    write(frame, root, topic)
    write(frame, root, topic, includeHeaders="true")
    found = {(r.value, repr(r.headers)) for r in records(root, topic)}
    expected = {(str(i).encode(), repr(given or [])) for i, given in enumerate(headers, 1)}
    assert found == expected and len(records(root, topic)) == 12


def test_which_partition(spark: Any, root: Path) -> None:
    """batch - partition column and partitioner priorities"""
    with offsetlog.open(str(root)) as log:
        for name in ("hashed", "named", "nulls"):
            log.create_topic(name, partitions=4)
    frame = spark.createDataFrame(
        [("hashed", str(n), str(n)) for n in range(5)], "topic STRING, key STRING, value STRING"
    )
    write(frame, root, "hashed")
    write(frame.withColumn("partition", sql.lit(2)), root, "named")
    write(frame.withColumn("partition", sql.lit(None).cast("int")), root, "nulls")
    by_hash = {r.value: r.partition for r in records(root, "hashed")}
    assert len(set(by_hash.values())) > 1
    assert {r.partition for r in records(root, "named")} == {2}
    assert {r.value: r.partition for r in records(root, "nulls")} == by_hash


def test_a_null_topic(spark: Any, root: Path) -> None:
    """batch - null topic field value, and no topic option"""
    frame = spark.createDataFrame([(None, "1")], "topic STRING, value STRING")
    assert "1 of 1 rows have a null in column 'topic'. Filter them out" in refused(frame, root)


@pytest.mark.parametrize(
    ("mode", "told"),
    [
        ("overwrite", "A log cannot be overwritten. Write with .mode('append')."),
        ("ignore", 'cannot be written in the "Ignore" mode'),
        ("errorifexists", 'cannot be written in the "ErrorIfExists" mode'),
    ],
)
def test_save_modes(spark: Any, root: Path, topic: str, mode: str, told: str) -> None:
    """batch - unsupported save modes. The default mode is the last of them."""
    assert told in refused(numbers(spark, 1), root, topic, mode=mode)
    assert records(root, topic) == []


def test_plans_are_analysed(spark: Any, root: Path, topic: str) -> None:
    """SPARK-20496: batch - enforce analyzed plans"""
    frame = spark.range(1, 1000).select(sql.to_json(sql.struct("*")).alias("value"))
    write(frame, root, topic)
    assert len(records(root, topic)) == 999


def test_large_values(spark: Any, root: Path, topic: str) -> None:
    """generic - write big data with small producer buffer"""
    frame = spark.range(0, 1000, 1, 1).selectExpr("repeat('x', 15000) AS value", "1 AS partition")
    write(frame, root, topic)
    assert {(r.value, r.partition) for r in records(root, topic)} == {(b"x" * 15000, 1)}


@pytest.mark.parametrize(
    ("columns", "told"),
    [
        (["value AS key", "value"], "neither the option topic nor a column 'topic'"),
        (["'t' AS topic", "value AS key"], "The rows have no column 'value'."),
        (["CAST('1' AS INT) AS topic", "value"], "Column 'topic' is int; it must be string."),
        (["'t' AS topic", "CAST(value AS INT) AS value"], "'value' is int; it must be binary or"),
        (["'t' AS topic", "value", "1 AS key"], "Column 'key' is int; it must be binary or"),
        (["'t' AS topic", "value", "value AS partition"], "'partition' is string; it must be int"),
        (["'t' AS topic", "value", "value AS headers"], "'headers' is string; it must be array<"),
        (["'t' AS topic", "value", "1 AS timestamp"], "'timestamp' is int; it must be timestamp"),
        (["'t' AS topic", "value AS VALUE"], "rename 'VALUE' to 'value'"),
        (["'t' AS topic", "value", "null AS key"], "Column 'key' is void"),
    ],
)
def test_a_schema_that_does_not_fit(spark: Any, root: Path, columns: list[str], told: str) -> None:
    """streaming - write data with bad schema; with valid schema but wrong types"""
    frame = spark.createDataFrame([("1",)], "value STRING").selectExpr(*columns)
    assert told in refused(frame, root)


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"topic": "no-such-topic"}, "no topic 'no-such-topic'"),
        ({"topic": "TOPIC"}, "There is no topic 'TOPIC'"),
        ({"topic": " "}, "The option topic cannot be ' '. Allowed: a text that is not empty."),
        ({"topic": "a/b"}, "'a/b' is not a legal topic name"),
        ({"topik": "first"}, "There is no option 'topik'. Did you mean 'topic'?"),
        ({"topic": "first", "startingOffsets": "earliest"}, "is not an option of the sink"),
        ({"topic": "first", "includeHeaders": "yes"}, "includeHeaders cannot be 'yes'"),
        ({"topic": "first", "txnAppId": "a" * 1025, "txnVersion": "1"}, "1 to 1024 characters"),
        ({"topic": "x", "createTopicPartitions": "0"}, "createTopicPartitions cannot be '0'"),
        ({"topic": "x", "createTopicPartitions": "1000000"}, "a whole number from 1 to 100000"),
        ({"topic": "first", "storage.secret": "hunter2"}, "takes no storage options"),
    ],
)
def test_options_that_do_not_fit(
    spark: Any, root: Path, options: dict[str, str], told: str
) -> None:
    message = refused(numbers(spark, 1), root, **options)
    assert told in message and "hunter2" not in message


def test_a_log_that_is_not_there(spark: Any, tmp_path: Path) -> None:
    told = refused(numbers(spark, 1), tmp_path / "nothing", "t")
    assert "There is no log at" in told and not (tmp_path / "nothing").exists()
    with pytest.raises(Exception, match="path"):
        numbers(spark, 1).write.format("offsetlog").mode("append").option("topic", "t").save()


def test_options_of_a_kafka_client_are_passed_over(spark: Any, root: Path, topic: str) -> None:
    """streaming - exception on config serializer: ours has no Kafka client to be confused."""
    options = {"kafka.bootstrap.servers": str(root), "kafka.key.serializer": "foo"}
    writer = numbers(spark, 3).write.format("offsetlog").mode("append")
    writer.options(topic=topic, **options).save()
    assert len(records(root, topic)) == 3


# --- rows ----------------------------------------------------------------------------------


@pytest.mark.parametrize("many", [False, True], ids=["few", "many"])
def test_byte_for_byte(spark: Any, root: Path, topic: str, many: bool) -> None:
    """Every column, through the message and through segments."""
    count = 20_000 if many else 50
    pad = "repeat('p', 40)" if many else "''"
    frame = spark.range(0, count, 1, 3).selectExpr(
        "CASE WHEN id % 7 = 0 THEN NULL WHEN id % 7 = 1 THEN X'' "
        "ELSE CAST(concat('k', id) AS BINARY) END AS key",
        f"CASE WHEN id % 5 = 0 THEN NULL ELSE CAST(concat(id, {pad}) AS BINARY) END AS value",
        "CASE WHEN id % 3 = 0 THEN timestamp_micros(id * 1000 + 999) END AS timestamp",
        "CASE WHEN id % 11 = 0 THEN array(named_struct('key', CAST(id AS STRING), 'value', "
        "CAST('h' AS BINARY))) END AS headers",
        "CASE WHEN id % 2 = 0 THEN CAST(id % 4 AS INT) END AS partition",
        "id AS ignored",
    )
    before = dt.datetime.now(dt.UTC).timestamp() * 1000
    write(frame, root, topic)
    found = records(root, topic)
    assert len(found) == count
    tail = b"p" * 40 if many else b""
    seen = {r.value: r for r in found if r.value is not None}
    for number in range(count):
        if number % 5 == 0:
            continue
        record = seen[b"%d" % number + tail]
        key = None if number % 7 == 0 else b"" if number % 7 == 1 else b"k%d" % number
        assert record.key == key
        if number % 3 == 0:
            assert record.timestamp == number
        else:
            assert record.timestamp >= int(before)
        expected = [(str(number), b"h")] if number % 11 == 0 else []
        assert record.headers == expected
        if number % 2 == 0:
            assert record.partition == number % 4
        elif key is not None:
            assert record.partition == partitions_of(pa.array([key]), 4)[0]
    assert sum(r.value is None for r in found) == count // 5


def test_the_partitioner_is_that_of_the_client(spark: Any, root: Path, topic: str) -> None:
    write(numbers(spark, 500), root, topic)
    with offsetlog.open(str(root)) as log:
        log.create_topic("by-client", partitions=4)
        with log.producer() as producer:
            for i in range(500):
                producer.send("by-client", b"value-%d" % i, key=b"%d" % i)
    ours = {r.key: r.partition for r in records(root, topic)}
    assert ours == {r.key: r.partition for r in records(root, "by-client")}


def test_rows_of_a_task_keep_their_order(spark: Any, root: Path, topic: str) -> None:
    frame = spark.range(0, 60_000, 1, 3).selectExpr(
        "CAST(id % 100 AS STRING) AS key", "concat(id, repeat('-', 30)) AS value"
    )
    write(frame, root, topic)
    last: dict[tuple[int, bytes], int] = {}
    for record in records(root, topic):
        number = int(record.value.rstrip(b"-"))
        task = number // 20_000
        assert last.get((task, record.key), -1) < number
        last[task, record.key] = number


def test_a_partition_that_is_not_there(spark: Any, root: Path, topic: str) -> None:
    frame = numbers(spark, 10).withColumn("partition", sql.lit(4))
    told = refused(frame, root, topic)
    assert f"Topic '{topic}' has no partition 4. It has 4, from 0." in told
    assert "names the partition -1" in refused(
        numbers(spark, 10).withColumn("partition", sql.lit(-1)), root, topic
    )
    assert records(root, topic) == []


def test_rows_that_are_too_large_or_too_late(spark: Any, root: Path, topic: str) -> None:
    large = spark.range(1).selectExpr("repeat('x', 1100000) AS value")
    assert f"A record for topic '{topic}' has 1100000 bytes" in refused(large, root, topic)
    late = spark.range(1).selectExpr("'x' AS value", "TIMESTAMP'2300-01-01' AS timestamp")
    assert "The timestamp is" in refused(late, root, topic)
    assert records(root, topic) == []


def test_a_topic_that_is_compacted_takes_no_record_without_a_key(spark: Any, root: Path) -> None:
    with offsetlog.open(str(root)) as log:
        log.create_topic("compacted", config={"cleanup.policy": "compact"})
    frame = spark.range(0, 3, 1, 1).selectExpr("IF(id = 1, NULL, 'k') key", "'x' AS value")
    assert "A record for topic 'compacted' has no key" in refused(frame, root, "compacted")
    write(frame.where("key IS NOT NULL"), root, "compacted")
    assert len(values(root, "compacted")) == 2


def test_time_of_append(spark: Any, root: Path) -> None:
    with offsetlog.open(str(root)) as log:
        log.create_topic("stamped", config={"message.timestamp.type": "LogAppendTime"})
    write(spark.range(5).selectExpr("'x' AS value", "timestamp_millis(1) AS timestamp"), root,
          "stamped")  # fmt: skip
    for record in records(root, "stamped"):
        assert record.timestamp_type == 1 and record.timestamp > 1_600_000_000_000


@pytest.mark.every_line
def test_no_rows_and_no_tasks(spark: Any, root: Path, topic: str) -> None:
    write(numbers(spark, 5).where("value = 'none'"), root, topic)
    write(spark.createDataFrame([], "value STRING"), root, topic)
    write(spark.createDataFrame(spark.sparkContext.emptyRDD(), "value STRING"), root, topic)
    assert records(root, topic) == []


# --- topics --------------------------------------------------------------------------------


@pytest.mark.every_line
@pytest.mark.parametrize("pad", ["''", "repeat('p', 40)"], ids=["few", "many"])
def test_several_topics(spark: Any, root: Path, pad: str) -> None:
    names = [f"several-{i}-{len(pad)}" for i in range(3)]
    with offsetlog.open(str(root)) as log:
        for name in names:
            log.create_topic(name, partitions=2)
    frame = spark.range(0, 30_000, 1, 2).selectExpr(
        f"concat('several-', id % 3, '-{len(pad)}') AS topic", f"concat(id, {pad}) AS value"
    )
    for _ in range(2):
        write(frame, root, txnAppId="job", txnVersion="1")
    for i, name in enumerate(names):
        found = sorted(int(value.rstrip(b"p")) for value in values(root, name))
        assert found == list(range(i, 30_000, 3))


def test_a_topic_of_the_column_that_is_not_there(spark: Any, root: Path, topic: str) -> None:
    frame = spark.range(10).selectExpr(
        f"IF(id = 7, 'nowhere', '{topic}') AS topic", "CAST(id AS STRING) AS value"
    )
    told = refused(frame.coalesce(1), root)
    assert "There is no topic 'nowhere'" in told and "createTopicPartitions" in told
    assert records(root, topic) == []


def test_topics_are_created_when_that_is_wanted(spark: Any, tmp_path: Path) -> None:
    root = tmp_path / "fresh"
    write(numbers(spark, 100), root, "made", createTopicPartitions="3")
    write(numbers(spark, 100), root, "made", createTopicPartitions="7")
    frame = numbers(spark, 100, 2).withColumn("topic", sql.expr("concat('by-row-', key % 3)"))
    write(frame, root, createTopicPartitions="2")
    assert {r.partition for r in records(root, "made")} == {0, 1, 2}
    assert sum(len(records(root, f"by-row-{i}")) for i in range(3)) == 100


# --- exactly once --------------------------------------------------------------------------


@pytest.mark.every_line
def test_a_version_counts_once_and_a_lower_one_is_passed_over(
    spark: Any, root: Path, topic: str
) -> None:
    for version, text in ((3, "a"), (3, "again"), (2, "older"), (4, "b")):
        frame = spark.range(1).selectExpr(f"'{text}' AS value")
        write(frame, root, topic, txnAppId="job", txnVersion=str(version))
    other = spark.range(1).selectExpr("'of another job' AS value")
    write(other, root, topic, txnAppId="other", txnVersion="1")
    assert values(root, topic) == [b"a", b"b", b"of another job"]


def test_a_task_that_fails_leaves_nothing_to_be_read(spark: Any, root: Path, topic: str) -> None:
    """Others have written their segments by then."""
    frame = spark.range(0, 40_000, 1, 4).selectExpr(
        "IF(id = 39999, raise_error('a row that cannot be'), concat(id, repeat('p', 40))) AS value"
    )
    assert "a row that cannot be" in refused_with_a_trace(frame, root, topic)
    assert records(root, topic) == []
    write(spark.range(1).selectExpr("'good' AS value"), root, topic)
    assert values(root, topic) == [b"good"]


def refused_with_a_trace(frame: Any, root: Path, topic: str) -> str:
    """An error that is not ours."""
    with pytest.raises(Exception) as error:
        write(frame, root, topic)
    return str(error.value)
