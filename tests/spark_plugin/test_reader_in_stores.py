"""Spark's JVM reads segments in a store through Hadoop's client, where the session has one: the
same rows and errors as Python's, whatever that client does."""

from __future__ import annotations

import itertools
import os
import random
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from offsetlog.client.log import Log
from offsetlog.core.topic.extents import Extent
from offsetlog.engine.env import REAL, Limits
from offsetlog.format.names import segment_of
from offsetlog.spark_jar import spark_jar
from offsetlog.storage import open_store
from tests.servers.process import Place
from tests.spark_plugin.java import folder_store
from tests.spark_plugin.java.folder_store import FolderStore
from tests.spark_plugin.live import Live, source
from tests.spark_plugin.test_gaps import extents, rewrite, send
from tests.spark_plugin.test_reader import SETTING, collected, counted, message

LIMITS = Limits(inline_bytes=4096, row_group_records=25, min_files=3)
LARGE, RECORD_BYTES = 200, 100_000
"""Records of a topic whose one segment is fetched in parts, eight of its row groups in one."""
PART = 8 << 20
MANY = 12
"""Segments of a topic with one partition: more than a task fetches at once."""
AT_ONCE = 8
TIMEOUT = "offsetlog.client.timeout"
numbers = itertools.count()
pytestmark = pytest.mark.usefixtures("only_with_a_jar")


@pytest.fixture(scope="module")
def only_with_a_jar(spark: Any, jar: Path) -> None:
    if spark_jar(spark.version).path is None:
        pytest.skip(f"no jar for the JVM of Spark {spark.version}")


@pytest.fixture(scope="module")
def log(latency_s3: Place) -> Iterator[Log]:
    url, options = latency_s3
    with Log(open_store(f"{url}/jvm", **options), REAL._replace(limits=LIMITS)) as log:
        log.create_topic("plain", partitions=2, config={"retention.ms": "-1"})
        log.create_topic("gaps", partitions=2, config={
            "cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0",
        })  # fmt: skip
        for topic in ("plain", "gaps"):
            for turn in range(4):
                send(log, topic, 300, turn)
                send(log, topic, 6, turn)
        rewrite(log, "gaps")
        log.create_topic("large", partitions=1)
        log.create_topic("many", partitions=1)
        with log.producer() as producer:
            producer.send_arrow("large", table(LARGE, RECORD_BYTES)).result()
            for _ in range(MANY):
                producer.send_arrow("many", table(100, 100)).result()
        yield log


def table(records: int, size: int) -> pa.Table:
    """Values of random bytes."""
    values = [random.Random(5).randbytes(size)] * records
    return pa.table({"value": pa.array(values, pa.binary())})


@pytest.fixture(scope="module")
def place(
    spark: Any, log: Log, latency_s3: Place, tmp_path_factory: pytest.TempPathFactory
) -> FolderStore:
    """What Hadoop's client reads: a copy of the bucket, of this module's own."""
    store = FolderStore(tmp_path_factory.mktemp("folders"))
    folder_store.download(latency_s3.options, log.store.url, store.place)
    spark.sql(f"ADD JAR '{folder_store.jar(tmp_path_factory.mktemp('jar'))}'")
    return store


@pytest.fixture
def store(spark: Any, place: FolderStore) -> Iterator[FolderStore]:
    """That of a session which wants the JVM to read; failures of other tests are forgotten."""
    place.forget()
    settings = {**place.settings(), "folder.test": str(next(numbers)), SETTING: "jvm"}
    for name, value in settings.items():
        spark.conf.set(name, value)
    yield place
    for name in (*settings, TIMEOUT):
        spark.conf.unset(name)


Read = Callable[..., Any]


@pytest.fixture
def options(latency_s3: Place) -> dict[str, Any]:
    """Where the store is, for Python alone."""
    return {f"storage__{name}": value for name, value in latency_s3.options.items()}


@pytest.fixture
def read(spark: Any, log: Log, options: dict[str, Any]) -> Read:
    """A frame of a topic."""
    return lambda topic, **more: source(
        spark, log.store.url, subscribe=topic, includeHeaders="true", **options, **more
    )


def by_python(spark: Any, read: Read, topic: str) -> list[Any]:
    reader = spark.conf.get(SETTING)
    spark.conf.set(SETTING, "python")
    rows = collected(read(topic))
    spark.conf.set(SETTING, reader)
    return rows


