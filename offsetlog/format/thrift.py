"""Parquet's footers and page headers, read before Arrow decodes what they describe.

1. Thrift's compact protocol, into numbers and slices of what was given; it stops at a limit.
2. What Parquet's writers never write is refused, and not passed over: fields out of order or
   twice, elements of another type. So nobody can read it in another way than it is read here.
3. A walk never leaves the bytes that it was given, nor goes deeper than ``MAX_DEPTH`` structs and
   lists; what is wrong is ``ValueError``.
4. ``Compact.java`` has the same rules, so that the JVM takes nothing that is refused here.
"""

from __future__ import annotations

import re
from typing import Any, NamedTuple

MAX_ELEMENTS = 100_000
"""Of all lists of a footer. Each becomes up to a kilobyte of Arrow's memory."""
MAX_DEPTH = 32
MAX_FIELD = 64
_LONGEST_VARINT = 10
_TRUE, _FALSE, _BYTE, _INT16, _INT32, _INT64, _DOUBLE, _BINARY, _LIST, _SET, _MAP, _STRUCT = range(
    1, 13
)

DATA_PAGE, INDEX_PAGE, DICTIONARY_PAGE, DATA_PAGE_V2 = range(4)
_DESCRIBED_IN = {DATA_PAGE: 5, DICTIONARY_PAGE: 7, DATA_PAGE_V2: 8}
"""Which field of a page's header describes a page of this kind."""
_ENCODING = {DATA_PAGE: 2, DICTIONARY_PAGE: 2, DATA_PAGE_V2: 4}

_INT = rb"[\x80-\xff]{0,9}[\x00-\x7f]"
_NUMBER = rb"(%b)" % _INT
_TEXT = b"(?:%b)" % b"|".join(rb"\x%02x[\x00-\xff]{%d}" % (n, n) for n in range(1, 16))

_PLAIN_PAGE = re.compile(
    rb"\x15\x00\x15%b\x15%b\x2c\x15%b\x15%b\x15\x06\x15\x06\x1c\x00{3}" % ((_NUMBER,) * 4)
)
"""The header of a page as Arrow writes it without statistics: what it takes decoded and stored, its
values and their encoding. Any other is walked."""
_PLAIN_CHUNK = re.compile(
    rb"\x26\x00\x1c\x15%b\x19(?:\x15%b|\x25(?:%b){2})\x19\x18%b" % (_INT, _INT, _INT, _TEXT)
    + rb"\x15%b\x16%b\x16%b\x16%b\x26%b" % (_NUMBER, _NUMBER, _INT, _NUMBER, _NUMBER)
    + rb"\x49\x1c(?:\x15%b){3}\x00\x3c(?:\x16%b)?" % (_INT, _INT)
    + rb"(?:[\x19\x29](?:\x06|\x16%b|\x26(?:%b){2})){0,2}\x00\x00\x00" % (_INT, _INT)
)
"""A column of a row group in the same way: its codec, values, bytes and place."""
Struct = dict[int, Any]
"""Fields by their numbers."""


class PageHeader(NamedTuple):
    kind: int
    decoded: int
    """Bytes once it is decompressed."""
    stored: int
    values: int
    encoding: int
    end: int
    """Where its bytes begin."""


class Chunk(NamedTuple):
    """A column of a row group."""

    codec: int
    values: int
    start: int
    """Where its first page begins."""
    end: int
    greatest: bytes | None
    """As its statistics have it."""


class RowGroup(NamedTuple):
    rows: int
    chunks: tuple[Chunk, ...]


def footer(data: memoryview) -> tuple[RowGroup, ...]:
    """What a footer says of where things lie."""
    fields, end = _struct(data, 0, [MAX_ELEMENTS], 0)
    if end != len(data):
        raise ValueError(f"its footer has {len(data) - end} bytes too many")
    try:
        _count(fields[3])  # Of all rows, which is compared with what Arrow says.
        groups = fields.get(4, ())
        return tuple([RowGroup(_count(group[3]), _chunks(group[1])) for group in groups])
    except (KeyError, IndexError, TypeError, AttributeError):
        raise ValueError("its footer lacks what Parquet's have") from None


def _chunks(columns: list[Struct]) -> tuple[Chunk, ...]:
    out = []
    for column in columns:
        about, greatest = column[3], None
        if type(about) is tuple:
            codec, values, stored, start = about
        else:
            codec, values, stored, start = [_count(about[field]) for field in (4, 5, 7, 9)]
            first = _count(about.get(11, 0))
            start = first if 0 < first < start else start
            if column.get(1):
                raise ValueError("its pages lie in another file")
            statistics = about.get(12, {})
            greatest = statistics.get(5, statistics.get(1))
            greatest = None if greatest is None else bytes(greatest[:16])
        out.append(Chunk(codec, values, start, start + stored, greatest))
    return tuple(out)


