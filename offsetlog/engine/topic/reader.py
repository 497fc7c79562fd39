"""Reading ranges of a partition as Arrow tables.

Invariants:

1. A read of [start, end) gives exactly the records that have those offsets, in order, or an
   error. It never gives fewer.
2. A file that is gone, differs, or is a stub where rows were expected means that the plan is
   old: the state is refreshed and the same offsets are planned again. It is corruption only
   if the refreshed state still names that very place.
3. Inline rows are believed only under the write id that the plan names.
4. Nothing is read that the partition, the range and the columns don't need.
5. No plan is made from a state that is older than ``MAX_AGE_SECONDS``: what was erased or deleted
   before that is in no plan.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager, suppress
from functools import partial
from itertools import groupby
from operator import attrgetter
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from offsetlog.core.topic import plan as fetch
from offsetlog.core.topic.extents import Extent
from offsetlog.core.topic.index import Leaf, integers
from offsetlog.core.topic.retention import Sizes, joined
from offsetlog.core.topic.state import TopicState
from offsetlog.engine.topic.chain import Chain
from offsetlog.engine.topic.stored_state import StoredState
from offsetlog.errors import CorruptLogError, OffsetOutOfRangeError
from offsetlog.format.entries import StoredEntry, decode
from offsetlog.format.names import EntryName, segment_of
from offsetlog.format.record_schema import (
    OFFSET,
    PARTITION,
    ROWS,
    as_arrow,
    complete,
    milliseconds,
)
from offsetlog.format.segments import OpenSegment
from offsetlog.logs import get_logger

ALL_COLUMNS = ("key", "value", "headers", "timestamp", "offset")
LOOKUP_BYTES = 1024 * 1024
"""The same for a lookup by time, which needs one row group at the most."""
AHEAD_FILES = 8
AHEAD_BYTES = 64 * 1024 * 1024
LOCAL_FILES = 2
LOCAL_BYTES = 1024 * 1024
"""On a local disk fewer files are read ahead, and small ones not at all: they take no longer than
handing them to another thread."""
PLANNED_LEAVES = 8
"""Leaves that are held at once while a range is planned."""
TABLES_JOINED = 256
"""Rows of so many entries become one table: a small one takes some 10 KiB, whatever it holds."""
_ENTRY = attrgetter("entry")
INLINE_ROWS = pa.schema([*ROWS, OFFSET, PARTITION])
NOTHING: Mapping[int, bytes] = {}
Spend = Callable[[int], None]
"""Told before each part of a file is decoded how many bytes that will take; it may raise."""
logger = get_logger(__name__)


class FetchedBatch(NamedTuple):
    """Records of one partition: those in ``table``, which are all of [start, end)."""

    partition: int
    start: int
    end: int
    ts_type: int
    table: pa.Table


class InlineRows:
    """Rows of many partitions, with their offsets."""

    def __init__(self, tables: list[pa.Table]) -> None:
        whole = pa.concat_tables(tables or [INLINE_ROWS.empty_table()])
        places = [whole.column(name).to_numpy() for name in ("partition", "offset")]
        order = np.lexsort(places[::-1])
        self._partitions, self._offsets = (place[order] for place in places)
        self._table = whole.select(list(ALL_COLUMNS)).take(order)

    def between(self, partition: int, start: int, end: int) -> pa.Table:
        """Those that are there of [start, end)."""
        first, last = np.searchsorted(self._partitions, [partition, partition + 1])
        low, high = first + np.searchsorted(self._offsets[first:last], [start, end])
        return self._table.slice(low, high - low)


def _rows_of(stored: StoredEntry, extents: list[Extent]) -> pa.Table:
    rows = [np.arange(e.row, e.row + e.records) for e in extents]
    table = stored.rows(0, stored.inline_records, ALL_COLUMNS[:-1]).take(np.concatenate(rows))
    offsets = np.concatenate([np.arange(e.base, e.end, dtype=np.int64) for e in extents])
    numbers = np.array([e.partition for e in extents], np.int32)
    partitions = np.repeat(numbers, [e.records for e in extents])
    table = table.append_column(OFFSET, as_arrow(offsets, OFFSET.type))
    return table.append_column(PARTITION, as_arrow(partitions, PARTITION.type))


class _OldPlan(Exception):
    """What the plan named is not there as it was named."""

    def __init__(self, extent: Extent, reason: str) -> None:
        super().__init__(reason)
        self.extent = extent
        self.reason = reason


_Source = OpenSegment | StoredEntry | None
"""None: no file holds the piece, whose records are all gone."""


class Reader:
    """Reads one topic. Safe to be used by several threads."""

    def __init__(
        self, chain: Chain, stored: StoredState, pool: ThreadPoolExecutor | None = None
    ) -> None:
        self.chain = chain
        self._limits = chain.env.limits
        self.stored = stored
        self._pool = pool
        self._is_local = chain.store.is_local
        self._kept: dict[int, StoredEntry] | None = None
        self._lock = chain.env.new_lock()
        self._asked: dict[int, Future[StoredEntry | None]] = {}
        """Entries that are on their way: several partitions wait for the same request."""

    # --- planning --------------------------------------------------------------------------

    def plan(self, partition: int, start: int, end: int) -> tuple[fetch.PlannedPiece, ...]:
        """All files of [start, end), in order. For who shares the range out, or counts it."""
        while True:
            pieces = self._whole_plan(self.stored.recent(), partition, start, end)
            if pieces is not None:
                return pieces
            self.stored.recover()

    def _whole_plan(
        self, state: TopicState, partition: int, start: int, end: int
    ) -> tuple[fetch.PlannedPiece, ...] | None:
        """By one state, some leaves at a time; None when one of them can't be read."""
        fetch.check_range(state, partition, start, end)
        pieces: list[fetch.PlannedPiece] = []
        leaves: dict[str, Leaf] = {}
        at = start
        while at < end:
            part = fetch.plan_part(state, partition, at, end, leaves, ahead=PLANNED_LEAVES)
            if isinstance(part, fetch.PlannedPart):
                pieces += part.pieces
                at = part.end
                continue
            leaves.clear()
            if not self._load(part.uids, leaves):
                return None
        return tuple(pieces)

    def plan_part(
        self,
        partition: int,
        start: int,
        end: int,
        max_records: int | None = None,
        max_bytes: int | None = None,
    ) -> fetch.PlannedPart:
        """The first files of [start, end), at least one: as many as a limit lets, or fewer. For who
        goes on from where it ends."""
        leaves: dict[str, Leaf] = {}
        while True:
            state = self.stored.recent()
            part = fetch.plan_part(state, partition, start, end, leaves, max_records, max_bytes)
            if isinstance(part, fetch.PlannedPart):
                return part
            if not self._load(part.uids, leaves):
                self.stored.recover()

    def extent_at(self, partition: int, offset: int) -> Extent:
        """The file that holds an offset."""
        return self.plan_part(partition, offset, offset + 1).pieces[0].extent

    def live(self, state: TopicState, choose: Callable[[Leaf, range], list[int]]) -> list[Extent]:
        """Live extents of all partitions, in no order: those that ``choose`` picks from the spans
        of each leaf, and all that are in no leaf yet. Each leaf is read once."""
        extents: list[Extent] = []
        for uid, fences in fetch.live_fences(state).items():
            leaf = self.stored.leaf(uid)
            if leaf is None:
                return self.live(self.stored.readable(state), choose)
            for fence in fences:
                span = leaf.span(fence.partition, fence.base, fence.end)
                extents += map(leaf.extent, choose(leaf, span))
        for part in state.parts:
            extents += part.tail.overlapping(part.start, part.end)
        return extents

    def sizes(self, state: TopicState) -> list[Sizes]:
        """The sizes of each partition's live extents. Each leaf is read once."""
        chunks: list[list[Sizes]] = [[] for _ in state.parts]
        for uid, fences in fetch.live_fences(state).items():
            leaf = self.stored.leaf(uid)
            if leaf is None:
                return self.sizes(self.stored.readable(state))
            for fence in fences:
                span = leaf.span(fence.partition, fence.base, fence.end)
                at = slice(span.start, span.stop)
                chunks[fence.partition].append(
                    Sizes(leaf.end[at], leaf.bytes[at], leaf.min_ts[at], leaf.max_ts[at])
                )
        for mine, part in zip(chunks, state.parts, strict=True):
            for extent in part.tail.overlapping(part.start, part.end):
                one = (extent.end, extent.bytes, extent.min_ts, extent.max_ts)
                mine.append(Sizes(*(integers([value]) for value in one)))
        return [joined(mine) for mine in chunks]

    def _load(self, uids: tuple[str, ...], leaves: dict[str, Leaf]) -> bool:
        """False when one can't be read: it was merged into a newer one, or is broken."""
        for uid in uids:
            leaf = self.stored.leaf(uid)
            if leaf is None:
                return False
            leaves[uid] = leaf
        return True

    # --- reading ---------------------------------------------------------------------------

    def read(
        self,
        partition: int,
        start: int,
        end: int,
        columns: tuple[str, ...] = ALL_COLUMNS,
        since: int | None = None,
        planned: tuple[fetch.PlannedPiece, ...] = (),
        spend: Spend | None = None,
    ) -> Iterator[FetchedBatch]:
        """The records of [start, end), a row group or an entry at a time.

        With ``since``, row groups that hold nothing of that time or later come as empty
        batches, and are not fetched. ``planned``: the pieces of the range as somebody planned
        them, so that the topic is opened only if that plan is old. ``spend`` is told what is
        about to be decoded."""
        at = start
        failed: _OldPlan | None = None
        while at < end:
            limit = self._limits.plan_records
            pieces = planned or self.plan_part(partition, at, end, max_records=limit).pieces
            planned = ()
            if failed is not None and pieces[0].extent == failed.extent:
                raise _corrupt(failed)
            failed = None
            try:
                for batch in self._read_pieces(pieces, columns, since, spend):
                    if batch.start != at or not at < batch.end <= end:
                        raise self._untiled(batch, at, end)
                    yield batch
                    at = batch.end
            except _OldPlan as old:
                if failed is None:
                    failed = old
                logger.info("%s: an old plan is made again: %s", self.chain.folder, old)
                self.chain.doubt()
                self.stored.refresh()  # The topic need not have been opened yet.

    def _read_pieces(
        self,
        pieces: tuple[fetch.PlannedPiece, ...],
        columns: tuple[str, ...],
        since: int | None,
        spend: Spend | None,
    ) -> Iterator[FetchedBatch]:
        at_once = self._limits.whole_bytes if since is None else LOOKUP_BYTES
        # Of a lookup by time some rows are left out, and a table without columns has no rows.
        counts = since is None and bool(columns)
        for piece, source in self._sources(pieces, at_once):
            rows = 0
            for batch in self._batches(piece, source, columns, since, spend):
                rows += batch.table.num_rows
                if counts and batch.end == piece.end and not piece.may_have(rows):
                    raise self._miscounted(piece, rows)
                yield batch

    def _batches(
        self,
        piece: fetch.PlannedPiece,
        source: _Source,
        columns: tuple[str, ...],
        since: int | None,
        spend: Spend | None,
    ) -> Iterable[FetchedBatch]:
        if source is None:
            return (_nothing(piece, piece.start, columns),)
        if isinstance(source, OpenSegment):
            return _segment_batches(piece, source, columns, since, spend)
        if spend is not None:
            spend(source.unfolds_to())
        return (self._inline_batch(piece, source, columns),)

    def _miscounted(self, piece: fetch.PlannedPiece, rows: int) -> CorruptLogError:
        extent = piece.extent
        name: object = "no file"
        if extent.inline:
            name = EntryName(self.chain.folder, extent.entry)
        elif not extent.is_empty:
            name = segment_of(self.chain.folder, extent)
        return CorruptLogError(
            f"{name} has {rows} records with offsets {piece.start} to {piece.end} of "
            f"{self.chain.folder}-{extent.partition}; the log counts {extent.records} in "
            f"{extent.base} to {extent.end}.",
            "Restore it from a backup; 'offsetlog verify' names all faults.",
        )

    def _untiled(self, batch: FetchedBatch, at: int, end: int) -> CorruptLogError:
        return CorruptLogError(
            f"Offsets {at} to {end} of {self.chain.folder}-{batch.partition} were to be read, and "
            f"{batch.start} to {batch.end} came next.",
            "Run 'offsetlog verify' on the topic.",
        )

    def _sources(
        self, pieces: tuple[fetch.PlannedPiece, ...], at_once: int
    ) -> Iterator[tuple[fetch.PlannedPiece, _Source]]:
        """Each piece with its file, fetched some files ahead."""
        if self._pool is None or len(pieces) == 1:
            for piece in pieces:
                yield piece, self._open(piece, at_once)
            return
        most = LOCAL_FILES if self._is_local else AHEAD_FILES
        waiting: deque[tuple[fetch.PlannedPiece, Callable[[], _Source]]] = deque()
        rest = deque(pieces)
        ahead = 0
        while waiting or rest:
            while rest and len(waiting) < most and (not waiting or ahead < AHEAD_BYTES):
                piece = rest.popleft()
                ahead += piece.extent.bytes
                waiting.append((piece, self._begin(piece, at_once, self._pool)))
            piece, opened = waiting.popleft()
            ahead -= piece.extent.bytes
            yield piece, opened()

    def _begin(
        self, piece: fetch.PlannedPiece, at_once: int, pool: ThreadPoolExecutor
    ) -> Callable[[], _Source]:
        if self._is_local and piece.extent.bytes < LOCAL_BYTES:
            return partial(self._open, piece, at_once)
        if piece.extent.inline and self._kept is None:
            number = piece.extent.entry
            with self._lock:
                if number not in self._asked and self.chain.recent(number) is None:
                    asked = self._asked[number] = pool.submit(self._ask, number)
                    if asked.done():
                        self._asked.pop(number, None)
            return partial(self._open, piece, at_once)
        return pool.submit(self._open_and_check, piece, at_once).result

    def _ask(self, number: int) -> StoredEntry | None:
        try:
            return self.chain.read_entry(number)
        finally:
            with self._lock:
                self._asked.pop(number, None)

    def _open_and_check(self, piece: fetch.PlannedPiece, at_once: int) -> _Source:
        source = self._open(piece, at_once)
        is_whole = piece.is_whole and at_once == self._limits.whole_bytes
        if is_whole and isinstance(source, OpenSegment):
            source.check()
        return source

    def _open(self, piece: fetch.PlannedPiece, at_once: int) -> _Source:
        extent = piece.extent
        if extent.segment is None:
            return None if extent.is_empty else self._open_entry(extent)
        name = str(segment_of(self.chain.folder, extent))
        store, ref = self.chain.store, extent.segment
        if ref.size <= at_once or (piece.is_whole and at_once == self._limits.whole_bytes):
            # One byte more than it has: a longer file is refused, and not fetched.
            data = store.view(name, 0, ref.size + 1)
            if data is None:
                raise _OldPlan(extent, f"{name} is not there")
            return OpenSegment.whole(ref, extent.records, name, data)

        def ranged(low: int, high: int) -> bytes:
            data = store.get(name, low, high)
            if data is None:
                raise _OldPlan(extent, f"{name} is not there")
            return data

        return OpenSegment(ref, extent.records, name, ranged)

    @contextmanager
    def keeping_entries(self, read: Mapping[int, bytes] = NOTHING) -> Iterator[None]:
        """For who reads several partitions of the same entries: each is read once meanwhile, and
        not at all if it is in ``read``, the files that somebody else read already."""
        folder = self.chain.folder
        self._kept = {n: decode(data, str(EntryName(folder, n))) for n, data in read.items()}
        try:
            yield
        finally:
            self._kept = None

    def _open_entry(self, extent: Extent) -> StoredEntry:
        kept = self._kept
        stored = None if kept is None else kept.get(extent.entry)
        if stored is not None and stored.entry.write_id == extent.write_id:
            return stored
        name = EntryName(self.chain.folder, extent.entry)
        asked = self._asked.get(extent.entry)
        stored = self.chain.read_entry(extent.entry) if asked is None else asked.result()
        if stored is None:
            raise _OldPlan(extent, f"{name} is not there")
        if stored.entry.write_id != extent.write_id:
            raise _OldPlan(extent, f"{name} is another entry than the one that was folded")
        if stored.stub:
            raise _OldPlan(extent, f"the rows of {name} were taken out")
        if kept is not None:
            kept[extent.entry] = stored
        return stored

    def _inline_batch(
        self, piece: fetch.PlannedPiece, stored: StoredEntry, columns: tuple[str, ...]
    ) -> FetchedBatch:
        extent = piece.extent
        plain = tuple(name for name in columns if name != "offset")
        count = piece.end - piece.start
        table = stored.rows(extent.row + piece.start - extent.base, count, plain)
        return _batch(piece, table, columns, piece.start, piece.end)

    def inline_rows(self, extents: Iterable[Extent]) -> InlineRows:
        """The rows of extents that lie in entries, whatever their partitions: each entry is read
        once. Those of an entry that is not as it was planned are left out."""
        by_entry = groupby(sorted(extents, key=_ENTRY), key=_ENTRY)
        wanted = {number: list(group) for number, group in by_entry}
        numbers, joined = list(wanted), []
        tables: list[pa.Table] = []
        for low in range(0, len(numbers), self._limits.window):
            if len(tables) >= TABLES_JOINED:
                joined.append(pa.concat_tables(tables).combine_chunks())
                tables = []
            window = numbers[low : low + self._limits.window]
            self.chain.read_entries(window)
            for number in window:
                with suppress(_OldPlan):
                    tables.append(_rows_of(self._open_entry(wanted[number][0]), wanted[number]))
        return InlineRows([*joined, *tables])

    # --- lookup by time --------------------------------------------------------------------

    def offset_for_time(
        self, partition: int, time_ms: int, spend: Spend | None = None
    ) -> tuple[int, int] | None:
        """(offset, timestamp) of the first record at or after a time; None if there is none."""
        state = self.chain.state
        fetch.check_partition(state, partition)
        leaves: dict[str, Leaf] = {}
        at = state.start(partition)
        while True:
            extent = fetch.first_at_or_after(self.chain.state, partition, time_ms, at, leaves)
            if extent is None:
                return None
            if isinstance(extent, fetch.NeedLeaves):
                if not self._load(extent.uids, leaves):
                    self.stored.recover()
                continue
            low = max(at, extent.base)
            try:
                hit = self._first_row_at(partition, low, extent.end, time_ms, spend)
            except OffsetOutOfRangeError:
                # Retention took it meanwhile: go on where the log starts now.
                fetch.check_partition(self.chain.state, partition)
                at = max(low, self.chain.state.start(partition))
                if at == low:
                    raise
                continue
            if hit is not None:
                return hit
            at = extent.end

    def _first_row_at(
        self, partition: int, start: int, end: int, time_ms: int, spend: Spend | None
    ) -> tuple[int, int] | None:
        columns = ("timestamp", "offset")
        for batch in self.read(partition, start, end, columns, since=time_ms, spend=spend):
            if not batch.table.num_rows:
                continue
            times = milliseconds(batch.table.column("timestamp"))
            late = np.flatnonzero(times >= time_ms)
            if len(late):
                first = int(late[0])
                return batch.table.column("offset")[first].as_py(), int(times[first])
        return None


