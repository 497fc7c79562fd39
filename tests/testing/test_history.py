"""The checker: each kind of fault is found where it is, and near misses are let be."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from offsetlog.errors import CorruptLogError, InvalidRequestError, StorageError
from offsetlog.testing import history
from offsetlog.testing.history import Event, Kind
from offsetlog.testing.history.faults import KINDS, MOST
from offsetlog.values import Record
from tests.testing.histories import Told, honest_history

RANDOM = st.integers(0, 2**32).map(random.Random)
CASES: dict[str, tuple[set[str], dict, Told]] = {}
"""What is to be found in which history, with which settings."""


def case(*kinds: str, **settings_):
    def keep(tell):
        told = Told()
        tell(told)
        CASES[tell.__name__] = (set(kinds), settings_, told)
        return tell

    return keep


# --- lost and unseen -----------------------------------------------------------------------


@case(Kind.LOST_WRITE)
def lost_below_what_was_read(h):
    h.send("p", {"t/0": {"a": 0}})
    h.send("p", {"t/0": {"b": 1}})
    h.poll("r", {"t/0": {1: "b"}})


@case()
def not_lost_but_trimmed(h):
    h.send("p", {"t/0": {"a": 0}})
    h.send("p", {"t/0": {"b": 1}})
    h.do("m", "trim", starts={"t/0": 1})
    h.poll("r", {"t/0": {1: "b"}})


@case(Kind.LOST_WRITE)
def a_trim_that_failed_took_nothing(h):
    h.send("p", {"t/0": {"a": 0}})
    h.send("p", {"t/0": {"b": 1}})
    h.do("m", "trim", step="fail", starts={"t/0": 1})
    h.poll("r", {"t/0": {1: "b"}})


@case()
def not_lost_for_nobody_knows_whether_it_was_sent(h):
    h.unsure("p", {"t/0": ["a"]})
    h.send("p", {"t/0": {"b": 0}})
    h.poll("r", {"t/0": {0: "b"}})


@case(compacted={"t"})
def not_lost_but_compacted(h):
    h.send("p", {"t/0": {"a": 0, "b": 1, "c": 2}})
    h.poll("r", {"t/0": {0: "a", 2: "c"}})


@case(Kind.UNSEEN)
def unseen_above_all_that_was_read(h):
    h.send("p", {"t/0": {"a": 0, "b": 1}})
    h.poll("r", {"t/0": {0: "a"}})


@case(complete=False)
def unseen_while_nobody_says_that_all_was_read(h):
    h.send("p", {"t/0": {"a": 0, "b": 1}})
    h.poll("r", {"t/0": {0: "a"}})


# --- aborted -------------------------------------------------------------------------------


@case(Kind.ABORTED_READ)
def read_though_it_failed(h):
    h.unsure("p", {"t/0": ["a"]}, "fail")
    h.poll("r", {"t/0": {0: "a"}})


@case()
def read_though_its_sender_heard_nothing(h):
    h.unsure("p", {"t/0": ["a"]})
    h.poll("r", {"t/0": {0: "a"}})


@case()
def read_though_its_sender_never_came_back(h):
    h.begin("p", "send", records={"t/0": ["a"]})
    h.poll("r", {"t/0": {0: "a"}})


@case(Kind.ABORTED_READ)
def read_though_nobody_sent_it(h):
    h.poll("r", {"t/0": {0: "ghost"}})


@case(Kind.ABORTED_READ)
def read_before_it_was_sent(h):
    h.poll("r", {"t/0": {0: "a"}})
    h.send("p", {"t/0": {"a": 0}})


@case(real_time=False)
def read_before_it_was_sent_by_another_clock(h):
    h.poll("r", {"t/0": {0: "a"}})
    h.send("p", {"t/0": {"a": 0}})


@case()
def read_while_it_was_sent(h):
    n = h.begin("p", "send", records={"t/0": ["a"]})
    h.poll("r", {"t/0": {0: "a"}})
    h.end("p", n, "ok", {"t/0": [0]})


@case(Kind.ABORTED_READ)
def read_from_another_partition(h):
    h.unsure("p", {"t/0": ["a"]})
    h.poll("r", {"t/1": {0: "a"}})


@case()
def the_first_try_failed_and_the_second_landed(h):
    h.unsure("p", {"t/0": ["a"]}, "fail", batch=["q", 1])
    h.send("p", {"t/0": {"a": 0}}, batch=["q", 1])
    h.poll("r", {"t/0": {0: "a"}})


# --- duplicates and inconsistent offsets ---------------------------------------------------


@case(Kind.DUPLICATE)
def one_record_at_two_offsets(h):
    h.unsure("p", {"t/0": ["a"]})
    h.poll("r", {"t/0": {0: "a", 1: "a"}})


@case(Kind.DUPLICATE)
def acknowledged_at_one_place_and_read_at_another(h):
    h.send("p", {"t/0": {"a": 0}})
    h.poll("r", {"t/0": {1: "a"}})


@case()
def read_twice_at_one_place(h):
    h.send("p", {"t/0": {"a": 0}})
    h.poll("r1", {"t/0": {0: "a"}})
    h.poll("r2", {"t/0": {0: "a"}})


@case(Kind.INCONSISTENT_OFFSETS)
def two_readers_see_two_values_at_one_offset(h):
    h.unsure("p", {"t/0": ["a"]})
    h.unsure("q", {"t/0": ["b"]})
    h.poll("r1", {"t/0": {0: "a"}})
    h.poll("r2", {"t/0": {0: "b"}})


@case(Kind.INCONSISTENT_OFFSETS, complete=False)
def two_senders_are_given_one_offset(h):
    h.send("p", {"t/0": {"a": 0}})
    h.send("q", {"t/0": {"b": 0}})


@case()
def one_offset_of_two_partitions(h):
    h.send("p", {"t/0": {"a": 0}, "t/1": {"b": 0}})
    h.poll("r", {"t/0": {0: "a"}, "t/1": {0: "b"}})


# --- orders --------------------------------------------------------------------------------


@case(Kind.NON_MONOTONIC_SEND)
def a_sender_is_given_a_lower_offset(h):
    h.unsure("q", {"t/0": ["x"]})
    h.send("p", {"t/0": {"a": 1}})
    h.send("p", {"t/0": {"b": 0}})
    h.poll("r", {"t/0": {0: "b", 1: "a"}})


@case()
def two_senders_at_once_in_either_order(h):
    first = h.begin("p", "send", records={"t/0": ["a"]})
    second = h.begin("q", "send", records={"t/0": ["b"]})
    h.end("q", second, "ok", {"t/0": [0]})
    h.end("p", first, "ok", {"t/0": [1]})
    h.poll("r", {"t/0": {0: "b", 1: "a"}})


@case(Kind.WRITE_OUT_OF_ORDER)
def one_send_lies_in_another_order(h):
    h.unsure("p", {"t/0": ["a", "b"]})
    h.poll("r", {"t/0": {0: "b", 1: "a"}})


@case(Kind.WRITE_OUT_OF_ORDER)
def what_was_unsure_lies_above_what_its_sender_sent_later(h):
    h.unsure("p", {"t/0": ["a"]})
    h.send("p", {"t/0": {"b": 0}})
    h.poll("r", {"t/0": {0: "b", 1: "a"}})


@case()
def threads_of_one_process_that_name_themselves(h):
    h.unsure("p", {"t/0": ["a"]}, sender="p/1")
    h.send("p", {"t/0": {"b": 0}}, sender="p/2")
    h.poll("r", {"t/0": {0: "b", 1: "a"}})


@case(Kind.WRITE_OUT_OF_ORDER)
def sent_later_by_another_and_lies_below(h):
    h.unsure("q", {"t/0": ["c"]})
    h.send("p", {"t/0": {"a": 1}})
    h.send("q", {"t/0": {"b": 0}})
    h.poll("r", {"t/0": {0: "b", 1: "a"}})


@case(Kind.READ_OUT_OF_ORDER)
def one_poll_gives_offsets_in_another_order(h):
    h.send("p", {"t/0": {"a": 0, "b": 1}})
    h.poll("r", {"t/0": [(1, "b"), (0, "a")]})


@case()
def partitions_in_any_order(h):
    h.send("p", {"t/0": {"a": 0}, "t/1": {"b": 0}})
    h.poll("r", {"t/1": {0: "b"}})
    h.poll("r", {"t/0": {0: "a"}})


# --- readers -------------------------------------------------------------------------------


def five(h):
    h.send("p", {"t/0": {f"v{i}": i for i in range(5)}})
    h.poll("all", {"t/0": {i: f"v{i}" for i in range(5)}})


@case(Kind.POLL_SKIP)
def passed_over_within_a_poll(h):
    five(h)
    h.poll("r", {"t/0": {0: "v0", 2: "v2"}})


@case(Kind.POLL_SKIP)
def passed_over_between_polls(h):
    five(h)
    h.poll("r", {"t/0": {0: "v0"}})
    h.poll("r", {"t/0": {2: "v2"}})


@case()
def sought_over(h):
    five(h)
    h.poll("r", {"t/0": {0: "v0"}})
    h.seek("r", {"t/0": 2})
    h.poll("r", {"t/0": {2: "v2"}})
    h.seek("r", {"t/0": None})
    h.poll("r", {"t/0": {4: "v4"}})


@case(Kind.POLL_SKIP)
def sought_to_one_place_and_read_from_another(h):
    five(h)
    h.poll("r", {"t/0": {0: "v0"}})
    h.seek("r", {"t/0": 2})
    h.poll("r", {"t/0": {3: "v3"}})


@case()
def trimmed_over(h):
    five(h)
    h.poll("r", {"t/0": {0: "v0"}})
    h.do("m", "trim", starts={"t/0": 3})
    h.poll("r", {"t/0": {3: "v3"}})


@case(Kind.POLL_SKIP)
def passed_over_more_than_was_trimmed(h):
    five(h)
    h.poll("r", {"t/0": {0: "v0"}})
    h.do("m", "trim", starts={"t/0": 3})
    h.poll("r", {"t/0": {4: "v4"}})


@case(Kind.POLL_SKIP)
def trimmed_only_afterwards(h):
    five(h)
    h.poll("r", {"t/0": {0: "v0"}})
    h.poll("r", {"t/0": {3: "v3"}})
    h.do("m", "trim", starts={"t/0": 3})


@case(Kind.NON_MONOTONIC_POLL)
def went_back(h):
    five(h)
    h.poll("r", {"t/0": {0: "v0", 1: "v1"}})
    h.poll("r", {"t/0": {1: "v1"}})


@case()
def two_consumers_of_one_process(h):
    five(h)
    for consumer in ("x", "y"):
        n = h.begin("r", "poll", consumer=consumer, group=None)
        h.end("r", n, "ok", {"t/0": ([0, 1], ["v0", "v1"])})


@case()
def went_back_after_a_new_assignment(h):
    five(h)
    h.poll("r", {"t/0": {0: "v0", 1: "v1"}}, "g")
    h.hold("r", "revoke", "t/0")
    h.hold("r", "assign", "t/0")
    h.poll("r", {"t/0": {0: "v0"}}, "g")


@case()
def went_back_by_a_reset_of_its_group(h):
    five(h)
    h.poll("r", {"t/0": {0: "v0", 1: "v1"}}, "g")
    h.do("m", "reset", group="g", offsets={"t/0": 0})
    h.poll("r", {"t/0": {0: "v0"}}, "g")


@case(Kind.NON_MONOTONIC_POLL)
def went_back_to_another_place_than_the_reset_says(h):
    five(h)
    h.poll("r", {"t/0": {0: "v0", 1: "v1", 2: "v2"}}, "g")
    h.do("m", "reset", group="g", offsets={"t/0": 0})
    h.poll("r", {"t/0": {1: "v1"}}, "g")


@case(Kind.NON_MONOTONIC_POLL)
def one_reset_moved_it_twice(h):
    five(h)
    h.poll("r", {"t/0": {0: "v0", 1: "v1"}}, "g")
    h.do("m", "reset", group="g", offsets={"t/0": 0})
    h.poll("r", {"t/0": {0: "v0"}}, "g")
    h.poll("r", {"t/0": {0: "v0"}}, "g")


@case(Kind.NON_MONOTONIC_POLL)
def went_back_by_a_reset_of_another_group(h):
    five(h)
    h.poll("r", {"t/0": {0: "v0", 1: "v1"}}, "g")
    h.do("m", "reset", group="other", offsets={"t/0": 0})
    h.poll("r", {"t/0": {0: "v0"}}, "g")


@case(Kind.STALE_END)
def an_end_below_what_was_acknowledged(h):
    five(h)
    h.do("r", "ends", told={"t/0": 4})


@case()
def an_end_asked_for_before_it_was_acknowledged(h):
    n = h.begin("p", "send", records={"t/0": ["a"]})
    look = h.begin("r", "ends")
    h.end("p", n, "ok", {"t/0": [0]})
    h.end("r", look, "ok", {"t/0": 0})
    h.poll("r", {"t/0": {0: "a"}})


# --- batches -------------------------------------------------------------------------------


@case(Kind.BATCH_NOT_ONCE)
def a_batch_that_landed_twice(h):
    h.send("p", {"t/0": {"a": 0}}, batch=["q", 1])
    h.poll("r", {"t/0": {0: "a", 1: "a"}})


@case(Kind.BATCH_NOT_ONCE, complete=False)
def a_batch_that_was_given_two_places(h):
    h.send("p", {"t/0": {"a": 0}}, batch=["q", 1])
    h.send("p2", {"t/0": {"a": 1}}, batch=["q", 1])


@case()
def a_batch_that_was_given_one_place_twice(h):
    h.send("p", {"t/0": {"a": 0}}, batch=["q", 1])
    h.send("p2", {"t/0": {"a": 0}}, batch=["q", 1])
    h.poll("r", {"t/0": {0: "a"}})


@case(Kind.BATCH_NOT_ONCE)
def a_batch_of_which_two_contents_are_there(h):
    h.unsure("p", {"t/0": ["a"]}, batch=["q", 1])
    h.send("p2", {"t/0": {"b": 1}}, batch=["q", 1])
    h.poll("r", {"t/0": {0: "a", 1: "b"}})


@case()
def a_batch_that_was_split_otherwise_when_it_was_run_again(h):
    h.unsure("p", {"t/0": ["a", "b"]}, batch=["q", 1])
    h.send("p2", {"t/0": {"b": 0}, "t/1": {"c": 0}}, batch=["q", 1])
    h.poll("r", {"t/0": {0: "b"}, "t/1": {0: "c"}})


@case(Kind.BATCH_NOT_ONCE)
def a_batch_that_is_nowhere(h):
    h.send("p", {"t/0": {"a": 0}}, batch=["q", 1])
    h.send("p", {"t/0": {"x": 1}})
    h.poll("r", {"t/0": {1: "x"}})


@case(Kind.BATCH_IN_PART)
def a_batch_of_which_one_partition_is_missing(h):
    h.unsure("p", {"t/0": ["a"], "t/1": ["b"]}, batch=["q", 1])
    h.poll("r", {"t/0": {0: "a"}})


@case()
def a_batch_of_which_one_partition_was_trimmed(h):
    h.unsure("p", {"t/0": ["a"], "t/1": ["b"]}, batch=["q", 1])
    h.do("m", "trim", starts={"t/1": 1})
    h.poll("r", {"t/0": {0: "a"}})


@case()
def a_batch_that_nobody_knows_of(h):
    h.unsure("p", {"t/0": ["a"], "t/1": ["b"]}, batch=["q", 1])


@case(Kind.BATCH_IN_PART)
def a_look_between_the_halves_of_a_batch(h):
    n = h.begin("p", "send", records={"t/0": ["a"], "t/1": ["b"]}, batch=["q", 1])
    h.do("r", "ends", told={"t/0": 1, "t/1": 0})
    h.end("p", n, "ok", {"t/0": [0], "t/1": [0]})
    h.poll("r", {"t/0": {0: "a"}, "t/1": {0: "b"}})


@case()
def two_looks_before_and_after_a_batch(h):
    n = h.begin("p", "send", records={"t/0": ["a"], "t/1": ["b"]}, batch=["q", 1])
    h.do("r", "ends", told={"t/1": 0})
    h.do("r", "ends", told={"t/0": 1})
    h.end("p", n, "ok", {"t/0": [0], "t/1": [0]})
    h.poll("r", {"t/0": {0: "a"}, "t/1": {0: "b"}})


# --- groups --------------------------------------------------------------------------------


def commit(h, who, offset, step="ok"):
    h.do(who, "commit", step=step, group="g", offsets={"t/0": offset})


def reset(h, offset, step="ok"):
    h.do("admin", "reset", step=step, group="g", offsets={"t/0": offset})


def seen(h, offset):
    h.do("admin", "committed", told={"t/0": offset}, group="g")


@case(Kind.COMMITTED_MOVED)
def it_went_back_by_itself(h):
    commit(h, "m", 5)
    commit(h, "m", 9)
    seen(h, 5)


@case()
def it_went_back_by_a_reset(h):
    commit(h, "m", 5)
    commit(h, "m", 9)
    reset(h, 5)
    seen(h, 5)


@case()
def it_went_back_by_a_reset_that_nobody_heard_of(h):
    commit(h, "m", 9)
    reset(h, 5, "unknown")
    seen(h, 5)
    seen(h, 9)


@case(Kind.COMMITTED_MOVED)
def it_went_back_by_a_reset_that_failed(h):
    commit(h, "m", 9)
    reset(h, 5, "fail")
    seen(h, 5)


@case(Kind.COMMITTED_MOVED)
def a_commit_of_one_who_was_fenced(h):
    commit(h, "m", 5)
    commit(h, "m", 9, "fail")
    seen(h, 9)


@case(Kind.COMMITTED_MOVED)
def it_is_gone(h):
    commit(h, "m", 5)
    seen(h, None)


@case()
def it_was_taken_away(h):
    commit(h, "m", 5)
    reset(h, None)
    seen(h, None)


@case(Kind.COMMITTED_MOVED)
def before_anybody_committed_it(h):
    seen(h, 5)
    commit(h, "m", 5)


@case()
def while_somebody_committed_it(h):
    n = h.begin("m", "commit", group="g", offsets={"t/0": 5})
    seen(h, 5)
    h.end("m", n)


@case()
def progress_from_before_a_reset_is_dropped(h):
    commit(h, "m", 5)
    reset(h, 0)
    commit(h, "m", 9)
    seen(h, 0)


@case(Kind.COMMITTED_MOVED)
def a_reset_that_was_undone(h):
    commit(h, "m", 5)
    reset(h, 0)
    seen(h, 5)


@case(Kind.DOUBLE_OWNER)
def two_commit_in_turn(h):
    h.hold("a", "assign", "t/0")
    commit(h, "a", 1)
    h.hold("b", "assign", "t/0")
    commit(h, "b", 2)
    commit(h, "a", 3)


@case()
def one_after_the_other_and_back(h):
    h.hold("a", "assign", "t/0")
    commit(h, "a", 1)
    h.hold("a", "revoke", "t/0")
    h.hold("b", "assign", "t/0")
    commit(h, "b", 2)
    h.hold("b", "revoke", "t/0")
    h.hold("a", "assign", "t/0")
    commit(h, "a", 3)


@case()
def one_that_stood_still_and_was_refused(h):
    h.hold("a", "assign", "t/0")
    commit(h, "a", 1)
    h.hold("b", "assign", "t/0")
    commit(h, "b", 2)
    commit(h, "a", 3, "fail")
    h.hold("a", "lost", "t/0")
    seen(h, 2)


@case()
def a_commit_on_its_way_while_the_other_took_over(h):
    h.hold("a", "assign", "t/0")
    n = h.begin("a", "commit", group="g", offsets={"t/0": 1})
    h.hold("b", "assign", "t/0")
    commit(h, "b", 2)
    h.end("a", n)


@case(Kind.DOUBLE_OWNER)
def a_commit_after_it_was_put_out(h):
    h.hold("a", "assign", "t/0")
    h.hold("a", "lost", "t/0")
    commit(h, "a", 1)


@case(Kind.DOUBLE_OWNER, expulsions=False)
def two_hold_it_though_nobody_is_ever_put_out(h):
    h.hold("a", "assign", "t/0")
    h.hold("b", "assign", "t/0")
    h.hold("a", "revoke", "t/0")
    h.hold("b", "revoke", "t/0")


@case()
def two_believe_to_hold_it_where_members_are_put_out(h):
    h.hold("a", "assign", "t/0")
    h.hold("b", "assign", "t/0")
    h.hold("a", "revoke", "t/0")
    h.hold("b", "revoke", "t/0")


@case(expulsions=False)
def one_after_the_other(h):
    h.hold("a", "assign", "t/0", "t/1")
    h.hold("a", "revoke", "t/0")
    h.hold("b", "assign", "t/0")
    h.hold("b", "revoke", "t/0")
    h.hold("a", "revoke", "t/1")


# --- the tests -----------------------------------------------------------------------------


@pytest.mark.parametrize("name", CASES)
def test_what_is_there_is_found_and_nothing_else(name):
    kinds, settings_, told = CASES[name]
    faults = history.check(told.events, **settings_)
    assert {fault.kind for fault in faults} == kinds, history.tell(told.events, faults)


def test_every_kind_is_found_somewhere_and_has_a_near_miss():
    assert {kind for kinds, _, _ in CASES.values() for kind in kinds} == set(KINDS)
    assert sum(not kinds for kinds, _, _ in CASES.values()) > len(KINDS)


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


# --- writing it down -----------------------------------------------------------------------


def test_a_recorder_writes_what_check_reads(tmp_path):
    with history.Recorder(tmp_path / "p.jsonl") as rec:
        with rec.send({("t", 0): ["a", "b"]}) as sending:
            sending.ok({("t", 0): [0, 1]})
        with pytest.raises(StorageError), rec.send({("t", 0): ["c"]}):
            raise StorageError("no answer", may_have_landed=True)
        with pytest.raises(StorageError), rec.send({("t", 0): ["d"]}):
            raise StorageError("refused")
        with rec.commit("g", {("t", 0): 2}) as committing:
            committing.ok()
        with rec.committed("g") as asking:
            asking.ok({("t", 0): 2})
        rec.assign([("t", 0)], "g")
        rec.lost([("t", 0)], "g")
    with history.Recorder(tmp_path / "r.jsonl", "reader") as rec:
        rec.seek({("t", 0): 0})
        with rec.poll() as polling:
            polling.got([Record("t", 0, i, None, v, [], 0) for i, v in enumerate([b"a", b"b"])])
        with rec.ends() as asking:
            asking.ok({("t", 0): 2})
        with rec.trim({("t", 0): 1}) as trimming:
            trimming.ok()
        with rec.reset("g", {("t", 0): None}) as resetting:
            resetting.ok()
    steps = [(e.process, e.step, e.kind) for e in history.read_history(tmp_path)]
    assert steps[:6] == [
        ("p", "do", "send"), ("p", "ok", ""), ("p", "do", "send"), ("p", "unknown", ""),
        ("p", "do", "send"), ("p", "fail", ""),
    ]  # fmt: skip
    assert history.check(tmp_path) == []
    with pytest.raises(InvalidRequestError, match="file of its own"):
        history.Recorder(tmp_path / "p.jsonl")


def test_what_a_killed_process_began_has_an_unknown_outcome(tmp_path):
    program = (
        "import sys, time; from offsetlog.testing.history import Recorder\n"
        "rec = Recorder(sys.argv[1]); rec.send({('t', 0): ['a']}); print('x', flush=True)\n"
        "time.sleep(60)"
    )
    path = tmp_path / "killed.jsonl"
    command = [sys.executable, "-c", program, str(path)]
    child = subprocess.Popen(command, stdout=subprocess.PIPE, env=dict(os.environ))
    assert child.stdout.readline() == b"x\n"
    child.send_signal(signal.SIGKILL)
    child.wait()
    child.stdout.close()
    with path.open("ab") as file:
        file.write(b'{"n":2,"at":99,"do":"se')  # Cut off while it was written.
    reader = Told()
    reader.poll("r", {"t/0": {0: "a"}})
    events = [*history.read_history(path), *reader.events]
    assert history.check(events, real_time=False) == []


def test_the_report_tells_a_story(tmp_path, capsys):
    told = CASES["lost_below_what_was_read"][2]
    faults = history.check(told.events)
    text = history.tell(told.events, faults)
    lines = text.splitlines()
    assert lines[0].split() == ["1", "lost", "write"]
    assert "'a' was acknowledged at t/0 offset 0; nobody ever read it" in text
    assert 'p begins send t/0=["a"]' in text
    assert history.tell(told.events, []) == "No fault was found."


def test_the_command(tmp_path):
    for name, value in (("good", "a"), ("bad", "ghost")):
        folder = tmp_path / name
        folder.mkdir()
        with history.Recorder(folder / "p.jsonl") as rec:
            with rec.send({("t", 0): ["a"]}) as sending:
                sending.ok({("t", 0): [0]})
            with rec.poll() as polling:
                polling.got([Record("t", 0, 0, None, value.encode(), [], 0)])
        command = [sys.executable, "-m", "offsetlog.testing.history", str(folder)]
        done = subprocess.run(command, capture_output=True, text=True, timeout=60)
        assert done.returncode == (name == "bad"), done.stderr
        assert ("aborted read: 'ghost'" in done.stdout) == (name == "bad")


@pytest.mark.parametrize(
    "line",
    [
        b"{", b"[]", b"3", b'{"n":1}', b'{"n":true,"at":1,"ok":null}', b'{"n":1,"at":1,"do":"x"}',
        b'{"n":1,"at":1,"do":"fly","with":{}}', b"[" * 100_000, b"\xff",
    ],
)  # fmt: skip
def test_a_line_that_is_something_else_is_named(tmp_path, line):
    path = tmp_path / "x.jsonl"
    path.write_bytes(b'{"history":1,"process":"p"}\n' + line + b"\n")
    with pytest.raises(CorruptLogError, match=r"Line 2 of .*x\.jsonl"):
        list(history.read_history(path))


def test_what_cannot_be_judged_is_named(tmp_path):
    again = Told()
    again.send("p", {"t/0": {"a": 0}})
    again.send("p", {"t/0": {"a": 1}})
    with pytest.raises(CorruptLogError, match="sent before"):
        history.check(again.events)
    short = Told()
    n = short.begin("p", "send", records={"t/0": ["a", "b"]})
    short.end("p", n, "ok", {"t/0": [0]})
    with pytest.raises(CorruptLogError, match="Operation 1 of p"):
        history.check(short.events)
    with pytest.raises(InvalidRequestError, match="no history"):
        history.check(tmp_path)
    for name in "ab":
        history.Recorder(tmp_path / f"{name}.jsonl", "same").close()
    line = '{"n":1,"at":1,"did":"seek","with":{"offsets":{}}}\n'
    for name in "ab":
        with (tmp_path / f"{name}.jsonl").open("a") as file:
            file.write(line)
    (tmp_path / "ab.jsonl").write_text('{"history":1,"process":"other"}\n' + line)
    with pytest.raises(CorruptLogError, match="called 'same'"):
        history.check(tmp_path)


def test_one_broken_rule_does_not_fill_the_report():
    told = Told()
    for i in range(MOST + 50):
        told.poll(f"r{i}", {"t/0": {i: f"ghost{i}"}})
    faults = history.check(told.events)
    assert len(faults) == MOST + 1
    assert "50 more" in faults[-1].says


def test_a_large_history_is_judged_in_seconds_and_little_memory(tmp_path):
    """A tenth of a million operations; a million take ten times as long."""
    operations = write_large(tmp_path, 100_000)
    program = (
        "import resource, sys, time; from offsetlog.testing import history\n"
        "before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss\n"
        "began = time.process_time(); faults = history.check(sys.argv[1])\n"
        "grew = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before\n"
        "print(len(faults), time.process_time() - began, grew)"
    )
    command = [sys.executable, "-c", program, str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=True)
    faults, seconds, kilobytes = done.stdout.split()
    print(f"{operations:,} operations in {float(seconds):.2f} s, {int(kilobytes) / 1024:.0f} MiB")
    assert int(faults) == 0
    assert float(seconds) < 20
    assert int(kilobytes) < 120_000


def write_large(folder, operations):
    """Senders of one record at a time, readers of ten, a member that commits."""
    rng = random.Random(3)
    senders, partitions = 8, 16
    files = {
        name: (folder / f"{name}.jsonl").open("w")
        for name in [f"s{i}" for i in range(senders)] + ["r0", "r1", "last"]
    }
    for name, file in files.items():
        file.write(json.dumps({"history": 1, "process": name}) + "\n")
    now = done = 0
    ends = [0] * partitions
    values: list[list[str]] = [[] for _ in range(partitions)]
    at = {name: [0] * partitions for name in ("r0", "r1", "last")}

    def op(name, kind, given, answer):
        nonlocal now, done
        now, done = now + 2, done + 1
        files[name].write(json.dumps({"n": done, "at": now, "do": kind, "with": given}) + "\n")
        files[name].write(json.dumps({"n": done, "at": now + 1, "ok": answer}) + "\n")

    def poll(name, most):
        p = rng.randrange(partitions)
        low = at[name][p]
        take = values[p][low : low + most]
        at[name][p] += len(take)
        answer = {f"t/{p}": [list(range(low, low + len(take))), take]}
        op(name, "poll", {"consumer": "", "group": "g"}, answer)

    while done < operations:
        name = f"s{rng.randrange(senders)}"
        p = rng.randrange(partitions)
        value = f"{name}/{done}"
        values[p].append(value)
        op(name, "send", {"records": {f"t/{p}": [value]}}, {f"t/{p}": [ends[p]]})
        ends[p] += 1
        if done % 4 == 0:
            poll(rng.choice(("r0", "r1")), 10)
        if done % 50 == 0:
            op("r0", "commit", {"group": "g", "offsets": {"t/0": at["r0"][0]}}, None)
            op("r1", "committed", {"group": "g"}, {"t/0": at["r0"][0]})
            op("r1", "ends", {}, {f"t/{p}": end for p, end in enumerate(ends)})
    while any(at["last"][p] < ends[p] for p in range(partitions)):
        poll("last", 500)
    for file in files.values():
        file.close()
    return done


if __name__ == "__main__":
    from pathlib import Path

    total = write_large(Path(sys.argv[1]), int(sys.argv[2]))
    began = time.monotonic()
    print(len(history.check(sys.argv[1])), "faults")
    print(f"{total:,} operations in {time.monotonic() - began:.1f} s")
