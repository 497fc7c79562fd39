"""What each answer is: the records that live, of each partition, without asking the product.

1. ``live`` has every record that whoever begins to read now must get, and no other.
2. What upkeep does to a topic depends on the files only where ``maybe`` or ``start_to`` says so:
   a round that was killed has done all of it, nothing or a part, and retention lets whole files go.
   ``settle`` takes what is there for that, if it lies between the two.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from copy import deepcopy
from typing import NamedTuple

Headers = tuple[tuple[str, bytes | None], ...]


class Rec(NamedTuple):
    partition: int
    offset: int
    key: bytes | None
    value: bytes | None
    headers: Headers
    timestamp: int


class Part:
    """One partition."""

    def __init__(self) -> None:
        self.start = self.end = 0
        self.live: dict[int, Rec] = {}
        self.ever: dict[int, Rec] = {}
        """Whatever was sent, for who may be behind."""
        self.maybe: set[int] = set()
        """Offsets of ``live`` that may be gone."""
        self.start_to = 0
        """The log start lies from ``start`` to here."""
        self.compacted_to = 0
        self.trimmed = 0
        """Records that went with those before them."""
        self.met: set[int] = set()
        """Tombstones that a pass has met."""

    def records(self, low: int = 0, high: int | None = None) -> list[Rec]:
        end = self.end if high is None else high
        return [self.live[o] for o in sorted(self.live) if low <= o < end]

    @property
    def has_gaps(self) -> bool:
        """Whether a record is gone, or was, that others outlived."""
        return len(self.ever) - len(self.live) > self.trimmed

    def lag(self, position: int) -> int:
        return len(self.records(position))

    def at_time(self, time_ms: int) -> int | None:
        """The first offset of a record of that time or later."""
        return next((r.offset for r in self.records() if r.timestamp >= time_ms), None)

    def drop(self, offsets: Iterable[int], *, surely: bool) -> None:
        for offset in list(offsets):
            if surely:
                self.live.pop(offset, None)
                self.maybe.discard(offset)
            else:
                self.maybe.add(offset)

    def trim(self, before: int) -> None:
        self.start = max(self.start, min(before, self.end))
        self.start_to = max(self.start_to, self.start)
        gone = [o for o in self.live if o < self.start]
        self.trimmed += len(gone)
        self.drop(gone, surely=True)

    def compact(self, tombstones_go: bool, *, surely: bool) -> None:
        """A pass up to the end: the newest of each key stays; a tombstone goes in a later pass
        than the one that met it."""
        reached = max(self.compacted_to, self.start)
        last = {record.key: record.offset for record in self.records()}
        old = {o for o, r in self.live.items() if r.key is None or last[r.key] != o}
        due = {o for o in self.met if o < reached} if tombstones_go else set()
        self.drop(old | (due & self.live.keys()), surely=surely)
        tombstones = {o for o, r in self.live.items() if r.value is None}
        if surely:
            self.met |= {o for o in tombstones if o >= reached}
            self.compacted_to = self.end
        elif tombstones_go:
            # The pass may count: then these are met, and go in the next one.
            self.maybe |= tombstones


class Topic:
    def __init__(self, name: str, partitions: int) -> None:
        self.name = name
        self.parts = [Part() for _ in range(partitions)]
        self.compacts = self.tombstones_go = False
        self.keyed = False
        """Whether a record without a key is refused, or was once."""
        self.has_table = False
        self.table: list[list[Rec]] | None = None
        """The rows of the table since the last round of upkeep; None where that is not known."""
        self.table_starts: list[int] = []
        """Where the partitions began then."""
        self.table_is_due = False
        """Whether a round has just brought the table up to date."""
        self.unsure_tombstones = False
        self.traits: set[str] = set()
        self.changes = 0

    def records(self) -> list[Rec]:
        return [record for part in self.parts for record in part.records()]

    def each(self, work: Callable[[Part], None]) -> None:
        for part in self.parts:
            work(part)

    def maintained(self, *, surely: bool) -> None:
        """What a round of upkeep does to the records; one that was killed, perhaps."""
        if self.compacts:
            for part in self.parts:
                part.compact(self.tombstones_go, surely=surely)
                if surely and self.unsure_tombstones and self.tombstones_go:
                    part.maybe |= {o for o, r in part.live.items() if r.value is None}
            self.unsure_tombstones = not surely
        if not surely:
            self.table = None

    @property
    def is_sure(self) -> bool:
        return not any(part.maybe or part.start_to > part.start for part in self.parts)

    def settle(self, starts: dict[int, int], found: dict[int, list[Rec]]) -> None:
        """Take what a new process finds for what was left open, if it lies within."""
        for number, part in enumerate(self.parts):
            start, there = starts[number], {r.offset: r for r in found.get(number, ())}
            assert part.start <= start <= part.start_to, (
                f"{self.name}-{number} begins at {start}, and not in "
                f"[{part.start}, {part.start_to}]"
            )
            part.trim(start)
            part.start_to = start
            must = part.live.keys() - part.maybe
            assert must <= there.keys(), f"{self.name}-{number} lost {sorted(must - there.keys())}"
            more = there.keys() - part.live.keys()
            assert not more, f"{self.name}-{number} still has {sorted(more)}"
            part.drop(part.maybe - there.keys(), surely=True)
            part.maybe.clear()

    def kept(self) -> Topic:
        """As it is now, for later."""
        return deepcopy(self)


def merged(parts: dict[int, list[Rec]], backwards: bool) -> list[Rec]:
    """The records of partitions one after another, each time that of the partition whose next one
    is the newest, or the oldest."""
    left = {p: records[::-1] if backwards else list(records) for p, records in parts.items()}
    sign = -1 if backwards else 1
    out = []
    while any(left.values()):
        _, number = min((r[0].timestamp * sign, p) for p, r in left.items() if r)
        out.append(left[number].pop(0))
    return out
