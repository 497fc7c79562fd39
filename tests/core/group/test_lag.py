"""How far behind, where to begin, and when positions are given up."""

from __future__ import annotations

import pytest

from offsetlog.core.group.decide import Accepted, decide
from offsetlog.core.group.facts import OffsetAndMetadata, StartingPoint, Subscription, TopicView
from offsetlog.core.group.lag import (
    Backlog,
    Total,
    group_lag,
    positions_lag,
    reading_from,
    topics_of,
    total,
)
from offsetlog.core.group.requests import (
    CommitRequest,
    ExpireRequest,
    JoinRequest,
    TopicsRequest,
)
from offsetlog.core.group.reset import OffsetSpan
from offsetlog.core.group.retention import DEFAULT_RETENTION_MS, expired_groups, is_expired
from offsetlog.core.group.starting_offset import StartingOffset, starting_offset
from offsetlog.core.group.state import EMPTY
from offsetlog.errors import InvalidRequestError, NoOffsetForGroupError, OffsetOutOfRangeError

ORDERS = [("orders", p) for p in range(3)]


def committed(offsets, now=0, table=EMPTY, group="billing"):
    said = {p: OffsetAndMetadata(offset, "m") for p, offset in offsets.items()}
    made = decide(table, [CommitRequest(group, None, 0, 0, said)], now, "w")
    assert isinstance(made.outcomes[0], Accepted)
    return made.table


def test_the_lag_table():
    group = committed(dict(zip(ORDERS, [53, 40, 100], strict=True))).group("billing")
    spans = dict(
        zip(ORDERS, [OffsetSpan(0, 100), OffsetSpan(0, 40), OffsetSpan(90, 190)], strict=True)
    )
    assert reading_from(group, spans) == {ORDERS[0]: 53, ORDERS[2]: 100}
    lines = group_lag(
        group,
        spans,
        {ORDERS[0]: Backlog(4700, 10_000), ORDERS[2]: Backlog(900, 4_000)},
        now_ms=12_500,
    )
    assert [line.records for line in lines] == [47, 0, 90]
    assert [line.seconds for line in lines] == [2.5, 0.0, 8.5]
    assert total(lines) == Total(137, 5600, 8.5)


def test_a_thousand_messages_of_which_two_hundred_expired():
    group = committed({ORDERS[0]: 100}).group("billing")
    (line,) = group_lag(group, {ORDERS[0]: OffsetSpan(200, 1000)}, {}, 0)
    assert (line.records, line.expired, line.out_of_range) == (800, 100, True)
    assert reading_from(group, {ORDERS[0]: OffsetSpan(200, 1000)}) == {ORDERS[0]: 200}
    begin = starting_offset("billing", ORDERS[0], 100, OffsetSpan(200, 1000), "earliest")
    assert begin.offset == 200
    assert "Offset 100" in begin.warning


def test_partitions_that_nobody_reads_are_left_out_and_a_gone_topic_is_shown():
    group = committed({ORDERS[0]: 5}).group("billing")
    (line,) = group_lag(group, {}, {}, 0)
    assert (line.committed, line.end, line.records, line.seconds) == (5, None, None, None)
    assert total([line]) == Total(0, 0, 0.0)


def test_a_topic_created_again_is_out_of_range_and_has_no_negative_lag():
    group = committed({ORDERS[0]: 500}).group("billing")
    (line,) = group_lag(group, {ORDERS[0]: OffsetSpan(0, 20)}, {}, 0)
    assert (line.records, line.out_of_range, line.expired) == (0, True, 0)


def test_a_record_from_the_future_is_no_negative_age_and_unknown_stays_unknown():
    group = committed({ORDERS[0]: 1, ORDERS[1]: 1}).group("billing")
    spans = {ORDERS[0]: OffsetSpan(0, 2), ORDERS[1]: OffsetSpan(0, 2)}
    lines = group_lag(group, spans, {ORDERS[0]: Backlog(10, 9_999)}, now_ms=5_000)
    assert [line.seconds for line in lines] == [0.0, None]
    assert total(lines) == Total(2, None, None)


