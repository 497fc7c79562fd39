"""Topics with gaps, in batches and streams: compacted, erased, trimmed and published as tables.

What a consumer in Python returns is what must come out."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

import pytest

import offsetlog
from offsetlog.client.log import Log
from offsetlog.core.topic.extents import Extent
from offsetlog.engine.env import REAL, Limits
from offsetlog.storage import open_store
from tests.spark_plugin.live import lags, source
from tests.spark_plugin.story import run_to_the_end
from tests.spark_plugin.test_reader import counted

NOW = 1_700_000_000_000
COMPACT = {"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0"}
TOPICS = {
    "compacted": COMPACT,
    "erased": {"retention.ms": "-1"},
    "emptied": {"retention.ms": "-1"},
    "trimmed": COMPACT,
    "published": {**COMPACT, "table.format": "delta"},
}
LIMITS = Limits(inline_bytes=4096, row_group_records=25, min_files=3)
"""Small appends make segments, and few records row groups."""
HEADERS = [("h", b"v"), ("none", None)]
PERSON = b"k3"


class Record(NamedTuple):
    partition: int
    offset: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...]
    timestamp: int


def send(
    log: Any, topic: str, count: int, seed: int, keys: int = 200, prefix: bytes = b"k"
) -> None:
    """One append in two partitions. Times go back and forth."""
    rng = random.Random(seed)
    with log.producer(linger_ms=60_000) as producer:
        for at in range(count):
            producer.send(
                topic,
                None if at % 17 == 0 else rng.randbytes(60),
                key=prefix + b"%d" % min(rng.randrange(keys), rng.randrange(keys)),
                headers=HEADERS[: 1 + at % 2] if at % 3 == 0 else None,
                partition=at % 2,
                timestamp=NOW + seed * 10_000 + rng.randrange(5000),
            )


def rewrite(log: Any, topic: str) -> None:
    """All that was there before is gone from the storage, too."""
    for _ in range(2):
        log.maintain(topic, grace_ms=0)


def fill(log: Any, topic: str) -> None:
    for turn in range(4):
        send(log, topic, 300, turn)
        send(log, topic, 6, turn)
    if topic == "erased":
        log.topic(topic).erase(keys=[b"k%d" % n for n in range(20)])
    elif topic == "emptied":
        # Nothing is left of a file between two that stay.
        send(log, topic, 200, 5, keys=1, prefix=b"p")
        send(log, topic, 200, 6)
        log.topic(topic).erase(keys=[b"p0"])
    else:
        rewrite(log, topic)
        send(log, topic, 300, 5)
        send(log, topic, 6, 5)
        log.maintain(topic, grace_ms=0)
        send(log, topic, 300, 6)
        send(log, topic, 6, 6)
    if topic == "trimmed":
        offsets = [r.offset for r in consumed(log, topic) if r.partition == 0]
        # Partition 0 begins in a gap of a file, partition 1 at a record within one.
        gap = next(low for low, high in pairwise(offsets[5:]) if high > low + 2)
        at = [r.offset for r in consumed(log, topic) if r.partition == 1][9]
        log.topic(topic).delete_records({0: gap + 2, 1: at})


def consumed(log: Any, topic: str) -> list[Record]:
    """All that a consumer returns, in order."""
    out = []
    with log.consumer(auto_offset_reset="earliest") as consumer:
        consumer.assign([(topic, 0), (topic, 1)])
        while some := consumer.poll(timeout=0, max_records=100_000):
            out += [
                Record(r.partition, r.offset, r.key, r.value, tuple(r.headers), r.timestamp)
                for r in some
            ]
    return sorted(out)


def extents(log: Any, topic: str) -> list[Extent]:
    starts, reader = log.topic(topic).beginning_offsets(), log.open_topic(topic).reader
    return [
        piece.extent
        for partition, end in log.topic(topic).end_offsets().items()
        for piece in reader.plan(partition, starts[partition], end)
    ]


def opened(place: Path) -> Log:
    return Log(open_store(str(place / "log")), REAL._replace(limits=LIMITS))


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    place = tmp_path_factory.mktemp("gaps")
    with opened(place) as log:
        for topic, config in TOPICS.items():
            log.create_topic(topic, partitions=2, config=config)
            fill(log, topic)
        assert [r.faults for r in log.verify() if not r.sound] == []
        for topic in TOPICS:
            info = log.topic(topic).describe()
            spans = sum(p.end_offset - p.beginning_offset for p in info.partitions)
            assert 0 < info.records < spans, topic
        assert any(extent.is_empty for extent in extents(log, "emptied"))
    yield place / "log"


@pytest.fixture(scope="module")
def expected(root: Path) -> dict[str, list[Record]]:
    with offsetlog.open(str(root)) as log:
        return {topic: consumed(log, topic) for topic in TOPICS}


def plain(value: bytearray | None) -> bytes | None:
    return None if value is None else bytes(value)


def records(rows: list[Any]) -> list[Record]:
    return sorted(
        Record(
            row.partition,
            row.offset,
            plain(row.key),
            plain(row.value),
            tuple((h.key, plain(h.value)) for h in row.headers or ()),
            row.ms,
        )
        for row in rows
    )


def with_times(frame: Any) -> Any:
    return frame.selectExpr(
        *("topic", "partition", "offset", "key", "value", "headers"),
        "unix_millis(timestamp) AS ms",
    )


def read(spark: Any, root: Path, topic: str, **options: Any) -> Any:
    return source(spark, root, subscribe=topic, includeHeaders="true", **options)


@pytest.mark.parametrize("topic", TOPICS)
def test_a_batch_gives_what_a_consumer_gives(
    spark: Any, root: Path, expected: dict[str, list[Record]], topic: str, tasks_in: str
) -> None:
    frame = with_times(read(spark, root, topic))
    assert records(frame.collect()) == expected[topic]
    numbers = counted(frame)
    assert read(spark, root, topic).count() == len(expected[topic])
    if tasks_in == "jvm":
        assert numbers["rowsOfJvm"] + numbers["rowsOfPython"] == len(expected[topic])
        with offsetlog.open(str(root)) as log:
            in_chain = sum(e.records for e in extents(log, topic) if e.inline)
        assert numbers["rowsOfPython"] == in_chain
    else:
        assert numbers["rowsOfJvm"] == 0


def test_what_was_emptied_needs_no_python(
    spark: Any, root: Path, expected: dict[str, list[Record]], tasks_in: str
) -> None:
    """For a piece that has no file nothing is started."""
    if tasks_in == "python":
        pytest.skip("all is Python's")
    with offsetlog.open(str(root)) as log:
        [empty] = (e for e in extents(log, "emptied") if e.is_empty and e.partition == 0)
    whole = read(spark, root, "emptied").select("partition", "offset").where("partition = 0")
    # Spark counts for the whole process.
    metrics = spark._jvm.org.apache.spark.sql.execution.datasources.v2.python.PythonCustomMetric
    sent = metrics.pythonMetrics().apply("pythonDataSent")
    for low, sends in ((empty.base, False), (empty.base - 1, True)):
        frame = whole.where(f"offset >= {low}")
        before = sent.value()
        assert sorted(row.offset for row in frame.collect()) == [
            r.offset for r in expected["emptied"] if r.partition == 0 and low <= r.offset
        ]
        # The record before it lies in an entry.
        assert (sent.value() > before) is sends


@pytest.mark.parametrize("topic", TOPICS)
def test_ranges_begin_and_end_in_gaps(
    spark: Any, root: Path, expected: dict[str, list[Record]], topic: str, tasks_in: str
) -> None:
    rng = random.Random(topic)
    with offsetlog.open(str(root)) as log:
        spans = {p: (log.topic(topic).beginning_offsets()[p], end)
                 for p, end in log.topic(topic).end_offsets().items()}  # fmt: skip
    there = {(r.partition, r.offset) for r in expected[topic]}
    for options in ({}, {"minPartitions": 9}, {"maxRecordsPerPartition": 37}):
        begin, end = {}, {}
        for partition, span in spans.items():
            gaps = [o for o in range(*span) if (partition, o) not in there]
            begin[partition], end[partition] = sorted(rng.sample(gaps, 2))
        given = {
            name: str({topic: {str(p): o for p, o in each.items()}}).replace("'", '"')
            for name, each in (("startingOffsets", begin), ("endingOffsets", end))
        }
        frame = with_times(read(spark, root, topic, **given, **options))
        assert records(frame.collect()) == [
            r for r in expected[topic] if begin[r.partition] <= r.offset < end[r.partition]
        ], (begin, end)


@pytest.mark.parametrize("topic", TOPICS)
def test_times_stand_for_the_first_record_that_is_there(
    spark: Any, root: Path, expected: dict[str, list[Record]], topic: str, tasks_in: str
) -> None:
    rng = random.Random(topic)
    times = [r.timestamp for r in expected[topic]]
    for time in rng.sample(range(min(times), max(times) - 3000), 2):
        first = {
            p: next(r.offset for r in expected[topic] if r.partition == p and r.timestamp >= time)
            for p in (0, 1)
        }
        frame = read(spark, root, topic, startingTimestamp=time).select("partition", "offset")
        assert sorted(map(tuple, frame.collect())) == [
            r[:2] for r in expected[topic] if r.offset >= first[r.partition]
        ]


@pytest.mark.parametrize("topic", TOPICS)
def test_filters_give_the_rows_that_pass_them(
    spark: Any, root: Path, expected: dict[str, list[Record]], topic: str, tasks_in: str
) -> None:
    rng = random.Random(topic)
    frame = read(spark, root, topic).select("partition", "offset")
    one, two = sorted(rng.sample(expected[topic], 2), key=lambda r: r.offset)
    low, high = sorted((one.timestamp, two.timestamp))
    cases: list[tuple[str, Callable[[Record], bool]]] = [
        (
            f"offset > {one.offset} and offset <= {two.offset}",
            lambda r: one.offset < r.offset <= two.offset,
        ),
        (
            f"offset in ({one.offset}, {two.offset}, {two.offset + 1})",
            lambda r: r.offset in (one.offset, two.offset, two.offset + 1),
        ),
        (
            f"timestamp >= timestamp_millis({low}) and timestamp < timestamp_millis({high})",
            lambda r: low <= r.timestamp < high,
        ),
        (f"timestamp = timestamp_millis({low})", lambda r: r.timestamp == low),
    ]
    for condition, passes in cases:
        assert sorted(map(tuple, frame.where(condition).collect())) == [
            r[:2] for r in expected[topic] if passes(r)
        ], condition


# --- streams ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "options",
    [
        {"maxOffsetsPerTrigger": 300},
        {"maxBytesPerTrigger": "20k", "minPartitions": 5},
        {"maxRecordsPerPartition": 90},
    ],
    ids=["offsets", "bytes", "tasks"],
)
def test_a_stream_reads_each_record_once_and_ends(
    spark: Any,
    root: Path,
    expected: dict[str, list[Record]],
    options: dict[str, Any],
    tmp_path: Path,
    tasks_in: str,
) -> None:
    group = f"{tasks_in}-{next(iter(options))}"
    topics = ("emptied", "trimmed")
    rows: list[Any] = []
    given = {**options, "startingOffsets": "earliest", "group.id": group}
    frame = source(
        spark, root, stream=True, subscribe=",".join(topics), includeHeaders="true", **given
    )
    batches = []

    def take(frame: Any, number: int) -> None:
        rows.extend(frame.collect())
        batches.append(number)

    writer = with_times(frame).writeStream.foreachBatch(take)
    run_to_the_end(writer.option("checkpointLocation", str(tmp_path / "cp")))
    for topic in topics:
        assert records([row for row in rows if row.topic == topic]) == expected[topic]
    assert (len(batches) > 3) == ("maxRecordsPerPartition" not in options)
    with offsetlog.open(str(root)) as log:
        assert set(lags(log, group).values()) == {0}
        ends = {(t, p): end for t in topics for p, end in log.topic(t).end_offsets().items()}
        assert {tuple(p): at.offset for p, at in log.group(group).committed().items()} == ends


def test_a_stream_goes_on_while_what_it_reads_is_rewritten(
    spark: Any, tmp_path: Path, tasks_in: str
) -> None:
    """Between the plan of a batch and its tasks the files that it names go: by compaction and
    publication, and by erasure."""
    batches: list[list[Record]] = []
    with opened(tmp_path) as log:
        log.create_topic("t", partitions=2, config=TOPICS["published"])
        for turn in range(4):
            send(log, "t", 300, turn)
        written = set(consumed(log, "t"))
        files = set((tmp_path / "log").rglob("partition=*/*.parquet"))

        def take(frame: Any, number: int) -> None:
            if number == 1:
                rewrite(log, "t")
                assert not any(file.exists() for file in files)
            if number == 2:
                log.topic("t").erase(keys=[PERSON])
                rewrite(log, "t")
            batches.append(records(frame.collect()))

        given = {"startingOffsets": "earliest", "group.id": "g", "includeHeaders": "true"}
        limits = {"maxOffsetsPerTrigger": 240, "minPartitions": 4}
        frame = source(spark, tmp_path / "log", stream=True, subscribe="t", **given, **limits)
        writer = with_times(frame).writeStream.foreachBatch(take)
        run_to_the_end(writer.option("checkpointLocation", str(tmp_path / "cp")))
        rows = [record for batch in batches for record in batch]
        assert len(batches) == 5 and len(rows) == len(set(rows))
        assert set(consumed(log, "t")) <= set(rows) <= written
        assert len(batches[0]) == 240 > len(batches[1]), "planned again"
        assert all(r.key != PERSON for batch in batches[2:] for r in batch)
        assert set(lags(log).values()) == {0}


def test_a_batch_that_was_planned_before_a_rewrite(
    spark: Any, tmp_path: Path, tasks_in: str
) -> None:
    with opened(tmp_path) as log:
        log.create_topic("t", partitions=2, config=COMPACT)
        for turn in range(3):
            send(log, "t", 300, turn)
        rewrite(log, "t")
        send(log, "t", 300, 4)
        frame = with_times(read(spark, tmp_path / "log", "t", minPartitions=5))
        before = consumed(log, "t")
        assert records(frame.collect()) == before
        log.topic("t").erase(keys=[PERSON])
        rewrite(log, "t")
        left = consumed(log, "t")
        assert 0 < len(left) < len(before)
        assert records(frame.collect()) == left
