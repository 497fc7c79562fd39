"""The walk through footers and pages: it agrees with Arrow, and never leaves its bytes."""

from __future__ import annotations

import random
import re

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from offsetlog.errors import CorruptLogError
from offsetlog.format import thrift
from offsetlog.format.parquet import ParquetReader, write_sealed
from tests.format import forge
from tests.format.samples import files

PARQUET = {name: data for name, data in files().items() if name.endswith(".parquet")}
KINDS = {
    "numbers": pa.array(range(5000)),
    "texts": pa.array([f"text {n % 7}" for n in range(5000)]),
    "nulls": pa.array([None, "x"] * 2500),
    "lists": pa.array([["a", None], [], None] * 1000),
    "maps": pa.array([[("a", "b")], []] * 2000, pa.map_(pa.string(), pa.string())),
    "structs": pa.array([{"a": {"b": [1, 2]}}, None] * 2000),
    "truths": pa.array([True, None, False] * 1000),
}


@pytest.mark.parametrize("version", ["1.0", "2.0"])
@pytest.mark.parametrize("codec", ["none", "zstd", "snappy"])
@pytest.mark.parametrize("kind", KINDS)
def test_what_arrow_writes_is_read(kind, codec, version):
    table = pa.table({"column": KINDS[kind]})
    sink = pa.BufferOutputStream()
    pq.write_table(
        table, sink, compression=codec, data_page_version=version, row_group_size=700,
        data_page_size=512, dictionary_pagesize_limit=2048, write_page_index=True,
    )  # fmt: skip
    data = sink.getvalue().to_pybytes()
    read = ParquetReader(data, "x", with_dictionaries=True).read(["column"], 1 << 26)
    assert read.column(0).to_pylist() == table.column(0).to_pylist()
    metadata = pq.read_metadata(pa.BufferReader(data))
    footer, start = forge.footer_of(data)
    thrift.footer(memoryview(data)[start:-8])
    assert forge.dump(footer) == data[start:-8]
    assert metadata.num_row_groups > 1


@pytest.mark.parametrize("name", PARQUET)
def test_every_stored_kind_is_walked_whole(name):
    data = PARQUET[name]
    _, start = forge.footer_of(data)
    thrift.footer(memoryview(data)[start:-8])
    file = ParquetReader(data, name)
    assert file.read(file.schema.names, 1 << 26).num_rows == file.num_rows


@given(st.binary(max_size=120))
@example(b"\xff" * 40)
@example(b"\x1c" * 100)
@example(b"\x19\xfc\xff\xff\xff\xff\x0f\x00")
@example(b"\x15")
@settings(deadline=None, max_examples=300)
def test_garbage_is_a_value_error_or_a_walk(data):
    for walk in (thrift.footer, lambda data: thrift.page_header(data, 0)):
        try:
            walk(memoryview(data))
        except ValueError:
            continue


@given(st.integers(0, 2**40).map(random.Random), st.sampled_from(sorted(PARQUET)))
@settings(deadline=None, max_examples=200)
def test_a_flipped_byte_under_a_good_seal_is_read_or_refused(rng, name):
    data = bytearray(PARQUET[name])
    data[rng.randrange(4, len(data))] = rng.randrange(256)
    try:
        file = ParquetReader(forge.sealed_again(bytes(data)), name)
        file.read(file.schema.names, 1 << 20)
    except CorruptLogError:
        return


@pytest.mark.parametrize(
    "fields",
    [
        [[2, forge.I32, 1], [1, forge.I32, 1]],
        [[1, forge.I32, 1], [1, forge.I32, 1]],
        [[1, forge.MAP, b"\0"]],
        [[1, forge.LIST, (forge.I32, [0] * (thrift.MAX_ELEMENTS + 1))]],
    ],
    ids=["out of order", "twice", "a map", "too many"],
)
def test_what_no_writer_of_parquet_writes_is_refused(fields):
    with pytest.raises(ValueError, match=r"order|type|describes"):
        thrift.footer(memoryview(forge.dump(fields)))


def test_a_struct_in_a_struct_without_end():
    with pytest.raises(ValueError, match="nested"):
        thrift.footer(memoryview(b"\x1c" * 100_000))


numbers = st.integers(0, 300) | st.integers(0, 2**64)


@given(st.lists(numbers, min_size=4, max_size=4), st.integers(0, 11), st.binary(max_size=8))
@example([20, 20, 2, 0], 0, b"")
def test_a_plain_pages_header_is_read_as_it_is_walked(values, more, rest):
    decoded, stored, count, encoding = [b"\x15" + forge.varint(value, more) for value in values]
    data = b"\x15\x00" + decoded + stored + b"\x2c" + count + encoding
    data = memoryview(data + b"\x15\x06\x15\x06\x1c\x00\x00\x00" + rest)

    def read():
        try:
            return thrift.page_header(data, 0)
        except ValueError as error:
            return str(error)

    known = read()
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(thrift, "_PLAIN_PAGE", re.compile(b"never"))
        assert read() == known


FOOTERS = sorted({data[forge.footer_of(data)[1] : -8] for data in PARQUET.values()})


@given(st.sampled_from(FOOTERS), st.integers(0, 2**40).map(random.Random))
@settings(deadline=None, max_examples=600)
def test_plain_columns_are_read_as_they_are_walked(footer, rng):
    data = bytearray(footer)
    for _ in range(rng.randrange(3)):
        at = rng.randrange(len(data))
        known = rng.choice(
            [rng.randrange(256), 0, 1, 0x7F, 0x80, data[at] ^ 1, data[at] + 16 & 255]
        )
        data[at : at + rng.randrange(3)] = bytes([known]) * rng.randrange(3)

    def read():
        try:
            return thrift.footer(memoryview(data))
        except ValueError:
            return "refused"

    known = read()
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(thrift, "_PLAIN_CHUNK", re.compile(b"never"))
        assert read() == known


def test_the_columns_of_records_are_plain():
    table = pa.table({"partition": pa.array([0], pa.int32()), "key": [b"k"], "value": [b"v"]})
    data = write_sealed(table.schema, table, {})
    [group] = thrift.footer(memoryview(data)[forge.footer_of(data)[1] : -8])
    assert len(thrift._PLAIN_CHUNK.findall(data)) == len(group.chunks) == 3
