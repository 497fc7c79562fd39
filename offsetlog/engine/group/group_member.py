"""A consumer's side of its group: its membership, what it may read, and what it commits.

Invariants:

1. It reads what it holds in the table as it last folded it, and nothing else. What it is to give
   up it stops reading, then releases, with its last position.
2. A reset of the group is followed at the first poll that looks at the group again, which is half
   a second later at most, for the partitions that were reset.
3. A member that was expelled drops all its positions and joins anew under another name. A commit
   that it tries before that is ``FencedError``, and moves nothing.
4. Committed is the next offset to read. An offset that never existed is refused, and so is
   everything else in the same commit.
5. One commit is in flight at a time: later ones wait for it, and keep their order.
6. A commit carries the generation of the last look and, for each position, the reset that was
   followed when it was polled; what was reset since is passed over.
7. A commit of all positions writes those that are not committed yet with the same text. A position
   that the caller names is always written.
"""

from __future__ import annotations

import socket
import warnings
import weakref
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import Future
from typing import Any, NamedTuple, Protocol

from offsetlog.core.group.assign import check_strategy
from offsetlog.core.group.decide import Refused
from offsetlog.core.group.facts import (
    OffsetAndMetadata,
    Partition,
    StartingPoint,
    Subscription,
    TopicView,
    check_position,
)
from offsetlog.core.group.membership import Standing, follow_resets, resets_since, standing
from offsetlog.core.group.requests import (
    CommitRequest,
    JoinRequest,
    LeaveRequest,
    ReleaseRequest,
    TopicsRequest,
)
from offsetlog.core.group.reset import OffsetSpan
from offsetlog.core.group.starting_offset import starting_offset
from offsetlog.core.group.state import GroupsState, GroupState
from offsetlog.core.topic.plan import check_partition
from offsetlog.engine.group.commit_queue import CommitCallback, CommitQueue
from offsetlog.engine.group.heartbeats import Heartbeat, Heartbeats, HeartbeatTiming
from offsetlog.engine.group.lag import TopicLookup, spans_of, states_of
from offsetlog.engine.group.offsets_table import OffsetsTable
from offsetlog.engine.group.polled import PolledRanges
from offsetlog.engine.topic.chain import FolderTakenError
from offsetlog.engine.topic.cursor import Cursor, Rows
from offsetlog.errors import (
    FencedError,
    OffsetLogError,
    OffsetLogWarning,
    OffsetOutOfRangeError,
    UnknownTopicError,
)
from offsetlog.logs import get_logger
from offsetlog.values import TopicPartition, check_name

logger = get_logger(__name__)

LOCAL_LOOK_SECONDS = 0.02
REMOTE_LOOK_SECONDS = 0.5
JOIN_TRIES = 5

Offsets = dict[Partition, OffsetAndMetadata]
RebalanceCallback = Callable[[Any, list[TopicPartition]], None]


class RebalanceCallbacks(NamedTuple):
    """Called inside ``poll``, with the consumer and the partitions."""

    assigned: RebalanceCallback | None = None
    revoked: RebalanceCallback | None = None
    lost: RebalanceCallback | None = None


class MemberSettings(NamedTuple):
    policy: str
    auto_commit: bool
    auto_commit_ms: float
    timing: HeartbeatTiming
    strategy: str
    client: str


class GroupHost(TopicLookup, Protocol):
    """What a member needs of the ``Log``."""

    @property
    def offsets_table(self) -> OffsetsTable: ...

    @property
    def heartbeats(self) -> Heartbeats: ...

    def check_open(self) -> None: ...


