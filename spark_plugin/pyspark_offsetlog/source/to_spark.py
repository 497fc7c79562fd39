"""Columns that Spark takes, of what is stored.

Invariants:

1. Columns, their order and their types are those of the query's schema; what it does not name is
   not made, and what a task does not want is null.
2. What is the same in all rows of a partition is made once and sliced.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
from pyspark.sql.types import StructType

from offsetlog.engine import FetchedBatch, record_schema
from pyspark_offsetlog.lines.classes import arrow_schema
from pyspark_offsetlog.schema import chosen_columns, column_of

BATCH_RECORDS = 16_384
"""Rows that go to the JVM at once: more of them fall out of its caches."""
_STORED = ("key", "value", "headers", "timestamp", "offset")


class OutputColumns(NamedTuple):
    """The columns that a query reads."""

    schema: pa.Schema
    """With names as the query's schema writes them."""
    names: tuple[str, ...]
    """The source's own, in the same order."""
    stored: tuple[str, ...]
    """Of the stored columns, those that are needed; ``offset`` costs nothing to make."""
    unwanted: frozenset[str] = frozenset()
    """Nobody looks at these."""

    def only(self, wanted: tuple[str, ...]) -> OutputColumns:
        own = tuple(map(column_of, wanted))
        return self._replace(stored=_stored(own), unwanted=frozenset(self.names) - frozenset(own))

    def no_rows(self) -> pa.RecordBatch:
        arrays = [_nulls(field.type).slice(0, 0) for field in self.schema]
        return pa.RecordBatch.from_arrays(arrays, schema=self.schema)


def output_columns(schema: StructType) -> OutputColumns:
    names = chosen_columns(schema)
    return OutputColumns(arrow_schema(schema), names, _stored(names))


def _stored(names: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(name for name in _STORED if name in names) or ("offset",)


def spark_batches(
    topic: str, columns: OutputColumns, batch: FetchedBatch
) -> Iterator[pa.RecordBatch]:
    """Spark's rows of a batch of one partition."""
    table = batch.table
    constants = {"topic": topic, "partition": batch.partition, "timestampType": batch.ts_type}
    repeated: dict[str, pa.Array] = {}
    stored: dict[str, pa.ChunkedArray] = {}
    for name, kind in zip(columns.names, columns.schema.types, strict=True):
        if name in columns.unwanted:
            repeated[name] = _nulls(kind)
        elif name in constants:
            repeated[name] = _repeated(constants[name], kind)
        else:
            column = table.column(name)
            stored[name] = column if column.type == kind else column.cast(kind)
    for low in range(0, table.num_rows, BATCH_RECORDS):
        count = min(BATCH_RECORDS, table.num_rows - low)
        arrays: list[Any] = []
        for name in columns.names:
            if name in repeated:
                arrays.append(repeated[name].slice(0, count))
                continue
            part = stored[name].slice(low, count)
            arrays.append(part.chunk(0) if part.num_chunks == 1 else part.combine_chunks())
        yield pa.RecordBatch.from_arrays(arrays, schema=columns.schema)


@functools.lru_cache(maxsize=16)
def _nulls(kind: pa.DataType) -> pa.Array:
    return pa.nulls(BATCH_RECORDS, kind)


@functools.lru_cache(maxsize=16)
def _repeated(value: str | int, kind: pa.DataType) -> pa.Array:
    """As many of one value as a batch may have. Not by way of a scalar: making one of a Python
    value imports pandas."""
    if isinstance(value, int):
        return record_schema.as_arrow(np.full(BATCH_RECORDS, value, np.int64), pa.int64()).cast(
            kind
        )
    data = value.encode()
    ends = np.arange(0, len(data) * (BATCH_RECORDS + 1), len(data), dtype=np.int32)
    buffers = [None, pa.py_buffer(ends), pa.py_buffer(data * BATCH_RECORDS)]
    return pa.Array.from_buffers(pa.string(), BATCH_RECORDS, buffers).cast(kind)
