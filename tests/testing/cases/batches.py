"""Micro-batches: all of it, at once, and exactly once."""

from __future__ import annotations

from offsetlog.testing.history import Kind
from tests.testing.histories import Cases

CASES = Cases()
case = CASES.of


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
