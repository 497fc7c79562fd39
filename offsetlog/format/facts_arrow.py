"""Facts as rows of the offsets table, and back; the checkpoint of what they add up to.

Rules of this module:

1. The columns are ``Fact``'s fields, under their names; ``committed_at`` is a timestamp, so
   that every reader of the table shows a time.
2. ``version`` and ``place`` are columns: compaction may put rows elsewhere and in another
   order, and their order survives it.
3. A row that no version of this library writes is ``CorruptLogError``; it is never skipped.
4. A stored checkpoint carries its own checksum and the id of the table that it was made of. One
   that does not fit is no checkpoint: it costs time, never correctness.
5. What is written is read back before it leaves: nothing enters that a reader would refuse.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, TypeVar

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import xxhash

from offsetlog.core import strict_json
from offsetlog.core.decode import (
    Decoder,
    Malformed,
    anything,
    field,
    from_json,
    integer,
    list_of,
    nullable,
    record,
    row,
    string,
)
from offsetlog.core.group.checkpoint import from_plain, to_plain
from offsetlog.core.group.facts import Fact
from offsetlog.core.group.state import GroupsState
from offsetlog.errors import CorruptLogError, InvalidRequestError, OffsetLogError
from offsetlog.format.parquet import ParquetReader
from offsetlog.values import MAX_OFFSET, MAX_PARTITIONS, MIN_TIME

T = TypeVar("T")

SCHEMA = pa.schema(
    [
        pa.field("group", pa.string()),
        pa.field("topic", pa.string()),
        pa.field("partition", pa.int32()),
        pa.field("offset", pa.int64()),
        pa.field("metadata", pa.string()),
        pa.field("committed_at", pa.timestamp("us", "UTC")),
        pa.field("generation", pa.int64()),
        pa.field("reset", pa.int64()),
        pa.field("member", pa.string()),
        pa.field("kind", pa.string()),
        pa.field("write_id", pa.string()),
        pa.field("version", pa.int64()),
        pa.field("place", pa.int32()),
    ]
)
NULLABLE = frozenset({"topic", "partition", "offset", "member"})
_TIME = SCHEMA.get_field_index("committed_at")
MOST_ROWS = 16_000_000
"""Of a file; ours have far fewer (``FILE_ROWS``), but older compactions wrote longer ones."""
FILE_ROWS = 250_000
"""A file that has so many is long enough: nobody makes it longer, or writes it again."""
MOST_FILE_BYTES = 1024 * 1024 * 1024
MOST_CHECKPOINT_BYTES = 256 * 1024 * 1024
_BATCH_ROWS = 65_536
_MOST_FACTS = 2_000_000
MOST_UNFOLDED = 1024 * 1024 * 1024
ROWS_OF_A_BYTE = 16
"""Rows are alike, so they compress well; those of commits to many partitions have two or three."""
MOST_VALUES = 32_000_000
_MOST_NUMBER = 2**62
_RANGES = {
    "partition": (0, MAX_PARTITIONS - 1),
    "offset": (0, MAX_OFFSET),
    "committed_at": (MIN_TIME // 1000, -(MIN_TIME // 1000)),
    "generation": (0, _MOST_NUMBER),
    "reset": (0, _MOST_NUMBER),
    "version": (0, _MOST_NUMBER),
    "place": (0, 2**31 - 1),
}


def to_arrow(facts: Sequence[Fact]) -> pa.Table:
    columns = list(zip(*facts, strict=True)) if facts else [()] * len(SCHEMA)
    columns[_TIME] = [ms * 1000 for ms in columns[_TIME]]
    arrays = [pa.array(c, f.type) for c, f in zip(columns, SCHEMA, strict=True)]
    return pa.Table.from_arrays(arrays, schema=SCHEMA)


def open_file(data: bytes, where: str) -> ParquetReader:
    """A data file, of whomever, that has no more rows than one of facts can have."""
    file = ParquetReader(data, where, with_dictionaries=True)
    if file.num_rows > min(MOST_ROWS, ROWS_OF_A_BYTE * len(data)):
        raise _strange(f"{where} has {file.num_rows} rows in {len(data)} bytes.")
    return file


def to_parquet(facts: Sequence[Fact]) -> bytes:
    """A data file of these facts, which reads as what was given; nothing else is ever written."""
    try:
        rows = to_arrow(facts)
        same = from_arrow(rows, "what was to be written") == list(facts)
    except MemoryError:
        raise  # It is an Arrow error too, and says nothing of the file.
    except (CorruptLogError, UnicodeError, OverflowError, pa.ArrowException) as error:
        raise _unwritable(str(error)) from None
    if not same:
        raise _unwritable("it would read as something else")
    sink = pa.BufferOutputStream()
    pq.write_table(rows, sink, compression="snappy")
    return bytes(sink.getvalue().to_pybytes())


def _unwritable(why: str) -> InvalidRequestError:
    return InvalidRequestError(
        f"This can't be written to the offsets table: {why[:200]}.",
        "Nothing was changed. Look at the names and texts that were given.",
    )


def facts_of(file: ParquetReader, since: int) -> list[Fact]:
    """The facts after a version, a bounded number of rows at a time."""
    facts: list[Fact] = []
    where = file.name
    for batch in file.batches(SCHEMA.names, _BATCH_ROWS, MOST_UNFOLDED):
        rows = pa.Table.from_batches([batch])
        if since >= 0 and rows.schema.get_field_index("version") >= 0:
            later = pc.fill_null(pc.greater(rows.column("version"), since), True)
            rows = rows.filter(later)
        facts += from_arrow(rows, where)
    return facts


def from_arrow(table: pa.Table, where: str) -> list[Fact]:
    """The facts of a file's rows, in the order that they lie there."""
    try:
        table = table.select(SCHEMA.names)
        if table.schema != SCHEMA:
            table = table.cast(pa.schema(list(map(_unfolded, table.schema, SCHEMA))))
    except MemoryError:
        raise  # It is an Arrow error too, and says nothing of the file.
    except (KeyError, ValueError, NotImplementedError, pa.ArrowException) as error:
        raise _strange(
            f"{where} does not hold the offsets table's columns: {str(error)[:200]}."
        ) from None
    for name in SCHEMA.names:
        if name not in NULLABLE and table.column(name).null_count:
            raise _strange(f"{where} holds a row without {name!r}.")
    plain = table.set_column(_TIME, "committed_at", table.column(_TIME).cast(pa.int64()))
    for name, (low, high) in _RANGES.items():
        extremes = pc.min_max(plain.column(name)).as_py()
        scale = 1000 if name == "committed_at" else 1
        if (
            extremes["min"] is not None
            and not low * scale <= extremes["min"] <= extremes["max"] <= high * scale
        ):
            raise _strange(f"{where} holds a row whose {name!r} is out of range.")
    try:
        columns = [_values(column) for column in plain.columns]
    except UnicodeDecodeError:
        raise _strange(f"{where} holds text that is no UTF-8.") from None
    columns[_TIME] = [us // 1000 for us in columns[_TIME]]
    return [Fact(*row) for row in zip(*columns, strict=True)]


def _unfolded(given: pa.Field, field: pa.Field) -> pa.Field:
    """What a column is made into: a dictionary of texts stays one."""
    kind = given.type
    is_kept = pa.types.is_dictionary(kind) and kind.value_type == field.type
    return field.with_type(kind) if is_kept else field


def _values(column: pa.ChunkedArray) -> list[Any]:
    """As Python has them; equal texts are one object, since most rows tell the same few."""
    is_dictionary = pa.types.is_dictionary(column.type)
    if not is_dictionary and (not pa.types.is_string(column.type) or len(column) < _FEW):
        return list(column.to_pylist())
    out: list[Any] = []
    for chunk in column.chunks:
        words = chunk if is_dictionary else chunk.dictionary_encode()
        texts = words.dictionary.to_pylist()
        out += [None if at is None else texts[at] for at in words.indices.to_pylist()]
    return out


_FEW = 100


def _strange(message: str) -> CorruptLogError:
    hint = "Rows of this table are written by offsetlog only: delete those that are not."
    return CorruptLogError(message, hint)


POSITIONS = pa.schema(
    [
        SCHEMA.field(name)
        for name in (
            "group", "topic", "partition", "offset", "metadata", "committed_at", "generation",
            "member", "kind", "version",
        )
    ]
)  # fmt: skip


def positions_to_arrow(state: GroupsState) -> pa.Table:
    """Where each group stands, a row a partition."""
    rows = [
        {
            "group": name,
            "topic": topic,
            "partition": partition,
            **position._asdict(),
            "committed_at": position.committed_at * 1000,
        }
        for name, group in sorted(state.groups.items())
        for (topic, partition), position in sorted(group.positions.items())
    ]
    return pa.Table.from_pylist(rows, schema=POSITIONS)


# --- facts as one text, for tables without Delta --------------------------------------------


def encode_facts(facts: Sequence[Fact]) -> bytes:
    """Text that reads as what was given; nothing else is ever written."""
    data = _sealed({"facts": [list(fact) for fact in facts]})
    try:
        same = decode_facts(data, "what was to be written") == tuple(facts)
    except CorruptLogError as error:
        raise _unwritable(error.message) from None
    if not same:
        raise _unwritable("it would read as something else")
    return data


def decode_facts(data: bytes, where: str) -> tuple[Fact, ...]:
    return _opened(_CHAIN_ENTRY, data, where)


_HALVES = re.compile("[\ud800-\udfff]")


def _text(value: object) -> str:
    """JSON can spell halves of characters, which no other text can hold."""
    if not isinstance(value, str) or not (value.isascii() or not _HALVES.search(value)):
        raise Malformed(f"{ascii(value)[:60]} is not text")
    return value


def _field(name: str) -> Decoder[Any]:
    decoder: Decoder[Any] = integer(*_RANGES[name]) if name in _RANGES else _text
    return nullable(decoder) if name in NULLABLE else decoder


_FACT = row(Fact, *map(_field, Fact._fields))
_CHAIN_ENTRY = field("facts", list_of(_FACT, _MOST_FACTS))


# --- checkpoints ---------------------------------------------------------------------------


def encode_checkpoint(table: GroupsState, table_id: str) -> bytes | None:
    """None where it would be longer than one that is read."""
    data = _sealed({"table": table_id, "state": to_plain(table)})
    return data if len(data) <= MOST_CHECKPOINT_BYTES else None


def decode_checkpoint(data: bytes, where: str) -> tuple[str, GroupsState] | None:
    """(id of the table, state); None when it is not whole."""
    try:
        table, state = _opened(_CHECKPOINT, data, where, MOST_CHECKPOINT_BYTES)
        return table, from_plain(state)
    except OffsetLogError:
        return None


def is_whole(data: bytes) -> bool:
    """Whether text with a checksum is what was written."""
    seal, _, body = data.partition(b"\n")
    return seal.decode("latin-1") == xxhash.xxh3_64_hexdigest(body)


_CHECKPOINT: Decoder[tuple[str, object]] = record(
    lambda table, state: (table, state), table=string(), state=anything
)


def _sealed(body: dict[str, Any]) -> bytes:
    data = strict_json.dumps(body)
    return xxhash.xxh3_64_hexdigest(data).encode() + b"\n" + data


def _opened(decoder: Decoder[T], data: bytes, where: str, most: int = strict_json.MAX_BYTES) -> T:
    if len(data) > most:
        raise CorruptLogError(f"{where}: {len(data)} bytes, at most {most}.")
    if not is_whole(data):
        raise CorruptLogError(f"{where} is not what was written: its checksum differs.")
    return from_json(decoder, data.partition(b"\n")[2], where, most, MOST_VALUES)
