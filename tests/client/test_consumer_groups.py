"""Consumers with a group, one process: commits, policies, workers, resets, bad input."""

from __future__ import annotations

import contextlib
import time
import warnings

import pytest

import offsetlog
from offsetlog import (
    FencedError,
    InvalidRequestError,
    NoOffsetForGroupError,
    OffsetOutOfRangeError,
    TopicExistsError,
    UnknownTopicError,
)


@pytest.fixture(params=["local", "memory"])
def log(request, tmp_path):
    url = str(tmp_path / "log") if request.param == "local" else f"memory://{tmp_path.name}"
    with offsetlog.open(url) as log:
        yield log


def fill(log, topic="orders", partitions=3, records=30):
    """``records`` records, dealt out to the partitions in turn."""
    with contextlib.suppress(TopicExistsError):
        log.create_topic(topic, partitions)
    with log.producer() as producer:
        for n in range(records):
            producer.send(topic, b"%d" % n, partition=n % partitions)


def drain(consumer, seconds=0.0):
    """All that is there now; with ``seconds`` it waits that long for the first."""
    out = []
    while batch := consumer.poll(seconds):
        out += batch
        seconds = 0.0
    return out


def settle(*workers, until, seconds=10.0):
    deadline = time.monotonic() + seconds
    out = {worker: [] for worker in workers}
    while not until():
        assert time.monotonic() < deadline, "the group did not settle"
        for worker in workers:
            out[worker] += worker.poll(0.005)
    return out


def places(consumer):
    return sorted(consumer.assignment())


def quiet(log, group="billing", **settings):
    return log.consumer(
        group, ["orders"], auto_offset_reset="earliest", enable_auto_commit=False, **settings
    )


# --- the seeds' stories ------------------------------------------------------------------------


def test_two_groups_read_at_their_own_speed(log):
    fill(log)
    with quiet(log, "billing") as fast, quiet(log, "audit") as slow:
        assert len(drain(fast)) == 30
        fast.commit()
        assert len(slow.poll(max_records=10)) == 10
        slow.commit()
    assert sum(log.group("billing").lag().values()) == 0
    assert log.group("audit").describe().total.records == 20
    assert list(log.groups()) == ["audit", "billing"]


def test_two_workers_share_and_the_one_that_stays_gets_all(log):
    fill(log, partitions=4, records=0)
    one = quiet(log, client_id="worker-1")
    assert len(places(one)) == 4
    two = quiet(log, client_id="worker-2")
    settle(one, two, until=lambda: len(places(one)) == len(places(two)) == 2)
    assert not set(places(one)) & set(places(two))
    fill(log, partitions=4, records=40)
    got = [(r.partition, r.offset) for worker in (one, two) for r in drain(worker, 1.0)]
    assert sorted(got) == [(p, o) for p in range(4) for o in range(10)]
    shown = log.group("billing").describe()
    assert [m.client for m in shown.members] == ["worker-1", "worker-2"]
    assert shown.state == "Stable"
    one.commit()
    two.commit()
    two.close()
    settle(one, until=lambda: len(places(one)) == 4)
    assert drain(one) == [], "what the other committed is not read again"
    one.close()
    assert log.group("billing").state() == "Empty"


def test_a_crash_between_reading_and_committing_reads_again(log):
    fill(log, partitions=1, records=10)
    with pytest.raises(RuntimeError), quiet(log) as consumer:
        assert [r.offset for r in consumer.poll(max_records=4)] == [0, 1, 2, 3]
        consumer.commit()
        assert [r.offset for r in consumer.poll(max_records=3)] == [4, 5, 6]
        raise RuntimeError("a crash")
    assert log.group("billing").state() == "Empty", "the block left the group all the same"
    with quiet(log) as consumer:
        assert [r.offset for r in drain(consumer)] == [4, 5, 6, 7, 8, 9]


