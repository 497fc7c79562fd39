"""The outside world that is not storage: clock, ids, chance, waiting and threads.

Everything in ``offsetlog.client`` and ``offsetlog.engine`` that needs one of them takes it from an
``Env``, so that a whole run can be replayed from a seed. Only this module asks the real ones.
"""

from __future__ import annotations

import random
import threading
import time
import uuid
from collections.abc import Callable
from typing import NamedTuple

Spawn = Callable[[Callable[[], object], str], object]
"""Runs a function in a thread of that name; ``RuntimeError`` where none can be started."""


def _spawn(work: Callable[[], object], name: str) -> None:
    threading.Thread(target=work, name=name, daemon=True).start()


class Env(NamedTuple):
    now_ms: Callable[[], int]
    """Wall clock, milliseconds since the epoch. Nothing that is promised rests on it."""
    monotonic: Callable[[], float]
    """Seconds, for waits and time limits."""
    new_id: Callable[[], str]
    """32 hex digits that nobody else has."""
    chance: Callable[[], float]
    """In [0, 1)."""
    sleep: Callable[[float], None]
    now_ns: Callable[[], int] | None = None
    """The wall clock in nanoseconds, where there is a cheap one; else ``now_ms`` serves."""
    spawn: Spawn = _spawn
    """Starts a thread; a simulation runs the work at once, in the thread that asks."""

    def stamp(self) -> Callable[[], int]:
        """The cheapest clock for stamping records: nanoseconds."""
        if self.now_ns is not None:
            return self.now_ns
        now_ms = self.now_ms
        return lambda: now_ms() * 1_000_000


def _now_ms() -> int:
    return time.time_ns() // 1_000_000


def _new_id() -> str:
    return uuid.uuid4().hex


REAL = Env(_now_ms, time.monotonic, _new_id, random.random, time.sleep, time.time_ns)
