"""Commits that a consumer does not wait for.

Invariants:

1. They are made one after another, in the order in which they were asked for.
2. Callbacks run in the consumer's own thread, at its next poll, commit or close.
3. At most ``MOST_WAITING`` wait: then the caller waits too.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any

from ..errors import OffsetLogError
from ..group.requests import Commit

MOST_WAITING = 1000
Committed = Callable[[dict[Any, Any], OffsetLogError | None], None]
"""(offsets, error or None)."""


class Commits:
    def __init__(self, make: Callable[[Commit], None], name: str) -> None:
        self._make = make
        self._name = name
        self._changed = threading.Condition()
        self._waiting: deque[tuple[Commit, Committed | None, Future[None]]] = deque()
        self._done: deque[tuple[Committed, dict[Any, Any], OffsetLogError | None]] = deque()
        self._running = False

    def submit(self, request: Commit, callback: Committed | None) -> Future[None]:
        answer: Future[None] = Future()
        with self._changed:
            while len(self._waiting) >= MOST_WAITING:
                self._changed.wait()
            self._waiting.append((request, callback, answer))
            if not self._running:
                self._running = True
                threading.Thread(target=self._run, name=self._name, daemon=True).start()
        return answer

    def _run(self) -> None:
        while True:
            with self._changed:
                if not self._waiting:
                    self._running = False
                    self._changed.notify_all()
                    return
                request, callback, answer = self._waiting.popleft()
                self._changed.notify_all()
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

    def drain(self) -> None:
        """Wait for all that was asked for; then tell."""
        with self._changed:
            while self._running:
                self._changed.wait()
        self.deliver()

    def deliver(self) -> None:
        while self._done:
            callback, offsets, error = self._done.popleft()
            callback(offsets, error)
