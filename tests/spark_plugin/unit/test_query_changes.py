"""What a query does when topics change under it: more of them, fewer, shorter, rewritten."""

from __future__ import annotations

from typing import Any

import pytest

from offsetlog.errors import (
    InvalidRequestError,
    OffsetOutOfRangeError,
    StorageError,
    UnknownTopicError,
)
from tests.spark_plugin.unit.engine import Checkpoint, Engine, at, fill
from tests.spark_plugin.unit.query_tools import earliest, log_of_orders

pytestmark = pytest.mark.root_in("memory")
log = log_of_orders(partitions=3)


# --- topics that change --------------------------------------------------------------------


def test_new_partitions_are_read_from_their_start(log: Any, root: str) -> None:
    query = Engine(root, subscribe="orders")
    assert not query.batch()
    log.topic("orders").alter(partitions=5)
    fill(log, "orders", {4: 3})
    assert at(query.batch()) == {("orders", 4): [0, 1, 2]}
    fill(log, "orders", {3: 1, 4: 1})
    assert at(query.batch()) == {("orders", 3): [0], ("orders", 4): [3]}


def test_a_pattern_finds_and_takes_in_what_comes(log: Any, root: str) -> None:
    log.create_topic("pre-orders-eu")
    log.create_topic("payments")
    query = Engine(root, subscribePattern="ord.rs")
    assert not query.batch()
    for topic in ("orders", "pre-orders-eu", "payments"):
        fill(log, topic, {0: 1})
    assert at(query.batch()).keys() == {("orders", 0), ("pre-orders-eu", 0)}
    log.create_topic("My.Orders.orders")
    fill(log, "My.Orders.orders", {0: 2})
    assert at(query.drain()) == {("My.Orders.orders", 0): [0, 1]}


def test_a_pattern_that_finds_nothing_yet(log: Any, root: str) -> None:
    query = Engine(root, subscribePattern="^later$")
    assert not query.batch()
    log.create_topic("later")
    fill(log, "later", {0: 2})
    assert at(query.drain()) == {("later", 0): [0, 1]}


def test_a_deleted_topic_of_a_pattern_comes_back(log: Any, root: str) -> None:
    query = Engine(root, subscribePattern="ord", startingOffsets="earliest", failOnDataLoss="false")
    fill(log, "orders", {0: 2})
    query.batch()
    log.delete_topic("orders")
    assert not query.batch(), "an offset without any partition is never written"
    log.create_topic("orders")
    fill(log, "orders", {0: 1})
    assert at(query.drain()) == {("orders", 0): [2]}, "offsets go on"


def test_assigned_partitions_only(log: Any, root: str) -> None:
    fill(log, "orders", {0: 1, 1: 2, 2: 3})
    query = Engine(root, assign='{"orders":[0,2]}', startingOffsets="earliest")
    assert at(query.batch()) == {("orders", 0): [0], ("orders", 2): [0, 1, 2]}
    log.topic("orders").alter(partitions=4)
    fill(log, "orders", {3: 1, 1: 1})
    assert not query.batch()


# --- records that are gone -----------------------------------------------------------------


def test_retention_took_what_was_not_read(log: Any, root: str) -> None:
    fill(log, "orders", {0: 10})
    query = earliest(root, maxOffsetsPerTrigger=3)
    query.batch()
    log.topic("orders").delete_records({0: 7})
    with pytest.raises(OffsetOutOfRangeError, match="read from 3, but starts at 7") as failed:
        query.batch()
    assert "failOnDataLoss=false" in failed.value.hint
    given = {"subscribe": "orders", "failOnDataLoss": "false"}
    rest = query.restarted(**given)
    assert at(rest.drain()) == {("orders", 0): [7, 8, 9]}


def test_retention_between_the_plan_and_its_second_run(
    log: Any, root: str, capsys: pytest.CaptureFixture[str]
) -> None:
    fill(log, "orders", {0: 10})
    query = earliest(root, maxOffsetsPerTrigger=3)
    query.batch()
    query.plan()
    log.topic("orders").delete_records({0: 5})
    again = query.restarted(subscribe="orders")
    again.plan()
    with pytest.raises(OffsetOutOfRangeError, match="read from 3, but starts at 5"):
        again.ranges()
    again = query.restarted(subscribe="orders", failOnDataLoss="false")
    assert at(again.batch()) == {("orders", 0): [5]}
    assert "offsetlog: warning: orders-0 was to be read from 3" in capsys.readouterr().err


@pytest.mark.parametrize("taken_out", [True, False])
def test_a_topic_that_is_not_read_any_more(log: Any, root: str, taken_out: bool) -> None:
    log.create_topic("other")
    fill(log, "orders", {0: 2})
    fill(log, "other", {0: 2})
    query = earliest(root, subscribe="orders,other")
    query.batch()
    fill(log, "orders", {0: 1})
    topics = "orders"
    if not taken_out:
        log.delete_topic("other")
        topics = "orders,other"
    with pytest.raises(OffsetOutOfRangeError, match="other-0 was read up to 2 and is not there"):
        query.restarted(subscribe=topics).plan()
    rest = query.restarted(subscribe=topics, failOnDataLoss="false")
    assert at(rest.drain()) == {("orders", 0): [2]}


