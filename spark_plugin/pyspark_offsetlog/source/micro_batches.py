"""One run of a streaming query, from the driver's side: it looks at the log and the group, and
plans batches by what it sees.

Invariants:

1. ``ranges(start, end)`` follows from its arguments and the log alone, so a batch that is run
   again reads the same records.
2. The ``start`` of ``next`` has been processed, unless it is where the query began; only what
   was processed is committed for the group, and only once the checkpoint holds a reset number of
   that group: what was committed before could be reset, and nobody would know since when.
   Nor is it committed before the checkpoint holds it, or a restart would begin behind the group.
   Spark says of a batch's start that it is processed (``processed``) once it has logged that
   batch's end, and it plans the batch after that: but not with ``asyncProgressTrackingEnabled``,
   where it logs some ends, later. Then what it says is committed, and nothing else.
3. What is asked of the filesystem while nothing is new is bounded by the poll interval. That
   nothing is there to be read is said only after a look that began after the question did, which
   waits for the rest of the interval: Spark promises by it that all that was appended before is
   processed. A query that reads a fixed range, as ``availableNow``, has nothing to wait for.
4. Records that are gone are an error with ``failOnDataLoss``, and else a warning; the query
   goes on with what there is. What is out of sight is not gone, and always an error.
5. A query that cannot see its root or its topics fails before it joins its group. It joins as
   soon as it knows its checkpoint's id, by which its group tells a restart from another query: a
   new query at once, if nobody owns the group, others with the first offset of their checkpoint.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from typing import Any

from offsetlog.client.log import Log
from offsetlog.core.group.membership import resets_since
from offsetlog.errors import InvalidRequestError, UnknownTopicError
from offsetlog.logs import get_logger
from offsetlog.values import TopicPartition
from pyspark_offsetlog.options.spec import SourceOptions
from pyspark_offsetlog.runtime.user_errors import warn
from pyspark_offsetlog.source.group_owner import IDLE_LOOK, GroupOwner
from pyspark_offsetlog.source.next_batch import (
    BatchPlan,
    Look,
    limit_bytes,
    limit_records,
    next_batch,
    retention_loss,
)
from pyspark_offsetlog.source.offsets import (
    OffsetRange,
    Positions,
    QueryOffset,
    begin_of,
    nested,
    parse,
    split_ranges,
)
from pyspark_offsetlog.source.starting_offsets import resolve
from pyspark_offsetlog.source.subscription import SubscribedTopics
from pyspark_offsetlog.source.visibility import DataLoss, state_with

logger = get_logger(__name__)

REMOTE_POLL_MS = 500


class QueryRun:
    def __init__(self, log: Log, options: SourceOptions) -> None:
        self.log = log
        self.options = options
        self.topics = SubscribedTopics(log, options.subscription)
        self._env = log.env
        poll_ms = options.poll_ms
        if poll_ms is None:
            poll_ms = 0 if log.store.is_local else REMOTE_POLL_MS
        self._poll_seconds = poll_ms / 1000
        self.lost = DataLoss(options.fail_on_data_loss)
        self._owner: GroupOwner | None = None
        """Once it has joined."""
        self._newcomer: GroupOwner | None = None
        """Until then."""
        self._rebegun: Positions | None = None
        """Where a query begins that could join only after Spark had asked where."""
        self._seen: Look | None = None
        """The last look."""
        self._is_checked = False
        """Whether all that is subscribed to by name was found to be there, or to have been."""
        self._initial: dict[str, Any] | None = None
        self._no_start: InvalidRequestError | None = None
        """Why the options name no start in the log as it is."""
        self._target: Positions | None = None
        """Where ``availableNow`` ends."""
        self._idle_until = 0.0
        self._last_batch_at = float("-inf")
        self._passed_over = 0
        """Records that the last batch left to the next one, since it is limited."""
        self._answer: dict[str, Any] | None = None
        """The last answer of ``next``."""
        self._acknowledged: dict[str, Any] | None = None
        """What Spark said last to be processed."""
        self._not_logged: dict[str, Any] | None = None
        """The end of the last batch, where the checkpoint need not have it."""
        self._id: str | None = None
        """The id that the checkpoint has, also while its query has no group."""
        self._parsed: deque[tuple[dict[str, Any], QueryOffset]] = deque(maxlen=2)
        """The newest offsets, which Spark hands back with each question."""

    def _look_first(self) -> Look:
        """The last look; or the first one of a run."""
        if self._seen is None:
            self.log.root.check()
            self._seen = self.topics.look(skip_deleted=True)
        return self._seen

    def _open(self, logged: QueryOffset | None = None) -> Look:
        """The last look, of a query that owns its group; ``logged`` is in its checkpoint."""
        look, group = self._look_first(), self.options.group
        if group is None:
            return look
        checkpoint = None if logged is None else logged.checkpoint
        if self._owner is None:
            newcomer = self._newcomer or self._new_owner(group, look)
            newcomer.join(checkpoint)
            self._owner = newcomer
        self._owner.hold(checkpoint)
        return look

    def _new_owner(self, group: str, look: Look) -> GroupOwner:
        options = self.options
        self._newcomer = GroupOwner(
            self.log,
            group,
            options.client,
            self._names(look),
            options.subscription.assigned,
            options.takeover,
        )
        return self._newcomer

    def _names(self, look: Look) -> Iterable[str]:
        """Of the topics that are read: those that are named, or match now."""
        return self.topics.names or look.states

    # --- where it starts -------------------------------------------------------------------

    def initial(self) -> dict[str, Any]:
        """Where the query starts, asked once: Spark asks more than once."""
        if self._initial is None:
            look, group, number = self._look_first(), self.options.group, 0
            if group is not None:
                owner = self._owner or self._newcomer or self._new_owner(group, look)
                if owner is not self._owner and owner.may_join_now():
                    look = self._open()
                number = owner.resets_at_join
            self.topics.check(look)
            self._is_checked = True
            start: Positions = {}
            try:
                start, self._seen = self._resolve(look)
            except InvalidRequestError as error:
                # Spark asks this, too, when it runs a first batch again that was planned by
                # other options, or by these before the log changed: that needs no start.
                self._no_start = error
            # Spark may make an empty batch of it, and ask for another one if that is run again.
            self._initial = self._to_json(start, number, start)
        return self._initial

    def _resolve(self, look: Look) -> tuple[Positions, Look]:
        return resolve(self.log, self.options, self.options.start, self.topics, look, self.lost)

    def prepare_available_now(self) -> None:
        """All that is there now is read by this run, and nothing that comes later."""
        self._look_first()
        self._seen = self.topics.look(skip_deleted=True)
        self._target = {tp: span.end for tp, span in self._seen.spans.items()}

    # --- the next batch --------------------------------------------------------------------

    def next(self, raw: dict[str, Any], limited: bool) -> dict[str, Any]:
        """Where the next batch ends; ``raw`` itself if there is nothing to read yet."""
        self._answer = self._next(raw, limited)
        return self._answer

    def _next(self, raw: dict[str, Any], limited: bool) -> dict[str, Any]:
        if self._owner is not None and self._owner.has_left:
            return raw  # Other sources of the query may go on. A reset is the next run's to follow.
        start, is_first = self._parse(raw), raw == self._initial
        joins_late = self._owner is None and is_first and self.options.start.kind == "group"
        seen, owner = self._open(None if is_first else start), self._owner
        if joins_late and owner is not None:
            # Whoever had the group may have gone on since Spark asked where the query starts.
            self._rebegun, seen = self._resolve(seen)
        if not self._is_checked:
            self.topics.check(seen, start.at)
            self._is_checked = True
        if is_first and self._no_start is not None:
            raise self._no_start
        if is_first and self._rebegun is not None:
            start = start._replace(at=self._rebegun)
        number = self._followed(start)
        is_logged = raw != self._not_logged
        if owner is not None and not is_first and number is not None and is_logged:
            owner.submit(start.at, number, seen.spans)
        now = self._env.monotonic()
        if now < self._idle_until:
            if self._target is not None:
                return self._idle(raw, start)
            # Where the query is stopped meanwhile, its planner ends beside the wait.
            self._env.sleep(self._idle_until - now)
            now = self._env.monotonic()
        look = self._look(start, number)
        plan = next_batch(look, start, self._target, is_first)
        if owner is not None:
            owner.declare(self._names(look), plan.begin, look.spans)
        for loss in plan.losses:
            self.lost(loss)
        for reset in plan.resets.values():
            if reset.warning:
                warn(reset.warning)
        records = plan.records
        if limited and records:
            if self._waits_for_more(plan):
                plan = plan._replace(end=start.at)
            else:
                plan = limit_records(plan, self.options.max_offsets)
                plan = limit_bytes(plan, self.options.max_bytes, look, self.topics.topic)
        self._passed_over = records - plan.records
        resets = 0 if look.group is None else look.group.resets
        if not plan.end or (plan.end == start.at and not plan.resets):
            if number is None and look.group is not None and start.at:
                # An empty batch leaves the number in the checkpoint.
                return self._to_json(start.at, resets)
            if is_first and self._rebegun is not None:
                return self._to_json(start.at, resets, start.at)
            self._idle_until = now + self._poll_seconds
            return self._idle(raw, start)
        self._last_batch_at = now
        if owner is not None and plan.resets:
            logger.info("The query follows reset %d of its group %r.", resets, owner.group)
            owner.forget(plan.resets)
        return self._to_json(plan.end, resets, plan.moved)

    def _look(self, start: QueryOffset, number: int | None) -> Look:
        """What there is, with all that the query has read before in sight, or known to be gone."""
        self.log.root.check()
        look = self.topics.look(skip_deleted=True)
        expected = start.at
        if self._owner is not None:
            # As it is now if there is anything to read, else as it was a moment ago.
            is_new = any(span.end > expected.get(tp, 0) for tp, span in look.spans.items())
            group = self._owner.look(0.0 if is_new else IDLE_LOOK)
            followed = self._owner.resets_at_join if number is None else number
            look = look._replace(group=group, followed=followed)
            if group.resets > followed:
                # What the chain says is gone was there when it was reset, so the number may go
                # into the offset without it.
                put = {TopicPartition(*p): at for p, at in resets_since(group, followed).items()}
                expected = {**expected, **put}
        self._seen = look = self.topics.look_for(look, expected)
        return look

    def _idle(self, raw: dict[str, Any], start: QueryOffset) -> dict[str, Any]:
        """An idle query has time to wait until its progress is committed."""
        if self._owner is not None:
            self._owner.flush()
            target = self._target
            if target is not None and all(start.at.get(tp, 0) >= end for tp, end in target.items()):
                self._owner.leave()
        return raw

    def _waits_for_more(self, plan: BatchPlan) -> bool:
        low = self.options.min_offsets
        if low is None or plan.records >= low or self._target is not None or plan.resets:
            return False
        waited = self._env.monotonic() - self._last_batch_at
        return waited * 1000 < self.options.max_delay_ms

    def _followed(self, offset: QueryOffset) -> int | None:
        """The number of the last reset of the group that the progress up to ``offset`` has
        followed; None if the checkpoint does not say: it is another group's, or from before its
        table was wiped. It follows more resets then than the group knows of."""
        owner = self._owner
        if owner is None:
            return 0
        if offset.group != self.options.group or offset.reset is None:
            return None
        return offset.reset if offset.reset <= owner.resets else None

    # --- offsets as Spark has them ---------------------------------------------------------

    def _parse(self, raw: dict[str, Any]) -> QueryOffset:
        for known, offset in self._parsed:
            if known == raw:
                return offset
        offset = parse(raw)
        self._parsed.append((raw, offset))
        self._id = offset.checkpoint or self._id
        return offset

    def _to_json(
        self, positions: Positions, resets: int, moved: Positions | None = None
    ) -> dict[str, Any]:
        group, owner = self.options.group, self._owner or self._newcomer
        offset = QueryOffset(
            positions,
            group,
            None if group is None else resets,
            moved or {},
            self._id if owner is None else owner.checkpoint,
        )
        raw = offset.to_json()
        self._parsed.append((raw, offset))
        return raw

    # --- planning --------------------------------------------------------------------------

    def ranges(self, raw_start: dict[str, Any], raw_end: dict[str, Any]) -> list[OffsetRange]:
        """What the batch between two offsets reads, a range for each task."""
        if raw_start == raw_end:
            return []
        if raw_end == self._answer and raw_start not in (self._initial, self._acknowledged):
            self._not_logged = raw_end
        start, end = self._parse(raw_start), self._parse(raw_end)
        look = self._open(end)
        if self._no_start is not None and raw_start == self._initial and end.at.keys() - end.moved:
            raise self._no_start
        ranges = []
        begins: Positions = {}
        for tp, to in sorted(end.at.items()):
            log_start = look.spans[tp].start if look.reaches(tp, to) else self._log_start(tp, to)
            if log_start is None:
                continue
            begin = begin_of(start, end, tp)
            if begin is None:
                begin = log_start
            if begin < min(log_start, to):
                self.lost(retention_loss(tp, begin, log_start))
                begin = min(log_start, to)
            begins[tp] = begin
            if begin < to:
                ranges.append(OffsetRange(tp.topic, tp.partition, begin, to))
            elif begin > to:
                self.lost(
                    f"{tp.topic}-{tp.partition} was to be read from {begin} back to {to}: what "
                    "was planned is gone, or an offset of the checkpoint was changed."
                )
        if self._owner is not None:
            self._owner.declare(self._names(look), begins, look.spans)
        return split_ranges(ranges, self.options.min_partitions, self.options.max_records)

    def _log_start(self, tp: TopicPartition, to: int) -> int | None:
        """Where a partition starts that the last look did not see up to ``to``; None when the
        records are gone."""
        topic = self.topics.topic(tp.topic)
        try:
            state = topic.known_state()
            if tp.partition >= state.partitions or state.end(tp.partition) < to:
                state = topic.state()
        except UnknownTopicError as error:
            state_with(topic, tp.partition, to)
            self.lost(f"{tp.topic}-{tp.partition} was to be read up to {to}: {error.message}")
            return None
        if tp.partition >= len(state.parts) or state.end(tp.partition) < to:
            state = state_with(topic, tp.partition, to)
        return state.start(tp.partition)

    # --- the rest --------------------------------------------------------------------------

    def processed(self, raw: dict[str, Any]) -> None:
        """Everything before this offset is done."""
        self._acknowledged = raw
        offset = self._parse(raw)
        spans = self._open(None if raw == self._initial else offset).spans
        if self._owner is not None:
            number = self._followed(offset)
            followed = self._owner.resets_at_join if number is None else number
            self._owner.submit(offset.at, followed, spans)

    def latest(self) -> dict[str, Any] | None:
        """The ends of the partitions as they were last looked at, for Spark's progress."""
        if self._seen is None or not self._seen.spans:
            return None
        return nested({tp: span.end for tp, span in self._seen.spans.items()})

    def left_undone(self, ran_again: bool) -> str:
        """What a run of a single batch did not do, in a Spark that ends it without a word."""
        left = []
        if ran_again:
            left.append("only ran its last batch again: start it once more for what is new")
        elif self._passed_over:
            left.append(f"leaves {self._passed_over} records to its next start, by its limits")
        if self.options.group is not None:
            left.append(f"commits it for the group {self.options.group!r} at its next start")
        if not left:
            return ""
        return (
            "Spark before 4.2 makes a single batch of availableNow and once, and does not say how "
            f"it ended. The query {', and '.join(left)}. With the jar for Spark's JVM it reads all "
            "that there is: run 'offsetlog jar'."
        )

    def stop(self) -> None:
        if self._owner is not None:
            self._owner.leave()
