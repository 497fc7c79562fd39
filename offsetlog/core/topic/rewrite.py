"""Which small files become a large one.

Rules of this module:

1. A run is contiguous, of one partition and one timestamp type, so that offsets and meaning
   stay as they are.
2. A byte is rewritten about log(target / smallest) times at most: a run is taken when it
   reaches the target, or when it is many files of which none dominates.
3. What is large already is left alone.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from offsetlog.core.topic.extents import Extent
from offsetlog.core.topic.index import INLINE, Leaf

MIN_FILES = 8


class RewritePlan(NamedTuple):
    partition: int
    start: int
    end: int
    extents: tuple[Extent, ...]

    @property
    def bytes(self) -> int:
        return sum(extent.bytes for extent in self.extents)


def plan_rewrites(
    extents: Iterable[Extent], log_start: int, target_bytes: int, min_files: int = MIN_FILES
) -> Iterator[RewritePlan]:
    """The runs of one partition's extents that are worth rewriting. They are given in order;
    large ones may be left out."""
    group: list[Extent] = []
    size = 0
    for extent in extents:
        large = extent.bytes >= target_bytes // 2 and not extent.inline
        split = bool(group) and (group[-1].ts_type, group[-1].end) != (extent.ts_type, extent.base)
        # A run must be live as a whole: one that the log start cuts waits until it is gone.
        if large or split or extent.base < log_start:
            yield from _worth(group, size, target_bytes, min_files)
            group, size = [], 0
        if large or extent.base < log_start:
            continue
        group.append(extent)
        size += extent.bytes
        if size >= target_bytes:
            yield from _worth(group, size, target_bytes, min_files)
            group, size = [], 0
    yield from _worth(group, size, target_bytes, min_files)


def small_ones(leaf: Leaf, span: range, target_bytes: int) -> list[int]:
    """Positions of the extents in a leaf's span that a rewrite may take."""
    kinds, sizes, least = leaf.kind, leaf.bytes, target_bytes // 2
    return [i for i in span if sizes[i] < least or kinds[i] == INLINE]


def _worth(
    group: list[Extent], size: int, target_bytes: int, min_files: int
) -> Iterator[RewritePlan]:
    if len(group) < 2:
        return
    if size >= target_bytes:
        yield RewritePlan(group[0].partition, group[0].base, group[-1].end, tuple(group))
    else:
        yield from _even(group, min_files)


def _even(group: list[Extent], min_files: int) -> Iterator[RewritePlan]:
    """The group if it is many files of which none dominates; else what lies on both sides of
    the one that does. Each step down at least halves the bytes, so it is never deep."""
    if len(group) < min_files:
        return
    sizes = [extent.bytes for extent in group]
    if 2 * max(sizes) <= sum(sizes):
        yield RewritePlan(group[0].partition, group[0].base, group[-1].end, tuple(group))
        return
    at = sizes.index(max(sizes))
    yield from _even(group[:at], min_files)
    yield from _even(group[at + 1 :], min_files)
