"""The looks that all open pages share, and the rates between them.

Invariants:

1. However many pages ask, there is one look at a time, and the next one is not taken before
   ``pause`` has passed: a look takes at most a tenth of the time, and on a network at most 20
   requests a second. Nobody asking costs nothing.
2. A look that fails fails for whoever asks, and is not tried again before the pause has passed.
3. Memory is bounded: one look, and of those of the last minute the ends of the topics.
"""

from __future__ import annotations

import threading
from collections import deque
from typing import NamedTuple

from offsetlog.client.log import Log
from offsetlog.client.overview import Overview
from offsetlog.errors import OffsetLogError, StorageError
from offsetlog.page.changes import Changes

LOCAL_SECONDS = 1.0
REMOTE_SECONDS = 5.0
REQUESTS_A_SECOND = 20
BUSY_SHARE = 0.1
RATE_SECONDS = 60.0
MAX_ENDS = 60
PATIENCE_SECONDS = 20.0


class Look(NamedTuple):
    at: int
    """Milliseconds since 1970."""
    seen: Overview


class _Ends(NamedTuple):
    at: float
    ends: dict[str, int]


class Looks:
    """The newest look at a log."""

    def __init__(self, log: Log, changes: Changes) -> None:
        self._log = log
        self._changes = changes
        self._lock = threading.Lock()
        self._newest: Look | None = None
        self._failure: OffsetLogError | None = None
        self._next_at = float("-inf")
        self._ends: deque[_Ends] = deque(maxlen=MAX_ENDS)
        self.pause = LOCAL_SECONDS if log.store.is_local else REMOTE_SECONDS

    def newest(self) -> Look:
        """The newest look; another one is taken if it is time."""
        if not self._lock.acquire(timeout=PATIENCE_SECONDS):
            raise StorageError("The storage has not answered for a while.", "Try again.")
        try:
            if self._log.env.monotonic() >= self._next_at:
                self._look()
            if self._failure is not None:
                raise self._failure.with_traceback(None)
            assert self._newest is not None
            return self._newest
        finally:
            self._lock.release()

    def expire(self) -> None:
        """Something was changed: the next one who asks gets a new look."""
        self._next_at = float("-inf")

    def _look(self) -> None:
        began = self._log.env.monotonic()
        try:
            look = Look(self._log.env.now_ms(), self._log.overview())
            self._failure = None
            if self._newest is not None:
                self._changes.notice(self._newest.seen, look.seen, look.at)
            self._newest = look
            topics = look.seen.topics
            ends = {topic.name: sum(p.end_offset for p in topic.partitions) for topic in topics}
            self._ends.append(_Ends(began, ends))
        except OffsetLogError as error:
            self._failure = error
        now = self._log.env.monotonic()
        self.pause = self._pause_after(now - began)
        self._next_at = now + self.pause

    def _pause_after(self, seconds: float) -> float:
        if self._log.store.is_local:
            return max(LOCAL_SECONDS, seconds / BUSY_SHARE)
        topics = 0 if self._newest is None else len(self._newest.seen.topics)
        return max(REMOTE_SECONDS, seconds / BUSY_SHARE, (topics + 3) / REQUESTS_A_SECOND)

    def rates(self) -> dict[str, float]:
        """Records a second that came to each topic, over the last minute or so; nothing before
        there are two looks."""
        kept = list(self._ends)
        if len(kept) < 2:
            return {}
        newest = kept[-1]
        within = [one for one in kept[:-1] if newest.at - one.at <= RATE_SECONDS]
        oldest = within[0] if within else kept[-2]
        seconds = max(newest.at - oldest.at, 1e-3)
        return {
            name: (end - oldest.ends[name]) / seconds
            for name, end in newest.ends.items()
            if name in oldest.ends
        }