def _count(value: object) -> int:
    if type(value) is not int or value < 0:
        raise ValueError("it counts less than nothing")
    return value


def _plain_numbers(match: re.Match[bytes] | None) -> tuple[int, ...] | None:
    """The numbers of what matches; None where one is less than nothing: that is walked."""
    if match is None:
        return None
    out = []
    for digits in match.groups():
        number = digits[-1]
        for byte in digits[-2::-1]:
            number = number << 7 | byte & 127
        if number & 1:
            return None
        out.append(number >> 1)
    return tuple(out)


def page_header(data: memoryview, start: int) -> PageHeader:
    """The header of the page at ``start``."""
    plain = _PLAIN_PAGE.match(data, start)
    if plain is not None and (numbers := _plain_numbers(plain)) is not None:
        decoded, stored, values, encoding = numbers
        return PageHeader(DATA_PAGE, decoded, stored, values, encoding, plain.end())
    fields, end = _struct(data, start, [MAX_FIELD], 0)
    try:
        kind = fields[1]
        about = fields[_DESCRIBED_IN[kind]]
        numbers = fields[2], fields[3], about[1], about[_ENCODING[kind]]
        decoded, stored, values, encoding = [_count(number) for number in numbers]
    except (KeyError, IndexError, TypeError):
        raise ValueError("a page is of a kind that no writer writes") from None
    return PageHeader(kind, decoded, stored, values, encoding, end)


def _struct(data: memoryview, position: int, left: list[int], depth: int) -> tuple[Struct, int]:
    """(the struct that begins at ``position``, where it ends). ``left``: elements of lists."""
    _check_depth(depth)
    out: Struct = {}
    number = 0
    try:
        while header := data[position]:
            # A writer spells out only numbers that are 16 or more after the one before.
            if header < 16 or number > MAX_FIELD:
                raise ValueError("its fields are out of order")
            number += header >> 4
            kind = header & 15
            if kind in _INTEGERS:
                value = data[position + 1]
                position += 2
                if value > 127:
                    value, position = _varint(data, position - 1)
                out[number] = (value >> 1) ^ -(value & 1)
            elif kind == _BINARY and data[position + 1] <= 127:
                start = position + 2
                position = start + data[position + 1]
                if position > len(data):
                    raise IndexError
                out[number] = data[start:position]
            else:
                out[number], position = _value(data, kind, position + 1, left, depth + 1)
    except IndexError:
        raise ValueError("it is cut off") from None
    return out, position + 1


_INTEGERS = frozenset((_INT16, _INT32, _INT64))


def _check_depth(depth: int) -> None:
    if depth > MAX_DEPTH:
        raise ValueError("it is nested too deeply")


def _value(
    data: memoryview, kind: int, position: int, left: list[int], depth: int
) -> tuple[Any, int]:
    if kind == _BINARY:
        length, position = _varint(data, position)
        end = position + length
        if end > len(data):
            raise ValueError("it is cut off")
        return data[position:end], end
    if kind == _STRUCT:
        return _struct(data, position, left, depth)
    if kind == _LIST:
        _check_depth(depth)
        header = data[position]
        position += 1
        count, kind = header >> 4, header & 15
        if count == 15:
            count, position = _varint(data, position)
        left[0] -= count
        if left[0] < 0:
            raise ValueError("its footer describes more than a file of offsetlog has")
        # In a list a truth takes a byte of its own.
        kind = _BYTE if kind in (_TRUE, _FALSE) else kind
        out: list[Any] = []
        value: Any
        for _ in range(count):
            chunk = _PLAIN_CHUNK.match(data, position) if kind == _STRUCT else None
            numbers = None if chunk is None else _plain_numbers(chunk)
            if chunk is not None and numbers is not None:
                value, position = {3: numbers}, chunk.end()
            else:
                value, position = _value(data, kind, position, left, depth + 1)
            out.append(value)
        return out, position
    if kind in _INTEGERS:
        value, position = _varint(data, position)
        return (value >> 1) ^ -(value & 1), position
    if kind in (_TRUE, _FALSE):
        return kind == _TRUE, position
    width = {_BYTE: 1, _DOUBLE: 8}.get(kind)
    if width is None:
        raise ValueError(f"it holds a value of type {kind}, which Parquet does not have")
    return data[position : position + width], position + width


def _varint(data: bytes | memoryview, position: int) -> tuple[int, int]:
    """(the number, where it ends)."""
    value = shift = 0
    while True:
        byte = data[position]
        position += 1
        value |= (byte & 127) << shift
        if byte < 128:
            return value, position
        shift += 7
        if shift >= 7 * _LONGEST_VARINT:
            raise ValueError("it holds a number of too many digits")