# --- without a commit ----------------------------------------------------------------------


def joined(*starts, alone=False, topics=("orders",), partitions=3, table=EMPTY):
    """A group whose members say where they begin."""
    views = {topic: TopicView(partitions, 1) for topic in topics}
    said = [
        JoinRequest("billing", f"m{n}", Subscription(topics, alone=alone, start=start))
        for n, start in enumerate(starts)
    ]
    made = decide(table, [TopicsRequest("billing", views), *said], 0, "w")
    assert all(isinstance(outcome, Accepted) for outcome in made.outcomes)
    return made.table


def lags(group, spans):
    return {(one.topic, one.partition): one.records for one in group_lag(group, spans, {}, 0)}


SPANS = dict(zip(ORDERS, [OffsetSpan(10, 100), OffsetSpan(0, 0), OffsetSpan(0, 7)], strict=True))


@pytest.mark.parametrize(
    ("start", "expected"),
    [
        (StartingPoint("earliest"), [90, 0, 7]),
        (StartingPoint("latest"), [None, None, None]),
        (StartingPoint("none"), [None, None, None]),
        (StartingPoint(), [None, None, None]),
        (None, [None, None, None]),
        (StartingPoint("earliest", {ORDERS[0]: 95}), [5, 0, 7]),
        (StartingPoint("earliest", {ORDERS[0]: 3}), [90, 0, 7]),
        (StartingPoint("latest", {ORDERS[0]: 95, ORDERS[2]: None}), [5, None, None]),
    ],
)
@pytest.mark.parametrize("alone", [False, True])
def test_who_has_committed_nothing_is_behind_by_all_from_where_it_begins(start, expected, alone):
    group = joined(start, alone=alone).group("billing")
    lines = group_lag(group, SPANS, {ORDERS[0]: Backlog(400, 5)}, now_ms=1005)
    assert [line.records for line in lines] == expected
    assert {(line.committed, line.member, line.out_of_range) for line in lines} == {
        (None, "m0", False)
    }
    assert [line.end for line in lines] == [100, 0, 7]
    known = None not in expected
    assert total(lines).records == (sum(expected) if known else None)
    assert lines[0].seconds == (None if expected[0] is None else 1.0)


def test_its_bytes_are_asked_for_from_where_it_begins():
    group = joined(StartingPoint("earliest", {ORDERS[2]: 4}), alone=True).group("billing")
    assert reading_from(group, SPANS) == {ORDERS[0]: 10, ORDERS[2]: 4}
    assert topics_of(group) == {"orders"}


def test_a_query_may_read_some_partitions_alone():
    some = StartingPoint("", {ORDERS[0]: 95, ORDERS[1]: None}, only=True)
    group = joined(some, alone=True).group("billing")
    assert lags(group, SPANS) == {ORDERS[0]: 5, ORDERS[1]: None}


def test_each_partition_begins_where_its_own_member_says():
    group = joined(StartingPoint("earliest"), StartingPoint("latest")).group("billing")
    by_member = {"m0": 90, "m1": None}
    for line in group_lag(group, {p: OffsetSpan(10, 100) for p in ORDERS}, {}, 0):
        assert line.records == by_member[group.targets[line.topic, line.partition]]


def test_members_that_agree_need_not_hold_it_and_others_leave_it_open():
    """Partitions that the group has not heard of yet."""
    more = {("orders", n): OffsetSpan(0, 5) for n in range(5)}
    agreed = joined(StartingPoint("earliest"), StartingPoint("earliest")).group("billing")
    assert lags(agreed, more) == dict.fromkeys(more, 5)
    not_agreed = joined(StartingPoint("earliest"), None).group("billing")
    assert lags(not_agreed, more)["orders", 4] is None


