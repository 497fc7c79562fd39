"""Who reads segments, the JVM or Python: the same rows, and the same errors."""

from __future__ import annotations

import os
import random
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyspark
import pytest

import offsetlog
from offsetlog.format import segments as encoding
from offsetlog.spark_jar import spark_jar, spark_line
from tests.engine.topic.test_forged_segments import erased_with
from tests.engine.topic.test_forged_segments import opened as small
from tests.format import forge
from tests.format.forged_segments import Forged, Parts, forged_from
from tests.spark_plugin.live import Live, opened, source

COUNT, PARTITIONS = 6000, 2
HEADERS = [("h", b"v"), ("none", None), ("", b"")]
SETTING = "spark.offsetlog.reader"


@pytest.fixture(scope="module")
def only_with_a_jar(spark: Any, jar: Path) -> None:
    if spark_jar(spark.version).path is None:
        pytest.skip(f"no jar for the JVM of Spark {spark.version}")


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Three appends of segments in each partition, and rows in entries between them."""
    with opened(tmp_path_factory.mktemp("reader")) as log:
        log.create_topic("wide", partitions=PARTITIONS, config={"retention.ms": "-1"})
        for turn in range(3):
            send(log, COUNT, turn)
            send(log, 10, turn)
        yield Path(log.url.removeprefix("file://"))


def send(log: Any, count: int, seed: int) -> None:
    rng = random.Random(seed)
    # In one append, however slow the machine is.
    with log.producer(linger_ms=60_000) as producer:
        for at in range(count):
            producer.send(
                "wide",
                None if at % 7 == 0 else rng.randbytes(rng.randrange(150)),
                key=None if at % 3 == 0 else b"k%d" % at,
                headers=HEADERS[: at % 4] if at % 5 == 0 else None,
                partition=at % PARTITIONS,
                timestamp=1_700_000_000_000 + at,
            )


def read(spark: Any, root: Path, subscribe: str = "wide", **options: Any) -> Any:
    return source(spark, root, subscribe=subscribe, includeHeaders="true", **options)


def counted(frame: Any) -> dict[str, int]:
    """What the scan of a frame that was collected says of itself."""
    leaves = frame._jdf.queryExecution().executedPlan().collectLeaves()
    [scan] = [leaves.apply(at) for at in range(leaves.size())]
    out = {}
    for name in ("rowsOfJvm", "rowsOfPython", "bytesChecked"):
        metric = scan.metrics().get(name)
        out[name] = metric.get().value() if metric.isDefined() else 0
    return out


def collected(frame: Any) -> list[Any]:
    return sorted(frame.collect(), key=lambda row: (row.partition, row.offset))


@pytest.mark.every_line
def test_both_give_the_same_rows_each_where_it_should(
    spark: Any, root: Path, only_with_a_jar: None
) -> None:
    rows = {}
    for reader in ("rows", "python", "jvm"):
        spark.conf.set(SETTING, reader)
        frame = read(spark, root)
        rows[reader] = collected(frame)
        numbers = counted(frame)
        if reader == "jvm":
            # Rows in entries are Python's.
            assert numbers["rowsOfJvm"] > COUNT and numbers["rowsOfPython"] >= 30
            assert numbers["rowsOfJvm"] + numbers["rowsOfPython"] == 3 * (COUNT + 10)
            sizes = [path.stat().st_size for path in root.rglob("partition=*/*.parquet")]
            assert len(sizes) >= PARTITIONS
            assert sum(sizes) * 0.99 < numbers["bytesChecked"] <= sum(sizes)
        elif reader == "python":
            assert numbers == {"rowsOfJvm": 0, "rowsOfPython": 3 * (COUNT + 10), "bytesChecked": 0}
            some = frame.where("partition = 1 and offset >= 100 and offset < 3200").select("key")
            assert len(some.collect()) == 3100
            assert counted(some)["rowsOfPython"] == 3100
        else:
            assert set(numbers.values()) == {0}
    spark.conf.unset(SETTING)
    assert len(rows["jvm"]) == 3 * (COUNT + 10)
    assert rows["jvm"] == rows["python"] == rows["rows"]
    assert [row.offset for row in rows["jvm"] if row.partition == 1] == list(
        range(3 * COUNT // 2 + 15)
    )


def test_queries_of_one_frame_read_their_own_columns_and_what_filters_leave(
    spark: Any, root: Path, tasks_in: str
) -> None:
    frame = read(spark, root)
    assert frame.count() == 3 * (COUNT + 10)
    whole = collected(frame)
    some = frame.where("partition = 1 and offset >= 100 and offset < 3200")
    assert collected(some.select("partition", "offset", "value")) == [
        (row.partition, row.offset, row.value) for row in whole
        if row.partition == 1 and 100 <= row.offset < 3200
    ]  # fmt: skip
    if tasks_in == "jvm":
        assert counted(some.select("partition", "offset", "value"))["rowsOfJvm"] == 0
        one = some.select("partition", "offset")
        one.collect()
        numbers = counted(one)
        assert numbers["rowsOfJvm"] + numbers["rowsOfPython"] == 3100
    late = frame.where("timestamp >= timestamp_millis(1700000009999)")
    assert late.count() == 0
    assert frame.select("headers").where("size(headers) = 3").count() == sum(
        len(row.headers or ()) == 3 for row in whole
    )
    # The filters of one query are none of the next.
    assert frame.count() == len(whole)


def test_ranges_begin_and_end_within_segments(spark: Any, root: Path, tasks_in: str) -> None:
    start, end = '{"wide":{"0":17,"1":2999}}', '{"wide":{"0":3003,"1":6020}}'
    for options in ({}, {"minPartitions": 7}, {"maxRecordsPerPartition": 1000}):
        rows = collected(read(spark, root, startingOffsets=start, endingOffsets=end, **options))
        assert [row.offset for row in rows] == [*range(17, 3003), *range(2999, 6020)]


@pytest.mark.every_line(both_paths=True)
def test_a_stream(spark: Any, root: Path, tmp_path: Path, tasks_in: str) -> None:
    options = {"subscribe": "wide", "startingOffsets": "earliest", "maxOffsetsPerTrigger": 5000}
    with Live(spark, root, tmp_path / "cp", {"availableNow": True}, **options) as live:
        live.finished()
        rows = sorted(live.rows, key=lambda row: (row.partition, row.offset))
        assert [row.value for row in rows] == [row.value for row in collected(read(spark, root))]
        assert len(live.batches) == 4
        if tasks_in == "jvm":
            progress = live.query.recentProgress[0]["sources"][0]
            assert float(progress["metrics"]["maxOffsetsBehindLatest"]) > 0


# --- what is not as it was planned --------------------------------------------------------------


@pytest.fixture
def copy(root: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(root, tmp_path / "copy"))


def segments(root: Path) -> list[Path]:
    return sorted(root.rglob("partition=0/*.parquet"))


def message(frame: Any) -> str:
    with pytest.raises(Exception) as error:  # noqa: PT011 - Spark has a class for each place
        frame.collect()
    [line] = [
        line for line in str(error.value).splitlines() if "offsetlog.errors." in line
    ][:1] or [str(error.value)]  # fmt: skip
    return line.partition("offsetlog.errors.")[2]


def test_damage_is_told_in_the_same_words(spark: Any, copy: Path, only_with_a_jar: None) -> None:
    path = segments(copy)[1]
    whole, rng = path.read_bytes(), random.Random(4)
    places = [1, len(whole) - 20, rng.randrange(len(whole) // 2)]
    damages = [
        *(whole[:at] + bytes([whole[at] ^ 4]) + whole[at + 1 :] for at in places),
        whole[: len(whole) // 2],
    ]  # fmt: skip
    for data in damages:
        path.write_bytes(data)
        errors = []
        for reader in ("rows", "python", "jvm"):
            spark.conf.set(SETTING, reader)
            errors.append(message(read(spark, copy)))
        spark.conf.unset(SETTING)
        assert len(set(errors)) == 1 and errors[0].startswith("CorruptLogError: wide/partition=0")


def test_what_is_no_file_is_told_in_the_same_words_and_not_waited_for(
    spark: Any, copy: Path, tmp_path: Path, only_with_a_jar: None
) -> None:
    path = segments(copy)[1]
    moved = path.rename(tmp_path / "elsewhere")
    changes: list[Callable[[], object]] = [
        lambda: None, lambda: path.symlink_to(moved), lambda: os.mkfifo(path),
        lambda: os.mknod(path, 0o140600), path.mkdir,
    ]  # fmt: skip
    for change in changes:
        change()
        assert in_the_words_of_all(spark, copy)
        if path.is_symlink() or path.exists() and not path.is_dir():
            path.unlink()


def in_the_words_of_all(spark: Any, root: Path, **options: Any) -> str:
    errors = []
    for reader in ("rows", "python", "jvm"):
        spark.conf.set(SETTING, reader)
        errors.append(message(read(spark, root, **options)))
    spark.conf.unset(SETTING)
    [words] = set(errors)
    return words


def test_a_pipe_in_the_place_of_the_roots_file_is_not_waited_for(
    spark: Any, copy: Path, only_with_a_jar: None
) -> None:
    frames = []
    for reader in ("python", "jvm"):
        spark.conf.set(SETTING, reader)
        frames.append(read(spark, copy))
    (copy / "_offsetlog.json").unlink()
    os.mkfifo(copy / "_offsetlog.json")
    words = {message(frame) for frame in frames}
    spark.conf.unset(SETTING)
    assert len(words) == 1 and words != {""}


def nested(parts: Parts) -> Forged:
    deep = b"\x19" * 20_000 + b"\x03\0"
    return parts.together("lists in lists", lambda raw: raw[:-1] + b"\x19" + deep)


def two_billion_headers(parts: Parts) -> Forged:
    many = 2**31 - 1
    for leaf in ("key", "value"):
        repeated = forge.levels(forge.run(19, 0), forge.run(many - 19, 1))
        stored = repeated + forge.levels(forge.run(many, 3))
        parts.put(f"headers.list.element.{leaf}", forge.page(stored, len(stored), many), many)
    return parts.together("headers")


def zeros(parts: Parts) -> Forged:
    frame = forge.zstd_frame(b"", 256 << 20)
    pages = forge.page(frame, 256 << 20, 0) * 20
    parts.put("value", pages, 19, forge.ZSTD)
    return parts.together("zeros")


@pytest.mark.parametrize("change", [nested, two_billion_headers, zeros])
def test_a_segment_beyond_all_bounds_ends_a_query_and_no_more(
    spark: Any, root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
    only_with_a_jar: None, change: Callable[[Parts], Forged],
) -> None:  # fmt: skip
    plain = encoding.encode

    def encode(table: Any, *rest: Any) -> Any:
        out = change(Parts(forged_from(plain(table, *rest))))
        return encoding.EncodedSegment(memoryview(out.data), out.foot, out.sum)

    with small(tmp_path) as log:
        erased_with(log, monkeypatch, encode)
    words = in_the_words_of_all(spark, tmp_path / "log", subscribe="t")
    assert words.startswith("CorruptLogError: t/partition=0")
    assert read(spark, root).count() == 3 * (COUNT + 10)


def test_a_plan_that_is_old_is_planned_again(spark: Any, copy: Path, tasks_in: str) -> None:
    """Compaction, and the collection of what it replaced, between the plan and its tasks."""
    frame = read(spark, copy)
    expected = collected(frame)
    with offsetlog.open(str(copy)) as log:
        before = segments(copy)
        for turn in range(8):  # So many small files in a row are worth a rewrite.
            send(log, 10 * PARTITIONS, turn)
        log.maintain(grace_ms=0)
        log.maintain(grace_ms=0)
    assert not any(path.exists() for path in before)
    assert collected(frame) == expected


def test_handles_are_given_back(spark: Any, root: Path, tasks_in: str) -> None:
    """Also by tasks that end early."""
    frame = read(spark, root)
    frame.collect()
    java = spark._jvm.java.lang.ProcessHandle.current().pid()

    def held() -> int:
        links = (os.path.realpath(fd) for fd in Path(f"/proc/{java}/fd").iterdir())
        return sum(str(root) in link for link in links)

    for _ in range(3):
        assert len(frame.limit(5).collect()) == 5
        frame.select("value").collect()
    assert held() == 0


def test_a_long_stream_holds_no_memory_off_the_heap(
    spark: Any, root: Path, tmp_path: Path, tasks_in: str
) -> None:
    assert_nothing_grows(spark, root, tmp_path)


def test_nor_does_a_long_stream_of_columns_that_python_gives(
    spark: Any, root: Path, tmp_path: Path, only_with_a_jar: None
) -> None:
    spark.conf.set(SETTING, "python")
    try:
        assert_nothing_grows(spark, root, tmp_path)
    finally:
        spark.conf.unset(SETTING)


def assert_nothing_grows(spark: Any, root: Path, tmp_path: Path) -> None:
    """Neither memory nor handles: after sixty batches of a stream as much as after fifteen."""
    jvm, java = spark._jvm, spark._jvm.java.lang.ProcessHandle.current().pid()
    pools = jvm.java.lang.management.ManagementFactory.getPlatformMXBeans(
        jvm.java.lang.Class.forName("java.lang.management.BufferPoolMXBean")
    )
    arrow = jvm.org.apache.spark.sql.util.ArrowUtils.rootAllocator()
    held: dict[int, tuple[int, int, int]] = {}
    counts: list[int] = []

    def look(frame: Any, batch: int) -> None:
        counts.append(frame.count())
        if batch in (14, 59):
            jvm.System.gc()  # Buffers are given back when their owners are collected.
            direct = sum(pool.getMemoryUsed() for pool in pools)
            held[batch] = direct, arrow.getAllocatedMemory(), len(os.listdir(f"/proc/{java}/fd"))

    frame = source(spark, root, stream=True, subscribe="wide", minPartitions=2,
                   startingOffsets="earliest", maxOffsetsPerTrigger=300)  # fmt: skip
    writer = frame.writeStream.foreachBatch(look).trigger(availableNow=True)
    query = writer.option("checkpointLocation", str(tmp_path)).start()
    assert query.awaitTermination(180)
    assert sum(counts) == 3 * (COUNT + 10)
    early, late = held[14], held[59]
    assert late[0] <= early[0] + 4 * 2**20
    assert late[1] <= early[1]
    assert late[2] <= early[2] + 20  # Spark's Python workers come and go with a few each.


# --- the setting --------------------------------------------------------------------------------


def test_a_reader_that_is_none(spark: Any, root: Path, only_with_a_jar: None) -> None:
    spark.conf.set(SETTING, "jmv")
    with pytest.raises(Exception, match="reader is 'jmv', which is no reader"):
        read(spark, root).count()
    spark.conf.unset(SETTING)


RUNNING = """
import sys
from pyspark.sql import SparkSession

