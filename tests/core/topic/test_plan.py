"""Landing, retention, rewriting, collection, invariants."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from offsetlog.core.topic import invariants, landing, retention, rewrite
from offsetlog.core.topic.extents import Extent
from offsetlog.core.topic.index import integers, leaf_of
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
    for plan in rewrite.plan_rewrites(extents, start, target, few):
        assert len(plan.extents) >= 2
        assert (plan.start, plan.end) == (plan.extents[0].base, plan.extents[-1].end)
        assert plan.start >= start
        assert len({e.ts_type for e in plan.extents}) == 1
        assert all(a.end == b.base for a, b in zip(plan.extents, plan.extents[1:], strict=False))
        assert not any(not e.inline and e.bytes >= target // 2 and target > 1 for e in plan.extents)
        numbers = {e.entry for e in plan.extents}
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
        for plan in list(rewrite.plan_rewrites(extents, 0, target, few)):
            rewritten += plan.bytes
            new = Extent(0, plan.start, plan.end, plan.end - plan.start, plan.bytes, 0, 0, 0,
                         number, "0" * 32, 0, REF, True)  # fmt: skip
            extents = (
                [e for e in extents if e.end <= plan.start]
                + [new]
                + [e for e in extents if e.base >= plan.end]
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
