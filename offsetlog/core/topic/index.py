"""The stored index of old extents: fences over leaves.

Rules of this module:

1. A leaf is a table of extents sorted by (partition, base). It never changes.
2. A fence says that a leaf holds exactly the offsets [base, end) of a partition. Fences of a
   partition are sorted and disjoint, and a leaf's own extents may reach beyond its fences:
   what lies outside was replaced or trimmed, and is not to be believed.
3. The logical content of an index is a pure function of the chain up to ``seq``; how it is
   split into leaves is the choice of whoever published it.
4. Publishing rewrites only small young leaves, so it costs the same at any size of the log.
   Upkeep sorts full ones, each once: those of one time and all partitions become those of a few
   partitions and a longer time, which need one fence each in place of one for each partition.
5. Columns are arrays of machine integers: 10^6 segments must not become 10^6 objects.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from operator import attrgetter
from typing import NamedTuple

from offsetlog.core.topic.entry import SegmentRef
from offsetlog.core.topic.extents import Extent

MAX_LEAF_EXTENTS = 16_384
"""The most that a leaf may hold."""
LEAF_EXTENTS = MAX_LEAF_EXTENTS // 2
"""The most that is put into one: a lookup reads one or two of them whole."""
FULL_LEAF = LEAF_EXTENTS // 2
"""A leaf of this many is left alone from then on."""

SORTED_AT_ONCE = 16
"""So many leaves are sorted together: each then holds that part of the partitions."""
FEW_PARTITIONS = 4
"""A leaf of so many, or of a quarter of all, is not worth sorting."""

INLINE, WRITTEN, REWRITTEN = 0, 1, 2
_WIDTHS = {"ids": 16, "sums": 8}
_base = attrgetter("base")


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


def _ints(values: Iterable[int] = ()) -> array[int]:
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
        if self.kind[i] != INLINE:
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
            ident if segment is None else "",
            self.place[i] if segment is None else 0,
            segment,
            self.kind[i] == REWRITTEN,
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
    return [i for i in span if leaf.kind[i] != INLINE]


def leaf_of(extents: Sequence[Extent]) -> Leaf:
    """A leaf of extents, which must be sorted by (partition, base)."""
    refs = [e.segment for e in extents]
    return Leaf(
        _ints(e.partition for e in extents),
        _ints(e.base for e in extents),
        _ints(e.end for e in extents),
        _ints(e.records for e in extents),
        _ints(e.bytes for e in extents),
        _ints(e.min_ts for e in extents),
        _ints(e.max_ts for e in extents),
        _ints(e.ts_type for e in extents),
        _ints(INLINE if e.inline else REWRITTEN if e.rewritten else WRITTEN for e in extents),
        _ints(e.entry for e in extents),
        _ints(e.row if e.segment is None else e.segment.born for e in extents),
        _ints(0 if r is None else r.size for r in refs),
        _ints(0 if r is None else r.foot for r in refs),
        b"".join(
            bytes.fromhex(e.write_id if e.segment is None else e.segment.uid) for e in extents
        ),
        b"".join(bytes(8) if r is None else bytes.fromhex(r.sum) for r in refs),
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
        low = bisect_left(self.partition, partition)
        high = bisect_right(self.partition, partition, low)
        first = bisect_right(self.end, start, low, high)
        last = bisect_left(self.base, end, first, high)
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

    def all_fences(self) -> Iterator[Fence]:
        return (self.fence(i) for i in range(len(self.partition)))


def index_of(seq: int, leaves: tuple[LeafRef, ...], fences: Sequence[Fence]) -> Index:
    """An index of fences, which must be sorted by (partition, base)."""
    columns = [_ints(f[c] for f in fences) for c in range(len(Fence._fields))]
    return Index(seq, leaves, *columns)


EMPTY_INDEX = index_of(0, (), ())


# --- publishing ----------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Publication:
    """A new root, and the leaves that it needs and that are not stored yet."""

    index: Index
    leaves: tuple[tuple[str, Leaf], ...]
    dropped: tuple[str, ...]
    """Leaves of the old root that the new one does not need."""


def leaves_to_merge(index: Index, added: int) -> list[int]:
    """Which leaves are taken together with ``added`` new extents, by position: the youngest,
    as long as each is not much larger than what is already taken."""
    taken: list[int] = []
    total = added
    for position in range(len(index.leaves) - 1, -1, -1):
        size = index.leaves[position].extents
        if size >= FULL_LEAF or size > 2 * total or size + total > LEAF_EXTENTS:
            break
        taken.append(position)
        total += size
    return taken


def leaves_to_sort(index: Index) -> list[int]:
    """Leaves to be taken together so that each new one holds few partitions: full ones of many
    partitions, the oldest first, and all that are not full. None when they are too few yet."""
    runs = set(zip(index.leaf, index.partition, strict=True))
    held = Counter(leaf for leaf, _ in runs)
    most = max(FEW_PARTITIONS, len(set(index.partition)) // 4)
    full = [i for i, ref in enumerate(index.leaves) if ref.extents >= FULL_LEAF]
    wide = [i for i in full if held[i] > most][:SORTED_AT_ONCE]
    if len(wide) < SORTED_AT_ONCE:
        return []
    return sorted({*range(len(index.leaves))} - {*full} | {*wide})


def publish(
    index: Index,
    seq: int,
    tails: Sequence[tuple[int, Iterable[Extent]]],
    merged: Mapping[int, Leaf],
    uids: Iterator[str],
) -> Publication:
    """The index with the extents of ``tails`` in it.

    ``tails`` gives, for each partition, its log start offset and its extents since
    ``index.seq``; ``merged`` holds the loaded leaves that ``leaves_to_merge`` or
    ``leaves_to_sort`` asked for.
    """
    fresh: list[_Source] = []
    kept: list[range | list[Fence]] = []
    for partition, (start, tail) in enumerate(tails):
        young = list(tail)
        span = _span(index, partition)
        if _untouched(index, span, start, young, merged):
            kept.append(span)
            if young:
                fresh.append(_Source(young[0].base, leaf_of(young), range(len(young))))
            continue
        seen = visible([index.fence(i) for i in span], start, young)
        kept.append([fence for fence in seen if fence.leaf not in merged])
        fresh += _sources(young, [f for f in seen if f.leaf in merged], merged)
    refs, fences, leaves = _new_leaves(fresh, uids)
    used = _used_leaves(index, kept)
    position = {old: new for new, old in enumerate(used)}
    columns = _assemble(index, kept, position, fences, len(used))
    new = Index(seq, tuple(index.leaves[i] for i in used) + tuple(refs), *columns)
    gone = tuple(ref.uid for i, ref in enumerate(index.leaves) if i not in position)
    return Publication(new, tuple(leaves), gone)


def _span(index: Index, partition: int) -> range:
    """Positions of a partition's fences."""
    low = bisect_left(index.partition, partition)
    return range(low, bisect_right(index.partition, partition, low))


