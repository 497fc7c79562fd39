"""One run of a streaming query, from the driver's side: which records the next batch reads.

Invariants:

1. ``ranges(start, end)`` follows from its arguments and the log alone, so a batch that is run
   again reads the same records.
2. The ``start`` of ``next`` has been processed, unless it is where the query began; only what
   was processed is committed for the group, and only once the checkpoint holds a reset number of
   that group: what was committed before could be reset, and nobody would know since when.
3. What is asked of the filesystem while nothing is new is bounded by the poll interval. That
   nothing is there to be read is said only after a look that began after the question did, which
   waits for the rest of the interval: Spark promises by it that all that was appended before is
   processed. A query that reads a fixed range, as ``availableNow``, has nothing to wait for.
4. Records that are gone are an error with ``failOnDataLoss``, and else a warning; the query
   goes on with what there is. What is out of sight is not gone, and always an error.
5. A query that cannot see its root or its topics fails before it joins its group.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from offsetlog.client.log import Log
from offsetlog.core.group.reset import OffsetSpan
from offsetlog.core.group.state import GroupState
from offsetlog.core.topic.state import TopicState
from offsetlog.errors import InvalidRequestError, UnknownTopicError
from offsetlog.values import TopicPartition
from pyspark_offsetlog.options.check import SourceOptions
from pyspark_offsetlog.runtime.user_errors import warn
from pyspark_offsetlog.source import starting_offsets as starts
from pyspark_offsetlog.source.data_loss import DataLoss
from pyspark_offsetlog.source.group_owner import IDLE_LOOK, GroupOwner, moved_since
from pyspark_offsetlog.source.offsets import (
    OffsetRange,
    Positions,
    QueryOffset,
    begin_of,
    nested,
    parse,
    split_ranges,
)
from pyspark_offsetlog.source.rate_limits import limit_bytes, limit_records
from pyspark_offsetlog.source.subscription import SubscribedTopics
from pyspark_offsetlog.source.visibility import state_with

REMOTE_POLL_MS = 500


class _Wanted(NamedTuple):
    """What is there to be read: from where, and up to where at most."""

    begin: Positions
    until: Positions

    @property
    def records(self) -> int:
        return sum(max(0, end - self.begin[tp]) for tp, end in self.until.items())


class QueryRun:
    def __init__(self, log: Log, options: SourceOptions) -> None:
        self.log = log
        self.options = options
        self._env = log.env
        self.topics = SubscribedTopics(log, options.subscription)
        self._poll = self._interval() / 1000
        self._owner: GroupOwner | None = None
        self._followed = 0
        """The group's reset number when the query took it over."""
        self._initial: dict[str, Any] | None = None
        self._no_start: InvalidRequestError | None = None
        """Why the options name no start in the log as it is."""
        self._target: Positions | None = None
        self._quiet_until = 0.0
        self._fired_at = float("-inf")
        self._checked = False
        self._restored: dict[str, Any] | None = None
        """An offset that follows more resets than the group knows of: its table was wiped."""
        self._lost = DataLoss(options.fail_on_data_loss)

    def _interval(self) -> int:
        if self.options.poll_ms is not None:
            return self.options.poll_ms
        return 0 if self.log.store.is_local else REMOTE_POLL_MS

    def _open(self) -> None:
        """The first look of this run; the group is taken over."""
        if self.topics.looked:
            return
        self.log.see_root()
        self.topics.look(missing=True)
        if self.options.group is not None:
            self._owner = GroupOwner(
                self.log, self.options.group, self.options.client, self.topics.names()
            )
            self._followed = self._owner.join().resets

    # --- where it starts -------------------------------------------------------------------

    def initial(self) -> dict[str, Any]:
        """Where the query starts, asked once: Spark asks more than once."""
        if self._initial is None:
            self._open()
            self.topics.check({})
            self._checked = True
            partitions = self.topics.partitions()
            at: Positions = {}
            try:
                at = starts.resolve(
                    self.log,
                    self.options,
                    self.options.start,
                    self.topics,
                    partitions,
                    self._lost,
                )
            except InvalidRequestError as error:
                # Spark asks this, too, when it runs a first batch again that was planned by
                # other options, or by these before the log changed: that needs no start.
                self._no_start = error
            # Spark may make an empty batch of it, and ask for another one if that is run again.
            self._initial = self._offset(at, self._followed, at).to_json()
        return self._initial

    def _take_up(self, raw: dict[str, Any], start: QueryOffset) -> None:
        """The first offset of this run: nothing is subscribed to that never was there."""
        if self._checked:
            return
        self.topics.check(start.at)
        if start.group == self.options.group and (start.reset or 0) > self._followed:
            self._restored = raw
        self._checked = True

    def prepare_available_now(self) -> None:
        """All that is there now is read by this run, and nothing that comes later."""
        self._open()
        states = self.topics.look(missing=True)
        self._target = {tp: states[tp.topic].end(tp.partition) for tp in self.topics.partitions()}

    # --- the next batch --------------------------------------------------------------------

    def next(self, raw: dict[str, Any], limited: bool) -> dict[str, Any]:
        """Where the next batch ends; ``raw`` itself if there is nothing to read yet."""
        self._open()
        if self._owner is not None and self._owner.left:
            return raw  # Other sources of the query may go on. A reset is the next run's to follow.
        start = parse(raw)
        self._take_up(raw, start)
        first = raw == self._initial
        if first and self._no_start is not None:
            raise self._no_start
        followed = self._number(start, raw)
        takes_over = self._owner is not None and not self._has_number(start, raw)
        if not first and not takes_over:
            self._submit(start.at, followed)
        now = self._env.monotonic()
        if now < self._quiet_until:
            if self._target is not None:
                return self._nothing(raw)
            # Where the query is stopped meanwhile, a signal ends the wait.
            self._env.sleep(self._quiet_until - now)
            now = self._env.monotonic()
        self.log.see_root()
        self.topics.look(fresh=False, missing=True)
        group = self._group(start)
        seeks = {} if group is None else self._seeks(group, followed)
        wanted = self._wanted(start, seeks)
        until = self._limit(wanted, start, bool(seeks), limited)
        if not until or (until == start.at and not seeks):
            if takes_over and group is not None and start.at:
                # An empty batch leaves the number in the checkpoint.
                return self._offset(start.at, group.resets).to_json()
            self._quiet_until = now + self._poll
            return self._nothing(raw)
        self._fired_at = now
        if self._owner is not None and seeks:
            self._owner.forget(seeks)
        moved = {
            tp: at
            for tp, at in wanted.begin.items()
            if first or tp in seeks or at != start.at.get(tp)
        }
        return self._offset(until, 0 if group is None else group.resets, moved).to_json()

    def _submit(self, at: Positions, followed: int) -> None:
        """All before these was processed. What the log has not is left out: the checkpoint is
        another root's, or its topic was made anew. That is an error soon, and the group shall not
        stand there until somebody looks."""
        if self._owner is not None:
            ends = {tp: self._span(tp).end for tp in self.topics.partitions()}
            reached = {tp: offset for tp, offset in at.items() if offset <= ends.get(tp, offset)}
            self._owner.submit(reached, followed)

    def _nothing(self, raw: dict[str, Any]) -> dict[str, Any]:
        """An idle query has time to wait until its progress is committed."""
        if self._owner is not None:
            self._owner.flush()
            if self._target is not None and not self._rest(raw):
                self._owner.leave()
        return raw

    def _rest(self, raw: dict[str, Any]) -> bool:
        """Whether anything is left of what ``availableNow`` shall read."""
        at = parse(raw).at
        return any(at.get(tp, 0) < end for tp, end in (self._target or {}).items())

    def _offset(self, at: Positions, number: int, moved: Positions | None = None) -> QueryOffset:
        group = self.options.group
        return QueryOffset(at, group, None if group is None else number, moved or {})

    def _number(self, offset: QueryOffset, raw: dict[str, Any]) -> int:
        """The reset number that the progress up to ``offset`` has followed. An offset without
        one, of another group or from before the table was wiped follows what this run met."""
        if offset.reset is None or not self._has_number(offset, raw):
            return self._followed
        return offset.reset

    def _has_number(self, offset: QueryOffset, raw: dict[str, Any]) -> bool:
        """Whether it holds a reset number that this very group gave."""
        if offset.reset is None or raw == self._restored:
            return False
        return offset.group == self.options.group

    def _group(self, start: QueryOffset) -> GroupState | None:
        """The group: as it is now if there is anything to read, else as it was a moment ago."""
        if self._owner is None:
            return None
        news = any(self._span(tp).end > start.at.get(tp, 0) for tp in self.topics.partitions())
        return self._owner.look(0.0 if news else IDLE_LOOK)

    def _seeks(self, group: GroupState, number: int) -> Positions:
        """Where the group was put after reset ``number``."""
        put = moved_since(group, number)
        put = {tp: at for tp, at in put.items() if self.topics.may_read(tp)}
        unseen = [tp.topic for tp, at in put.items() if not self._knows(tp, at)]
        if unseen:
            self.topics.expect(unseen)
            self.topics.look(missing=True)
        # What the chain says is gone was there when it was reset, so the number may go into the
        # offset without it.
        return {
            tp: self._sought(group, tp, at)
            for tp, at in put.items()
            if self._knows(tp, at) or self.topics.find(tp, at)
        }

    def _sought(self, group: GroupState, tp: TopicPartition, at: int) -> int:
        """A reset to what is not there any more means the log's start."""
        span = self._span(tp)
        if at >= span.start:
            return at
        warn(
            f"The group {group.name!r} was reset to {at} of {tp.topic}-{tp.partition}, which holds "
            f"{span.start} to {span.end} now; reading goes on from {span.start}."
        )
        return span.start

    def _knows(self, tp: TopicPartition, offset: int) -> bool:
        """Whether the topic was looked at since the reset: one look need not reach the end."""
        state = self.topics.states.get(tp.topic)
        if state is None or tp.partition >= state.partitions:
            return False
        return offset <= state.end(tp.partition)

    def _span(self, tp: TopicPartition) -> OffsetSpan:
        state = self.topics.states[tp.topic]
        return OffsetSpan(state.start(tp.partition), state.end(tp.partition))

    def _wanted(self, start: QueryOffset, seeks: Positions) -> _Wanted:
        begin: Positions = {}
        until: Positions = {}
        for tp in sorted(start.at.keys() - set(self.topics.partitions())):
            if self.topics.may_read(tp) and self.topics.find(tp, start.at[tp]):
                continue
            self._lost(
                f"{tp.topic}-{tp.partition} was read up to {start.at[tp]} and is not there, or "
                "not subscribed to, any more."
            )
        partitions = self.topics.partitions()
        for tp in partitions:
            later = self._target is not None and tp not in self._target and tp not in start.at
            if later and tp not in seeks:
                continue
            span = self._span(tp)
            at = seeks.get(tp, start.at.get(tp, span.start))
            begin[tp] = self._inside(tp, at, span)
            end = span.end if self._target is None else min(span.end, self._target.get(tp, 0))
            until[tp] = max(begin[tp], end)
        return _Wanted(begin, until)

    def _inside(self, tp: TopicPartition, at: int, span: OffsetSpan) -> int:
        if at < span.start:
            self._lost(
                f"{tp.topic}-{tp.partition} was to be read from {at}, but starts at {span.start} "
                "now: retention took the records between."
            )
            return span.start
        if at > span.end:
            state_with(self.topics.handle(tp.topic), tp.partition, at)
        return at

    def _limit(
        self, wanted: _Wanted, start: QueryOffset, at_once: bool, limited: bool
    ) -> Positions:
        options = self.options
        total = wanted.records
        if not limited or not total:
            return wanted.until
        low = options.min_offsets
        if low is not None and total < low and self._target is None and not at_once:
            waited = self._env.monotonic() - self._fired_at
            if waited * 1000 < options.max_delay_ms:
                return start.at
        until = limit_records(options.max_offsets, wanted.begin, wanted.until)
        return limit_bytes(options.max_bytes, self.topics, wanted.begin, until)

    # --- planning --------------------------------------------------------------------------

    def ranges(self, raw_start: dict[str, Any], raw_end: dict[str, Any]) -> list[OffsetRange]:
        """What the batch between two offsets reads, a range for each task."""
        if raw_start == raw_end:
            return []
        self._open()
        start, end = parse(raw_start), parse(raw_end)
        if self._no_start is not None and raw_start == self._initial and end.at.keys() - end.moved:
            raise self._no_start
        out = []
        for tp, to in sorted(end.at.items()):
            state = self._state_with(tp, to)
            if state is None:
                continue
            span = OffsetSpan(state.start(tp.partition), state.end(tp.partition))
            begin = begin_of(start, end, tp)
            begin = span.start if begin is None else begin
            if begin < min(span.start, to):
                self._inside(tp, begin, span)
                begin = min(span.start, to)
            if begin < to:
                out.append(OffsetRange(tp.topic, tp.partition, begin, to))
            elif begin > to:
                self._lost(
                    f"{tp.topic}-{tp.partition} was to be read from {begin} back to {to}: what "
                    "was planned is gone, or an offset of the checkpoint was changed."
                )
        return split_ranges(out, self.options.min_partitions, self.options.max_records)

    def _state_with(self, tp: TopicPartition, to: int) -> TopicState | None:
        """The topic as it is when it has the records up to ``to``; None when they are gone."""
        handle = self.topics.handle(tp.topic)
        try:
            state = handle.state(fresh=False)
            if tp.partition >= state.partitions or state.end(tp.partition) < to:
                state = handle.state()
        except UnknownTopicError as error:
            state_with(handle, tp.partition, to)
            self._lost(f"{tp.topic}-{tp.partition} was to be read up to {to}: {error.message}")
            return None
        if tp.partition >= len(state.parts) or state.end(tp.partition) < to:
            state = state_with(handle, tp.partition, to)
        return state

    # --- the rest --------------------------------------------------------------------------

    def processed(self, raw: dict[str, Any]) -> None:
        """Everything before this offset is done."""
        self._open()
        offset = parse(raw)
        self._submit(offset.at, self._number(offset, raw))

    def latest(self) -> dict[str, Any] | None:
        """The ends of the partitions as they were last looked at, for Spark's progress."""
        states = self.topics.states
        ends = {tp: states[tp.topic].end(tp.partition) for tp in self.topics.partitions()}
        return nested(ends) if ends else None

    def stop(self) -> None:
        if self._owner is not None:
            self._owner.leave()
