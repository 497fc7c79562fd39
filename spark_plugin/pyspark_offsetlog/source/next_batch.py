"""Which records the next micro-batch reads, from one look at the log and its group.

Invariants:

1. A batch begins where the last one ended, but for partitions that were reset, that are new, or
   whose records are gone.
2. No limit makes a batch empty while there is something to read: at least one record of each
   partition that has any.
3. ``next_batch`` is pure. A limit in bytes is kept as far as sizes are known without reading
   records.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple

from offsetlog.core.group.membership import follow_resets
from offsetlog.core.group.reset import OffsetSpan
from offsetlog.core.group.starting_offset import StartingOffset
from offsetlog.core.group.state import GroupState
from offsetlog.core.topic.plan import estimate_bytes
from offsetlog.core.topic.state import TopicState
from offsetlog.engine import OpenTopic
from offsetlog.values import TopicPartition
from pyspark_offsetlog.source.offsets import Positions, QueryOffset


class Look(NamedTuple):
    """What a query sees of the log, and of its group, before it plans a batch."""

    states: Mapping[str, TopicState] = {}  # noqa: RUF012 - never changed
    spans: Mapping[TopicPartition, OffsetSpan] = {}  # noqa: RUF012
    """Of each partition that is read."""
    group: GroupState | None = None
    followed: int = 0
    """The number of the last reset that the query's progress has followed."""

    def reaches(self, tp: TopicPartition, offset: int) -> bool:
        """Whether the partition is in sight up to an offset."""
        span = self.spans.get(tp)
        return span is not None and offset <= span.end


class BatchPlan(NamedTuple):
    begin: Positions
    end: Positions
    """Up to where there are records."""
    moved: Positions
    """``begin`` of the partitions that do not go on where the last batch ended."""
    losses: tuple[str, ...]
    """What was to be read and is gone."""
    resets: Mapping[TopicPartition, StartingOffset] = {}  # noqa: RUF012
    """Where partitions that were reset since go on."""

    @property
    def records(self) -> int:
        return sum(end - self.begin[tp] for tp, end in self.end.items())


def next_batch(
    look: Look, start: QueryOffset, target: Positions | None, is_first: bool
) -> BatchPlan:
    """All that there is to read from ``start``, up to ``target`` (``availableNow``) if there is
    one. All partitions of a query's first batch count as moved."""
    begin: Positions = {}
    end: Positions = {}
    moved: Positions = {}
    losses = [
        f"{tp.topic}-{tp.partition} was read up to {start.at[tp]} and is not there, or not "
        "subscribed to, any more."
        for tp in sorted(start.at.keys() - look.spans.keys())
    ]
    resets: Mapping[TopicPartition, StartingOffset] = {}
    if look.group is not None and look.group.resets > look.followed:
        resets = follow_resets(look.group, look.followed, look.spans, "earliest")
    for tp, (log_start, log_end) in look.spans.items():
        before, reset = start.at.get(tp), resets.get(tp)
        if before is None and reset is None and target is not None and tp not in target:
            continue
        at = reset.offset if reset is not None else log_start if before is None else before
        if at < log_start:
            losses.append(retention_loss(tp, at, log_start))
            at = log_start
        begin[tp] = at
        end[tp] = max(at, log_end if target is None else min(log_end, target.get(tp, 0)))
        if is_first or reset is not None or at != before:
            moved[tp] = at
    return BatchPlan(begin, end, moved, tuple(losses), resets)


def retention_loss(tp: TopicPartition, at: int, log_start: int) -> str:
    return (
        f"{tp.topic}-{tp.partition} was to be read from {at}, but starts at {log_start} now: "
        "retention took the records between."
    )


# --- rate limits ---------------------------------------------------------------------------


def limit_records(plan: BatchPlan, max_records: int | None) -> BatchPlan:
    """The same batch of about ``max_records``."""
    if max_records is None or plan.records <= max_records:
        return plan
    shares = share_out(max_records, {tp: end - plan.begin[tp] for tp, end in plan.end.items()})
    return plan._replace(end={tp: plan.begin[tp] + shares[tp] for tp in plan.end})


def share_out(limit: int, sizes: Mapping[TopicPartition, int]) -> Positions:
    """How many records each partition gives to a batch of about ``limit``: in proportion to
    what it has, rounded down, but at least one."""
    total = sum(sizes.values())
    return {tp: min(size, max(1, limit * size // (total or 1))) for tp, size in sizes.items()}


def limit_bytes(
    plan: BatchPlan, max_bytes: int | None, look: Look, topic: Callable[[str], OpenTopic]
) -> BatchPlan:
    """The same batch of about ``max_bytes``."""
    if max_bytes is None:
        return plan
    sizes = {
        tp: estimate_bytes(look.states[tp.topic], tp.partition, plan.begin[tp], end)
        for tp, end in plan.end.items()
        if end > plan.begin[tp]
    }
    total = sum(sizes.values())
    if total <= max_bytes:
        return plan
    ends = dict(plan.end)
    for tp, size in sizes.items():
        share = max(1, max_bytes * size // total)
        left, at = share, plan.begin[tp]
        reader = topic(tp.topic).reader
        while left and at < plan.end[tp]:
            for piece in reader.plan_part(tp.partition, at, plan.end[tp], max_bytes=left).pieces:
                taken = min(left, piece.bytes)
                width = piece.end - piece.start
                at = piece.start + (taken * width // piece.bytes if taken < piece.bytes else width)
                left -= taken
        ends[tp] = min(plan.end[tp], max(plan.begin[tp] + 1, at))
    return plan._replace(end=ends)
