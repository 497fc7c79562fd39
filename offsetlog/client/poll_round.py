"""One round of a poll on a server, in a thread of its own: a server may answer nothing for minutes,
and ``poll`` returns in its time.

1. A round is begun by one poll and may be waited for by later ones; none is begun beside it.
2. What is the user's (callbacks of a rebalance or a commit) runs in the thread that polls: the
   round stands still until that thread waits for it again.
3. Whoever is interrupted while it waits leaves the round as it is.
"""

from __future__ import annotations

import contextvars
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from typing import Generic, TypeVar

from offsetlog.engine.env import Spawn

T = TypeVar("T")


class PollRound(Generic[T]):
    def __init__(self, work: Callable[[], T]) -> None:
        self._work = work
        self._done: Future[T] = Future()
        self._changed = threading.Condition()
        self._call: tuple[Callable[[], object], Future[object]] | None = None
        self._thread = 0
        self._is_callers = False
        """Whether the thread that polls does the work itself."""

    def begin(self, spawn: Spawn) -> None:
        context = contextvars.copy_context()
        try:
            spawn(lambda: context.run(self._run), "offsetlog-poll")
        except RuntimeError:  # No thread can be had: the interpreter ends, or there are too many.
            self._is_callers = True
            self._run()

    def _run(self) -> None:
        self._thread = threading.get_ident()
        try:
            result = self._work()
        except BaseException as error:  # noqa: BLE001 - it belongs to who takes the result
            self._done.set_exception(error)
        else:
            self._done.set_result(result)
        finally:
            self._thread = 0
            with self._changed:
                self._changed.notify_all()

    def in_caller(self, call: Callable[[], object]) -> None:
        """Run what is the user's, in the thread that polls."""
        if threading.get_ident() != self._thread or self._is_callers:
            call()
            return
        called: Future[object] = Future()
        with self._changed:
            self._call = call, called
            self._changed.notify_all()
        called.result()

    def wait(self, seconds: float) -> bool:
        """Whether the round has ended within so many seconds; the calls of users that come
        meanwhile are run, and take the time that they take."""
        until = time.monotonic() + seconds
        while True:
            with self._changed:
                while self._call is None and not self._done.done():
                    rest = until - time.monotonic()
                    if rest <= 0:
                        return False
                    self._changed.wait(rest)
                asked, self._call = self._call, None
            if asked is None:
                return True
            call, called = asked
            try:
                called.set_result(call())
            except BaseException as error:  # noqa: BLE001 - the round hands it on to the caller
                called.set_exception(error)

    def result(self) -> T:
        """What the round gave, or what it raises; it has ended."""
        return self._done.result()
