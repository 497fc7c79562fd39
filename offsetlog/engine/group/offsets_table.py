"""The one writer of the offsets table in a process: looks, decides, appends, for all groups.

Invariants:

1. ``table`` is the true fold of the facts up to its version. It only moves forward.
2. An append goes to exactly the version it was decided on. On a conflict what is new is
   folded and everything is decided again; a refusal counts only on fresh knowledge.
3. After an answer was lost, the same facts go to the same version again, until they are seen
   in the table or that version is seen to be another's. Until then nothing else is appended.
4. Requests that wait while another append is on its way share the next one.
5. A conflict that does not end is an error, after a bounded number of tries.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Executor, Future
from typing import NamedTuple

from offsetlog.core.group.decide import Accepted, Decision, Outcome, Refused, decide
from offsetlog.core.group.fold import fold
from offsetlog.core.group.requests import Request
from offsetlog.core.group.state import EMPTY, GroupsState
from offsetlog.engine.env import Env
from offsetlog.errors import OffsetLogError, StorageError
from offsetlog.storage import forks
from offsetlog.storage.offsets.port import OffsetsPort, Upkeep
from offsetlog.storage.store import Committed, Unknown

TRIES = 200
UNANSWERED = 5
TIDY_EVERY = 50
CHECKPOINT_EVERY = 100
LONGEST_PAUSE = 0.25


class _Asked(NamedTuple):
    requests: tuple[Request, ...]
    answer: Future[tuple[Outcome, ...]]


class OffsetsTable:
    """Threads may share it."""

    def __init__(self, port: OffsetsPort, env: Env, pool: Executor | None = None) -> None:
        self.port = port
        self.env = env
        self._pool = pool
        self._table = EMPTY
        self._made_in = forks.process()
        self._opened = False
        self._looked_at: float | None = None
        self._work = threading.RLock()
        self._queue_lock = threading.Lock()
        self._queue: list[_Asked] = []
        self._open_fate: Decision | None = None
        self._tidying = False
        self._stored = -1
        self.appends = 0

    # --- looking ---------------------------------------------------------------------------

    @property
    def table(self) -> GroupsState:
        return self._table

    def look(self, max_age: float = 0.0) -> GroupsState:
        """The table as it is now, or as it was at most ``max_age`` seconds ago."""
        forks.check(self._made_in)
        if max_age and self._is_young(max_age):
            return self._table
        asked_at = self.env.monotonic()
        with self._work:
            if self._looked_at is None or self._looked_at <= asked_at:
                self._look()
            return self._table

    def _is_young(self, max_age: float) -> bool:
        return self._looked_at is not None and self.env.monotonic() - self._looked_at < max_age

    def _look(self) -> tuple[str, ...]:
        """Fold what is new; the write ids that were met."""
        if not self._opened:
            self._table = self.port.checkpoint()
            self._stored = self._table.version
            self._opened = True
        before = self.env.monotonic()
        news = self.port.read(self._table.version)
        self._table = fold(self._table, news.facts, news.version)
        self._looked_at = before
        if self._table.version - self._stored >= CHECKPOINT_EVERY:
            self._checkpoint()
        made = self._open_fate
        if made is not None and self._table.version >= made.version:
            self._open_fate = None
        return tuple({fact.write_id for fact in news.facts})

    def _checkpoint(self) -> None:
        self._stored = self._table.version
        self.port.store_checkpoint(self._table)

    # --- asking ----------------------------------------------------------------------------

    def ask(self, *requests: Request) -> tuple[Outcome, ...]:
        """What each request came to; returns when their facts are in the table."""
        forks.check(self._made_in)
        if not requests:
            return ()
        asked = _Asked(requests, Future())
        with self._queue_lock:
            self._queue.append(asked)
        with self._work:
            if not asked.answer.done():
                with self._queue_lock:
                    batch, self._queue = self._queue, []
                self._serve(batch)
        return asked.answer.result()

    def accept(self, *requests: Request) -> tuple[Accepted, ...]:
        """As ``ask``; the first refusal is raised."""
        out = []
        for outcome in self.ask(*requests):
            if isinstance(outcome, Refused):
                raise outcome.error
            out.append(outcome)
        return tuple(out)

    def _serve(self, batch: list[_Asked]) -> None:
        requests = [request for asked in batch for request in asked.requests]
        try:
            outcomes = self._land(requests)
        except BaseException as error:  # noqa: BLE001 - it belongs to those who wait
            for asked in batch:
                asked.answer.set_exception(_own(error))
            if not isinstance(error, Exception):
                raise  # Ctrl-C is this thread's; the others get an error that says what it means.
            return
        at = 0
        for asked in batch:
            asked.answer.set_result(outcomes[at : at + len(asked.requests)])
            at += len(asked.requests)

    def _land(self, requests: Sequence[Request]) -> tuple[Outcome, ...]:
        fresh = False
        if not self._opened or self._open_fate is not None:
            self._settle_old()
            fresh = True
        for attempt in range(TRIES):
            made = decide(self._table, requests, self.env.now_ms(), self.env.new_id())
            if not made.facts:
                if fresh or not any(isinstance(o, Refused) or o.unchanged for o in made.outcomes):
                    return made.outcomes
                self._look()
                fresh = True
                continue
            if made.version == 0:
                self.port.create()
                self._look()
                fresh = True
                continue
            if self._append(made):
                return made.outcomes
            fresh = True
            self._pause(attempt)
        raise StorageError(
            f"Others wrote to the offsets table {self.port.url} first, {TRIES} times in a row.",
            "Nothing was changed. Try again; fewer programs that commit less often help.",
        )

    def _append(self, made: Decision) -> bool:
        """Whether the decision is in the table; if not, it never will be."""
        errors: list[str] = []
        write_id = made.facts[0].write_id
        while len(errors) < UNANSWERED:
            try:
                result = self.port.append(made.facts, made.version)
            except StorageError as error:
                if self._open_fate is None:
                    raise
                result = Unknown(str(error))
            self.appends += 1
            if isinstance(result, Committed):
                self._table = made.table
                self._open_fate = None
                self._after(made.version)
                return True
            if isinstance(result, Unknown):
                errors.append(result.error)
                self._open_fate = made
                self.env.sleep(0.05 * 2 ** len(errors) * (0.5 + self.env.chance()))
            try:
                met = self._look()
            except OffsetLogError as error:
                if self._open_fate is None:
                    raise
                errors.append(str(error))
                continue
            if write_id in met:
                return True
            if self._table.version >= made.version:
                return False
            if not isinstance(result, Unknown):
                errors.append("the version is taken, but cannot be read")
                self.env.sleep(0.02)
        raise StorageError(
            f"No answer came from the offsets table {self.port.url}: {errors[-1]}",
            "It may have been written. Ask again, or look at the group.",
            may_have_landed=self._open_fate is not None,
        )

    def _settle_old(self) -> None:
        """Before anything else is appended, find out about what was left open."""
        self._look()
        made = self._open_fate
        if made is not None:
            self._append(made)

    def _pause(self, attempt: int) -> None:
        """Losers of a race spread out, and wait longer when there are many of them."""
        most = min(LONGEST_PAUSE, 0.004 * 2 ** min(attempt, 6))
        self.env.sleep(most * self.env.chance())

    # --- upkeep ----------------------------------------------------------------------------

    def maintain(self, grace_ms: int) -> Upkeep:
        """Store the state, and do all the upkeep that the table needs."""
        forks.check(self._made_in)
        with self._work:
            self._look()
            return self.port.maintain(self._table, grace_ms)

    def _after(self, version: int) -> None:
        if version - self._stored >= CHECKPOINT_EVERY:
            self._checkpoint()
        if version % TIDY_EVERY == 0 and not self._tidying:
            self._tidying = True
            self._background(lambda: self._tidy(version))

    def _background(self, work: Callable[[], None]) -> None:
        if self._pool is None:
            work()
            return
        try:
            self._pool.submit(work)
        except RuntimeError:
            self._tidying = False  # The log is being closed.

    def _tidy(self, version: int) -> None:
        try:
            self.port.tidy(version)
        except OffsetLogError:
            return  # Whoever comes next does it.
        finally:
            self._tidying = False


def _own(error: BaseException) -> BaseException:
    """An exception object of its own for each who waits."""
    if isinstance(error, OffsetLogError):
        return type(error)(
            error.message,
            error.hint,
            retryable=error.retryable,
            may_have_landed=error.may_have_landed,
        )
    if isinstance(error, Exception):
        return error
    return StorageError(
        "The append to the offsets table was interrupted.",
        "It may have been written. Ask again, or look at the group.",
        may_have_landed=True,
    )