def test_a_partition_that_was_added_is_read_from_its_start_by_everybody():
    table = joined(StartingPoint("latest"))
    made = decide(table, [TopicsRequest("billing", {"orders": TopicView(4, 2)})], 0, "w2")
    group = made.table.group("billing")
    assert lags(group, {**SPANS, ("orders", 3): OffsetSpan(0, 8)})["orders", 3] == 8


def test_a_commit_is_in_place_of_what_was_said():
    table = joined(StartingPoint("earliest"))
    offsets = {ORDERS[0]: OffsetAndMetadata(40)}
    made = decide(table, [CommitRequest("billing", "m0", 1, 0, offsets)], 0, "w2")
    lines = group_lag(made.table.group("billing"), SPANS, {}, 0)
    assert [(line.committed, line.records) for line in lines] == [(40, 60), (None, 0), (None, 7)]


def test_a_topic_that_a_member_names_and_is_gone_has_no_line():
    group = joined(StartingPoint("earliest")).group("billing")
    assert group_lag(group, {}, {}, 0) == ()
    assert positions_lag({ORDERS[0]: 1}, {}, {}, 0)[0].end is None


# --- where to begin ------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("offset", "policy", "begin"),
    [
        (10, "none", 10),
        (100, "none", 100),
        (55, "earliest", 55),
        (None, "earliest", 10),
        (None, "latest", 100),
    ],
)
def test_reading_begins_at_the_position_or_by_the_policy(offset, policy, begin):
    assert starting_offset("g", ORDERS[0], offset, OffsetSpan(10, 100), policy) == StartingOffset(
        begin
    )


@pytest.mark.parametrize(
    ("offset", "policy", "begin"), [(9, "earliest", 10), (9, "latest", 100), (101, "earliest", 10)]
)
def test_a_position_out_of_range_follows_the_policy_with_a_warning(offset, policy, begin):
    start = starting_offset("g", ORDERS[0], offset, OffsetSpan(10, 100), policy)
    assert start.offset == begin
    assert str(offset) in start.warning


def test_policy_none_is_an_error_and_so_is_an_unknown_one():
    with pytest.raises(NoOffsetForGroupError, match="partition 0 of topic 'orders'"):
        starting_offset("g", ORDERS[0], None, OffsetSpan(0, 1), "none")
    with pytest.raises(OffsetOutOfRangeError, match="Offset 7"):
        starting_offset("g", ORDERS[0], 7, OffsetSpan(0, 1), "none")
    with pytest.raises(InvalidRequestError, match="'smallest'"):
        starting_offset("g", ORDERS[0], 0, OffsetSpan(0, 1), "smallest")


# --- retention of offsets ------------------------------------------------------------------


def test_a_week_of_silence_ends_a_group_without_members():
    table = committed({ORDERS[0]: 5}, now=1000)
    group = table.group("billing")
    assert not is_expired(group, 999 + DEFAULT_RETENTION_MS)
    assert is_expired(group, 1000 + DEFAULT_RETENTION_MS)
    assert expired_groups(table, 1000 + DEFAULT_RETENTION_MS, DEFAULT_RETENTION_MS) == ("billing",)
    made = decide(table, [ExpireRequest("billing", DEFAULT_RETENTION_MS)], 10**12, "w2")
    assert [fact.kind for fact in made.facts] == ["delete"]
    assert not made.table.group("billing").alive


def test_a_commit_in_between_keeps_the_group():
    table = committed({ORDERS[0]: 5}, now=1000)
    late = 1000 + DEFAULT_RETENTION_MS
    table = committed({ORDERS[0]: 6}, now=late, table=table)
    made = decide(table, [ExpireRequest("billing", DEFAULT_RETENTION_MS)], late, "w3")
    assert made.facts == ()
    assert made.outcomes == (Accepted(),)
    assert made.table is table
