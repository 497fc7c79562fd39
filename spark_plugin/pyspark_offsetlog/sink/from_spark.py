"""The rows that Spark hands to the sink: what their columns must be, and how they become ours.

Invariants:

1. Columns and types are those of Spark's Kafka sink, and a ``timestamp``. Names count by case;
   other columns are passed over.
2. A schema is refused as a whole, before a row is written; a row is refused by its task.
3. No row is looked at in Python: columns are cast, and checked with what Arrow counts.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, NamedTuple

from pyspark.sql.types import (
    BinaryType,
    CharType,
    DataType,
    IntegerType,
    StringType,
    StructType,
    TimestampType,
    VarcharType,
)

from offsetlog.errors import InvalidRequestError
from pyspark_offsetlog.schema import HEADER_TYPE

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt
    import pyarrow as pa

MAX_BYTES = 64 * 1024 * 1024
"""Larger batches are taken in pieces: offsets into a column's bytes have 32 bits."""
JOINED_BYTES = 5 * 1024 * 1024
JOINED_ROWS = 65_536
"""Smaller batches are joined to this size: partitions are taken apart and written at half the
cost of Spark's usual ten thousand rows, and what is joined still fits a processor's cache."""
_PER_MS = {"us": 1_000, "ns": 1_000_000}
_IN_MS = {"s": 1_000, "ms": 1}


class SinkColumns(NamedTuple):
    """Where in Spark's batches each column lies; -1: it is not there."""

    value: int
    key: int
    headers: int
    topic: int
    partition: int
    timestamp: int


# --- the schema ----------------------------------------------------------------------------


def sink_columns(schema: StructType, topic_option: bool) -> SinkColumns:
    """Where the columns lie in rows of ``schema``, if the sink can take them."""
    names = schema.names
    places = {}
    for name, (allowed, fits, cast) in _COLUMNS.items():
        places[name] = -1
        if name not in names or (name == "topic" and topic_option):
            continue
        if names.count(name) > 1:
            raise InvalidRequestError(
                f"The rows have {names.count(name)} columns {name!r}.", "Leave one of them."
            )
        place = names.index(name)
        kind = schema.fields[place].dataType
        if not fits(kind):
            if fits is _is_bytes and kind.typeName() in ("struct", "array", "map"):
                cast = f"A cast would lose its names: to_json({name}) AS {name}."
            raise InvalidRequestError(
                f"Column {name!r} is {kind.simpleString()}; it must be {allowed}.", cast
            )
        places[name] = place
    if places["value"] < 0:
        raise InvalidRequestError("The rows have no column 'value'.", _rename_hint("value", names))
    if places["topic"] < 0 and not topic_option:
        raise InvalidRequestError(
            "There is no topic: neither the option topic nor a column 'topic'.",
            _rename_hint("topic", names, "Set .option('topic', 'orders')."),
        )
    return SinkColumns(**places)


def _rename_hint(column: str, names: list[str], otherwise: str = "") -> str:
    for name in names:
        if name.lower() == column:
            return f"Names count by case: rename {name!r} to {column!r}."
    if otherwise:
        return otherwise
    shown = ", ".join(names[:20]) + (", ..." if len(names) > 20 else "")
    return (
        f"They have: {shown}. Rename one of them, or pack them: "
        ".selectExpr('to_json(struct(*)) AS value')."
    )


def _is_bytes(kind: DataType) -> bool:
    return isinstance(kind, BinaryType | StringType | CharType | VarcharType)


def _is_text(kind: DataType) -> bool:
    return isinstance(kind, StringType | CharType | VarcharType)


_COLUMNS: dict[str, tuple[str, Callable[[DataType], bool], str]] = {
    "value": ("binary or string", _is_bytes, "Cast it: CAST(value AS STRING)."),
    "key": ("binary or string", _is_bytes, "Cast it: CAST(key AS STRING)."),
    "headers": (
        HEADER_TYPE.simpleString(),
        lambda kind: kind.simpleString() == HEADER_TYPE.simpleString(),
        "Cast it, or leave it out.",
    ),
    "topic": ("string", _is_text, "Cast it: CAST(topic AS STRING)."),
    "partition": (
        "int",
        lambda kind: isinstance(kind, IntegerType),
        "Cast it: CAST(partition AS INT).",
    ),
    "timestamp": (
        "timestamp",
        lambda kind: isinstance(kind, TimestampType),
        "Cast it: CAST(timestamp AS TIMESTAMP).",
    ),
}


# --- the rows ------------------------------------------------------------------------------


