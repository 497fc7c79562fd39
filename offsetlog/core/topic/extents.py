"""Extents: which file holds which offsets of a partition; and the newest of them in memory.

Invariants:

1. The extents of a ``Tail`` are sorted by ``base`` and do not overlap.
2. A ``Tail`` never changes. Pushing shares the buffer with the older value, as a slice of
   Go does, so an append costs the same however long the tail is.
3. Where a tail covers an offset, it is right and the stored index below it is not asked.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from operator import attrgetter
from typing import NamedTuple

from offsetlog.core.topic.entry import SegmentRef

_base = attrgetter("base")
_end = attrgetter("end")


class Extent(NamedTuple):
    """Offsets [base, end) of one partition and the file that holds their records."""

    partition: int
    base: int
    end: int
    records: int
    bytes: int
    min_ts: int
    max_ts: int
    ts_type: int
    entry: int
    """Number of the entry that put it here; an inline extent's rows are in that entry."""
    write_id: str
    """Inline: write id of that entry, compared before its rows are believed. Segment: empty."""
    row: int
    """Inline: position of its first row in the entry."""
    segment: SegmentRef | None
    rewritten: bool
    """The rows carry their offsets; without it the offset is ``base`` plus the position."""

    @property
    def inline(self) -> bool:
        """Whether its rows lie in an entry."""
        return self.segment is None and not self.rewritten

    @property
    def is_empty(self) -> bool:
        """Whether all that it held is gone: no file holds it."""
        return self.segment is None and self.rewritten

    @property
    def dense(self) -> bool:
        """Whether each of its offsets has a record."""
        return self.records == self.end - self.base


class Tail:
    """An immutable sorted run of extents."""

    __slots__ = ("_buffer", "_first", "_length")

    def __init__(self, extents: Sequence[Extent] = ()) -> None:
        self._buffer = list(extents)
        self._first = 0
        self._length = len(self._buffer)

    def push(self, extent: Extent) -> Tail:
        """With ``extent`` behind all others."""
        new = Tail.__new__(Tail)
        new._buffer = self._buffer
        new._first = self._first
        # Two pushes onto one value (a topic folded twice) must not see each other's extents.
        if len(self._buffer) != self._length or self._first == self._length:
            new._buffer, new._first = self._buffer[self._first : self._length], 0
        new._buffer.append(extent)
        new._length = len(new._buffer)
        return new

    def replaced(self, start: int, end: int, extents: Sequence[Extent]) -> Tail:
        """With ``extents`` in place of all that lay in [start, end)."""
        return Tail(
            [e for e in self if e.end <= start] + list(extents) + [e for e in self if e.base >= end]
        )

    def trimmed(self, start: int) -> Tail:
        """Without what ends at ``start`` or before."""
        first = bisect_right(self._buffer, start, self._first, self._length, key=_end)
        if first == self._first:
            return self
        if first == self._length:
            return EMPTY_TAIL
        if first - self._first > self._length - first:
            return Tail(self._buffer[first : self._length])
        new = Tail.__new__(Tail)
        new._buffer, new._first, new._length = self._buffer, first, self._length
        return new

    def since(self, entry: int) -> Tail:
        """Only what entries numbered ``entry`` or above put here."""
        return Tail([e for e in self if e.entry >= entry])

    def overlapping(self, start: int, end: int) -> list[Extent]:
        """The extents that hold any offset of [start, end), in order."""
        low = bisect_right(self._buffer, start, self._first, self._length, key=_end)
        high = bisect_left(self._buffer, end, low, self._length, key=_base)
        return self._buffer[low:high]

    def __iter__(self) -> Iterator[Extent]:
        return iter(self._buffer[self._first : self._length])

    def __len__(self) -> int:
        return self._length - self._first

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Tail) and list(self) == list(other)

    __hash__ = None  # type: ignore[assignment]


EMPTY_TAIL = Tail()
"""Shared by all topics, which is safe: a push onto an empty tail begins a buffer of its own."""
