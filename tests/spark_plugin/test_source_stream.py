"""Streaming queries on a log: what Spark's own KafkaMicroBatchSourceSuite asks for, and more."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest

from pyspark_offsetlog.lines.classes import progress_offset
from tests.spark_plugin.live import Live, fill, keeps_limits, lags, lose_commit, places, source, wal
from tests.spark_plugin.story import run_to_the_end
from tests.waiting import until

pytestmark = pytest.mark.usefixtures("tasks_in")

NOW = {"availableNow": True}
EARLIEST = {"subscribe": "orders", "startingOffsets": "earliest"}


@pytest.fixture(autouse=True)
def orders(log: Any) -> None:
    log.create_topic("orders", partitions=3)


def sizes(live: Live) -> list[int]:
    return [len(live.batches[batch]) for batch in sorted(live.batches)]


@pytest.mark.every_line(both_paths=True)
def test_latest_reads_what_comes_and_goes_on_after_a_restart(
    spark: Any, log: Any, root: Path, tmp_path: Path
) -> None:
    fill(log, "orders", {0: 3})
    checkpoint = tmp_path / "checkpoint"
    with Live(spark, root, checkpoint, subscribe="orders") as live:
        live.drained()
        fill(log, "orders", {0: 2, 1: 1})
        live.wait_for(3)
        fill(log, "orders", {2: 2})
        live.wait_for(5).drained()
    assert places(live.rows) == {
        ("orders", 0): [3, 4], ("orders", 1): [0], ("orders", 2): [0, 1],
    }  # fmt: skip
    assert live.query.lastProgress is not None
    fill(log, "orders", {1: 4})
    with Live(spark, root, checkpoint, subscribe="orders") as live:
        live.drained()
    assert places(live.rows) == {("orders", 1): [1, 2, 3, 4]}


@pytest.mark.every_line(both_paths=True)
def test_triggers_limits_and_restarts(spark: Any, log: Any, root: Path, tmp_path: Path) -> None:
    """The same data through each trigger. ``once`` knows no limit, if Spark tells of it."""
    fill(log, "orders", {0: 101, 1: 11, 2: 1})
    limited = {**EARLIEST, "maxOffsetsPerTrigger": 40}
    with Live(spark, root, tmp_path / "a", NOW, **limited) as live:
        live.finished()
    assert sizes(live) == [39, 39, 35]
    everything = places(live.rows)
    assert everything == {
        ("orders", 0): [*range(101)], ("orders", 1): [*range(11)], ("orders", 2): [0],
    }  # fmt: skip
    with Live(spark, root, tmp_path / "b", {"once": True}, **limited) as live:
        live.finished()
    assert sizes(live) == [113 if keeps_limits(spark) else 39]
    with Live(
        spark, root, tmp_path / "c", {"processingTime": "100 milliseconds"}, **limited
    ) as live:
        live.wait_for(39)
    with Live(spark, root, tmp_path / "c", **limited) as rest:
        rest.drained()
    # A batch that was stopped is run again under its own number.
    for batch in live.batches.keys() & rest.batches.keys():
        assert sorted(live.batches[batch]) == sorted(rest.batches[batch])
    batches = {**live.batches, **rest.batches}
    assert places(row for rows in batches.values() for row in rows) == everything
    assert len(batches) == 3


@pytest.mark.every_line
def test_available_now_ends_with_what_was_there(
    spark: Any, log: Any, root: Path, tmp_path: Path
) -> None:
    fill(log, "orders", {0: 10, 1: 5})
    given = {**EARLIEST, "maxOffsetsPerTrigger": 5, "minOffsetsPerTrigger": 4}
    live = Live(spark, root, tmp_path / "c", NOW, **given)
    live.hold.clear()
    until(lambda: (tmp_path / "c" / "offsets" / "0").exists())
    fill(log, "orders", {0: 50, 2: 5})
    log.topic("orders").alter(partitions=4)
    with live:
        live.hold.set()
        live.finished()
    assert places(live.rows) == {("orders", 0): [*range(10)], ("orders", 1): [*range(5)]}
    fill(log, "orders", {3: 1})
    with Live(spark, root, tmp_path / "c", NOW, **EARLIEST) as live:
        live.finished()
    assert places(live.rows) == {
        ("orders", 0): [*range(10, 60)], ("orders", 2): [*range(5)], ("orders", 3): [0],
    }  # fmt: skip


@pytest.mark.every_line
def test_progress_says_where_it_is(spark: Any, log: Any, root: Path, tmp_path: Path) -> None:
    fill(log, "orders", {0: 20})
    with Live(spark, root, tmp_path / "c", NOW, maxOffsetsPerTrigger=15, **EARLIEST) as live:
        live.finished()
    first, second = [p for p in live.query.recentProgress if p.numInputRows]
    [said] = first.sources
    assert (first.numInputRows, second.numInputRows) == (15, 5)
    assert "'orders': {'0': 15, '1': 0, '2': 0}" in str(_json(said.endOffset))
    assert _json(said.latestOffset) == {"orders": {"0": 20, "1": 0, "2": 0}}
    assert _json(second.sources[0].endOffset) == {"orders": {"0": 20, "1": 0, "2": 0}}


def _json(text: Any) -> Any:
    return progress_offset(text) if isinstance(text, str) else text


@pytest.mark.every_line
def test_new_partitions_and_topics_while_it_runs(
    spark: Any, log: Any, root: Path, tmp_path: Path
) -> None:
    log.create_topic("payments")
    with Live(spark, root, tmp_path / "c", subscribePattern="orders") as live:
        live.drained()
        fill(log, "orders", {1: 1})
        fill(log, "payments", {0: 3})
        live.wait_for(1)
        log.topic("orders").alter(partitions=5)
        fill(log, "orders", {4: 2})
        live.wait_for(3)
        log.create_topic("pre-orders-eu", partitions=2)
        fill(log, "pre-orders-eu", {1: 2})
        live.wait_for(5)
    assert places(live.rows) == {
        ("orders", 1): [0], ("orders", 4): [0, 1], ("pre-orders-eu", 1): [0, 1],
    }  # fmt: skip


def test_topics_that_are_deleted_while_it_runs(
    spark: Any, log: Any, root: Path, tmp_path: Path
) -> None:
    log.create_topic("orders-2")
    fill(log, "orders", {0: 2})
    pattern = {"subscribePattern": "orders", "startingOffsets": "earliest"}
    with Live(spark, root, tmp_path / "c", failOnDataLoss="false", **pattern) as live:
        live.wait_for(2)
        log.delete_topic("orders")
        fill(log, "orders-2", {0: 3})
        live.wait_for(5)
        log.create_topic("orders")
        fill(log, "orders", {0: 1})
        live.wait_for(6).drained()
    assert places(live.rows) == {("orders", 0): [0, 1, 2], ("orders-2", 0): [0, 1, 2]}
    log.delete_topic("orders-2")
    with Live(spark, root, tmp_path / "c", **pattern) as live:
        told = live.error()
    assert "orders-2-0 was read up to 3 and is not there" in told
    assert "failOnDataLoss=false" in told


@pytest.mark.every_line
def test_available_now_when_its_topic_is_made_anew_under_it(
    spark: Any, log: Any, root: Path, tmp_path: Path
) -> None:
    """Kafka fails here; in a log offsets go on, so what the run was to read is simply gone."""
    fill(log, "orders", {0: 15})
    live = Live(spark, root, tmp_path / "c", NOW, maxOffsetsPerTrigger=5, **EARLIEST)
    live.hold.clear()
    until(lambda: (tmp_path / "c" / "offsets" / "0").exists())
    log.delete_topic("orders")
    log.create_topic("orders", partitions=2)
    fill(log, "orders", {0: 15})
    with live:
        live.hold.set()
        told = live.error()
    assert "orders-" in told and "failOnDataLoss=false" in told
    assert [row.offset for row in live.rows] == [*range(len(live.rows))]


def test_retention_while_it_is_stopped(spark: Any, log: Any, root: Path, tmp_path: Path) -> None:
    fill(log, "orders", {0: 10})
    with Live(spark, root, tmp_path / "c", NOW, **EARLIEST) as live:
        live.finished()
    fill(log, "orders", {0: 10})
    log.topic("orders").delete_records({0: 15})
    with Live(spark, root, tmp_path / "c", **EARLIEST) as live:
        told = live.error()
    assert "orders-0 was to be read from 10, but starts at 15 now" in told
    with Live(spark, root, tmp_path / "c", NOW, failOnDataLoss="false", **EARLIEST) as live:
        live.finished()
    assert places(live.rows) == {("orders", 0): [15, 16, 17, 18, 19]}


def test_many_tasks_and_large_batches(spark: Any, log: Any, root: Path, tmp_path: Path) -> None:
    """What is too large for the driver to hand over is read by tasks, split as asked."""
    fill(log, "orders", {0: 6000, 1: 2000})
    more = {"maxRecordsPerPartition": 1500}
    for given, tasks in (
        (EARLIEST, 1),
        ({**EARLIEST, "minPartitions": 1}, 2),
        ({**EARLIEST, **more}, 6),
        ({**EARLIEST, "minPartitions": 4}, 4),
    ):
        seen: list[Any] = []

        def take(frame: Any, _: int, seen: list = seen) -> None:
            seen.append((frame.rdd.getNumPartitions(), frame.collect()))

        stream = source(spark, root, stream=True, **given).select("partition", "offset")
        query = stream.writeStream.foreachBatch(take).trigger(availableNow=True).start()
        assert query.awaitTermination(90)
        [(parts, rows)] = seen
        assert parts == tasks
        assert sorted(map(tuple, rows)) == [
            *((0, at) for at in range(6000)), *((1, at) for at in range(2000)),
        ]  # fmt: skip


@pytest.mark.every_line
def test_a_batch_used_twice_is_the_same(spark: Any, log: Any, root: Path, tmp_path: Path) -> None:
    """``foreachBatch`` may run its frame as often as it likes; small batches and large."""
    for count in (5, 5000):
        fill(log, "orders", {0: count})
        seen: list[tuple[int, int, int]] = []

        def twice(frame: Any, batch: int, seen: list = seen) -> None:
            seen.append((frame.count(), frame.select("offset").distinct().count(), batch))

        stream = source(spark, root, stream=True, **EARLIEST)
        query = stream.writeStream.foreachBatch(twice).trigger(availableNow=True).start()
        assert query.awaitTermination(90)
        assert [(n, distinct) for n, distinct, _ in seen] == [(log_end(log), log_end(log))]


def log_end(log: Any) -> int:
    return int(log.topic("orders").end_offsets()[0])


def test_a_schema_of_ones_own(spark: Any, log: Any, root: Path, tmp_path: Path) -> None:
    for count, schema in ((5, "offset long, value binary"), (5000, "key binary")):
        fill(log, "orders", {0: count})
        seen: list[Any] = []
        reader = spark.readStream.format("offsetlog").schema(schema).options(**EARLIEST)
        query = (
            reader.load(str(root))
            .writeStream.foreachBatch(lambda f, _, seen=seen: seen.extend(f.collect()))
            .trigger(availableNow=True).start()
        )  # fmt: skip
        assert query.awaitTermination(90)
        assert len(seen) == log_end(log)
        assert seen[0].__fields__ == [field.split()[0] for field in schema.split(", ")]


@pytest.mark.every_line
def test_headers_and_timestamps(spark: Any, log: Any, root: Path, tmp_path: Path) -> None:
    log.create_topic("full", config={"message.timestamp.type": "LogAppendTime"})
    with log.producer() as producer:
        producer.send("full", b"x", headers=[("h", b"v")], timestamp=5).result()
        producer.send("full", None, key=b"k").result()
    seen: list[Any] = []
    stream = source(
        spark,
        root,
        stream=True,
        subscribe="full",
        startingOffsets="earliest",
        includeHeaders="true",
    )
    query = (
        stream.writeStream.foreachBatch(lambda f, _: seen.extend(f.orderBy("offset").collect()))
        .trigger(availableNow=True).start()
    )  # fmt: skip
    assert query.awaitTermination(90)
    assert [row.timestampType for row in seen] == [1, 1]
    assert seen[0].timestamp.year > 2020
    assert [(h.key, bytes(h["value"])) for h in seen[0].headers] == [("h", b"v")]
    assert seen[1]["value"] is None and bytes(seen[1].key) == b"k" and seen[1].headers is None


def test_watermarks_unions_and_joins(spark: Any, log: Any, root: Path, tmp_path: Path) -> None:
    """Several sources in a query, one of which has nothing new; windows over the time."""
    log.create_topic("other")
    fill(log, "orders", {0: 4}, timestamp=1_000_000)
    fill(log, "other", {0: 12}, timestamp=1_000_000)
    limited = {"startingOffsets": "earliest", "maxOffsetsPerTrigger": 4}
    both = source(spark, root, stream=True, subscribe="orders", **limited).union(
        source(spark, root, stream=True, subscribe="other", **limited)
    )
    run_to_the_end(
        both.withWatermark("timestamp", "10 seconds")
        .groupBy("topic", "timestamp").count()
        .writeStream.format("memory").queryName("counted").outputMode("complete")
        .option("checkpointLocation", str(tmp_path / "c"))
    )  # fmt: skip
    rows = spark.table("counted").collect()
    assert {(row.topic, row["count"]) for row in rows} == {("orders", 4), ("other", 12)}
    joined = source(spark, root, stream=True, **EARLIEST).selectExpr("offset % 2 as k", "offset")
    seen: list[Any] = []
    query = (
        joined.alias("a").join(joined.alias("b"), "k")
        .writeStream.foreachBatch(lambda f, _: seen.extend(f.collect()))
        .trigger(availableNow=True).start()
    )  # fmt: skip
    assert query.awaitTermination(90)
    assert len(seen) == 8


@pytest.mark.every_line
@pytest.mark.parametrize("start", ["latest", "earliest"])
def test_the_first_batch_run_again(
    spark: Any, log: Any, root: Path, tmp_path: Path, start: str
) -> None:
    checkpoint = tmp_path / "c"
    fill(log, "orders", {0: 2})
    given = {"subscribe": "orders", "startingOffsets": start}
    with Live(spark, root, checkpoint, **given) as live:
        if start == "latest":
            live.drained()
            fill(log, "orders", {0: 2, 1: 1})
        live.wait_for(2)
        live.drained()
    last = max(live.batches)
    assert live.batches[last]
    lose_commit(checkpoint, last)
    fill(log, "orders", {0: 5})
    log.maintain(grace_ms=0)
    with Live(spark, root, checkpoint, NOW, **given) as again:
        again.finished()
    assert sorted(again.batches[last]) == sorted(live.batches[last])
    more = [row for batch in again.batches if batch != last for row in again.batches[batch]]
    read = [*range(2, 9)] if start == "latest" else [*range(7)]
    assert places(live.rows + more)["orders", 0] == read


@pytest.mark.parametrize("second", [{}, {"startingOffsets": '{"orders":{"0":99,"1":7,"2":-1}}'}])
def test_a_first_batch_run_again_with_another_start(
    spark: Any, log: Any, root: Path, tmp_path: Path, second: dict[str, str]
) -> None:
    """What it reads is in the checkpoint. Spark asks for the start again, and is told another."""
    checkpoint = tmp_path / "c"
    fill(log, "orders", {0: 9, 1: 2})
    with Live(spark, root, checkpoint, NOW, **EARLIEST) as live:
        live.finished()
    assert wal(checkpoint, 0)["@from"] == {"orders": {"0": 0, "1": 0, "2": 0}}
    lose_commit(checkpoint, 0)
    fill(log, "orders", {0: 1, 2: 1})
    with Live(spark, root, checkpoint, NOW, subscribe="orders", **second) as again:
        again.finished()
    assert sorted(again.batches[0]) == sorted(live.batches[0])
    assert places(again.batches[1]) == {("orders", 0): [9], ("orders", 2): [0]}
    # What was planned and is gone is an error, as in any other batch.
    lose_commit(checkpoint, 1)
    lose_commit(checkpoint, 0)
    for batch in ("1", ".1.crc"):
        (checkpoint / "offsets" / batch).unlink()
    log.topic("orders").delete_records({0: 5})
    with Live(spark, root, checkpoint, NOW, **EARLIEST) as failing:
        assert "orders-0 was to be read from 0, but starts at 5" in failing.error()
    assert not failing.batches


def test_all_that_is_available_is_processed_whatever_the_poll_interval(
    spark: Any, log: Any, root: Path
) -> None:
    """What was appended before the call: tests and notebooks rest on it."""
    frame = source(spark, root, stream=True, pollIntervalMs=500, **EARLIEST)
    query = frame.writeStream.format("memory").queryName("all_that_is_there").start()
    try:
        for turn in range(1, 9):
            fill(log, "orders", {turn % 3: 5})
            query.processAllAvailable()
            assert spark.table("all_that_is_there").count() == 5 * turn
            time.sleep(0.07 * turn)
    finally:
        query.stop()


@pytest.mark.every_line
def test_a_query_that_waits_is_stopped_at_once(spark: Any, log: Any, root: Path) -> None:
    """Within a poll interval of a minute; and nobody takes its group for one that is read."""
    fill(log, "orders", {0: 5})
    given = {**EARLIEST, "group.id": "g", "pollIntervalMs": 60_000}
    with Live(spark, root, **given) as live:
        live.wait_for(5)
        until(lambda: lags(log) == {("orders", p): 0 for p in range(3)})
        time.sleep(1)  # It waits for a while now.
        before = time.monotonic()
        live.query.stop()
        assert time.monotonic() - before < 30
    until(lambda: not log.group("g").members(), 10)


def test_a_batch_run_again_after_all_was_rewritten(
    spark: Any, log: Any, root: Path, tmp_path: Path
) -> None:
    checkpoint = tmp_path / "c"
    given = {**EARLIEST, "maxOffsetsPerTrigger": 3000}
    fill(log, "orders", {0: 6000})
    with Live(spark, root, checkpoint, NOW, **given) as live:
        live.finished()
    lose_commit(checkpoint, 1)
    for _ in range(5):
        fill(log, "orders", {0: 10})
    log.maintain(grace_ms=0)
    with Live(spark, root, checkpoint, NOW, **given) as again:
        again.finished()
    assert sorted(again.batches[1]) == sorted(live.batches[1])
    assert [row.offset for row in sorted(again.batches[2])] == [*range(6000, 6050)]
    assert wal(checkpoint, 1) == {"orders": {"0": 6000, "1": 0, "2": 0}}


def test_maintenance_between_the_plan_and_the_reading(
    spark: Any, log: Any, root: Path, tmp_path: Path
) -> None:
    for _ in range(30):
        fill(log, "orders", {0: 200})
    seen: list[int] = []

    def late(frame: Any, batch: int) -> None:
        frame.rdd.getNumPartitions()
        log.maintain(grace_ms=0)
        seen.extend(row.offset for row in frame.select("offset").collect())

    stream = source(spark, root, stream=True, **EARLIEST)
    query = stream.writeStream.foreachBatch(late).trigger(availableNow=True).start()
    assert query.awaitTermination(90)
    assert sorted(seen) == [*range(6000)]


def test_a_stream_of_nothing_stops_at_once(
    spark: Any, log: Any, root: Path, tmp_path: Path
) -> None:
    with Live(spark, root, tmp_path / "c", **EARLIEST) as live:
        live.drained()
    assert live.rows == []
    assert live.query.exception() is None
