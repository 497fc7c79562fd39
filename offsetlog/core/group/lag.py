"""How far a group is behind.

Rules of this module:

1. Lag is what can still be read: from the position, or from the log's start if retention has
   passed it, to the log's end: the records that are there, which compaction and erasure make fewer
   than the offsets. What it passed is shown as ``expired``.
2. A partition without a position has no lag and is left out, as in Kafka. A position in a
   topic that is gone, or past the log's end, is shown as it is.
3. Seconds are the age of the oldest record that is not yet committed; where nothing is to be
   read they are 0. A total's seconds are the oldest partition's.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from offsetlog.core.group.facts import Partition
from offsetlog.core.group.reset import OffsetSpan
from offsetlog.core.group.state import GroupState


class Backlog(NamedTuple):
    """The records from a position to the end of its partition."""

    bytes: int | None = None
    oldest_ms: int | None = None
    """Timestamp of the first of them."""
    records: int | None = None
    """How many they are; None: as many as offsets."""


class Lag(NamedTuple):
    """One line of ``describe``. None stands for what cannot be known."""

    topic: str
    partition: int
    committed: int
    start: int | None
    end: int | None
    records: int | None
    bytes: int | None
    seconds: float | None
    expired: int
    """Records that retention took before the group read them."""
    out_of_range: bool
    """The next read follows ``auto_offset_reset``."""
    member: str | None
    metadata: str


class Total(NamedTuple):
    records: int
    bytes: int | None
    seconds: float | None


def reading_from(group: GroupState, spans: Mapping[Partition, OffsetSpan]) -> dict[Partition, int]:
    """The offset in each partition whose ``Backlog`` is to be found out."""
    return {
        partition: max(position.offset, spans[partition].start)
        for partition, position in sorted(group.positions.items())
        if partition in spans and position.offset < spans[partition].end
    }


def group_lag(
    group: GroupState,
    spans: Mapping[Partition, OffsetSpan],
    backlogs: Mapping[Partition, Backlog],
    now_ms: int,
) -> tuple[Lag, ...]:
    """A line for each partition with a position, in order."""
    owner = group.owner
    offsets = {partition: position.offset for partition, position in group.positions.items()}
    lines = []
    for line in positions_lag(offsets, spans, backlogs, now_ms):
        partition = line.topic, line.partition
        held = group.holders.get(partition)
        member = owner.name if owner is not None else held.member if held is not None else None
        lines.append(line._replace(member=member, metadata=group.positions[partition].metadata))
    return tuple(lines)


def positions_lag(
    positions: Mapping[Partition, int],
    spans: Mapping[Partition, OffsetSpan],
    backlogs: Mapping[Partition, Backlog],
    now_ms: int,
) -> tuple[Lag, ...]:
    """The same for positions that belong to no group."""
    return tuple(
        _line(partition, offset, spans.get(partition), backlogs.get(partition, Backlog()), now_ms)
        for partition, offset in sorted(positions.items())
    )


def _line(
    partition: Partition, offset: int, span: OffsetSpan | None, backlog: Backlog, now_ms: int
) -> Lag:
    topic, number = partition
    if span is None:
        return Lag(topic, number, offset, None, None, None, None, None, 0, False, None, "")
    start, end = span
    offsets = max(end - max(offset, start), 0)
    records = offsets if backlog.records is None else min(offsets, backlog.records)
    size, oldest = backlog[:2] if records else (0, now_ms)
    seconds = None if oldest is None else max(now_ms - oldest, 0) / 1000
    expired = max(min(start, end) - offset, 0)
    out = not start <= offset <= end
    return Lag(topic, number, offset, start, end, records, size, seconds, expired, out, None, "")


def total(lines: Iterable[Lag]) -> Total:
    """Of the lines with a lag. Bytes and seconds are unknown as soon as one of them is."""
    counted = [line for line in lines if line.records is not None]
    sizes = [line.bytes for line in counted]
    ages = [line.seconds for line in counted]
    return Total(
        sum(line.records or 0 for line in counted),
        None if None in sizes else sum(size or 0 for size in sizes),
        None if None in ages else max((age or 0.0 for age in ages), default=0.0),
    )
