"""What a join says, in every version of the library."""

from __future__ import annotations

import json

import pytest

from offsetlog.core.group.checkpoint import from_plain, to_plain
from offsetlog.core.group.decide import decide
from offsetlog.core.group.facts import (
    StartingPoint,
    Subscription,
    decode_subscription,
    encode_subscription,
)
from offsetlog.core.group.fold import fold
from offsetlog.core.group.requests import JoinRequest
from offsetlog.core.group.state import EMPTY

STARTS = [
    None,
    StartingPoint(),
    StartingPoint("latest"),
    StartingPoint("earliest", {("orders", 0): 5, ("orders", 11): 2**62, ("p.q", 0): None}),
    StartingPoint("", {("orders", 3): None}, only=True),
]


@pytest.mark.parametrize("start", STARTS)
def test_where_a_member_begins_reads_as_it_was_written(start):
    said = Subscription(("orders",), start=start)
    assert decode_subscription(encode_subscription(said)) == said
    made = decide(EMPTY, [JoinRequest("g", "m", said)], 0, "w")
    assert from_plain(to_plain(made.table)) == made.table


def test_a_join_that_does_not_say_it_is_the_text_that_it_always_was():
    assert encode_subscription(Subscription(("orders",), host="h")) == (
        '{"alone":false,"client":"","host":"h","rules":1,"session_ms":45000,'
        '"strategy":"sticky","topics":["orders"]}'
    )


@pytest.mark.parametrize(
    "start", [5, "earliest", [], {"policy": 7}, {"offsets": {"t": {"x": 1}}}, {"offsets": {"t": 1}},
              {"offsets": {"t": {"0": -1}}}, {"only": 1}, {"offsets": {"": {"0": 1}}}],
)  # fmt: skip
def test_what_is_no_start_is_none_and_the_join_counts_all_the_same(start):
    """As for versions that pass over it: whatever is there, all must fold the same."""
    said = Subscription(("orders",))
    text = json.dumps({**json.loads(encode_subscription(said)), "start": start})
    assert decode_subscription(text) == said


def test_to_say_it_later_changes_nothing_that_the_group_goes_by():
    """Versions that know of no start must have the same generation, targets and holders."""
    said = Subscription(("orders",), alone=True)
    before = decide(EMPTY, [JoinRequest("g", "m", said)], 0, "w").table
    later = said._replace(start=StartingPoint("earliest"))
    made = decide(before, [JoinRequest("g", "m", later, generation=1)], 0, "w2")
    [fact] = made.facts
    assert fact.generation == before.group("g").generation == made.table.group("g").generation
    assert made.table.group("g").members["m"].subscription == later
    assert fold(before, [fact], made.version) == made.table
    without = fact._replace(metadata=encode_subscription(said))
    assert fold(before, [without], made.version).group("g")._replace(
        members=made.table.group("g").members
    ) == made.table.group("g")
    again = decide(made.table, [JoinRequest("g", "m", later, generation=1)], 0, "w3")
    assert not again.facts, "it is not said twice"
