"""Commits that a consumer does not wait for.

Invariants:

1. They are made one after another, in the order in which they were asked for.
2. Callbacks run in the consumer's own thread, at its next poll, commit or close.
3. At most ``MOST_WAITING`` wait: then the caller waits too.
4. What was taken is made, or its future says why not: nobody waits for a thread that is not
   there.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any

from offsetlog.core.group.requests import CommitRequest
from offsetlog.errors import OffsetLogError, StorageError

MOST_WAITING = 1000
Committed = Callable[[dict[Any, Any], OffsetLogError | None], None]
"""(offsets, error or None)."""


class CommitQueue:
    def __init__(self, make: Callable[[CommitRequest], None], name: str) -> None:
        self._make = make
        self._name = name
        self._changed = threading.Condition()
        self._waiting: deque[tuple[CommitRequest, Committed | None, Future[None]]] = deque()
        self._done: deque[tuple[Committed, dict[Any, Any], OffsetLogError | None]] = deque()
        self._running = False

    def submit(self, request: CommitRequest, callback: Committed | None) -> Future[None]:
        answer: Future[None] = Future()
        with self._changed:
            while len(self._waiting) >= MOST_WAITING:
                self._changed.wait()
            if not self._running:
                self._start()
            self._waiting.append((request, callback, answer))
        return answer

    def _start(self) -> None:
        """Held: the condition, so that the thread finds what is put in the queue next."""
        try:
            threading.Thread(target=self._run, name=self._name, daemon=True).start()
        except RuntimeError as error:
            raise StorageError(
                f"The thread that commits can't be started: {error}. Nothing was committed.",
                "Use commit(), or end some threads and try again.",
            ) from None
        self._running = True

    def _run(self) -> None:
        try:
            while self._make_next():
                pass
        except BaseException:
            with self._changed:
                self._running = False
                self._changed.notify_all()
            raise

    def _make_next(self) -> bool:
        with self._changed:
            if not self._waiting:
                # Under the same lock as the look: who comes now starts another thread.
                self._running = False
                self._changed.notify_all()
                return False
            request, callback, answer = self._waiting.popleft()
            self._changed.notify_all()
        if not answer.set_running_or_notify_cancel():
            return True
        error: BaseException | None = None
        try:
            if request.offsets:
                self._make(request)
        except BaseException as failed:  # noqa: BLE001 - it belongs to who asked
            error = failed
        if callback is not None:
            ours = error if isinstance(error, OffsetLogError) else None
            self._done.append((callback, dict(request.offsets), ours))
        if error is None:
            answer.set_result(None)
        else:
            answer.set_exception(error)
        return True

    def drain(self) -> None:
        """Wait for all that was asked for; then tell."""
        with self._changed:
            while self._running or self._waiting:
                if not self._running:
                    self._start()
                self._changed.wait()
        self.deliver()

    def deliver(self) -> None:
        while self._done:
            callback, offsets, error = self._done.popleft()
            callback(offsets, error)
