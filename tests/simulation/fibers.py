"""Fibers: functions that run until they pause, one at a time, in an order that a seed decides.

Invariants:

1. Exactly one fiber, or the scheduler, runs at any moment.
2. A pause returns, or raises what the scheduler wants it to raise (the death of a process).

With ``greenlet`` a switch takes some 3 microseconds; without it each fiber is a thread and a
baton is passed, which takes some 40. The histories are the same.
"""

from __future__ import annotations

import threading
from collections.abc import Callable

try:
    import greenlet
except ImportError:  # a plain installation: threads do
    greenlet = None


class _ThreadFiber:
    def __init__(self, body: Callable[[], None]) -> None:
        self.done = False
        self._body = body
        self._go, self._back = threading.Semaphore(0), threading.Semaphore(0)
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        self._go.acquire()
        try:
            self._body()
        finally:
            self.done = True
            self._back.release()

    def resume(self) -> None:
        self._go.release()
        self._back.acquire()

    def pause(self) -> None:
        self._back.release()
        self._go.acquire()


class _GreenFiber:
    def __init__(self, body: Callable[[], None]) -> None:
        self._scheduler = greenlet.getcurrent()
        self._green = greenlet.greenlet(body)

    @property
    def done(self) -> bool:
        return bool(self._green.dead)

    def resume(self) -> None:
        self._scheduler = greenlet.getcurrent()
        self._green.switch()

    def pause(self) -> None:
        self._scheduler.switch()


def fiber(body: Callable[[], None]) -> _ThreadFiber | _GreenFiber:
    return _ThreadFiber(body) if greenlet is None else _GreenFiber(body)


Fiber = _ThreadFiber | _GreenFiber
