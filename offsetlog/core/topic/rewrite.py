"""Which small files become a large one.

Rules of this module:

1. A run is contiguous, of one partition and one timestamp type, so that offsets and meaning
   stay as they are.
2. A byte is rewritten about log(target / smallest) times at most: a run is taken when it
   reaches the target, or when it is many files of which none dominates.
3. What is large already is left alone.
4. What a run weighs in memory is bounded, however small the records are, or the files.
5. A topic that is a table has all its records in rewritten segments, each of which is rewritten
   with others that the table has too, or with others that it does not have.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from offsetlog.core.topic.extents import Extent
from offsetlog.core.topic.index import INLINE, WRITTEN, Leaf

MIN_FILES = 8
RECORD_WEIGHT, FILE_WEIGHT = 64, 1024
"""What each of them takes in memory beside its bytes, at the most. Measured."""
NO_WEIGHT_LIMIT = 2**63


class RewritePlan(NamedTuple):
    partition: int
    start: int
    end: int
    extents: tuple[Extent, ...]
    cuts: tuple[int, ...] = ()
    """Offsets in between at which the new segments are divided."""

    @property
    def bytes(self) -> int:
        return sum(extent.bytes for extent in self.extents)

    @property
    def ranges(self) -> tuple[tuple[int, int], ...]:
        """Of the new segments."""
        edges = (self.start, *self.cuts, self.end)
        return tuple(zip(edges, edges[1:], strict=False))


def weight_of(extent: Extent) -> int:
    """What an extent takes in memory once its records are read."""
    return extent.bytes + RECORD_WEIGHT * extent.records + FILE_WEIGHT


def plan_rewrites(
    extents: Iterable[Extent],
    log_start: int,
    target_bytes: int,
    min_files: int = MIN_FILES,
    most_weight: int = NO_WEIGHT_LIMIT,
) -> Iterator[RewritePlan]:
    """The runs of one partition's extents that are worth rewriting. They are given in order;
    large ones may be left out."""
    group: list[Extent] = []
    size = weight = 0
    for extent in extents:
        more = weight_of(extent)
        large = extent.bytes >= target_bytes // 2 and not extent.inline
        split = bool(group) and (group[-1].ts_type, group[-1].end) != (extent.ts_type, extent.base)
        # A run must be live as a whole: one that the log start cuts waits until it is gone.
        if large or split or extent.base < log_start or weight + more > most_weight:
            yield from _worth(group, size, target_bytes, min_files)
            group, size, weight = [], 0, 0
        if large or extent.base < log_start:
            continue
        group.append(extent)
        size, weight = size + extent.bytes, weight + more
        if size >= target_bytes:
            yield from _worth(group, size, target_bytes, min_files)
            group, size, weight = [], 0, 0
    yield from _worth(group, size, target_bytes, min_files)


def small_ones(leaf: Leaf, span: range, target_bytes: int) -> list[int]:
    """Positions of the extents in a leaf's span that a rewrite may take."""
    kinds, sizes, least = leaf.kind, leaf.bytes, target_bytes // 2
    return [i for i in span if sizes[i] < least or kinds[i] == INLINE]


def plan_table_rewrites(
    extents: Sequence[Extent],
    log_start: int,
    table_end: int,
    target_bytes: int,
    min_files: int = MIN_FILES,
    most_weight: int = NO_WEIGHT_LIMIT,
) -> Iterator[RewritePlan]:
    """The same for a topic whose table has everything below ``table_end``: what lies above it, and
    is not fit for the table yet, is rewritten whatever its size."""
    border = max(log_start, table_end)
    below = [e for e in extents if log_start <= e.base and e.end <= border]
    yield from plan_rewrites(below, log_start, target_bytes, min_files, most_weight)
    is_cut = table_end <= log_start  # Else the table has a part of what its end lies in.
    above = [e for e in extents if e.end > border and (e.base >= border or is_cut)]
    taken: set[int] = set()
    for plan in plan_rewrites(above, border, target_bytes, min_files, most_weight):
        taken |= {extent.base for extent in plan.extents}
        yield plan
    unfit = [e for e in above if not e.rewritten or e.base < border]
    rest = [e for e in unfit if e.base not in taken]
    yield from plan_all(rest, border, target_bytes, most_weight)


def plan_all(
    extents: Iterable[Extent], start: int, target_bytes: int, most_weight: int = NO_WEIGHT_LIMIT
) -> Iterator[RewritePlan]:
    """Runs of all of one partition's extents, from ``start`` on, whether or not that pays."""
    group: list[Extent] = []
    size = weight = 0
    for extent in extents:
        follows = group and (group[-1].ts_type, group[-1].end) == (extent.ts_type, extent.base)
        is_full = size >= target_bytes or weight + weight_of(extent) > most_weight
        if group and (not follows or is_full):
            yield _from(start, group)
            group, size, weight = [], 0, 0
        group.append(extent)
        size, weight = size + extent.bytes, weight + weight_of(extent)
    if group:
        yield _from(start, group)


def _from(start: int, group: list[Extent]) -> RewritePlan:
    first = group[0]
    return RewritePlan(first.partition, max(start, first.base), group[-1].end, tuple(group))


def plan_division(extent: Extent, log_start: int, table_end: int) -> RewritePlan:
    """An extent that the log start cuts, or whose first records a table has in other files."""
    start = max(log_start, extent.base)
    cuts = (table_end,) if start < table_end < extent.end else ()
    return RewritePlan(extent.partition, start, extent.end, (extent,), cuts)


def unfit_ones(leaf: Leaf, span: range, target_bytes: int) -> list[int]:
    """Positions of the extents in a leaf's span that a rewrite for a table may take: also the
    first one, which the log start may cut."""
    kinds, sizes, least = leaf.kind, leaf.bytes, target_bytes // 2
    unfit = (INLINE, WRITTEN)
    return [i for i in span if i == span.start or sizes[i] < least or kinds[i] in unfit]


def maybe_shared(leaf: Leaf, span: range) -> list[int]:
    """Positions of the extents in a leaf's span that may lie in one file with deleted rows: those
    in entries, and the first one, which the log start may cut."""
    return [i for i in span if i == span.start or leaf.kind[i] == INLINE]


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
