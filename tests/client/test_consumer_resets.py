"""Resets of a group, and the end of groups and their offsets: deleted, or given up."""

from __future__ import annotations

import datetime as dt
import warnings

import pytest

import offsetlog
from offsetlog import (
    InvalidRequestError,
    OffsetLogWarning,
    OffsetOutOfRangeError,
    UnknownTopicError,
)
from tests.client.consumers import drain, fill, quiet

pytestmark = pytest.mark.root_in("local", "memory")


def test_a_running_consumer_follows_a_reset_only_where_it_was_reset(log):
    fill(log)
    with quiet(log) as consumer:
        assert len(drain(consumer)) == 30
        consumer.commit()
        plan = log.group("billing").reset("orders", to=4, partitions=[1], dry_run=False)
        assert plan.executed and plan.offsets == {("orders", 1): 4}
        got = drain(consumer, 1.0)
        assert [(r.partition, r.offset) for r in got] == [(1, o) for o in range(4, 10)]
        log.group("billing").reset("orders", to=2, partitions=[2], dry_run=False)
        consumer.commit()
        assert consumer.committed(("orders", 2)) == {("orders", 2): 2}, "it was reset since"
        assert consumer.committed(("orders", 1)) == {("orders", 1): 10}


@pytest.mark.parametrize(("policy", "first"), [("earliest", 6), ("latest", 10), ("none", None)])
@pytest.mark.parametrize("member", [False, True], ids=["by hand", "member"])
def test_a_reset_to_records_that_went_since_follows_the_policy(log, member, policy, first):
    fill(log, partitions=1, records=10)
    with log.consumer("billing", auto_offset_reset=policy, enable_auto_commit=False) as consumer:
        log.group("billing").reset("orders", to=10, dry_run=False)
        if member:
            consumer.subscribe(["orders"])
        else:
            consumer.assign([("orders", 0)])
        assert consumer.poll() == []
        log.group("billing").reset("orders", to=3, dry_run=False)
        log.topic("orders").delete_records({0: 6})
        if first is None:
            for _ in range(2):
                with pytest.raises(OffsetOutOfRangeError, match="Position 3 of orders-0"):
                    drain(consumer, 1.0)
            consumer.seek(("orders", 0), 8)
            assert [r.offset for r in drain(consumer)] == [8, 9]
        else:
            with pytest.warns(OffsetLogWarning, match=f"was reset to 3 of orders-0.*from {first}"):
                assert [r.offset for r in drain(consumer, 0.1)] == [*range(first, 10)]


@pytest.mark.parametrize("since", ["deleted", "committed"])
def test_an_assigned_consumer_goes_to_where_a_reset_put_it(log, since):
    """Whatever became of the position since: another program commits, or the group is dropped."""
    fill(log)
    with log.consumer("billing", auto_offset_reset="latest") as consumer:
        consumer.assign([("orders", 0)])
        consumer.seek(("orders", 0), 6)
        assert [r.offset for r in drain(consumer)] == [6, 7, 8, 9]
        consumer.commit()
        log.group("billing").reset("orders", to=4, partitions=[0], dry_run=False)
        if since == "committed":
            with log.consumer("billing") as other:
                other.assign([("orders", 0)])
                other.commit({("orders", 0): 9})
        else:
            log.group("billing").delete()
        assert [r.offset for r in drain(consumer, 1.0)] == [*range(4, 10)]


@pytest.mark.parametrize("member", [False, True], ids=["by hand", "member"])
def test_what_was_polled_before_a_reset_is_not_committed_after_it(log, member):
    fill(log, partitions=1, records=30)
    orders = ("orders", 0)
    consumer = log.consumer("billing", auto_offset_reset="earliest", enable_auto_commit=False)
    with consumer:
        if member:
            consumer.subscribe(["orders"])
        else:
            consumer.assign([orders])
        assert len(consumer.poll(max_records=8)) == 8
        consumer.commit()
        assert len(consumer.poll(max_records=4)) == 4
        log.group("billing").reset("orders", to="latest", dry_run=False)
        assert drain(consumer) == [], "the reset was followed"
        for commit in (
            lambda: consumer.commit({orders: 12}),
            lambda: consumer.commit({orders: (9, "text")}),
            lambda: consumer.commit_async({orders: 12}).result(timeout=10),
        ):
            commit()
            assert consumer.committed() == {orders: 30}, "it was polled before the reset"
        fill(log, partitions=1, records=2)
        assert [r.offset for r in drain(consumer, 1.0)] == [30, 31]
        consumer.commit({orders: 31})
        assert consumer.committed() == {orders: 31}, "this was polled after it"
        log.group("billing").reset("orders", to=10, dry_run=False)
        assert [r.offset for r in drain(consumer, 1.0)] == list(range(10, 32))
        consumer.commit({orders: 12})
        assert consumer.committed() == {orders: 12}, "it was polled again since"
        consumer.commit({orders: 9})
        assert consumer.committed() == {orders: 12}, "this was not"
        consumer.commit({orders: 3})
        consumer.seek(orders, 3)
        consumer.commit()
        assert consumer.committed() == {orders: 3}, "a user may go where he wants"