def segments(log: Log, topic: str) -> dict[str, Extent]:
    """By the paths by which the store is asked for them."""
    folder = log.open_topic(topic).chain.folder
    return {
        f"/jvm/{segment_of(folder, extent)}": extent
        for extent in extents(log, topic)
        if extent.segment is not None
    }


# --- what is asked, and what comes ----------------------------------------------------------------


@pytest.mark.parametrize("topic", ["plain", "gaps"])
def test_the_same_rows_with_one_request_for_a_segment(
    spark: Any, read: Read, store: FolderStore, log: Log, topic: str
) -> None:
    frame = read(topic)
    rows = collected(frame)
    numbers = counted(frame)
    assert rows == by_python(spark, read, topic) and rows
    assert any(row.headers for row in rows)
    there = segments(log, topic)
    assert numbers["rowsOfJvm"] == sum(extent.records for extent in there.values()) > 300
    assert numbers["rowsOfJvm"] + numbers["rowsOfPython"] == len(rows)
    assert sorted(store.asked()) == sorted((path, 0, e.segment.size) for path, e in there.items())


def test_a_large_segment_comes_in_parts_and_no_part_twice(
    read: Read, store: FolderStore, log: Log
) -> None:
    frame = read("large")
    assert [len(row.value) for row in collected(frame)] == [RECORD_BYTES] * LARGE
    assert counted(frame)["rowsOfJvm"] == LARGE
    [(path, extent)] = segments(log, "large").items()
    asked = sorted(store.asked())
    assert len(asked) == 3 and max(one.length for one in asked) <= PART
    ends = [one.start + one.length for one in asked]
    assert [one.start for one in asked] == [0, *ends[:-1]] and ends[-1] == extent.segment.size


def test_of_a_large_segment_only_the_row_groups_of_the_range(
    read: Read, store: FolderStore, log: Log
) -> None:
    """Its foot, and the third and fourth row group in one request."""
    frame = read("large", startingOffsets='{"large":{"0":60}}', endingOffsets='{"large":{"0":90}}')
    assert [row.offset for row in collected(frame)] == list(range(60, 90))
    [extent] = segments(log, "large").values()
    foot, groups = sorted(store.asked(), key=lambda one: one.length)
    assert foot.length == extent.segment.footer_bytes
    assert 50 * RECORD_BYTES < groups.length < 51 * RECORD_BYTES


def test_tasks_that_end_early(read: Read, store: FolderStore) -> None:
    for _ in range(3):
        assert len(read("plain").limit(5).collect()) == 5


def test_a_stream(
    spark: Any, store: FolderStore, log: Log, options: dict[str, Any], tmp_path: Path
) -> None:
    options |= {
        "subscribe": "large", "startingOffsets": "earliest", "maxOffsetsPerTrigger": LARGE // 2,
    }  # fmt: skip
    trigger = {"availableNow": True}
    with Live(spark, log.store.url, tmp_path / "cp", trigger, **options) as live:
        live.finished()
        assert [row.offset for row in live.rows] == list(range(LARGE))
        assert {len(row.value) for row in live.rows} == {RECORD_BYTES}
        assert len(live.batches) == 2
    # Each batch: the foot, and half of the rest in two parts.
    assert len(store.asked()) == 2 * 3


def test_options_of_the_storage_keep_to_python_unless_the_jvm_is_wanted(
    spark: Any, read: Read, store: FolderStore
) -> None:
    """The client does not know them: it may be set up for another place."""
    spark.conf.set(SETTING, "auto")
    frame = read("plain")
    assert collected(frame) and counted(frame)["rowsOfJvm"] == 0
    assert store.asked() == []


# --- what is not as it was planned ----------------------------------------------------------------


def _flip(data: bytes, at: int) -> bytes:
    return data[:at] + bytes([data[at] ^ 4]) + data[at + 1 :]


