"""Tasks of a write in Spark's JVM store what Python's store, and leave to them what they can't.

The tests of the sink itself run on both paths (``tasks_in``); here the two are held against each
other."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

import offsetlog
from offsetlog.core.topic.entry import LOG_APPEND_TIME
from offsetlog.spark_jar import spark_jar
from pyspark_offsetlog.runtime.jar import SETTING
from tests.spark_plugin.live import source
from tests.spark_plugin.test_reader import counted
from tests.spark_plugin.written import records, refused, write

HEADERS = """CASE
    WHEN id % 5 = 0 THEN array(
        named_struct('key', concat('h', id), 'value', encode(CAST(id AS STRING), 'utf-8')),
        named_struct('key', 'ü', 'value', CAST(NULL AS BINARY)),
        named_struct('key', '', 'value', CAST('' AS BINARY)))
    WHEN id % 5 = 1 THEN array()
    END AS headers"""
COLUMNS = (
    "CASE WHEN id % 3 > 0 THEN CAST(repeat(concat('k', id), pmod(hash(id), 4)) AS BINARY) END key",
    "CASE WHEN id % 11 > 0 THEN repeat(CAST(hash(id) AS STRING), pmod(hash(id, 1), 9)) END value",
    HEADERS,
    "CASE WHEN id % 13 > 0 THEN timestamp_micros(hash(id) * 100003L) END AS timestamp",
    "CASE WHEN id % 7 = 0 THEN CAST(id % 3 AS INT) END AS partition",
)


@pytest.fixture(autouse=True)
def _with_jar(spark: Any) -> None:
    jar = spark_jar(spark.version)
    if jar.path is None:
        pytest.skip(f"no jar for the JVM: {jar.reason}")


def create(root: Path, *topics: str, **config: str | int) -> None:
    with offsetlog.open(str(root)) as log:
        for topic in topics:
            settings = {name.replace("_", "."): value for name, value in config.items()}
            log.create_topic(topic, partitions=3, config={"retention.ms": -1, **settings})


def write_with(spark: Any, reader: str, *args: Any, **options: Any) -> None:
    spark.conf.set(SETTING, reader)
    try:
        write(*args, **options)
    finally:
        spark.conf.unset(SETTING)


def on_both(spark: Any, frame: Any, root: Path, **options: Any) -> tuple[list[Any], list[Any]]:
    """What each path stored of the frame, in topics of its own."""
    stored = []
    for topic, reader in (("j", "auto"), ("p", "python")):
        write_with(spark, reader, frame, root, topic, txnAppId="a", txnVersion=7, **options)
        found = records(root, topic)
        # A record without a time has that of the write.
        stored.append([r._replace(topic="", timestamp=r.timestamp % 10**12) for r in found])
    return stored[0], stored[1]


def writers(root: Path, topic: str) -> set[str]:
    """Who wrote the segments of a topic."""
    files = (root / topic).glob("partition=*/*.parquet")
    return {pq.read_metadata(file).created_by.partition(" ")[0] for file in files}


@pytest.mark.parametrize(
    ("count", "config"),
    [
        (40, {}),
        pytest.param(20_000, {}, marks=pytest.mark.every_line),
        (20_000, {"compression": "lz4"}),
        (20_000, {"compression": "snappy"}),
        (20_000, {"compression": "gzip"}),
        (150_000, {"compression": "none", "segment_bytes": 1024 * 1024}),
    ],
)
def test_both_paths_store_the_same(
    spark: Any, root: Path, count: int, config: dict[str, Any]
) -> None:
    create(root, "j", "p", **config)
    frame = spark.range(0, count, 1, 2).selectExpr("id", *COLUMNS)
    timed = frame.where("timestamp IS NOT NULL")
    jvm, python = on_both(spark, timed, root)
    differing = [pair for pair in zip(jvm, python, strict=True) if pair[0] != pair[1]]
    assert not differing, differing[:2]
    assert len(jvm) > count * 0.8
    if count > 40:
        assert writers(root, "j") == {"offsetlog"}
        assert writers(root, "p") == {"parquet-cpp-arrow"}
    else:
        assert not writers(root, "j") | writers(root, "p")
    if "segment_bytes" in config:
        assert len(list((root / "j").glob("partition=*/*.parquet"))) > 6


def test_what_the_jvm_wrote_the_jvm_reads(spark: Any, root: Path) -> None:
    """What it does not know in a footer it would leave to Python, and nobody would see it."""
    for compression in ("zstd", "gzip", "none"):
        create(root, compression, compression=compression)
        frame = spark.range(0, 20_000, 1, 1).selectExpr("id", *COLUMNS[:3])
        write_with(spark, "auto", frame, root, compression)
        assert writers(root, compression) == {"offsetlog"}
        read = source(spark, root, subscribe=compression, includeHeaders="true")
        assert len(read.collect()) == 20_000
        assert counted(read)["rowsOfJvm"] == 20_000


def test_rows_without_key_headers_and_time(spark: Any, root: Path) -> None:
    """Of each task all such rows go to one partition, another one for the next task; a topic that
    has the time of append keeps no other."""
    create(root, "j", "p", message_timestamp_type="LogAppendTime")
    frame = spark.range(0, 20_000, 1, 2).selectExpr(
        "concat('value-', id) value", "timestamp_millis(id) AS timestamp"
    )
    jvm, python = on_both(spark, frame, root)
    bare = [[r._replace(timestamp=0) for r in some] for some in (jvm, python)]
    assert bare[0] == bare[1] and len({r.partition for r in jvm}) == 2
    assert min(r.timestamp for r in jvm) > 20_000
    assert {r.timestamp_type for r in [*jvm, *python]} == {LOG_APPEND_TIME}
    for file in (root / "j").glob("partition=*/*.parquet"):
        assert pq.read_schema(file).names == ["value", "timestamp"]


def test_what_can_not_be_compressed_is_not(spark: Any, root: Path) -> None:
    create(root, "j")
    frame = spark.range(0, 20_000, 1, 1).selectExpr(
        "CAST(id AS STRING) key", "unhex(concat(sha2(CAST(id AS STRING), 512), sha2('x', 512))) v"
    )
    frame = frame.selectExpr("key", "substr(v, 1, 64) value", "0 AS partition")
    write_with(spark, "auto", frame, root, "j")
    [file] = (root / "j").glob("partition=0/*.parquet")
    group = pq.read_metadata(file).row_group(0)
    codecs = {group.column(i).path_in_schema: group.column(i).compression for i in range(3)}
    assert codecs == {"key": "ZSTD", "value": "UNCOMPRESSED", "timestamp": "ZSTD"}
    assert len(records(root, "j")) == 20_000


def test_the_rest_of_a_task_goes_to_python(spark: Any, root: Path) -> None:
    """A record that is too large for the JVM's memory: what was before it stays before it."""
    create(root, "j", max_message_bytes=1 << 26)
    frame = spark.range(0, 3_000, 1, 1).selectExpr(
        "CASE WHEN id = 2000 THEN repeat('x', 17000000) ELSE CAST(id AS STRING) END value",
        "1 AS partition",
    )
    write_with(spark, "auto", frame, root, "j")
    found = [r.value for r in records(root, "j")]
    assert len(found) == 3_000 and len(found[2000]) == 17_000_000
    assert [int(v) for v in found if len(v) < 100] == [n for n in range(3_000) if n != 2000]
    assert writers(root, "j") == {"offsetlog", "parquet-cpp-arrow"}


