"""Landing, retention, rewriting, collection, invariants, plans and estimates."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from offsetlog.core.topic import invariants, landing, publish, retention, rewrite
from offsetlog.core.topic import plan as fetch
from offsetlog.core.topic.extents import Extent, Tail
from offsetlog.core.topic.index import EMPTY_INDEX, integers, leaf_of
from offsetlog.core.topic.state import EMPTY_STATE, PartitionState
from offsetlog.errors import CorruptLogError
from offsetlog.values import NO_LIMIT
from tests.core.topic.test_fold import Story, append

# --- landing -------------------------------------------------------------------------------


@given(
    st.integers(0, 50),
    st.lists(st.sampled_from(("committed", "conflict", "unknown")), min_size=1, max_size=60),
)
def test_only_a_conflict_moves_on_and_no_name_is_skipped(tip, answers):
    way = landing.Landing(tip)
    act: object = landing.PutAt(tip)
    tried = [tip]
    conflicts = unknown = 0
    for answer in answers:
        if isinstance(act, landing.FindTip):
            way, act = way.looked(act.number)
        if not isinstance(act, landing.PutAt):
            break
        assert act.number == tried[-1]
        if answer == "committed":
            assert way.number == act.number
            return
        if answer == "conflict":
            unknown = 0
            conflicts += 1
            way, act = way.conflicted()
            assert isinstance(act, landing.FindTip) == (conflicts % landing.LIMITS.look_after == 0)
            tried.append(act.number)
        else:
            unknown += 1
            way, act = way.unanswered("lost")
            assert act.number == tried[-1], "the same bytes at the same name again"
            if unknown == landing.LIMITS.max_unknown:
                assert isinstance(act, landing.GiveUp)
    assert tried == list(range(tip, tip + len(tried)))


def test_a_look_never_goes_back():
    way = landing.Landing(9)
    assert way.looked(4)[1] == landing.PutAt(9)
    assert way.looked(12)[1] == landing.PutAt(12)


# --- retention -----------------------------------------------------------------------------


@st.composite
def runs(draw) -> list[Extent]:
    out, base = [], 0
    for number in range(draw(st.integers(0, 25))):
        end = base + draw(st.integers(1, 9))
        inline = draw(st.booleans())
        low = draw(st.integers(0, 100))
        extent = Extent(
            0, base, end, end - base, draw(st.integers(0, 400)), low, low + 3,
            draw(st.sampled_from((0, 0, 0, 1))), number, "0" * 32, 0,
            None if inline else REF, not inline,
        )  # fmt: skip
        out.append(extent)
        base = end
    return out


from offsetlog.core.topic.entry import SegmentRef  # noqa: E402

REF = SegmentRef(0, "a" * 32, 100, 20, "b" * 16)
LIMITS = st.just(NO_LIMIT) | st.integers(0, 120)


@given(runs(), LIMITS, st.just(NO_LIMIT) | st.integers(0, 3000))
def test_retention_lets_go_a_prefix_and_only_what_a_rule_lets_go(extents, ms, size):
    total = sum(e.bytes for e in extents)
    columns = retention.Sizes._fields
    sizes = retention.Sizes(*(integers(getattr(e, name) for e in extents) for name in columns))
    start = retention.retained_from(sizes, 0, 110, ms, size)
    gone = [e for e in extents if e.end <= start]
    kept = [e for e in extents if e.end > start]
    assert start in {0, *(e.end for e in extents)}
    behind = total
    for extent in gone:
        behind -= extent.bytes
        expired = ms != NO_LIMIT and extent.max_ts < 110 - ms
        too_much = size != NO_LIMIT and behind >= size
        assert expired or too_much
    if kept:
        first = kept[0]
        assert ms == NO_LIMIT or first.max_ts >= 110 - ms
        assert size == NO_LIMIT or sum(e.bytes for e in kept) - first.bytes < size


@given(
    st.lists(st.tuples(st.integers(0, 9), st.integers(0, 9))),
    st.integers(0, 9),
    st.sets(st.integers(0, 9)),
)
def test_only_what_was_born_below_the_horizon_and_is_not_live_may_be_deleted(files, horizon, live):
    named = [(born, f"u{uid}", f"{born}-{uid}") for born, uid in files]
    alive = {f"u{uid}" for uid in live}
    found = list(retention.condemned(named, horizon, alive))
    assert found == [f"{b}-{u}" for b, u in files if b < horizon and u not in live]


# --- rewriting -----------------------------------------------------------------------------


@given(runs(), st.integers(0, 60), st.integers(1, 1500), st.integers(2, 8))
def test_rewrites_are_contiguous_runs_of_one_kind_above_the_log_start(extents, start, target, few):
    taken: set[int] = set()
    for run in rewrite.plan_rewrites(extents, start, target, few):
        assert len(run.extents) >= 2
        assert (run.start, run.end) == (run.extents[0].base, run.extents[-1].end)
        assert run.start >= start
        assert len({e.ts_type for e in run.extents}) == 1
        assert all(a.end == b.base for a, b in zip(run.extents, run.extents[1:], strict=False))
        assert not any(not e.inline and e.bytes >= target // 2 and target > 1 for e in run.extents)
        numbers = {e.entry for e in run.extents}
        assert not numbers & taken
        taken |= numbers


@given(runs(), st.integers(0, 60), st.integers(1, 1500), st.integers(2, 8))
def test_rewrites_are_the_same_when_large_files_are_not_told_of(extents, start, target, few):
    leaf = leaf_of(extents)
    small = [extents[i] for i in rewrite.small_ones(leaf, range(len(extents)), target)]
    assert list(rewrite.plan_rewrites(small, start, target, few)) == list(
        rewrite.plan_rewrites(extents, start, target, few)
    )


@given(st.integers(2, 6), st.integers(100, 4000))
def test_a_byte_is_rewritten_a_logarithmic_number_of_times(few, target):
    """Appends of 10 bytes, a round of maintenance after each of them."""
    extents: list[Extent] = []
    rewritten = total = 0
    for base in range(300):
        number = base
        extents.append(Extent(0, base, base + 1, 1, 10, 0, 0, 0, number, "0" * 32, 0, None, False))
        total += 10
        for run in list(rewrite.plan_rewrites(extents, 0, target, few)):
            rewritten += run.bytes
            new = Extent(0, run.start, run.end, run.end - run.start, run.bytes, 0, 0, 0,
                         number, "0" * 32, 0, REF, True)  # fmt: skip
            extents = (
                [e for e in extents if e.end <= run.start]
                + [new]
                + [e for e in extents if e.base >= run.end]
            )
    import math

    bound = 3 + 2.5 * math.log2(max(2, target / 10))
    assert rewritten <= bound * total
    assert len(extents) <= few + 3 * math.ceil(total / target) + 12 * few


# --- invariants ----------------------------------------------------------------------------


def test_planted_faults_are_found():
    story = Story()
    for seq in range(1, 4):
        story.land(append(seq=seq))
    extents = list(story.state.parts[0].tail)

    def faults(found: list[Extent], start: int = 0, end: int = 6) -> list[str]:
        return list(invariants.tiling_faults(0, start, end, found))

    assert not faults(extents)
    assert not faults(extents, start=1), "the log start may cut an extent"
    assert faults(extents[1:])
    assert faults(extents[:-1])
    assert faults([extents[0], extents[2]])
    assert faults([extents[0], *extents])
    assert faults([])
    assert faults([extents[0]._replace(partition=1), *extents[1:]])
    assert faults([extents[0]._replace(records=1), *extents[1:]])
    assert not faults([extents[0]._replace(records=1, rewritten=True), *extents[1:]])
    assert faults([extents[0]._replace(records=-1, rewritten=True), *extents[1:]])
    assert faults([extents[0], extents[1]._replace(base=2, end=2), *extents[1:]])


def test_impossible_states_are_found():
    story = Story()
    story.land(append())
    state = story.state
    assert not list(invariants.state_faults(state))
    part = state.parts[0]
    for broken in (
        state._replace(parts=(part._replace(start=5), *state.parts[1:])),
        state._replace(alive=False),
        state._replace(partitions=9),
        state._replace(horizon=9),
        state._replace(floor=9),
        state._replace(head=9),
    ):
        assert list(invariants.state_faults(broken))


# --- plans and estimates -------------------------------------------------------------------


@st.composite
def gapped(draw) -> list[tuple[Extent, set[int]]]:
    """Files edge to edge with the offsets of their records; the last one of each has one, or none
    has any."""
    out, base = [], 0
    for number in range(draw(st.integers(1, 8))):
        end = base + draw(st.integers(1, 12))
        there = draw(st.sets(st.integers(base, end - 1)))
        if there:
            there.add(end - 1)
        extent = Extent(
            0, base, end, len(there), 10 * len(there), 0, 9, 0, number, "", 0,
            REF if there else None, True,
        )  # fmt: skip
        out.append((extent, there))
        base = end
    return out


@given(gapped(), st.data())
def test_an_estimate_is_0_only_where_nothing_is_left(files, data):
    extents = [extent for extent, _ in files]
    stored = sorted(data.draw(st.sets(st.integers(0, len(extents) - 1))))
    leaf = leaf_of([extents[i] for i in stored])
    made = publish.publish(
        EMPTY_INDEX, 9, [(0, [extents[i] for i in stored])], {}, iter(["a" * 32]), publish.LIMITS
    )
    tail = Tail([extent for i, extent in enumerate(extents) if i not in stored])
    end = extents[-1].end
    state = EMPTY_STATE._replace(
        topic="t", alive=True, partitions=1, rules=2, tip=9, index=made.index,
        parts=(PartitionState(0, end, tail),),
    )  # fmt: skip
    part = fetch.plan_part(state, 0, 0, end, {"a" * 32: leaf})
    assert [piece.extent for piece in part.pieces] == extents and part.end == end
    records = set().union(*(there for _, there in files))
    assert fetch.estimate_records(state, 0, 0, end) == len(records)
    for extent, there in files:
        for start in range(extent.base, extent.end):
            left = sum(start <= at for at in there)
            piece = fetch.PlannedPiece(extent, start, extent.end)
            assert (piece.records > 0) == (left > 0) and piece.may_have(left)
            assert piece.is_whole is False or piece.records == left
            assert piece.records <= piece.end - piece.start
            behind = sum(start <= at for at in records)
            assert fetch.estimate_records(state, 0, start, end) > 0 or not behind


@given(st.lists(st.integers(0, 30), min_size=2, unique=True).map(sorted), st.data())
def test_only_ranges_edge_to_edge_tile(edges, data):
    ranges = list(itertools.pairwise(edges))
    start, end = edges[0], edges[-1]
    assert fetch.tiling_fault(start, end, ranges) is None
    at = data.draw(st.integers(0, len(ranges) - 1))
    low, high = ranges[at]
    for wrong in (
        ranges[:at] + ranges[at + 1 :],
        ranges[:at] + ranges[at:] + ranges[at:],
        [*ranges[:at], (low, high + 1), *ranges[at + 1 :]],
        [*ranges[:at], (low, low), *ranges[at:]],
    ):
        assert fetch.tiling_fault(start, end, wrong) is not None
    assert fetch.tiling_fault(start, end + 1, ranges) == f"offsets {end} to {end + 1} are left out"


def test_a_leaf_without_what_its_fence_says_is_corruption_and_no_endless_search():
    extents = [
        Extent(0, at, at + 1, 1, 1, 0, 0, 0, at, "0" * 32, 0, None, False) for at in range(4)
    ]
    made = publish.publish(EMPTY_INDEX, 9, [(0, extents)], {}, iter(["a" * 32]), publish.LIMITS)
    state = EMPTY_STATE._replace(
        topic="t", alive=True, partitions=1, tip=9, index=made.index, parts=(PartitionState(0, 4),)
    )
    for missing in range(4):
        leaf = leaf_of(extents[:missing] + extents[missing + 1 :])
        with pytest.raises(CorruptLogError, match=f"names no file for offset {missing}"):
            fetch.plan_part(state, 0, 0, 4, {"a" * 32: leaf})
    with pytest.raises(CorruptLogError, match="offset 0"):
        fetch.plan_part(state, 0, 0, 4, {"a" * 32: leaf_of([])})
