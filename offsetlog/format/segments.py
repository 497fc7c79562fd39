"""A segment: a Parquet file of records of one partition.

Invariants:

1. The foot (footer, its length, magic) is covered by the sum in the entry that names the
   segment; the foot's ``offsetlog.groups`` holds range and sum of every row group. Together
   they cover every byte, also when only a part of the file is read.
2. A row group is checked before it is decoded.
3. The count of records that the entry states caps what is decoded.
4. Stored offsets ascend, and lie where their count leaves room for those before and behind them in
   the range that the log says; what the footer says of them is true of what was read.
"""

from __future__ import annotations

import mmap
from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq
import xxhash

from offsetlog.core import strict_json
from offsetlog.core.decode import from_json, hexadecimal, integer, list_of, row
from offsetlog.core.topic.entry import SegmentRef
from offsetlog.errors import CorruptLogError
from offsetlog.format import FORMAT_VERSION
from offsetlog.format import record_schema as rows
from offsetlog.format.parquet import ParquetReader, writer
from offsetlog.values import MAX_OFFSET

_GROUPS = "offsetlog.groups"
_VERSION = "offsetlog.version"
_MAGIC = b"PAR1"
_BOUNDED = ("timestamp", "offset")
"""Columns whose bounds in each row group are in the footer; of offsets where they have gaps, since
elsewhere they follow from counts."""
MAX_ROW_GROUP_BYTES = 1024**3 + rows.ROW_GROUP_BYTES
"""What a row group may unfold to: one record may have a gigabyte."""
UNFOLDS_TO = 16
"""One that is larger may unfold to so many times the bytes of its file."""
Buffer = bytes | memoryview
Fetch = Callable[[int, int], Buffer]
"""Reads bytes [start, end) of the file."""


class EncodedSegment(NamedTuple):
    buffer: memoryview
    """The file, where Parquet wrote it."""
    foot: int
    sum: str

    @property
    def data(self) -> bytes:
        return bytes(self.buffer)

    def ref(self, born: int, uid: str) -> SegmentRef:
        return SegmentRef(born, uid, len(self.buffer), self.foot, self.sum)


class RowGroup(NamedTuple):
    start: int
    end: int
    sum: str
    records: int
    first: int = 0
    """Position of its first record in the segment; it follows from those before, and is not
    stored."""


_ROW_GROUPS = list_of(row(RowGroup, integer(), integer(), hexadecimal(16), integer(1)))


def encode(
    table: pa.Table, compression: str, group_records: int = rows.ROW_GROUP_RECORDS
) -> EncodedSegment:
    """A segment of the records of ``table``: the columns of ``ROWS``, and ``offset`` if it is
    a rewritten one."""
    table = rows.compact(table)
    # Sums of row groups go into the footer, so their bytes must be at hand before the file is
    # complete: it grows in memory of our own. Pages that are not touched cost nothing.
    room = table.nbytes + table.nbytes // 4 + 1024 * 1024
    while True:
        try:
            return _encode(table, compression, pa.allocate_buffer(room), group_records)
        except OSError as error:
            if "out of bounds" not in str(error):
                raise
            room *= 2


def _encode(
    table: pa.Table, compression: str, memory: pa.Buffer, group_records: int
) -> EncodedSegment:
    sink, view = pa.FixedSizeBufferWriter(memory), memoryview(memory)
    plain = rows.incompressible(table, compression)
    known = [name for name in _BOUNDED if name in table.schema.names]
    if "offset" in known and _is_dense(table.column("offset")):
        known.remove("offset")
    out = writer(sink, table.schema, compression, plain, write_statistics=known or False)
    start, groups = sink.tell(), []
    for piece in row_groups(table, group_records):
        out.write_table(piece, row_group_size=max(1, piece.num_rows))
        end = sink.tell()
        groups.append([start, end, xxhash.xxh3_64_hexdigest(view[start:end]), piece.num_rows])
        start = end
    groups_json = strict_json.dumps(groups).decode()
    out.add_key_value_metadata({_VERSION: str(FORMAT_VERSION), _GROUPS: groups_json})
    out.close()
    end = sink.tell()
    foot = view[start:end]
    return EncodedSegment(view[:end], len(foot), xxhash.xxh3_64_hexdigest(foot))


