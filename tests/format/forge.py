"""Parquet files of which every number can be a lie: Thrift's compact protocol as trees.

A struct is a list of ``[field, type, value]``; a list is ``(type of its elements, values)``. What
``parse`` gives ``dump`` writes back, byte for byte.
"""

from __future__ import annotations

from typing import Any

import xxhash

from offsetlog.format.parquet import SEAL, SEAL_MARK

TRUE, FALSE, BYTE, I16, I32, I64, DOUBLE, BINARY, LIST, SET, MAP, STRUCT = range(1, 13)
INTEGERS = (I16, I32, I64)
PLAIN, RLE, DELTA_PACKED, DELTA_BYTES, RLE_DICTIONARY = 0, 3, 5, 7, 8
UNCOMPRESSED, ZSTD = 0, 6
Struct = list[list[Any]]


def varint(number: int, more: int = 0) -> bytes:
    """``more``: bytes that say nothing."""
    out = bytearray()
    while number > 127 or more > 0:
        out.append(number & 127 | 128)
        number >>= 7
        more -= 1
    return bytes([*out, number])


def zigzag(number: int) -> bytes:
    return varint(((number << 1) ^ (number >> 63)) & 2**64 - 1)


def dump(struct: Struct) -> bytes:
    out, last = bytearray(), 0
    for number, kind, value in struct:
        if 0 < number - last < 16:
            out.append((number - last) << 4 | kind)
        else:
            out += bytes([kind]) + zigzag(number)
        last = number
        out += _value(kind, value)
    return bytes(out) + b"\0"


def _value(kind: int, value: Any) -> bytes:
    if kind in INTEGERS:
        return zigzag(value)
    if kind == BINARY:
        return varint(len(value)) + value
    if kind == STRUCT:
        return dump(value)
    if kind == LIST:
        inner, items = value
        head = bytes([len(items) << 4 | inner]) if len(items) < 15 else b""
        head = head or bytes([0xF0 | inner]) + varint(len(items))
        flat = inner in (TRUE, FALSE)
        return head + b"".join(bytes([i]) if flat else _value(inner, i) for i in items)
    return b"" if kind in (TRUE, FALSE) else bytes(value)


def parse(data: bytes, position: int = 0) -> tuple[Struct, int]:
    """(the struct at a position, where it ends)."""
    out: Struct = []
    number = 0
    while header := data[position]:
        position += 1
        if header >> 4:
            number += header >> 4
        else:
            raw, position = _number(data, position)
            number = (raw >> 1) ^ -(raw & 1)
        value, position = _parsed(data, header & 15, position)
        out.append([number, header & 15, value])
    return out, position + 1


