"""A consumer's side of its group: membership, what it may read, and its commits.

Invariants:

1. It reads what it holds in the table as it last folded it, and nothing else. What it shall
   give up it stops reading, then releases, with its last position.
2. A reset of the group is followed at the next poll, for the partitions that were reset.
3. Who was put out drops all its positions and joins anew under another name; a commit that it
   tries before that is ``FencedError``, and moves nothing.
"""

from __future__ import annotations

import socket
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

from offsetlog.core.group.assign import check_strategy
from offsetlog.core.group.decide import Refused
from offsetlog.core.group.facts import OffsetAndMetadata, Partition, Subscription, TopicView
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
from offsetlog.core.group.state import GroupState
from offsetlog.core.topic.plan import check_partition
from offsetlog.engine.group.committer import Committer, Settings, WorkerHost, warn
from offsetlog.engine.group.heartbeats import Heartbeat
from offsetlog.engine.group.lag import spans_of
from offsetlog.engine.topic.cursor import Cursor
from offsetlog.errors import FencedError, OffsetLogError
from offsetlog.values import TopicPartition, check_name

LOCAL_LOOK = 0.02
REMOTE_LOOK = 0.5
JOIN_TRIES = 5
Rebalanced = Callable[[Any, list[TopicPartition]], None]


class Callbacks(NamedTuple):
    """Called inside ``poll``, with the consumer and the partitions."""

    assigned: Rebalanced | None = None
    revoked: Rebalanced | None = None
    lost: Rebalanced | None = None


