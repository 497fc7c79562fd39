"""An entry as a Parquet file: the decision in its footer, small batches as its rows.

Invariants:

1. The file is sealed as a whole (see ``seal``): every flipped bit is found, in footers too.
2. The rows stand in the order of the decision's inline parts, and there are exactly as many.
3. What a reader would refuse is never written: one unreadable entry would end its topic.
4. A stub is the same decision under the same write id without rows. Anyone writes it alike.
"""

from __future__ import annotations

import pyarrow as pa

from offsetlog.core.topic.entry import Append, Entry
from offsetlog.errors import CorruptLogError, InvalidRequestError
from offsetlog.format import decisions, seal
from offsetlog.format import record_schema as rows

INLINE_BYTES = 256 * 1024
"""The most that the rows of an entry take; larger batches go to segments."""
MAX_INLINE_RECORDS = 256 * 1024
"""The most rows of an entry: caps what a reader decodes."""
MAX_ENTRY_BYTES = 64 * 1024 * 1024
COMPRESSED_BYTES = 1024
"""Fewer bytes of rows are stored as they are."""
RECORD_WEIGHT = 64
"""What a row takes in memory besides its bytes, at the most that is usual."""

_DECISION = "offsetlog.decision"
_STUB = "offsetlog.stub"

ENTRY_ROWS = pa.schema([rows.PARTITION, *rows.ROWS])
_EMPTY = pa.Table.from_batches([], pa.schema([rows.PARTITION]))


class StoredEntry:
    """A file of the chain, checked; its rows are decoded once, when they are asked for."""

    __slots__ = ("entry", "stub", "inline_records", "data", "name", "_table")

    def __init__(self, entry: Entry, stub: bool, inline_records: int, data: bytes, name: str):
        self.entry = entry
        self.stub = stub
        self.inline_records = inline_records
        self.data = data
        self.name = name
        self._table: pa.Table | None = None

    def rows(self, first: int, count: int, columns: tuple[str, ...]) -> pa.Table:
        """``count`` inline rows from ``first`` on, with the columns asked for."""
        if self.stub or first + count > self.inline_records:
            raise CorruptLogError(f"{self.name} does not hold rows {first} to {first + count}.")
        if self._table is None:
            file = rows.open_parquet(pa.BufferReader(self.data), self.name)
            try:
                self._table = file.read(use_threads=False)
            except (pa.ArrowException, OSError) as error:
                raise CorruptLogError(f"{self.name}: {rows.first_line(error)}") from None
        return rows.complete(self._table.slice(first, count), columns)


def encode(entry: Entry, table: pa.Table | pa.RecordBatch | None, compression: str) -> StoredEntry:
    """The file of an entry, which has no name yet. ``table`` has ``ENTRY_ROWS``'s columns, or is
    None."""
    decision = decisions.encode(entry)
    if not decisions.is_plain_append(entry):
        try:
            decisions.decode(decision, "This entry")
        except CorruptLogError as error:
            raise InvalidRequestError(f"{error.message} Nothing was written.") from None
    if isinstance(entry.body, Append):
        # What Arrow says of its memory takes as long to find out as the rest of the file.
        weight = sum([part.bytes + RECORD_WEIGHT * part.records for part in entry.body.parts])
        compression = "none" if weight < COMPRESSED_BYTES else compression
    data = _encode(decision, table, compression, stub=False)
    if len(data) > MAX_ENTRY_BYTES:
        raise InvalidRequestError(
            f"This entry would have {len(data)} bytes; at most {MAX_ENTRY_BYTES} are read.",
            "Nothing was written. Send less at once.",
        )
    return StoredEntry(entry, False, 0 if table is None else table.num_rows, data, "")


def encode_stub(stored: StoredEntry) -> bytes:
    """The same entry without its rows."""
    return _encode(decisions.encode(stored.entry), None, "none", stub=True)


def _encode(
    decision: str, table: pa.Table | pa.RecordBatch | None, compression: str, stub: bool
) -> bytes:
    batch = _EMPTY if table is None else rows.compact(table)
    # Setting up a compressor costs more than a few rows are worth.
    small = compression == "none" or batch.nbytes < COMPRESSED_BYTES
    out = seal.SealedWriter(batch.schema, "none" if small else compression)
    if isinstance(batch, pa.RecordBatch):
        out.parquet.write_batch(batch)
    elif batch.num_rows:
        out.parquet.write_table(batch, row_group_size=max(1, batch.num_rows))
    meta = {_DECISION: decision}
    return out.finish({**meta, _STUB: "1"} if stub else meta)


def _inline_records(entry: Entry) -> int:
    body = entry.body
    if not isinstance(body, Append):
        return 0
    return sum(part.records for part in body.parts if part.segment is None)


def decode(data: bytes, name: str) -> StoredEntry:
    """Check a file of the chain and read its decision."""
    seal.check(data, name, MAX_ENTRY_BYTES)
    file = rows.open_parquet(pa.BufferReader(data), name)
    meta = rows.metadata_of(file)
    decision = meta.get(_DECISION.encode())
    if decision is None:
        raise CorruptLogError(f"{name} holds no decision.", "It was not written by offsetlog.")
    entry = decisions.decode(decision, name)
    stub = _STUB.encode() in meta
    inline_records, groups = _inline_records(entry), file.metadata.num_row_groups
    expected = 0 if stub else inline_records
    if inline_records > MAX_INLINE_RECORDS or file.metadata.num_rows != expected:
        raise CorruptLogError(
            f"{name} says {inline_records} rows and holds {file.metadata.num_rows}.",
            "Restore it from a backup; 'offsetlog verify' names all faults.",
        )
    unfolded = sum(file.metadata.row_group(i).total_byte_size for i in range(groups))
    if unfolded > MAX_ENTRY_BYTES:
        raise CorruptLogError(f"{name} would unfold to {unfolded} bytes.")
    return StoredEntry(entry, stub, inline_records, data, name)
