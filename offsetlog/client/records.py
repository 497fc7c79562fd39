"""From Arrow tables to the records that ``poll`` gives.

Invariants:

1. No Python code runs for each record: the tuples are built by C.
2. A table becomes records a slice at a time, so a poll makes only what it returns.
"""

from __future__ import annotations

from itertools import repeat

import pyarrow as pa

from ..values import Record
from .reader import Batch

_new = tuple.__new__


def to_records(topic: str, batch: Batch, low: int, high: int) -> list[Record]:
    """Rows [low, high) of a batch's table, as records."""
    table = batch.table.slice(low, high - low)
    count = table.num_rows
    keys = table.column("key")
    headers = table.column("headers")
    return list(
        map(
            _new,
            repeat(Record),
            zip(
                repeat(topic, count),
                repeat(batch.partition, count),
                table.column("offset").to_pylist(),
                keys.to_pylist() if keys.null_count < count else repeat(None, count),
                table.column("value").to_pylist(),
                _headers(headers) if headers.null_count < count else [[] for _ in range(count)],
                table.column("timestamp").cast(pa.int64()).to_pylist(),
                repeat(batch.ts_type, count),
                strict=True,
            ),
        )
    )


def _headers(column: pa.ChunkedArray) -> list[list[tuple[str, bytes | None]]]:
    return [
        [(pair["key"], pair["value"]) for pair in pairs] if pairs else []
        for pairs in column.to_pylist()
    ]
