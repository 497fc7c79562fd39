"""The one way in which Parquet is written, and read: looked at first, then decoded within a budget.

1. All files are written with the same settings: no dictionary, statistics only where a reader uses
   them, and no page CRCs, since there are sums of larger parts.
2. A sealed file has the XXH3-64 of itself in its footer, taken with its own sixteen digits as
   zeros. It is the last key-value pair, so its place is found without parsing: it follows the last
   occurrence of its mark.
3. The footer is walked before Arrow sees it, and so is each page before it is decoded: what they
   say of themselves is added up, and judged before memory is taken for it. A checksum is no help
   here, since whoever forges a file forges that as well.
4. Nothing else is believed: not ``total_byte_size``, not the encodings that a footer names, not
   the number of values that it promises.
5. Our own files use no dictionary and no encoding that repeats what was there before, so theirs
   can't unfold at all. Files of the offsets table may have dictionaries: texts are read as such,
   and within other columns they are counted as often as they stand there.
6. A column is read only if it has the type that its reader expects.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple, TypeVar

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import xxhash

from offsetlog.errors import CorruptLogError
from offsetlog.format import thrift

T = TypeVar("T")
Buffer = bytes | memoryview

MIB = 1024 * 1024
SMALL_FOOTER = 4096
"""So few bytes can't describe much."""
MAX_COLUMNS = 256
LEAST_VALUE_BYTES = 4
"""What a value takes in a page of ours; so many values at the most are in so many bytes. Nulls
take nothing there, and in memory up to four times as much."""
MAX_DICTIONARY = 16 * MIB
"""Of one page; other writers begin to do without a dictionary at one megabyte."""
_MAGIC = b"PAR1"
_PLAIN, _PLAIN_DICTIONARY, _RLE, _DELTA_BINARY_PACKED = 0, 2, 3, 5
_DELTA_LENGTHS, _RLE_DICTIONARY, _SPLIT_STREAMS = 6, 8, 9
_OURS = frozenset((_PLAIN, _RLE, _DELTA_BINARY_PACKED))
_DICTIONARIES = frozenset((_PLAIN_DICTIONARY, _RLE_DICTIONARY))
_CODECS = {1: "snappy", 2: "gzip", 4: "brotli", 6: "zstd"}
_OF_OTHERS = _OURS | _DICTIONARIES | {_DELTA_LENGTHS, _SPLIT_STREAMS}


SEAL = "offsetlog.seal"
_ZEROS = b"0" * 16
UNSEALED = {SEAL: _ZEROS.decode()}
SEAL_MARK = b"\x0e" + SEAL.encode() + b"\x18\x10"
"""The key and the length of its value as Thrift's compact protocol writes them."""
_LEAVES = {"headers": ("headers.list.element.key", "headers.list.element.value")}
"""Parquet's names for the leaves of a nested column."""


def writer(
    sink: Any, schema: pa.Schema, compression: str, plain: Sequence[str] = (), **settings: Any
) -> pq.ParquetWriter:
    """Writes a file; the columns in ``plain`` are not compressed."""
    level: Any = 1 if compression == "zstd" else None
    codec: Any = compression
    if plain:
        packed = [leaf for name in schema.names for leaf in _LEAVES.get(name, (name,))]
        codec = dict.fromkeys([leaf for leaf in packed if leaf not in plain], compression)
        level = level and dict.fromkeys(codec, level)
    return pq.ParquetWriter(
        sink,
        schema,
        compression=codec,
        compression_level=level,
        use_dictionary=False,
        store_schema=False,
        **settings,
    )


def write_sealed(
    schema: pa.Schema,
    table: pa.Table | None,
    metadata: Mapping[str, str],
    compression: str = "none",
    plain: Sequence[str] = (),
    **settings: Any,
) -> bytes:
    """A sealed file with ``metadata`` in its footer; it has no row group without ``table``."""
    sink = pa.BufferOutputStream()
    file = writer(sink, schema, compression, plain, write_statistics=False, **settings)
    if table is not None:
        file.write_table(table)
    file.add_key_value_metadata({**metadata, **UNSEALED})
    file.close()
    return sealed(sink.getvalue())