def _is_dense(offsets: pa.ChunkedArray) -> bool:
    """Whether sorted offsets have no gap."""
    count = len(offsets)
    return not count or offsets[count - 1].as_py() - offsets[0].as_py() == count - 1


def row_groups(table: pa.Table, group_records: int) -> list[pa.Table]:
    """Pieces of a table that are fit to be row groups, by count and by bytes."""
    if not table.num_rows:
        return []
    wide = max(1, table.nbytes // table.num_rows)
    most = max(1, min(group_records, rows.ROW_GROUP_BYTES // wide))
    pieces = [table.slice(low, most) for low in range(0, table.num_rows, most)]
    return [part for piece in pieces for part in _halves(piece)]


def _halves(piece: pa.Table) -> list[pa.Table]:
    """The same in parts that are not much larger than a row group, where a few records have most
    of the bytes."""
    half = piece.num_rows // 2
    if not half or piece.nbytes <= 4 * rows.ROW_GROUP_BYTES:
        return [piece]
    return [*_halves(piece.slice(0, half)), *_halves(piece.slice(half))]


class OpenSegment:
    """A segment whose foot was checked. Row groups are fetched, checked and decoded as they
    are asked for, from memory that has the file's shape but only the parts that were read."""

    def __init__(self, ref: SegmentRef, records: int, name: str, fetch: Fetch) -> None:
        self.ref = ref
        self.name = name
        self._fetch: Fetch | None = fetch
        self._memory: Buffer = b""
        self._present: set[int] = set()
        self._open(fetch(ref.size - ref.footer_bytes, ref.size), records)

    @classmethod
    def whole(cls, ref: SegmentRef, records: int, name: str, data: Buffer) -> OpenSegment:
        """Of a file that was read as a whole."""
        self = cls.__new__(cls)
        self.ref, self.name, self._fetch, self._memory = ref, name, None, data
        self._present = set()
        if len(data) != ref.size:
            raise CorruptLogError(
                f"{name} has {len(data)} bytes; its entry says {ref.size}.",
                "Restore it from a backup; 'offsetlog verify' names all faults.",
            )
        if bytes(data[: len(_MAGIC)]) != _MAGIC:
            raise self._changed("its first bytes")
        self._open(memoryview(data)[ref.size - ref.footer_bytes :], records)
        return self

    def _open(self, foot: Buffer, records: int) -> None:
        ref = self.ref
        if len(foot) != ref.footer_bytes or xxhash.xxh3_64_hexdigest(foot) != ref.footer_xxh3:
            raise self._changed("its footer")
        if self._fetch is not None:
            shape = mmap.mmap(-1, ref.size)
            shape[ref.size - ref.footer_bytes :] = foot
            self._memory = memoryview(shape)
        self._file = ParquetReader(self._memory, self.name)
        self._stored = self._file.types(rows.TYPES)
        rows.check_columns(self._stored, rows.REQUIRED, self.name)
        self.groups = _groups(self._file.metadata, ref, records, self.name)

    def read(self, first: int, end: int, columns: tuple[str, ...]) -> list[pa.Table]:
        """The records at positions [first, end), one table for each row group touched."""
        out = []
        for i, group in enumerate(self.groups):
            if group.first < end and first < group.first + group.records:
                table = self._group(i, columns)
                low = max(first - group.first, 0)
                high = min(end - group.first, group.records)
                out.append(table.slice(low, high - low))
        return out

    def check(self) -> None:
        """Fetch and check all of it, in whatever thread there is time for that."""
        for i in range(len(self.groups)):
            self._load(i)

    def newest(self, i: int) -> int:
        """The greatest timestamp in row group ``i``, or more: what the checked footer says."""
        newest = self._file.greatest(i, "timestamp")
        return MAX_OFFSET if newest is None else newest

    def last_offsets(self, base: int, end: int) -> list[int]:
        """The last offset of each row group of a segment of [base, end) with gaps, or more: what
        the checked footer says."""
        told = [self._file.greatest(i, "offset") for i in range(len(self.groups))]
        before = base - 1
        for i, last in enumerate(told):
            if last is not None:
                self._check_place(i, before + 1, last, base, end)
                before = last
        return [MAX_OFFSET if last is None else last for last in told]

    def offsets(
        self, i: int, base: int, end: int, table: pa.Table | None = None
    ) -> npt.NDArray[np.int64]:
        """The offsets that row group ``i`` of a rewritten segment of [base, end) stores; ``table``
        has them, if it was read."""
        table = self._group(i, ("offset",)) if table is None else table
        offsets: npt.NDArray[np.int64] = table.column("offset").to_numpy()
        first, last = int(offsets[0]), int(offsets[-1])
        told = self._file.greatest(i, "offset")
        is_told = told is None or told == last
        if not is_told or first < base or (offsets[1:] <= offsets[:-1]).any():
            raise self.misplaced(i)
        self._check_place(i, first, last, base, end)
        return offsets

    def _check_place(self, i: int, first: int, last: int, base: int, end: int) -> None:
        """That the offsets of row group ``i`` have room in [first, last], and all others before and
        behind them in [base, end)."""
        group, total = self.groups[i], self.groups[-1].first + self.groups[-1].records
        before, behind = group.first, total - group.first - group.records
        if last + behind >= end or last - max(first, base + before) + 1 < group.records:
            raise self.misplaced(i)

    def misplaced(self, i: int) -> CorruptLogError:
        """That row group ``i`` has offsets which it can't have."""
        return CorruptLogError(
            f"{self.name}: the offsets of row group {i} are out of their place.",
            "Run 'offsetlog verify' on the topic, and restore the file from a backup.",
        )

    def unfolds_to(self, i: int, columns: tuple[str, ...]) -> int:
        """About how many bytes row group ``i`` takes once it is decoded, by what its pages say."""
        self._load(i)
        return self._file.check((i,), self._stored_of(columns), self._budget)

    def _stored_of(self, columns: tuple[str, ...]) -> list[str]:
        return [name for name in columns if name in self._stored] or ["timestamp"]

    @property
    def _budget(self) -> int:
        return max(MAX_ROW_GROUP_BYTES, UNFOLDS_TO * self.ref.size)

    def _group(self, i: int, columns: tuple[str, ...]) -> pa.Table:
        self._load(i)
        if "offset" in columns:
            rows.check_columns(self._stored, ("offset",), self.name)
        table = self._file.read_row_group(i, self._stored_of(columns), self._budget)
        if table.num_rows != self.groups[i].records:
            raise self._changed(f"row group {i}")
        return rows.complete(rows.check_values(table, self.name), columns)

    def _load(self, i: int) -> None:
        if i in self._present:
            return
        group = self.groups[i]
        if self._fetch is not None:
            body = self._fetch(group.start, group.end)
            if len(body) != group.end - group.start:
                raise self._changed(f"row group {i}")
            memoryview(self._memory)[group.start : group.end] = body
        checksum = xxhash.xxh3_64_hexdigest(memoryview(self._memory)[group.start : group.end])
        if checksum != group.sum:
            raise self._changed(f"row group {i}")
        self._present.add(i)

    def _changed(self, part: str) -> CorruptLogError:
        return CorruptLogError(
            f"{self.name} was changed after it was written: the checksum of {part} differs.",
            "Restore it from a backup; 'offsetlog verify' names all faults.",
        )


def _groups(metadata: pq.FileMetaData, ref: SegmentRef, records: int, name: str) -> list[RowGroup]:
    raw = (metadata.metadata or {}).get(_GROUPS.encode())
    if raw is None:
        raise CorruptLogError(f"{name} is not a segment of offsetlog.")
    version = (metadata.metadata or {}).get(_VERSION.encode(), b"")
    if version != str(FORMAT_VERSION).encode():
        raise CorruptLogError(
            f"{name} is of format {version.decode(errors='replace')!r}; this library reads "
            f"format {FORMAT_VERSION}.",
            "Upgrade offsetlog.",
        )
    groups: list[RowGroup] = []
    first, reached = 0, len(_MAGIC)
    for group in from_json(_ROW_GROUPS, raw, name):
        if not reached == group.start <= group.end:
            raise CorruptLogError(f"{name}: a row group lies at [{group.start}, {group.end}).")
        groups.append(group._replace(first=first))
        first, reached = first + group.records, group.end
    fits = reached == ref.size - ref.footer_bytes and len(groups) == metadata.num_row_groups
    if not fits or first != records or metadata.num_rows != records:
        raise CorruptLogError(
            f"{name} holds {metadata.num_rows} records; its entry says {records}.",
            "Restore it from a backup; 'offsetlog verify' names all faults.",
        )
    return groups
