"""The stored index of old extents: fences over leaves.

Rules of this module:

1. A leaf is a table of extents sorted by (partition, base). It never changes.
2. A fence says that a leaf holds exactly the offsets [base, end) of a partition. Fences of a
   partition are sorted and disjoint, and a leaf's own extents may reach beyond its fences:
   what lies outside was replaced or trimmed, and is not to be believed.
3. The logical content of an index is a pure function of the chain up to ``seq``; how it is
   split into leaves is the choice of whoever published it (``publish``).
4. Columns are arrays of machine integers: 10^6 segments must not become 10^6 objects.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from offsetlog.core.topic.entry import SegmentRef
from offsetlog.core.topic.extents import Extent

MAX_LEAF_EXTENTS = 16_384
"""The most that a leaf may hold."""

INLINE, WRITTEN, REWRITTEN, EMPTY = 0, 1, 2, 3
_IN_SEGMENTS = (WRITTEN, REWRITTEN)
_NO_ID = "0" * 32


class LeafRef(NamedTuple):
    uid: str
    extents: int


class Fence(NamedTuple):
    partition: int
    leaf: int
    """Position in the index's ``leaves``."""
    base: int
    end: int
    records: int
    bytes: int
    min_ts: int
    max_ts: int


def integers(values: Iterable[int] = ()) -> array[int]:
    return array("q", values)


Blob = bytes
"""The type, for classes that have a field of this name."""


class Leaf(NamedTuple):
    """The columns of a table of extents; see ``Extent`` for their meaning."""

    partition: array[int]
    base: array[int]
    end: array[int]
    records: array[int]
    bytes: array[int]
    min_ts: array[int]
    max_ts: array[int]
    ts_type: array[int]
    kind: array[int]
    entry: array[int]
    place: array[int]
    """Inline: row in the entry. Segment: the tip that it was born at."""
    size: array[int]
    foot: array[int]
    ids: Blob
    """16 bytes each. Inline: write id. Segment: its uid."""
    sums: Blob
    """8 bytes each: sum of the segment's foot."""

    @property
    def extents(self) -> int:
        return len(self.partition)

    def extent(self, i: int) -> Extent:
        ident = self.ids[16 * i : 16 * i + 16].hex()
        segment = None
        if self.kind[i] in _IN_SEGMENTS:
            total = self.sums[8 * i : 8 * i + 8].hex()
            segment = SegmentRef(self.place[i], ident, self.size[i], self.foot[i], total)
        return Extent(
            self.partition[i],
            self.base[i],
            self.end[i],
            self.records[i],
            self.bytes[i],
            self.min_ts[i],
            self.max_ts[i],
            self.ts_type[i],
            self.entry[i],
            ident if self.kind[i] == INLINE else "",
            self.place[i] if self.kind[i] == INLINE else 0,
            segment,
            self.kind[i] in (REWRITTEN, EMPTY),
        )

    def span(self, partition: int, start: int, end: int) -> range:
        """Positions of the extents that hold any offset of [start, end) of a partition."""
        low = bisect_left(self.partition, partition)
        high = bisect_right(self.partition, partition, low)
        return range(
            bisect_right(self.end, start, low, high), bisect_left(self.base, end, low, high)
        )


def inline_of(leaf: Leaf, span: range) -> list[int]:
    """Positions in a span whose rows lie in the chain."""
    return [i for i in span if leaf.kind[i] == INLINE]


def segments_of(leaf: Leaf, span: range) -> list[int]:
    """Positions in a span whose rows lie in segments."""
    return [i for i in span if leaf.kind[i] in _IN_SEGMENTS]


def _kind(extent: Extent) -> int:
    if extent.segment is None:
        return EMPTY if extent.rewritten else INLINE
    return REWRITTEN if extent.rewritten else WRITTEN


def leaf_of(extents: Sequence[Extent]) -> Leaf:
    """A leaf of extents, which must be sorted by (partition, base)."""
    refs = [e.segment for e in extents]
    return Leaf(
        integers(e.partition for e in extents),
        integers(e.base for e in extents),
        integers(e.end for e in extents),
        integers(e.records for e in extents),
        integers(e.bytes for e in extents),
        integers(e.min_ts for e in extents),
        integers(e.max_ts for e in extents),
        integers(e.ts_type for e in extents),
        integers(map(_kind, extents)),
        integers(e.entry for e in extents),
        integers(e.row if e.segment is None else e.segment.born for e in extents),
        integers(0 if r is None else r.size for r in refs),
        integers(0 if r is None else r.footer_bytes for r in refs),
        b"".join(
            bytes.fromhex(e.segment.uid if e.segment is not None else e.write_id or _NO_ID)
            for e in extents
        ),
        b"".join(bytes(8) if r is None else bytes.fromhex(r.footer_xxh3) for r in refs),
    )


class Index(NamedTuple):
    """The root: what an index covers and which leaf holds what."""

    seq: int
    """Entries below it are covered."""
    leaves: tuple[LeafRef, ...]
    partition: array[int]
    leaf: array[int]
    base: array[int]
    end: array[int]
    records: array[int]
    bytes: array[int]
    min_ts: array[int]
    max_ts: array[int]

    def fences(self, partition: int, start: int, end: int) -> list[Fence]:
        """The fences of a partition that hold any offset of [start, end), in order."""
        span = self.span(partition)
        first = bisect_right(self.end, start, span.start, span.stop)
        last = bisect_left(self.base, end, first, span.stop)
        return [self.fence(i) for i in range(first, last)]

    def fence(self, i: int) -> Fence:
        return Fence(
            self.partition[i],
            self.leaf[i],
            self.base[i],
            self.end[i],
            self.records[i],
            self.bytes[i],
            self.min_ts[i],
            self.max_ts[i],
        )

    def span(self, partition: int) -> range:
        """Positions of a partition's fences."""
        low = bisect_left(self.partition, partition)
        return range(low, bisect_right(self.partition, partition, low))


def index_of(seq: int, leaves: tuple[LeafRef, ...], fences: Sequence[Fence]) -> Index:
    """An index of fences, which must be sorted by (partition, base)."""
    columns = [integers(f[c] for f in fences) for c in range(len(Fence._fields))]
    return Index(seq, leaves, *columns)


EMPTY_INDEX = index_of(0, (), ())


def visible(fences: list[Fence], start: int, young: list[Extent]) -> list[Fence]:
    """What is left of old fences above ``start`` and outside the young extents' ranges."""
    if not fences:
        return []
    holes = [(0, start)] + [(e.base, e.end) for e in young if e.base < fences[-1].end]
    out: list[Fence] = []
    for fence in fences:
        pieces = [(fence.base, fence.end)]
        for low, high in holes:
            if high <= fence.base or low >= fence.end:
                continue
            pieces = [
                (a, b)
                for base, end in pieces
                for a, b in ((base, min(end, low)), (max(base, high), end))
                if a < b
            ]
        out += [_cut(fence, base, end) for base, end in pieces]
    return out


def _cut(fence: Fence, base: int, end: int) -> Fence:
    """A fence over less. Its times stay as bounds; its records and bytes become estimates, rounded
    up: they are 0 only where the whole had none."""
    if (base, end) == (fence.base, fence.end):
        return fence
    width = fence.end - fence.base
    return fence._replace(
        base=base,
        end=end,
        records=-(-fence.records * (end - base) // width),
        bytes=-(-fence.bytes * (end - base) // width),
    )