class Worker(Committer):
    def __init__(
        self, host: WorkerHost, group: str, settings: Settings, cursor: Cursor, consumer: Any
    ) -> None:
        check_name(group, "group")
        check_strategy(settings.strategy)
        super().__init__(host, group, settings, cursor)
        self._consumer = consumer
        self._look_every = LOCAL_LOOK if self._table.port.is_local else REMOTE_LOOK
        self.callbacks = Callbacks()
        self._joined = 0
        self._starts: dict[TopicPartition, int | None] = {}
        self._added: set[TopicPartition] = set()
        self._leaving: dict[TopicPartition, int | None] = {}
        self._heart: Heartbeat | None = None

    # --- joining and leaving ---------------------------------------------------------------

    def subscribe(self, topics: tuple[str, ...]) -> None:
        for name in topics:
            self._host.topic_handle(name).state()
        if self.member is None:
            self._cursor.keep([])
            self.topics = topics
            self._join()
        else:
            before, self.topics = self.topics, topics
            try:
                self._change(topics)
            except FencedError as error:
                self._lost(error)
            except OffsetLogError:
                self.topics = before
                raise
        self._cursor.skips_unknown = True
        self.tend(at_once=True)

    def assign(self, partitions: list[TopicPartition]) -> None:
        self.leave(commit=True)
        self._cursor.skips_unknown = False
        self._cursor.keep(partitions)
        table = self._table.look()
        group = table.group(self.group)
        self._adopt(group)
        self._generation = group.generation
        self._seen = table
        for tp in partitions:
            self._begin_at(tp, group)

    def _join(self) -> None:
        env = self._env
        client = self._settings.client
        error: OffsetLogError | None = None
        for _ in range(JOIN_TRIES):
            member = f"{client or 'consumer'}-{env.new_id()}"
            self._table.port.beat(member, "0")
            views = self._views()
            outcomes = self._table.ask(
                TopicsRequest(self.group, views), JoinRequest(self.group, member, self._said())
            )
            refused = next((o for o in outcomes if isinstance(o, Refused)), None)
            if refused is not None:
                self._table.port.forget_beat(member)
                raise refused.error
            group = self._table.table.group(self.group)
            known = group.members.get(member)
            if known is None:
                # It was put out between its join and this look: as if it had never been.
                error = FencedError(f"{member!r} was put out of {self.group!r} as it joined.")
                continue
            self.member, self._joined = member, known.joined
            self._generation = group.generation
            self._adopt(group)
            self._seen = None
            self._heart = Heartbeat(
                self.group, member, known.joined, client, self._settings.timing, env.monotonic()
            )
            self._host.pulses.add(self._heart)
            return
        assert error is not None
        raise error

    def _said(self) -> Subscription:
        return Subscription(
            self.topics,
            self._settings.strategy,
            self._settings.timing.session_ms,
            self._settings.client,
            socket.gethostname(),
        )

    def _change(self, topics: tuple[str, ...]) -> None:
        assert self.member is not None
        views = self._views()
        self._accept(
            TopicsRequest(self.group, views),
            JoinRequest(self.group, self.member, self._said(), self._generation),
        )

    def _views(self) -> dict[str, TopicView]:
        views = {}
        for name in self.topics:
            state = self._host.topic_handle(name).raw_state()
            there = state.alive and state.topic == name
            views[name] = TopicView(state.partitions if there else 0, state.tip)
        return views

    def leave(self, commit: bool) -> None:
        """Out of the group: commits and leaves in one append. ``commit=False`` commits nothing."""
        self.commits.drain()
        offsets = self._dirty() if commit and self._settings.auto_commit else {}
        if self.member is None:
            if offsets and not self.topics:
                self._accept(
                    CommitRequest(self.group, None, self._generation, self._followed, offsets)
                )
            return
        held = list(self._cursor.positions)
        if held:
            self._call(self.callbacks.revoked, held)
            self.commits.drain()
        member, self.member = self.member, None
        if held:
            offsets = {tp: said for tp, said in offsets.items() if self._moved(tp, said)}
        about = (self.group, member, self._generation, self._followed)
        try:
            [outcome] = self._table.ask(LeaveRequest(*about, offsets))
            if isinstance(outcome, Refused) and isinstance(outcome.error, FencedError):
                # It was put out, or holds less than it knew: its progress is another's now.
                if offsets:
                    warn(f"Nothing was committed at the end: {outcome.error.message}")
                self._table.ask(LeaveRequest(*about))
        finally:
            self._host.pulses.remove(member)
            self._heart = None
            self._cursor.keep([])
            self.topics = ()

    # --- at each poll ----------------------------------------------------------------------

    def tend(self, at_once: bool = False) -> None:
        """Look at the group, and do what it means: take, give up, follow, join anew."""
        now = self._env.monotonic()
        if self._heart is not None:
            self._heart.polled_at = now
        self.commits.run_callbacks()
        if self.member is None and self.topics:
            self._join()
        if self._settings.auto_commit and now >= self._next_auto:
            self._next_auto = now + self._settings.auto_commit_ms / 1000
            self._auto_commit()
        table = self._table.look(0.0 if at_once else self._look_every)
        if table is self._seen:
            return
        group = table.group(self.group)
        if self.member is None:
            self._follow(group)
            self._generation = group.generation
            self._seen = table
            return
        stands = standing(group, self.member, self._joined)
        if isinstance(stands, FencedError):
            self._lost(stands)
            self.tend(at_once=True)
            return
        self._follow(group)
        self._generation = stands.generation
        self._give_up(stands)
        self._take(group, stands)
        self._seen = table

    def watch_topics(self) -> None:
        """Partition counts that grew, and topics that are gone, are facts of the group."""
        if self.member is None:
            return
        known = self._table.table.group(self.group).topics
        news = {
            topic: view
            for topic, view in self._views().items()
            if topic not in known
            or (view.partitions != known[topic].partitions and view.tip > known[topic].tip)
        }
        if news:
            self._accept(TopicsRequest(self.group, news))

    def _follow(self, group: GroupState) -> None:
        if group.resets == self._followed:
            return
        resets = resets_since(group, self._followed)
        read = [tp for tp in self._cursor.positions if tp in resets]
        known = spans_of(self._host, {tp.topic for tp in read})
        spans = {tp: known[tp] for tp in read if tp in known}
        starts = follow_resets(group, self._followed, spans, self._settings.policy)
        for tp in read:
            self._starts[tp] = resets[tp]
            self._cursor.add(tp, starts[tp].offset if tp in starts else None)
            self._saved.pop(tp, None)
        for tp in self._leaving.keys() & resets.keys():
            self._leaving[tp] = resets[tp]
        self._adopt(group)
        for start in starts.values():
            if start.warning:
                warn(start.warning)

    def _begin_at(self, tp: TopicPartition, group: GroupState) -> None:
        position = group.positions.get(tp)
        self._starts[tp] = None if position is None else position.offset
        if tp in group.added:
            self._added.add(tp)
        else:
            self._added.discard(tp)
        self._cursor.add(tp)
        if position is not None:
            self._saved[tp] = position.offset

    def _take(self, group: GroupState, stands: Standing) -> None:
        new = sorted(
            TopicPartition(*p)
            for p in stands.keeps
            if p not in self._cursor.positions and p not in self._leaving
        )
        for tp in new:
            self._begin_at(tp, group)
        if new:
            self._call(self.callbacks.assigned, new)

    def _give_up(self, stands: Standing) -> None:
        gone = [TopicPartition(*p) for p in stands.release]
        # Held no longer without a word of ours: another life of this name released it.
        stale = [tp for tp in self._cursor.positions if tp not in stands.holds]
        self._cursor.drop(stale)
        leaving = [tp for tp in gone if tp in self._cursor.positions]
        if leaving:
            self.commits.drain()
            self._call(self.callbacks.revoked, leaving)
            for tp in leaving:
                self._leaving[tp] = self._cursor.positions[tp]
            self._cursor.drop(leaving)
        if not gone:
            self._leaving.clear()
            return
        assert self.member is not None
        said: dict[Partition, OffsetAndMetadata | None] = {tp: self._last_word(tp) for tp in gone}
        request = ReleaseRequest(self.group, self.member, self._generation, self._followed, said)
        [outcome] = self._table.ask(request)
        if isinstance(outcome, Refused):
            if isinstance(outcome.error, FencedError):
                return  # The next look says what has become of this member.
            raise outcome.error
        self._forget(gone)

    def _last_word(self, tp: TopicPartition) -> OffsetAndMetadata | None:
        position = self._leaving.get(tp)
        if position is None or not self._settings.auto_commit or self._saved.get(tp) == position:
            return None
        return OffsetAndMetadata(position)

    def _forget(self, gone: Iterable[TopicPartition]) -> None:
        for tp in gone:
            self._leaving.pop(tp, None)
            self._saved.pop(tp, None)
            self._starts.pop(tp, None)
            self._added.discard(tp)

    def _lost(self, error: FencedError) -> None:
        """Put out: nothing that was held is ours, and nothing of it may be committed."""
        assert self.member is not None
        lost = list(self._cursor.positions)
        self._host.pulses.remove(self.member)
        self.member, self._heart = None, None
        self._cursor.keep([])
        self._forget([*lost, *self._leaving])
        warn(f"{error.message} It joins anew; what it had read since its last commit is read "
              "again by whoever holds those partitions now.")  # fmt: skip
        if lost:
            self._call(self.callbacks.lost or self.callbacks.revoked, lost)
        self._join()

    def _call(self, callback: Rebalanced | None, partitions: list[TopicPartition]) -> None:
        if callback is not None:
            callback(self._consumer, sorted(partitions))

    # --- where reading begins --------------------------------------------------------------

    def begin(self, tp: TopicPartition) -> int:
        state = self._host.topic_handle(tp.topic).state(fresh=False)
        check_partition(state, tp.partition)
        part = state.parts[tp.partition]
        committed = self._starts.get(tp)
        if committed is None and tp in self._added:
            # It was added while the group was there: none of its records is missed.
            return part.start
        start = starting_offset(
            self.group, tp, committed, OffsetSpan(part.start, part.end), self._settings.policy
        )
        if start.warning:
            warn(start.warning)
        return start.offset
