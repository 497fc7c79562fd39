"""A query's side of its group: it owns the group alone, and commits what was processed.

Invariants:

1. The newest query owns the group; an older one learns by name who took it, and reads no
   further.
2. Commits are made in a thread of their own, the newest progress in place of all before it.
   A query waits for one at most ``LONGEST_WAIT``, and for one that did not end in that time not
   again: until it ends the query goes on with what it knew of the group. A query that has
   nothing more to do waits ``LAST_WAIT``.
3. A commit carries the reset number that its progress has followed: what was reset since is
   passed over.
"""

from __future__ import annotations

import getpass
import os
import socket
import threading
from collections.abc import Iterable

from offsetlog.client.log import Log
from offsetlog.core.group.facts import OffsetAndMetadata, Subscription
from offsetlog.core.group.membership import resets_since, standing
from offsetlog.core.group.requests import CommitRequest, JoinRequest, LeaveRequest
from offsetlog.core.group.state import GroupState
from offsetlog.errors import FencedError, OffsetLogError
from offsetlog.values import TopicPartition
from pyspark_offsetlog.runtime.user_errors import warn
from pyspark_offsetlog.source.offsets import Positions

LONGEST_WAIT = 2.0
LAST_WAIT = 30.0
IDLE_LOOK = 0.1
RETRY = 0.5


class GroupOwner:
    def __init__(self, log: Log, group: str, client: str, topics: tuple[str, ...]) -> None:
        self.group = group
        self._log = log
        self._table = log.offsets_table
        self.member = f"{client or 'spark'}-{_whoami()}-{log.env.new_id()[:8]}"
        self._client = self.member
        self._topics = topics
        self._joined = -1
        self._generation = 0
        self._saved: Positions = {}
        self._changed = threading.Condition()
        self._waiting: tuple[Positions, int] | None = None
        self._working = False
        self._slow = False
        """A commit was waited for in vain; nobody waits for it again."""
        self._told = False
        """It was said that commits fail and are made again."""
        self._leaving = False
        self._gone = False

    # --- membership ------------------------------------------------------------------------

    def join(self) -> GroupState:
        """Take the group over; whoever held it is put out."""
        said = Subscription(self._topics, "sticky", 0, self._client, socket.gethostname(), True)
        self._table.accept(JoinRequest(self.group, self.member, said))
        group = self._table.table.group(self.group)
        known = group.members.get(self.member)
        if known is None:
            raise FencedError(f"Another query took the group {self.group!r} at the same moment.")
        self._joined, self._generation = known.joined, group.generation
        self._saved = {TopicPartition(*p): said.offset for p, said in group.positions.items()}
        return group

    def look(self, max_age: float) -> GroupState:
        """The group as it is now, or was ``max_age`` seconds ago; an error if it was taken."""
        if self.flush():
            group = self._table.look(max_age).group(self.group)
        else:
            group = self._table.table.group(self.group)
        stands = standing(group, self.member, self._joined)
        if isinstance(stands, FencedError):
            raise FencedError(
                f"This query no longer owns the group {self.group!r}. {stands.message}",
                "One query owns a group; give this one a group.id of its own.",
            )
        self._generation = stands.generation
        return group

    # --- progress --------------------------------------------------------------------------

    def submit(self, positions: Positions, followed: int) -> None:
        """Let these positions be committed soon, in place of any that still wait."""
        with self._changed:
            if self._leaving or not (self._working or self._moved(positions)):
                return
            self._waiting = (positions, followed)
            self._wake()

    def _wake(self) -> None:
        if not self._working:
            self._working = True
            threading.Thread(target=self._run, name="offsetlog-commit", daemon=True).start()

    def _run(self) -> None:
        while True:
            with self._changed:
                work, leaving = self._waiting, self._leaving
                if work is None and (self._gone or not leaving):
                    self._working = False
                    self._changed.notify_all()
                    return
                self._waiting = None
            try:
                self._do(*(work or ({}, 0)), leaving)
            except FencedError:
                self._gone = leaving  # The next look says who took the group.
            except Exception as error:  # noqa: BLE001 - this thread's end would stop the query
                self._again_or_warn(error, work, leaving)

    def _do(self, positions: Positions, followed: int, leaving: bool) -> None:
        moved = self._moved(positions)
        offsets = _said(moved)
        if leaving:
            wanted: CommitRequest | LeaveRequest = LeaveRequest(
                self.group, self.member, self._generation, followed, offsets
            )
        elif moved:
            wanted = CommitRequest(self.group, self.member, self._generation, followed, offsets)
        else:
            return
        [done] = self._table.accept(wanted)
        self._gone, self._told = leaving, False
        # What was reset meanwhile was passed over: the same offset may be reached once more.
        self._saved.update({tp: at for tp, at in moved.items() if tp not in done.dropped})

    def _again_or_warn(
        self, error: Exception, work: tuple[Positions, int] | None, leaving: bool
    ) -> None:
        if isinstance(error, OffsetLogError) and error.retryable:
            if not self._told:
                self._told = True
                warn(
                    f"The group {self.group!r} was not moved on, and its query follows no reset "
                    f"until it is; that is tried again and again: {error}"
                )
            with self._changed:
                self._waiting = self._waiting or work
                self._changed.wait(RETRY)
            return
        self._gone = leaving
        what = "still names this query as its owner" if leaving else "was not moved on"
        warn(f"The group {self.group!r} {what}: {error}")

    def _moved(self, positions: Positions) -> Positions:
        return {tp: at for tp, at in positions.items() if self._saved.get(tp) != at}

    def forget(self, reset: Iterable[TopicPartition]) -> None:
        """These were put elsewhere by a reset: what was saved of them before says nothing, nor
        does where they are read from, since the log need not have the place they were put to."""
        with self._changed:
            for tp in reset:
                self._saved.pop(tp, None)

    def flush(self) -> bool:
        """Wait for what was submitted, but not twice for the same; whether it is done with."""
        return self._wait(0.0 if self._slow else LONGEST_WAIT)

    def _wait(self, longest: float) -> bool:
        with self._changed:
            done = self._changed.wait_for(lambda: not self._working, longest)
            self._slow = not done
            return done

    @property
    def left(self) -> bool:
        return self._leaving

    def leave(self) -> None:
        """Give the group up, so that others need not put this query out. Best effort."""
        if self._leaving or self._joined < 0:
            return
        with self._changed:
            self._leaving = True
            self._wake()
        if not self._wait(LAST_WAIT):
            warn(f"The group {self.group!r} does not answer; the last progress may be missing.")


def moved_since(group: GroupState, number: int) -> Positions:
    """The partitions that were reset after reset ``number``, and where to."""
    return {TopicPartition(*p): offset for p, offset in resets_since(group, number).items()}


def _said(positions: Positions) -> dict[tuple[str, int], OffsetAndMetadata]:
    return {tuple(tp): OffsetAndMetadata(at) for tp, at in positions.items()}  # type: ignore[misc]


def _whoami() -> str:
    try:
        user = getpass.getuser()
    except (KeyError, OSError):
        user = "user"
    return f"{user}@{socket.gethostname()}-{os.getpid()}"