spark = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false").getOrCreate()
frame = lambda: spark.read.format("offsetlog").option("subscribe", "wide").load(sys.argv[1])
print("before", frame().count())
import offsetlog.spark
offsetlog.spark.register(spark)
offsetlog.spark.register(spark)
print("after", frame().count(), spark.sparkContext._jsc.sc().listJars().size())
leaves = frame()._jdf.queryExecution().executedPlan().collectLeaves()
print("scan", "rowsOfJvm" in leaves.apply(0).metrics().keySet().toString())
"""


def test_a_session_that_runs_gets_the_reader_by_register(root: Path, only_with_a_jar: None) -> None:
    done = subprocess.run(
        [sys.executable, "-c", RUNNING, str(root)], capture_output=True, text=True, timeout=300,
        check=False, env={**os.environ, "PYSPARK_PYTHON": sys.executable},
    )  # fmt: skip
    count = 3 * (COUNT + 10)
    assert done.stdout.splitlines() == [f"before {count}", f"after {count} 1", "scan True"], (
        done.stderr
    )


ANOTHERS = """
import sys
import offsetlog.spark

spark = offsetlog.spark.session(
    master="local[1]", delta=False, config={"spark.ui.enabled": "false", "spark.jars": sys.argv[2]}
)
frame = lambda: spark.read.format("offsetlog").option("subscribe", "wide").load(sys.argv[1])
print("rows", frame().count())
spark.conf.set("spark.offsetlog.reader", "jvm")
try:
    frame().count()
