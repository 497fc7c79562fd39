"""One run of a query: where it starts and how much it takes."""

from __future__ import annotations

import time
from typing import Any

import pytest

import offsetlog
from offsetlog.errors import InvalidRequestError, OffsetOutOfRangeError, UnknownTopicError
from pyspark_offsetlog.source.group_owner import GroupOwner
from tests.spark_plugin.unit.engine import Engine, at, fill, fresh_root
from tests.spark_plugin.unit.query_tools import earliest, log_of_orders

pytestmark = pytest.mark.root_in("memory")
log = log_of_orders(partitions=3)


# --- starts --------------------------------------------------------------------------------


def test_latest_is_the_default_and_reads_only_what_comes(log: Any, root: str) -> None:
    fill(log, "orders", {0: 5})
    query = Engine(root, subscribe="orders")
    assert not query.batch()
    fill(log, "orders", {0: 2, 1: 1})
    assert at(query.batch()) == {("orders", 0): [5, 6], ("orders", 1): [0]}
    assert not query.batch()


def test_earliest_reads_all_that_is_there(log: Any, root: str) -> None:
    fill(log, "orders", {0: 5, 2: 3})
    log.topic("orders").delete_records({0: 2})
    assert at(earliest(root).batch()) == {("orders", 0): [2, 3, 4], ("orders", 2): [0, 1, 2]}


def test_offsets_as_json(log: Any, root: str) -> None:
    fill(log, "orders", {0: 5, 1: 5, 2: 5})
    query = Engine(root, subscribe="orders", startingOffsets='{"orders":{"0":3,"1":-2,"2":-1}}')
    assert at(query.batch()) == {("orders", 0): [3, 4], ("orders", 1): [0, 1, 2, 3, 4]}


def test_offsets_as_json_name_exactly_the_partitions(log: Any, root: str) -> None:
    for given, told in (
        ('{"orders":{"0":0,"2":0}}', "leaves out orders-1"),
        ('{"orders":{"0":0,"1":0,"2":0,"3":0}}', "names too many: orders-3"),
        ('{"orders":{"0":0,"1":0,"2":0},"other":{"0":0}}', "names too many: other-0"),
    ):
        with pytest.raises(InvalidRequestError, match=told):
            Engine(root, subscribe="orders", startingOffsets=given).plan()


def test_offsets_out_of_range(log: Any, root: str) -> None:
    fill(log, "orders", {0: 5})
    beyond = '{"orders":{"0":6,"1":0,"2":0}}'
    for loss in ("true", "false"):
        with pytest.raises(OffsetOutOfRangeError, match="6 for orders-0, which is beyond") as error:
            Engine(root, subscribe="orders", startingOffsets=beyond, failOnDataLoss=loss).plan()
        assert "0 to 4, and the next record gets 5" in error.value.hint
    log.topic("orders").delete_records({0: 4})
    below = '{"orders":{"0":2,"1":0,"2":0}}'
    with pytest.raises(OffsetOutOfRangeError, match="now starts at 4"):
        Engine(root, subscribe="orders", startingOffsets=below).plan()
    query = Engine(root, subscribe="orders", startingOffsets=below, failOnDataLoss="false")
    assert at(query.batch()) == {("orders", 0): [4]}


def test_records_before_the_end(log: Any, root: str) -> None:
    fill(log, "orders", {0: 5, 1: 1})
    query = Engine(root, subscribe="orders", startingOffsets="-2")
    assert at(query.batch()) == {("orders", 0): [3, 4], ("orders", 1): [0]}


def _at_times(log: Any, times: dict[int, list[int]]) -> None:
    with log.producer() as producer:
        for partition, all_of in times.items():
            for number, time_ms in enumerate(all_of):
                value = f"orders-{partition}-{number}".encode()
                producer.send("orders", value, partition=partition, timestamp=time_ms).result()


def test_times(log: Any, root: str) -> None:
    _at_times(log, {0: [1000, 3000, 2000, 4000], 1: [5000], 2: [100, 2500]})
    query = Engine(root, subscribe="orders", startingTimestamp="2500")
    found = {("orders", 0): [1, 2, 3], ("orders", 1): [0], ("orders", 2): [1]}
    assert at(query.batch()) == found
    query = Engine(
        root, subscribe="orders", startingOffsetsByTimestamp='{"orders":{"0":4000,"1":0,"2":101}}'
    )
    assert at(query.batch()) == {("orders", 0): [3], ("orders", 1): [0], ("orders", 2): [1]}


