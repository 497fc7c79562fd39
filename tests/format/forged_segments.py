"""Segments that nobody of ours wrote, under sums that are right: by chance and by hand.

Both readers are asked the same of each (``by_python`` here, ``tests.spark_plugin.java`` for the
JVM's), and must come to the same verdict."""

from __future__ import annotations

import copy
import json
import random
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import xxhash

from offsetlog.core.topic.entry import SegmentRef
from offsetlog.core.topic.extents import Extent
from offsetlog.core.topic.plan import PlannedPiece
from offsetlog.engine.topic.reader import _segment_batches
from offsetlog.errors import CorruptLogError
from offsetlog.format import record_schema as rows
from offsetlog.format import segments
from offsetlog.format.segments import OpenSegment
from tests.format import forge
from tests.format.junk import JUNK

MIB = 1 << 20
COLUMNS = ("key", "value", "timestamp", "headers")
CODECS = ("none", "zstd", "snappy", "lz4", "gzip")
EXTREMES = (0, 1, -1, 7, 8, 15, 63, 64, 127, 255, 2**16, 2**31 - 1, 2**31, -(2**31), 2**32,
            2**40, 2**62, 2**63 - 1, -(2**63))  # fmt: skip


class Forged(NamedTuple):
    what: str
    data: bytes
    foot: int
    base: int
    end: int
    records: int

    @property
    def sum(self) -> str:
        return xxhash.xxh3_64_hexdigest(self.data[len(self.data) - self.foot :])

    @property
    def is_dense(self) -> bool:
        return self.end - self.base == self.records


def by_python(
    forged: Forged, columns: tuple[str, ...] = COLUMNS, start: int = 0, end: int = 2**62
) -> list[str] | None:
    """The rows as the JVM's program says them, or None where Python refuses the segment."""
    ref = SegmentRef(0, "a" * 32, len(forged.data), forged.foot, forged.sum)
    extent = Extent(
        0, forged.base, forged.end, forged.records, 0, 0, 0, 0, 0, "", 0, ref, not forged.is_dense
    )
    piece = PlannedPiece(extent, max(start, forged.base), min(end, forged.end))
    out: list[str] = []
    try:
        source = OpenSegment.whole(ref, forged.records, "it", forged.data)
        for batch in _segment_batches(piece, source, (*columns, "offset"), None, None):
            out += _said(batch.table, columns)
    except CorruptLogError:
        return None
    assert piece.may_have(len(out)), (forged.what, len(out))
    return out


def _said(table: pa.Table, columns: tuple[str, ...]) -> list[str]:
    words: dict[str, list[str]] = {}
    for letter, name in (("k", "key"), ("v", "value")):
        if name in columns:
            words[name] = [f"{letter}={text(value)}" for value in table.column(name).to_pylist()]
    if "timestamp" in columns:
        # The JVM counts microseconds.
        times = rows.milliseconds(table.column("timestamp")).tolist()
        words["timestamp"] = [f"t={time * 1000}" for time in times]
    if "headers" in columns:
        words["headers"] = [headers(some) for some in table.column("headers").to_pylist()]
    offsets = map(str, table.column("offset").to_pylist())
    each = [words[name] for name in ("key", "value", "timestamp", "headers") if name in words]
    return [" ".join(row) for row in zip(offsets, *each, strict=True)]


def text(value: Any) -> str:
    return (
        "-" if value is None else "'" + (value.encode() if isinstance(value, str) else value).hex()
    )


def headers(some: Any) -> str:
    pairs = "".join(f"{text(header['key'])}:{text(header['value'])}," for header in some or ())
    return "h=-" if some is None else f"h=[{pairs}]"


# --- sound ones ----------------------------------------------------------------------------


