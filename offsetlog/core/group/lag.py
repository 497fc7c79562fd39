"""How far a group is behind.

Rules of this module:

1. Lag is what can still be read: from the position, or from the log's start if retention has
   passed it, to the log's end: the records that are there, which compaction and erasure make fewer
   than the offsets. What it passed is shown as ``expired``.
2. Each partition that a member reads has a line, with a position or without: who has committed
   nothing yet has not read everything. Without one the lag is counted from where the member said
   that it begins; where it did not, or begins at an end that nobody else knows, the lag is None.
3. A position in a topic that is gone, or past the log's end, is shown as it is.
4. Seconds are the age of the oldest record that is not yet committed; where nothing is to be
   read they are 0. A total's seconds are the oldest partition's.
5. A total of what is known in part only is not known.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from itertools import count, takewhile
from typing import NamedTuple

from offsetlog.core.group.facts import Partition, StartingPoint
from offsetlog.core.group.reset import OffsetSpan
from offsetlog.core.group.state import GroupState, Member


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
    committed: int | None
    """None: there is no commit yet."""
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
    """Of all lines; None where one of them is not known."""

    records: int | None
    bytes: int | None
    seconds: float | None


def topics_of(group: GroupState) -> set[str]:
    """The topics that its lag is about: those of its positions, and those that its members name."""
    named = {topic for topic, _ in group.positions}
    return named.union(*(member.subscription.topics for member in group.members.values()))


def starts_of(
    group: GroupState, spans: Mapping[Partition, OffsetSpan]
) -> dict[Partition, int | None]:
    """The partitions that members read and that have no position yet, in order; and where reading
    begins, if it is known."""
    readers: dict[str, list[Member]] = {}
    for _, member in sorted(group.members.items()):
        for topic in member.subscription.topics:
            readers.setdefault(topic, []).append(member)
    starts = {}
    for topic, mine in sorted(readers.items()):
        for partition in _partitions_of(topic, spans):
            points = _starting_points(group, partition, mine)
            if points and partition not in group.positions:
                offsets = {_start(partition, one, spans[partition], group) for one in points}
                starts[partition] = offsets.pop() if len(offsets) == 1 else None
    return starts


def _partitions_of(topic: str, spans: Mapping[Partition, OffsetSpan]) -> Iterator[Partition]:
    return takewhile(spans.__contains__, ((topic, number) for number in count()))


def _starting_points(
    group: GroupState, partition: Partition, readers: list[Member]
) -> list[StartingPoint]:
    """Of whoever is to read it; of all who may, where that is not said. Empty: nobody reads it."""
    reader = group.members.get(group.targets.get(partition, ""))
    points = [
        member.subscription.start or StartingPoint()
        for member in (readers if reader is None else [reader])
    ]
    return [point for point in points if not point.only or partition in point.offsets]


def _start(
    partition: Partition, point: StartingPoint, span: OffsetSpan, group: GroupState
) -> int | None:
    if partition in point.offsets:
        return point.offsets[partition]
    return span.start if point.policy == "earliest" or partition in group.added else None


def reading_from(group: GroupState, spans: Mapping[Partition, OffsetSpan]) -> dict[Partition, int]:
    """The offset in each partition whose ``Backlog`` is to be found out."""
    return {
        partition: max(offset, spans[partition].start)
        for partition, offset in sorted(_offsets(group, spans).items())
        if offset is not None and partition in spans and offset < spans[partition].end
    }


def _offsets(
    group: GroupState, spans: Mapping[Partition, OffsetSpan]
) -> dict[Partition, int | None]:
    """From where each partition is to be read on."""
    positions = {partition: position.offset for partition, position in group.positions.items()}
    return {**positions, **starts_of(group, spans)}


def group_lag(
    group: GroupState,
    spans: Mapping[Partition, OffsetSpan],
    backlogs: Mapping[Partition, Backlog],
    now_ms: int,
) -> tuple[Lag, ...]:
    """A line for each partition that has a position, or that a member reads, in order."""
    owner = group.owner
    lines = []
    for partition, offset in sorted(_offsets(group, spans).items()):
        backlog = backlogs.get(partition, Backlog())
        line = _line(partition, offset, spans.get(partition), backlog, now_ms)
        held = group.holders.get(partition)
        member = owner.name if owner is not None else held.member if held is not None else None
        position = group.positions.get(partition)
        if position is None:
            line = line._replace(member=member, committed=None, out_of_range=False)
        else:
            line = line._replace(member=member, metadata=position.metadata)
        lines.append(line)
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
    partition: Partition,
    offset: int | None,
    span: OffsetSpan | None,
    backlog: Backlog,
    now_ms: int,
) -> Lag:
    topic, number = partition
    if span is None or offset is None:
        start, end = (None, None) if span is None else span
        return Lag(topic, number, offset, start, end, None, None, None, 0, False, None, "")
    start, end = span
    offsets = max(end - max(offset, start), 0)
    records = offsets if backlog.records is None else min(offsets, backlog.records)
    size, oldest = backlog[:2] if records else (0, now_ms)
    seconds = None if oldest is None else max(now_ms - oldest, 0) / 1000
    expired = max(min(start, end) - offset, 0)
    out = not start <= offset <= end
    return Lag(topic, number, offset, start, end, records, size, seconds, expired, out, None, "")


def total(lines: Iterable[Lag]) -> Total:
    """Of all lines but those of topics that are gone."""
    there = [line for line in lines if line.end is not None]
    counts = [line.records for line in there]
    sizes = [line.bytes for line in there]
    ages = [line.seconds for line in there]
    return Total(
        None if None in counts else sum(count or 0 for count in counts),
        None if None in sizes else sum(size or 0 for size in sizes),
        None if None in ages else max((age or 0.0 for age in ages), default=0.0),
    )