def test_the_auto_commit_timeline(tmp_path):
    """At 5 s what was read before the poll is committed; a crash at 7 s reads from there."""
    from offsetlog.client.env import REAL
    from offsetlog.client.log import Log
    from offsetlog.storage import open_store

    clock = [100.0]
    env = REAL._replace(monotonic=lambda: clock[0], sleep=lambda s: None)
    log = Log(open_store(f"memory://{tmp_path.name}"), env)
    fill(log, partitions=1, records=10)
    consumer = log.consumer("billing", ["orders"], auto_offset_reset="earliest")
    assert len(consumer.poll(max_records=3)) == 3
    clock[0] += 4.9
    assert len(consumer.poll(max_records=2)) == 2
    assert consumer.committed() == {}
    clock[0] += 0.2
    assert len(consumer.poll(max_records=1)) == 1
    assert consumer.committed() == {("orders", 0): 5}, "what this poll gave is not processed yet"
    clock[0] += 1.9
    consumer.close(commit=False)
    with log.consumer("billing", ["orders"]) as again:
        assert [r.offset for r in drain(again)] == [5, 6, 7, 8, 9]
    with log.consumer("billing", ["orders"]) as again:
        assert drain(again) == [], "close committed"


def test_of_1000_messages_200_expired(log):
    fill(log, partitions=1, records=1000)
    with quiet(log) as consumer:
        assert len(consumer.poll(max_records=100)) == 100
        consumer.commit()
    log.topic("orders").delete_records({0: 200})
    [line] = log.group("billing").describe().partitions
    assert (line.committed, line.expired, line.records, line.out_of_range) == (100, 100, 800, True)
    with quiet(log) as consumer, pytest.warns(UserWarning, match="100.*range 200 to 1000"):
        assert drain(consumer)[0].offset == 200
    with (
        log.consumer("billing", ["orders"], auto_offset_reset="none") as strict,
        pytest.raises(OffsetOutOfRangeError, match="100"),
    ):
        strict.poll()


def test_the_lag_table(log):
    fill(log)
    with log.consumer("billing") as consumer:
        consumer.assign([("orders", p) for p in range(3)])
        consumer.commit({("orders", 0): 10, ("orders", 1): 4, ("orders", 2): 0})
    lag = log.group("billing").lag()
    assert lag == {("orders", 0): 0, ("orders", 1): 6, ("orders", 2): 10}
    told = log.group("billing").describe()
    assert told.total.records == 16
    assert [line.seconds == 0 for line in told.partitions] == [True, False, False]
    assert [bool(line.bytes) for line in told.partitions] == [False, True, True]
    assert 0 <= told.total.seconds < 60
    for shown in (lag, told, log.group("billing"), log.groups()):
        assert "<table>" in shown._repr_html_() and "billing" in told._repr_html_()


# --- commits -----------------------------------------------------------------------------------


def test_committed_is_the_next_offset_to_read_and_has_its_text(log):
    fill(log)
    with quiet(log) as consumer:
        consumer.commit({("orders", 0): (4, "checked"), ("orders", 1): 2})
        assert consumer.committed() == {("orders", 0): 4, ("orders", 1): 2}
        said = consumer.committed(("orders", 0), metadata=True)
        assert said == {("orders", 0): (4, "checked")}
        assert consumer.committed(("orders", 2)) == {}
    assert log.group("billing").committed()["orders", 0].metadata == "checked"


def test_commits_that_are_not_waited_for_keep_their_order(log):
    fill(log, partitions=1, records=50)
    told = []
    with quiet(log) as consumer:
        for n in range(1, 21):
            consumer.commit_async({("orders", 0): n}, lambda o, e: told.append((o, e)))
        consumer.commit({("orders", 0): 33})
        assert consumer.committed() == {("orders", 0): 33}
        assert [next(iter(offsets.values())).offset for offsets, _ in told] == list(range(1, 21))
        assert {error for _, error in told} == {None}
        log.group("billing").remove_members()
        future = consumer.commit_async({("orders", 0): 40}, lambda o, e: told.append((o, e)))
        with pytest.raises(FencedError):
            future.result(timeout=10)
        with pytest.warns(UserWarning, match="joins anew"):
            consumer.poll()
        assert isinstance(told[-1][1], FencedError)


BAD = [
    ({("orders", 0): 11}, OffsetOutOfRangeError, "11.*never there"),
    ({("orders", 0): -1}, InvalidRequestError, "-1"),
    ({("orders", 0): True}, InvalidRequestError, "True"),
    ({("orders", 0): "3"}, InvalidRequestError, "'3'"),
    ({("orders", 0): 2**63}, InvalidRequestError, "9223372036854775808"),
    ({("orders", 9): 1}, UnknownTopicError, "9"),
    ({("nothing", 0): 1}, UnknownTopicError, "nothing"),
    ({("orders", 0): (3, "x" * 5000)}, InvalidRequestError, "4096 bytes"),
    ({("orders", 0): (3, 4)}, InvalidRequestError, "metadata"),
    ({"orders": 3}, InvalidRequestError, "not a partition"),
    ([("orders", 0)], InvalidRequestError, "not what a commit takes"),
    ({("orders", 1): 3, ("orders", 0): 11}, OffsetOutOfRangeError, "11"),
]