def table_of(count: int, gaps: bool, base: int = 40) -> pa.Table:
    """Records with and without keys and headers; with gaps every third offset is gone."""
    columns = {
        "key": pa.array([b"k%d" % n if n % 3 else None for n in range(count)], pa.binary()),
        "value": pa.array([b"v" * n if n % 5 else None for n in range(count)], pa.binary()),
        "headers": pa.array(
            [[{"key": "hé", "value": b"1"}, {"key": "", "value": None}][: n % 4] if n % 2 else None
             for n in range(count)],
            rows.HEADERS,
        ),
        "timestamp": pa.array([10**12 + 7 * n for n in range(count)], rows.TIMESTAMP),
    }  # fmt: skip
    if gaps:
        columns["offset"] = pa.array([base + n + n // 2 for n in range(count)], pa.int64())
    return pa.table(columns)


def forged_from(file: segments.EncodedSegment) -> Forged:
    """To be changed; its range is not known."""
    return Forged("sound", file.data, file.foot, 0, 0, 0)


def encoded(table: pa.Table, codec: str = "none", group: int = 4, **writing: Any) -> Forged:
    """Written as our writer does; ``writing`` overrides its settings of Parquet."""
    base, count, end = 40, table.num_rows, 40 + table.num_rows
    if "offset" in table.schema.names:
        end = 40 + count + count // 2
    with pytest.MonkeyPatch.context() as patch:
        usual = pq.ParquetWriter
        patch.setattr(pq, "ParquetWriter", lambda *a, **more: usual(*a, **{**more, **writing}))
        file = segments.encode(table, codec, group)
    return forged_from(file)._replace(base=base, end=end, records=count)


def sound(chance: random.Random) -> Forged:
    packed = {"column_encoding": {"timestamp": "DELTA_BINARY_PACKED"}}
    small = {"data_page_size": 1, "write_batch_size": 3}
    gaps = chance.random() < 0.5
    if gaps:
        packed["column_encoding"]["offset"] = "DELTA_BINARY_PACKED"
    return encoded(
        table_of(chance.choice((1, 7, 12)), gaps),
        chance.choice(CODECS),
        chance.choice((4, 5, 100)),
        **chance.choice(({}, packed)),
        **chance.choice(({}, small)),
    )


# --- taken apart ---------------------------------------------------------------------------


def field(struct: Any, number: int) -> Any:
    return next(one for one in struct if one[0] == number)


class Parts:
    """A segment's footer, and the pages of each column of each row group."""

    def __init__(self, forged: Forged) -> None:
        self.of = forged
        self.footer, _ = forge.footer_of(forged.data)
        self.pages = [
            [
                forged.data[field(about, 9)[2] :][: field(about, 7)[2]]
                for about in self.columns(group)
            ]
            for group in self.groups
        ]
        self.told: Callable[[Any], str] = lambda ranges: json.dumps(ranges, separators=(",", ":"))

    @property
    def groups(self) -> list[Any]:
        groups: list[Any] = field(self.footer, 4)[2][1]
        return groups

    def columns(self, group: Any) -> list[Any]:
        return [field(chunk, 3)[2] for chunk in field(group, 1)[2][1]]

    def leaf(self, path: str, group: int = 0) -> int:
        paths = [
            b".".join(field(about, 3)[2][1]).decode() for about in self.columns(self.groups[group])
        ]
        return paths.index(path)

    def put(self, path: str, pages: bytes, values: int, codec: int = forge.UNCOMPRESSED) -> None:
        """Other pages for a column of the first row group."""
        leaf = self.leaf(path)
        self.pages[0][leaf] = pages
        about = self.columns(self.groups[0])[leaf]
        field(about, 4)[2], field(about, 5)[2] = codec, values

    def tell(self, path: str, greatest: bytes, group: int = 0) -> None:
        """Another greatest value in the footer's statistics."""
        about = self.columns(self.groups[group])[self.leaf(path)]
        for one in field(about, 12)[2]:
            if one[0] in (1, 5):
                one[2] = greatest

    def together(self, what: str, footer: Callable[[bytes], bytes] = bytes) -> Forged:
        """The file, with sums that are right; ``footer`` changes the bytes of the footer."""
        body, ranges = bytearray(b"PAR1"), []
        for group, pages in zip(self.groups, self.pages, strict=True):
            start = len(body)
            for about, stored in zip(self.columns(group), pages, strict=True):
                with suppress(StopIteration):
                    field(about, 9)[2], field(about, 7)[2] = len(body), len(stored)
                body += stored
            records = next((one[2] for one in group if one[0] == 3), 1)
            ranges.append([start, len(body), xxhash.xxh3_64_hexdigest(body[start:]), records])
        for pair in field(self.footer, 5)[2][1]:
            if field(pair, 1)[2] == b"offsetlog.groups":
                field(pair, 2)[2] = self.told(ranges).encode()
        raw = footer(forge.dump(self.footer))
        foot = raw + len(raw).to_bytes(4, "little") + b"PAR1"
        return self.of._replace(what=what, data=bytes(body) + foot, foot=len(foot))


# --- by chance -----------------------------------------------------------------------------


def mutated(chance: random.Random, forged: Forged) -> Forged:
    """The same with a few things changed."""
    way = chance.choice(
        [_bytes, _bytes, _splice, _pages, _headers, _footer, _footer, _groups, _numbers]
    )
    return way(chance, forged)


def _again(forged: Forged, what: str, data: bytes) -> Forged:
    """The same length, with sums that are right."""
    body = len(data) - forged.foot
    foot = data[body:]
    raw = pq.read_metadata(pa.BufferReader(forged.data)).metadata[b"offsetlog.groups"]
    for start, end, old, _ in json.loads(raw):
        foot = foot.replace(old.encode(), xxhash.xxh3_64_hexdigest(data[start:end]).encode())
    return forged._replace(what=what, data=data[:body] + foot)


def _bytes(chance: random.Random, forged: Forged) -> Forged:
    data, body = bytearray(forged.data), len(forged.data) - forged.foot
    low, high = chance.choice(((4, body), (body, len(data))))
    places = [chance.randrange(low, high) for _ in range(chance.choice((1, 1, 1, 2, 4)))]
    for at in places:
        new = chance.choice((0, 1, 127, 128, 255, data[at] ^ 1 << chance.randrange(8)))
        data[at] = chance.choice((new, chance.randrange(256)))
    return _again(forged, f"bytes {places}", bytes(data))


def _splice(chance: random.Random, forged: Forged) -> Forged:
    data, body = bytearray(forged.data), len(forged.data) - forged.foot
    length = chance.randrange(1, 30)
    source, target = (chance.randrange(4, max(5, body - length)) for _ in range(2))
    data[target : target + length] = data[source : source + length]
    return _again(
        forged, f"{length} bytes at {source} to {target}", bytes(data[: len(forged.data)])
    )


def _pages_of(data: bytes) -> list[bytes]:
    out, at = [], 0
    while at < len(data):
        header, end = forge.parse(data, at)
        stop = end + field(header, 3)[2]
        out.append(data[at:stop])
        at = stop
    return out


def _pages(chance: random.Random, forged: Forged) -> Forged:
    """Pages lost, twice, cut, or in another order; or a column that is another one's."""
    parts = Parts(forged)
    group = chance.choice(parts.pages)
    leaf = chance.randrange(len(group))
    pages, way = _pages_of(group[leaf]), chance.randrange(5)
    at = chance.randrange(len(pages))
    if way == 0:
        del pages[at]
    elif way == 1:
        pages.insert(at, chance.choice(pages))
    elif way == 2:
        pages[at] = pages[at][: chance.randrange(len(pages[at]))]
    elif way == 3:
        chance.shuffle(pages)
    else:
        pages = _pages_of(chance.choice(group))
    group[leaf] = b"".join(pages)
    return parts.together(f"pages {way} of leaf {leaf}")


def _headers(chance: random.Random, forged: Forged) -> Forged:
    """The header of a page."""
    parts = Parts(forged)
    group = chance.choice(parts.pages)
    leaf = chance.randrange(len(group))
    pages = _pages_of(group[leaf])
    at = chance.randrange(len(pages))
    header, end = forge.parse(pages[at])
    what = wild(chance, header)
    with suppress(TypeError, OverflowError):
        pages[at] = forge.dump(header) + pages[at][end:]
    group[leaf] = b"".join(pages)
    return parts.together(f"page {at} of leaf {leaf}: {what}")


def _footer(chance: random.Random, forged: Forged) -> Forged:
    parts = Parts(forged)
    footer = copy.deepcopy(parts.footer)
    what = [wild(chance, footer) for _ in range(chance.choice((1, 1, 2)))]

    def change(raw: bytes) -> bytes:
        # Places and sums are those of the sound footer.
        with suppress(TypeError, OverflowError, AttributeError):
            return forge.dump(footer)
        return raw

    body = forged.data[: len(forged.data) - forged.foot]
    raw = change(b"")
    if chance.random() < 0.1:
        raw += chance.choice((b"\0", b"\x15\x02\0", chance.randbytes(3)))
    foot = raw + len(raw).to_bytes(4, "little") + b"PAR1"
    return forged._replace(what=f"footer: {what}", data=body + foot, foot=len(foot))


def wild(chance: random.Random, struct: Any) -> str:
    """One thing in a struct, or within it, changed in place."""
    path: list[int] = []
    while True:
        place = chance.randrange(len(struct)) if struct else 0
        if not struct:
            struct.append([chance.randrange(1, 9), forge.I32, 5])
            return f"{path} grows"
        number, kind, value = struct[place]
        path.append(number)
        inner = None
        if kind == forge.STRUCT:
            inner = value
        elif kind == forge.LIST and value[0] == forge.STRUCT and value[1]:
            inner = chance.choice(value[1])
        if inner is not None and chance.random() < 0.85:
            struct = inner
            continue
        way = chance.choice(
            ("drop", "twice", "swap", "type", "value", "value", "value", "unknown", "number")
        )
        if way == "drop":
            del struct[place]
        elif way == "twice":
            struct.insert(place, copy.deepcopy(struct[place]))
        elif way == "swap":
            other = chance.randrange(len(struct))
            struct[place], struct[other] = struct[other], struct[place]
        elif way == "type" and kind in forge.INTEGERS:
            struct[place][1] = chance.choice(forge.INTEGERS)
        elif way == "number":
            struct[place][0] = chance.choice((number + 1, number + 20, 65, 80, 200))
        elif way == "unknown":
            strange = [
                [number + 1, forge.I64, 3], [number + 1, forge.BINARY, b"x"],
                [number + 1, forge.TRUE, None], [number + 1, forge.STRUCT, [[1, forge.I32, 1]]],
                [number + 1, forge.LIST, (forge.I32, [1, 2])], [number + 1, forge.MAP, b"\0"],
                [number + 1, forge.DOUBLE, bytes(8)], [number + 1, 13, b""],
            ]  # fmt: skip
            struct.insert(place + 1, chance.choice(strange))
        elif kind in forge.INTEGERS:
            near = (value + 1, value - 1, 0, -value)
            struct[place][2] = chance.choice((*near, *EXTREMES))
        elif kind == forge.BINARY:
            struct[place][2] = chance.choice(
                (b"", value[:-1], value + b"x", value.upper(), b"\xff" * 8, bytes(8))
            )
        elif kind == forge.LIST:
            struct[place][2] = chance.choice(
                ((value[0], value[1][:-1]), (value[0], [*value[1], *value[1]]), (forge.I32, [1]))
            )
        return f"{path} {way}"


def _groups(chance: random.Random, forged: Forged) -> Forged:
    """What the foot says of ranges and sums."""
    parts = Parts(forged)

    def told(ranges: Any) -> str:
        one = chance.choice(ranges)
        at = chance.randrange(4)
        way = chance.randrange(7)
        if way == 0:
            one[2] = one[2].upper()
        elif way == 1 and at != 2:
            one[at] = chance.choice((*EXTREMES, one[at] + 1, float(one[at])))
        elif way == 2:
            one[at] = chance.choice(JUNK)
        elif way == 3:
            ranges.append(one)
        elif way == 4:
            one.append(1)
        elif way == 5:
            return json.dumps(ranges) + chance.choice(("", " ", "x", "[]"))
        return json.dumps(ranges, separators=(",", ":"))

    parts.told = told
    return parts.together("groups")


def _numbers(chance: random.Random, forged: Forged) -> Forged:
    """Times, and offsets where there are any: nulls, repeated, swapped, out of their place."""
    table = table_of(forged.records, not forged.is_dense)
    name = chance.choice([name for name in ("timestamp", "offset") if name in table.schema.names])
    at = table.schema.names.index(name)
    numbers: list[Any] = table.column(at).cast(pa.int64()).to_pylist()
    first, second = (chance.randrange(len(numbers)) for _ in range(2))
    way = chance.randrange(7)
    if way == 0:
        numbers[first] = None
    elif way == 1:
        numbers[first] = numbers[second]
    elif way == 2:
        numbers[first], numbers[second] = numbers[second], numbers[first]
    elif way == 3:
        numbers = [number + chance.choice((1000, -1000)) for number in numbers]
    elif way == 4:
        numbers.reverse()
    elif way == 5:
        numbers[first] = chance.choice(EXTREMES)
    else:
        numbers[first] += chance.choice((-2, -1, 1, 2))
    with suppress(pa.ArrowInvalid, OverflowError):
        table = table.set_column(
            at, name, pa.array(numbers, pa.int64()).cast(table.schema.types[at])
        )
    other = unchecked(table, chance.choice((4, 5, 100)))
    return other._replace(what=f"{name} {way}", end=forged.end)


def unchecked(table: pa.Table, group: int = 4, columns: tuple[str, ...] = ()) -> Forged:
    """A segment of whatever the table has; without ``columns``."""
    left = [name for name in columns if name in table.schema.names]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(segments, "_is_dense", lambda offsets: False)
        out = encoded(table.drop_columns(left), "none", group)
    return out._replace(
        end=40 + table.num_rows + table.num_rows // 2 if "offset" in table.schema.names else out.end
    )


# --- by hand -------------------------------------------------------------------------------


def extremes() -> Iterator[Forged]:
    """Each made when it is its turn. No reader gives a row of any of them."""
    for gaps in (False, True):
        yield from _deep(gaps)
        yield from _long(gaps)
        yield from _told(gaps)
        yield from _without(gaps)
    yield from _offsets()


def small_extremes() -> Iterator[Forged]:
    """Those that cost nothing to make."""
    for gaps in (False, True):
        yield from _told(gaps)
        yield from _without(gaps)
        yield _parts(gaps).together("lists in lists", partial(_with_lists, 20_000))
    yield from _offsets()


def _with_lists(deep: int, raw: bytes) -> bytes:
    return raw[:-1] + b"\x19" * (deep + 1) + b"\x03\0"


def _parts(gaps: bool, group: int = 100) -> Parts:
    return Parts(encoded(table_of(7, gaps), "none", group))


def _deep(gaps: bool) -> Iterator[Forged]:
    deep = 20_000
    for what, head, inner in (
        ("lists", b"\x19", b"\x19" * deep + b"\x03"),
        ("maps", b"\x1b", b"\x01\xbb" * deep + b"\0"),
        ("structs", b"\x1c", b"\x1c" * deep + bytes(deep + 1)),
        ("sets", b"\x1a", b"\x1a" * deep + b"\x03"),
    ):
        yield _parts(gaps).together(
            f"{what} in {what}", lambda raw: raw[:-1] + head + inner + b"\0"
        )
    for what, empty in (("lists", b"\x19\xf9"), ("structs", b"\x19\xfc"), ("numbers", b"\x19\xf5")):
        many = empty + forge.varint(6_000_000) + bytes(6_000_000)
        yield _parts(gaps).together(f"6,000,000 empty {what}", lambda raw: raw[:-1] + many + b"\0")
    parts = _parts(gaps)
    pages = parts.pages[0][parts.leaf("value")]
    _, end = forge.parse(pages)
    header = pages[: end - 1] + b"\x19" + b"\x19" * deep + b"\x03\0"
    parts.put("value", header + pages[end:], 7)
    yield parts.together("lists in lists in the header of a page")


def _long(gaps: bool) -> Iterator[Forged]:
    for many in (2**31 - 1, 200_000_000):
        parts = _parts(gaps)
        for leaf in ("key", "value"):
            repeated = forge.levels(forge.run(7, 0), forge.run(many - 7, 1))
            stored = repeated + forge.levels(forge.run(many, 3))
            parts.put(f"headers.list.element.{leaf}", forge.page(stored, len(stored), many), many)
        yield parts.together(f"{many} headers in runs")
    parts = _parts(gaps)
    for leaf in ("key", "value"):
        some = forge.levels(forge.run(7, 0)) + forge.levels(forge.run(7, 0))
        rest = forge.levels(forge.run(2**31 - 1, 1)) + forge.levels(forge.run(2**31 - 1, 3))
        pages = forge.page(some, len(some), 7) + forge.page(rest, len(rest), 2**31 - 1)
        parts.put(f"headers.list.element.{leaf}", pages, 7 + 2**31 - 1)
    yield parts.together("two pages of headers whose sum overflows")
    for name in ("value", "timestamp"):
        for values in (2**31 - 1, 2**62):
            parts = _parts(gaps)
            stored = forge.levels(forge.run(2**31 - 1, 0))
            parts.put(name, forge.page(stored, len(stored), 2**31 - 1), values)
            yield parts.together(f"{values} values of {name} in a run")
        parts = _parts(gaps)
        pages = parts.pages[0][parts.leaf(name)]
        header, end = forge.parse(pages)
        field(header, 2)[2] = 2**31 - 1
        parts.put(name, forge.dump(header) + pages[end:], 7, forge.ZSTD)
        yield parts.together(f"a page of {name} that says 2 GiB")
    for name in ("key", "value", "headers.list.element.value", *(["offset"] if gaps else [])):
        parts = _parts(gaps)
        size = 255 * MIB
        frame = forge.zstd_frame((size - 4).to_bytes(4, "little"), size - 4)
        empty = forge.page(frame, size, 0) * 20
        count = field(parts.columns(parts.groups[0])[parts.leaf(name)], 5)[2]
        pages = parts.pages[0][parts.leaf(name)]
        header, end = forge.parse(pages)
        packed = forge.zstd_frame(pages[end:])
        field(header, 3)[2] = len(packed)
        parts.put(name, empty + forge.dump(header) + packed, count, forge.ZSTD)
        yield parts.together(f"20 pages of {name} with 255 MiB of zeros and no rows")
    parts = _parts(gaps)
    size = 160 * MIB
    word = forge.levels(forge.run(1, 1)) + size.to_bytes(4, "little")
    long_page = forge.page(forge.zstd_frame(word, size), len(word) + size, 1)
    parts.put("value", long_page * 7, 7, forge.ZSTD)
    yield parts.together("seven values of 160 MiB of zeros")


def _told(gaps: bool) -> Iterator[Forged]:
    """What the footer says."""
    yield _parts(gaps).together("bytes behind the footer", lambda raw: raw + b"\0")
    parts = _parts(gaps)
    parts.told = lambda ranges: json.dumps(
        [[start, end, total.upper(), count] for start, end, total, count in ranges],
        separators=(",", ":"),
    )
    yield parts.together("sums in capitals")
    for what, number, value in (
        ("another file", 1, [1, forge.BINARY, b"elsewhere"]),
        ("a place that is a text", 2, [2, forge.BINARY, b"x"]),
    ):
        parts = _parts(gaps)
        chunk = field(parts.groups[0], 1)[2][1][0]
        chunk[:] = sorted(
            [one for one in chunk if one[0] != number] + [value], key=lambda one: one[0]
        )
        yield parts.together(what)
    for what, number in (("codec", 4), ("values", 5), ("size", 7)):
        parts = _parts(gaps)
        yield parts.together(f"a negative {what}", partial(_negative, parts, number))
    for name, number, logical in (
        ("value", 1, []),
        ("timestamp", 8, _time(forge.TRUE, 2)),
        ("timestamp", 8, _time(forge.FALSE, 1)),
    ):
        parts = _parts(gaps)
        element = next(
            one for one in field(parts.footer, 2)[2][1] if field(one, 4)[2] == name.encode()
        )
        element[:] = [one for one in element if one[0] != 10]
        element.append([10, forge.STRUCT, [[number, forge.STRUCT, logical]]])
        yield parts.together(f"{name} as {number}: {logical}")


def _negative(parts: Parts, number: int, raw: bytes) -> bytes:
    field(parts.columns(parts.groups[0])[0], number)[2] = -1
    return forge.dump(parts.footer)


def _time(is_utc: int, unit: int) -> Any:
    return [[1, is_utc, None], [2, forge.STRUCT, [[unit, forge.STRUCT, []]]]]


def _without(gaps: bool) -> Iterator[Forged]:
    table = table_of(7, gaps)
    for name in ("value", "timestamp", *(["offset"] if gaps else [])):
        out = unchecked(table, columns=(name,))
        yield out._replace(what=f"no column {name}", end=40 + 7 + 3 if gaps else out.end)
    for name in ("timestamp", *(["offset"] if gaps else [])):
        at = table.schema.names.index(name)
        column = table.column(at).to_pylist()
        column[3] = None
        nulls = table.set_column(at, name, pa.array(column, table.schema.types[at]))
        yield unchecked(nulls)._replace(what=f"a null in {name}")
    for what, header in (("null header", [None]), ("name that is no text", None)):
        lists = pa.array([header] * 7, rows.HEADERS)
        if header is None:
            names = pa.array([b"\xff"] * 7).view(pa.string())
            pairs = pa.StructArray.from_arrays([names, pa.array([b"x"] * 7)], ["key", "value"])
            lists = pa.ListArray.from_arrays(list(range(8)), pairs).cast(rows.HEADERS, safe=False)
        column = table.set_column(2, "headers", lists)
        yield unchecked(column)._replace(what=f"a {what}")


def _offsets() -> Iterator[Forged]:
    """Twelve records, every third offset is gone: 40, 41, 43, 44, ... 56, in [40, 58)."""
    table = table_of(12, True)
    right = table.column("offset").to_pylist()
    swapped, twice, past = [right.copy() for _ in range(3)]
    swapped[4], swapped[5] = swapped[5], swapped[4]
    twice[5] = twice[4]
    past[-1] = 1_000_000
    wrong = {
        "all too high": [offset + 1000 for offset in right],
        "all too low": [offset - 20 for offset in right],
        "all the same": [45] * 12,
        "descending": right[::-1],
        "below the base": [39, *right[1:]],
        "swapped": swapped,
        "twice": twice,
        "past the end": past,
        "negative": [-(2**63), *right[1:]],
    }
    at = table.schema.names.index("offset")
    for what, offsets in wrong.items():
        for group in (4, 100):
            column = pa.array(offsets, pa.int64())
            yield unchecked(table.set_column(at, "offset", column), group)._replace(
                what=f"offsets {what}, {group} a row group"
            )
    for what, value in (
        ("too high", 57),
        ("too low", 41),
        ("negative", -1),
        ("missing digits", None),
    ):
        parts = Parts(encoded(table, "none", 4))
        told = b"" if value is None else value.to_bytes(8, "little", signed=True)
        parts.tell("offset", told, 1)
        yield parts.together(f"a footer that says offsets {what}")
