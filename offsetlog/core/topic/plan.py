"""Where the records of a range lie, and which offset a time stands for.

Rules of this module:

1. A question that needs leaves which are not at hand answers ``NeedLeaves``; the caller
   loads them and asks again. Nothing is loaded that the partition and range don't need.
2. The answer covers the range without a hole, or it is ``CorruptLogError``: a missing extent
   is never an empty result.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import NamedTuple

from offsetlog.core.topic.extents import Extent
from offsetlog.core.topic.index import Fence, Leaf, visible
from offsetlog.core.topic.state import TopicState
from offsetlog.errors import CorruptLogError, OffsetOutOfRangeError, UnknownTopicError
from offsetlog.values import held_offsets


class NeedLeaves(NamedTuple):
    uids: tuple[str, ...]


class PlannedPiece(NamedTuple):
    """The records of one file with offsets in [start, end)."""

    extent: Extent
    start: int
    end: int

    @property
    def is_whole(self) -> bool:
        """Whether these are all offsets of the file."""
        return self.end - self.start == self.extent.end - self.extent.base

    @property
    def records(self) -> int:
        """How many records these are: about, where a file with gaps is cut."""
        extent = self.extent
        return extent.records * (self.end - self.start) // (extent.end - extent.base)

    @property
    def bytes(self) -> int:
        """About how many bytes of records these are."""
        extent = self.extent
        return extent.bytes * (self.end - self.start) // max(1, extent.end - extent.base)


Leaves = Mapping[str, Leaf]


def check_partition(state: TopicState, partition: int) -> None:
    if not state.alive or not 0 <= partition < state.partitions:
        hint = f"It has {state.partitions}, from 0." if state.alive else "It was deleted."
        raise UnknownTopicError(f"Topic {state.topic!r} has no partition {partition}.", hint)


def check_range(state: TopicState, partition: int, start: int, end: int) -> None:
    """Refuse a range that reaches outside what the partition holds."""
    check_partition(state, partition)
    part = state.parts[partition]
    if not part.start <= start <= end <= part.end:
        raise OffsetOutOfRangeError(
            f"Offsets {start} to {end} of {state.topic}-{partition} are not there.",
            held_offsets(part.start, part.end),
        )


def plan(
    state: TopicState,
    partition: int,
    start: int,
    end: int,
    leaves: Leaves,
    max_records: int | None = None,
    max_bytes: int | None = None,
) -> tuple[PlannedPiece, ...] | NeedLeaves:
    """The files of [start, end) in order, cut off behind the piece that reaches a limit."""
    check_range(state, partition, start, end)
    ahead = 8 if max_records is None and max_bytes is None else 1
    out: list[PlannedPiece] = []
    records = size = 0
    at = start
    for extent in extents_of(state, partition, start, end, leaves, ahead):
        if isinstance(extent, NeedLeaves):
            return extent if not out else tuple(out)
        piece = PlannedPiece(extent, max(at, extent.base), min(end, extent.end))
        out.append(piece)
        at = piece.end
        if max_records is not None:
            records += piece.records
            if records >= max_records:
                return tuple(out)
        if max_bytes is not None:
            size += piece.bytes
            if size >= max_bytes:
                return tuple(out)
    if at < end:
        raise _hole(state, partition, at)
    return tuple(out)


def live_fences(state: TopicState) -> dict[str, list[Fence]]:
    """For each leaf what of it is live: neither trimmed, nor replaced since it was stored.

    With the tail that is all there is: a hole is ``CorruptLogError``."""
    out: dict[str, list[Fence]] = {}
    for partition, part in enumerate(state.parts):
        young = part.tail.overlapping(part.start, part.end)
        fences = visible(state.index.fences(partition, part.start, part.end), part.start, young)
        at = part.start
        ranges = [(fence.base, fence.end) for fence in fences] + [(e.base, e.end) for e in young]
        for base, end in sorted(ranges):
            if base > at:
                raise _hole(state, partition, at)
            at = max(at, end)
        if at < part.end:
            raise _hole(state, partition, at)
        for fence in fences:
            out.setdefault(state.index.leaves[fence.leaf].uid, []).append(fence)
    return out


def extents_of(
    state: TopicState, partition: int, start: int, end: int, leaves: Leaves, ahead: int
) -> Iterator[Extent | NeedLeaves]:
    """The extents of a range from the tail and, where it has none, from the stored index.

    At the first missing leaf: the leaves that the rest needs, at most ``ahead`` of them."""
    part = state.parts[partition]
    at = start
    for young in part.tail.overlapping(start, end):
        if young.base > at:
            yield from _stored(state, partition, at, young.base, leaves, ahead)
        yield young
        at = young.end
    if at < end:
        yield from _stored(state, partition, at, end, leaves, ahead)


def _stored(
    state: TopicState, partition: int, start: int, end: int, leaves: Leaves, ahead: int
) -> Iterator[Extent | NeedLeaves]:
    fences = state.index.fences(partition, start, end)
    at = start
    for i, fence in enumerate(fences):
        uid = state.index.leaves[fence.leaf].uid
        leaf = leaves.get(uid)
        if leaf is None:
            rest = [state.index.leaves[f.leaf].uid for f in fences[i : i + ahead]]
            yield NeedLeaves(tuple(dict.fromkeys(u for u in rest if u not in leaves)))
            return
        if fence.base > at:
            raise _hole(state, partition, at)
        low, high = max(start, fence.base), min(end, fence.end)
        for position in leaf.span(partition, low, high):
            yield leaf.extent(position)
        at = fence.end
    if at < end:
        raise _hole(state, partition, at)


def _hole(state: TopicState, partition: int, at: int) -> CorruptLogError:
    return CorruptLogError(
        f"The index of {state.topic}-{partition} names no file for offset {at}.",
        "Run 'offsetlog verify' on the topic.",
    )


# --- lookup by time ------------------------------------------------------------------------


def first_at_or_after(
    state: TopicState, partition: int, time_ms: int, from_offset: int, leaves: Leaves
) -> Extent | NeedLeaves | None:
    """The first extent from ``from_offset`` on that may hold a record of ``time_ms`` or later.

    Its rows decide; if none of them does, ask again from its end."""
    part = state.parts[partition]
    at = max(from_offset, part.start)
    for young in part.tail.overlapping(at, part.end):
        if young.base > at:
            old = _stored_at_or_after(state, partition, time_ms, at, young.base, leaves)
            if old is not None:
                return old
        if young.max_ts >= time_ms:
            return young
        at = young.end
    return _stored_at_or_after(state, partition, time_ms, at, part.end, leaves)


def _stored_at_or_after(
    state: TopicState, partition: int, time_ms: int, start: int, end: int, leaves: Leaves
) -> Extent | NeedLeaves | None:
    for fence in state.index.fences(partition, start, end):
        if fence.max_ts < time_ms:
            continue
        uid = state.index.leaves[fence.leaf].uid
        leaf = leaves.get(uid)
        if leaf is None:
            return NeedLeaves((uid,))
        for i in leaf.span(partition, max(start, fence.base), min(end, fence.end)):
            if leaf.max_ts[i] >= time_ms:
                return leaf.extent(i)
    return None


# --- sizes ---------------------------------------------------------------------------------


def max_extents(state: TopicState, partition: int, start: int, end: int) -> int:
    """The most files that [start, end) may lie in, from what is in memory."""
    fences = state.index.fences(partition, start, end)
    stored = sum(state.index.leaves[fence.leaf].extents for fence in fences)
    return stored + len(state.parts[partition].tail)


def estimate_bytes(state: TopicState, partition: int, start: int, end: int) -> int:
    """About how many bytes of records lie in [start, end), from what is in memory."""
    part = state.parts[partition]
    total = 0
    at = start
    for young in part.tail.overlapping(start, end):
        total += _stored_bytes(state, partition, at, young.base)
        total += _share(young.bytes, young.base, young.end, start, end)
        at = young.end
    return total + _stored_bytes(state, partition, at, end)


def estimate_time(state: TopicState, partition: int, offset: int) -> int | None:
    """About the timestamp of the record at an offset, from what is in memory: it lies between the
    times of the file that holds the record, or of the part of the index that names that file."""
    young = state.parts[partition].tail.overlapping(offset, offset + 1)
    holders = young or state.index.fences(partition, offset, offset + 1)
    if not holders:
        return None
    holder = holders[0]
    steps = max(1, holder.end - holder.base - 1)
    passed = min(max(offset - holder.base, 0), steps)
    return holder.min_ts + (holder.max_ts - holder.min_ts) * passed // steps


def estimate_records(state: TopicState, partition: int, start: int, end: int) -> int:
    """How many records lie in [start, end), from what is in memory: exactly, but where a file with
    gaps, or a part of the index that names one, is cut."""
    if state.rules < 2:
        return max(0, end - start)
    total = 0
    at = start
    for young in state.parts[partition].tail.overlapping(start, end):
        total += _stored_records(state, partition, at, young.base)
        total += _share(young.records, young.base, young.end, start, end)
        at = young.end
    return total + _stored_records(state, partition, at, end)


def _stored_records(state: TopicState, partition: int, start: int, end: int) -> int:
    if start >= end:
        return 0
    fences = state.index.fences(partition, start, end)
    return sum(_share(f.records, f.base, f.end, start, end) for f in fences)


def _stored_bytes(state: TopicState, partition: int, start: int, end: int) -> int:
    if start >= end:
        return 0
    fences = state.index.fences(partition, start, end)
    return sum(_share(f.bytes, f.base, f.end, start, end) for f in fences)


def _share(size: int, base: int, end: int, low: int, high: int) -> int:
    return size * (min(end, high) - max(base, low)) // max(1, end - base)