def test_a_bad_commit_is_an_error_and_moves_nothing(log):
    fill(log)
    with quiet(log) as consumer:
        consumer.commit({("orders", 0): 2})
        for given, kind, said in BAD:
            with pytest.raises(kind, match=said):
                consumer.commit(given)
        assert consumer.committed() == {("orders", 0): 2}
    with pytest.raises(InvalidRequestError, match="needs a group"):
        log.consumer(topics=["orders"]).commit()


def test_policies(log):
    fill(log)
    with log.consumer("new", ["orders"]) as latest:
        assert latest.poll() == []
        fill(log, records=3)
        assert [r.offset for r in drain(latest, 1.0)] == [10, 10, 10]
    with (
        log.consumer("strict", ["orders"], auto_offset_reset="none") as strict,
        pytest.raises(NoOffsetForGroupError, match="strict"),
    ):
        strict.poll()


def test_settings_that_cannot_be(log):
    fill(log, records=0)
    for settings, said in [
        ({"session_timeout_ms": 10}, "at least 300"),
        ({"session_timeout_ms": 3000, "heartbeat_interval_ms": 2000}, "a third"),
        ({"auto_commit_interval_ms": -1}, "auto_commit_interval_ms"),
        ({"enable_auto_commit": "yes"}, "enable_auto_commit"),
        ({"partition_assignment_strategy": "best"}, "roundrobin"),
        ({"client_id": "a b"}, "client_id"),
        ({"auto_offset_reset": "first"}, "earliest"),
        ({"max_poll_interval_ms": 0}, "max_poll_interval_ms"),
    ]:
        with pytest.raises(InvalidRequestError, match=said):
            log.consumer("billing", ["orders"], **settings)
    with pytest.raises(InvalidRequestError, match="group name"):
        log.consumer("../evil", ["orders"])
    with pytest.raises(UnknownTopicError, match="nothing"):
        log.consumer("billing", ["nothing"])
    assert list(log.groups()) == []


# --- workers -----------------------------------------------------------------------------------


def test_who_was_put_out_is_fenced_loses_nothing_of_others_and_rejoins(log):
    fill(log, partitions=2, records=20)
    lost = []
    old = quiet(log, on_lost=lambda c, p: lost.extend(p))
    assert len(drain(old)) == 20
    first = old.member
    log.group("billing").remove_members(first)
    with quiet(log) as new:
        settle(new, until=lambda: len(places(new)) == 2)
        new.commit({("orders", 0): 1, ("orders", 1): 1})
        with pytest.raises(FencedError, match="no longer a member.*administrator"):
            old.commit()
        assert new.committed() == {("orders", 0): 1, ("orders", 1): 1}
        with pytest.warns(UserWarning, match="joins anew"):
            old.poll()
        assert lost == [("orders", 0), ("orders", 1)]
        assert old.member not in (None, first)
        settle(old, new, until=lambda: len(places(old)) == len(places(new)) == 1)
    settle(old, until=lambda: len(places(old)) == 2)
    old.close()


def test_callbacks_tell_of_every_change_in_order(log):
    fill(log, partitions=2, records=20)
    told = []
    one = quiet(
        log,
        on_assign=lambda c, p: told.append(("one has", len(p))),
        on_revoke=lambda c, p: (c.commit(), told.append(("one gives", len(p)))),
    )
    assert len(drain(one)) == 20
    two = quiet(log, on_assign=lambda c, p: told.append(("two has", len(p))))
    got = settle(one, two, until=lambda: len(places(two)) == 1)
    assert told == [("one has", 2), ("one gives", 1), ("two has", 1)]
    assert got[two] == [] and drain(two) == [], "it was committed as it was given up"
    two.close()
    one.close()
    assert told[-1] == ("one gives", 1), "it did not poll after the other had left"