except Exception as error:
    print("error", str(error).splitlines()[0])
"""
NO_MEMBER = "org/apache/spark/sql/execution/python/ArrowPythonRunner another ()V"


@pytest.mark.parametrize(
    ("file", "old", "new", "said"),
    [
        (
            "offsetlog/jar.properties", f"version={offsetlog.__version__}", "version=0.0.9",
            f"the jar is of offsetlog 0.0.9, and Python has {offsetlog.__version__}",
        ),
        (
            "offsetlog/jar.properties", spark_line(pyspark.__version__), "9.9",
            f"the jar is made for Spark LINES, and this is {pyspark.__version__}",
        ),
        (
            "offsetlog/spark.names", "\n", f"\n{NO_MEMBER}\n",
            f"this Spark, {pyspark.__version__}, does not have {NO_MEMBER}",
        ),
    ],
    ids=["version", "line", "vendor"],
)  # fmt: skip
def test_a_jar_that_does_not_fit_is_not_used_and_the_error_says_why(
    root: Path, only_with_a_jar: None, jar: Path, tmp_path: Path,
    file: str, old: str, new: str, said: str,
) -> None:  # fmt: skip
    """It comes before ours on the class path."""
    another = tmp_path / "a-another.jar"
    with zipfile.ZipFile(jar) as now, zipfile.ZipFile(another, "w") as then:
        for name in now.namelist():
            data = now.read(name).decode("latin-1")
            if name == file:
                assert old in data
                data = data.replace(old, new, 1)
                lines = data.partition("lines=")[2].strip()
            then.writestr(name, data.encode("latin-1"))
    done = subprocess.run(
        [sys.executable, "-c", ANOTHERS, str(root), str(another)], capture_output=True, text=True,
        timeout=300, check=False, env={**os.environ, "PYSPARK_PYTHON": sys.executable},
    )  # fmt: skip
    assert done.stdout.splitlines() == [
        f"rows {3 * (COUNT + 10)}",
        "error spark.offsetlog.reader is jvm, and the JVM has no reader: "
        f"{said.replace('LINES', lines)}.",
    ], done.stderr
