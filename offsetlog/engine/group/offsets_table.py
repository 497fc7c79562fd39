"""The one writer of the offsets table in a process: looks, decides, appends, for all groups.

Invariants:

1. ``table`` is the true fold of the facts up to its version. It only moves forward.
2. An append goes to exactly the version it was decided on. On a conflict what is new is
   folded and everything is decided again; a refusal counts only on fresh knowledge.
3. After an append without an answer the same facts go to the same version again, until they are
   seen in the table or that version is seen to be another's. Until then nothing else is appended.
4. Requests that wait while another append is on its way share the next one.
5. A conflict that does not end is an error, after a bounded number of tries.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from concurrent.futures import Executor, Future
from copy import copy
from typing import NamedTuple

from offsetlog.core.group.decide import Accepted, Decision, Outcome, Refused, decide
from offsetlog.core.group.fold import fold
from offsetlog.core.group.requests import Request
from offsetlog.core.group.state import EMPTY, GroupsState
from offsetlog.engine.env import Env
from offsetlog.errors import OffsetLogError, StorageError
from offsetlog.logs import get_logger
from offsetlog.storage import forks
from offsetlog.storage.faults import SilenceError
from offsetlog.storage.offsets.port import OffsetsPort, Upkeep
from offsetlog.storage.store import Committed, Unknown

logger = get_logger(__name__)

MAX_CONFLICTS = 200
MAX_UNANSWERED = 5
TIDY_EVERY = 50
CHECKPOINT_EVERY = 100
MAX_PAUSE_SECONDS = 0.25


class _Waiting(NamedTuple):
    requests: tuple[Request, ...]
    outcomes: Future[tuple[Outcome, ...]]


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
        self._queue: list[_Waiting] = []
        self._unanswered: Decision | None = None
        """What was appended without an answer, until it is known whether it is in the table."""
        self._tidying = False
        self._checkpointed = -1

    # --- looking ---------------------------------------------------------------------------

    @property
    def table(self) -> GroupsState:
        return self._table

    def is_fresh(self, max_age: float) -> bool:
        """Whether ``look`` gives the table without a request."""
        looked_at = self._looked_at
        return looked_at is not None and self.env.monotonic() - looked_at < max_age

    def look(self, max_age: float = 0.0) -> GroupsState:
        """The table as it is now, or as it was at most ``max_age`` seconds ago."""
        forks.check(self._made_in)
        began = self.env.monotonic()
        if max_age and self._looked_at is not None and began - self._looked_at < max_age:
            return self._table
        with self._work:
            if self._looked_at is None or self._looked_at <= began:
                self._refresh()
            return self._table

    def _refresh(self) -> frozenset[str]:
        """Fold what is new; its write ids."""
        if not self._opened:
            self._table = self.port.checkpoint()
            self._checkpointed = self._table.version
            self._opened = True
        began = self.env.monotonic()
        news = self.port.read(self._table.version)
        if news.anew:
            logger.warning("Somebody changed rows of %s: it is folded anew", self.port.url)
            self._table = fold(EMPTY, news.facts, news.version)
            self._checkpoint()
        elif news.version > self._table.version:
            self._table = fold(self._table, news.facts, news.version)
        self._looked_at = began
        if self._table.version - self._checkpointed >= CHECKPOINT_EVERY:
            self._checkpoint()
        if self._unanswered is not None and self._table.version >= self._unanswered.version:
            self._unanswered = None
        return frozenset(fact.write_id for fact in news.facts)

    def _checkpoint(self) -> None:
        self._checkpointed = self._table.version
        self.port.store_checkpoint(self._table)

    # --- changing ----------------------------------------------------------------------------

    def ask(self, *requests: Request) -> tuple[Outcome, ...]:
        """What became of each request; returns when their facts are in the table."""
        forks.check(self._made_in)
        if not requests:
            return ()
        waiting = _Waiting(requests, Future())
        with self._queue_lock:
            self._queue.append(waiting)
        with self._work:
            if not waiting.outcomes.done():
                with self._queue_lock:
                    batch, self._queue = self._queue, []
                self._answer(batch)
        return waiting.outcomes.result()

    def accept(self, *requests: Request) -> tuple[Accepted, ...]:
        """As ``ask``; the first refusal is raised."""
        accepted = []
        for outcome in self.ask(*requests):
            if isinstance(outcome, Refused):
                raise outcome.error
            accepted.append(outcome)
        return tuple(accepted)

    def _answer(self, batch: list[_Waiting]) -> None:
        try:
            outcomes = self._change([request for waiting in batch for request in waiting.requests])
        except BaseException as error:  # noqa: BLE001 - it belongs to those who wait
            for waiting in batch:
                waiting.outcomes.set_exception(_copy(error))
            if not isinstance(error, Exception):
                raise  # Ctrl-C is this thread's; the others get an error that says what it means.
            return
        first = 0
        for waiting in batch:
            waiting.outcomes.set_result(outcomes[first : first + len(waiting.requests)])
            first += len(waiting.requests)

    def _change(self, requests: Sequence[Request]) -> tuple[Outcome, ...]:
        """Decide and append until both hold at one version."""
        fresh = False
        if not self._opened or self._unanswered is not None:
            # Before anything else is appended: what became of the last append?
            self._refresh()
            if self._unanswered is not None:
                self._append(self._unanswered)
            fresh = True
        for conflicts in range(MAX_CONFLICTS):
            decision = decide(self._table, requests, self.env.now_ms(), self.env.new_id())
            if not decision.facts:
                if fresh or all(
                    isinstance(o, Accepted) and not o.unchanged for o in decision.outcomes
                ):
                    return decision.outcomes
                self._refresh()
            elif decision.version == 0:
                self.port.create()
                self._refresh()
            elif self._append(decision):
                return decision.outcomes
            else:
                logger.debug("Version %d of %s is another's", decision.version, self.port.url)
                self._pause(conflicts)
            fresh = True
        raise StorageError(
            f"Others wrote to the offsets table {self.port.url} first, {MAX_CONFLICTS} times in a "
            "row.",
            "Nothing was changed. Try again; fewer programs that commit less often help.",
        )

    def _append(self, decision: Decision) -> bool:
        """Whether the decision is in the table; if not, it never will be."""
        errors: list[str] = []
        write_id = decision.facts[0].write_id
        while len(errors) < MAX_UNANSWERED:
            try:
                result = self.port.append(decision.facts, decision.version)
            except StorageError as error:
                if self._unanswered is None:
                    raise
                result = Unknown(str(error), isinstance(error, SilenceError))
            if isinstance(result, Committed):
                self._table = decision.table
                self._unanswered = None
                self._look_after(decision.version)
                return True
            if isinstance(result, Unknown):
                logger.warning(
                    "No answer to the append of version %d of %s: %s",
                    decision.version,
                    self.port.url,
                    result.error,
                )
                errors.append(result.error)
                self._unanswered = decision
                if result.waited:
                    break
                self.env.sleep(0.05 * 2 ** len(errors) * (0.5 + self.env.chance()))
            try:
                write_ids = self._refresh()
            except OffsetLogError as error:
                if self._unanswered is None:
                    raise
                errors.append(str(error))
                if isinstance(error, SilenceError):
                    break
                continue
            if write_id in write_ids:
                return True
            if self._table.version >= decision.version:
                return False
            if not isinstance(result, Unknown):
                errors.append("the version is taken, but cannot be read")
                self.env.sleep(0.02)
        raise StorageError(
            f"The offsets table {self.port.url} did not answer: {errors[-1]}",
            "It may have been written. Ask again, or look at the group.",
            may_have_landed=self._unanswered is not None,
        )

    def _pause(self, conflicts: int) -> None:
        """Losers of a race spread out, and wait longer when there are many of them."""
        longest = min(MAX_PAUSE_SECONDS, 0.004 * 2 ** min(conflicts, 6))
        self.env.sleep(longest * self.env.chance())

    # --- upkeep ----------------------------------------------------------------------------

    def maintain(self, grace_ms: int) -> Upkeep:
        """Store the state, and do all the upkeep that the table needs."""
        forks.check(self._made_in)
        with self._work:
            self._refresh()
            return self.port.maintain(self._table, grace_ms)

    def _look_after(self, version: int) -> None:
        if version - self._checkpointed >= CHECKPOINT_EVERY:
            self._checkpoint()
        if version % TIDY_EVERY or self._tidying:
            return
        self._tidying = True
        if self._pool is None:
            self._tidy()
            return
        try:
            self._pool.submit(self._tidy)
        except RuntimeError:
            self._tidying = False  # The log is being closed.

    def _tidy(self) -> None:
        try:
            self.port.tidy()
        except OffsetLogError as error:
            logger.info("The offsets table %s was not tidied: %s", self.port.url, str(error))
        finally:
            self._tidying = False


def _copy(error: BaseException) -> BaseException:
    """An exception object of its own for each who waits."""
    if isinstance(error, OffsetLogError):
        return copy(error)
    if isinstance(error, Exception):
        return error
    return StorageError(
        "The append to the offsets table was interrupted.",
        "It may have been written. Ask again, or look at the group.",
        may_have_landed=True,
    )
