"""From Arrow tables to the records that ``poll`` gives.

Invariants:

1. No Python code runs for each record: the tuples are built by C.
2. A table becomes records a slice at a time, so a poll makes only what it returns.
"""

from __future__ import annotations

from itertools import repeat
from typing import Any, NoReturn

import pyarrow as pa

from offsetlog.engine.topic.reader import FetchedBatch
from offsetlog.format.record_schema import milliseconds
from offsetlog.values import Record

_new = tuple.__new__


class _NoHeaders(list[tuple[str, bytes | None]]):
    """The headers of a record that has none. All of them share one, so it can't be changed:
    an empty list for each would double the work of the garbage collector."""

    __slots__ = ()

    def _refuse(self, *_: object, **__: object) -> NoReturn:
        raise TypeError("the headers of a record that was read can't be changed; copy them")

    append = extend = insert = __setitem__ = __iadd__ = __imul__ = _refuse

    def __reduce__(self) -> tuple[Any, ...]:
        return list, ()


NO_HEADERS = _NoHeaders()


def to_records(topic: str, batch: FetchedBatch, low: int, high: int) -> list[Record]:
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
                _headers(headers) if headers.null_count < count else repeat(NO_HEADERS, count),
                milliseconds(table.column("timestamp")).tolist(),
                repeat(batch.ts_type, count),
                strict=True,
            ),
        )
    )


def _headers(column: pa.ChunkedArray) -> list[list[tuple[str, bytes | None]]]:
    return [
        [(pair["key"], pair["value"]) for pair in pairs] if pairs else NO_HEADERS
        for pairs in column.to_pylist()
    ]
