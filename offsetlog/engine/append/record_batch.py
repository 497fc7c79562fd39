"""Rows that are ready to become an entry: which go where, and what an entry says of them.

Invariants:

1. Rows keep their order within each partition.
2. Up to ``Limits.inline_bytes`` of rows travel in the entry; more go to a segment for each
   partition, written before the entry that names it.
3. A segment's name says the tip that was believed in before it was written.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple, Protocol, TypeVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from offsetlog.core.topic.entry import Part, SegmentRef
from offsetlog.core.topic.state import TopicState
from offsetlog.engine.append.digest import digest_of
from offsetlog.engine.env import Env
from offsetlog.errors import InvalidRequestError
from offsetlog.format import record_schema as rows
from offsetlog.format import segments
from offsetlog.format.entries import MAX_INLINE_RECORDS
from offsetlog.format.names import segment_name
from offsetlog.format.segments import EncodedSegment
from offsetlog.storage.store import Store
from offsetlog.values import settings_of

MAX_MS = 2**63 // 1_000_000
"""Timestamps lie between minus this and this: what nanoseconds can say."""
T = TypeVar("T")
Ints = npt.NDArray[np.int64]


class SegmentFiles:
    """Writes the segments of one topic."""

    def __init__(
        self, store: Store, folder: str, env: Env, pool: ThreadPoolExecutor | None
    ) -> None:
        self._store = store
        self._folder = folder
        self.env = env
        self._pool = pool

    def write(self, table: pa.Table, partition: int, born: int, compression: str) -> SegmentRef:
        ref, encoded = self.encode(table, born, compression)
        self.put(partition, ref, encoded)
        return ref

    def encode(
        self, table: pa.Table, born: int, compression: str
    ) -> tuple[SegmentRef, EncodedSegment]:
        """A segment that is still to be ``put``."""
        encoded = segments.encode(table, compression, self.env.limits.row_group_records)
        return encoded.ref(born, self.env.new_id()), encoded

    def put(self, partition: int, ref: SegmentRef, encoded: EncodedSegment) -> None:
        as_it_is = getattr(self._store, "takes_buffers", False)
        data: Any = encoded.buffer if as_it_is else encoded.data
        self._store.put(str(segment_name(self._folder, partition, ref)), data)

    def name_of(self, part: Part) -> str:
        assert part.segment is not None
        return str(segment_name(self._folder, part.partition, part.segment))

    def is_there(self, part: Part) -> bool:
        """Whether the part's segment is there as it was written. Only a disk is asked."""
        if not self._store.is_local:
            return True
        found = self._store.info(self.name_of(part))
        return found is not None and part.segment is not None and found.size == part.segment.size

    def copy(self, partition: int, ref: SegmentRef, born: int) -> SegmentRef | None:
        """The same segment under a new name; None when it is not there any more."""
        data = self._store.get(str(segment_name(self._folder, partition, ref)), 0, ref.size + 1)
        if data is None:
            return None
        made = ref._replace(born=born, uid=self.env.new_id())
        self._store.put(str(segment_name(self._folder, partition, made)), data)
        return made

    def each(self, call: Callable[[Any], T], items: Sequence[Any]) -> tuple[T, ...]:
        """``call`` of each item, side by side where that is possible."""
        if self._pool is None or len(items) == 1:
            return tuple(map(call, items))
        return tuple(self._pool.map(call, items))


class AppendPayload(Protocol):
    """What an entry carries."""

    @property
    def digest(self) -> str:
        """Of the logical rows and their partitions, fixed before the first try."""

    def digest_under(self, partitions: int) -> str:
        """The digest that the same rows have when keys are hashed with so many partitions."""

    def parts(self, files: SegmentFiles, state: TopicState) -> tuple[Part, ...]:
        """What the entry says of the rows, whose segments are written then. When it is asked
        for again, an entry with the parts of the last time was void or failed."""

    def inline(self) -> pa.Table:
        """The rows of the parts that have no segment, in their order."""


class RecordBatch(NamedTuple):
    """Rows and their order by partition, with what an entry needs to say of them."""

    table: pa.Table
    """As it was given."""
    order: Ints | None
    """Row i of the sorted order is row ``order[i]`` of ``table``; None: nothing moves."""
    partitions: tuple[int, ...]
    bounds: tuple[int, ...]
    """Rows of ``partitions[i]`` are at [bounds[i], bounds[i + 1])."""
    ends: Ints
    """Bytes of all rows before row i, and at last of all."""
    times: Ints
    digest: str

    @property
    def bytes(self) -> int:
        return int(self.ends[-1])

    def digest_under(self, partitions: int) -> str:
        """Rows whose partitions were chosen before go nowhere else."""
        return self.digest

    def rows(self, a: int, b: int) -> pa.Table:
        """Rows [a, b) of the sorted order."""
        if self.order is None:
            return self.table.slice(a, b - a)
        return self.table.take(pa.array(self.order[a:b]))

    def parts(self, files: SegmentFiles, state: TopicState) -> tuple[Part, ...]:
        # Rows without key and value weigh nothing, but an entry of them must stay small too.
        many = self.table.num_rows > MAX_INLINE_RECORDS
        if many or self.bytes > files.env.limits.inline_bytes:
            return self.segments(files, state)
        return tuple(
            part_of(p, self.ends, self.times, a, b, None)
            for p, (a, b) in zip(self.partitions, pairs(self.bounds), strict=True)
        )

    def segments(self, files: SegmentFiles, state: TopicState) -> tuple[Part, ...]:
        """All rows as segments, however few they are."""
        config = settings_of(state.config)
        pieces = [
            (p, low, high)
            for p, (a, b) in zip(self.partitions, pairs(self.bounds), strict=True)
            for low, high in split(self.ends, a, b, config.segment_bytes)
        ]

        def write(piece: tuple[int, int, int]) -> Part:
            partition, low, high = piece
            ref = files.write(self.rows(low, high), partition, state.tip, config.compression)
            return part_of(partition, self.ends, self.times, low, high, ref)

        return files.each(write, pieces)

    def inline(self) -> pa.Table:
        counts = [b - a for a, b in pairs(self.bounds)]
        column = np.repeat(np.array(self.partitions, np.int32), counts)
        table = self.rows(0, self.bounds[-1])
        return table.add_column(0, rows.PARTITION, pa.array(column))


