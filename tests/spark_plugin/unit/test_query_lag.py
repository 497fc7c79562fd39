"""What a query's group shows before its first batch is done: all that is read, and from where."""

from __future__ import annotations

from typing import Any

import pytest

from offsetlog.core.group.facts import FactKind
from pyspark_offsetlog.source import group_owner
from tests.spark_plugin.unit.engine import Checkpoint, Engine, fill
from tests.spark_plugin.unit.group_tools import GROUP, committed, group_of
from tests.spark_plugin.unit.query_tools import log_of_orders

pytestmark = pytest.mark.root_in("memory", "local")
log = log_of_orders(partitions=2)


def lag_in_its_batch(log: Any, query: Engine) -> dict[tuple[str, int], int | None]:
    """While the batch that was planned runs."""
    assert query.plan() is not None
    query.ranges()
    query.run._owner.flush()
    assert {line.committed for line in log.group("g").describe().partitions} == {None}
    return {tuple(tp): lag for tp, lag in log.group("g").lag().items()}


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({"startingOffsets": "earliest"}, {0: 8, 1: 3}),
        ({"startingOffsets": "-2"}, {0: 2, 1: 2}),
        ({"startingOffsets": '{"orders": {"0": 7, "1": -2}}'}, {0: 3, 1: 3}),
        ({"startingTimestamp": "0"}, {0: 8, 1: 3}),
        ({"startingOffsets": "group", "auto.offset.reset": "earliest"}, {0: 8, 1: 3}),
    ],
)
def test_a_first_batch_shows_the_lag_from_where_it_begins(
    log: Any, root: str, running: Any, given: Any, expected: Any
) -> None:
    fill(log, "orders", {0: 10, 1: 3})
    log.topic("orders").delete_records({0: 2})
    query = running(root, **{**GROUP, "startingOffsets": "earliest", **given})
    assert lag_in_its_batch(log, query) == {("orders", p): n for p, n in expected.items()}
    fill(log, "orders", {1: 5})
    assert log.group("g").lag()["orders", 1] == expected[1] + 5
    query.rows()
    query.checkpoint.done = 1
    query.drain()
    assert set(log.group("g").lag().values()) == {0}


def test_latest_begins_where_the_log_ended_when_it_started(
    log: Any, root: str, running: Any
) -> None:
    fill(log, "orders", {0: 10, 1: 3})
    query = running(root, **{**GROUP, "startingOffsets": "latest"})
    assert lag_in_its_batch(log, query) == {("orders", 0): 0, ("orders", 1): 0}
    fill(log, "orders", {0: 4})
    assert dict(log.group("g").lag()) == {("orders", 0): 4, ("orders", 1): 0}


def test_only_assigned_partitions_are_shown(log: Any, root: str, running: Any) -> None:
    fill(log, "orders", {0: 10, 1: 3})
    given = {"assign": '{"orders": [1]}', "startingOffsets": "earliest", "group__id": "g"}
    query = running(root, **given)
    query.run.initial()
    assert dict(log.group("g").lag()) == {("orders", 1): None}, "before it is known"
    assert lag_in_its_batch(log, query) == {("orders", 1): 3}


def test_topics_that_match_a_pattern_now(log: Any, root: str, running: Any) -> None:
    fill(log, "orders", {0: 10})
    log.create_topic("other")
    given = {"subscribePattern": "ord", "startingOffsets": "earliest", "group__id": "g"}
    query = running(root, **given)
    assert lag_in_its_batch(log, query) == {("orders", 0): 10, ("orders", 1): 0}
    query.rows()
    query.checkpoint.done = 1
    log.create_topic("ordinary")
    fill(log, "ordinary", {0: 6})
    query.plan()
    query.run._owner.flush()
    lag = log.group("g").lag()
    assert lag == {("orders", 0): 0, ("orders", 1): 0, ("ordinary", 0): 6}


