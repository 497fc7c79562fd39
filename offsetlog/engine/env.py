"""The outside world that is not storage: clock, ids, chance, waiting, threads, limits.

Everything in ``offsetlog.client`` and ``offsetlog.engine`` that needs one of them takes it from an
``Env``, so that a whole run can be replayed from a seed. Only this module asks the real ones.
"""

from __future__ import annotations

import random
import secrets
import sys
import threading
import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from functools import partial
from typing import NamedTuple

from offsetlog.core.topic import landing, publish, rewrite
from offsetlog.format import entries, record_schema, snapshots

Spawn = Callable[[Callable[[], object], str], object]
"""Runs a function in a thread of that name; ``RuntimeError`` where none can be started."""


def _spawn(work: Callable[[], object], name: str) -> None:
    threading.Thread(target=work, name=name, daemon=True).start()


class Limits(NamedTuple):
    """How much at once: what a process may choose, and others need not agree with."""

    inline_bytes: int = entries.INLINE_BYTES
    """Up to so many bytes of rows travel in the entry; more go to segments."""
    row_group_records: int = record_schema.ROW_GROUP_RECORDS
    recent_bytes: int = 32 * 1024 * 1024
    """What the newest entries of all topics of a log may take in memory, so that reading what was
    just folded is free."""
    window: int = 16
    """The most names that are asked for at once while catching up."""
    leaves_kept: int = 8
    """Leaves of the index that a topic keeps in memory."""
    many_senders: int = snapshots.MANY_SENDERS
    """More than these are stored in a file of their own."""
    whole_bytes: int = 8 * 1024 * 1024
    """A segment up to this size is read with one request."""
    plan_records: int = 1_000_000
    """The most that one plan of a read covers."""
    min_files: int = rewrite.MIN_FILES
    runs_per_entry: int = 64
    """Rewritten runs that one entry names."""
    senders_kept: int = 4096
    snapshots_kept: int = 3
    commit_retry_seconds: float = 0.5
    """After this a query makes a commit again that failed."""
    owner_session_ms: int = 45_000
    """Another query takes the group of a query that has been silent for so long."""
    owner_heartbeat_ms: int = 10_000
    publishing: publish.IndexLimits = publish.LIMITS
    landing: landing.LandingLimits = landing.LIMITS


class Env(NamedTuple):
    now_ms: Callable[[], int]
    """Wall clock, milliseconds since the epoch. Nothing that is promised rests on it."""
    monotonic: Callable[[], float]
    """Seconds, for waits and time limits. It may stand still while the machine sleeps."""
    new_id: Callable[[], str]
    """32 hex digits that nobody else has."""
    chance: Callable[[], float]
    """In [0, 1)."""
    sleep: Callable[[float], None]
    now_ns: Callable[[], int] | None = None
    """The wall clock in nanoseconds, where there is a cheap one; else ``now_ms`` serves."""
    spawn: Spawn = _spawn
    """Starts a thread; a simulation runs the work at once, in the thread that asks."""
    new_lock: Callable[[], AbstractContextManager[object]] = threading.RLock
    """What guards the state of an open topic: a simulation gives locks between its fibers."""
    limits: Limits = Limits()
    boottime: Callable[[], float] | None = None
    """``monotonic`` with the time in which the machine slept, where there is such a clock."""

    def elapsed(self) -> float:
        """Seconds, for the age of what is remembered: those of a sleep count."""
        return (self.boottime or self.monotonic)()

    def stamp(self) -> Callable[[], int]:
        """The cheapest clock for stamping records: nanoseconds."""
        if self.now_ns is not None:
            return self.now_ns
        now_ms = self.now_ms
        return lambda: now_ms() * 1_000_000


def _now_ms() -> int:
    return time.time_ns() // 1_000_000


def _clock_with_sleep() -> Callable[[], float] | None:
    # macOS counts a sleep under the name under which Linux does not.
    name = "CLOCK_MONOTONIC" if sys.platform == "darwin" else "CLOCK_BOOTTIME"
    clock = getattr(time, name, None)
    return None if clock is None else partial(time.clock_gettime, clock)


_new_id = partial(secrets.token_hex, 16)
REAL = Env(
    _now_ms,
    time.monotonic,
    _new_id,
    random.random,
    time.sleep,
    time.time_ns,
    boottime=_clock_with_sleep(),
)
