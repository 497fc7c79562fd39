"""Records as Arrow: the columns, and how Parquet files of them are written and read.

Invariants:

1. In memory a batch of records has exactly the columns of ``ROWS``; on disk ``key`` and
   ``headers`` are left out where they are null throughout.
2. Timestamps are milliseconds since the epoch, in UTC.
3. The same settings everywhere: no dictionary, statistics only where a reader uses them, and
   no page CRCs, since row groups have sums of their own.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

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

ROW_GROUP_RECORDS = 65_536
ROW_GROUP_BYTES = 64 * 1024 * 1024
SAMPLE_BYTES = 64 * 1024
SAMPLES = 4
WORTH = 0.95
"""A codec that leaves more than this part of the bytes is not worth its time."""
_LEAVES = {"headers": ("headers.list.element.key", "headers.list.element.value")}
"""Parquet's names for the leaves of a nested column."""


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
    arrays, fields = [], []
    for name in columns:
        field = _FIELDS[name]
        if name in table.schema.names:
            column = table.column(name)
            if column.type != field.type:
                column = column.cast(field.type)
        else:
            column = pa.chunked_array([pa.nulls(table.num_rows, field.type)], field.type)
        arrays.append(column)
        fields.append(field)
    return pa.Table.from_arrays(arrays, schema=pa.schema(fields))


_FIELDS: dict[str, pa.Field] = {
    **{field.name: field for field in ROWS},
    "partition": PARTITION,
    "offset": OFFSET,
}


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


def writer(
    sink: Any, schema: pa.Schema, compression: str, plain: Sequence[str] = ()
) -> pq.ParquetWriter:
    """Writes a file of records; the columns in ``plain`` are not compressed."""
    packed = [
        leaf for name in schema.names if name not in plain for leaf in _LEAVES.get(name, (name,))
    ]
    level = 1 if compression == "zstd" else None
    return pq.ParquetWriter(
        sink,
        schema,
        compression=dict.fromkeys(packed, compression) if plain else compression,
        compression_level=dict.fromkeys(packed, level) if plain and level else level,
        use_dictionary=False,
        write_statistics=["timestamp"] if "timestamp" in schema.names else False,
        store_schema=False,
    )


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


def open_parquet(source: Any, what: str) -> pq.ParquetFile:
    try:
        return pq.ParquetFile(source, page_checksum_verification=False)
    except (pa.ArrowException, OSError, ValueError) as error:
        raise CorruptLogError(f"{what} is not a Parquet file: {first_line(error)}") from None


def metadata_of(file: pq.ParquetFile) -> Mapping[bytes, bytes]:
    return file.metadata.metadata or {}


def first_line(error: BaseException) -> str:
    return (str(error).splitlines() or [""])[0][:200]