def test_a_reset_while_another_held_the_partition_is_not_undone_either(log):
    fill(log, partitions=1, records=20)
    orders = ("orders", 0)
    with quiet(log) as consumer:
        assert len(consumer.poll(max_records=12)) == 12
        log.group("billing").remove_members()
        log.group("billing").reset("orders", to=2, dry_run=False)
        with pytest.warns(offsetlog.OffsetLogWarning, match="joins anew"):
            assert [r.offset for r in consumer.poll(max_records=3)] == [2, 3, 4]
        consumer.commit({orders: 12})
        assert consumer.committed() == {orders: 2}
        consumer.commit()
        assert consumer.committed() == {orders: 5}


def test_consume_with_a_group_does_not_undo_a_reset(log):
    from offsetlog.cli.consume import GroupReader

    fill(log, partitions=2, records=40)
    with GroupReader(log, "billing", "orders", "earliest", [], 45_000) as reader:
        batches = reader.batches(None, None)
        printed = next(batches)
        assert len(printed) == 40
        log.group("billing").reset("orders", to=7, partitions=[1], dry_run=False)
        assert [(r.partition, r.offset) for r in next(batches)][0] == (1, 7)
    assert {tp: said.offset for tp, said in log.group("billing").committed().items()} == {
        ("orders", 0): 20, ("orders", 1): 7
    }, "the batch from 7 on was not printed to its end"  # fmt: skip


def test_all_eight_ways(log, tmp_path):
    log.create_topic("orders", 2)
    with log.producer() as producer:
        for n in range(20):
            producer.send("orders", b"x", partition=n % 2, timestamp=1_700_000_000_000 + 1000 * n)
    group = log.group("billing")
    with log.consumer("billing") as consumer:
        consumer.assign([("orders", 0), ("orders", 1)])
        consumer.commit({("orders", 0): 5, ("orders", 1): 8})

    def goes(**how):
        return [move.after for move in group.reset("orders", **how).moves]

    assert goes(to="earliest") == [0, 0]
    assert goes(to="latest") == [10, 10]
    assert goes(to="current") == [5, 8]
    assert goes(to=7) == [7, 7]
    assert goes(shift_by=-6) == [0, 2]
    assert goes(to_datetime="2023-11-14T22:13:30Z") == [5, 5]
    moment = dt.datetime(2023, 11, 14, 22, 13, 30, tzinfo=dt.UTC)
    assert goes(to=moment) == goes(to_datetime=moment) == [5, 5]
    with pytest.raises(InvalidRequestError, match="twice"):
        goes(to=moment, to_datetime=moment)
    assert goes(by_duration="P3650D") == [0, 0]
    assert goes(by_duration="PT1S") == [10, 10]
    with pytest.raises(InvalidRequestError, match="PT"):
        goes(by_duration="1 day")
    file = tmp_path / "plan.csv"
    group.reset("orders", to=3).to_csv(file)
    assert [m.after for m in group.reset(from_file=file, dry_run=False).moves] == [3, 3]
    assert group.committed()["orders", 1].offset == 3
    shown = group.reset("orders", to=99)
    assert shown.warnings[0].startswith("Offset 99 of partition 0")
    assert "dry run" in shown._repr_html_() and "Offset 99" in shown._repr_html_()
    assert not shown.executed and group.committed()["orders", 0].offset == 3


def test_a_reset_that_cannot_be_changes_nothing(log, tmp_path):
    fill(log)
    with log.consumer("billing") as consumer:
        consumer.assign([("orders", 0)])
        consumer.commit({("orders", 0): 5})
    group = log.group("billing")
    wrong = tmp_path / "wrong.csv"
    wrong.write_text("orders,0,1\norders,1\n")
    version = log.offsets_table.look().version
    for how, kind, said in [
        ({"to": "beginning"}, InvalidRequestError, "no reset to 'beginning'"),
        ({"to": "earliest", "shift_by": 1}, InvalidRequestError, "to-earliest and shift-by"),
        ({"to": 1, "to_datetime": "2026-01-01"}, InvalidRequestError, "one way"),
        ({}, InvalidRequestError, "must say where"),
        ({"to": "earliest", "partitions": [7]}, UnknownTopicError, "7"),
        ({"to_datetime": "soon"}, InvalidRequestError, "'soon' is not a date"),
        ({"shift_by": -1}, InvalidRequestError, "no position in partition 1"),
        ({"from_file": wrong}, InvalidRequestError, "Line 2 of the file is wrong"),
        ({"from_file": tmp_path / "none.csv"}, InvalidRequestError, r"none\.csv"),
    ]:
        with pytest.raises(kind, match=said):
            group.reset("orders", dry_run=False, **how)
    for ask in (
        lambda: log.group("nobody").reset(to="earliest", dry_run=False),
        lambda: log.group("nobody").reset("orders", shift_by=-1, dry_run=False),
        lambda: log.group("Billing").reset("orders", to="earliest"),
        lambda: log.group("nobody").describe(),
        lambda: log.group("nobody").delete(),
        lambda: group.reset("nothing", to="earliest", dry_run=False),
        lambda: group.reset(partitions=[0], to="earliest", dry_run=False),
        lambda: group.delete_offsets("nothing"),
        lambda: group.delete_offsets("orders", [1]),
        lambda: group.remove_members("who"),
    ):
        with pytest.raises(InvalidRequestError):
            ask()
    assert log.offsets_table.look().version == version
    assert group.committed() == {("orders", 0): (5, "")}


