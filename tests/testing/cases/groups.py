"""Groups: committed offsets that move by themselves, and partitions that two members own."""

from __future__ import annotations

from offsetlog.testing.history import Kind
from tests.testing.histories import Cases

CASES = Cases()
case = CASES.of


def commit(h, who, offset, step="ok"):
    h.do(who, "commit", step=step, group="g", offsets={"t/0": offset})


def reset(h, offset, step="ok"):
    h.do("admin", "reset", step=step, group="g", offsets={"t/0": offset})


def seen(h, offset):
    h.do("admin", "committed", told={"t/0": offset}, group="g")


# --- committed offsets ---------------------------------------------------------------------


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


# --- owners --------------------------------------------------------------------------------


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