def test_a_time_that_nobody_has_reached(log: Any, root: str) -> None:
    _at_times(log, {0: [1000], 1: [3000]})
    with pytest.raises(InvalidRequestError, match="startingTimestamp: orders-0 has no record"):
        Engine(root, subscribe="orders", startingTimestamp="2000").plan()
    query = Engine(
        root,
        subscribe="orders",
        startingTimestamp="2000",
        startingOffsetsByTimestampStrategy="latest",
    )
    assert at(query.batch()) == {("orders", 1): [0]}


def test_a_time_before_now_needs_no_match(log: Any, root: str) -> None:
    now = int(time.time() * 1000)
    _at_times(log, {0: [now - 3_600_000, now - 1000]})
    query = Engine(root, subscribe="orders", startingTimestamp="-PT10M")
    assert at(query.batch()) == {("orders", 0): [1]}


def test_the_committed_offsets_of_a_group(log: Any, root: str) -> None:
    fill(log, "orders", {0: 5, 1: 5})
    with log.consumer(group="g") as consumer:
        consumer.assign([("orders", 0)])
        consumer.commit({("orders", 0): 3})
    query = Engine(root, subscribe="orders", startingOffsets="group", group__id="g")
    assert at(query.batch()) == {("orders", 0): [3, 4]}
    query = Engine(
        root,
        subscribe="orders",
        startingOffsets="group",
        group__id="g",
        group__takeover="true",
        auto__offset__reset="earliest",
    )
    assert at(query.batch())[("orders", 1)] == [0, 1, 2, 3, 4]
    with pytest.raises(offsetlog.NoOffsetForGroupError, match="no committed offset"):
        Engine(
            root,
            subscribe="orders",
            startingOffsets="group",
            group__id="g",
            group__takeover="true",
            auto__offset__reset="none",
        ).plan()


