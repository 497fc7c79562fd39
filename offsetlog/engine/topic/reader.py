"""Reading ranges of a partition as Arrow tables.

Invariants:

1. A read of [start, end) gives exactly the records that have those offsets, in order, or an
   error. It never gives fewer.
2. A file that is gone, differs, or is a stub where rows were expected means that the plan is
   old: the state is refreshed and the same offsets are planned again. It is corruption only
   if the refreshed state still names that very place.
3. Inline rows are believed only under the write id that the plan names.
4. Nothing is read that the partition, the range and the columns don't need.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from offsetlog.core.topic import plan as fetch
from offsetlog.core.topic.extents import Extent
from offsetlog.core.topic.index import Leaf
from offsetlog.core.topic.state import TopicState
from offsetlog.engine.topic.chain import Chain
from offsetlog.engine.topic.stored_state import StoredState
from offsetlog.errors import CorruptLogError, OffsetOutOfRangeError
from offsetlog.format.entries import StoredEntry, decode
from offsetlog.format.names import EntryName, segment_of
from offsetlog.format.record_schema import OFFSET, as_arrow, complete, milliseconds
from offsetlog.format.segments import OpenSegment
from offsetlog.values import MAX_OFFSET

ALL_COLUMNS = ("key", "value", "headers", "timestamp", "offset")
LOOKUP_BYTES = 1024 * 1024
"""The same for a lookup by time, which needs one row group at the most."""
AHEAD_FILES = 8
AHEAD_BYTES = 64 * 1024 * 1024
LOCAL_FILES = 2
LOCAL_BYTES = 1024 * 1024
"""On a local disk fewer files are read ahead, and small ones not at all: they take no longer than
handing them to another thread."""
NOTHING: Mapping[int, bytes] = {}
logger = logging.getLogger(__name__)


class FetchedBatch(NamedTuple):
    """Records of one partition: those in ``table``, which are all of [start, end)."""

    partition: int
    start: int
    end: int
    ts_type: int
    table: pa.Table


class _OldPlan(Exception):
    """What the plan named is not there as it was named."""

    def __init__(self, extent: Extent, reason: str) -> None:
        super().__init__(reason)
        self.extent = extent
        self.reason = reason


_Source = OpenSegment | StoredEntry


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

    # --- planning --------------------------------------------------------------------------

    def plan(
        self,
        partition: int,
        start: int,
        end: int,
        max_records: int | None = None,
        max_bytes: int | None = None,
    ) -> tuple[fetch.PlannedPiece, ...]:
        leaves: dict[str, Leaf] = {}
        while True:
            state = self.chain.state
            answer = fetch.plan(state, partition, start, end, leaves, max_records, max_bytes)
            if not isinstance(answer, fetch.NeedLeaves):
                return answer
            if not self._load(answer.uids, leaves):
                self.stored.recover()

    def extents(self, state: TopicState, partition: int, start: int, end: int) -> Iterator[Extent]:
        """All extents of a range as ``state`` has them, a leaf at a time."""
        leaves: dict[str, Leaf] = {}
        while start < end:
            # A limit, so that one leaf is asked for at a time.
            answer = fetch.plan(state, partition, start, end, leaves, max_records=MAX_OFFSET)
            if isinstance(answer, fetch.NeedLeaves):
                leaves.clear()
                if not self._load(answer.uids, leaves):
                    state = self.stored.readable(state)
                continue
            for piece in answer:
                yield piece.extent
                start = piece.end

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
    ) -> Iterator[FetchedBatch]:
        """The records of [start, end), a row group or an entry at a time.

        With ``since``, row groups that hold nothing of that time or later come as empty
        batches, and are not fetched. ``planned``: the pieces of the range as somebody planned
        them, so that the topic is opened only if that plan is old."""
        at = start
        failed: _OldPlan | None = None
        while at < end:
            pieces = planned or self.plan(partition, at, end, max_records=self._limits.plan_records)
            planned = ()
            if failed is not None and pieces[0].extent == failed.extent:
                raise _corrupt(failed)
            failed = None
            try:
                for batch in self._read_pieces(pieces, columns, since):
                    yield batch
                    at = batch.end
            except _OldPlan as old:
                if failed is None:
                    failed = old
                logger.info("%s: an old plan is made again: %s", self.chain.folder, old)
                self.chain.doubt()
                self.stored.refresh()  # The topic need not have been opened yet.

    def _read_pieces(
        self, pieces: tuple[fetch.PlannedPiece, ...], columns: tuple[str, ...], since: int | None
    ) -> Iterator[FetchedBatch]:
        at_once = self._limits.whole_bytes if since is None else LOOKUP_BYTES
        for piece, source in self._sources(pieces, at_once):
            if isinstance(source, OpenSegment):
                yield from _segment_batches(piece, source, columns, since)
            else:
                yield self._inline_batch(piece, source, columns)

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
        return pool.submit(self._open_and_check, piece, at_once).result

    def _open_and_check(self, piece: fetch.PlannedPiece, at_once: int) -> _Source:
        source = self._open(piece, at_once)
        is_whole = piece.is_whole and at_once == self._limits.whole_bytes
        if is_whole and isinstance(source, OpenSegment):
            source.check()
        return source

    def _open(self, piece: fetch.PlannedPiece, at_once: int) -> _Source:
        extent = piece.extent
        if extent.segment is None:
            return self._open_entry(extent)
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
        stored = self.chain.read_entry(extent.entry)
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

    # --- lookup by time --------------------------------------------------------------------

    def offset_for_time(self, partition: int, time_ms: int) -> tuple[int, int] | None:
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
                hit = self._first_row_at(partition, low, extent.end, time_ms)
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
        self, partition: int, start: int, end: int, time_ms: int
    ) -> tuple[int, int] | None:
        for batch in self.read(partition, start, end, ("timestamp", "offset"), since=time_ms):
            if not batch.table.num_rows:
                continue
            times = milliseconds(batch.table.column("timestamp"))
            late = np.flatnonzero(times >= time_ms)
            if len(late):
                first = int(late[0])
                return batch.table.column("offset")[first].as_py(), int(times[first])
        return None


def _segment_batches(
    piece: fetch.PlannedPiece, source: OpenSegment, columns: tuple[str, ...], since: int | None
) -> Iterator[FetchedBatch]:
    """One batch for each row group that holds any offset of the piece."""
    extent = piece.extent
    plain = tuple(name for name in columns if name != "offset")
    if extent.records == extent.end - extent.base:
        for i, group in enumerate(source.groups):
            base = extent.base + group.first
            low, high = max(piece.start, base), min(piece.end, base + group.records)
            if low < high and since is not None and source.newest(i) < since:
                empty = pa.schema([OFFSET]).empty_table()
                yield FetchedBatch(extent.partition, low, high, extent.ts_type, empty)
            elif low < high:
                [table] = source.read(low - extent.base, high - extent.base, plain)
                yield _batch(piece, table, columns, low, high)
        return
    yield from _gapped_batches(piece, source, columns)


def _gapped_batches(
    piece: fetch.PlannedPiece, source: OpenSegment, columns: tuple[str, ...]
) -> Iterator[FetchedBatch]:
    """Of a compacted segment, whose rows carry their offsets."""
    with_offset = tuple(dict.fromkeys((*columns, "offset")))
    at = piece.start
    for i, group in enumerate(source.groups):
        [table] = source.read(group.first, group.first + group.records, with_offset)
        offsets = table.column("offset").to_numpy()
        low, high = np.searchsorted(offsets, [piece.start, piece.end])
        last = i == len(source.groups) - 1
        end = piece.end if last else min(piece.end, int(offsets[-1]) + 1)
        if at < end:
            yield FetchedBatch(
                piece.extent.partition,
                at,
                end,
                piece.extent.ts_type,
                table.slice(low, high - low).select(list(columns)),
            )
            at = end
    if at < piece.end:
        empty = complete(pa.schema([OFFSET]).empty_table(), columns)
        yield FetchedBatch(piece.extent.partition, at, piece.end, piece.extent.ts_type, empty)


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
