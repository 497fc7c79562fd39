"""A query's side of its group: it owns the group alone, and commits what was processed.

Invariants:

1. One query owns the group. Another one fails while that one lives, which its heartbeats say; it
   takes the group over from one that has stopped, from one of the same checkpoint, and from any if
   the user says so. Who was expelled learns by name by whom, and reads no further. A query beats
   once its checkpoint has the id by which a restart of it is known. Before that, and where it is
   of a version that does not beat, the newer query takes the group over: a restart of it must
   never have to wait.
2. Commits are made beside the query, the newest progress in place of all before it. A query
   waits for one at most ``LONGEST_WAIT``, and for one that did not end in that time not again:
   until it ends the query goes on with what it knew of the group. A query that has nothing more
   to do waits ``LAST_WAIT``.
3. A commit carries the reset number that its progress has followed: what was reset since is
   passed over.
4. What the query reads, and from where while the group has no position there, is in its
   subscription, so that its lag is known before its first batch is done. Of each partition that
   is said once a run, when it is met first, which is what the checkpoint holds: later progress
   may be ahead of it.
"""

from __future__ import annotations

import getpass
import os
import socket
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import NamedTuple

from offsetlog.client.log import Log
from offsetlog.core.group.decide import Refused
from offsetlog.core.group.facts import (
    MAX_STARTS,
    OffsetAndMetadata,
    Partition,
    StartingPoint,
    Subscription,
)
from offsetlog.core.group.membership import standing
from offsetlog.core.group.refusal import known_as
from offsetlog.core.group.requests import CommitRequest, JoinRequest, LeaveRequest
from offsetlog.core.group.reset import OffsetSpan
from offsetlog.core.group.state import GroupState, Member
from offsetlog.engine import CommitThread, Heartbeat, HeartbeatTiming, wait_until_silent
from offsetlog.errors import FencedError, OffsetLogError
from offsetlog.logs import get_logger
from offsetlog.values import TopicPartition
from pyspark_offsetlog.runtime.user_errors import warn
from pyspark_offsetlog.source.offsets import Positions

logger = get_logger(__name__)

LONGEST_WAIT = 2.0
LAST_WAIT = 30.0
IDLE_LOOK = 0.1
JOIN_TRIES = 20
MAX_NAMES = 256 * 1024
"""Characters of the names of topics that a pattern finds; of more of them none is named."""


class _Progress(NamedTuple):
    """What was processed, to be committed."""

    positions: Positions
    followed: int
    is_last: bool = False
    """The group is given up with it."""


