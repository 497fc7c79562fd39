"""A reset of a group rewinds its query, running or stopped, and a re-run reads the same."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import functions as F

from tests.spark_plugin.live import Live, fill, lags, lose_commit, places, source, wal
from tests.waiting import until

NOW = {"availableNow": True}
GROUP = {"subscribe": "orders", "startingOffsets": "earliest", "group.id": "g"}


@pytest.fixture(autouse=True)
def records(log: Any, orders: Any) -> None:
    fill(log, "orders", {0: 6, 1: 4})


def reset(log: Any, **given: Any) -> None:
    log.group("g").reset("orders", dry_run=False, **given)


def since(live: Live, batch: int) -> dict[tuple[str, int], list[int]]:
    return places(row for b in live.batches if b > batch for row in live.batches[b])


@pytest.mark.every_line
def test_a_running_query_follows_every_kind_of_reset(
    spark: Any, log: Any, root: Path, tmp_path: Path
) -> None:
    with Live(spark, root, tmp_path / "c", **GROUP) as live:
        live.wait_for(10)

        def after(rows: int, **given: Any) -> dict[tuple[str, int], list[int]]:
            last, had = max(live.batches), len(live.rows)
            reset(log, **given)
            live.wait_for(had + rows)
            return since(live, last)

        zero, one = ("orders", 0), ("orders", 1)
        assert after(10, to="earliest") == {zero: [*range(6)], one: [*range(4)]}
        assert wal(tmp_path / "c", max(live.batches))["@reset"] == 1
        assert after(2, to=4, partitions=[0]) == {zero: [4, 5]}
        assert after(3, shift_by=-3, partitions=[1]) == {one: [1, 2, 3]}
        log.topic("orders").delete_records({0: 3})
        assert after(3, to="earliest", partitions=[0]) == {zero: [3, 4, 5]}
        # Two in a row: the later one holds, for the partitions of both.
        last, had = max(live.batches), len(live.rows)
        until(lambda: lags(log) == {zero: 0, one: 0})
        reset(log, to="earliest", partitions=[1])
        reset(log, to=5, partitions=[0])
        live.wait_for(had + 5)
        assert since(live, last) == {zero: [5], one: [*range(4)]}
        until(lambda: lags(log) == {zero: 0, one: 0})
        fill(log, "orders", {0: 1})
        live.wait_for(had + 6)
        assert "@from" not in wal(tmp_path / "c", max(live.batches))


def test_a_watermark_drops_a_replay_and_a_new_checkpoint_gives_it(
    spark: Any, log: Any, root: Path, tmp_path: Path
) -> None:
    """What docs/replay.md says of windows: the records are read again, and none comes of it."""
    log.create_topic("timed")
    with log.producer() as producer:
        for n in range(100):
            producer.send("timed", b"v", timestamp=1_700_000_000_000 + 10_000 * n)
    given = {"subscribe": "timed", "group.id": "g"}
    windows: list[list[Any]] = []

    def run(checkpoint: str, start: str) -> Any:
        windows.append([])
        frame = source(spark, root, stream=True, startingOffsets=start, **given)
        counted = frame.withWatermark("timestamp", "1 second")
        counted = counted.groupBy(F.window("timestamp", "100 seconds")).count()
        writer = counted.writeStream.outputMode("append").trigger(**NOW)
        writer = writer.foreachBatch(lambda batch, _: windows[-1].extend(batch.collect()))
        query = writer.option("checkpointLocation", str(tmp_path / checkpoint)).start()
        assert query.awaitTermination(90)
        return query

    run("c", "earliest")
    first = sorted((row["window"].start, row["count"]) for row in windows[-1])
    assert len(first) == 9
    log.group("g").reset("timed", to="earliest", dry_run=False)
    again = run("c", "earliest")
    read = [batch for batch in again.recentProgress if batch["numInputRows"]]
    assert [batch["numInputRows"] for batch in read] == [100] and windows[-1] == []
    assert read[0]["stateOperators"][0]["numRowsDroppedByWatermark"] > 0
    assert lags(log)["timed", 0] == 0, "and the group has it all"
    log.group("g").reset("timed", to="earliest", dry_run=False)
    run("new", "group")
    assert sorted((row["window"].start, row["count"]) for row in windows[-1]) == first


def test_a_reset_forwards_passes_over_records(
    spark: Any, log: Any, root: Path, tmp_path: Path
) -> None:
    live = Live(spark, root, tmp_path / "c", maxOffsetsPerTrigger=4, **GROUP)
    live.hold.clear()
    with live:
        until(lambda: (tmp_path / "c" / "offsets" / "0").exists())
        reset(log, to="latest", partitions=[0])
        live.hold.set()
        live.drained()
    assert places(live.rows) == {("orders", 0): [0, 1], ("orders", 1): [0, 1, 2, 3]}
    assert lags(log) == {("orders", 0): 0, ("orders", 1): 0}


@pytest.mark.every_line
def test_a_stopped_query_follows_at_its_restart_and_a_rerun_reads_the_same(
    spark: Any, log: Any, root: Path, tmp_path: Path
) -> None:
    checkpoint = tmp_path / "c"
    with Live(spark, root, checkpoint, NOW, **GROUP) as live:
        live.finished()
    reset(log, to=2, partitions=[0])
    with Live(spark, root, checkpoint, NOW, **GROUP) as live:
        live.finished()
    assert places(live.rows) == {("orders", 0): [2, 3, 4, 5]}
    assert wal(checkpoint, 1)["@from"] == {"orders": {"0": 2}}
    # The driver died before it wrote that this batch was done; meanwhile the group is reset
    # again, more is appended, and all files are rewritten.
    lose_commit(checkpoint, 1)
    reset(log, to="earliest", partitions=[1])
    fill(log, "orders", {0: 2})
    log.maintain(grace_ms=0)
    with Live(spark, root, checkpoint, NOW, **GROUP) as again:
        again.finished()
    assert sorted(again.batches[1]) == sorted(live.batches[1])
    assert since(again, 1) == {("orders", 0): [6, 7], ("orders", 1): [0, 1, 2, 3]}
    assert lags(log) == {("orders", 0): 0, ("orders", 1): 0}


def test_a_large_replay_is_read_by_tasks_within_the_limits(
    spark: Any, log: Any, root: Path, tmp_path: Path
) -> None:
    log.create_topic("many")
    fill(log, "many", {0: 9000})
    given = {**GROUP, "subscribe": "many", "maxOffsetsPerTrigger": 5000}
    with Live(spark, root, tmp_path / "c", NOW, **given) as live:
        live.finished()
    log.group("g").reset("many", to=1000, dry_run=False)
    with Live(spark, root, tmp_path / "c", NOW, **given) as live:
        live.finished()
    assert {b: len(rows) for b, rows in live.batches.items()} == {2: 5000, 3: 3000}
    assert places(live.rows) == {("many", 0): [*range(1000, 9000)]}


def test_a_replay_after_upkeep_reads_all_though_the_running_query_opened_an_older_index(
    spark: Any, log: Any, root: Path, tmp_path: Path
) -> None:
    """The oldest files are merged while it runs: for its driver these are newer than the rest."""
    # The larger ones stay as they are.
    log.create_topic("many", config={"retention.ms": -1, "segment.bytes": 2**21})
    end = 0
    with log.producer() as producer:
        for count in (*[2_400] * 10, *[10_000] * 3):
            values = [f"many-0-{at}" for at in range(end, end + count)]
            producer.send_arrow("many", pa.table({"key": ["k" * 150] * count, "value": values}))
            producer.flush()
            end += count
    for _ in range(70):
        fill(log, "many", {0: 1})
    everything = {("many", 0): [*range(54_070)]}
    with Live(spark, root, tmp_path / "c", **{**GROUP, "subscribe": "many"}) as live:
        live.wait_for(54_070)
        until(lambda: lags(log) == {("many", 0): 0})
        [done] = log.maintain("many")
        assert 10 < done.rewritten_files < 83
        last = max(live.batches)
        log.group("g").reset("many", to="earliest", dry_run=False)
        until(lambda: max(live.batches) > last and lags(log) == {("many", 0): 0})
        assert since(live, last) == everything


def test_a_checkpoint_of_another_group_adopts_the_present_number(
    spark: Any, log: Any, root: Path, tmp_path: Path
) -> None:
    checkpoint = tmp_path / "c"
    with Live(spark, root, checkpoint, NOW, **GROUP) as live:
        live.finished()
    reset(log, to="earliest")
    other = {**GROUP, "group.id": "other"}
    fill(log, "orders", {0: 1})
    with Live(spark, root, checkpoint, NOW, **other) as live:
        live.finished()
    assert places(live.rows) == {("orders", 0): [6]}
    assert wal(checkpoint, 1)["@group"] == "other" and wal(checkpoint, 1)["@reset"] == 0
    assert lags(log, "other") == {("orders", 0): 0, ("orders", 1): 0}


@pytest.mark.every_line
def test_a_group_that_was_added_while_nothing_came(
    spark: Any, log: Any, root: Path, tmp_path: Path
) -> None:
    """Spark makes the empty batch that leaves the group's number in the checkpoint, once."""
    checkpoint = tmp_path / "c"
    plain = {name: given for name, given in GROUP.items() if name != "group.id"}
    with Live(spark, root, checkpoint, NOW, **plain) as live:
        live.finished()
    for _ in range(2):
        with Live(spark, root, checkpoint, NOW, **GROUP) as added:
            added.finished()
    assert added.batches == {} and wal(checkpoint, 1)["@reset"] == 0
    assert lags(log) == {("orders", 0): 0, ("orders", 1): 0}
    reset(log, to=1)
    with Live(spark, root, checkpoint, NOW, **GROUP) as again:
        again.finished()
    assert places(again.rows) == {tp: at[1:] for tp, at in places(live.rows).items()}
