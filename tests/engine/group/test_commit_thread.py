"""The thread that makes commits beside a consumer or a query."""

from __future__ import annotations

import threading
from collections.abc import Callable

import pytest

from offsetlog.engine.env import REAL
from offsetlog.engine.group.commit_queue import CommitThread


class Work:
    def __init__(self, spawn=REAL.spawn) -> None:
        self.todo: list[Callable[[], None]] = []
        self.thread = CommitThread(lambda: self.todo.pop(0) if self.todo else None, "t", spawn)

    def add(self, work: Callable[[], None]) -> None:
        with self.thread.changed:
            self.todo.append(work)
            self.thread.wake()


def test_all_work_is_done_whenever_it_comes():
    work, done = Work(), []
    for number in range(500):
        work.add(lambda number=number: done.append(number))
        if number % 7 == 0:
            assert work.thread.wait(60), "it ends, and is started again"
    assert work.thread.wait(60)
    assert done == list(range(500))


def test_who_waits_for_work_that_does_not_end_gets_an_answer():
    work, going = Work(), threading.Event()
    work.add(lambda: going.wait(60))
    assert not work.thread.wait(0.01)
    going.set()
    assert work.thread.wait(60)


def test_work_that_raises_ends_the_thread_and_the_next_starts_another():
    def here(run: Callable[[], object], _: str) -> None:
        run()

    work, done = Work(here), []
    with pytest.raises(ZeroDivisionError):
        work.add(lambda: 1 / 0)
    assert work.thread.wait(0)
    work.add(lambda: done.append("next"))
    assert done == ["next"]


@pytest.mark.parametrize("started", [False, True])
def test_a_start_that_was_interrupted_keeps_nobody_waiting(started):
    """By Ctrl-C in the thread that wakes it, before or after the system has started the thread."""
    starts: list[Callable[[], object]] = []

    def interrupted(run: Callable[[], object], _: str) -> None:
        starts.append(run)
        if len(starts) == 1:
            raise KeyboardInterrupt

    work, done = Work(interrupted), []
    with pytest.raises(KeyboardInterrupt):
        work.add(lambda: done.append("first"))
    assert work.thread.wait(1), "no thread runs that could be waited for"
    if started:
        starts[0]()
        assert not done, "another may work by now"
    work.add(lambda: done.append("second"))
    starts[1]()
    assert done == ["first", "second"] and work.thread.wait(1)
