"""What compaction and erasure may take: held against each entry that replaces, as it lands.

Invariants that it checks:

1. What a rewrite names holds each record at its own offset, and none that was gone before.
2. A consolidation takes nothing. A compaction takes a record for a later one of its key, for having
   no key, or as a tombstone that is due, with no older record of its key left.
3. A tombstone is due ``delete.retention.ms`` after the first counted pass over it.
4. An erasure takes the records of its keys and no others, and when it says that it is done none is
   left below the offsets that it names.
"""

from __future__ import annotations

import hashlib
from typing import Any

from offsetlog.core.topic.entry import Compact, Erase, Replace
from offsetlog.format import names, segments
from offsetlog.format.record_schema import ROWS
from offsetlog.values import settings_of
from tests.simulation.world import Violation, World

KEYS = (b"", *(b"k%d" % n for n in range(5)))
COLUMNS = (*ROWS.names, "offset")


class Gone:
    """Which records are no more, and since which entry."""

    def __init__(self, world: World, folder: str) -> None:
        self._world = world
        self._folder = folder
        self.since: dict[tuple[int, int], int] = {}
        """(partition, offset) -> the entry that took it."""
        self._compacted: dict[int, list[tuple[int, int]]] = {}
        """Of each partition, (end, time) of the passes that counted."""

    def left(self, partition: int, start: int, end: int, tip: int | None = None) -> list[int]:
        """The offsets of [start, end) with a record, in the state at a tip or now."""
        since = self.since
        return [
            offset
            for offset in range(start, end)
            if (partition, offset) not in since
            or (tip is not None and since[partition, offset] >= tip)
        ]

    def landed(self, number: int, body: Any, before: Any, rows: list[list[Any]], read: Any) -> None:
        """An entry that replaces counts; ``before`` is the state that it met."""
        for run in body.runs:
            start = max(run.start, before.start(run.partition))
            there = self.left(run.partition, start, run.end)
            kept = [o for piece in run.pieces for o in self._kept(run.partition, piece, rows, read)]
            kept = [offset for offset in kept if offset >= start]
            if not set(kept) <= set(there):
                raise Violation(f"entry {number} brings back {sorted(set(kept) - set(there))}")
            for offset in sorted(set(there) - set(kept)):
                self._check(number, body, before, run.partition, offset, rows)
                self.since[run.partition, offset] = number
        if isinstance(body, Compact):
            for partition, end, time, _ in body.compacted:
                self._compacted.setdefault(partition, []).append((end, time))
                self._check_compacted(number, before, partition, end, rows)
        if isinstance(body, Erase):
            for partition, end in body.ends:
                for offset in self.left(partition, before.start(partition), end):
                    if self._is_erased(body, rows[partition][offset].key):
                        raise Violation(f"entry {number} is done, and {partition}-{offset} is left")

    def erased(self, keys: list[bytes], ends: dict[int, int], state: Any, rows: Any) -> None:
        """Somebody was told that these keys are erased."""
        for partition, end in ends.items():
            for offset in self.left(partition, state.start(partition), end):
                if rows[partition][offset].key in keys:
                    raise Violation(
                        f"{keys} are said to be erased, and {partition}-{offset} is left"
                    )

    def _kept(self, partition: int, piece: Any, rows: list[list[Any]], read: Any) -> list[int]:
        if piece.segment is None:
            return []
        ref = piece.segment
        name = str(
            names.SegmentName(self._folder, partition, ref.born, ref.uid, piece.base, piece.end)
        )
        file = self._world.files.get(name)
        if file is None:
            raise Violation(f"{name} is gone, and an entry that counts names it")
        opened = segments.OpenSegment.whole(ref, piece.records, name, file.data)
        kept: list[int] = []
        for table in opened.read(0, piece.records, COLUMNS):
            offsets = table.column("offset").to_pylist()
            for offset, row in zip(offsets, read(table), strict=True):
                if not piece.base <= offset < piece.end or rows[partition][offset] != row:
                    raise Violation(f"{name} holds at {offset} what was not sent there")
            kept += offsets
        return kept

    def _check(
        self, number: int, body: Any, before: Any, partition: int, offset: int, rows: Any
    ) -> None:
        row = rows[partition][offset]
        if isinstance(body, Replace):
            raise Violation(f"entry {number} only merges, and takes {partition}-{offset}")
        if isinstance(body, Erase):
            if not self._is_erased(body, row.key):
                raise Violation(f"entry {number} erases {partition}-{offset}, of another key")
            return
        if row.key is None or any(later.key == row.key for later in rows[partition][offset + 1 :]):
            return
        if row.value is not None:
            raise Violation(f"entry {number} takes {partition}-{offset}, the newest of its key")
        first = next(
            (time for end, time in self._compacted.get(partition, []) if end > offset), None
        )
        wait = settings_of(before.config).delete_retention_ms
        if first is None or first + wait > self._world.now_ms:
            raise Violation(f"entry {number} takes the tombstone {partition}-{offset} too early")
        for older in self.left(partition, before.start(partition), offset):
            if rows[partition][older].key == row.key:
                raise Violation(f"entry {number} takes the tombstone of {partition}-{older}")

    def _check_compacted(
        self, number: int, before: Any, partition: int, end: int, rows: Any
    ) -> None:
        seen = set()
        for offset in self.left(partition, before.start(partition), end):
            key = rows[partition][offset].key
            if key is None or key in seen:
                raise Violation(f"entry {number} says compacted, and {partition}-{offset} is left")
            seen.add(key)

    def _is_erased(self, body: Erase, key: bytes | None) -> bool:
        salt = bytes.fromhex(body.salt)
        return key in {k for k in KEYS if hashlib.sha256(salt + k).hexdigest() in body.keys}