def sealed(data: Buffer) -> bytes:
    """A file that was written with ``UNSEALED`` in its footer, with the seal in its place."""
    whole = bytearray(data)
    at = whole.rfind(SEAL_MARK) + len(SEAL_MARK)
    whole[at : at + 16] = xxhash.xxh3_64_hexdigest(whole).encode()
    return bytes(whole)


def has_seal(data: bytes) -> bool:
    return SEAL_MARK in data


def check_seal(data: bytes, name: str) -> None:
    """Refuse a file with another seal than its own."""
    at = data.rfind(SEAL_MARK) + len(SEAL_MARK)
    view = memoryview(data)
    total = xxhash.xxh3_64(view[:at])
    total.update(_ZEROS)
    total.update(view[at + 16 :])
    if total.hexdigest().encode() != data[at : at + 16]:
        raise CorruptLogError(
            f"{name} was changed after it was written: its checksum differs.",
            "Restore it from a backup; 'offsetlog verify' names all faults.",
        )


def open_sealed(data: bytes, name: str, max_bytes: int) -> ParquetReader:
    """A file as ``write_sealed`` made it, to the bit; else ``CorruptLogError``."""
    if len(data) > max_bytes:
        raise CorruptLogError(f"{name} has {len(data)} bytes; at most {max_bytes} are read.")
    at = data.rfind(SEAL_MARK) + len(SEAL_MARK)
    if at < len(SEAL_MARK) or not data.endswith(b"PAR1"):
        raise CorruptLogError(
            f"{name} is not a complete file of offsetlog.",
            "It was cut off or overwritten; restore it from a backup.",
        )
    check_seal(data, name)
    return ParquetReader(data, name)


