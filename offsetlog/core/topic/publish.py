"""Storing new extents in the index: which leaves are written anew, and the root upon them.

Rules of this module:

1. Publishing rewrites only small young leaves, so it costs the same at any size of the log.
2. Upkeep sorts full leaves, each once: those of one time and all partitions become those of a few
   partitions and a longer time, which need one fence each in place of one for each partition.
3. What a partition's new extents do not touch is copied as a whole, not fence by fence.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from operator import attrgetter
from typing import NamedTuple

from offsetlog.core.topic.extents import Extent
from offsetlog.core.topic.index import (
    MAX_LEAF_EXTENTS,
    Fence,
    Index,
    Leaf,
    LeafRef,
    integers,
    leaf_of,
    visible,
)


class IndexLimits(NamedTuple):
    leaf_extents: int = MAX_LEAF_EXTENTS // 2
    """The most that is put into one: a lookup reads one or two of them whole."""
    full_leaf: int = MAX_LEAF_EXTENTS // 4
    """A leaf of this many is left alone from then on."""
    sorted_at_once: int = 16
    """So many leaves are sorted together: each then holds that part of the partitions."""
    few_partitions: int = 4
    """A leaf of so many, or of a quarter of all, is not worth sorting."""


LIMITS = IndexLimits()

_WIDTHS = {"ids": 16, "sums": 8}
_base = attrgetter("base")


@dataclass(frozen=True, slots=True)
class Publication:
    """A new root, and the leaves that it needs and that are not stored yet."""

    index: Index
    leaves: tuple[tuple[str, Leaf], ...]


def leaves_to_merge(index: Index, added: int, limits: IndexLimits = LIMITS) -> list[int]:
    """Which leaves are taken together with ``added`` new extents, by position: the youngest,
    as long as each is not much larger than what is already taken."""
    taken: list[int] = []
    total = added
    for position in range(len(index.leaves) - 1, -1, -1):
        size = index.leaves[position].extents
        much = size > 2 * total or size + total > limits.leaf_extents
        if much or size >= limits.full_leaf:
            break
        taken.append(position)
        total += size
    return taken


def leaves_to_sort(index: Index, limits: IndexLimits = LIMITS) -> list[int]:
    """Leaves to be taken together so that each new one holds few partitions: full ones of many
    partitions, the oldest first, and all that are not full. None when they are too few yet."""
    runs = set(zip(index.leaf, index.partition, strict=True))
    held = Counter(leaf for leaf, _ in runs)
    most = max(limits.few_partitions, len(set(index.partition)) // 4)
    full = [i for i, ref in enumerate(index.leaves) if ref.extents >= limits.full_leaf]
    wide = [i for i in full if held[i] > most][: limits.sorted_at_once]
    if len(wide) < limits.sorted_at_once:
        return []
    return sorted({*range(len(index.leaves))} - {*full} | {*wide})


def publish(
    index: Index,
    seq: int,
    tails: Sequence[tuple[int, Iterable[Extent]]],
    merged: Mapping[int, Leaf],
    uids: Iterator[str],
    limits: IndexLimits = LIMITS,
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
        span = index.span(partition)
        if _untouched(index, span, start, young, merged):
            kept.append(span)
            if young:
                fresh.append(_Source(young[0].base, leaf_of(young), range(len(young))))
            continue
        seen = visible([index.fence(i) for i in span], start, young)
        kept.append([fence for fence in seen if fence.leaf not in merged])
        fresh += _sources(young, [f for f in seen if f.leaf in merged], merged)
    refs, fences, leaves = _new_leaves(fresh, uids, limits.leaf_extents)
    used = _used_leaves(index, kept)
    position = {old: new for new, old in enumerate(used)}
    columns = _assemble(index, kept, position, fences, len(used))
    new = Index(seq, tuple(index.leaves[i] for i in used) + tuple(refs), *columns)
    return Publication(new, tuple(leaves))


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
    columns = {name: integers() for name in names}
    for partition, part in enumerate(kept):
        added = fresh.get(partition, [])
        if isinstance(part, range):
            for name in names:
                piece = getattr(index, name)[part.start : part.stop]
                columns[name].extend(
                    integers(map(position.__getitem__, piece)) if name == "leaf" else piece
                )
        else:
            old = [fence._replace(leaf=position[fence.leaf]) for fence in part]
            added = sorted(old + added, key=lambda f: f.base)
        for name in names:
            columns[name].extend(getattr(fence, name) for fence in added)
    return [columns[name] for name in names]


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
    sources: list[_Source], uids: Iterator[str], leaf_extents: int
) -> tuple[list[LeafRef], list[Fence], list[tuple[str, Leaf]]]:
    """Leaves of all sources, copied a span at a time, each of at most ``leaf_extents``."""
    refs: list[LeafRef] = []
    fences: list[Fence] = []
    leaves: list[tuple[str, Leaf]] = []
    waiting = list(reversed(sources))
    while waiting:
        taken: list[_Source] = []
        room = leaf_extents
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
    columns: list[array[int] | bytes] = []
    for name in Leaf._fields:
        width = _WIDTHS.get(name)
        if width is None:
            column = integers()
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
