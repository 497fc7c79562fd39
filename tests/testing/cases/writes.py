"""What becomes of writes: lost, unseen, read though they failed, doubled, out of order."""

from __future__ import annotations

from offsetlog.testing.history import Kind
from tests.testing.histories import Cases

CASES = Cases()
case = CASES.of


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