def test_auto_commit_commits_what_is_taken_away(log):
    fill(log, partitions=2, records=20)
    one = log.consumer("billing", ["orders"], auto_offset_reset="earliest")
    assert len(drain(one)) == 20
    two = log.consumer("billing", ["orders"], auto_offset_reset="earliest")
    got = settle(one, two, until=lambda: len(places(two)) == 1)
    assert got[two] == [] and drain(two) == []
    for worker in (one, two):
        worker.close()
    assert sum(log.group("billing").lag().values()) == 0


def test_close_commits_and_leaves_in_one_append(log):
    fill(log)
    consumer = log.consumer("billing", ["orders"], auto_offset_reset="earliest")
    drain(consumer)
    before = log.offsets_table.look().version
    consumer.close()
    consumer.close()
    assert log.offsets_table.look().version == before + 1
    assert log.group("billing").state() == "Empty"
    assert set(log.group("billing").lag().values()) == {0}


def test_a_group_of_many_topics_and_more_of_them_later(log):
    fill(log, "orders", 2, 4)
    fill(log, "clicks", 2, 4)
    with quiet(log) as consumer:
        assert {r.topic for r in drain(consumer)} == {"orders"}
        consumer.subscribe(["orders", "clicks"])
        assert [r.topic for r in drain(consumer)] == ["clicks"] * 4
        consumer.unsubscribe()
        assert log.group("billing").state() == "Empty"
        consumer.subscribe("clicks")
        assert {tp.topic for tp in consumer.assignment()} == {"clicks"}


def test_partitions_that_are_added_are_read_from_their_start(log):
    fill(log, partitions=1, records=3)
    with log.consumer("billing", ["orders"], auto_offset_reset="latest") as consumer:
        assert consumer.poll() == []
        log.topic("orders").alter(partitions=3)
        fill(log, partitions=3, records=3)
        got = settle(consumer, until=lambda: len(places(consumer)) == 3)[consumer]
        got += drain(consumer, 1.0)
        assert sorted((r.partition, r.offset) for r in got) == [(0, 3), (1, 0), (2, 0)]


def test_a_topic_deleted_and_made_again_goes_on_with_its_offsets(log):
    fill(log, partitions=1, records=10)
    with quiet(log) as consumer:
        drain(consumer)
        consumer.commit({("orders", 0): 4})
        log.delete_topic("orders")
        settle(consumer, until=lambda: not places(consumer))
    fill(log, partitions=1, records=5)
    with quiet(log) as consumer, pytest.warns(UserWarning, match="Offset 4.*range 10 to 15"):
        assert [r.offset for r in drain(consumer)] == [10, 11, 12, 13, 14]


def test_by_hand_with_a_group(log):
    fill(log)
    with log.consumer("batch", auto_offset_reset="earliest") as consumer:
        consumer.assign([("orders", 1)])
        assert len(drain(consumer)) == 10
    assert log.group("batch").committed() == {("orders", 1): (10, "")}
    with quiet(log, "batch") as worker, log.consumer("batch") as other:
        settle(worker, until=lambda: places(worker))
        other.assign([("orders", 0)])
        with pytest.raises(FencedError, match="has members"):
            other.commit({("orders", 0): 3})


def test_seek_by_offset_and_by_time(log):
    log.create_topic("orders")
    with log.producer() as producer:
        for n in range(10):
            producer.send("orders", b"x", timestamp=1_700_000_000_000 + 1000 * n)
    with quiet(log) as consumer:
        consumer.seek(("orders", 0), 7)
        assert [r.offset for r in drain(consumer)] == [7, 8, 9]
        consumer.seek_to_time(1_700_000_004_500)
        assert drain(consumer)[0].offset == 5
        consumer.seek_to_beginning()
        consumer.commit()
        assert consumer.committed() == {("orders", 0): 0}, "a user may commit backwards"
        with pytest.raises(OffsetOutOfRangeError):
            consumer.seek(("orders", 0), 11)


# --- resets ------------------------------------------------------------------------------------


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
        lambda: log.group("nobody").reset("orders", to="earliest", dry_run=False),
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


# --- looking after the table -------------------------------------------------------------------


def test_maintain_gives_up_groups_that_nobody_needs(log):
    fill(log)
    with log.consumer("old") as consumer:
        consumer.assign([("orders", 0)])
        consumer.commit({("orders", 0): 5})
    killed = quiet(log, "killed")
    log.pulses.remove(killed.member)  # As a SIGKILL leaves it: no beat, no leave.
    killed._worker.member, killed._worker.topics = None, ()
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
