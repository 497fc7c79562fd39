"""Records as Arrow: their columns in memory and in files.

Invariants:

1. In memory a batch of records has exactly the columns of ``ROWS``; on disk ``key`` and
   ``headers`` are left out where they are null throughout.
2. Timestamps are milliseconds since the epoch, in UTC.
3. What was read has each of ``REQUIRED`` of its columns; no time, partition or offset is null, and
   no header is, whose name is UTF-8 (``check_columns``, ``check_values``).
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from offsetlog.errors import CorruptLogError

HEADERS = pa.list_(pa.struct([pa.field("key", pa.string()), pa.field("value", pa.binary())]))
TIMESTAMP = pa.timestamp("ms", tz="UTC")
ROWS = pa.schema(
    [
        pa.field("key", pa.binary()),
        pa.field("value", pa.binary()),
        pa.field("headers", HEADERS),
        pa.field("timestamp", TIMESTAMP),
    ]
)
PARTITION = pa.field("partition", pa.int32())
OFFSET = pa.field("offset", pa.int64())

REQUIRED = ("value", "timestamp")
"""Columns that every file of records has."""
_NEVER_NULL = ("partition", "offset", "timestamp")

HEADER_BYTES = 8
"""What a header weighs besides its name and value: the lengths of both."""
ROW_GROUP_RECORDS = 65_536
ROW_GROUP_BYTES = 64 * 1024 * 1024
SAMPLE_BYTES = 64 * 1024
SAMPLES = 4
WORTH = 0.95
"""A codec that leaves more than this part of the bytes is not worth its time."""


def compact(table: pa.Table | pa.RecordBatch) -> pa.Table | pa.RecordBatch:
    """Without the columns that are null throughout and may be left out."""
    idle = [
        name
        for name in ("key", "headers")
        if name in table.schema.names and table.column(name).null_count == table.num_rows
    ]
    return table.drop_columns(idle) if idle else table


def complete(table: pa.Table, columns: tuple[str, ...]) -> pa.Table:
    """With exactly ``columns`` in that order: those that were left out on disk are null."""
    there, count = table.schema.names, table.num_rows
    arrays = [
        table.column(there.index(name)) if name in there else pa.nulls(count, TYPES[name])
        for name in columns
    ]
    return pa.Table.from_arrays(arrays, schema=_schema(columns))


def check_columns(stored: Sequence[str], required: Sequence[str], name: str) -> None:
    """Refuse a file without a column that must be there."""
    for column in required:
        if column not in stored:
            raise CorruptLogError(
                f"{name} has no column {column!r}.",
                "Its writer was not offsetlog; restore it from a backup.",
            )


def check_values(table: pa.Table, name: str) -> pa.Table:
    """The same table; an error if it has what no writer lets in and no reader could give."""
    names = table.schema.names
    wrong = [
        f"{column}s that are null"
        for column in _NEVER_NULL
        if column in names and table.column(column).null_count
    ]
    if "headers" in names:
        faults = map(_header_fault, table.column("headers").chunks)
        wrong += [f"a header {fault}" for fault in faults if fault]
    if wrong:
        raise CorruptLogError(
            f"{name} has {wrong[0]}.", "Its writer was not offsetlog; restore it from a backup."
        )
    return table


def _header_fault(lists: pa.Array) -> str | None:
    if lists.null_count == len(lists):
        return None
    pairs = lists.flatten()
    if pairs.null_count:
        return "that is null"
    try:
        pairs.field(0).validate(full=True)
    except pa.ArrowInvalid:
        return "whose name is not UTF-8"
    return None


@cache
def _schema(columns: tuple[str, ...]) -> pa.Schema:
    return pa.schema([_FIELDS[name] for name in columns])


_FIELDS: dict[str, pa.Field] = {
    **{field.name: field for field in ROWS},
    "partition": PARTITION,
    "offset": OFFSET,
}
TYPES: dict[str, pa.DataType] = {name: field.type for name, field in _FIELDS.items()}


def as_arrow(numbers: npt.NDArray[Any], kind: pa.DataType) -> pa.Array:
    """Numbers as they lie in memory. ``pa.array`` would import pandas first, which takes longer
    than all else that a small read does."""
    return pa.Array.from_buffers(kind, len(numbers), [None, pa.py_buffer(numbers)])


def milliseconds(column: pa.ChunkedArray) -> npt.NDArray[np.int64]:
    """A timestamp column as the integers that it is made of."""
    one = column.num_chunks == 1
    numbers = column.chunk(0).view(pa.int64()) if one else column.cast(pa.int64())
    out: npt.NDArray[np.int64] = numbers.to_numpy()
    return out


def incompressible(table: pa.Table, compression: str) -> list[str]:
    """The columns that a codec would work on for nothing: what is encrypted, random or packed
    already. Told from samples, so it costs next to nothing."""
    found = []
    for name in ("key", "value") if compression != "none" else ():
        if name in table.schema.names:
            column = table.column(name)
            size, sample = _sample(column.chunks)
            if len(sample) >= SAMPLE_BYTES // 2:
                packed = len(pa.compress(sample, compression)) / len(sample) * size
                # Lengths, four bytes each, nearly vanish.
                lengths = 4 * len(column)
                if packed + 0.1 * lengths > WORTH * (size + lengths):
                    found.append(name)
    return found


def _sample(chunks: Sequence[pa.Array]) -> tuple[int, bytes]:
    """The bytes of all values, and some of them from all over the column."""
    ranges = []
    for chunk in chunks:
        _, offsets, data = chunk.buffers()
        if len(chunk) and data is not None:
            ends = np.frombuffer(offsets, np.int32)
            low, high = int(ends[chunk.offset]), int(ends[chunk.offset + len(chunk)])
            ranges.append((memoryview(data), low, high))
    size = sum(high - low for _, low, high in ranges)
    step = max(1, len(ranges) // SAMPLES)
    some = ranges[step // 2 :: step][:SAMPLES]
    out = []
    for data, low, high in some:
        most = SAMPLE_BYTES // len(some)
        at = low + max(0, high - low - most) // 2
        out.append(data[at : min(high, at + most)])
    return size, b"".join(out)
