"""Every flipped bit and every cut is found, in footers too."""

from __future__ import annotations

import pytest

from offsetlog.core.topic.state import EMPTY_STATE
from offsetlog.errors import CorruptLogError
from offsetlog.format import entries, segments, snapshots
from tests.format.samples import chain, files, ref, rewritten_segment, written_segment

FILES = files()


def read_entry(data: bytes) -> None:
    stored = entries.decode(data, "e")
    if stored.inline_records and not stored.stub:
        stored.rows(0, stored.inline_records, ("partition", "key", "value", "headers", "timestamp"))


def reads_segment(name: str, records: int):
    encoded = written_segment() if name == "segment" else rewritten_segment()
    known = ref(encoded, 2, 1)

    def read(data: bytes) -> None:
        opened = segments.OpenSegment.whole(known, records, "s", data)
        opened.read(0, records, ("key", "value", "headers", "timestamp"))

    return read


def reads_parts_of_a_segment(data: bytes) -> None:
    known = ref(written_segment(), 2, 1)
    opened = segments.OpenSegment(known, 7, "s", lambda low, high: data[low:high])
    opened.read(0, 7, ("value",))


READERS = {
    "entry-create.parquet": read_entry,
    "entry-append-inline.parquet": read_entry,
    "entry-append-segment.parquet": read_entry,
    "entry-replace.parquet": read_entry,
    "entry-stub.parquet": read_entry,
    "segment.parquet": reads_segment("segment", 7),
    "segment-rewritten.parquet": reads_segment("segment-rewritten", 4),
    "snapshot.parquet": lambda data: snapshots.decode_snapshot(data, "s"),
    "senders.parquet": lambda data: snapshots.decode_senders(EMPTY_STATE, data, "s"),
    "leaf-0.parquet": lambda data: snapshots.decode_leaf(data, "l"),
}


@pytest.mark.parametrize("name", READERS)
def test_every_flipped_bit_is_found(name):
    whole, read = FILES[name], READERS[name]
    read(whole)
    for at in range(len(whole)):
        for bit in range(8):
            broken = bytearray(whole)
            broken[at] ^= 1 << bit
            with pytest.raises(CorruptLogError):
                read(bytes(broken))


@pytest.mark.parametrize("name", READERS)
def test_every_cut_is_found(name):
    whole, read = FILES[name], READERS[name]
    for length in range(len(whole)):
        with pytest.raises(CorruptLogError):
            read(whole[:length])
    for more in (b"\0", b"PAR1", whole):
        with pytest.raises(CorruptLogError):
            read(whole + more)


def test_flips_are_found_where_only_parts_of_a_segment_are_read():
    """But for those in row groups that nobody asked for, and in the magic at its start."""
    whole = FILES["segment.parquet"]
    for at in range(4, len(whole), 3):
        broken = bytearray(whole)
        broken[at] ^= 4
        with pytest.raises(CorruptLogError):
            reads_parts_of_a_segment(bytes(broken))


def test_one_file_is_not_taken_for_another():
    known = ref(written_segment(), 2, 1)
    other = FILES["segment-rewritten.parquet"]
    with pytest.raises(CorruptLogError):
        segments.OpenSegment.whole(known, 7, "s", other)
    with pytest.raises(CorruptLogError, match="6"):
        segments.OpenSegment.whole(known, 6, "s", FILES["segment.parquet"])
    with pytest.raises(CorruptLogError, match="no decision"):
        entries.decode(FILES["leaf-0.parquet"], "e")
    with pytest.raises(CorruptLogError, match="no state"):
        snapshots.decode_snapshot(FILES["entry-create.parquet"], "s")
    with pytest.raises(CorruptLogError):
        snapshots.decode_leaf(FILES["snapshot.parquet"], "l")


@pytest.mark.parametrize("name,entry,table", chain(), ids=[name for name, _, _ in chain()])
def test_round_trips(name, entry, table):
    for compression in ("zstd", "lz4", "snappy", "gzip", "none"):
        stored = entries.decode(entries.encode(entry, table, compression).data, name)
        assert stored.entry == entry
        if table is not None:
            found = stored.rows(0, table.num_rows, tuple(table.schema.names))
            assert found.to_pylist() == table.to_pylist()
    stub = entries.decode(entries.encode_stub(stored), name)
    assert stub.entry == entry and stub.stub
    assert entries.encode_stub(stub) == entries.encode_stub(stored), "anyone writes it alike"
