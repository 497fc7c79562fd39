"""A query and its group: the progress that is committed, and who owns the group."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import pytest

from offsetlog.core.group.facts import Subscription
from offsetlog.core.group.requests import JoinRequest
from offsetlog.errors import FencedError, OffsetLogError, StorageError
from pyspark_offsetlog.options.spec import LogAddress
from pyspark_offsetlog.runtime.open_logs import open_log
from pyspark_offsetlog.source import group_owner as ownership
from tests.spark_plugin.unit.engine import Checkpoint, Engine, at, fill, fresh_root
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


TAKE = {"group__takeover": "true"}


class Clock:
    """The clocks of a log: sleeping moves them, and so lets what beats beside it beat."""

    def __init__(self, log: Any, monkeypatch: pytest.MonkeyPatch) -> None:
        self.seconds = 1000.0
        self.waited = 0.0
        self.log = log
        self.at_sleep: Callable[[], object] = lambda: None
        env = log.env._replace(monotonic=lambda: self.seconds, sleep=self.sleep)
        monkeypatch.setattr(log, "env", env)
        monkeypatch.setattr(log.offsets_table, "env", env)
        monkeypatch.setattr(log.heartbeats, "_env", env)
        monkeypatch.setattr(log.heartbeats, "_start", self.start)

    def start(self, name: str, work: Callable[[], float], heart: Any) -> None:
        work()

    def sleep(self, seconds: float) -> None:
        at_sleep, self.at_sleep = self.at_sleep, lambda: None
        at_sleep()
        self.seconds += seconds
        self.waited += seconds
        self.log.heartbeats.send_due()


@pytest.fixture
def clock(log: Any, monkeypatch: pytest.MonkeyPatch) -> Clock:
    return Clock(log, monkeypatch)


def vanish(query: Engine) -> None:
    """Its process is killed: nothing of it is said or beaten any more."""
    query.log.heartbeats._hearts.pop(query.run._owner.member)
    query.run.stop = lambda: None


def test_a_newcomer_does_not_fence_an_owner_that_lives(
    log: Any, root: str, running: Any, clock: Clock
) -> None:
    fill(log, "orders", {0: 5})
    older = running(root, kafka__client__id="nightly", **GROUP)
    older.drain()
    newer = running(root, **GROUP)
    with pytest.raises(FencedError, match="'g' is owned by the query 'nightly-.*running") as failed:
        newer.batch()
    assert "group.id of its own" in failed.value.hint and "group.takeover" in failed.value.hint
    assert clock.waited < 11
    fill(log, "orders", {0: 1})
    assert at(older.batch()) == {("orders", 0): [5]}
    assert older.batch() is None
    assert committed(log)["orders", 0] == 6


def test_an_owner_that_stopped_beating_is_taken_over_after_its_session_timeout(
    log: Any, root: str, running: Any, clock: Clock
) -> None:
    fill(log, "orders", {0: 5})
    older = running(root, **GROUP)
    older.drain()
    vanish(older)
    newer = running(root, **GROUP)
    assert len(newer.batch()) == 5
    assert 45 <= clock.waited < 50


def test_an_owner_that_stopped_long_ago_is_not_waited_for(
    log: Any, root: str, running: Any, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(log, "orders", {0: 5})
    older = running(root, **GROUP)
    older.drain()
    vanish(older)
    port = log.offsets_table.port
    monkeypatch.setattr(port, "beat_age_ms", lambda member, now_ms: 46_000)
    newer = running(root, **GROUP)
    assert len(newer.batch()) == 5
    assert clock.waited == 0


def test_a_query_that_was_killed_takes_its_group_over_at_once(
    log: Any, root: str, running: Any, clock: Clock
) -> None:
    fill(log, "orders", {0: 5})
    for kept in (1, 2, 3):
        older = running(root, maxOffsetsPerTrigger=1, **GROUP)
        for _ in range(kept):
            older.batch()
        older.plan()  # Killed with a batch on its way.
        vanish(older)
        again = running(root, older.checkpoint, **GROUP)
        assert at(again.batch()) == {("orders", 0): [kept]}
        assert again.drain() and clock.waited == 0
        again.stop()


@pytest.mark.parametrize("planned", ["nothing", "a batch", "a batch that began"])
@pytest.mark.parametrize("start", ["earliest", "group"])
def test_a_new_query_that_was_killed_in_its_first_batch_takes_over_at_once(
    log: Any, root: str, running: Any, clock: Clock, planned: str, start: str
) -> None:
    fill(log, "orders", {0: 5})
    given = {**GROUP, "startingOffsets": start, "auto__offset__reset": "earliest"}
    older = running(root, **given)
    if planned == "nothing":
        older.run.next(older.run.initial(), True)
    else:
        older.plan()
        if planned == "a batch that began":
            older.ranges()
    older.run._owner.flush()
    log.heartbeats._hearts.clear()
    older.run.stop = lambda: None
    again = running(root, older.checkpoint, **given)
    assert len(again.batch()) == 5
    assert clock.waited == 0
    assert again.batch() is None and committed(log)["orders", 0] == 5


def test_the_id_of_a_checkpoint_outlives_runs_without_a_group(
    log: Any, root: str, running: Any, clock: Clock
) -> None:
    fill(log, "orders", {0: 5})
    older = running(root, **GROUP)
    older.drain()
    vanish(older)
    fill(log, "orders", {0: 1})
    without = running(root, older.checkpoint, subscribe="orders")
    assert at(without.batch()) == {("orders", 0): [5]}
    fill(log, "orders", {0: 1})
    again = running(root, older.checkpoint, **GROUP)
    assert at(again.drain()) == {("orders", 0): [6]} and clock.waited == 0


def test_two_queries_of_one_checkpoint_do_not_both_go_on(
    log: Any, root: str, running: Any, clock: Clock
) -> None:
    fill(log, "orders", {0: 5})
    older = running(root, **GROUP)
    older.drain()
    copied = Checkpoint()
    copied.wal, copied.done = list(older.checkpoint.wal), older.checkpoint.done
    newer = running(root, copied, **GROUP)
    assert newer.batch() is None and clock.waited == 0
    with pytest.raises(FencedError, match="no longer owns the group 'g'"):
        older.batch()


def test_an_older_versions_query_is_taken_over_at_once(
    log: Any, root: str, running: Any, clock: Clock
) -> None:
    """It does not beat, and neither its join nor its checkpoint has an id."""
    fill(log, "orders", {0: 5})
    said = Subscription(("orders",), "sticky", 0, "old", "host", alone=True)
    log.offsets_table.accept(JoinRequest("g", "old", said))
    kept = Checkpoint()
    kept.wal.append({"orders": {"0": 3, "1": 0}, "@group": "g", "@reset": 0})
    kept.done = 1
    query = running(root, kept, **GROUP)
    assert at(query.batch()) == {("orders", 0): [3, 4]}
    assert clock.waited == 0
    assert group_of(log).owner.subscription.checkpoint == kept.wal[-1]["@checkpoint"]


def test_a_query_that_no_checkpoint_knows_is_taken_over_at_once(
    log: Any, root: str, running: Any, clock: Clock
) -> None:
    """Killed now, nobody could tell a restart of it from another query."""
    fill(log, "orders", {0: 5})
    older = running(root, **GROUP)
    older.run.next(older.run.initial(), True)
    newer = running(root, **GROUP)
    assert len(newer.batch()) == 5 and clock.waited == 0
    with pytest.raises(FencedError):
        older.run.next(older.run.initial(), True)


def test_an_id_that_was_lost_leaves_the_group_free(
    log: Any, root: str, running: Any, clock: Clock
) -> None:
    """An older version's checkpoint of the table does not have it."""
    fill(log, "orders", {0: 5})
    older = running(root, **GROUP)
    older.drain()
    owner = group_of(log).owner
    said = owner.subscription._replace(checkpoint="")
    log.offsets_table.accept(JoinRequest("g", owner.name, said, owner.joined))
    assert len(running(root, **GROUP).batch()) == 5