DAMAGES: dict[str, Callable[[Path, bytes], object]] = {
    "missing": lambda path, data: path.unlink(),
    "short": lambda path, data: path.write_bytes(data[: len(data) // 2]),
    "another": lambda path, data: path.write_bytes(bytes(len(data))),
    "footer": lambda path, data: path.write_bytes(_flip(data, len(data) - 20)),
    "rows": lambda path, data: path.write_bytes(_flip(data, len(data) // 2)),
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_what_the_client_sees_otherwise_python_reads(
    spark: Any, read: Read, store: FolderStore, log: Log, damage: str
) -> None:
    path = store.file(log.store.url, sorted(segments(log, "plain"))[1])
    data = path.read_bytes()
    DAMAGES[damage](path, data)
    try:
        frame = read("plain")
        rows = collected(frame)
    finally:
        path.write_bytes(data)
    assert rows == by_python(spark, read, "plain")
    # The other partition, and of this one all before it.
    assert 750 <= counted(frame)["rowsOfJvm"] < 900


@pytest.mark.parametrize("order", ["refuse", "wait 60000"])
def test_a_client_that_fails_is_left_alone(
    spark: Any, read: Read, store: FolderStore, order: str
) -> None:
    store.order(order)
    spark.conf.set(TIMEOUT, "500ms")
    expected = by_python(spark, read, "plain")
    for _ in range(3):
        frame = read("plain")
        assert collected(frame) == expected
        assert counted(frame)["rowsOfJvm"] == 0
    # Two tasks at once, each of which begins with its four segments, until three failed, or one
    # had waited.
    assert 2 <= len(store.asked()) <= 2 * 4 * (2 if order == "refuse" else 1)
    before = len(store.asked())
    store.order()
    assert collected(read("plain")) == expected
    assert len(store.asked()) == before


def test_no_more_is_fetched_ahead_than_may_be(
    spark: Any, read: Read, store: FolderStore, log: Log
) -> None:
    assert len(segments(log, "many")) == MANY
    frame = read("many")
    assert [row.offset for row in collected(frame)] == list(range(100 * MANY))
    assert counted(frame)["rowsOfJvm"] == 100 * MANY and len(store.asked()) == MANY
    store.forget()
    store.order("wait 60000")
    spark.conf.set(TIMEOUT, "2s")
    assert len(collected(read("many"))) == 100 * MANY
    assert 1 < len(store.asked()) <= AT_ONCE


def test_damage_is_told_in_the_same_words(
    spark: Any, read: Read, store: FolderStore, log: Log
) -> None:
    """What is damaged, or gone, for Python too."""
    name = sorted(segments(log, "plain"))[2]
    inner = name.removeprefix("/jvm/")
    path = store.file(log.store.url, name)
    data = path.read_bytes()
    changes: tuple[Callable[[], Any], ...] = (
        lambda: (path.write_bytes(_flip(data, 99)), log.store.put(inner, _flip(data, 99))),
        lambda: (path.unlink(), log.store.delete([inner])),
    )
    try:
        for change in changes:
            change()
            errors = []
            for reader in ("jvm", "python"):
                spark.conf.set(SETTING, reader)
                errors.append(message(read("plain")))
            assert errors[0] == errors[1]
            assert errors[0].startswith("CorruptLogError: ") and inner in errors[0]
    finally:
        path.write_bytes(data)
        log.store.put(inner, data)


# --- a session of its own -------------------------------------------------------------------------

ALONE = """
import sys
from pathlib import Path

import offsetlog.spark
from tests.spark_plugin.java.folder_store import FolderStore
from tests.spark_plugin.test_reader import counted

root, place, jar = sys.argv[1:]
store = FolderStore(Path(place))
store.forget()
config = {f"spark.hadoop.{name}": value for name, value in store.settings().items()}
spark = offsetlog.spark.session(
    master="local[2]", delta=False,
    config={"spark.ui.enabled": "false", "spark.jars": jar, **config},
)
for order in ("", "refuse", "refuse", "refuse"):
    store.order(order)
    frame = spark.read.format("offsetlog").option("subscribe", "plain").load(root)
    print(len(frame.collect()), counted(frame)["rowsOfJvm"])
"""


def test_where_the_environment_says_all_the_client_is_used_unasked(
    place: FolderStore, log: Log, latency_s3: Place, spark: Any, tmp_path: Path
) -> None:
    """And one line says that it is left alone after its failures."""
    options = latency_s3.options
    environment = {
        "AWS_ENDPOINT_URL": options["endpoint_url"], "AWS_ACCESS_KEY_ID": options["key"],
        "AWS_SECRET_ACCESS_KEY": options["secret"], "PYSPARK_PYTHON": sys.executable,
    }  # fmt: skip
    jar = folder_store.jar(tmp_path)
    done = subprocess.run(
        [sys.executable, "-c", ALONE, log.store.url, str(place.place), str(jar)],
        capture_output=True, text=True, timeout=300, check=False, env={**os.environ, **environment},
    )  # fmt: skip
    rows = 4 * 306
    assert done.stdout.splitlines() == [f"{rows} 1200", *[f"{rows} 0"] * 3], done.stderr
    [line] = [line for line in done.stderr.splitlines() if "Hadoop's client" in line]
    assert "Python reads s3a://" in line and "AccessControlException: no rights" in line