def _untouched(
    index: Index, span: range, start: int, young: list[Extent], merged: Mapping[int, Leaf]
) -> bool:
    """Whether a partition's fences stay as they are, below all that is new."""
    if not span:
        return True
    if index.base[span.start] < start or (young and young[0].base < index.end[span.stop - 1]):
        return False
    return merged.keys().isdisjoint(index.leaf[span.start : span.stop])


def _used_leaves(index: Index, kept: list[range | list[Fence]]) -> list[int]:
    used: set[int] = set()
    for part in kept:
        if isinstance(part, range):
            used.update(index.leaf[part.start : part.stop])
        else:
            used.update(fence.leaf for fence in part)
    return sorted(used)


def _assemble(
    index: Index,
    kept: list[range | list[Fence]],
    position: Mapping[int, int],
    fences: list[Fence],
    shift: int,
) -> list[array[int]]:
    """The columns of kept and new fences, in order. What is untouched is copied as a whole."""
    fresh: dict[int, list[Fence]] = {}
    for fence in fences:
        moved = fence._replace(leaf=fence.leaf + shift)
        fresh.setdefault(fence.partition, []).append(moved)
    names = Fence._fields
    columns = {name: _ints() for name in names}
    for partition, part in enumerate(kept):
        added = fresh.get(partition, [])
        if isinstance(part, range):
            for name in names:
                piece = getattr(index, name)[part.start : part.stop]
                columns[name].extend(
                    _ints(map(position.__getitem__, piece)) if name == "leaf" else piece
                )
        else:
            old = [fence._replace(leaf=position[fence.leaf]) for fence in part]
            added = sorted(old + added, key=lambda f: f.base)
        for name in names:
            columns[name].extend(getattr(fence, name) for fence in added)
    return [columns[name] for name in names]


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
    """A fence over less. Its times stay as bounds; its records and bytes become estimates."""
    if (base, end) == (fence.base, fence.end):
        return fence
    width = fence.end - fence.base
    return fence._replace(
        base=base,
        end=end,
        records=fence.records * (end - base) // width,
        bytes=fence.bytes * (end - base) // width,
    )


