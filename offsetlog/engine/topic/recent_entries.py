"""Entries that were folded or read lately, in memory: reading what was just folded is free, and
partitions that lie in the same entry ask for it once.

Invariants:

1. All topics of a log share one allowance. It counts what an entry takes in memory, its decoded
   decision and rows too, and not its file alone.
2. It is a cache: an entry that is not here costs a request and nothing else. At least the newest
   one is here, however large.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from itertools import count

from offsetlog.format.entries import StoredEntry, rows_weight

ENTRY_WEIGHT = 16 * 1024
"""What an entry of one small record takes besides its bytes: its decision as objects, and its file
as it was opened, or its rows as an Arrow table. Measured."""

_chains = count()


class RecentEntries:
    """Of all topics of a log. Safe to be used by several threads."""

    def __init__(self, most_bytes: int) -> None:
        self.most_bytes = most_bytes
        self.bytes = 0
        self.entries: OrderedDict[tuple[int, int], tuple[StoredEntry, int]] = OrderedDict()
        self.lock = threading.Lock()

    def of_chain(self) -> RecentOfChain:
        return RecentOfChain(self, next(_chains))


class RecentOfChain:
    """Those of one chain, by their numbers."""

    __slots__ = ("_all", "_chain")

    def __init__(self, all_: RecentEntries, chain: int) -> None:
        self._all, self._chain = all_, chain

    def get(self, number: int) -> StoredEntry | None:
        kept = self._all.entries.get((self._chain, number))
        return None if kept is None else kept[0]

    def keep(self, number: int, stored: StoredEntry) -> None:
        all_, place, weight = self._all, (self._chain, number), weight_of(stored)
        with all_.lock:
            before = all_.entries.pop(place, None)
            all_.entries[place] = stored, weight
            all_.bytes += weight - (0 if before is None else before[1])
            while all_.bytes > all_.most_bytes and len(all_.entries) > 1:
                _, (_, gone) = all_.entries.popitem(last=False)
                all_.bytes -= gone


def weight_of(stored: StoredEntry) -> int:
    """What an entry takes in memory once its rows are decoded."""
    rows = rows_weight(stored.entry) if stored.inline_records else 0
    return len(stored.data) + ENTRY_WEIGHT + rows
