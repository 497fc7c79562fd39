"""A query's progress is its group's: what is committed, when, and what never is."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.spark_plugin.live import Live, fill, lags, places, source, wal
from tests.waiting import until

pytestmark = pytest.mark.usefixtures("orders")

NOW = {"availableNow": True}
GROUP = {"subscribe": "orders", "startingOffsets": "earliest", "group.id": "g"}


@pytest.mark.every_line
def test_available_now_ends_with_lag_0(spark: Any, log: Any, root: Path, tmp_path: Path) -> None:
    fill(log, "orders", {0: 20, 1: 7})
    with Live(spark, root, tmp_path / "c", NOW, maxOffsetsPerTrigger=10, **GROUP) as live:
        live.finished()
    assert len(live.rows) == 27
    assert lags(log) == {("orders", 0): 0, ("orders", 1): 0}
    assert "g" in log.groups()
    fill(log, "orders", {0: 3})
    assert lags(log)["orders", 0] == 3
    with Live(spark, root, tmp_path / "c", NOW, **GROUP) as live:
        live.finished()
    assert lags(log)["orders", 0] == 0
    # Another query goes on from where the group stands.
    fill(log, "orders", {1: 2})
    given = {**GROUP, "startingOffsets": "group"}
    with Live(spark, root, tmp_path / "d", NOW, **given) as live:
        live.finished()
    assert places(live.rows) == {("orders", 1): [7, 8]}


@pytest.mark.every_line
def test_a_running_query_commits_its_last_batch_too(
    spark: Any, log: Any, root: Path, tmp_path: Path
) -> None:
    with Live(spark, root, tmp_path / "c", **GROUP) as live:
        live.drained()
        for count in (3, 4):
            fill(log, "orders", {0: count})
            until(lambda: lags(log).get(("orders", 0)) == 0)
    assert len(live.rows) == 7


@pytest.mark.every_line
def test_a_long_first_batch_is_not_green(spark: Any, log: Any, root: Path, tmp_path: Path) -> None:
    """Nothing is committed while it runs, and all that waits is shown."""
    fill(log, "orders", {0: 20, 1: 7})
    given = {**GROUP, "startingOffsets": '{"orders": {"0": 5, "1": -2}}'}
    with Live(spark, root, tmp_path / "c", **given) as live:
        live.hold.clear()
        until(lambda: "g" in log.groups() and None not in lags(log).values() and lags(log))
        assert lags(log) == {("orders", 0): 15, ("orders", 1): 7}
        assert {line.committed for line in log.group("g").describe().partitions} == {None}
        fill(log, "orders", {1: 3})
        assert lags(log)["orders", 1] == 10 and not live.batches
        [info] = log.overview().groups
        assert info.total.records == 25
        live.hold.set()
        until(lambda: lags(log) == {("orders", 0): 0, ("orders", 1): 0})
        assert {line.committed for line in log.group("g").describe().partitions} == {20, 10}


@pytest.mark.every_line
def test_a_group_is_not_ahead_of_a_checkpoint_that_is_written_beside_the_batches(
    spark: Any, log: Any, root: Path, tmp_path: Path
) -> None:
    """Spark's asynchronous progress: here only the first batch of the run is ever logged."""
    fill(log, "orders", {0: 10})
    frame = source(spark, root, stream=True, **GROUP)
    writer = frame.writeStream.format("noop").option("asyncProgressTrackingEnabled", "true")
    writer = writer.option("asyncProgressTrackingCheckpointIntervalMs", "3600000")
    query = writer.option("checkpointLocation", str(tmp_path / "c")).start()
    try:
        for _ in range(5):
            query.processAllAvailable()
            fill(log, "orders", {0: 10})
        query.processAllAvailable()
        assert query.lastProgress["batchId"] >= 5
        logged = until(lambda: sorted(p.name for p in (tmp_path / "c/offsets").glob("[0-9]*")))
        assert logged == ["0"]
        assert lags(log)["orders", 0] == 50
        assert log.group("g").committed()["orders", 0].offset == 10
    finally:
        query.stop()
    until(lambda: not log.group("g").describe().members)
    last = max(int(p.name) for p in (tmp_path / "c/offsets").glob("[0-9]*"))
    at = wal(tmp_path / "c", last)["orders"]["0"]
    assert log.group("g").committed()["orders", 0].offset <= at
    with Live(spark, root, tmp_path / "c", NOW, **GROUP) as live:
        live.finished()
    assert places(live.rows)["orders", 0] == list(range(at, 60))
    assert lags(log)["orders", 0] == 0