def test_a_reset_makes_a_group_that_is_not_there_yet(log, tmp_path):
    fill(log)
    group = log.group("new")
    plan = group.reset("orders", to=4, partitions=[0, 2])
    assert [(m.partition, m.before, m.after) for m in plan.moves] == [(0, None, 4), (2, None, 4)]
    assert list(log.groups()) == [], "a dry run makes nothing"
    assert group.reset("orders", to=4, partitions=[0, 2], dry_run=False).moves == plan.moves
    assert list(log.groups()) == ["new"] and group.state() == "Empty"
    assert group.committed() == {("orders", 0): (4, ""), ("orders", 2): (4, "")}
    with log.consumer("new", ["orders"]) as consumer:
        assert {r.partition: r.offset for r in reversed(drain(consumer))} == {0: 4, 2: 4}
        assert consumer.position(("orders", 1)) == 10, "it is no added partition: its policy counts"
    file = tmp_path / "plan.csv"
    plan.to_csv(file)
    log.group("copy").reset(from_file=file, dry_run=False)
    assert log.group("copy").committed() == {("orders", 0): (4, ""), ("orders", 2): (4, "")}
    log.group("new").delete()
    log.group("new").reset("orders", to="latest", dry_run=False)
    assert {said.offset for said in group.committed().values()} == {10}
    assert log.group("new").describe().resets == 2, "numbers never restart"


def test_deleting(log):
    fill(log)
    with quiet(log) as consumer:
        drain(consumer)
        consumer.commit()
        with pytest.raises(InvalidRequestError, match="not empty"):
            log.group("billing").delete()
        with pytest.raises(InvalidRequestError, match="members that read"):
            log.group("billing").delete_offsets("orders")
    log.group("billing").delete_offsets("orders", [0])
    assert list(log.group("billing").lag()) == [("orders", 1), ("orders", 2)]
    log.group("billing").delete()
    assert list(log.groups()) == [] and log.group("billing").state() == "Dead"


DAY_MS = 86_400_000


def with_a_clock(log, days):
    """Another program at the same log, whose clock is so many days ahead."""
    from offsetlog.client.log import Log
    from offsetlog.engine.env import REAL
    from offsetlog.storage import open_store

    env = REAL._replace(now_ms=lambda: REAL.now_ms() + days * DAY_MS)
    return Log(open_store(log.url), env)


@pytest.mark.parametrize("retention", [10_080, 2 * 10_080], ids=["a week", "two weeks"])
def test_positions_expire_by_the_storages_clock(log, retention):
    """Not by the maintainer's: README, "None of this rests on clocks that agree"."""
    fill(log)
    with with_a_clock(log, -10) as old, old.consumer("old") as consumer:
        consumer.assign([("orders", 0)])
        consumer.commit({("orders", 0): 5})
    with log.consumer("billing") as consumer:
        consumer.assign([("orders", 0)])
        consumer.commit({("orders", 0): 5})
    alive = quiet(log, "alive")
    with with_a_clock(log, 30) as wrong:
        done = wrong.maintain(offsets_retention_minutes=retention)[-1]
        kept = ["alive", "billing"] if retention == 10_080 else ["alive", "billing", "old"]
        assert list(wrong.groups()) == list(log.groups()) == kept
        assert done.expired_records == 3 - len(kept)
    assert log.group("billing").committed()["orders", 0].offset == 5
    members = [m.member for m in log.group("alive").members()]
    assert members == [alive.member], "its heartbeat is young"


def test_maintain_gives_up_groups_that_nobody_needs(log):
    fill(log)
    with log.consumer("old") as consumer:
        consumer.assign([("orders", 0)])
        consumer.commit({("orders", 0): 5})
    killed = quiet(log, "killed")
    log.heartbeats.remove(killed.member)  # As a SIGKILL leaves it: no beat, no leave.
    killed._group_member.member, killed._group_member.topics = None, ()
    assert log.maintain()[-1].expired_records == 0
    assert list(log.groups()) == ["killed", "old"]
    assert log.maintain("orders")[-1].topic == "orders"
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        done = log.maintain(offsets_retention_minutes=0)[-1]
    assert (done.topic, done.expired_records) == ("__consumer_offsets", 1)
    assert list(log.groups()) == []
    with pytest.raises(InvalidRequestError, match="minutes"):
        log.maintain(offsets_retention_minutes=-1)
    with quiet(log, "old") as consumer:
        assert len(drain(consumer)) == 30
