"""How far behind, where to begin, and when positions are given up."""

from __future__ import annotations

import pytest

from offsetlog.core.group.decide import Accepted, decide
from offsetlog.core.group.facts import OffsetAndMetadata
from offsetlog.core.group.lag import Backlog, Total, group_lag, reading_from, total
from offsetlog.core.group.requests import CommitRequest, ExpireRequest
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


def test_partitions_without_a_commit_are_left_out_and_a_gone_topic_is_shown():
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
