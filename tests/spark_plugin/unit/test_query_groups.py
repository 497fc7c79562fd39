"""A query and its group: the progress that is committed, and who owns the group."""

from __future__ import annotations

import threading
from typing import Any

import pytest

from offsetlog.errors import FencedError, OffsetLogError, StorageError
from pyspark_offsetlog.options.spec import LogAddress
from pyspark_offsetlog.runtime.open_logs import open_log
from pyspark_offsetlog.source import group_owner as ownership
from tests.spark_plugin.unit.engine import Engine, at, fill, fresh_root
from tests.spark_plugin.unit.group_tools import GROUP, committed, group_of
from tests.spark_plugin.unit.query_tools import log_of_orders
from tests.waiting import until

pytestmark = pytest.mark.root_in("memory", "local")
log = log_of_orders(partitions=2)


# --- progress ------------------------------------------------------------------------------


def test_progress_is_committed_when_the_next_batch_is_asked_for(
    log: Any, root: str, running: Any
) -> None:
    fill(log, "orders", {0: 5, 1: 3})
    query = running(root, **GROUP)
    query.batch()
    assert committed(log) == {}, "the batch may still fail"
    assert query.batch() is None
    assert committed(log) == {("orders", 0): 5, ("orders", 1): 3}
    assert set(log.group("g").lag().values()) == {0}
    fill(log, "orders", {0: 2})
    query.batch()
    assert committed(log)["orders", 0] == 5
    query.stop()
    again = running(root, query.checkpoint, **GROUP)
    assert again.batch() is None
    assert committed(log)["orders", 0] == 7, "the last batch's, when the query starts again"


def test_a_batch_that_failed_is_not_committed(log: Any, root: str, running: Any) -> None:
    fill(log, "orders", {0: 10})
    query = running(root, maxOffsetsPerTrigger=4, **GROUP)
    query.batch()
    query.plan()
    query.stop()
    assert committed(log) == {("orders", 0): 4, ("orders", 1): 0}
    again = running(root, query.checkpoint, **GROUP)
    assert at(again.batch()) == {("orders", 0): [4, 5, 6, 7]}


def test_available_now_ends_with_no_lag_and_leaves(log: Any, root: str, running: Any) -> None:
    fill(log, "orders", {0: 10, 1: 1})
    query = running(root, maxOffsetsPerTrigger=4, **GROUP).available_now()
    assert len(query.drain()) == 11
    assert set(log.group("g").lag().values()) == {0}
    assert not group_of(log).members


def test_without_a_group_nothing_is_committed(log: Any, root: str, running: Any) -> None:
    fill(log, "orders", {0: 1})
    query = running(root, subscribe="orders", startingOffsets="earliest")
    query.drain()
    begin = {"orders": {"0": 0, "1": 0}}
    assert query.checkpoint.wal == [{"orders": {"0": 1, "1": 0}, "@from": begin}]
    assert not list(log.groups())


def test_a_checkpoint_of_another_root_does_not_move_the_group_beyond_its_log(
    running: Any, caught_up: Any
) -> None:
    query = caught_up({0: 9, 1: 1})
    elsewhere = fresh_root()
    other = open_log(LogAddress(elsewhere))
    other.create_topic("orders", partitions=2)
    fill(other, "orders", {0: 3, 1: 2})
    again = running(elsewhere, query.checkpoint, **GROUP)
    with pytest.raises(StorageError, match="orders-0 was seen up to 9 before, .* only up to 3"):
        again.batch()
    again.stop()
    assert ("orders", 0) not in committed(other)


def test_nor_where_losses_are_passed_over(log: Any, root: str, running: Any) -> None:
    """Spark also tells of what was processed while it plans the next batch."""
    fill(log, "orders", {0: 9})
    query = running(root, failOnDataLoss="false", **GROUP)
    start = {"orders": {"0": 500}, "@group": "g", "@reset": 0}
    with pytest.raises(StorageError, match="orders-0 was seen up to 500 before"):
        query.run.next(start, False)
    query.run.processed(start)
    query.run._owner.flush()
    assert ("orders", 0) not in committed(log)


def test_a_look_beside_the_end_of_its_query_is_not_fenced(
    log: Any, root: str, running: Any
) -> None:
    """A planner that is terminated gives its group up in another thread than the one that plans."""
    fill(log, "orders", {0: 1})
    query = running(root, **GROUP)
    query.batch()
    owner = query.run._owner
    flush = owner.flush

    def leave_meanwhile() -> bool:
        owner.flush = flush
        owner.leave()
        return flush()

    owner.flush = leave_meanwhile
    query.batch()
    assert group_of(log).members == {}


