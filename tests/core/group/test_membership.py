"""Where a reader of a group goes on after resets that it has not followed yet."""

from __future__ import annotations

import pytest

from offsetlog.core.group.membership import follow_resets
from offsetlog.core.group.reset import OffsetSpan
from offsetlog.core.group.starting_offset import StartingOffset
from offsetlog.core.group.state import GroupState
from offsetlog.values import TopicPartition

P0, P1, P2 = (TopicPartition("orders", number) for number in range(3))
GROUP = GroupState("billing", True, resets=3, last_reset={P0: 2, P1: 3}, reset_to={P0: 20, P1: 7})


def test_only_what_was_reset_since_is_followed_and_only_where_it_is_read():
    spans = {P0: OffsetSpan(0, 100), P1: OffsetSpan(0, 100), P2: OffsetSpan(0, 100)}
    assert follow_resets(GROUP, 0, spans, "none") == {P0: StartingOffset(20), P1: StartingOffset(7)}
    assert follow_resets(GROUP, 2, spans, "none") == {P1: StartingOffset(7)}
    assert follow_resets(GROUP, 3, spans, "none") == {}
    assert follow_resets(GROUP, 0, {P0: spans[P0]}, "none") == {P0: StartingOffset(20)}


@pytest.mark.parametrize(("policy", "offset"), [("earliest", 50), ("latest", 60)])
def test_a_reset_to_what_retention_took_is_clamped_with_a_warning(policy, offset):
    start = follow_resets(GROUP, 2, {P1: OffsetSpan(50, 60)}, policy)[P1]
    assert start.offset == offset
    assert start.warning == (
        "The group 'billing' was reset to 7 of orders-1, which holds 50 to 60 now; reading goes "
        f"on from {offset}."
    )


def test_without_a_policy_it_stays_where_the_reset_put_it():
    assert follow_resets(GROUP, 2, {P1: OffsetSpan(50, 60)}, "none") == {P1: StartingOffset(7)}
