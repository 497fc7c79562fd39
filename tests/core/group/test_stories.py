"""The stories that the documentation tells, as facts and positions."""

from __future__ import annotations

from offsetlog.core.group.decide import Accepted, decide
from offsetlog.core.group.facts import OffsetAndMetadata, Subscription, TopicView
from offsetlog.core.group.lag import group_lag, total
from offsetlog.core.group.membership import resets_since, standing
from offsetlog.core.group.requests import (
    CommitRequest,
    ExpelRequest,
    JoinRequest,
    ReleaseRequest,
    ResetRequest,
    TopicsRequest,
)
from offsetlog.core.group.reset import OffsetSpan, ToEarliest
from offsetlog.core.group.starting_offset import starting_offset
from offsetlog.core.group.state import EMPTY

P0, P1 = ("orders", 0), ("orders", 1)


def does(table, *requests, now=0):
    made = decide(table, requests, now, f"w{table.version}")
    assert all(isinstance(outcome, Accepted) for outcome in made.outcomes), made.outcomes
    return made.table


def commit(group, offset, partition=P0, member=None, generation=0, reset=0):
    said = {partition: OffsetAndMetadata(offset)}
    return CommitRequest(group, member, generation, reset, said)


def test_two_groups_at_different_speeds():
    table = does(EMPTY, commit("billing", 80), commit("audit", 5))
    table = does(table, commit("billing", 100))
    spans = {P0: OffsetSpan(0, 100)}
    lags = {
        name: total(group_lag(table.group(name), spans, {}, 0)).records for name in table.groups
    }
    assert lags == {"billing": 0, "audit": 95}


def test_worker_1_and_worker_2():
    """worker-1 has both partitions; worker-2 comes, gets one when it is released, and has
    the other too once worker-1 was put out, each from the last position."""
    said = Subscription(("orders",))
    table = does(
        EMPTY,
        TopicsRequest("billing", {"orders": TopicView(2, 1)}),
        JoinRequest("billing", "worker-1", said),
    )
    table = does(table, JoinRequest("billing", "worker-2", said))
    group = table.group("billing")
    assert standing(group, "worker-1", 1).release == (P1,)
    assert standing(group, "worker-2", 2).waits == (P1,)
    last = {P1: OffsetAndMetadata(40)}
    table = does(table, ReleaseRequest("billing", "worker-1", 2, 0, last))
    table = does(table, commit("billing", 17, member="worker-1", generation=2))
    table = does(table, ExpelRequest("billing", "worker-1", 1, "worker-2", "no heartbeat for 10 s"))
    group = table.group("billing")
    assert standing(group, "worker-2", 2).holds == {P0, P1}
    assert {p: at.offset for p, at in group.positions.items()} == {P0: 17, P1: 40}


def test_a_crash_between_the_commit_and_the_next_read():
    """Committed means next to read: after 0 to 52 it is 53, and 53 is read next."""
    table = does(EMPTY, commit("billing", 53))
    position = table.group("billing").positions[P0].offset
    assert starting_offset("billing", P0, position, OffsetSpan(0, 100), "latest").offset == 53


def test_the_auto_commit_timeline():
    """Commits at 5 s and 10 s, a crash at 12 s: what was read since 10 s is read again."""
    table, read = EMPTY, 0
    for second in range(1, 13):
        read += 10
        if second % 5 == 0:
            table = does(table, commit("billing", read), now=second * 1000)
    position = table.group("billing").positions[P0]
    assert (read, position.offset, position.committed_at) == (120, 100, 10_000)


def test_a_replay_rewinds_what_was_reset_and_only_that():
    """A running reader asks at its next look what was reset since the number it follows."""
    table = does(EMPTY, commit("billing", 142), commit("billing", 89, P1))
    again = ResetRequest("billing", ToEarliest(), (P0,), {P0: OffsetSpan(20, 200)}, {})
    table = does(table, again)
    group = table.group("billing")
    assert (group.resets, resets_since(group, 0)) == (1, {P0: 20})
    assert resets_since(group, group.resets) == {}
    table = does(table, commit("billing", 150, reset=0), commit("billing", 90, P1, reset=0))
    offsets = {p: at.offset for p, at in table.group("billing").positions.items()}
    assert offsets == {P0: 20, P1: 90}