def _segment_batches(
    piece: fetch.PlannedPiece,
    source: OpenSegment,
    columns: tuple[str, ...],
    since: int | None,
    spend: Spend | None,
) -> Iterator[FetchedBatch]:
    """One batch for each row group that holds any offset of the piece."""
    extent = piece.extent
    plain = tuple(name for name in columns if name != "offset")
    if extent.dense:
        for i, group in enumerate(source.groups):
            base = extent.base + group.first
            low, high = max(piece.start, base), min(piece.end, base + group.records)
            if low < high and since is not None and source.newest(i) < since:
                empty = pa.schema([OFFSET]).empty_table()
                yield FetchedBatch(extent.partition, low, high, extent.ts_type, empty)
            elif low < high:
                if spend is not None:
                    spend(source.unfolds_to(i, plain))
                [table] = source.read(low - extent.base, high - extent.base, plain)
                yield _batch(piece, table, columns, low, high)
        return
    yield from _gapped_batches(piece, source, columns, since, spend)


def _gapped_batches(
    piece: fetch.PlannedPiece,
    source: OpenSegment,
    columns: tuple[str, ...],
    since: int | None = None,
    spend: Spend | None = None,
) -> Iterator[FetchedBatch]:
    """Of a segment with gaps, whose rows carry their offsets."""
    with_offset = tuple(dict.fromkeys((*columns, "offset")))
    extent, at = piece.extent, piece.start
    told, before = source.last_offsets(extent.base, extent.end), -1
    for i, group in enumerate(source.groups):
        if at >= piece.end:
            break
        if told[i] < at or (since is not None and source.newest(i) < since):
            continue
        if spend is not None:
            spend(source.unfolds_to(i, with_offset))
        [table] = source.read(group.first, group.first + group.records, with_offset)
        offsets = source.offsets(i, extent.base, extent.end, table)
        if offsets[0] <= before:
            raise source.misplaced(i)
        before = int(offsets[-1])
        low, high = np.searchsorted(offsets, [piece.start, piece.end])
        last = i == len(source.groups) - 1
        end = piece.end if last else min(piece.end, before + 1)
        if at < end:
            yield FetchedBatch(
                extent.partition,
                at,
                end,
                extent.ts_type,
                table.slice(low, high - low).select(list(columns)),
            )
            at = end
    if at < piece.end:
        yield _nothing(piece, at, columns)