def test_topics_by_the_column(spark: Any, root: Path) -> None:
    """Those that are there are known to the JVM; one that is to be created is not."""
    create(root, "a", "b")
    frame = spark.range(0, 3_000, 1, 1).selectExpr(
        "CASE WHEN id < 2000 THEN element_at(array('a', 'b'), CAST(id % 2 + 1 AS INT)) "
        "ELSE 'c' END topic",
        "repeat(CAST(id AS STRING), 100) value",
        "0 AS partition",
    )
    write_with(spark, "auto", frame, root, createTopicPartitions=2)
    assert writers(root, "a") == writers(root, "b") == {"offsetlog"}
    assert writers(root, "c") == {"parquet-cpp-arrow"}
    found = [int(r.value[: len(r.value) // 100]) for t in "abc" for r in records(root, t)]
    assert found == [*range(0, 2000, 2), *range(1, 2000, 2), *range(2000, 3000)]


def test_a_disk_that_refuses(spark: Any, root: Path) -> None:
    """The same words on both paths, but for the name that a segment would have had."""
    create(root, "j")
    (root / "j" / "partition=1").write_text("")
    frame = spark.range(0, 20_000, 1, 1).selectExpr("repeat('x', 100) value", "1 AS partition")
    said = []
    for reader in ("auto", "python"):
        spark.conf.set(SETTING, reader)
        told = refused(frame, root, "j")
        spark.conf.unset(SETTING)
        [words] = set(re.findall(r"offsetlog\.errors\.StorageError: (Could not .*)", told))
        said.append(re.sub(r"'j/partition=1[^']*'", "NAME", words))
    assert said[0] == said[1] and "NAME under file://" in said[0]
    assert not list((root / "j").rglob(".tmp-*"))
