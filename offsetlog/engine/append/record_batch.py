"""Rows that are ready to become an entry: which go where, and what an entry says of them.

Invariants:

1. Rows keep their order within each partition.
2. Up to ``Limits.inline_bytes`` of rows travel in the entry; more go to a segment for each
   partition, written before the entry that names it.
3. The same rows give the same digest, however they are stored: slices, chunks and spare bytes of
   Arrow's buffers do not show in it, order and nulls do. Timestamps don't count: a batch that is
   sent again may get them afresh. It tells batches of one sender apart, and is no protection
   against an attacker.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import xxhash

from offsetlog.core.topic.entry import CREATE_TIME, LOG_APPEND_TIME, Part, SegmentRef
from offsetlog.core.topic.state import TopicState
from offsetlog.engine.append.segment_writer import SegmentWriter
from offsetlog.engine.append.send_buffer import SendBuffer
from offsetlog.errors import InvalidRequestError
from offsetlog.format import record_schema as rows
from offsetlog.format.entries import ENTRY_ROWS, MAX_INLINE_RECORDS
from offsetlog.format.partitioner import partitions_of
from offsetlog.values import settings_of

Ints = npt.NDArray[np.int64]


class SentColumns(NamedTuple):
    """What senders gave, as columns."""

    table: pa.Table
    """With the columns of ``ROWS``."""
    named: npt.NDArray[np.int32] | None = None
    """The partitions that they named, -1 where none; None: nobody named any."""
    times: npt.NDArray[np.int64] | None = None
    """Those of the table, where they are at hand."""
    ts_type: int = CREATE_TIME

    def with_time(self, now_ms: int) -> SentColumns:
        """With this time for all of them, as a topic keeps them that has the time of append."""
        times = np.full(self.table.num_rows, now_ms, np.int64)
        place = self.table.schema.get_field_index("timestamp")
        column = rows.as_arrow(times, rows.TIMESTAMP)
        table = self.table.set_column(place, rows.ROWS.field("timestamp"), column)
        return self._replace(table=table, times=times, ts_type=LOG_APPEND_TIME)


def columns_of(batch: SendBuffer) -> SentColumns:
    """What was gathered, as a table."""
    if batch.table is not None:
        table = batch.table
        if "partition" not in table.schema.names:
            return SentColumns(table)
        named = table.column("partition").fill_null(-1).to_numpy().astype(np.int32)
        return SentColumns(table.drop_columns(["partition"]), named)
    count = len(batch.values)
    headers = pa.nulls(count, rows.HEADERS)
    if batch.headers:
        headers = pa.array([batch.headers.get(i) for i in range(count)], rows.HEADERS)
    times = np.array(batch.times, np.int64) // 1_000_000
    table = pa.Table.from_arrays(
        [
            pa.array(batch.keys, pa.binary()),
            pa.array(batch.values, pa.binary()),
            headers,
            rows.as_arrow(times, rows.TIMESTAMP),
        ],
        schema=rows.ROWS,
    )
    if not batch.named:
        return SentColumns(table, None, times)
    named = np.full(count, -1, np.int32)
    named[list(batch.named)] = list(batch.named.values())
    return SentColumns(table, named, times)


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
    ts_type: int

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
    table: pa.Table,
    partition_of: npt.NDArray[np.int32],
    times: Ints | None = None,
    ts_type: int = CREATE_TIME,
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
    return RecordBatch(table, order, partition_of, runs, ends_of(sizes), times, digest, ts_type)


def assign_partitions(
    columns: SentColumns, partitions: int, spread: int, topic: str
) -> npt.NDArray[np.int32]:
    """Named ones stay; keyed ones go where Kafka's hash says; the rest share one partition."""
    keys, named = columns.table.column("key"), columns.named
    keyed = keys.null_count < len(keys) and partitions > 1
    if named is None:
        if not keyed:
            return np.full(len(keys), spread % partitions, np.int32)
        out = partitions_of(keys, partitions)
    else:
        if len(named) and named.max() >= partitions:
            raise InvalidRequestError(
                f"Topic {topic!r} has no partition {named.max()}.", f"It has {partitions}, from 0."
            )
        out = named.copy()
        if keyed and (out < 0).any():
            out = np.where(out < 0, partitions_of(keys, partitions), out)
    out[out < 0] = spread % partitions
    return out


def digest_of(table: pa.Table, partition_of: npt.NDArray[np.int32]) -> str:
    """Of the rows of ``table`` and the partition that each goes to."""
    total = xxhash.xxh3_64(partition_of.tobytes())
    for name in ("key", "value", "headers"):
        column = table.column(name)
        _add(total, column.chunk(0) if column.num_chunks == 1 else column.combine_chunks())
    digest: str = total.hexdigest()
    return digest


def _add(total: Any, array: pa.Array | pa.ChunkedArray) -> None:
    if isinstance(array, pa.ChunkedArray):
        array = array.chunk(0) if array.num_chunks else pa.array([], array.type)
    count, nulls = len(array), array.null_count
    total.update(b"%d;%d;" % (count, nulls))
    if nulls == count:
        return
    if nulls:
        total.update(pc.is_null(array).to_numpy(zero_copy_only=False))
    kind = array.type
    if pa.types.is_list(kind):
        total.update(pc.fill_null(pc.list_value_length(array), 0).to_numpy())
        for part in array.flatten().flatten():
            _add(total, part)
        return
    if nulls:
        array = array.fill_null(b"" if pa.types.is_binary(kind) else "")
    low, buffers = array.offset, array.buffers()
    offsets = np.frombuffer(buffers[1], np.int32)[low : low + count + 1]
    total.update(offsets[1:] - offsets[:-1])
    if buffers[2] is not None:
        total.update(memoryview(buffers[2])[int(offsets[0]) : int(offsets[-1])])


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
    ends = ends_of(_lengths(pairs.field(0)) + _lengths(pairs.field(1)) + rows.HEADER_BYTES)
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