def test_a_topic_that_is_named_anew_must_be_there(log: Any, root: str) -> None:
    fill(log, "orders", {0: 2})
    query = earliest(root)
    query.batch()
    for loss in ("true", "false"):
        with pytest.raises(UnknownTopicError, match="ordres"):
            query.restarted(subscribe="orders,ordres", failOnDataLoss=loss).plan()
        with pytest.raises(UnknownTopicError, match="partition 9"):
            query.restarted(assign='{"orders":[0,1,2,9]}', failOnDataLoss=loss).plan()


def test_deleted_and_created_again(log: Any, root: str) -> None:
    """Offsets go on, so what was read is not read again and what is new is not missed."""
    fill(log, "orders", {0: 5})
    query = earliest(root)
    query.batch()
    log.delete_topic("orders")
    log.create_topic("orders", partitions=3)
    fill(log, "orders", {0: 2})
    assert at(query.batch()) == {("orders", 0): [5, 6]}


def test_deleted_and_created_again_before_all_was_read(log: Any, root: str) -> None:
    fill(log, "orders", {0: 5})
    query = earliest(root, maxOffsetsPerTrigger=2)
    query.batch()
    log.delete_topic("orders")
    log.create_topic("orders", partitions=1)
    fill(log, "orders", {0: 2})
    with pytest.raises(OffsetOutOfRangeError, match=r"orders-1 was read up to 0"):
        query.batch()
    rest = query.restarted(subscribe="orders", failOnDataLoss="false")
    assert at(rest.drain()) == {("orders", 0): [5, 6]}


def test_purged_and_made_anew_with_less_in_it(log: Any, root: str) -> None:
    """A purge is the one thing that lets offsets start again, and the chain says nothing of it: it
    looks like a disk that shows an older view."""
    fill(log, "orders", {0: 5})
    query = earliest(root)
    query.batch()
    log.delete_topic("orders", purge=True)
    log.create_topic("orders", partitions=3)
    fill(log, "orders", {0: 2})
    for loss in ("true", "false"):
        with pytest.raises(
            StorageError, match="the log only up to 2, at memory.*purged and recreated"
        ):
            query.restarted(subscribe="orders", failOnDataLoss=loss).plan()
    assert at(earliest(root).drain()) == {("orders", 0): [0, 1]}


# --- the same offsets give the same rows ---------------------------------------------------


def test_a_plan_made_again_after_appends_and_maintenance(log: Any, root: str) -> None:
    for _ in range(5):
        fill(log, "orders", {0: 3, 1: 2})
    query = earliest(root, maxOffsetsPerTrigger=10)
    query.batch()
    query.plan()
    rows = query.rows()
    fill(log, "orders", {0: 10})
    log.maintain(grace_ms=0)
    assert query.rows() == rows
    assert query.restarted(subscribe="orders").batch() == rows


def test_a_checkpoint_that_is_not_ours(log: Any, root: str) -> None:
    kept = Checkpoint()
    kept.wal, kept.done = [{"orders": 3}], 1
    with pytest.raises(InvalidRequestError, match="offset that offsetlog did not write"):
        Engine(root, kept, subscribe="orders").plan()


def test_retention_of_a_whole_first_batch_that_was_planned(log: Any, root: str) -> None:
    """Spark asks anew where it starts when that batch is run again, and earliest is later now:
    where the batch began is in the checkpoint."""
    fill(log, "orders", {0: 5})
    query = earliest(root)
    query.plan()
    fill(log, "orders", {0: 3})
    log.topic("orders").delete_records({0: 7})
    given = {"subscribe": "orders", "startingOffsets": "earliest"}
    again = query.restarted(**given)
    again.plan()
    with pytest.raises(OffsetOutOfRangeError, match="to be read from 0, but starts at 7"):
        again.ranges()
    rest = query.restarted(failOnDataLoss="false", **given)
    assert at(rest.drain()) == {("orders", 0): [7]}


def test_offsets_of_a_checkpoint_that_were_changed_by_hand(
    log: Any, root: str, capsys: pytest.CaptureFixture[str]
) -> None:
    fill(log, "orders", {0: 9})
    query = earliest(root, maxOffsetsPerTrigger=3)
    query.batch()
    query.batch()
    query.plan()
    kept = query.checkpoint
    kept.wal[-1] = {"orders": {"0": 2, "1": 0, "2": 0}}
    again = query.restarted(subscribe="orders")
    again.plan()
    with pytest.raises(OffsetOutOfRangeError, match="read from 6 back to 2"):
        again.ranges()
    assert query.restarted(subscribe="orders", failOnDataLoss="false").batch() == []
    assert "an offset of the checkpoint was changed" in capsys.readouterr().err
    # Of a batch that is done, they are where the next one begins; a partition left out is new.
    kept.wal[-1], kept.done = {"orders": {"0": 4, "1": 0}}, len(kept.wal)
    fill(log, "orders", {2: 1})
    rest = query.restarted(subscribe="orders").drain()
    assert at(rest) == {("orders", 0): [4, 5, 6, 7, 8], ("orders", 2): [0]}
    # Beyond the end there is nothing to go on from.
    kept.wal[-1] = {"orders": {"0": 10, "1": 0, "2": 1}}
    with pytest.raises(StorageError, match="seen up to 10 before, .* the log only up to 9"):
        query.restarted(subscribe="orders").plan()
