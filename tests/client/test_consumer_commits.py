"""What a consumer of a group commits and seeks, where it starts, and settings that cannot be."""

from __future__ import annotations

import sys

import pytest

import offsetlog
from offsetlog import (
    FencedError,
    InvalidRequestError,
    NoOffsetForGroupError,
    OffsetOutOfRangeError,
    UnknownTopicError,
)
from offsetlog.client import consumer, to_records
from offsetlog.client.log import Log
from offsetlog.engine.env import REAL
from offsetlog.engine.group import group_member, polled
from offsetlog.engine.topic import cursor, reader
from offsetlog.storage import open_store
from tests.client.consumers import drain, fill, places, quiet, settle

pytestmark = pytest.mark.root_in("local", "memory")


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
        with pytest.warns(offsetlog.OffsetLogWarning, match="joins anew"):
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
    ({("orders", 0): (3, 4)}, InvalidRequestError, "an offset, or"),
    ({"orders": 3}, InvalidRequestError, "not a partition"),
    ([("orders", 0)], InvalidRequestError, "a mapping from"),
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
        ({"session_timeout_ms": 10}, "from 300"),
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


def facts_of(log, since):
    news = log.offsets_table.port.read(since)
    return [(f.partition, f.offset, f.metadata) for f in news.facts if f.kind == "commit"]


@pytest.mark.parametrize("member", [False, True], ids=["by hand", "member"])
def test_a_commit_of_all_positions_writes_those_that_are_not_committed(log, member):
    fill(log, partitions=20, records=100)
    consumer = log.consumer("billing", auto_offset_reset="earliest", enable_auto_commit=False)
    with consumer:
        if member:
            consumer.subscribe(["orders"])
        else:
            consumer.assign([("orders", p) for p in range(20)])
        assert len(drain(consumer)) == 100
        consumer.commit()
        before = log.offsets_table.look().version
        consumer.commit()
        assert facts_of(log, before) == [] and log.offsets_table.look().version == before
        fill(log, partitions=2, records=2)
        assert len(drain(consumer, 1.0)) == 2
        consumer.commit_async().result(timeout=10)
        assert facts_of(log, before) == [(0, 6, ""), (1, 6, "")]
        before = log.offsets_table.look().version
        consumer.commit({("orders", 0): 6, ("orders", 1): (6, "text")})
        assert facts_of(log, before) == [(0, 6, ""), (1, 6, "text")], "what is named is written"
        before = log.offsets_table.look().version
        consumer.commit()
        assert facts_of(log, before) == [(1, 6, "")], "another text is another commit"


def test_what_somebody_else_moved_is_committed_again(log):
    fill(log, partitions=1, records=10)
    orders = ("orders", 0)
    with log.consumer("billing", auto_offset_reset="earliest") as consumer:
        consumer.assign([orders])
        assert len(drain(consumer)) == 10
        consumer.commit()
        with offsetlog.open(log.url) as elsewhere, elsewhere.consumer("billing") as other:
            other.assign([orders])
            other.commit({orders: 3})
        consumer.commit()
        assert consumer.committed() == {orders: 10}
        with offsetlog.open(log.url) as elsewhere:
            elsewhere.group("billing").delete()
        consumer.commit()
        assert consumer.committed() == {orders: 10}


def test_who_was_put_out_is_told_so_when_all_is_committed_too(log):
    fill(log)
    with quiet(log) as consumer:
        assert len(drain(consumer)) == 30
        consumer.commit()
        with offsetlog.open(log.url) as elsewhere:
            elsewhere.group("billing").remove_members()
        with pytest.raises(FencedError, match="administrator"):
            consumer.commit()


def test_a_group_that_commits_again_and_again_where_it_is_does_not_expire(log):
    """It has no members, so what keeps it is what is written."""
    fill(log, partitions=3)
    hour = [0]
    env = REAL._replace(now_ms=lambda: REAL.now_ms() + 3_600_000 * hour[0])
    with Log(open_store(log.url), env) as later:
        consumer = later.consumer("billing", auto_offset_reset="earliest")
        consumer.assign([("orders", p) for p in range(3)])
        assert len(drain(consumer)) == 30
        consumer.commit()
        written = later.group("billing").committed()
        before = later.offsets_table.look().version
        hour[0] = 1
        for _ in range(3):
            consumer.commit()
        assert len(facts_of(later, before)) == 1, "one fact keeps the whole group"
        group = later.offsets_table.look().group("billing")
        assert abs(group.active_at - env.now_ms()) < 60_000
        assert later.group("billing").committed() == written


CONSUMER = {
    module.__name__ for module in (consumer, cursor, group_member, polled, to_records, reader)
}


GIVES_BACK = consumer.Consumer._poll.__code__
"""What goes around each method of a consumer."""


def interrupted_at(line, work):
    """What ``work`` gives if Ctrl-C comes at so many lines into it, or None: then it was
    interrupted. Only lines of the consumer itself count: a trace, unlike a signal, would also
    raise between the end of a ``with`` block and the release of its lock, and in the lines without
    a call by which the thread gives the consumer back."""
    met = 0

    def step(frame, event, arg):
        nonlocal met
        ours = frame.f_globals["__name__"] in CONSUMER and frame.f_code != GIVES_BACK
        if event == "line" and ours:
            met += 1
            if met == line:
                raise KeyboardInterrupt
        return step

    sys.settrace(step)
    try:
        return work()
    except KeyboardInterrupt:
        return None
    finally:
        sys.settrace(None)


def rows_of(given):
    if isinstance(given, dict):
        return {tuple(tp): table.column("offset").to_pylist() for tp, table in given.items()}
    rows = {}
    for record in given:
        rows.setdefault((record.topic, record.partition), []).append(record.offset)
    return rows


@pytest.mark.parametrize("arrow", [False, True], ids=["poll", "poll_arrow"])
@pytest.mark.parametrize("member", [False, True], ids=["by hand", "member"])
def test_ctrl_c_anywhere_inside_a_poll_commits_nothing_that_was_not_given(log, arrow, member):
    """And what was read for the poll that was interrupted is given by the next one."""
    fill(log, partitions=2, records=40)
    read = (lambda c, n: c.poll_arrow(0.0, n)) if arrow else (lambda c, n: c.poll(0.0, n))
    places_ = [("orders", 0), ("orders", 1)]
    local = log.store.is_local  # There a look takes longer, and the code is the same.
    line, uninterrupted, stride = 1, False, 5 if local else 1
    while not uninterrupted:
        for goes_on in (False, True):
            consumer = log.consumer(f"g{line}{goes_on}", auto_offset_reset="earliest")
            if member:
                consumer.subscribe(["orders"])
            else:
                consumer.assign(places_)
            first = rows_of(read(consumer, 5))
            given = interrupted_at(line, lambda c=consumer: read(c, 13))
            uninterrupted = given is not None
            seen = {tp: first.get(tp, []) + rows_of(given or {}).get(tp, []) for tp in places_}
            while goes_on and (more := rows_of(read(consumer, 4))):
                for tp, rows in more.items():
                    seen[tp] += rows
            consumer.close()
            for tp, rows in seen.items():
                assert rows == list(range(20 if goes_on else len(rows))), f"line {line}"
            got = log.group(f"g{line}{goes_on}").committed()
            assert {tp: said.offset for tp, said in got.items()} == {
                tp: len(rows) for tp, rows in seen.items()
            }, f"Ctrl-C at line {line}"
        line += stride
    assert line > 40
