"""The checker of histories, on random ones: a log that keeps its word is never blamed, and one
that breaks it is blamed for just that."""

from __future__ import annotations

import random

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from offsetlog.testing import history
from offsetlog.testing.history import Event, Kind
from tests.testing.histories import honest_history

RANDOM = st.integers(0, 2**32).map(random.Random)


@settings(deadline=None, max_examples=250)
@given(RANDOM, st.sampled_from([2, 5, 9]))
def test_a_log_that_keeps_its_word_is_never_blamed(rng, rounds):
    events = honest_history(rng, rounds)
    faults = history.check(events)
    assert not faults, history.tell(events, faults)


# --- mutations -----------------------------------------------------------------------------


def answers(events, kind):
    """Places of the good answers to operations of a kind that say something."""
    kinds = {(e.process, e.n): e.kind for e in events if e.step == "do"}
    return [
        i for i, e in enumerate(events)
        if e.step == "ok" and e.what and kinds[e.process, e.n] == kind
    ]  # fmt: skip


def changed(events, at, what):
    return [*events[:at], events[at]._replace(what=what), *events[at + 1 :]]


def longest(events, at):
    tp = max(events[at].what, key=lambda tp: len(events[at].what[tp][0]))
    offsets, values = events[at].what[tp]
    return tp, list(offsets), list(values)


def lose(events, rng):
    """Nobody ever reads one acknowledged record."""
    sent = [v for i in answers(events, "send") for v in _values(events, i)]
    victim = rng.choice(sorted(sent))
    out = []
    for event in events:
        if event.step == "ok" and isinstance(event.what, dict):
            what = {
                tp: _without(pair, victim) if _is_read(pair) else pair
                for tp, pair in event.what.items()
            }
            event = event._replace(what=what)
        out.append(event)
    kinds = {Kind.LOST_WRITE, Kind.UNSEEN, Kind.BATCH_IN_PART, Kind.BATCH_NOT_ONCE}
    return out, kinds


def _is_read(pair):
    return isinstance(pair, tuple)


def _without(pair, victim):
    left = [(o, v) for o, v in zip(*pair, strict=True) if v != victim]
    return [o for o, _ in left], [v for _, v in left]


def _values(events, at):
    begun = next(
        e for e in events
        if (e.process, e.n, e.step) == (events[at].process, events[at].n, "do")
    )  # fmt: skip
    return [v for tp, values in begun.what["records"].items() for v in values]


def swap(events, rng):
    """The last reader finds two records in each other's places."""
    at = answers(events, "poll")[-1]
    tp, offsets, values = longest(events, at)
    i = rng.randrange(len(values) - 1)
    values[i], values[i + 1] = values[i + 1], values[i]
    return changed(events, at, {**events[at].what, tp: (offsets, values)}), {
        Kind.INCONSISTENT_OFFSETS, Kind.DUPLICATE, Kind.BATCH_NOT_ONCE, Kind.WRITE_OUT_OF_ORDER,
    }  # fmt: skip


def skip(events, rng):
    """A poll leaves out a record in the middle."""
    at = answers(events, "poll")[-1]
    tp, offsets, values = longest(events, at)
    i = rng.randrange(1, len(values) - 1)
    del offsets[i], values[i]
    return changed(events, at, {**events[at].what, tp: (offsets, values)}), {Kind.POLL_SKIP}


def repeat(events, rng):
    at = answers(events, "poll")[-1]
    tp, offsets, values = longest(events, at)
    i = rng.randrange(len(values))
    offsets.append(offsets[-1] + 1)
    values.append(values[i])
    return changed(events, at, {**events[at].what, tp: (offsets, values)}), {
        Kind.DUPLICATE, Kind.BATCH_NOT_ONCE,
    }  # fmt: skip


def invent(events, rng):
    at = answers(events, "poll")[-1]
    tp, offsets, values = longest(events, at)
    values[rng.randrange(len(values))] = "never sent"
    return changed(events, at, {**events[at].what, tp: (offsets, values)}), {Kind.ABORTED_READ}


def reverse(events, rng):
    at = answers(events, "poll")[-1]
    tp, offsets, values = longest(events, at)
    what = {**events[at].what, tp: (offsets[::-1], values[::-1])}
    return changed(events, at, what), {Kind.READ_OUT_OF_ORDER}


def go_back(events, rng):
    """The last reader polls the same once more."""
    at = answers(events, "poll")[-1]
    again = [events[at - 1], events[at]]
    later = [e._replace(n=10**6, at=e.at + 10) for e in again]
    return [*events, *later], {Kind.NON_MONOTONIC_POLL}


def deny(events, rng):
    """A send that was acknowledged, and read, is said to have failed."""
    at = rng.choice([i for i in answers(events, "send") if not _keyed(events, i)])
    return [*events[:at], events[at]._replace(step="fail", what=None), *events[at + 1 :]], {
        Kind.ABORTED_READ
    }


def _keyed(events, at):
    return any(
        "batch" in e.what for e in events
        if (e.process, e.n, e.step) == (events[at].process, events[at].n, "do")
    )  # fmt: skip


def move_committed(events, rng):
    at = rng.choice(answers(events, "committed"))
    tp = rng.choice(sorted(events[at].what))
    return changed(events, at, {**events[at].what, tp: 10**6}), {Kind.COMMITTED_MOVED}


def shorten(events, rng):
    """After everything somebody is told that a partition ends below its last record."""
    tp, offsets, _ = longest(events, answers(events, "poll")[-1])
    now = events[-1].at + 5
    more = [
        Event("late", 1, now, "do", "ends", {}),
        Event("late", 1, now + 1, "ok", "", {tp: offsets[-1]}),
    ]
    return [*events, *more], {Kind.STALE_END}


MUTATIONS = [
    lose, swap, skip, repeat, invent, reverse, go_back, deny, move_committed, shorten,
]  # fmt: skip


@pytest.mark.parametrize("mutate", MUTATIONS, ids=lambda m: m.__name__)
@settings(deadline=None, max_examples=40)
@given(rng=RANDOM)
def test_a_log_that_breaks_its_word_is_blamed_for_just_that(mutate, rng):
    # No trims: they would excuse what is missing below them.
    events = honest_history(rng, rounds=8, trims=False)
    # Not where nearly everybody was killed at once.
    assume(len(longest(events, answers(events, "poll")[-1])[1]) > 2)
    assume(answers(events, "committed") and len(answers(events, "send")) > 10)
    broken, kinds = mutate(events, rng)
    found = {fault.kind for fault in history.check(broken)}
    assert found & kinds, mutate.__doc__
