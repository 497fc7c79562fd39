"""Commits that a consumer does not wait for.

Invariants:

1. They are made one after another, in the order in which they were submitted.
2. Callbacks run in the consumer's own thread, at its next poll, commit or close.
3. At most ``MAX_WAITING`` wait: then the caller waits too.
4. Every submitted commit is made, or its future says why not.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any

from offsetlog.core.group.requests import CommitRequest
from offsetlog.engine.env import REAL, Spawn
from offsetlog.engine.group.commit_thread import CommitThread
from offsetlog.errors import OffsetLogError, StorageError

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
        """Wait until everything submitted is made, then run the callbacks."""
        with self._changed:
            while self._thread.running or self._waiting:
                self._thread.wake()
                if self._thread.running:
                    self._changed.wait()
        self.run_callbacks()

    def run_callbacks(self) -> None:
        while self._results:
            callback, offsets, error = self._results.popleft()
            callback(offsets, error)