def in_pieces(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """The batches' rows in batches of a good size, none of them huge."""
    small: list[pa.RecordBatch] = []
    count = size = 0
    for batch in batches:
        if not batch.num_rows:
            continue
        if batch.nbytes >= JOINED_BYTES:
            yield from _joined(small)
            yield from _cut(batch)
            small, count, size = [], 0, 0
            continue
        small.append(batch)
        count += batch.num_rows
        size += batch.nbytes
        if size >= JOINED_BYTES or count >= JOINED_ROWS:
            yield from _joined(small)
            small, count, size = [], 0, 0
    yield from _joined(small)


def _joined(batches: list[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    import pyarrow as pa

    if batches:
        yield from _cut(pa.concat_batches(batches) if len(batches) > 1 else batches[0])


def _cut(batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    count = batch.num_rows
    step = max(1, count * MAX_BYTES // max(batch.nbytes, MAX_BYTES))
    for low in range(0, count, step):
        yield batch if step >= count else batch.slice(low, step)


def by_topic(batch: pa.RecordBatch, columns: SinkColumns) -> Iterator[tuple[str, pa.RecordBatch]]:
    """The rows of each topic that the column names, in their order."""
    import numpy as np
    import pyarrow as pa

    column = batch.column(columns.topic)
    if column.null_count:
        raise InvalidRequestError(
            f"{column.null_count} of {batch.num_rows} rows have a null in column 'topic'.",
            "Filter them out, fill the column, or set the option topic.",
        )
    coded = column.dictionary_encode()
    # Spark takes any bytes for a text. A legal name is ASCII, so the others are refused below.
    raw = coded.dictionary.cast(pa.binary()).to_pylist()
    names = [name.decode(errors="replace") for name in raw]
    if len(names) == 1:
        yield names[0], batch
        return
    codes = coded.indices.to_numpy()
    order = np.argsort(codes, kind="stable")
    bounds = np.searchsorted(codes[order], np.arange(len(names) + 1))
    for name, low, high in zip(names, bounds, bounds[1:], strict=False):
        yield name, batch.take(pa.array(order[low:high]))


def as_rows(
    batch: pa.RecordBatch, columns: SinkColumns, now_ms: int, append_time: bool
) -> tuple[pa.RecordBatch, npt.NDArray[np.int32] | None]:
    """A batch with the columns of ours, and the partitions that its rows name (-1: none)."""
    import pyarrow as pa

    from offsetlog.engine import record_schema as rows

    def column(place: int, take: Callable[[Any], Any], kind: Any) -> Any:
        return pa.nulls(batch.num_rows, kind) if place < 0 else take(batch.column(place))

    stamped = -1 if append_time else columns.timestamp
    out = pa.RecordBatch.from_arrays(
        [
            column(columns.key, _bytes, pa.binary()),
            column(columns.value, _bytes, pa.binary()),
            column(columns.headers, _headers, rows.HEADERS),
            _times(None if stamped < 0 else batch.column(stamped), batch.num_rows, now_ms),
        ],
        schema=rows.ROWS,
    )
    return out, _named_partitions(batch, columns)


def _bytes(column: pa.Array) -> pa.Array:
    import pyarrow as pa

    return column if column.type == pa.binary() else column.cast(pa.binary())


def _headers(column: pa.Array) -> pa.Array:
    """Headers as they are stored: none at all are a null."""
    import pyarrow as pa
    import pyarrow.compute as pc

    from offsetlog.engine import check_headers
    from offsetlog.engine import record_schema as rows

    if column.null_count == len(column):
        return pa.nulls(len(column), rows.HEADERS)
    check_headers(column)
    column = column.cast(rows.HEADERS)
    none = pc.equal(pc.list_value_length(column), 0)
    if none.true_count:
        column = pc.if_else(pc.fill_null(none, False), pa.scalar(None, rows.HEADERS), column)
    return column


def _times(column: pa.Array | None, count: int, now_ms: int) -> pa.Array:
    """Milliseconds, downwards; where there is no time it is now."""
    import numpy as np
    import pyarrow as pa

    from offsetlog.engine import record_schema as rows

    if column is None or column.null_count == count:
        return pa.array(np.full(count, now_ms, np.int64)).view(rows.TIMESTAMP)
    unit = column.type.unit
    numbers = column.cast(pa.int64())
    if column.null_count:
        numbers = numbers.fill_null(now_ms * _PER_MS.get(unit, 1) // _IN_MS.get(unit, 1))
    times = numbers.to_numpy()
    if unit in _PER_MS:
        times = times // _PER_MS[unit]
    elif unit == "s":
        times = times * 1_000
    return pa.array(times).view(rows.TIMESTAMP)


def _named_partitions(batch: pa.RecordBatch, columns: SinkColumns) -> npt.NDArray[np.int32] | None:
    if columns.partition < 0:
        return None
    column = batch.column(columns.partition)
    if column.null_count == batch.num_rows:
        return None
    import pyarrow.compute as pc

    least = pc.min(column).as_py()
    if least < 0:
        raise InvalidRequestError(
            f"A row names the partition {least}.", "Partitions are numbers from 0."
        )
    out: npt.NDArray[np.int32] = column.fill_null(-1).to_numpy(zero_copy_only=False)
    return out
