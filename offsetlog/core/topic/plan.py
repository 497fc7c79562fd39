"""Where the records of a range lie, and which offset a time stands for.

Rules of this module:

1. A question that needs leaves which are not at hand answers ``NeedLeaves``; the caller
   loads them and asks again. Nothing is loaded that the partition and range don't need.
2. An answer that may cover less than was asked for is a ``PlannedPart``: it says where it ends,
   and can't be taken for a tuple of pieces, which always covers its range (``Reader.plan``).
3. Pieces lie edge to edge. Where no file holds an offset, or two do, that is
   ``CorruptLogError``: a missing extent is never an empty result.
4. An estimate is rounded up: it is 0 only where no file of the range holds anything.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
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
        return share(extent.records, extent.base, extent.end, self.start, self.end)

    @property
    def bytes(self) -> int:
        """About how many bytes of records these are."""
        extent = self.extent
        return share(extent.bytes, extent.base, extent.end, self.start, self.end)

    def may_have(self, rows: int) -> bool:
        """Whether so many rows can be all of these records, as the extent counts them. One number
        alone can, unless a file with gaps is cut."""
        extent, width = self.extent, self.end - self.start
        outside = extent.end - extent.base - width
        return max(0, extent.records - outside) <= rows <= min(extent.records, width)


class PlannedPart:
    """The beginning of a range, at least its first piece if it has any. Whoever wants the rest
    asks again from ``end``. It is no sequence, so it can't stand for all that was asked for."""

    __slots__ = ("end", "pieces")

    def __init__(self, pieces: tuple[PlannedPiece, ...], end: int) -> None:
        self.pieces = pieces
        self.end = end


Leaves = Mapping[str, Leaf]


def check_partition(state: TopicState, partition: int) -> None:
    if not state.alive or not 0 <= partition < state.partitions:
        hint = f"It has {state.partitions}, from 0." if state.alive else "It was deleted."
        raise UnknownTopicError(f"Topic {state.topic!r} has no partition {partition}.", hint)


def holds_still(state: TopicState, partition: int, offset: int, planned_at: int) -> bool:
    """Whether what was planned from ``offset`` on at an earlier tip is what the partition holds:
    nothing of it was deleted, or replaced, as an erasure does."""
    if state.tip == planned_at:
        return True
    if offset < state.parts[partition].start or state.replaces_forgotten >= planned_at:
        return False
    return not any(
        seen.partition == partition and seen.end > offset
        for seen in state.replaces
        if seen.entry >= planned_at
    )


def check_range(state: TopicState, partition: int, start: int, end: int) -> None:
    """Refuse a range that reaches outside what the partition holds."""
    check_partition(state, partition)
    part = state.parts[partition]
    if not part.start <= start <= end <= part.end:
        raise OffsetOutOfRangeError(
            f"Offsets {start} to {end} of {state.topic}-{partition} are not there.",
            held_offsets(part.start, part.end),
        )


def plan_part(
    state: TopicState,
    partition: int,
    start: int,
    end: int,
    leaves: Leaves,
    max_records: int | None = None,
    max_bytes: int | None = None,
    ahead: int = 1,
) -> PlannedPart | NeedLeaves:
    """The first files of [start, end), in order: up to the piece that reaches
    a limit, or to the first leaf that is not at hand. If not even the first one is, the leaves
    that are needed, at most ``ahead`` of them."""
    check_range(state, partition, start, end)
    out: list[PlannedPiece] = []
    records = size = 0
    at = start
    for extent in extents_of(state, partition, start, end, leaves, ahead):
        if isinstance(extent, NeedLeaves):
            return PlannedPart(tuple(out), at) if out else extent
        if not extent.base <= at < extent.end or (out and extent.base < at):
            raise _hole(state, partition, at)
        piece = PlannedPiece(extent, at, min(end, extent.end))
        out.append(piece)
        at = piece.end
        if max_records is not None:
            records += piece.records
            if records >= max_records:
                return PlannedPart(tuple(out), at)
        if max_bytes is not None:
            size += piece.bytes
            if size >= max_bytes:
                return PlannedPart(tuple(out), at)
    if at < end:
        raise _hole(state, partition, at)
    return PlannedPart(tuple(out), at)


def tiling_fault(start: int, end: int, ranges: Iterable[tuple[int, int]]) -> str | None:
    """What keeps these ranges, in the order in which they are given, from being [start, end)."""
    at = start
    for low, high in ranges:
        if low > at:
            return f"offsets {at} to {low} are left out"
        if low < at:
            return f"offsets {low} to {at} are there twice"
        if not low < high <= end:
            return f"offsets {low} to {high} lie outside"
        at = high
    return f"offsets {at} to {end} are left out" if at < end else None


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
        span = leaf.span(partition, low, high)
        if not span:
            raise _hole(state, partition, low)
        for position in span:
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
        total += share(young.bytes, young.base, young.end, start, end)
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
    gaps, or a part of the index that names one, is or was cut. It is not 0 if such a file has any
    record at all."""
    if state.rules < 2:
        return max(0, end - start)
    total = 0
    at = start
    for young in state.parts[partition].tail.overlapping(start, end):
        total += _stored_records(state, partition, at, young.base)
        total += share(young.records, young.base, young.end, start, end)
        at = young.end
    return total + _stored_records(state, partition, at, end)


def _stored_records(state: TopicState, partition: int, start: int, end: int) -> int:
    if start >= end:
        return 0
    fences = state.index.fences(partition, start, end)
    return sum(share(f.records, f.base, f.end, start, end) for f in fences)


def _stored_bytes(state: TopicState, partition: int, start: int, end: int) -> int:
    if start >= end:
        return 0
    fences = state.index.fences(partition, start, end)
    return sum(share(f.bytes, f.base, f.end, start, end) for f in fences)


def share(size: int, base: int, end: int, low: int, high: int) -> int:
    """What [low, high) has of ``size``, if that is spread evenly over [base, end): rounded up."""
    return -(-size * (min(end, high) - max(base, low)) // max(1, end - base))
