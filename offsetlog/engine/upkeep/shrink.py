"""Writing files again without some of their records: what compaction and erasure have in common.

Invariants:

1. A file that loses nothing is not read. One that does is replaced as a whole, from its first
   offset, or the log's start, to its last.
2. Offsets and their order stay as they are; where a record was there is a gap.
3. Memory is bounded: what is kept is written as soon as it makes a segment.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple, Protocol

import numpy as np
import pyarrow as pa

from offsetlog.core.topic.entry import ReplacedRun, ReplacementPiece
from offsetlog.core.topic.plan import PlannedPiece
from offsetlog.engine.append.record_batch import row_bytes
from offsetlog.engine.topic.open_topic import OpenTopic
from offsetlog.engine.topic.reader import ALL_COLUMNS, FetchedBatch
from offsetlog.engine.upkeep.offset_set import Mask, Offsets, OffsetSet
from offsetlog.format import names, segments
from offsetlog.format import record_schema as rows
from offsetlog.values import settings_of

SEGMENT_BYTES = 64 * 1024 * 1024
"""Of rows that are held to be written as one segment, where the topic's ``segment.bytes`` is not
less."""
RUN_EXTENTS = 4096
"""The most files that one run replaces."""


class Survivors(Protocol):
    """Which records of a partition stay."""

    def loses(self, piece: PlannedPiece) -> bool:
        """Whether a file loses any record. True where that can't be told."""

    def keeps(self, offsets: Offsets) -> Mask: ...


class Dropped(NamedTuple):
    """Goes: what is in a set that covers [start, end)."""

    offsets: OffsetSet
    start: int
    end: int

    def loses(self, piece: PlannedPiece) -> bool:
        low, high = max(piece.start, self.start), min(piece.end, self.end)
        return low < high and self.offsets.count(low, high) > 0

    def keeps(self, offsets: Offsets) -> Mask:
        mask = np.ones(len(offsets), bool)
        low, high = np.searchsorted(offsets, [self.start, self.end])
        mask[low:high] = ~self.offsets.has(offsets[low:high])
        return mask


class ShrunkRun(NamedTuple):
    run: ReplacedRun
    dropped: int
    """Records that are in it no more."""
    files: int
    """That it replaces."""
    segments: int
    bytes: int
    """Of its segments."""


class Shrinker:
    """For one topic."""

    def __init__(self, topic: OpenTopic) -> None:
        self._topic = topic
        self._chain = topic.chain
        config = settings_of(topic.chain.state.config)
        self._compression = config.compression
        self._segment_bytes = min(SEGMENT_BYTES, config.segment_bytes)

    def shrink(
        self, partition: int, start: int, end: int, survivors: Survivors
    ) -> Iterator[ShrunkRun]:
        """Write what is left of the files with offsets in [start, end) that lose something; each
        run's segments are stored when it is given, and nobody sees them yet."""
        run: list[PlannedPiece] = []
        between: list[PlannedPiece] = []
        size = 0
        for piece in self._pieces(partition, start, end):
            if survivors.loses(piece):
                run += [*between, piece]
                size += sum(one.extent.bytes for one in (*between, piece))
                between = []
                full = size >= self._segment_bytes or len(run) >= RUN_EXTENTS
            else:
                # Small files between two that are written anyway become a part of the same.
                is_small = piece.extent.bytes < self._segment_bytes // 2
                full = not is_small or len(between) >= RUN_EXTENTS
                if run and not full:
                    between.append(piece)
            if full and run:
                yield self._rewrite(partition, tuple(run), survivors)
            if full:
                run, between, size = [], [], 0
        if run:
            yield self._rewrite(partition, tuple(run), survivors)

    def _pieces(self, partition: int, start: int, end: int) -> Iterator[PlannedPiece]:
        """The files of a range; of the last one all that it holds."""
        at = start
        while at < end:
            limit = self._chain.env.limits.plan_records
            part = self._topic.reader.plan_part(partition, at, end, max_records=limit)
            for piece in part.pieces:
                whole = PlannedPiece(piece.extent, piece.start, piece.extent.end)
                yield whole
                at = whole.end

    def _rewrite(
        self, partition: int, pieces: tuple[PlannedPiece, ...], survivors: Survivors
    ) -> ShrunkRun:
        start, end, time = pieces[0].start, pieces[-1].end, pieces[-1].extent.max_ts
        out: list[ReplacementPiece] = []
        kept: list[FetchedBatch] = []
        base = start
        size = dropped = 0
        for batch in self._topic.reader.read(partition, start, end, ALL_COLUMNS, planned=pieces):
            table = batch.table
            if table.num_rows:
                mask = survivors.keeps(table.column("offset").to_numpy())
                if not mask.all():
                    table = table.filter(pa.array(mask))
                dropped += batch.table.num_rows - table.num_rows
            if not table.num_rows:
                continue
            if kept and (size >= self._segment_bytes or kept[-1].ts_type != batch.ts_type):
                out.append(self._write(partition, base, batch.start, kept, time))
                kept, base, size = [], batch.start, 0
            kept.append(batch._replace(table=table))
            size += table.nbytes
        if kept or base < end:
            out.append(self._write(partition, base, end, kept, time))
        written = [piece for piece in out if piece.segment is not None]
        return ShrunkRun(
            ReplacedRun(partition, start, end, tuple(out)),
            dropped,
            sum(not piece.extent.is_empty for piece in pieces),
            len(written),
            sum(piece.segment.size for piece in written if piece.segment is not None),
        )

    def _write(
        self, partition: int, base: int, end: int, kept: list[FetchedBatch], time: int
    ) -> ReplacementPiece:
        """``time`` of what is left of nothing: it still has its place among the others."""
        if not kept:
            return ReplacementPiece(base, end, 0, 0, time, time, 0)
        table = pa.concat_tables([batch.table for batch in kept]).combine_chunks()
        encoded = segments.encode(
            table, self._compression, self._chain.env.limits.row_group_records
        )
        ref = encoded.ref(self._chain.state.tip, self._chain.env.new_id())
        name = names.SegmentName(self._chain.folder, partition, ref.born, ref.uid, base, end)
        self._chain.store.put(str(name), encoded.data)
        times = rows.milliseconds(table.column("timestamp"))
        return ReplacementPiece(
            base=base,
            end=end,
            records=table.num_rows,
            bytes=int(row_bytes(table).sum()),
            min_ts=int(times.min()),
            max_ts=int(times.max()),
            ts_type=kept[0].ts_type,
            segment=ref,
        )
