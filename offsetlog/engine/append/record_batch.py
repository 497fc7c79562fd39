"""Rows that are ready to become an entry: which go where, and what an entry says of them.

Invariants:

1. Rows keep their order within each partition.
2. Up to ``Limits.inline_bytes`` of rows travel in the entry; more go to a segment for each
   partition, written before the entry that names it.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from offsetlog.core.topic.entry import Part, SegmentRef
from offsetlog.core.topic.state import TopicState
from offsetlog.engine.append.digest import digest_of
from offsetlog.engine.append.segment_writer import SegmentWriter
from offsetlog.engine.append.send_buffer import SentColumns
from offsetlog.errors import InvalidRequestError
from offsetlog.format import record_schema as rows
from offsetlog.format.entries import ENTRY_ROWS, MAX_INLINE_RECORDS
from offsetlog.format.partitioner import partitions_of
from offsetlog.values import settings_of

Ints = npt.NDArray[np.int64]


class RecordBatch(NamedTuple):
    """Rows and their order by partition, with what an entry needs to say of them."""

    table: pa.Table
    """As it was given."""
    order: Ints | None
    """Row i of the sorted order is row ``order[i]`` of ``table``; None: nothing moves."""
    partition_of: npt.NDArray[np.int32]
    """The partition of each row, in the sorted order."""
    runs: tuple[tuple[int, int, int], ...]
    """(partition, a, b): rows [a, b) of the sorted order go there."""
    ends: Ints
    """Bytes of all rows before row i, and at last of all."""
    times: Ints
    digest: str

    def digest_under(self, partitions: int) -> str:
        """Rows whose partitions were chosen before go nowhere else."""
        return self.digest

    def parts(self, segment_writer: SegmentWriter, state: TopicState) -> tuple[Part, ...]:
        # Rows without key and value weigh nothing, but an entry of them must stay small too.
        limit = segment_writer.env.limits.inline_bytes
        if self.ends[-1] > limit or len(self.times) > MAX_INLINE_RECORDS:
            return self.segments(segment_writer, state)
        starts = [a for _, a, _ in self.runs]
        lows = np.minimum.reduceat(self.times, starts).tolist()
        highs = np.maximum.reduceat(self.times, starts).tolist()
        ends = self.ends[[*starts, -1]].tolist()
        return tuple(
            [
                Part(partition, b - a, end - begin, low, high)
                for (partition, a, b), begin, end, low, high in zip(
                    self.runs, ends, ends[1:], lows, highs, strict=False
                )
            ]
        )

    def segments(self, segment_writer: SegmentWriter, state: TopicState) -> tuple[Part, ...]:
        """All rows as segments, however few they are."""
        config = settings_of(state.config)
        pieces = [
            (partition, low, high)
            for partition, a, b in self.runs
            for low, high in split(self.ends, a, b, config.segment_bytes)
        ]

        def write(piece: tuple[int, int, int]) -> Part:
            partition, low, high = piece
            if self.order is None:
                table = self.table.slice(low, high - low)
            else:
                table = self.table.take(pa.array(self.order[low:high]))
            ref = segment_writer.write(table, partition, state.tip, config.compression)
            return part_of(partition, self.ends, self.times, low, high, ref)

        return segment_writer.each(write, pieces)

    def inline(self) -> pa.Table:
        """All rows in the sorted order, each with its partition."""
        table = self.table if self.order is None else self.table.take(pa.array(self.order))
        column = rows.as_arrow(self.partition_of, pa.int32())
        return pa.Table.from_arrays([column, *table.columns], schema=ENTRY_ROWS)


def prepare(
    table: pa.Table, partition_of: npt.NDArray[np.int32], times: Ints | None = None
) -> RecordBatch:
    """Say which rows go where, keeping their order within each partition. The rows themselves
    are moved when they are written, partition by partition and in parallel. ``times`` are those
    of the table, where they are at hand."""
    digest = digest_of(table, partition_of)
    sizes = row_bytes(table)
    if times is None:
        times = rows.milliseconds(table.column("timestamp"))
    order = order_by(partition_of)
    if order is not None:
        partition_of, sizes, times = partition_of[order], sizes[order], times[order]
    bounds: tuple[int, ...] = (0, len(partition_of))
    if partition_of[0] != partition_of[-1]:
        bounds = bounds_of(partition_of)
    runs = tuple([(int(partition_of[a]), a, b) for a, b in zip(bounds, bounds[1:], strict=False)])
    return RecordBatch(table, order, partition_of, runs, ends_of(sizes), times, digest)


def assign_partitions(
    columns: SentColumns, partitions: int, spread: int, topic: str
) -> npt.NDArray[np.int32]:
    """Named ones stay; keyed ones go where Kafka's hash says; the rest share one partition."""
    keys = columns.table.column("key")
    keyed = keys.null_count < len(keys)
    if columns.nobody_chose:
        if not keyed or partitions == 1:
            return np.full(len(keys), spread % partitions, np.int32)
        out = partitions_of(keys, partitions)
    else:
        out = columns.partition.copy()
        if len(out) and out.max() >= partitions:
            raise InvalidRequestError(
                f"Topic {topic!r} has no partition {out.max()}.", f"It has {partitions}, from 0."
            )
        free = out < 0
        if keyed and free.any():
            out[free] = partitions_of(keys, partitions)[free]
    out[out < 0] = spread % partitions
    return out


