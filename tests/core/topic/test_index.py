"""The stored index against a plain list of extents, whoever published it and from which base."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from offsetlog.core.topic import plan as fetch
from offsetlog.core.topic import publish as publishing
from offsetlog.core.topic.entry import Create, Entry, Part
from offsetlog.core.topic.extents import Extent
from offsetlog.core.topic.fold import fold, step
from offsetlog.core.topic.index import Leaf, inline_of, segments_of
from offsetlog.core.topic.publish import leaves_to_merge, leaves_to_sort, publish
from offsetlog.core.topic.state import EMPTY_STATE, TopicState, rebase
from offsetlog.errors import CorruptLogError, OffsetOutOfRangeError, UnknownTopicError
from tests.core.topic.strategies import chains
from tests.core.topic.test_fold import Story, append

TINY = publishing.IndexLimits(leaf_extents=6, full_leaf=4, sorted_at_once=2, few_partitions=1)


class Publisher:
    """Somebody who folds, and stores the state at times."""

    def __init__(self, prefix: int, limits: publishing.IndexLimits = TINY) -> None:
        self.limits = limits
        self.state = EMPTY_STATE
        self.leaves: dict[str, Leaf] = {}
        self._uids = (f"{prefix:08x}{n:024x}" for n in itertools.count())

    def publish(self, sorting: bool = False) -> TopicState:
        state = self.state
        wanted = leaves_to_merge(state.index, state.tail_extents, self.limits)
        wanted = sorting and leaves_to_sort(state.index, self.limits) or wanted
        merged = {i: self.leaves[state.index.leaves[i].uid] for i in wanted}
        tails = [(part.start, part.tail) for part in state.parts]
        made = publish(state.index, state.tip, tails, merged, self._uids, self.limits)
        self.leaves.update(made.leaves)
        for ref in made.index.leaves:
            assert len(self.leaves[ref.uid].partition) == ref.extents <= self.limits.leaf_extents
        self.state = rebase(state._replace(), made.index)
        return self.state


def naive(state: TopicState, partition: int) -> list[Extent]:
    """Of a state that was folded from nothing: all extents are in its tail."""
    part = state.parts[partition]
    return [e for e in part.tail if e.end > part.start]


@given(chains(60), st.data())
@settings(max_examples=120)
def test_every_lookup_is_that_of_a_plain_list(entries, data):
    publishers = [Publisher(1), Publisher(2)]
    truth = EMPTY_STATE
    for entry in entries:
        truth, _ = step(truth, entry)
        for who in publishers:
            who.state, _ = step(who.state, entry)
            if data.draw(st.integers(0, 3)) == 0:
                who.publish(data.draw(st.booleans()))
    publishers[0].publish()
    publishers[1].publish(sorting=True)
    for who in publishers:
        leaves, state = who.leaves, who.state
        disjoint(state)
        held = [e for p in range(truth.partitions) for e in naive(truth, p)]
        everything = [e for e in held if not e.is_empty]
        assert sorted(live(state, leaves)) == sorted(everything)
        for partition in range(truth.partitions):
            expected = naive(truth, partition)
            assert planned(state, partition, leaves) == expected
            lookups(state, partition, expected, leaves, data)


def planned(state: TopicState, partition: int, leaves: dict[str, Leaf]) -> list[Extent]:
    """All extents of a partition; a deleted topic has none."""
    part = state.parts[partition]
    if part.start == part.end:
        return []
    return [piece.extent for piece in whole(state, partition, part.start, part.end, leaves)]


def whole(
    state: TopicState, partition: int, low: int, high: int, leaves: dict[str, Leaf]
) -> tuple[fetch.PlannedPiece, ...]:
    """A plan of a range with all leaves at hand: nothing ends it early."""
    part = fetch.plan_part(state, partition, low, high, leaves)
    assert isinstance(part, fetch.PlannedPart) and part.end == high
    return part.pieces


def live(state: TopicState, leaves: dict[str, Leaf]) -> list[Extent]:
    """What maintenance sees of files, which reads each leaf once."""
    found = [e for part in state.parts for e in part.tail.overlapping(part.start, part.end)]
    for uid, fences in fetch.live_fences(state).items():
        for fence in fences:
            span = leaves[uid].span(fence.partition, fence.base, fence.end)
            chosen = inline_of(leaves[uid], span) + segments_of(leaves[uid], span)
            found += map(leaves[uid].extent, chosen)
    return [e for e in found if not e.is_empty]


def disjoint(state: TopicState) -> None:
    by_partition: dict[int, int] = {}
    for fence in map(state.index.fence, range(len(state.index.partition))):
        assert fence.base < fence.end
        assert by_partition.get(fence.partition, 0) <= fence.base
        by_partition[fence.partition] = fence.end
        assert 0 <= fence.leaf < len(state.index.leaves)


def lookups(state: TopicState, partition: int, expected: list[Extent], leaves, data) -> None:
    part = state.parts[partition]
    if part.start < part.end:
        low = data.draw(st.integers(part.start, part.end - 1))
        high = data.draw(st.integers(low + 1, part.end))
        pieces = whole(state, partition, low, high, leaves)
        assert pieces[0].start == low and pieces[-1].end == high
        assert all(a.end == b.start for a, b in zip(pieces, pieces[1:], strict=False))
        assert [p.extent for p in pieces] == [e for e in expected if e.end > low and e.base < high]
        limit = data.draw(st.integers(1, 4))
        limited = fetch.plan_part(state, partition, low, high, leaves, max_records=limit)
        cut = limited.pieces
        assert cut == pieces[: len(cut)] and cut and limited.end == cut[-1].end
        assert sum(p.records for p in cut[:-1]) < limit
    for time in range(0, 62, 7):
        at = part.start
        found = fetch.first_at_or_after(state, partition, time, at, leaves)
        assert found == next((e for e in expected if e.max_ts >= time), None)


@given(chains(40), st.data())
@settings(max_examples=60)
def test_publishing_from_any_base_gives_the_same_content(entries, data):
    """A stored state may be built upon any older one: leaf, tail or nothing at all."""
    bases = [EMPTY_STATE]
    leaves: dict[str, Leaf] = {}
    for n in sorted(data.draw(st.sets(st.integers(1, len(entries)), max_size=3))):
        who = Publisher(100 + n)
        who.leaves = leaves
        who.state = fold(data.draw(st.sampled_from(bases)), entries[:n][-n:])
        base = data.draw(st.sampled_from(bases))
        who.state = fold(base, entries[base.tip : n])
        bases.append(who.publish())
    whole = fold(EMPTY_STATE, entries)
    for base in bases:
        state = fold(base, entries[base.tip :])
        for partition in range(whole.partitions):
            assert planned(state, partition, leaves) == naive(whole, partition)
        assert state._replace(parts=(), index=whole.index) == whole._replace(parts=())


def test_sorted_leaves_need_a_fence_each_and_are_left_alone():
    """Twelve partitions grow together; publishing leaves a fence for each leaf and partition."""
    limits = publishing.IndexLimits(60, full_leaf=40, sorted_at_once=6, few_partitions=2)
    who, story = Publisher(5, limits), Story()
    first = Entry("f" * 32, 0, Create("t", 12, (), -1))
    who.state, _ = step(EMPTY_STATE, first)
    parts = tuple(Part(p, 2, 10, 1, 1) for p in range(12))
    for seq in range(1, 81):
        story.state = who.state
        story.land(append(seq=seq, parts=parts))
        who.state = story.state
        if seq % 4 == 0:
            who.publish()
    wide = who.state.index
    rounds = 0
    while leaves_to_sort(who.state.index, who.limits):
        who.publish(sorting=True)
        rounds += 1
    sorted_ = who.state.index
    assert 12 * len(wide.leaves) == len(wide.partition)
    assert rounds <= 4 and len(sorted_.partition) < len(wide.partition) / 3
    assert live(who.state, who.leaves) and len(live(who.state, who.leaves)) == 12 * 80


@given(chains(30))
@settings(max_examples=40)
def test_a_missing_leaf_is_asked_for_and_never_an_empty_answer(entries):
    who = Publisher(3)
    who.state = fold(EMPTY_STATE, entries)
    who.publish()
    state = who.state
    for partition in range(state.partitions):
        part = state.parts[partition]
        if part.start == part.end:
            continue
        answer = fetch.plan_part(state, partition, part.start, part.end, {})
        assert isinstance(answer, fetch.NeedLeaves) and answer.uids
        assert set(answer.uids) <= set(who.leaves)


def test_a_hole_in_the_index_is_corruption_and_bad_ranges_are_named():
    story = Story()
    for seq in range(1, 4):
        story.land(append(seq=seq))
    part = story.state.parts[0]
    holed = part._replace(tail=part.tail.trimmed(4))
    broken = story.state._replace(parts=(holed, *story.state.parts[1:]))
    with pytest.raises(CorruptLogError, match="offset 0"):
        fetch.plan_part(broken, 0, 0, 6, {})
    with pytest.raises(CorruptLogError, match="offset 0"):
        fetch.live_fences(broken)
    with pytest.raises(OffsetOutOfRangeError, match="0 to 5, and the next"):
        fetch.plan_part(story.state, 0, 0, 7, {})
    with pytest.raises(UnknownTopicError):
        fetch.plan_part(story.state, 2, 0, 0, {})