class GroupOwner:
    def __init__(
        self,
        log: Log,
        group: str,
        client: str,
        topics: Iterable[str],
        assigned: Iterable[Partition] = (),
        takeover: bool = False,
    ) -> None:
        self.group = group
        self.checkpoint = log.env.new_id()
        """The id that the query's checkpoint has, or will get."""
        self._takeover = takeover
        limits = log.env.limits
        self._timing = HeartbeatTiming(limits.owner_session_ms, limits.owner_heartbeat_ms)
        self._log = log
        self._beats = False
        self.member = f"{client or 'spark'}-{_user_and_host()}-{log.env.new_id()[:8]}"
        self.resets_at_join = 0
        """The group's reset number when the query took it over."""
        self.resets = 0
        """The same at the last look."""
        self.has_left = False
        self._table = log.offsets_table
        self._start: dict[Partition, int | None] = {tuple(tp): None for tp in assigned}  # type: ignore[misc]
        """What was said of where it begins."""
        self._only = bool(self._start)
        self._met: set[TopicPartition] = set()
        self._subscription = Subscription(
            _bounded(topics),
            "sticky",
            self._timing.session_ms,
            self.member,
            socket.gethostname(),
            True,
            self._starting_point(""),
        )
        self._unsaid = False
        """Whether the subscription is still to be written."""
        self._joined = -1
        self._generation = 0
        self._committed: Positions = {}
        self._newest = _Progress({}, 0)
        self._waiting: _Progress | None = None
        self._thread = CommitThread(self._next_commit, "offsetlog-commit", log.env.spawn)
        self._is_slow = False
        """A commit was waited for in vain; nobody waits for it again."""
        self._retry_seconds = log.env.limits.commit_retry_seconds
        self._is_unwritten = False
        """The subscription could not be written."""
        self._has_warned = False
        """A warning said that commits fail and are tried again."""

    # --- membership ------------------------------------------------------------------------

    def may_join_now(self) -> bool:
        """Whether no other query has the group that may live; its reset number is known then."""
        group = self._table.look(IDLE_LOOK).group(self.group)
        self.resets_at_join = self.resets = group.resets
        return group.owner is None or self._may_expel(group.owner)

    def _may_expel(self, owner: Member) -> bool:
        return self._takeover or owner.subscription.checkpoint in ("", self.checkpoint)

    def join(self, checkpoint: str | None = None) -> None:
        """Own the group. Another query that may live is watched until it is known. ``checkpoint``
        is the id that Spark's checkpoint has."""
        self.checkpoint = checkpoint or self.checkpoint
        self._subscription = self._subscription._replace(checkpoint=self.checkpoint)
        refused: OffsetLogError | None = None
        for _ in range(JOIN_TRIES):
            owner = self._table.look(IDLE_LOOK).group(self.group).owner
            if owner is not None and not self._may_expel(owner):
                self._wait_for(owner)
            expels = None if self._takeover else "" if owner is None else owner.name
            [outcome] = self._table.ask(
                JoinRequest(self.group, self.member, self._subscription, expels=expels)
            )
            refused = outcome.error if isinstance(outcome, Refused) else None
            if not isinstance(refused, FencedError):
                break
        if refused is not None:
            raise refused
        group = self._table.table.group(self.group)
        member = group.members.get(self.member)
        if member is None:
            raise FencedError(f"Another query took the group {self.group!r} at the same moment.")
        self._joined, self._generation = member.joined, group.generation
        self._committed = {TopicPartition(*p): at.offset for p, at in group.positions.items()}
        self.resets_at_join = self.resets = group.resets
        logger.info("The query took over the group %r as %r.", self.group, self.member)

    def _wait_for(self, owner: Member) -> None:
        name = known_as(self._table.table.group(self.group), owner.name)
        logger.warning("The group %r is owned by %s; it is waited for.", self.group, name)
        if not wait_until_silent(self._table, self.group, owner):
            raise FencedError(
                f"The group {self.group!r} is owned by the query {name}, which is running.",
                "Give this query a group.id of its own, or stop the other one first. "
                "group.takeover=true ends that one and takes its group.",
            )

    def hold(self, checkpoint: str | None) -> None:
        """Spark's checkpoint has this id: keep the group from queries of other checkpoints."""
        if checkpoint is None or self.has_left:
            return
        self.checkpoint = checkpoint
        if self._subscription.checkpoint != checkpoint:
            # It joined before Spark handed it the first batch of an earlier run.
            self._say(self._subscription._replace(checkpoint=checkpoint))
        if not self._beats:
            self._beat()

    def _say(self, subscription: Subscription) -> None:
        with self._thread.changed:
            self._subscription, self._unsaid, self._is_unwritten = subscription, True, False
            self._thread.wake()

    def _beat(self) -> None:
        """Begin to beat, in a thread of its own."""
        self._beats = True
        now = self._log.env.monotonic()
        about = (self.group, self.member, self._joined, self.member, self._timing, now)
        self._log.heartbeats.add(Heartbeat(*about, alone=True))

    def look(self, max_age: float) -> GroupState:
        """The group as it is now, or was ``max_age`` seconds ago; an error if it was taken."""
        is_settled = self.flush()
        table = self._table.look(max_age) if is_settled else self._table.table
        group = table.group(self.group)
        place = standing(group, self.member, self._joined)
        if isinstance(place, FencedError):
            if self.has_left:
                return group  # Given up beside this look, as the query ends.
            raise FencedError(
                f"This query no longer owns the group {self.group!r}. {place.message}",
                "One query owns a group; give this one a group.id of its own.",
            )
        self._generation, self.resets = place.generation, group.resets
        return group

    def declare(
        self,
        topics: Iterable[str],
        begins: Positions,
        spans: Mapping[TopicPartition, OffsetSpan],
    ) -> None:
        """Let those who look at the group know which topics are read, and where reading begins in
        the partitions in which it has no position yet."""
        if self.has_left:
            return
        positions = self._table.table.group(self.group).positions
        new = begins.keys() - self._met - positions.keys()
        self._met.update(begins)
        said = self._subscription._replace(topics=_bounded(topics))
        for tp in new:
            # New partitions are read from their start, so that need not be said of each.
            if self._only or tp not in spans or begins[tp] != spans[tp].start:
                self._start[tuple(tp)] = begins[tp]  # type: ignore[index]
        if new:
            said = said._replace(start=self._starting_point("" if self._only else "earliest"))
        if said != self._subscription or self._is_unwritten:
            self._say(said)

    def _starting_point(self, policy: str) -> StartingPoint | None:
        if len(self._start) > MAX_STARTS or not (policy or self._start):
            return None
        return StartingPoint(policy, dict(self._start), self._only)

    def _declare(self) -> None:
        """Runs beside the query."""
        try:
            self._table.accept(
                JoinRequest(self.group, self.member, self._subscription, self._generation)
            )
        except Exception as error:  # noqa: BLE001 - the next look says it, if it matters
            self._is_unwritten = True
            logger.warning(
                "Where the query begins was not said for the group %r: %s", self.group, str(error)
            )

    # --- progress --------------------------------------------------------------------------

    def submit(
        self, positions: Positions, followed: int, spans: Mapping[TopicPartition, OffsetSpan]
    ) -> None:
        """Let these positions be committed soon, in place of any that still wait: all before them
        was processed. Those that the log has not are left out: the checkpoint is another root's,
        or its topic was recreated. That is an error soon, and the group shall not stand there
        until somebody looks."""
        reached = {tp: at for tp, at in positions.items() if tp not in spans or at <= spans[tp].end}
        is_idle = self._thread.runner is None
        if self.has_left or (is_idle and not self._uncommitted(reached)):
            return
        self._newest = _Progress(reached, followed)
        self._hand_over(self._newest)

    def _hand_over(self, progress: _Progress) -> None:
        with self._thread.changed:
            self._waiting = progress
            self._thread.wake()

    def _next_commit(self) -> Callable[[], None] | None:
        if self._unsaid and not self.has_left:
            self._unsaid = False
            return self._declare
        progress, self._waiting = self._waiting, None
        return None if progress is None else partial(self._commit, progress)

    def _commit(self, progress: _Progress) -> None:
        """Runs beside the query."""
        try:
            self._request(*progress)
        except FencedError as error:
            # The next look says who took the group.
            logger.warning("A commit for the group %r was fenced: %s", self.group, str(error))
        except Exception as error:  # noqa: BLE001 - nobody else would hear of it
            if isinstance(error, OffsetLogError) and error.retryable:
                logger.warning(
                    "A commit for the group %r is tried again: %s", self.group, str(error)
                )
                if not self._has_warned:
                    self._has_warned = True
                    warn(
                        f"The group {self.group!r} was not moved on, and its query follows no "
                        f"reset until it is; that is tried again and again: {error}"
                    )
                with self._thread.changed:
                    self._waiting = self._waiting or progress
                    self._thread.changed.wait(self._retry_seconds)
                return
            what = "was not moved on"
            if progress.is_last:
                what = "still names this query as its owner"
            warn(f"The group {self.group!r} {what}: {error}")

    def _request(self, positions: Positions, followed: int, is_last: bool) -> None:
        news = self._uncommitted(positions)
        offsets = {tuple(tp): OffsetAndMetadata(at) for tp, at in news.items()}
        if not news and not is_last:
            return
        kind = LeaveRequest if is_last else CommitRequest
        try:
            [outcome] = self._table.accept(
                kind(self.group, self.member, self._generation, followed, offsets)  # type: ignore[arg-type]
            )
        finally:
            if is_last:
                self._log.heartbeats.remove(self.member)
        self._has_warned = False
        # What was reset meanwhile was passed over: the same offset may be reached once more.
        self._committed.update({tp: at for tp, at in news.items() if tp not in outcome.dropped})

    def _uncommitted(self, positions: Positions) -> Positions:
        return {tp: at for tp, at in positions.items() if self._committed.get(tp) != at}

    def forget(self, reset: Iterable[TopicPartition]) -> None:
        """What was committed of these before their reset says nothing, nor does where they are
        read from, since the log need not have the place they were put to."""
        for tp in reset:
            self._committed.pop(tp, None)

    def flush(self) -> bool:
        """Wait for what was submitted, but not twice for the same; whether it is done with."""
        self._is_slow = not self._thread.wait(0.0 if self._is_slow else LONGEST_WAIT)
        return not self._is_slow

    def leave(self) -> None:
        """Give the group up, so that others need not expel this query. Best effort; who asks
        again, in another thread too, waits for the same."""
        if self._joined < 0:
            return
        if not self.has_left:
            self.has_left = True
            self._hand_over(self._newest._replace(is_last=True))
        if not self._thread.wait(LAST_WAIT):
            warn(f"The group {self.group!r} does not answer; the last progress may be missing.")


def _bounded(topics: Iterable[str]) -> tuple[str, ...]:
    names = tuple(sorted(topics))
    return names if sum(map(len, names)) <= MAX_NAMES else ()


def _user_and_host() -> str:
    try:
        user = getpass.getuser()
    except (KeyError, OSError):
        user = "user"
    return f"{user}@{socket.gethostname()}-{os.getpid()}"