def test_a_newcomer_that_waits_goes_on_as_soon_as_the_owner_leaves(
    log: Any, root: str, running: Any, clock: Clock
) -> None:
    """From where that one committed last, not from where it stood when Spark asked."""
    fill(log, "orders", {0: 5})
    older = running(root, maxOffsetsPerTrigger=3, **GROUP)
    older.batch()
    older.run._owner.flush()
    log.heartbeats._hearts[older.run._owner.member].next_beat = 1e9
    given = {**GROUP, "startingOffsets": "group", "auto__offset__reset": "earliest"}
    newer = running(root, **given)

    def end() -> None:
        older.drain()
        older.stop()

    clock.at_sleep = end
    assert newer.drain() == []
    assert clock.waited < 1 and committed(log)["orders", 0] == 5
    fill(log, "orders", {0: 1})
    assert at(newer.batch()) == {("orders", 0): [5]}


def test_with_takeover_the_newer_query_wins_and_the_older_is_told_by_name(
    log: Any, root: str, running: Any, clock: Clock
) -> None:
    fill(log, "orders", {0: 5})
    older = running(root, **GROUP)
    older.drain()
    newer = running(root, kafka__client__id="nightly", **TAKE, **GROUP)
    newer.drain()
    assert clock.waited == 0
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
    newer = running(root, **TAKE, **GROUP)
    newer.drain()
    with pytest.raises(FencedError):
        older.batch()
    older.stop()
    assert committed(log) == {("orders", 0): 5, ("orders", 1): 0}
    assert len(group_of(log).members) == 1


def test_a_query_that_owns_its_group_beats_and_looks_at_nobody(
    log: Any, root: str, running: Any, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(log, "orders", {0: 5})
    query = running(root, **GROUP)
    query.drain()
    asked: list[str] = []
    port = log.offsets_table.port
    monkeypatch.setattr(port, "read", lambda since: asked.append("read"))
    monkeypatch.setattr(port, "beat", lambda member, text: asked.append("beat"))
    for _ in range(60):
        clock.sleep(1)
        log.heartbeats.watch_due()
    assert asked == ["beat"] * 6
    monkeypatch.undo()
    query.stop()
    assert not log.heartbeats._hearts and not port.list_beats()


def test_a_consumer_does_not_join_beside_a_query(log: Any, caught_up: Any) -> None:
    caught_up({0: 5}, kafka__client__id="nightly")
    with (
        pytest.raises(OffsetLogError, match="nightly"),
        log.consumer(group="g", topics=["orders"]) as consumer,
    ):
        consumer.poll(timeout=0.1)
