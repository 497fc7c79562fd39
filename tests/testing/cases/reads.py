"""What readers are given: a poll in another order, records passed over or again, a stale end."""

from __future__ import annotations

from offsetlog.testing.history import Kind
from tests.testing.histories import Cases

CASES = Cases()
case = CASES.of


# --- one poll ------------------------------------------------------------------------------


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