def test_a_committed_offset_that_retention_has_passed(
    log: Any, root: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """The reset policy is for a group that has no position; it would skip what is there still."""
    fill(log, "orders", {0: 9})
    with log.consumer(group="g") as consumer:
        consumer.assign([("orders", 0)])
        consumer.commit({("orders", 0): 3})
    log.topic("orders").delete_records({0: 5})
    given = {"subscribe": "orders", "startingOffsets": "group", "group__id": "g"}
    told = "'g' stands at 3 of orders-0, which holds 5 to 9"
    with pytest.raises(OffsetOutOfRangeError, match=told) as failed:
        Engine(root, **given).plan()
    assert "failOnDataLoss=false" in failed.value.hint
    assert at(Engine(root, failOnDataLoss="false", **given).batch()) == {
        ("orders", 0): [5, 6, 7, 8]
    }
    assert told in capsys.readouterr().err


@pytest.mark.parametrize("loss", ["true", "false"])
def test_a_group_that_moves_on_while_a_query_takes_it_over(
    log: Any, root: str, loss: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The topics were looked at before: what is committed since is not beyond their end."""
    fill(log, "orders", {0: 5})
    join = GroupOwner.join

    def overtaken(self: GroupOwner, *given: Any) -> Any:
        fill(log, "orders", {0: 4})
        with log.consumer(group="g") as consumer:
            consumer.assign([("orders", 0)])
            consumer.commit({("orders", 0): 9})
        fill(log, "orders", {0: 2})
        return join(self, *given)

    monkeypatch.setattr(GroupOwner, "join", overtaken)
    given = {"subscribe": "orders", "startingOffsets": "group", "group__id": "g"}
    query = Engine(root, failOnDataLoss=loss, **given)
    assert at(query.batch()) == {("orders", 0): [9, 10]}


@pytest.mark.parametrize("now", [False, True])
@pytest.mark.parametrize("loss", ["true", "false"])
def test_what_is_not_there_when_a_query_starts(log: Any, root: str, now: bool, loss: str) -> None:
    for given, told in (
        ({"subscribe": "orders,nothing"}, "no topic 'nothing'"),
        ({"assign": '{"orders":[0,3]}'}, "assign names partition 3 of topic 'orders'"),
        ({"assign": '{"nothing":[0]}'}, "no topic 'nothing'"),
    ):
        query = Engine(root, failOnDataLoss=loss, **given)
        with pytest.raises(UnknownTopicError, match=told):
            (query.available_now() if now else query).plan()


def test_no_log_at_all() -> None:
    for given in ({"subscribe": "orders"}, {"subscribePattern": "o"}):
        with pytest.raises((InvalidRequestError, UnknownTopicError), match="There is no"):
            Engine(fresh_root(), **given).plan()


# --- the first batch, run again ------------------------------------------------------------


@pytest.mark.parametrize("start", ["latest", "earliest", "group"])
def test_an_empty_first_batch_run_again_is_empty(log: Any, root: str, start: str) -> None:
    given = {"subscribe": "orders", "group__id": "g", "startingOffsets": start}
    if start != "earliest":
        fill(log, "orders", {0: 5})
    query = Engine(root, **given)
    query.run.initial()
    assert query.batch() == []
    query.checkpoint.done = 0
    fill(log, "orders", {0: 3})
    log.group("g").reset("orders", to="earliest", dry_run=False)
    again = query.restarted(**given)
    assert again.batch() == []
    assert at(again.drain())["orders", 0] == [*range(8 if start != "earliest" else 3)]


@pytest.mark.parametrize(
    "start", ["latest", "earliest", "-2", "group", '{"orders":{"0":1,"1":-2,"2":-1}}', "time"]
)
def test_the_first_batch_run_again_reads_the_same(log: Any, root: str, start: str) -> None:
    fill(log, "orders", {0: 5, 1: 3, 2: 2})
    chosen = {"startingTimestamp": "-PT10M"} if start == "time" else {"startingOffsets": start}
    given = {"subscribe": "orders", "group__id": "g", **chosen}
    query = Engine(root, **given)
    query.run.initial()
    fill(log, "orders", {0: 2, 1: 1})
    query.plan()
    rows = query.rows()
    assert rows
    # The batch was planned, and the query died in it. More comes, the group moves elsewhere.
    fill(log, "orders", {0: 3, 2: 4})
    log.group("g").reset("orders", to="latest", dry_run=False)
    again = query.restarted(**given)
    assert again.plan() == query.checkpoint.wal[0]
    assert again.rows() == rows


STARTS: tuple[dict[str, Any], ...] = (
    {"startingOffsets": "earliest"},
    {"startingOffsets": "latest"},
    {"startingOffsets": "-2"},
    {"startingOffsets": '{"orders":{"0":0,"1":-2,"2":0}}'},
    {"startingOffsets": '{"orders":{"0":7,"1":-2,"2":-1}}'},
    {"startingOffsets": '{"orders":{"0":900,"1":0,"2":0}}'},  # beyond the end: an error by itself
    {"startingOffsets": "group", "group__id": "g", "auto__offset__reset": "none"},
    {"startingTimestamp": "99999999999999"},  # nobody has reached it: an error by itself
)


@pytest.mark.parametrize("second", range(len(STARTS)))
@pytest.mark.parametrize("first", range(5))
def test_a_first_batch_run_again_with_another_start_reads_what_was_planned(
    log: Any, root: str, first: int, second: int
) -> None:
    fill(log, "orders", {0: 7, 1: 3})
    query = Engine(root, subscribe="orders", **STARTS[first])
    query.run.initial()
    fill(log, "orders", {0: 3})
    query.plan()
    rows = query.rows()
    assert ("orders", 0) in at(rows)
    fill(log, "orders", {0: 2, 2: 1})
    again = query.restarted(subscribe="orders", **STARTS[second])
    assert again.batch() == rows
    assert at(again.drain()) == {("orders", 0): [10, 11], ("orders", 2): [0]}


@pytest.mark.parametrize("start", ["earliest", '{"orders":{"0":0,"1":0,"2":0}}', "-10"])
def test_records_of_a_planned_first_batch_that_were_deleted(
    log: Any, root: str, start: str
) -> None:
    fill(log, "orders", {0: 10})
    given = {"subscribe": "orders", "startingOffsets": start}
    query = Engine(root, **given)
    query.plan()
    log.topic("orders").delete_records({0: 5})
    again = query.restarted(**given)
    again.plan()
    with pytest.raises(OffsetOutOfRangeError, match="orders-0 was to be read from 0, but starts"):
        again.ranges()
    rest = query.restarted(failOnDataLoss="false", **given)
    assert at(rest.batch()) == {("orders", 0): [5, 6, 7, 8, 9]}


def test_a_partition_that_was_added_since_the_first_batch_was_planned(log: Any, root: str) -> None:
    """The offsets of the option name each partition of then: nothing has to be changed in it."""
    fill(log, "orders", {0: 3})
    given = {"subscribe": "orders", "startingOffsets": '{"orders":{"0":1,"1":0,"2":0}}'}
    query = Engine(root, **given)
    query.plan()
    log.topic("orders").alter(partitions=4)
    fill(log, "orders", {3: 2})
    again = query.restarted(**given)
    assert at(again.batch()) == {("orders", 0): [1, 2]}
    assert at(again.drain()) == {("orders", 3): [0, 1]}


def test_a_checkpoint_whose_first_batch_says_no_start(log: Any, root: str) -> None:
    """An earlier version left it out where the option could be asked again."""
    fill(log, "orders", {0: 5})
    query = earliest(root)
    query.plan()
    del query.checkpoint.wal[0]["@from"]
    fill(log, "orders", {0: 2})
    again = query.restarted(subscribe="orders", startingOffsets="earliest")
    assert at(again.batch()) == {("orders", 0): [0, 1, 2, 3, 4]}
    query.checkpoint.done = 0
    beyond = {"startingOffsets": '{"orders":{"0":900,"1":0,"2":0}}'}
    with pytest.raises(OffsetOutOfRangeError, match="900 for orders-0, which is beyond its end"):
        query.restarted(subscribe="orders", **beyond).batch()


# --- limits --------------------------------------------------------------------------------


def test_max_offsets_are_shared_out_as_kafka_does(log: Any, root: str) -> None:
    fill(log, "orders", {0: 101, 1: 11, 2: 1})
    query = earliest(root, maxOffsetsPerTrigger=10)
    took = [{p: len(offsets) for (_, p), offsets in at(query.batch()).items()} for _ in range(2)]
    assert took == [{0: 8, 1: 1, 2: 1}, {0: 9, 1: 1}]
    query = query.restarted(subscribe="orders", startingOffsets="earliest", maxOffsetsPerTrigger=10)
    rows = query.drain()
    assert len(rows) == 113 - 20
    assert query.checkpoint.wal[-1] == {"orders": {"0": 101, "1": 11, "2": 1}}


def test_trigger_once_knows_no_limit(log: Any, root: str) -> None:
    fill(log, "orders", {0: 50})
    query = earliest(root, maxOffsetsPerTrigger=10, once=True)
    assert len(query.batch() or []) == 50


def test_the_greatest_limit_does_not_overflow(log: Any, root: str) -> None:
    fill(log, "orders", {0: 5})
    assert len(earliest(root, maxOffsetsPerTrigger=2**63 - 1).batch() or []) == 5


class Clock:
    def __init__(self, query: Engine) -> None:
        self.now = 1000.0
        self.slept = 0.0
        query.run._env = query.run._env._replace(monotonic=lambda: self.now, sleep=self._sleep)

    def _sleep(self, seconds: float) -> None:
        self.now += seconds
        self.slept += seconds


def test_min_offsets_wait_for_more_or_for_the_delay(log: Any, root: str) -> None:
    fill(log, "orders", {0: 2})
    query = earliest(root, minOffsetsPerTrigger=15, maxTriggerDelay="5s", maxOffsetsPerTrigger=20)
    clock = Clock(query)
    assert len(query.batch() or []) == 2, "the first batch of a run fires at once"
    fill(log, "orders", {0: 14})
    clock.now += 1
    assert not query.batch()
    fill(log, "orders", {1: 1})
    assert len(query.batch() or []) == 15
    fill(log, "orders", {1: 3})
    clock.now += 4.9
    assert not query.batch()
    clock.now += 0.2
    assert len(query.batch() or []) == 3
    fill(log, "orders", {1: 30})
    assert len(query.batch() or []) == 20


def test_min_offsets_are_passed_over_by_available_now(log: Any, root: str) -> None:
    query = earliest(root, minOffsetsPerTrigger=15)
    fill(log, "orders", {0: 1})
    assert len(query.batch() or []) == 1
    fill(log, "orders", {0: 1})
    assert not query.batch()
    query = query.restarted(subscribe="orders", startingOffsets="earliest", minOffsetsPerTrigger=15)
    assert len(query.available_now().drain()) == 1


def test_max_bytes(log: Any, root: str) -> None:
    for _ in range(10):
        fill(log, "orders", {0: 20, 1: 2}, size=500)
    query = earliest(root, maxBytesPerTrigger="20k")
    took = []
    while (rows := query.batch()) is not None:
        took.append(sum(len(row.value) for row in rows))
    assert sum(took) == 220 * 500
    assert 4 <= len(took) <= 20
    assert max(took) < 40_000
    query = earliest(root, maxBytesPerTrigger=1)
    assert at(query.batch()) == {("orders", 0): [0], ("orders", 1): [0]}


# --- available now -------------------------------------------------------------------------


def test_available_now_ends_at_what_was_there(log: Any, root: str) -> None:
    fill(log, "orders", {0: 9, 1: 6})
    query = earliest(root, maxOffsetsPerTrigger=5).available_now()
    first = query.batch()
    fill(log, "orders", {0: 100, 1: 100, 2: 1})
    log.topic("orders").alter(partitions=4)
    log.create_topic("other")
    rows = (first or []) + query.drain()
    assert {tp: len(offsets) for tp, offsets in at(rows).items()} == {
        ("orders", 0): 9,
        ("orders", 1): 6,
    }
    fill(log, "orders", {3: 2})
    rest = query.restarted(subscribe="orders", startingOffsets="earliest").available_now().drain()
    assert len(rest) == 203
    assert at(rest)["orders", 3] == [0, 1]


def test_available_now_of_latest_reads_nothing(log: Any, root: str) -> None:
    fill(log, "orders", {0: 9})
    assert Engine(root, subscribe="orders").available_now().drain() == []


def test_available_now_fails_when_its_topic_vanishes(log: Any, root: str) -> None:
    fill(log, "orders", {0: 9})
    query = earliest(root, maxOffsetsPerTrigger=5).available_now()
    query.batch()
    log.delete_topic("orders")
    with pytest.raises(OffsetOutOfRangeError, match="orders-0 was read up to 5 and is not there"):
        query.batch()


def test_idle_looks_are_bounded_by_the_poll_interval(
    log: Any, root: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    query = Engine(root, subscribe="orders", pollIntervalMs=1000)
    clock = Clock(query)
    assert not query.batch()
    looks: list[float] = []
    look = query.run.topics.look

    def counted(*given: Any, **named: Any) -> Any:
        looks.append(clock.now)
        return look(*given, **named)

    monkeypatch.setattr(query.run.topics, "look", counted)
    for _ in range(5):
        clock.now += 0.3
        assert not query.batch()
    assert looks == pytest.approx([1001, 1002, 1003, 1004, 1005])
    clock.now += 7
    assert not query.batch()
    assert looks[-1] == clock.now == pytest.approx(1012), "that interval was over"


def test_nothing_is_there_only_after_a_look_that_began_later(log: Any, root: str) -> None:
    """Spark's ``processAllAvailable`` rests on it. The rest of the interval is waited out."""
    query = Engine(root, subscribe="orders", pollIntervalMs=1000)
    clock = Clock(query)
    assert not query.batch()
    for number in range(4):
        fill(log, "orders", {0: 1})
        clock.now += 0.1 * number
        slept = clock.slept
        assert at(query.batch()) == {("orders", 0): [number]}
        assert clock.slept - slept == pytest.approx(1 - 0.1 * number)
        slept = clock.slept
        assert not query.batch(), "after a batch the next look is at once"
        assert clock.slept == slept


def test_available_now_waits_for_nothing(log: Any, root: str) -> None:
    """What it reads is fixed; other sources of the query may have more."""
    fill(log, "orders", {0: 1})
    query = earliest(root, pollIntervalMs=1000).available_now()
    clock = Clock(query)
    assert len(query.drain()) == 1
    fill(log, "orders", {0: 1})
    assert [query.batch() for _ in range(3)] == [None] * 3
    assert clock.slept == 0