class Stubborn:
    """Stands before the table: requests of one query wait, or fail."""

    def __init__(self, query: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
        assert query.run._owner is not None
        self.table = query.run._owner._table
        self.accept = self.table.accept
        self.open = threading.Event()
        self.error: Exception | None = None
        self.asked = 0
        monkeypatch.setattr(self.table, "accept", self._accept)

    def _accept(self, *requests: Any) -> Any:
        self.asked += 1
        if self.error is not None:
            raise self.error
        with self.table._work:
            assert self.open.wait(20)
        return self.accept(*requests)


def test_a_commit_that_hangs_is_waited_for_once(
    log: Any, root: str, running: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ownership, "LONGEST_WAIT", 0.2)
    fill(log, "orders", {0: 5})
    query = running(root, maxOffsetsPerTrigger=1, **GROUP)
    query.batch()
    slow = Stubborn(query, monkeypatch)
    thread, waits = query.run._owner._thread, []
    with monkeypatch.context() as watched:
        wait = thread.wait
        watched.setattr(thread, "wait", lambda seconds: waits.append(seconds) or wait(seconds))
        assert len(query.drain()) == 4
    assert waits.count(0.2) == 1 and len(waits) > 1
    slow.open.set()
    until(lambda: query.batch() is None and committed(log).get(("orders", 0)) == 5)


def test_a_commit_that_fails_is_made_again_and_said_to_fail_once(
    log: Any, root: str, running: Any, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    monkeypatch.setattr(ownership, "LONGEST_WAIT", 0.2)
    fill(log, "orders", {0: 5})
    query = running(root, maxOffsetsPerTrigger=1, **GROUP)
    query.batch()
    query.run._owner._retry_seconds = 0.02
    failing = Stubborn(query, monkeypatch)
    failing.open.set()
    failing.error = StorageError("The disk is away.")
    assert len(query.drain()) == 4
    until(lambda: failing.asked > 3)
    told = capsys.readouterr().err
    assert told.count("'g' was not moved on") == 1 and "The disk is away." in told
    failing.error = None
    until(lambda: query.batch() is None and committed(log).get(("orders", 0)) == 5)


def test_a_fault_in_a_commit_is_a_warning_and_later_ones_are_made(
    log: Any, root: str, running: Any, monkeypatch: Any, capsys: Any
) -> None:
    fill(log, "orders", {0: 1})
    query = running(root, **GROUP)
    query.batch()
    failing = Stubborn(query, monkeypatch)
    failing.open.set()
    failing.error = ValueError("what is this")
    assert query.batch() is None
    assert "was not moved on: what is this" in capsys.readouterr().err
    failing.error = None
    fill(log, "orders", {0: 1})
    query.drain()
    assert committed(log)["orders", 0] == 2


# --- one query owns a group ----------------------------------------------------------------


def test_the_newer_query_wins_and_the_older_is_told_by_name(
    log: Any, root: str, running: Any
) -> None:
    fill(log, "orders", {0: 5})
    older = running(root, **GROUP)
    older.drain()
    newer = running(root, kafka__client__id="nightly", **GROUP)
    newer.drain()
    fill(log, "orders", {0: 1})
    with pytest.raises(FencedError, match="no longer owns the group 'g'.*nightly") as failed:
        older.batch()
    assert "group.id of its own" in failed.value.hint
    assert at(newer.batch()) == {("orders", 0): [5]}


def test_an_older_query_commits_nothing_after_it_was_put_out(
    log: Any, root: str, running: Any
) -> None:
    fill(log, "orders", {0: 5})
    older = running(root, maxOffsetsPerTrigger=2, **GROUP)
    older.batch()
    newer = running(root, **GROUP)
    newer.drain()
    with pytest.raises(FencedError):
        older.batch()
    older.stop()
    assert committed(log) == {("orders", 0): 5, ("orders", 1): 0}
    assert len(group_of(log).members) == 1


def test_a_consumer_does_not_join_beside_a_query(log: Any, caught_up: Any) -> None:
    caught_up({0: 5}, kafka__client__id="nightly")
    with (
        pytest.raises(OffsetLogError, match="nightly"),
        log.consumer(group="g", topics=["orders"]) as consumer,
    ):
        consumer.poll(timeout=0.1)
