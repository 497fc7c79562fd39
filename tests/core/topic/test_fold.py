"""The fold: the whole state is the fold of the entries, and each rule of what is void."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from offsetlog.core.topic import fold as fold_module
from offsetlog.core.topic import invariants as scrub
from offsetlog.core.topic.entry import (
    Append,
    Collect,
    Compact,
    CompactedTo,
    Configure,
    Counted,
    Create,
    Delete,
    Entry,
    Erase,
    Expire,
    Part,
    Replace,
    ReplacedRun,
    ReplacementPiece,
    SegmentRef,
    Trim,
    Void,
    VoidReason,
)
from offsetlog.core.topic.fold import fold, step
from offsetlog.core.topic.state import EMPTY_STATE, TopicState
from tests.core.topic.strategies import chains


@given(chains(), st.data())
def test_folding_in_pieces_is_folding_whole(entries, data):
    whole = fold(EMPTY_STATE, entries)
    state = EMPTY_STATE
    rest = entries
    while rest:
        cut = data.draw(st.integers(1, len(rest)))
        state, rest = fold(state, rest[:cut]), rest[cut:]
    assert state == whole
    assert fold(EMPTY_STATE, entries) == whole


@given(chains())
def test_one_value_may_be_folded_onward_twice(entries):
    """States share memory; none sees what was folded onto another."""
    states = [EMPTY_STATE]
    for entry in entries:
        states.append(step(states[-1], entry)[0])
    again = [fold(state, entries[n:]) for n, state in enumerate(states)]
    assert all(state == states[-1] for state in again)
    fresh = [fold(EMPTY_STATE, entries[:n]) for n in range(len(states))]
    assert fresh == states


@given(chains(60))
@settings(max_examples=150)
def test_offsets_tile_and_are_never_given_twice(entries):
    state = EMPTY_STATE
    given_: set[tuple[int, int]] = set()
    for entry in entries:
        before = state
        state, verdict = step(state, entry)
        assert not list(scrub.state_faults(state))
        for partition, part in enumerate(state.parts):
            extents = list(part.tail)
            assert not list(scrub.tiling_faults(partition, part.start, part.end, extents))
            if partition < len(before.parts):
                assert part.end >= before.parts[partition].end
                assert part.start >= before.parts[partition].start
        if isinstance(verdict, Counted):
            for placed in verdict.placed:
                offsets = {(placed.partition, placed.base + i) for i in range(placed.records)}
                assert not offsets & given_
                given_ |= offsets


@given(chains())
def test_a_void_entry_changes_nothing_but_the_tip_and_the_hash(entries):
    state = EMPTY_STATE
    for entry in entries:
        before = state
        state, verdict = step(state, entry)
        assert state.tip == before.tip + 1
        assert state.hash != before.hash
        if isinstance(verdict, Void):
            assert state._replace(tip=before.tip, hash=before.hash) == before


@given(chains())
def test_floor_horizon_and_starts_only_rise_and_stay_within_what_exists(entries):
    state = EMPTY_STATE
    for entry in entries:
        before = state
        state, _ = step(state, entry)
        assert before.floor <= state.floor < state.tip
        assert before.horizon <= state.horizon < state.tip


@given(chains())
def test_a_number_of_a_caller_counts_once_unless_it_was_forgotten_by_command(entries):
    state = EMPTY_STATE
    counted: dict[str, int] = {}
    for entry in entries:
        state, verdict = step(state, entry)
        body = entry.body
        if isinstance(verdict, Counted) and isinstance(body, Append) and not body.own:
            assert body.seq > counted.get(body.app, -1)
            counted[body.app] = body.seq
        if isinstance(verdict, Counted) and isinstance(body, Expire):
            for app in body.callers:
                counted.pop(app, None)


@given(chains())
def test_an_entry_that_lands_twice_changes_nothing_the_second_time(entries):
    """But for what only raises, which is raised already."""
    for n, entry in enumerate(entries):
        if isinstance(entry.body, Expire) and entry.body.callers:
            continue
        once = fold(EMPTY_STATE, entries[: n + 1])
        twice, _ = step(once, entry)
        same = twice._replace(tip=once.tip, hash=once.hash, collected_at=once.collected_at)
        raised = isinstance(entry.body, Collect | Expire)
        if raised:
            same = same._replace(horizon=once.horizon, floor=once.floor, own=once.own)
        if isinstance(entry.body, Replace) and not entry.body.runs:
            continue
        assert same == once


# --- each rule -----------------------------------------------------------------------------


def segment(born: int = 0) -> SegmentRef:
    return SegmentRef(born, "a" * 32, 100, 20, "b" * 16)


def append(**change) -> Append:
    body = Append("a", 1, True, 1, 0, 2, "0" * 16, 0, (Part(0, 2, 10, 1, 1),))
    return body._replace(**change)


class Story:
    """A chain that grows by one body after another."""

    def __init__(self) -> None:
        self.state: TopicState = EMPTY_STATE
        self.land(Create("t", 2, (), -1))

    def land(self, body):
        entry = Entry(f"{self.state.tip:032x}", 0, body)
        self.state, verdict = step(self.state, entry)
        return verdict

    def reason(self, body) -> str | None:
        verdict = self.land(body)
        return verdict.reason if isinstance(verdict, Void) else None


def test_duplicate():
    story = Story()
    assert story.reason(append(seq=5)) is None
    assert story.reason(append(seq=5)) == VoidReason.DUPLICATE
    assert story.reason(append(seq=4)) == VoidReason.DUPLICATE
    assert story.reason(append(seq=9)) is None, "there need not be every number"
    assert story.reason(append(seq=9, own=False)) is None, "a caller's key is another sender"
    assert story.reason(append(seq=1, app="b")) is None


def test_duplicate_also_after_delete_and_create_again():
    story = Story()
    story.land(append(seq=5, own=False))
    story.land(Delete(0))
    story.land(Create("t", 2, (), 2))
    assert story.reason(append(seq=5, own=False, created_at_entry=3)) == VoidReason.DUPLICATE
    assert story.reason(append(seq=6, own=False, created_at_entry=3)) is None


def test_forgotten():
    story = Story()
    story.land(append(seq=1))
    story.land(Collect(0))
    story.land(Expire(3))
    assert story.state.own.get("a") is None
    assert story.reason(append(seq=2, born=2)) == VoidReason.FORGOTTEN
    assert story.reason(append(seq=2, born=2, own=False)) is None, "callers are never forgotten"
    assert story.reason(append(seq=1, born=3)) is None


def test_a_sender_that_is_known_is_not_forgotten_however_old_its_birth():
    story = Story()
    story.land(append(seq=1))
    story.land(Expire(1))
    assert story.reason(append(seq=2, born=0)) is None


def test_expire_drops_those_whose_last_entry_is_older():
    story = Story()
    story.land(append(app="a"))
    story.land(append(app="b"))
    story.land(append(app="c", own=False))
    story.land(Expire(2))
    assert [story.state.own.get(app) is None for app in "ab"] == [True, False]
    assert story.state.callers.get("c") is not None
    story.land(Expire(0, ("c",)))
    assert story.state.callers.get("c") is None
    assert story.state.floor == 2


def test_expire_and_collect_are_clamped_to_their_own_number():
    story = Story()
    story.land(Expire(100))
    story.land(Collect(100))
    assert (story.state.floor, story.state.horizon) == (1, 2)


def test_deleted_and_created_again():
    story = Story()
    story.land(Delete(0))
    assert story.reason(append()) == VoidReason.DELETED
    story.land(Create("t", 2, (), 1))
    assert story.reason(append(seq=2, created_at_entry=0)) == VoidReason.DELETED
    assert story.reason(append(seq=2, created_at_entry=3)) is None


def test_offsets_continue_after_delete_and_create_again():
    story = Story()
    story.land(append())
    story.land(Delete(0))
    story.land(Create("t", 1, (), 2))
    verdict = story.land(append(seq=2, created_at_entry=3))
    assert isinstance(verdict, Counted)
    assert (verdict.placed[0].base, story.state.start(0)) == (2, 2)


def test_no_partition():
    story = Story()
    assert story.reason(append(parts=(Part(2, 1, 1, 1, 1),))) == VoidReason.NO_PARTITION
    story.land(Configure(3, (), 0))
    assert story.reason(append(parts=(Part(2, 1, 1, 1, 1),))) is None


def test_no_partition_of_the_topic_as_it_is_now():
    story = Story()
    story.land(Delete(0))
    story.land(Create("t", 1, (), 1))
    body = append(created_at_entry=2, parts=(Part(1, 1, 1, 1, 1),))
    assert story.reason(body) == VoidReason.NO_PARTITION


def test_condemned():
    story = Story()
    for _ in range(3):
        story.land(Collect(2))
    named = append(parts=(Part(0, 1, 1, 1, 1), Part(0, 1, 1, 1, 1, segment(1))))
    assert story.reason(named) == VoidReason.CONDEMNED
    assert story.reason(append(parts=(Part(0, 1, 1, 1, 1, segment(2)),))) is None


def test_a_void_append_uses_up_no_number():
    story = Story()
    story.land(append(seq=3, parts=(Part(7, 1, 1, 1, 1),)))
    assert story.reason(append(seq=3)) is None


def test_the_rules_are_judged_in_their_order():
    story = Story()
    story.land(append(seq=1))
    story.land(Collect(1))
    story.land(Delete(0))
    late = append(seq=1, parts=(Part(9, 1, 1, 1, 1, segment(0)),))
    assert story.reason(late) == VoidReason.DUPLICATE
    assert story.reason(late._replace(seq=2)) == VoidReason.DELETED
    story.land(Create("t", 2, (), 3))
    assert story.reason(late._replace(seq=2, created_at_entry=6)) == VoidReason.NO_PARTITION


def piece(base: int, end: int, born: int = 0) -> ReplacementPiece:
    return ReplacementPiece(base, end, end - base, 10, 1, 1, 0, segment(born))


def replace(start: int, end: int, planned: int, born: int = 9) -> Replace:
    return Replace(planned, (ReplacedRun(0, start, end, (piece(start, end, born),)),))


def test_a_replace_is_void_unless_all_of_it_is_as_its_author_saw_it():
    story = Story()
    for seq in range(1, 5):
        story.land(append(seq=seq))
    assert story.reason(replace(0, 4, 5)) is None
    assert story.reason(replace(2, 6, 5)) == VoidReason.STALE
    assert story.reason(replace(4, 8, 5)) is None, "its neighbour was replaced, not itself"
    assert story.reason(replace(0, 8, 8)) is None, "planned after both"
    assert story.reason(replace(6, 10, 9)) == VoidReason.STALE, "beyond the end"
    story.land(Trim(((0, 1),)))
    assert story.reason(replace(0, 8, 11)) == VoidReason.STALE


def test_a_replace_is_void_when_what_it_adds_may_be_deleted_already():
    story = Story()
    story.land(append(seq=1))
    story.land(Collect(2))
    assert story.reason(replace(0, 2, 3, born=1)) == VoidReason.CONDEMNED
    assert story.reason(replace(0, 2, 3, born=2)) is None


def test_a_replace_of_a_deleted_topic_is_void_also_when_it_was_created_again():
    story = Story()
    story.land(append(seq=1))
    story.land(Delete(0))
    assert story.reason(replace(0, 2, 2)) == VoidReason.DELETED
    story.land(Create("t", 2, (), 2))
    assert story.reason(replace(0, 2, 2)) == VoidReason.STALE


def test_a_replace_from_before_what_is_remembered_is_void(monkeypatch):
    monkeypatch.setattr(fold_module, "REPLACES_REMEMBERED", 2)
    story = Story()
    for seq in range(1, 6):
        story.land(append(seq=seq))
    planned = story.state.tip
    for n in range(4):
        assert story.reason(replace(2 * n, 2 * n + 2, story.state.tip)) is None
    assert len(story.state.replaces) == 2
    assert story.reason(replace(0, 2, planned)) == VoidReason.STALE
    assert story.reason(replace(8, 10, planned)) == VoidReason.STALE, "nobody can tell any more"
    assert story.reason(replace(8, 10, story.state.tip)) is None


@pytest.mark.parametrize("kind", [Create, Configure, Delete])
def test_create_configure_and_delete_name_the_last_one_that_they_saw(kind):
    bodies = {
        Create: lambda sees: Create("t", 2, (), sees),
        Configure: lambda sees: Configure(2, (), sees),
        Delete: Delete,
    }
    story = Story()
    story.land(Configure(2, (), 0))
    assert story.reason(bodies[kind](0)) == VoidReason.SUPERSEDED
    assert (story.reason(bodies[kind](1)) is None) == (kind is not Create)


def test_an_old_delete_does_not_hit_a_new_topic():
    story = Story()
    story.land(Delete(0))
    story.land(Create("t", 2, (), 1))
    assert story.reason(Delete(0)) == VoidReason.SUPERSEDED
    assert story.state.alive


def test_partitions_never_become_fewer():
    story = Story()
    assert story.reason(Configure(1, (), 0)) == VoidReason.INVALID


def test_a_deleted_topic_takes_no_change():
    story = Story()
    story.land(Delete(0))
    assert story.reason(Configure(3, (), 1)) == VoidReason.DELETED
    assert story.reason(Delete(1)) == VoidReason.DELETED


def test_a_trim_is_clamped_to_what_exists():
    story = Story()
    story.land(append(seq=1))
    story.land(Trim(((0, 100), (1, 5), (9, 1))))
    assert [story.state.start(p) for p in (0, 1)] == [2, 0]
    story.land(Trim(((0, 1),)))
    assert story.state.start(0) == 2


# --- rules 2 -------------------------------------------------------------------------------


def empty_run(start: int, end: int, partition: int = 0) -> ReplacedRun:
    """Of which nothing is left."""
    return ReplacedRun(partition, start, end, (ReplacementPiece(start, end, 0, 0, 0, 0, 0),))


def compact(planned: int, *compacted: tuple[int, int, int], runs=()) -> Compact:
    """Of partition 0: (end, time, tombstones_from)."""
    return Compact(planned, runs, tuple(CompactedTo(0, *one) for one in compacted))


def erase(planned: int, *runs: ReplacedRun, ends=()) -> Erase:
    return Erase(planned, runs, ends, "5" * 32, ("7" * 64,), 1, "ann@host")


def grown(appends: int) -> Story:
    story = Story()
    for seq in range(1, appends + 1):
        story.land(append(seq=seq))
    return story


def test_rules_rise_with_what_counts_and_never_fall():
    story = Story()
    assert story.state.rules == 1
    assert story.reason(Configure(2, (("cleanup.policy", "compact"),), 9)) is not None
    assert story.state.rules == 1, "it does not count"
    story.land(Configure(2, (("cleanup.policy", "compact"),), 0))
    assert story.state.rules == 2
    story.land(Configure(2, (), 2))
    assert story.state.rules == 2


@pytest.mark.parametrize("make", [lambda n, run: compact(n, runs=(run,)), erase])
def test_what_compaction_and_erasure_replace_is_as_their_author_saw_it(make):
    story = grown(4)
    assert story.reason(make(5, empty_run(0, 4))) is None
    assert story.reason(make(5, empty_run(2, 6))) == VoidReason.STALE
    assert story.reason(replace(2, 6, 5)) == VoidReason.STALE, "planned before, landed after"
    assert story.reason(make(9, empty_run(6, 10))) == VoidReason.STALE, "beyond the end"
    assert [(e.base, e.end, e.records, e.is_empty) for e in story.state.parts[0].tail] == [
        (0, 4, 0, True),
        (4, 6, 2, False),
        (6, 8, 2, False),
    ]


@pytest.mark.parametrize("body", [compact(3, (5, 1, 0)), erase(3, ends=((0, 5),))])
def test_neither_speaks_of_what_is_not_there(body):
    story = grown(2)
    assert story.reason(body) == VoidReason.INVALID
    story.land(append(seq=3))
    assert story.reason(body) is None


def test_tombstones_count_from_the_first_pass_that_met_them():
    story = grown(6)
    story.land(compact(7, (4, 1000, 1)))
    story.land(compact(7, (2, 2000, 1)))
    story.land(compact(7, (8, 3000, 1)))
    part = story.state.parts[0]
    assert (part.compacted_to, part.tombstones_from) == (8, 1)
    assert part.compactions == ((4, 1000), (8, 3000)), "a shorter pass met nothing first"
    story.land(compact(10, (8, 4000, 5)))
    part = story.state.parts[0]
    assert part.compactions == ((8, 3000),) and part.tombstones_from == 5
    story.land(compact(10, (12, 2500, 12)))
    part = story.state.parts[0]
    assert part.compactions == ((12, 3000),), "the clock of the storage does not go back"
    story.land(Trim(((0, 12),)))
    assert story.state.parts[0].compacted_to == 12
    story.land(Delete(0))
    assert story.state.parts[0].compactions == ()


def test_a_pass_that_is_forgotten_makes_its_tombstones_stay_longer(monkeypatch):
    monkeypatch.setattr(fold_module, "COMPACTIONS_REMEMBERED", 2)
    story = grown(4)
    for n in range(1, 5):
        story.land(compact(5, (2 * n, 1000 * n, 0)))
    assert story.state.parts[0].compactions == ((6, 3000), (8, 4000))


def test_appending_keeps_what_is_known_of_compaction():
    story = grown(2)
    story.land(compact(3, (4, 1000, 2)))
    story.land(append(seq=3))
    part = story.state.parts[0]
    assert (part.end, part.compacted_to, part.tombstones_from) == (6, 4, 2)


def test_a_pass_over_what_was_trimmed_meanwhile_is_in_snapshots_as_it_is_in_the_fold():
    """A snapshot left out where tombstones begin if no pass was remembered beside it."""
    from offsetlog.core.topic.index import EMPTY_INDEX
    from offsetlog.format import snapshots

    story = grown(4)
    story.land(Trim(((0, 6),)))
    story.land(compact(5, (4, 1000, 4)))
    data = snapshots.encode_snapshot(story.state, EMPTY_INDEX, None)
    stored, _ = snapshots.decode_snapshot(data, "snapshot")
    assert [part[3:] for part in stored.parts] == [part[3:] for part in story.state.parts]