class ParquetReader:
    """A file that is in memory. ``with_dictionaries``: it may be another writer's, and texts are
    read as dictionaries."""

    def __init__(self, data: Buffer, name: str, with_dictionaries: bool = False) -> None:
        self.name = name
        self._data = memoryview(data)
        self._encodings = _OF_OTHERS if with_dictionaries else _OURS
        self.checked = 0
        """What was checked last comes to."""
        self._walked: dict[tuple[int, int], _Decoded] = {}
        self._leaves_of: dict[tuple[str, ...], list[int]] = {}
        self._walked_groups: tuple[thrift.RowGroup, ...] | None = None
        try:
            length = int.from_bytes(self._data[-8:-4], "little")
            self._end = len(self._data) - 8 - length
            if self._end < len(_MAGIC) or self._data[-4:] != _MAGIC:
                raise ValueError("it is cut off")
            if length > SMALL_FOOTER:
                self._walked_groups = thrift.footer(self._data[self._end : -8])
            source = pa.BufferReader(pa.py_buffer(self._data))
            if with_dictionaries:
                metadata = pq.read_metadata(source)
                columns = map(metadata.schema.column, range(min(metadata.num_columns, MAX_COLUMNS)))
                texts = [
                    column.path
                    for column in columns
                    if column.physical_type == "BYTE_ARRAY" and column.path == column.name
                ]
                self._file = pq.ParquetFile(source, metadata=metadata, read_dictionary=texts)
            else:
                self._file = pq.ParquetFile(source, page_checksum_verification=False)
            self.metadata = self._file.metadata
            self.num_rows: int = self.metadata.num_rows
            self.key_values: Mapping[bytes, bytes] = self.metadata.metadata or {}
            self.schema = self._file.schema_arrow
            self._names: list[str] = self.schema.names
            is_wide = self.metadata.num_columns > MAX_COLUMNS
            if is_wide or len(set(self._names)) < len(self._names):
                raise ValueError("it has columns that offsetlog does not write")
        except MemoryError:
            raise  # It is an Arrow error too, and says nothing of the file.
        except (pa.ArrowException, OSError, ValueError, TypeError) as error:
            raise CorruptLogError(f"{name} is not a Parquet file: {first_line(error)}.") from None

    def types(self, expected: Mapping[str, pa.DataType]) -> list[str]:
        """Which of these columns are there; an error if one is of another type."""
        there = [name for name in self._names if name in expected]
        for name, kind in zip(self._names, self.schema.types, strict=True):
            if name in expected and kind != expected[name]:
                raise CorruptLogError(f"{self.name}: column {name!r} is of type {str(kind)[:100]}.")
        return there

    def read(self, columns: Sequence[str], budget: int) -> pa.Table:
        """These columns of all rows."""
        groups = range(self.metadata.num_row_groups)
        self.check(groups, columns, budget)
        # Choosing columns takes Arrow as long as reading a small one.
        chosen = None if columns == self._names else list(columns)
        return self._decode(lambda: self._file.read(columns=chosen, use_threads=False))

    def read_row_group(self, group: int, columns: Sequence[str], budget: int) -> pa.Table:
        self.check((group,), columns, budget)
        chosen = list(columns)
        return self._decode(
            lambda: self._file.read_row_group(group, columns=chosen, use_threads=False)
        )

    def batches(self, columns: Sequence[str], rows: int, budget: int) -> Iterator[pa.RecordBatch]:
        """The same, so many rows at a time; a row group is within the budget."""
        for group in range(self.metadata.num_row_groups):
            self.check((group,), columns, budget)
            some = self._file.iter_batches(
                rows, row_groups=[group], columns=list(columns), use_threads=False
            )
            while (batch := self._decode(partial(next, some, None))) is not None:
                yield batch

    def check(self, groups: Iterable[int], columns: Sequence[str], budget: int) -> int:
        """Refuse columns that would take more than the budget once they are decoded; else about how
        many bytes they take."""
        leaves, known = self._leaves(columns), self._groups()
        size = values = 0
        for group in groups:
            for leaf in leaves:
                decoded = self._walked.get((group, leaf))
                if decoded is None:
                    try:
                        decoded = self._walk(leaf, known[group])
                    except MemoryError:
                        raise  # It is an Arrow error too, and says nothing of the file.
                    except (pa.ArrowException, OSError, ValueError) as error:
                        path = self.metadata.schema.column(leaf).path[:100]
                        raise CorruptLogError(
                            f"{self.name}: column {path!r} can't be read: {first_line(error)}."
                        ) from None
                    self._walked[group, leaf] = decoded
                size, values = size + decoded.bytes, values + decoded.values
                if max(size, LEAST_VALUE_BYTES * values) > budget:
                    raise CorruptLogError(
                        f"{self.name} would unfold to more than {budget // MIB} MiB.",
                        "Its writer was not offsetlog; restore it from a backup.",
                    )
        self.checked = max(size, LEAST_VALUE_BYTES * values)
        return self.checked

    def greatest(self, group: int, column: str) -> int | None:
        """The greatest number of a column in a row group; None where no statistics tell it."""
        [leaf] = self._leaves((column,)) or [-1]
        found = self._groups()[group].chunks[leaf].greatest if leaf >= 0 else None
        return None if found is None else int.from_bytes(found, "little", signed=True)

    # --- the walk --------------------------------------------------------------------------

    def _groups(self) -> tuple[thrift.RowGroup, ...]:
        """What the footer says. Arrow's own way to tell it ends the process at some lies."""
        groups = self._walked_groups
        if groups is None:
            try:
                groups = self._walked_groups = thrift.footer(self._data[self._end : -8])
            except ValueError as error:
                raise CorruptLogError(f"{self.name} is not a Parquet file: {error}.") from None
        shape = self.num_rows, self.metadata.num_row_groups
        columns = {len(group.chunks) for group in groups} | {self.metadata.num_columns}
        if (sum([group.rows for group in groups]), len(groups)) != shape or len(columns) > 1:
            raise CorruptLogError(f"{self.name}: its row groups do not add up.")
        return groups

    def _leaves(self, columns: Sequence[str]) -> list[int]:
        """The numbers of Parquet's columns that a column consists of."""
        if columns == self._names:
            return list(range(self.metadata.num_columns))
        known = self._leaves_of.get(tuple(columns))
        if known is not None:
            return known
        schema = self.metadata.schema
        paths = [schema.column(leaf).path for leaf in range(self.metadata.num_columns)]
        leaves = [
            leaf
            for leaf, path in enumerate(paths)
            if any(path == column or path.startswith(f"{column}.") for column in columns)
        ]
        self._leaves_of[tuple(columns)] = leaves
        return leaves

    def _walk(self, leaf: int, about: thrift.RowGroup) -> _Decoded:
        """What a column of a row group comes to."""
        chunk = about.chunks[leaf]
        column = None if chunk.values == about.rows else self.metadata.schema.column(leaf)
        if column and not column.max_repetition_level:
            raise ValueError("it has another number of values than there are rows")
        if not chunk.values:
            return _Decoded(0, 0)
        position = chunk.start
        if not len(_MAGIC) <= position <= chunk.end <= self._end:
            raise ValueError("its pages lie elsewhere")
        size = values = longest = 0
        while position < chunk.end:
            page = thrift.page_header(self._data, position)
            position = page.end + page.stored
            size += page.decoded
            if page.kind == thrift.DICTIONARY_PAGE:
                stored = self._data[page.end : position]
                longest = self._longest_word(stored, page, chunk.codec, leaf)
                continue
            values += page.values
            if page.encoding not in self._encodings:
                raise ValueError(f"it has an encoding ({page.encoding}) that may unfold to much")
            if page.encoding in _DICTIONARIES:
                size += page.values * longest
        if position != chunk.end or values != chunk.values:
            raise ValueError("its pages do not add up")
        return _Decoded(size, values)

    def _longest_word(
        self, stored: memoryview, page: thrift.PageHeader, codec: int, leaf: int
    ) -> int:
        """The bytes of the longest value of a dictionary that Arrow unfolds, each time that it
        stands there: one in a nested column."""
        if self._encodings is _OURS:
            raise ValueError("it has a dictionary, which offsetlog does not write")
        if page.decoded > MAX_DICTIONARY:
            raise ValueError(f"it has a dictionary of {page.decoded} bytes")
        column = self.metadata.schema.column(leaf)
        if column.physical_type == "FIXED_LEN_BYTE_ARRAY":
            return max(0, int(column.length))
        if column.physical_type != "BYTE_ARRAY" or column.path == column.name:
            return 0
        words = bytes(stored)
        if codec:
            name = _CODECS.get(codec)
            if name is None:
                return page.decoded
            words = pa.decompress(words, page.decoded, codec=name, asbytes=True)
        longest = position = 0
        while position < len(words):
            length = int.from_bytes(words[position : position + 4], "little")
            longest = max(longest, length)
            position += 4 + length
        return longest

    def _decode(self, read: Callable[[], T]) -> T:
        try:
            return read()
        except MemoryError:
            raise  # It is an Arrow error too, and says nothing of the file.
        except (pa.ArrowException, OSError, ValueError) as error:
            raise CorruptLogError(f"{self.name}: {first_line(error)}") from None


class _Decoded(NamedTuple):
    """What a column of a row group comes to."""

    bytes: int
    """Of its pages, once they are decompressed."""
    values: int


def unfolded_bytes(table: pa.Table) -> int:
    """What its columns take without the dictionaries that texts are read as."""
    return sum(_unfolded_bytes(chunk) for column in table.columns for chunk in column.chunks)


def _unfolded_bytes(array: pa.Array) -> int:
    if not pa.types.is_dictionary(array.type):
        return int(array.nbytes)
    lengths = pc.binary_length(array.dictionary).cast(pa.int64())
    return int(pc.sum(lengths.take(array.indices)).as_py() or 0)


def first_line(error: BaseException) -> str:
    return (str(error).splitlines() or [""])[0][:200]
