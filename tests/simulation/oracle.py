"""The oracle: the truth is the first landing of each name, and everything is held against it.

Invariants that it checks, at once when they could break:

1. A landing at n finds n = tip: the chain has no holes. Entries are never deleted, and are
   overwritten by their own stubs only, when no live extent needs their rows.
2. Every segment that a counted entry names is there, with the rows that its sender meant;
   after every deletion every live one still is.
3. Each batch counts at most once, whole, and in its sender's order; one that was acknowledged
   counts where it was told, one that was refused as not landed never does.
4. Ranges tile, ends never fall, no offset is given twice, and each read equals what was written.
5. Whoever holds a state holds the true fold at its tip; a stored state is one.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import pyarrow as pa

from offsetlog.core.topic import fold, invariants
from offsetlog.core.topic.entry import (
    Append,
    Compact,
    Configure,
    Counted,
    Create,
    Delete,
    Entry,
    Erase,
    Replace,
    Verdict,
)
from offsetlog.core.topic.extents import EMPTY_TAIL, Extent
from offsetlog.core.topic.index import Leaf
from offsetlog.core.topic.state import EMPTY_STATE, TopicState
from offsetlog.errors import CorruptLogError
from offsetlog.format import entries as entry_format
from offsetlog.format import names, segments, snapshots
from offsetlog.format.record_schema import ROWS
from tests.simulation.gone import Gone
from tests.simulation.tables import TableTruth
from tests.simulation.world import Violation, World

COLUMNS = tuple(ROWS.names)


class Row(NamedTuple):
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...]
    timestamp: int


class Batch(NamedTuple):
    """What a sender means to write: one try of one number of it."""

    sender: str
    number: int
    attempt: int
    rows: tuple[tuple[int, Row], ...]
    """(partition, row) in the order of sending."""


Token = tuple[str, int, int]


def value_of(token: Token, index: int, size: int) -> bytes:
    return b"|".join([token[0].encode(), b"%d|%d|%d" % (token[1], token[2], index), b"x" * size])


def token_of(value: bytes) -> tuple[Token, int]:
    sender, number, attempt, index, _ = value.split(b"|")
    return (sender.decode(), int(number), int(attempt)), int(index)


def rows_of(table: pa.Table) -> list[Row]:
    keys, values = table.column("key").to_pylist(), table.column("value").to_pylist()
    times = table.column("timestamp").cast(pa.int64()).to_pylist()
    headers = [
        tuple((h["key"], h["value"]) for h in found or ())
        for found in table.column("headers").to_pylist()
    ]
    return list(map(Row, keys, values, headers, times))


class Oracle:
    def __init__(self, world: World, folder: str) -> None:
        self.world = world
        self.folder = folder
        self.states: list[TopicState] = [EMPTY_STATE]
        self.entries: list[tuple[Entry, Verdict]] = []
        self.rows: list[list[Row]] = []
        """By partition; the position is the offset."""
        self.batches: dict[Token, Batch] = {}
        self.counted: dict[Token, int] = {}
        self.numbers: dict[tuple[str, int], Token] = {}
        self.senders: set[tuple[str, int, bool]] = set()
        self.last: dict[tuple[str, int], int] = {}
        """(sender, partition) -> the last of its numbers that counted there."""
        self.never: set[Token] = set()
        self.newest_ack = -1
        self._leaves: dict[bytes, Leaf] = {}
        self.gone = Gone(world, folder)
        self.acks = 0
        self.table: TableTruth | None = None
        world.watch = self.watch

    @property
    def truth(self) -> TopicState:
        return self.states[-1]

    # --- what happens to files -------------------------------------------------------------

    def watch(self, what: str, name: str, data: bytes | None) -> None:
        if self.table is not None:
            self.table.watch(what, name, data)
        entry = names.parse_entry(name)
        if entry is not None:
            if what == "delete" or data is None:
                raise Violation(f"{name} was deleted: a name once used is never free again")
            if what == "create":
                self._landed(entry.number, name, data)
            else:
                self._overwritten(entry.number, name, data)
        elif names.parse_segment(name) is not None and what == "delete":
            self._deleted(name)
        elif names.parse_snapshot(name) is not None and what == "write":
            self._snapshot(name, data or b"")

    def _landed(self, number: int, name: str, data: bytes) -> None:
        if number != self.truth.tip:
            raise Violation(f"entry {number} landed while the tip was {self.truth.tip}")
        stored = entry_format.decode(data, name)
        before = self.truth
        state, verdict = fold.step(before, stored.entry)
        body = stored.entry.body
        word = "counts" if isinstance(verdict, Counted) else f"is void: {verdict.reason}"
        self.world.tell("land", "chain", f"entry {number}, {_short(stored.entry)}, {word}")
        self.world.count(f"{type(body).__name__.lower()} {word}")
        self.states.append(state)
        self.entries.append((stored.entry, verdict))
        if isinstance(verdict, Counted):
            if isinstance(body, Append):
                self._check_append(body, verdict, stored, number)
            elif isinstance(body, Replace | Compact | Erase):
                self.gone.landed(number, body, before, self.rows, rows_of)
            elif isinstance(body, Create | Configure | Delete) and body.expected_head != self._head(
                number
            ):
                raise Violation(f"entry {number} changes the topic as its author never saw it")
        for fault in invariants.state_faults(state):
            raise Violation(f"after entry {number}: {fault}")
        for partition, part in enumerate(state.parts):
            if partition < len(before.parts) and part.end < before.parts[partition].end:
                raise Violation(f"the end of partition {partition} fell to {part.end}")
            if partition < len(before.parts) and part is before.parts[partition]:
                continue
            for fault in invariants.tiling_faults(partition, part.start, part.end, part.tail):
                raise Violation(f"after entry {number}: {fault}")

    def _check_append(
        self, body: Append, verdict: Counted, stored: entry_format.StoredEntry, number: int
    ) -> None:
        key = (body.app, body.seq, body.own)
        if key in self.senders:
            raise Violation(f"number {body.seq} of {body.app} counts twice, now in entry {number}")
        self.senders.add(key)
        if body.created_at_entry != self._life():
            raise Violation(
                f"entry {number} was meant for the topic of entry {body.created_at_entry}"
            )
        found: list[tuple[int, Row]] = []
        at = 0
        for part, placed in zip(body.parts, verdict.placed, strict=True):
            if part.segment is None:
                got = rows_of(stored.rows(at, part.records, COLUMNS))
                at += part.records
            else:
                where = str(names.segment_name(self.folder, part.partition, part.segment))
                got = self._segment_rows(where, part.segment, part.records)
            while len(self.rows) <= part.partition:
                self.rows.append([])
            if placed.base != len(self.rows[part.partition]):
                raise Violation(f"entry {number} got offset {placed.base} a second time")
            self.rows[part.partition] += got
            found += [(part.partition, row) for row in got]
        self._check_batch(found, number)

    def _life(self) -> int:
        """Number of the create entry of the topic as it is; -1 when it is deleted. Derived from
        the kinds of entries alone, not from the state that the fold made."""
        for number in range(len(self.entries) - 1, -1, -1):
            entry, verdict = self.entries[number]
            if isinstance(verdict, Counted) and isinstance(entry.body, Create | Delete):
                return number if isinstance(entry.body, Create) else -1
        return -1

    def _head(self, number: int) -> int:
        """Number of the last entry before ``number`` that created, changed or deleted it."""
        for earlier in range(number - 1, -1, -1):
            entry, verdict = self.entries[earlier]
            kind = isinstance(entry.body, Create | Configure | Delete)
            if kind and isinstance(verdict, Counted):
                return earlier
        return -1

    def _check_batch(self, found: list[tuple[int, Row]], number: int) -> None:
        values = [row.value for _, row in found if row.value is not None]
        token, _ = token_of(values[0] if values else b"")
        batch = self.batches.get(token)
        if batch is None:
            raise Violation(f"entry {number} holds what nobody sent")
        meant = sorted(batch.rows, key=lambda pair: pair[0])
        if found != meant:
            raise Violation(f"entry {number} holds other rows than {token} sent, or not all")
        if token in self.never:
            raise Violation(f"{token} was refused as not landed, and counts in entry {number}")
        number_of = (token[0], token[1])
        if number_of in self.numbers:
            raise Violation(f"batch {number_of} counts twice: {self.numbers[number_of]}, {token}")
        self.numbers[number_of] = token
        self.counted[token] = number
        for partition in {partition for partition, _ in found}:
            before = self.last.get((token[0], partition), -1)
            if before >= token[1]:
                raise Violation(f"{token[0]}: batch {token[1]} lies behind batch {before}")
            self.last[token[0], partition] = token[1]

    def _segment_rows(self, name: str, ref: Any, records: int) -> list[Row]:
        file = self.world.files.get(name)
        if file is None:
            raise Violation(f"{name} is gone, and an entry that counts names it")
        opened = segments.OpenSegment.whole(ref, records, name, file.data)
        return [row for table in opened.read(0, records, COLUMNS) for row in rows_of(table)]

    def _live(self) -> Iterable[Extent]:
        return (extent for part in self.truth.parts for extent in part.tail)

    def _overwritten(self, number: int, name: str, data: bytes) -> None:
        stored = entry_format.decode(data, name)
        if number >= len(self.entries) or stored.entry != self.entries[number][0]:
            raise Violation(f"{name} was overwritten by another entry")
        if not stored.stub:
            raise Violation(f"{name} was overwritten by something else than its stub")
        for extent in self._live():
            if extent.inline and extent.entry == number:
                raise Violation(f"the rows of {name} were taken out, and {extent.base} needs them")

    def _deleted(self, name: str) -> None:
        for extent in self._live():
            if extent.segment is not None and str(names.segment_of(self.folder, extent)) == name:
                raise Violation(f"{name} was deleted, and offset {extent.base} lies there")

    # --- states ----------------------------------------------------------------------------

    def _snapshot(self, name: str, data: bytes) -> None:
        state, senders_in = snapshots.decode_snapshot(data, name)
        if senders_in is not None:
            where = str(names.LeafName(self.folder, senders_in))
            file = self.world.files.get(where)
            if file is None:
                return
            try:
                state = snapshots.decode_senders(state, file.data, where)
            except CorruptLogError:
                return  # the world broke it meanwhile
        self.check_state(state, name)
        for partition, part in enumerate(state.parts):
            found = self._indexed(state, partition)
            true = [e for e in self.states[state.tip].parts[partition].tail if e.end > part.start]
            if found is not None and found != true:
                raise Violation(f"{name}: its index of partition {partition} is not the fold")

    def _indexed(self, state: TopicState, partition: int) -> list[Extent] | None:
        part = state.parts[partition]
        out: list[Extent] = []
        for fence in state.index.fences(partition, part.start, part.end):
            where = str(names.LeafName(self.folder, state.index.leaves[fence.leaf].uid))
            file = self.world.files.get(where)
            if file is None:
                self.world.count("snapshot names a lost leaf")
                return None
            leaf = self._leaves.get(file.data)
            if leaf is None:
                try:
                    leaf = self._leaves[file.data] = snapshots.decode_leaf(file.data, where)
                except CorruptLogError:
                    return None  # the world broke it; who opens this falls back
            low, high = max(part.start, fence.base), min(part.end, fence.end)
            out += [leaf.extent(i) for i in leaf.span(partition, low, high)]
        return out

    def check_state(self, state: TopicState, whose: str) -> None:
        """Is it the true fold at its tip."""
        if state.tip >= len(self.states):
            raise Violation(f"{whose} is at {state.tip}, and the chain ends at {self.truth.tip}")
        true = self.states[state.tip]
        for field in TopicState._fields:
            if field in ("parts", "index"):
                continue
            if getattr(state, field) != getattr(true, field):
                raise Violation(f"{whose} at {state.tip}: {field} is not that of the fold")
        mine = [part._replace(tail=EMPTY_TAIL) for part in state.parts]
        if mine != [part._replace(tail=EMPTY_TAIL) for part in true.parts]:
            raise Violation(f"{whose} at {state.tip}: its offsets are not those of the fold")
        for part, folded in zip(state.parts, true.parts, strict=True):
            known = set(folded.tail)
            if not all(extent in known for extent in part.tail):
                raise Violation(f"{whose} at {state.tip}: an extent is not in the fold")

    # --- what actors are told --------------------------------------------------------------

    def sends(self, batch: Batch) -> None:
        self.batches[batch.sender, batch.number, batch.attempt] = batch

    def acknowledged(self, token: Token, offsets: Sequence[tuple[int, int]]) -> None:
        """``offsets`` are (partition, offset) of the rows in the order of sending, or nothing
        when an earlier try of the same number may be the one that counted."""
        self.acks += 1
        counted = self.numbers.get((token[0], token[1]))
        if counted is None:
            raise Violation(f"{token} was acknowledged and does not count")
        self.newest_ack = max(self.newest_ack, self.counted[counted])
        if offsets and counted != token:
            raise Violation(f"{token} was acknowledged, but it is {counted} that counts")
        batch = self.batches[counted]
        for (partition, offset), (_, row) in zip(offsets, batch.rows, strict=False):
            if self.rows[partition][offset : offset + 1] != [row]:
                raise Violation(f"{token}: {partition}-{offset} is not where its row lies")

    def refused(self, token: Token) -> None:
        """The sender was told that this try did not land, and never will."""
        if token in self.counted:
            raise Violation(f"{token} was refused as not landed, and counts")
        self.never.add(token)

    def read(
        self, partition: int, start: int, end: int, got: list[tuple[int, Row]], tip: int = 0
    ) -> None:
        """Rows that were read from a state at ``tip`` or a later one."""
        rows = self.rows[partition] if partition < len(self.rows) else []
        if end > len(rows):
            raise Violation(f"{partition}: {start} to {end} was read, and was never written")
        offsets = [offset for offset, _ in got]
        now, then = (self.gone.left(partition, start, end, at) for at in (None, tip))
        if (
            offsets != sorted(set(offsets))
            or not set(now) <= set(offsets) <= set(then)
            or any(rows[offset] != row for offset, row in got)
        ):
            raise Violation(f"{partition}: a read of {start} to {end} differs from what was sent")


def _short(entry: Entry) -> str:
    body = entry.body
    kind = type(body).__name__.lower()
    if isinstance(body, Append):
        where = ", ".join(
            f"{part.records} to {part.partition}{'' if part.segment is None else ' in a segment'}"
            for part in body.parts
        )
        return f"{kind} by {body.app[:8]} number {body.seq} ({where})"
    if isinstance(body, Replace | Compact | Erase):
        return f"{kind} of " + ", ".join(f"{r.partition}:{r.start}-{r.end}" for r in body.runs)
    told = ", ".join(f"{k}={v}" for k, v in body._asdict().items() if k != "config")
    return f"{kind} ({told})"