def test_a_first_batch_that_is_run_again_begins_where_it_began(
    log: Any, root: str, running: Any
) -> None:
    """Spark asks anew where the query starts then: at the end of now, but that is not read."""
    fill(log, "orders", {0: 10})
    latest = {**GROUP, "startingOffsets": "latest"}
    query = running(root, **GROUP)
    query.plan()
    query.run._owner.flush()
    again = running(root, query.checkpoint, **latest)
    assert lag_in_its_batch(log, again) == {("orders", 0): 10, ("orders", 1): 0}


def test_a_checkpoint_under_a_new_group_goes_on_from_it(log: Any, root: str, running: Any) -> None:
    fill(log, "orders", {0: 10, 1: 2})
    query = running(root, subscribe="orders", startingOffsets="earliest")
    query.drain()
    fill(log, "orders", {0: 3})
    again = running(root, query.checkpoint, **GROUP)
    assert again.plan() is not None and again.run._owner.flush()
    assert dict(log.group("g").lag()) == {("orders", 0): 3, ("orders", 1): 0}


def test_a_query_whose_group_has_positions_says_nothing(log: Any, root: str, running: Any) -> None:
    fill(log, "orders", {0: 10})
    running(root, **GROUP).drain()
    joins = []
    for _ in range(3):
        fill(log, "orders", {0: 3})
        again = {**GROUP, "startingOffsets": "group", "group__takeover": "true"}
        running(root, **again).drain()
        facts = log.offsets_table.port.read(-1).facts
        joins.append(sum(fact.kind == FactKind.JOIN for fact in facts))
    assert joins == [joins[0], joins[0] + 1, joins[0] + 2], "one each, to take the group over"


def test_what_is_too_much_to_say_is_not_known(
    log: Any, root: str, running: Any, monkeypatch: Any
) -> None:
    monkeypatch.setattr(group_owner, "MAX_STARTS", 1)
    fill(log, "orders", {0: 10, 1: 10})
    query = running(root, **{**GROUP, "startingOffsets": "-1"})
    assert lag_in_its_batch(log, query) == {("orders", 0): None, ("orders", 1): None}


def test_a_query_that_left_shows_its_positions_alone(log: Any, root: str, running: Any) -> None:
    fill(log, "orders", {0: 10})
    query = running(root, **GROUP)
    assert lag_in_its_batch(log, query) == {("orders", 0): 10, ("orders", 1): 0}
    query.stop()
    assert not group_of(log).members
    assert dict(log.group("g").lag()) == {}


# --- progress that is tracked asynchronously ---------------------------------------------------


class AsyncEngine(Engine):
    """Spark with ``asyncProgressTrackingEnabled``: ends are logged later, some of them not at all;
    what was logged before the last one that was logged is acknowledged."""

    def __init__(self, *given: Any, **options: Any) -> None:
        super().__init__(*given, **options)
        self.logged = Checkpoint()
        """What a restart finds."""

    def plan(self) -> dict[str, Any] | None:
        kept = self.checkpoint
        start = kept.wal[-1] if kept.wal else dict(self.run.initial())
        end = self.run.next(start, self.limited)
        if end == start and kept.wal:
            return None
        kept.wal.append(end)
        return end

    def log_last(self) -> None:
        if self.logged.wal:
            self.run.processed(self.logged.wal[-1])
        self.logged.wal.append(self.checkpoint.wal[-1])
        self.logged.done = len(self.logged.wal)


def test_a_group_is_never_ahead_of_a_checkpoint_that_is_written_later(log: Any, root: str) -> None:
    fill(log, "orders", {0: 100})
    query = AsyncEngine(root, maxOffsetsPerTrigger=10, **GROUP)
    query.batch()
    query.log_last()
    for _ in range(9):
        query.batch()
    assert query.batch() is None and query.run._owner.flush()
    assert committed(log)["orders", 0] == 10, "the checkpoint has the first batch alone"
    assert log.group("g").lag()["orders", 0] == 90
    fill(log, "orders", {0: 10})
    query.batch()
    query.log_last()
    fill(log, "orders", {0: 10})
    query.batch()
    query.log_last()
    query.batch()
    assert query.run._owner.flush()
    assert committed(log)["orders", 0] == 110
    again = Engine(root, query.logged, **GROUP)
    again.drain()
    assert committed(log)["orders", 0] == 120
    again.stop()
