"""An entry as a Parquet file: the decision in its footer, small batches as its rows.

Invariants:

1. The file is sealed as a whole (see ``parquet``): every flipped bit is found, in footers too.
2. The rows stand in the order of the decision's inline parts, and there are exactly as many.
3. What a reader would refuse is never written: one unreadable entry would end its topic.
4. A stub is the same decision under the same write id without rows. Anyone writes it alike.
"""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa

from offsetlog.core.topic.entry import Append, Entry
from offsetlog.errors import CorruptLogError, InvalidRequestError
from offsetlog.format import decisions
from offsetlog.format import record_schema as rows
from offsetlog.format.parquet import ParquetReader, open_sealed, write_sealed

INLINE_BYTES = 256 * 1024
"""The most that the rows of an entry take; larger batches go to segments."""
MAX_INLINE_RECORDS = 256 * 1024
"""The most rows of an entry: caps what a reader decodes."""
MAX_ENTRY_BYTES = 64 * 1024 * 1024
COMPRESSED_BYTES = 1024
"""Fewer bytes of rows are stored as they are."""
WEIGHT_ROOM = 4096
"""Rows that take so much more than their entry says are not kept decoded."""
RECORD_WEIGHT = 64
"""What a row takes in memory besides its bytes, at the most that is usual."""

_DECISION = "offsetlog.decision"
_STUB = "offsetlog.stub"

ENTRY_ROWS = pa.schema([rows.PARTITION, *rows.ROWS])
_NO_ROWS = pa.schema([rows.PARTITION])


@dataclass(slots=True, eq=False)
class StoredEntry:
    """A file of the chain, checked; its rows are decoded once, when they are asked for (each time,
    where they take more than the entry says)."""

    entry: Entry
    stub: bool
    inline_records: int
    data: bytes
    name: str
    _file: ParquetReader | None = None
    _table: pa.Table | None = None
    _last: tuple[tuple[str, ...], pa.Table] | None = None

    def unfolds_to(self) -> int:
        """About how many bytes its rows take once they are decoded; 0 where they are."""
        if self._table is not None or not self.inline_records:
            return 0
        file = self._file = self._file or ParquetReader(self.data, self.name)
        groups = range(file.metadata.num_row_groups)
        return file.check(groups, file.types(rows.TYPES), MAX_ENTRY_BYTES)

    def rows(self, first: int, count: int, columns: tuple[str, ...]) -> pa.Table:
        """``count`` inline rows from ``first`` on, with the columns asked for."""
        if self.stub or first + count > self.inline_records:
            raise CorruptLogError(f"{self.name} does not hold rows {first} to {first + count}.")
        if self._table is None:
            file = self._file or ParquetReader(self.data, self.name)
            stored = file.types(rows.TYPES)
            rows.check_columns(stored, ("partition", *rows.REQUIRED), self.name)
            table = rows.check_values(file.read(stored, MAX_ENTRY_BYTES), self.name)
            self._file = None
            if file.checked > WEIGHT_ROOM + rows_weight(self.entry):
                # What an entry says is what it counts for where it is kept.
                return rows.complete(table, columns).slice(first, count)
            self._table = table
        # Mostly the same columns are asked for, of one part after another.
        last = self._last
        if last is None or last[0] != columns:
            last = self._last = columns, rows.complete(self._table, columns)
        return last[1].slice(first, count)


def rows_weight(entry: Entry) -> int:
    """What the inline rows of an entry take in memory, by what it says of them."""
    if not isinstance(entry.body, Append):
        return 0
    parts = [part for part in entry.body.parts if part.segment is None]
    return sum([part.bytes + RECORD_WEIGHT * part.records for part in parts])


def encode(
    entry: Entry, table: pa.Table | None, compression: str, stub: bool = False
) -> StoredEntry:
    """The file of an entry, which has no name yet. ``table`` has ``ENTRY_ROWS``'s columns, or is
    None."""
    decision = decisions.encode(entry)
    if not decisions.is_plain_append(entry):
        try:
            decisions.decode(decision, "This entry")
        except CorruptLogError as error:
            raise InvalidRequestError(f"{error.message} Nothing was written.") from None
    meta = {_DECISION: decision, **({_STUB: "1"} if stub else {})}
    count = 0 if table is None else table.num_rows
    if table is None or not count:
        data = write_sealed(_NO_ROWS, None, meta)
    else:
        assert isinstance(entry.body, Append)
        # What Arrow says of its memory takes as long to find out as the rest of the file.
        weight = sum([part.bytes + RECORD_WEIGHT * part.records for part in entry.body.parts])
        if weight > MAX_ENTRY_BYTES:
            raise InvalidRequestError(
                f"The records of this entry weigh {weight} bytes; at most {MAX_ENTRY_BYTES} are "
                "read.",
                "Nothing was written. Send less at once.",
            )
        table = rows.compact(table)
        # Setting up a compressor costs more than a few rows are worth.
        if weight < COMPRESSED_BYTES or table.nbytes < COMPRESSED_BYTES:
            compression = "none"
        plain = () if compression == "none" else rows.incompressible(table, compression)
        data = write_sealed(table.schema, table, meta, compression, plain)
    if len(data) > MAX_ENTRY_BYTES:
        raise InvalidRequestError(
            f"This entry would have {len(data)} bytes; at most {MAX_ENTRY_BYTES} are read.",
            "Nothing was written. Send less at once.",
        )
    return StoredEntry(entry, stub, count, data, "")


def encode_stub(stored: StoredEntry) -> bytes:
    """The same entry without its rows."""
    return encode(stored.entry, None, "none", stub=True).data


def decode(data: bytes, name: str) -> StoredEntry:
    """Check a file of the chain and read its decision."""
    file = open_sealed(data, name, MAX_ENTRY_BYTES)
    meta = file.key_values
    decision = meta.get(_DECISION.encode())
    if decision is None:
        raise CorruptLogError(f"{name} holds no decision.", "It was not written by offsetlog.")
    entry = decisions.decode(decision, name)
    stub = _STUB.encode() in meta
    body, inline_records = entry.body, 0
    if isinstance(body, Append):
        inline_records = sum([part.records for part in body.parts if part.segment is None])
    expected = 0 if stub else inline_records
    if inline_records > MAX_INLINE_RECORDS or file.num_rows != expected:
        raise CorruptLogError(
            f"{name} says {inline_records} rows and holds {file.num_rows}.",
            "Restore it from a backup; 'offsetlog verify' names all faults.",
        )
    return StoredEntry(entry, stub, inline_records, data, name, file if expected else None)