def _nothing(piece: fetch.PlannedPiece, start: int, columns: tuple[str, ...]) -> FetchedBatch:
    """That nothing is left of a piece from an offset on."""
    empty = complete(pa.schema([OFFSET]).empty_table(), columns)
    return FetchedBatch(piece.extent.partition, start, piece.end, piece.extent.ts_type, empty)


def _batch(
    piece: fetch.PlannedPiece, table: pa.Table, columns: tuple[str, ...], low: int, high: int
) -> FetchedBatch:
    if "offset" in columns:
        offsets = as_arrow(np.arange(low, high, dtype=np.int64), OFFSET.type)
        if not table.num_columns:
            # Nothing was read, and a table without columns has no rows either.
            table = pa.table([offsets], schema=pa.schema([OFFSET]))
        else:
            table = table.append_column(OFFSET, offsets).select(list(columns))
    return FetchedBatch(piece.extent.partition, low, high, piece.extent.ts_type, table)


def _corrupt(failed: _OldPlan) -> CorruptLogError:
    extent = failed.extent
    return CorruptLogError(
        f"Offsets {extent.base} to {extent.end} of partition {extent.partition}: {failed.reason}, "
        "and the log still names it.",
        "Restore it from a backup; 'offsetlog verify' names all faults.",
    )