class GroupMember:
    def __init__(
        self,
        *,
        host: GroupHost,
        group: str,
        settings: MemberSettings,
        cursor: Cursor,
        consumer: object,
    ) -> None:
        self.group = check_name(group, "group")
        check_strategy(settings.strategy)
        self._host = host
        self._env = host.env
        self._table = host.offsets_table
        self._settings = settings
        self._cursor = cursor
        self._consumer = consumer
        self._owner = weakref.ref(consumer)
        self._look_seconds = (
            LOCAL_LOOK_SECONDS if self._table.port.is_local else REMOTE_LOOK_SECONDS
        )
        self.callbacks = RebalanceCallbacks()
        self.call_user: Callable[[Callable[[], object]], None] = _call
        """Runs what is the user's, in the user's thread."""
        self.topics: tuple[str, ...] = ()
        self.member: str | None = None
        """Its name in the group; None while it is no member."""
        self._joined = 0
        self._generation = 0
        self._followed_reset = 0
        self._applied: GroupsState | None = None
        """The table that was acted on last."""
        self._heartbeat: Heartbeat | None = None
        self._starts: dict[TopicPartition, int | None] = {}
        """The committed offset, or the reset's, of each partition when it was taken."""
        self._added: set[TopicPartition] = set()
        """The partitions that were added to their topic while the group was there."""
        self._committed: dict[Partition, int] = {}
        """The positions that are committed as far as this member knows."""
        self._releasing: dict[TopicPartition, int | None] = {}
        """Partitions that are not read any more and not released yet, with their last positions."""
        self.polled = PolledRanges()
        self._next_auto_commit = self._env.monotonic() + settings.auto_commit_ms / 1000
        self._commit_queue = CommitQueue(
            self._write_commit, f"offsetlog-commits-{group}", self._env.spawn
        )

    # --- joining and leaving ---------------------------------------------------------------

    def subscribe(self, topics: tuple[str, ...]) -> None:
        for topic in topics:
            self._cursor.open_topic(topic).state()
        if self.member is None:
            self._cursor.keep([])
            self.topics = topics
            self._join()
        else:
            before, self.topics = self.topics, topics
            try:
                self._table.accept(
                    TopicsRequest(self.group, self._topic_views()),
                    JoinRequest(self.group, self.member, self._subscription(), self._generation),
                )
            except FencedError as error:
                self._rejoin(error)
            except OffsetLogError:
                self.topics = before
                raise
        self._cursor.skips_unknown = True
        self.keep_up(at_once=True)

    def assign(self, partitions: list[TopicPartition]) -> None:
        self.leave(commit=True)
        self._cursor.skips_unknown = False
        self._cursor.keep(partitions)
        table = self._table.look()
        group = table.group(self.group)
        self._adopt_reset(group)
        self._generation = group.generation
        self._applied = table
        for tp in partitions:
            self._start_reading(tp, group)

    def _join(self) -> None:
        client = self._settings.client
        for _ in range(JOIN_TRIES):
            member = f"{client or 'consumer'}-{self._env.new_id()}"
            self._table.port.beat(member, "0")
            outcomes = self._table.ask(
                TopicsRequest(self.group, self._topic_views()),
                JoinRequest(self.group, member, self._subscription()),
            )
            refused = next((o for o in outcomes if isinstance(o, Refused)), None)
            if refused is not None:
                self._table.port.forget_beat(member)
                raise refused.error
            group = self._table.table.group(self.group)
            membership = group.members.get(member)
            if membership is None:
                logger.info("%s was expelled from %s as it joined", member, self.group)
                continue
            self.member, self._joined = member, membership.joined
            self._generation = group.generation
            self._adopt_reset(group)
            self._applied = None
            self._heartbeat = Heartbeat(
                self.group,
                member,
                membership.joined,
                client,
                self._settings.timing,
                self._env.monotonic(),
                self._owner,
            )
            self._host.heartbeats.add(self._heartbeat)
            logger.debug("%s joined %s in generation %d", member, self.group, group.generation)
            return
        raise FencedError(f"{member!r} was expelled from {self.group!r} as it joined.")

    def _subscription(self) -> Subscription:
        return Subscription(
            self.topics,
            self._settings.strategy,
            self._settings.timing.session_ms,
            self._settings.client,
            socket.gethostname(),
            start=StartingPoint(self._settings.policy),
        )

    def _topic_views(self) -> dict[str, TopicView]:
        views = {}
        for topic in self.topics:
            state = self._cursor.open_topic(topic).refresh()
            exists = state.alive and state.topic == topic
            views[topic] = TopicView(state.partitions if exists else 0, state.tip)
        return views

    def leave(self, commit: bool) -> None:
        """Leave the group: the last commit and the leave are one append. ``commit=False`` commits
        nothing."""
        self._drain_commits()
        offsets: Offsets = {}
        try:
            offsets = self._uncommitted() if commit and self._settings.auto_commit else {}
        except FolderTakenError as error:
            _warn(f"Nothing was committed at the end: {error.message}")
        if self.member is None:
            if offsets and not self.topics:
                self._table.accept(self._commit_request(offsets))
            return
        held = list(self._cursor.positions)
        if held:
            self._notify(self.callbacks.revoked, held)
            self._drain_commits()
            # The callback may have committed some of them.
            offsets = {tp: offset for tp, offset in offsets.items() if self._is_new(tp, offset)}
        member, self.member = self.member, None
        about = (self.group, member, self._generation, self._followed_reset)
        try:
            [outcome] = self._table.ask(LeaveRequest(*about, offsets))
            if isinstance(outcome, Refused) and isinstance(outcome.error, FencedError):
                # It was expelled, or holds less than it knew: others go on from its progress.
                if offsets:
                    _warn(f"Nothing was committed at the end: {outcome.error.message}")
                self._table.ask(LeaveRequest(*about))
            logger.debug("%s left %s", member, self.group)
        finally:
            self._host.heartbeats.remove(member)
            self._heartbeat = None
            self._cursor.keep([])
            self.topics = ()

    def _rejoin(self, error: FencedError) -> None:
        """It was expelled: nothing that it held is its own, and nothing of it may be committed."""
        assert self.member is not None
        lost = list(self._cursor.positions)
        self._host.heartbeats.remove(self.member)
        self.member, self._heartbeat = None, None
        self._cursor.keep([])
        self._drop([*lost, *self._releasing])
        logger.warning("%s", error.message)
        _warn(f"{error.message} It joins anew; what it had read since its last commit is read "
              "again by whoever holds those partitions now.")  # fmt: skip
        if lost:
            self._notify(self.callbacks.lost or self.callbacks.revoked, lost)
        self._join()

    # --- at each poll ----------------------------------------------------------------------

    def note_poll(self) -> None:
        """The program polls: it is alive."""
        if self._heartbeat is not None:
            self._heartbeat.polled_at = self._env.monotonic()

    @property
    def is_quiet(self) -> bool:
        """Whether ``keep_up`` would ask the storage nothing now."""
        is_due = self._settings.auto_commit and self._env.monotonic() >= self._next_auto_commit
        return (
            not is_due
            and (self.member is not None or not self.topics)
            and self._table.is_fresh(self._look_seconds)
            and self._table.table is self._applied
        )

    def _run_commit_callbacks(self) -> None:
        if self._commit_queue.has_results:
            self.call_user(self._commit_queue.run_callbacks)

    def _drain_commits(self) -> None:
        self._commit_queue.drain()
        self._run_commit_callbacks()

    def keep_up(self, at_once: bool = False) -> None:
        """Look at the group and act on it: follow resets, release, take, join anew."""
        now = self._env.monotonic()
        self.note_poll()
        self._run_commit_callbacks()
        if self.member is None and self.topics:
            self._join()
        if self._settings.auto_commit and now >= self._next_auto_commit:
            self._next_auto_commit = now + self._settings.auto_commit_ms / 1000
            self._auto_commit()
        table = self._table.look(0.0 if at_once else self._look_seconds)
        if table is self._applied:
            return
        group = table.group(self.group)
        if self.member is None:
            self._follow(group)
            self._generation = group.generation
            self._applied = table
            return
        stands = standing(group, self.member, self._joined)
        if isinstance(stands, FencedError):
            self._rejoin(stands)
            self.keep_up(at_once=True)
            return
        self._follow(group)
        self._generation = stands.generation
        self._release(stands)
        self._take(group, stands)
        self._applied = table

    def report_topics(self) -> None:
        """Partition counts that grew, and topics that are gone, are facts of the group."""
        if self.member is None:
            return
        recorded = self._table.table.group(self.group).topics
        changed = {
            topic: view
            for topic, view in self._topic_views().items()
            if topic not in recorded
            or (view.partitions != recorded[topic].partitions and view.tip > recorded[topic].tip)
        }
        if changed:
            self._table.accept(TopicsRequest(self.group, changed))

    def _follow(self, group: GroupState) -> None:
        if group.resets == self._followed_reset:
            return
        resets = resets_since(group, self._followed_reset)
        read = [tp for tp in self._cursor.positions if tp in resets]
        known = spans_of(states_of(self._host, {tp.topic for tp in read}))
        spans = {tp: known[tp] for tp in read if tp in known}
        starts = follow_resets(group, self._followed_reset, spans, self._settings.policy)
        for tp in read:
            self._starts[tp] = resets[tp]
            self._cursor.move(tp, starts[tp].offset if tp in starts else None)
            self._committed.pop(tp, None)
        for tp in self._releasing.keys() & resets.keys():
            self._releasing[tp] = resets[tp]
        self._adopt_reset(group)
        logger.info("Followed reset %d of %s: %s", group.resets, self.group, starts)
        for start in starts.values():
            if start.warning:
                _warn(start.warning)

    def _adopt_reset(self, group: GroupState) -> None:
        """Go on from the group's reset number as it is now."""
        since = resets_since(group, self._followed_reset)
        self.polled.follow((TopicPartition(*p) for p in since), group.resets)
        self._followed_reset = group.resets

    def _release(self, stands: Standing) -> None:
        due = [TopicPartition(*p) for p in stands.release]
        # Held no longer without a request of ours: another life of this name released it.
        self._cursor.drop([tp for tp in self._cursor.positions if tp not in stands.holds])
        revoked = [tp for tp in due if tp in self._cursor.positions]
        if revoked:
            self._drain_commits()
            self._notify(self.callbacks.revoked, revoked)
            self._releasing.update({tp: self._cursor.positions[tp] for tp in revoked})
            self._cursor.drop(revoked)
        if not due:
            self._releasing.clear()
            return
        assert self.member is not None
        [outcome] = self._table.ask(
            ReleaseRequest(
                self.group,
                self.member,
                self._generation,
                self._followed_reset,
                {tp: self._last_commit(tp) for tp in due},
            )
        )
        if not isinstance(outcome, Refused):
            self._drop(due)
            logger.debug("%s released %s of %s", self.member, due, self.group)
        elif not isinstance(outcome.error, FencedError):  # The next look tells why it is fenced.
            raise outcome.error

    def _last_commit(self, tp: TopicPartition) -> OffsetAndMetadata | None:
        position = self._releasing.get(tp)
        if position is None or not self._settings.auto_commit:
            return None
        return None if self._committed.get(tp) == position else OffsetAndMetadata(position)

    def _drop(self, partitions: Iterable[TopicPartition]) -> None:
        for tp in partitions:
            self._releasing.pop(tp, None)
            self._committed.pop(tp, None)
            self._starts.pop(tp, None)
            self._added.discard(tp)

    def _take(self, group: GroupState, stands: Standing) -> None:
        taken = sorted(
            TopicPartition(*p)
            for p in stands.keeps
            if p not in self._cursor.positions and p not in self._releasing
        )
        for tp in taken:
            self._start_reading(tp, group)
        if taken:
            logger.debug("%s took %s of %s", self.member, taken, self.group)
            self._notify(self.callbacks.assigned, taken)

    def _start_reading(self, tp: TopicPartition, group: GroupState) -> None:
        position = group.positions.get(tp)
        self._starts[tp] = None if position is None else position.offset
        if tp in group.added:
            self._added.add(tp)
        else:
            self._added.discard(tp)
        self._cursor.move(tp, None)
        if position is not None:
            self._committed[tp] = position.offset

    def _notify(self, callback: RebalanceCallback | None, partitions: list[TopicPartition]) -> None:
        if callback is not None:
            self.call_user(lambda: callback(self._consumer, sorted(partitions)))

    def begin(self, tp: TopicPartition) -> int:
        """Where reading begins in a partition that was just taken."""
        state = self._cursor.open_topic(tp.topic).known_state()
        check_partition(state, tp.partition)
        part = state.parts[tp.partition]
        committed = self._starts.get(tp)
        if committed is None and tp in self._added:
            return part.start  # None of its records may be missed.
        start = starting_offset(
            self.group, tp, committed, OffsetSpan(part.start, part.end), self._settings.policy
        )
        if start.warning:
            _warn(start.warning)
        return start.offset

    # --- commits ---------------------------------------------------------------------------

    def commit(self, offsets: Mapping[Any, Any] | None) -> None:
        """Commit these, or all positions."""
        self._drain_commits()
        checked = self._positions() if offsets is None else self._check_offsets(offsets)
        if checked:
            self._write_commit(self._commit_request(checked, news=offsets is None))

    def commit_async(
        self, offsets: Mapping[Any, Any] | None, callback: CommitCallback | None
    ) -> Future[None]:
        checked = self._positions() if offsets is None else self._check_offsets(offsets)
        request = self._commit_request(checked, news=offsets is None)
        return self._commit_queue.submit(request, callback)

    def _write_commit(self, request: CommitRequest) -> None:
        [accepted] = self._table.accept(request)
        for partition, committed in request.offsets.items():
            if partition not in accepted.dropped:
                self._committed[partition] = committed.offset
        if accepted.dropped:
            logger.info("A commit of %s was made before a reset: passed over", accepted.dropped)

    def _commit_request(self, offsets: Offsets, news: bool = False) -> CommitRequest:
        if self.member is None and self.topics:
            raise FencedError(
                f"This consumer is no longer a member of the group {self.group!r}.",
                "The next poll joins anew, and goes on from the committed positions.",
            )
        return CommitRequest(
            self.group,
            self.member,
            self._generation,
            self._followed_reset,
            offsets,
            self._polled_before_reset(offsets),
            news,
        )

    def record_polled(self, fetched: Iterable[Rows]) -> None:
        """Records that a poll is about to return."""
        for tp, batch, low, high in fetched:
            offsets = batch.table.column("offset")
            after = offsets[high].as_py() if high < len(offsets) else batch.end
            self.polled.add(tp, offsets[low].as_py(), after)

    def _polled_before_reset(self, offsets: Offsets) -> dict[Partition, int]:
        """The reset number of each position that was polled before a reset was followed."""
        numbers: dict[Partition, int] = {}
        for partition, committed in offsets.items():
            tp = TopicPartition(*partition)
            number = self.polled.number_before(tp, committed.offset)
            if number is not None and self._cursor.positions.get(tp) != committed.offset:
                numbers[partition] = number
        return numbers

    def _auto_commit(self) -> None:
        offsets = self._uncommitted()
        if not offsets:
            return
        try:
            self.commit(offsets)
        except FencedError:
            if self.member is None:
                raise
            self._applied = None  # The look that follows says what happened, and warns.
        except UnknownTopicError as error:
            if isinstance(error, FolderTakenError):
                raise
            self._applied = None  # Its partitions are taken away at the next look.
        except OffsetLogError as error:
            if not error.retryable:
                raise
            _warn(f"The automatic commit failed and is tried again: {error}")

    def _positions(self) -> Offsets:
        self._cursor.check_places()
        return {
            tp: OffsetAndMetadata(position)
            for tp, position in self._cursor.positions.items()
            if position is not None
        }

    def _uncommitted(self) -> Offsets:
        return {tp: offset for tp, offset in self._positions().items() if self._is_new(tp, offset)}

    def _is_new(self, partition: Partition, position: OffsetAndMetadata) -> bool:
        return self._committed.get(partition) != position.offset

    def _check_offsets(self, offsets: Mapping[Any, Any]) -> Offsets:
        """What a caller wants committed, checked against the log."""
        checked = _parse_offsets(offsets)
        self._cursor.check_places()
        for (topic, number), committed in checked.items():
            check_position((topic, number), committed)
            opened = self._cursor.open_topic(topic)
            state = opened.known_state()
            if number >= state.partitions or committed.offset > state.end(number):
                state = opened.state()
            check_partition(state, number)
            end = state.end(number)
            if committed.offset > end:
                raise OffsetOutOfRangeError(
                    f"Offset {committed.offset} of {topic}-{number} was never there: it ends at "
                    f"{end}.",
                    "Commit the next offset to read, which is at most the end.",
                )
        return checked

    def committed(
        self, partitions: list[TopicPartition] | None
    ) -> dict[TopicPartition, OffsetAndMetadata]:
        self._drain_commits()
        positions = self._table.look().group(self.group).positions
        if partitions is None:
            partitions = [TopicPartition(*p) for p in sorted(positions)]
        return {
            tp: OffsetAndMetadata(positions[tp].offset, positions[tp].metadata)
            for tp in partitions
            if tp in positions
        }


def _parse_offsets(offsets: Mapping[Any, Any]) -> Offsets:
    return {
        TopicPartition(*partition): OffsetAndMetadata(*value)
        for partition, value in offsets.items()
    }


def _call(call: Callable[[], object]) -> None:
    call()


def _warn(text: str) -> None:
    warnings.warn(text, OffsetLogWarning, stacklevel=2)