def order_by(partition_of: npt.NDArray[np.int32]) -> Ints | None:
    """The order that brings the rows of each partition together; None: they are."""
    if len(partition_of) < 2 or not (partition_of[1:] < partition_of[:-1]).any():
        return None
    # One or two bytes are sorted by radix: many times faster than a comparing sort.
    highest = partition_of.max()
    kind = np.uint8 if highest < 2**8 else np.uint16 if highest < 2**16 else np.int32
    return np.argsort(partition_of.astype(kind), kind="stable")


def bounds_of(sorted_partitions: npt.NDArray[np.int32]) -> tuple[int, ...]:
    """Where the rows of each partition begin, and the end of all."""
    edges = np.flatnonzero(sorted_partitions[1:] != sorted_partitions[:-1]) + 1
    return 0, *edges.tolist(), len(sorted_partitions)


def ends_of(sizes: Ints) -> Ints:
    ends = np.zeros(len(sizes) + 1, np.int64)
    np.cumsum(sizes, out=ends[1:])
    return ends


def row_bytes(table: pa.Table | pa.RecordBatch) -> Ints:
    """Bytes of each row's key, value and headers."""
    total = np.zeros(table.num_rows, np.int64)
    for name in ("key", "value", "headers"):
        column = table.column(name)
        if column.null_count < table.num_rows:
            lengths = _header_lengths if name == "headers" else _lengths
            chunks = column.chunks if isinstance(column, pa.ChunkedArray) else [column]
            sizes = [lengths(chunk) for chunk in chunks]
            total += sizes[0] if len(sizes) == 1 else np.concatenate(sizes)
    return total


def _header_lengths(array: pa.ListArray) -> Ints:
    """Bytes of the headers of each row; 0 for a null."""
    pairs = array.flatten()
    ends = ends_of(_lengths(pairs.field(0)) + _lengths(pairs.field(1)))
    counts = array.value_lengths().fill_null(0).to_numpy(zero_copy_only=False)
    bounds = ends_of(counts)
    return ends[bounds[1:]] - ends[bounds[:-1]]


def _lengths(array: pa.Array) -> Ints:
    """Length of each value of a binary array; 0 for a null."""
    if not len(array):
        return np.empty(0, np.int64)
    first = array.offset
    offsets = np.frombuffer(array.buffers()[1], np.int32)[first : first + len(array) + 1]
    out = (offsets[1:] - offsets[:-1]).astype(np.int64)
    if array.null_count:
        out[array.is_null().to_numpy(zero_copy_only=False)] = 0
    return out


def part_of(
    partition: int, ends: Ints, times: Ints, a: int, b: int, ref: SegmentRef | None
) -> Part:
    """What an entry says of rows [a, b), which are in this segment."""
    size = int(ends[b] - ends[a])
    return Part(partition, b - a, size, int(times[a:b].min()), int(times[a:b].max()), ref)


def split(ends: Ints, a: int, b: int, size: int) -> list[tuple[int, int]]:
    """Rows [a, b) in pieces of about ``size`` bytes."""
    out = []
    while a < b:
        cut = int(np.searchsorted(ends, ends[a] + size, side="right")) - 1
        high = min(b, max(a + 1, cut))
        out.append((a, high))
        a = high
    return out
