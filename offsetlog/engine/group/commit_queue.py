"""Commits that a consumer does not wait for, and the thread that makes them.

Invariants:

1. They are made one after another, in the order in which they were submitted.
2. Callbacks run in the consumer's own thread, at its next poll, commit or close.
3. At most ``MAX_WAITING`` wait: then the caller waits too.
4. Every submitted commit is made, or its future says why not.
5. The thread exists only while there is work, and there is one at a time. Work that is added
   under ``changed``, with ``wake`` called under the same lock, gets done: the thread ends under
   that lock, when it has found nothing or the work raised, and the next ``wake`` starts another.
   A query's commits are made by such a thread too.
6. A thread whose start was interrupted (Ctrl-C) is not waited for. If it runs all the same it ends
   at once, since another may run by then.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from functools import partial
from typing import Any

from offsetlog.core.group.requests import CommitRequest
from offsetlog.engine.env import REAL, Spawn
from offsetlog.errors import OffsetLogError, StorageError

NextWork = Callable[[], Callable[[], None] | None]
"""Called with ``changed`` held: what to do next without it; None when there is nothing."""


class CommitThread:
    def __init__(self, next_work: NextWork, name: str, spawn: Spawn = REAL.spawn) -> None:
        self._next_work = next_work
        self._name = name
        self._spawn = spawn
        self.changed = threading.Condition()
        """Guards what ``next_work`` looks at; notified whenever the thread ends."""
        self.runner: object | None = None
        """A mark of the one thread that may work; None while there is none."""

    def wake(self) -> None:
        """Make sure that the thread runs. Call it with ``changed`` held."""
        if self.runner is not None:
            return
        self.runner = mark = object()
        try:
            self._spawn(partial(self._run, mark), self._name)
        except RuntimeError as error:
            self.runner = None
            raise StorageError(
                f"The thread that commits can't be started: {error}. Nothing was committed.",
                "Use commit(), or end some threads and try again.",
            ) from None
        except BaseException:
            self.runner = None
            raise

    def wait(self, longest: float | None = None) -> bool:
        """Wait until all work is done, for at most ``longest`` seconds; whether it is."""
        with self.changed:
            return self.changed.wait_for(lambda: self.runner is None, longest)

    def _run(self, mark: object) -> None:
        try:
            while True:
                with self.changed:
                    if self.runner is not mark:
                        return
                    work = self._next_work()
                    if work is None:
                        self._end()
                        return
                work()
        except BaseException:
            with self.changed:
                if self.runner is mark:
                    self._end()
            raise

    def _end(self) -> None:
        self.runner = None
        self.changed.notify_all()


MAX_WAITING = 1000
CommitCallback = Callable[[dict[Any, Any], OffsetLogError | None], None]
"""(offsets, error or None)."""


class CommitQueue:
    def __init__(
        self, commit: Callable[[CommitRequest], None], name: str, spawn: Spawn = REAL.spawn
    ) -> None:
        self._commit = commit
        self._thread = CommitThread(self._next_commit, name, spawn)
        self._changed = self._thread.changed
        self._waiting: deque[tuple[CommitRequest, CommitCallback | None, Future[None]]] = deque()
        self._results: deque[tuple[CommitCallback, dict[Any, Any], OffsetLogError | None]] = deque()

    def submit(self, request: CommitRequest, callback: CommitCallback | None) -> Future[None]:
        future: Future[None] = Future()
        with self._changed:
            while len(self._waiting) >= MAX_WAITING:
                self._changed.wait()
            self._waiting.append((request, callback, future))
            try:
                self._thread.wake()
            except StorageError:
                self._waiting.pop()
                raise
        return future

    def _next_commit(self) -> Callable[[], None] | None:
        if not self._waiting:
            return None
        submitted = self._waiting.popleft()
        self._changed.notify_all()
        return lambda: self._make(*submitted)

    def _make(
        self, request: CommitRequest, callback: CommitCallback | None, future: Future[None]
    ) -> None:
        if not future.set_running_or_notify_cancel():
            return
        error: BaseException | None = None
        try:
            if request.offsets:
                self._commit(request)
        except BaseException as failure:  # noqa: BLE001 - it belongs to the future
            error = failure
        if callback is not None:
            reported = error if isinstance(error, OffsetLogError) else None
            self._results.append((callback, dict(request.offsets), reported))
        if error is None:
            future.set_result(None)
        else:
            future.set_exception(error)

    def drain(self) -> None:
        """Wait until everything submitted is made. Its callbacks are still to be run."""
        with self._changed:
            while self._thread.runner is not None or self._waiting:
                self._thread.wake()
                if self._thread.runner is not None:
                    self._changed.wait()

    @property
    def has_results(self) -> bool:
        return bool(self._results)

    def run_callbacks(self) -> None:
        while self._results:
            callback, offsets, error = self._results.popleft()
            callback(offsets, error)