@pytest.mark.every_line
def test_a_query_that_was_stopped_owns_its_group_no_more(
    spark: Any, log: Any, root: Path, tmp_path: Path
) -> None:
    fill(log, "orders", {0: 3})
    with Live(spark, root, tmp_path / "c", **GROUP) as live:
        live.drained()
        until(lambda: lags(log).get(("orders", 0)) == 0)
        [member] = log.group("g").describe().members
        assert member.client.startswith("spark-")
        live.query.stop()
        until(lambda: not log.group("g").describe().members)
    assert log.group("g").describe().state == "Empty"
    assert lags(log)["orders", 0] == 0


@pytest.mark.every_line
def test_a_query_that_fails_commits_only_what_was_processed(
    spark: Any, log: Any, root: Path, tmp_path: Path
) -> None:
    fill(log, "orders", {0: 10})
    with Live(spark, root, tmp_path / "c", maxOffsetsPerTrigger=4, **GROUP) as live:
        live.fail_at = 1
        assert "batch 1 fails on purpose" in live.error()
    assert lags(log)["orders", 0] == 6
    with Live(spark, root, tmp_path / "c", NOW, maxOffsetsPerTrigger=4, **GROUP) as again:
        again.finished()
    assert [row.offset for row in again.batches[1]] == [4, 5, 6, 7]
    assert lags(log)["orders", 0] == 0


def test_what_trigger_once_and_a_stop_leave_uncommitted_is_committed_at_the_next_start(
    spark: Any, log: Any, root: Path, tmp_path: Path
) -> None:
    """Spark asks a source nothing after the only batch of ``once``, nor after a stop."""
    fill(log, "orders", {0: 5})
    with Live(spark, root, tmp_path / "c", {"once": True}, **GROUP) as live:
        live.finished()
    assert len(live.rows) == 5
    assert lags(log).get(("orders", 0), 5) == 5
    with Live(spark, root, tmp_path / "c", {"once": True}, **GROUP) as live:
        live.finished()
    assert live.rows == []
    assert lags(log)["orders", 0] == 0


def test_a_newcomer_fails_while_the_owner_lives(
    spark: Any, log: Any, root: Path, tmp_path: Path
) -> None:
    fill(log, "orders", {0: 5})
    with Live(spark, root, tmp_path / "a", **GROUP) as older:
        older.drained()
        with Live(spark, root, tmp_path / "b", **GROUP) as newer:
            told = newer.error()
        assert newer.rows == []
        fill(log, "orders", {1: 2})
        older.wait_for(7)
    assert "The group 'g' is owned by the query" in told and "group.takeover=true" in told
    assert "\tat " not in told
    with Live(spark, root, tmp_path / "b", **GROUP) as newer:
        newer.wait_for(7)


@pytest.mark.every_line
def test_with_takeover_the_newer_query_wins_and_the_older_is_told_by_name(
    spark: Any, log: Any, root: Path, tmp_path: Path
) -> None:
    fill(log, "orders", {0: 5})
    with Live(spark, root, tmp_path / "a", **GROUP) as older:
        older.wait_for(5)
        named = {**GROUP, "kafka.client.id": "nightly", "group.takeover": "true"}
        with Live(spark, root, tmp_path / "b", **named) as newer:
            newer.wait_for(5)
            told = older.error()
            fill(log, "orders", {1: 2})
            newer.wait_for(7)
            until(lambda: lags(log) == {("orders", 0): 0, ("orders", 1): 0})
    assert "no longer owns the group 'g'" in told and "nightly" in told
    assert "group.id of its own" in told
    assert "\tat " not in told


def test_without_a_group_there_is_no_table(
    spark: Any, log: Any, root: Path, tmp_path: Path
) -> None:
    fill(log, "orders", {0: 5})
    given = {name: value for name, value in GROUP.items() if name != "group.id"}
    with Live(spark, root, tmp_path / "c", NOW, **given) as live:
        live.finished()
    assert len(live.rows) == 5
    assert not (root / "__consumer_offsets").exists()


def test_an_offsets_table_elsewhere(spark: Any, log: Any, root: Path, tmp_path: Path) -> None:
    import offsetlog

    fill(log, "orders", {0: 5})
    table = tmp_path / "positions"
    with Live(spark, root, None, NOW, **GROUP, **{"offsets.table": table}) as live:
        live.finished()
    assert not (root / "__consumer_offsets").exists()
    with offsetlog.open(str(root), offsets_table=str(table)) as other:
        assert lags(other) == {("orders", 0): 0, ("orders", 1): 0}
