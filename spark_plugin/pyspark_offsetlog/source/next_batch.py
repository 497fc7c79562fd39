"""Which records the next micro-batch reads: pure, from one look at the log and its group.

Invariants:

1. A batch begins where the last one ended, but for partitions that were reset, that are new, or
   whose records are gone.
2. No limit makes a batch empty while there is something to read: at least one record of each
   partition that has any.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from offsetlog.core.group.membership import follow_resets
from offsetlog.core.group.reset import OffsetSpan
from offsetlog.core.group.starting_offset import StartingOffset
from offsetlog.core.group.state import GroupState
from offsetlog.core.topic.state import TopicState
from offsetlog.values import TopicPartition
from pyspark_offsetlog.source.offsets import Positions, QueryOffset, share_out


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


def limit_records(max_records: int | None, plan: BatchPlan) -> BatchPlan:
    """The same batch of about ``max_records``."""
    if max_records is None or plan.records <= max_records:
        return plan
    shares = share_out(max_records, {tp: end - plan.begin[tp] for tp, end in plan.end.items()})
    return plan._replace(end={tp: plan.begin[tp] + shares[tp] for tp in plan.end})
