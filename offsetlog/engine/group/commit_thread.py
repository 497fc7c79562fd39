"""The thread that makes commits beside a consumer or a query.

Invariants:

1. It exists only while there is work, and there is one at a time.
2. Work that is added under ``changed``, with ``wake`` called under the same lock, gets done: the
   thread ends under that lock, when it has found nothing, and the next ``wake`` starts another.
3. What the work raises ends the thread; the next ``wake`` starts another.
"""

from __future__ import annotations

import threading
from collections.abc import Callable

from offsetlog.engine.env import REAL, Spawn
from offsetlog.errors import StorageError

NextWork = Callable[[], Callable[[], None] | None]
"""Called with ``changed`` held: what to do next without it; None when there is nothing."""


class CommitThread:
    def __init__(self, next_work: NextWork, name: str, spawn: Spawn = REAL.spawn) -> None:
        self._next_work = next_work
        self._name = name
        self._spawn = spawn
        self.changed = threading.Condition()
        """Guards what ``next_work`` looks at; notified whenever the thread ends."""
        self.running = False

    def wake(self) -> None:
        """Make sure that the thread runs. Call it with ``changed`` held."""
        if self.running:
            return
        self.running = True
        try:
            self._spawn(self._run, self._name)
        except RuntimeError as error:
            self.running = False
            raise StorageError(
                f"The thread that commits can't be started: {error}. Nothing was committed.",
                "Use commit(), or end some threads and try again.",
            ) from None

    def wait(self, longest: float | None = None) -> bool:
        """Wait until all work is done, for at most ``longest`` seconds; whether it is."""
        with self.changed:
            return self.changed.wait_for(lambda: not self.running, longest)

    def _run(self) -> None:
        try:
            while True:
                with self.changed:
                    work = self._next_work()
                    if work is None:
                        self._end()
                        return
                work()
        except BaseException:
            with self.changed:
                self._end()
            raise

    def _end(self) -> None:
        self.running = False
        self.changed.notify_all()