def _number(data: bytes, position: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = data[position]
        position += 1
        value |= (byte & 127) << shift
        shift += 7
        if byte < 128:
            return value, position


def _parsed(data: bytes, kind: int, position: int) -> tuple[Any, int]:
    if kind in INTEGERS:
        raw, position = _number(data, position)
        return (raw >> 1) ^ -(raw & 1), position
    if kind == BINARY:
        length, position = _number(data, position)
        return data[position : position + length], position + length
    if kind == STRUCT:
        return parse(data, position)
    if kind == LIST:
        count, inner = data[position] >> 4, data[position] & 15
        position += 1
        if count == 15:
            count, position = _number(data, position)
        items = []
        for _ in range(count):
            if inner in (TRUE, FALSE):
                item, position = data[position], position + 1
            else:
                item, position = _parsed(data, inner, position)
            items.append(item)
        return (inner, items), position
    width = {BYTE: 1, DOUBLE: 8}.get(kind, 0)
    return data[position : position + width], position + width


def footer_of(data: bytes) -> tuple[Struct, int]:
    """(the footer of a file, where it begins)."""
    start = len(data) - 8 - int.from_bytes(data[-8:-4], "little")
    footer, _ = parse(data, start)
    return footer, start


def with_footer(body: bytes, footer: Struct) -> bytes:
    """A whole file; its seal, if it has one, is right again."""
    raw = dump(footer)
    return sealed_again(body + raw + len(raw).to_bytes(4, "little") + b"PAR1")


def sealed_again(data: bytes) -> bytes:
    at = data.rfind(SEAL_MARK) + len(SEAL_MARK)
    if at < len(SEAL_MARK):
        return data
    out = bytearray(data)
    out[at : at + 16] = b"0" * 16
    out[at : at + 16] = xxhash.xxh3_64_hexdigest(bytes(out)).encode()
    return bytes(out)


def zstd_frame(first: bytes, zeros: int = 0) -> bytes:
    """What unfolds to these bytes and so many zeros, four bytes for each 128 KiB of them."""
    block = 1 << 17
    whole, rest = divmod(zeros, block)
    lengths = [block] * whole + ([rest] if rest else [])
    out = bytearray(b"\x28\xb5\x2f\xfd\x00\x58")
    out += (len(first) << 3 | (not lengths)).to_bytes(3, "little") + first
    for place, length in enumerate(lengths):
        is_last = place == len(lengths) - 1
        out += (length << 3 | 1 << 1 | is_last).to_bytes(3, "little") + b"\0"
    return bytes(out)


def run(count: int, level: int) -> bytes:
    """So many equal levels, as RLE has them."""
    return varint(count << 1) + bytes([level])


def levels(*runs: bytes) -> bytes:
    raw = b"".join(runs)
    return len(raw).to_bytes(4, "little") + raw


def delta_packed(numbers: list[int]) -> bytes:
    """DELTA_BINARY_PACKED."""
    deltas = [b - a for a, b in zip(numbers, numbers[1:], strict=False)]
    out = varint(128) + varint(4) + varint(len(numbers)) + zigzag(numbers[0])
    for start in range(0, len(deltas), 128):
        block = deltas[start : start + 128]
        least = min(block)
        rest = [delta - least for delta in block] + [0] * (128 - len(block))
        width = max(rest).bit_length()
        out += zigzag(least) + bytes([width] * 4)
        packed = sum(value << width * place for place, value in enumerate(rest))
        out += packed.to_bytes(16 * width, "little")
    return out


def page(stored: bytes, decoded: int, values: int, encoding: int = PLAIN, kind: int = 0) -> bytes:
    """A page of data (``kind`` 0) or of a dictionary (2)."""
    about: Struct = [[1, I32, values], [2, I32, encoding]]
    if kind == 0:
        about += [[3, I32, RLE], [4, I32, RLE]]
    numbers = [[1, I32, kind], [2, I32, decoded], [3, I32, len(stored)]]
    return dump([*numbers, [5 if kind == 0 else 7, STRUCT, about]]) + stored


def column_file(
    name: str,
    pages: bytes,
    rows: int,
    *,
    physical: int = 6,
    codec: int = UNCOMPRESSED,
    values: int | None = None,
    dictionary_at: int | None = None,
    data_at: int = 4,
    metadata: dict[str, str] | None = None,
    is_required: bool = True,
    is_sealed: bool = True,
) -> bytes:
    """A file with one column, whose pages are given; ``physical`` 6 is bytes, 2 is int64."""
    about: Struct = [
        [1, I32, physical], [2, LIST, (I32, [PLAIN, RLE])], [3, LIST, (BINARY, [name.encode()])],
        [4, I32, codec], [5, I64, rows if values is None else values], [6, I64, 100],
        [7, I64, len(pages)], [9, I64, data_at],
    ]  # fmt: skip
    if dictionary_at is not None:
        about.append([11, I64, dictionary_at])
    root = [[4, BINARY, b"schema"], [5, I32, 1]]
    leaf = [[1, I32, physical], [3, I32, 0 if is_required else 1], [4, BINARY, name.encode()]]
    group = [
        [1, LIST, (STRUCT, [[[2, I64, 4], [3, STRUCT, about]]])],
        [2, I64, 100],
        [3, I64, rows],
    ]
    told = dict(metadata or {})
    if is_sealed:
        told[SEAL] = "0" * 16
    pairs = [
        [[1, BINARY, key.encode()], [2, BINARY, value.encode()]] for key, value in told.items()
    ]
    footer: Struct = [
        [1, I32, 2], [2, LIST, (STRUCT, [root, leaf])], [3, I64, rows],
        [4, LIST, (STRUCT, [group])], [5, LIST, (STRUCT, pairs)],
    ]  # fmt: skip
    return with_footer(b"PAR1" + pages, footer)


def with_column(
    data: bytes,
    path: str,
    pages: bytes,
    values: int,
    codec: int = UNCOMPRESSED,
    data_page: int = 0,
) -> bytes:
    """The same file with other pages for a column of its first row group; the page of data begins
    ``data_page`` bytes behind the first, which is a dictionary then."""
    footer, start = footer_of(data)
    groups = next(field[2] for field in footer if field[0] == 4)[1]
    chunks = next(field[2] for field in groups[0] if field[0] == 1)[1]
    for chunk in chunks:
        about = next(field for field in chunk if field[0] == 3)
        known = {field[0]: field for field in about[2]}
        if b".".join(known[3][2][1]).decode() != path:
            continue
        known[4][2], known[5][2], known[7][2] = codec, values, len(pages)
        known[9][2] = start + data_page
        known.pop(11, None)
        if data_page:
            known[11] = [11, I64, start]
        about[2] = [known[number] for number in sorted(known)]
    return with_footer(data[:start] + pages, footer)
