"""The JVM's decoder of segments against pyarrow, without Spark: what it gives is what is stored,
and what it can't give it leaves to Python, whatever the bytes are."""

from __future__ import annotations

import json
import random
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import xxhash
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from offsetlog.format import record_schema as rows
from offsetlog.format import segments
from offsetlog.format.segments import EncodedSegment
from tests.format.forged_segments import headers as said_headers
from tests.format.forged_segments import text
from tests.spark_plugin.java.decoder import Answer, Decoder, decoder

pytestmark = pytest.mark.skipif(shutil.which("javac") is None, reason="there is no javac")

ALL = ("key", "value", "timestamp", "headers")
BOUNDED = settings(
    max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
HEADERS = st.lists(
    st.fixed_dictionaries(
        {
            "key": st.one_of(st.none(), st.text(max_size=3)),
            "value": st.one_of(st.none(), st.binary(max_size=3)),
        }
    ),
    max_size=3,
)
RECORD = st.tuples(
    st.one_of(st.none(), st.binary(max_size=6)),
    st.one_of(st.none(), st.binary(max_size=40), st.just(b"a" * 5000)),
    st.one_of(st.none(), HEADERS),
    st.integers(-(10**12), 10**13),
    st.integers(1, 4),
)


@pytest.fixture(scope="module")
def jvm(jar: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Decoder]:
    with decoder(jar, tmp_path_factory.mktemp("classes")) as process:
        yield process


@pytest.fixture
def place(tmp_path: Path) -> Path:
    return tmp_path / "segment.parquet"


class Stored:
    """A segment of records, as it was encoded, and each of its rows as the decoder would say it."""

    def __init__(self, records: list[Any], base: int, gaps: bool, encoded: EncodedSegment) -> None:
        self.data, self.foot, self.sum = encoded.data, encoded.foot, encoded.sum
        self.base, self.count = base, len(records)
        steps = [step if gaps else 1 for *_, step in records]
        self.offsets = [base + sum(steps[:i]) for i in range(len(records))]
        # A range without a gap counts up; with a single record missing it is stored.
        self.end = self.offsets[-1] + 1
        self.records = records

    def expected(self, start: int, end: int, columns: tuple[str, ...]) -> list[str]:
        return [
            said(offset, record, columns)
            for offset, record in zip(self.offsets, self.records, strict=True)
            if start <= offset < end
        ]

    def ask(self, jvm: Decoder, place: Path, columns: tuple[str, ...], *, start: int = 0,
            end: int = 2**62) -> Answer:  # fmt: skip
        place.write_bytes(self.data)
        low, high = max(start, self.base), min(end, self.end)
        return jvm.rows(place, columns, low, high, self.base, self.end, self.count,
                        len(self.data), self.foot, self.sum)  # fmt: skip


def said(offset: int, record: Any, columns: tuple[str, ...]) -> str:
    key, value, headers, time, _ = record
    words = {"key": f"k={text(key)}", "value": f"v={text(value)}", "timestamp": f"t={time * 1000}"}
    words["headers"] = said_headers(headers)
    return " ".join([str(offset), *(words[name] for name in ALL if name in columns)])


def stored(
    records: list[Any], base: int = 0, gaps: bool = False, codec: str = "zstd", group: int = 65536,
    **writing: Any,
) -> Stored:  # fmt: skip
    """Written as our writer does; ``writing`` overrides its settings of Parquet."""
    keys, values, headers, times, _ = zip(*records, strict=True)
    kinds = {field.name: field.type for field in rows.ROWS}
    columns = zip(kinds, (keys, values, headers, times), strict=True)
    table = pa.table({name: pa.array(data, kinds[name]) for name, data in columns})
    steps = [step if gaps else 1 for *_, step in records]
    offsets = [base + sum(steps[:i]) for i in range(len(records))]
    if offsets[-1] + 1 - base != len(records):
        table = table.append_column(rows.OFFSET, pa.array(offsets, pa.int64()))
    with pytest.MonkeyPatch.context() as patch:
        usual = pq.ParquetWriter
        patch.setattr(pq, "ParquetWriter", lambda *a, **more: usual(*a, **{**more, **writing}))
        return Stored(records, base, gaps, segments.encode(table, codec, group))


@given(
    records=st.lists(RECORD, min_size=1, max_size=40),
    base=st.sampled_from([0, 7, 2**40]),
    gaps=st.booleans(),
    codec=st.sampled_from(["zstd", "snappy", "lz4", "gzip", "none"]),
    group=st.integers(1, 50),
    page=st.sampled_from([1, 100, 1024 * 1024]),
    packed=st.booleans(),
    columns=st.sets(st.sampled_from(ALL)).map(lambda some: tuple(sorted(some)) or ("offset",)),
    cut=st.tuples(st.integers(0, 60), st.integers(0, 60)),
)
@example([(None, None, None, 0, 1)], 0, False, "none", 1, 1, False, ALL, (0, 60))
@example([(b"", b"", [], 5, 2)] * 3, 7, True, "zstd", 2, 1, True, ALL, (1, 5))
@BOUNDED
def test_it_gives_what_is_stored(
    jvm: Decoder, place: Path, records: list[Any], base: int,
    gaps: bool, codec: str, group: int, page: int, packed: bool, columns: tuple[str, ...],
    cut: tuple[int, int],
) -> None:  # fmt: skip
    writing: dict[str, Any] = {"data_page_size": page, "write_batch_size": 3}
    if packed:
        writing["column_encoding"] = {"timestamp": "DELTA_BINARY_PACKED"}
    segment = stored(records, base, gaps, codec, group, **writing)
    start, end = base + min(cut), base + max(cut)
    answer = segment.ask(jvm, place, columns, start=start, end=end)
    assert answer.end == "end"
    assert answer.rows == segment.expected(start, end, columns)


def test_offsets_may_be_packed(jvm: Decoder, place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rng = random.Random(5)
    records = [(None, b"%d" % i, None, rng.randrange(10**12), rng.choice((1, 2, 10**9)))
               for i in range(2000)]  # fmt: skip
    both = {"timestamp": "DELTA_BINARY_PACKED", "offset": "DELTA_BINARY_PACKED"}
    segment = stored(records, 3, True, "zstd", 700, column_encoding=both)
    low, high = segment.offsets[650], segment.offsets[1500]
    answer = segment.ask(jvm, place, ALL, start=low, end=high)
    assert answer.end == "end" and answer.rows == segment.expected(low, high, ALL)


@pytest.mark.parametrize(
    "writing",
    [
        {"data_page_version": "2.0"},
        {"use_dictionary": ["value"]},
        {"column_encoding": {"value": "DELTA_LENGTH_BYTE_ARRAY"}},
        {"compression": "brotli", "compression_level": None},
    ],
)
def test_what_it_does_not_know_it_leaves_to_python(
    jvm: Decoder, place: Path, writing: dict[str, Any]
) -> None:
    records = [(b"k", b"value" * 9, None, i, 1) for i in range(50)]
    answer = stored(records, **writing).ask(jvm, place, ALL)
    assert answer.rows == [] and answer.reached == 0 and answer.end != "end"


def small() -> list[Stored]:
    records = [(b"k%d" % i if i % 3 else None, b"value %d" % i,
                [{"key": "h", "value": None}, {"key": "é", "value": b""}] if i % 2 else None,
                1000 + i, 2)
               for i in range(7)]  # fmt: skip
    return [stored(records, codec="none", group=3), stored(records, gaps=True, group=4)]


def test_every_flipped_bit_and_every_cut_is_found(jvm: Decoder, place: Path) -> None:
    for segment in small():
        whole, rng = segment.data, random.Random(1)
        sound = segment.ask(jvm, place, ALL).rows
        assert len(sound) == 7
        for at in range(len(whole)):
            flipped = whole[at] ^ (1 << rng.randrange(8))
            segment.data = whole[:at] + bytes([flipped]) + whole[at + 1 :]
            answer = segment.ask(jvm, place, ALL)
            assert answer.end != "end", at
            # What was given before the fault is right.
            assert answer.rows == sound[: len(answer.rows)]
        for length in range(0, len(whole), 7):
            place.write_bytes(whole[:length])
            answer = jvm.rows(place, ALL, segment.base, segment.end, segment.base, segment.end,
                              segment.count, len(whole), segment.foot, segment.sum)  # fmt: skip
            assert (answer.rows, answer.end != "end") == ([], True)


def test_forged_bytes_end_no_process_and_are_read_within_their_bounds(
    jvm: Decoder, place: Path
) -> None:
    """Sums that fit whatever the bytes are: what is decoded is junk, or said to be unreadable."""
    rng = random.Random(2)
    ends: dict[bool, int] = {True: 0, False: 0}
    for segment in small():
        whole, body = segment.data, len(segment.data) - segment.foot
        for turn in range(1500):
            data = bytearray(whole)
            low, high = (4, body) if turn % 2 else (body, len(whole) - 8)
            for _ in range(rng.choice((1, 1, 2, 5))):
                data[rng.randrange(low, high)] = rng.choice(
                    (0, 1, 0x7F, 0x80, 0xFF, rng.randrange(256))
                )
            segment.data = with_sums(bytes(data), whole, body)
            segment.sum = xxhash.xxh3_64_hexdigest(segment.data[body:])
            ends[segment.ask(jvm, place, ALL).end == "end"] += 1
    assert min(ends.values()) > 100


def with_sums(data: bytes, whole: bytes, body: int) -> bytes:
    """The bytes with the sums of their row groups where those of ``whole`` stood."""
    groups = json.loads(pq.read_metadata(pa.BufferReader(whole)).metadata[b"offsetlog.groups"])
    foot = data[body:]
    for start, end, old, _ in groups:
        foot = foot.replace(old.encode(), xxhash.xxh3_64_hexdigest(data[start:end]).encode())
    return data[:body] + foot


def test_sums_are_those_of_the_reference(jvm: Decoder) -> None:
    data = random.Random(3).randbytes(5000)
    for length in (*range(300), *range(300, 5000, 61)):
        part = data[-length:] if length else b""
        assert int(jvm.ask("sum", part.hex()), 16) == xxhash.xxh3_64_intdigest(part), length