def prepare(table: pa.Table, partition_of: npt.NDArray[np.int32]) -> RecordBatch:
    """Say which rows go where, keeping their order within each partition. The rows themselves
    are moved when they are written, partition by partition and in parallel."""
    digest = digest_of(table, partition_of)
    sizes = row_bytes(table)
    times = rows.milliseconds(table.column("timestamp"))
    order = order_by(partition_of)
    if order is not None:
        partition_of, sizes, times = partition_of[order], sizes[order], times[order]
    bounds = bounds_of(partition_of)
    partitions = tuple(int(partition_of[a]) for a in bounds[:-1])
    return RecordBatch(table, order, partitions, bounds, ends_of(sizes), times, digest)


def order_by(partition_of: npt.NDArray[np.int32]) -> Ints | None:
    """The order that brings the rows of each partition together; None: they are."""
    if len(partition_of) < 2 or not (partition_of[1:] < partition_of[:-1]).any():
        return None
    # One or two bytes are sorted by radix: many times faster than a comparing sort.
    most = partition_of.max()
    kind = np.uint8 if most < 2**8 else np.uint16 if most < 2**16 else np.int32
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
    for name in ("key", "value"):
        column = table.column(name)
        if column.null_count < table.num_rows:
            chunks = column.chunks if isinstance(column, pa.ChunkedArray) else [column]
            total += np.concatenate([_lengths(chunk) for chunk in chunks])
    headers = table.column("headers")
    if headers.null_count < table.num_rows:
        chunks = headers.chunks if isinstance(headers, pa.ChunkedArray) else [headers]
        total += np.concatenate([_header_lengths(chunk) for chunk in chunks])
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
    out = np.diff(offsets).astype(np.int64)
    if array.null_count:
        out[array.is_null().to_numpy(zero_copy_only=False)] = 0
    return out


def part_of(
    partition: int, ends: Ints, times: Ints, a: int, b: int, ref: SegmentRef | None
) -> Part:
    """What an entry says of rows [a, b)."""
    size = int(ends[b] - ends[a])
    return Part(partition, b - a, size, int(times[a:b].min()), int(times[a:b].max()), ref)


def split(ends: Ints, a: int, b: int, most: int) -> list[tuple[int, int]]:
    """Rows [a, b) in pieces of about ``most`` bytes."""
    out = []
    while a < b:
        cut = int(np.searchsorted(ends, ends[a] + most, side="right")) - 1
        high = min(b, max(a + 1, cut))
        out.append((a, high))
        a = high
    return out


def pairs(bounds: Sequence[int]) -> list[tuple[int, int]]:
    return list(zip(bounds, bounds[1:], strict=False))


# --- what is taken -------------------------------------------------------------------------


def check_times(times: Ints) -> None:
    """Refuse milliseconds that no reader would take."""
    if len(times):
        for found in (int(times.min()), int(times.max())):
            if not -MAX_MS < found < MAX_MS:
                raise bad_timestamp(found)


def bad_timestamp(given: object) -> InvalidRequestError:
    return InvalidRequestError(
        f"The timestamp is {given!r}.",
        f"It is a whole number of milliseconds since 1970, from {1 - MAX_MS} to {MAX_MS - 1}.",
    )


def check_headers(column: pa.Array | pa.ChunkedArray) -> None:
    """Refuse headers that no reader could take: Arrow itself takes any bytes for a text."""
    for chunk in column.chunks if isinstance(column, pa.ChunkedArray) else [column]:
        if chunk.null_count == len(chunk):
            continue
        pairs = chunk.flatten()
        names = pairs.field(0)
        if pairs.null_count or names.null_count:
            raise InvalidRequestError(
                "A header is null, or its key is.",
                "A header has a key; only its value may be null.",
            )
        try:
            names.validate(full=True)
        except pa.ArrowInvalid:
            raise InvalidRequestError(
                "The key of a header is not UTF-8.",
                "A header's key is text; bytes belong into its value.",
            ) from None


def too_large(topic: str, size: int, most: int) -> InvalidRequestError:
    return InvalidRequestError(
        f"A record for topic {topic!r} has {size} bytes; the topic takes {most}.",
        "Raise the topic's max.message.bytes, or send less.",
    )
