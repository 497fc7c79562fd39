"""A set of offsets of one partition: a bit for each, in memory or in a file without a name.

Invariant: memory is bounded. A range of offsets whose bits take more than ``IN_MEMORY`` lies in a
temporary file, whose pages the system may write out, and which is gone with the process.
"""

from __future__ import annotations

import tempfile
from typing import Any

import numpy as np
import numpy.typing as npt

Offsets = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]
IN_MEMORY = 64 * 1024 * 1024
COUNTED_AT_ONCE = 1024 * 1024


class OffsetSet:
    """Of offsets in [start, end)."""

    def __init__(self, start: int, end: int) -> None:
        self.start = start - start % 8
        self.end = end
        size = max(1, -(-(end - self.start) // 8))
        self._bits: Any
        if size <= IN_MEMORY:
            self._bits = np.zeros(size, np.uint8)
        else:
            with tempfile.TemporaryFile() as file:
                file.truncate(size)
                self._bits = np.memmap(file, np.uint8, "r+", shape=(size,))

    def grown(self, end: int) -> OffsetSet:
        """The same offsets in a set of [start, end)."""
        larger = OffsetSet(self.start, max(end, self.end))
        larger._bits[: len(self._bits)] = self._bits
        return larger

    def add(self, offsets: Offsets) -> None:
        """``offsets`` must be sorted."""
        places, bits = self._spread(offsets)
        if len(places):
            self._bits[places] |= bits

    def remove(self, offsets: Offsets) -> None:
        places, bits = self._spread(offsets)
        if len(places):
            self._bits[places] &= ~bits

    def remove_all(self, other: OffsetSet, start: int, end: int) -> None:
        """Remove what another set of the same range has in [start, end)."""
        for low in range(max(start, self.start), min(end, self.end), COUNTED_AT_ONCE):
            window = other._window(low, min(end, self.end, low + COUNTED_AT_ONCE))
            self.remove(low + np.flatnonzero(window))

    def _spread(self, offsets: Offsets) -> tuple[Offsets, npt.NDArray[np.uint8]]:
        """The bytes of some sorted offsets, each once, and the bits in it."""
        if not len(offsets):
            return offsets, np.empty(0, np.uint8)
        at = offsets - self.start
        places = at >> 3
        firsts = np.flatnonzero(np.diff(places, prepend=-1))
        bits = np.left_shift(np.uint8(1), (at & 7).astype(np.uint8))
        return places[firsts], np.bitwise_or.reduceat(bits, firsts)

    def has(self, offsets: Offsets) -> Mask:
        """Which of these offsets, all of them in range, are in the set."""
        at = offsets - self.start
        found: Mask = (self._bits[at >> 3] >> (at & 7).astype(np.uint8) & 1).astype(bool)
        return found

    def count(self, start: int, end: int) -> int:
        """How many of [start, end) are in the set."""
        total = 0
        for low in range(max(start, self.start), min(end, self.end), COUNTED_AT_ONCE):
            total += int(self._window(low, min(end, self.end, low + COUNTED_AT_ONCE)).sum())
        return total

    def first(self, start: int, other: OffsetSet) -> int | None:
        """The first offset from ``start`` on that is also in another set of the same range."""
        for low in range(max(start, self.start), self.end, COUNTED_AT_ONCE):
            high = min(self.end, low + COUNTED_AT_ONCE)
            both = np.flatnonzero(self._window(low, high) & other._window(low, high))
            if len(both):
                return low + int(both[0])
        return None

    def _window(self, low: int, high: int) -> npt.NDArray[np.uint8]:
        first, last = low - self.start, high - self.start
        bits = np.unpackbits(self._bits[first >> 3 : -(-last // 8)], bitorder="little")
        return bits[first & 7 : (first & 7) + high - low]