class _Source(NamedTuple):
    """Extents of one partition for a new leaf: those at ``span`` of a leaf."""

    base: int
    leaf: Leaf
    span: range


def _sources(young: list[Extent], fences: list[Fence], merged: Mapping[int, Leaf]) -> list[_Source]:
    """The young extents of a partition and those of its merged fences, by offset."""
    out = []
    for fence in fences:
        leaf = merged[fence.leaf]
        out.append(_Source(fence.base, leaf, leaf.span(fence.partition, fence.base, fence.end)))
    edges = [fence.base for fence in fences]
    low = 0
    while low < len(young):
        # A run of young extents that no merged fence interrupts.
        following = bisect_right(edges, young[low].base)
        limit = edges[following] if following < len(edges) else None
        high = len(young) if limit is None else bisect_left(young, limit, low, key=_base)
        run = young[low:high]
        out.append(_Source(run[0].base, leaf_of(run), range(len(run))))
        low = high
    return sorted(out, key=_base)


def _new_leaves(
    sources: list[_Source], uids: Iterator[str]
) -> tuple[list[LeafRef], list[Fence], list[tuple[str, Leaf]]]:
    """Leaves of all sources, copied a span at a time, each of at most ``LEAF_EXTENTS``."""
    refs: list[LeafRef] = []
    fences: list[Fence] = []
    leaves: list[tuple[str, Leaf]] = []
    waiting = list(reversed(sources))
    while waiting:
        taken: list[_Source] = []
        room = LEAF_EXTENTS
        while waiting and room:
            source = waiting.pop()
            if len(source.span) > room:
                waiting.append(source._replace(span=source.span[room:]))
                source = source._replace(span=source.span[:room])
            taken.append(source)
            room -= len(source.span)
        uid = next(uids)
        leaf = _join(taken)
        fences += _fences(leaf, len(refs))
        refs.append(LeafRef(uid, leaf.extents))
        leaves.append((uid, leaf))
    return refs, fences, leaves


def _join(sources: list[_Source]) -> Leaf:
    columns: list[array[int] | Blob] = []
    for name in Leaf._fields:
        width = _WIDTHS.get(name)
        if width is None:
            column = _ints()
            for source in sources:
                column.extend(getattr(source.leaf, name)[source.span.start : source.span.stop])
            columns.append(column)
        else:
            columns.append(
                b"".join(
                    getattr(s.leaf, name)[width * s.span.start : width * s.span.stop]
                    for s in sources
                )
            )
    return Leaf(*columns)  # type: ignore[arg-type]  # integers first, blobs last


def _fences(leaf: Leaf, position: int) -> list[Fence]:
    """One fence for each unbroken run of extents of a partition."""
    out: list[Fence] = []
    count = leaf.extents
    low = 0
    while low < count:
        partition = leaf.partition[low]
        stop = bisect_right(leaf.partition, partition, low)
        broken = [i for i in range(low + 1, stop) if leaf.base[i] != leaf.end[i - 1]]
        for a, b in zip([low, *broken], [*broken, stop], strict=True):
            out.append(
                Fence(
                    partition,
                    position,
                    leaf.base[a],
                    leaf.end[b - 1],
                    sum(leaf.records[a:b]),
                    sum(leaf.bytes[a:b]),
                    min(leaf.min_ts[a:b]),
                    max(leaf.max_ts[a:b]),
                )
            )
        low = stop
    return out
