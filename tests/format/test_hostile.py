"""Forged files: each is a bounded, named error, whatever their checksums say."""

from __future__ import annotations

import json

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from offsetlog.core import strict_json
from offsetlog.core.topic.entry import (
    RULES_VERSION,
    Compact,
    CompactedTo,
    Configure,
    Create,
    Entry,
    Erase,
    Replace,
    ReplacedRun,
    ReplacementPiece,
    SegmentRef,
    rules_of,
)
from offsetlog.core.topic.state import EMPTY_STATE
from offsetlog.errors import CorruptLogError
from offsetlog.format import decisions, entries, names, partitioner, segments, snapshots
from offsetlog.format.parquet import SEAL
from offsetlog.format.partitioner import murmur2, partitions_of
from tests.core.topic.strategies import chains
from tests.format import forge
from tests.format.samples import chain, files

APPEND = json.loads(decisions.encode(chain()[1][1]))


def refused(change: dict, match: str | None = None) -> None:
    text = json.dumps({**APPEND, **change}).encode()
    with pytest.raises(CorruptLogError, match=match):
        decisions.decode(text, "e")


@given(chains(20))
@settings(deadline=None, max_examples=60)
def test_decisions_round_trip(chain_):
    for entry in chain_:
        assert decisions.decode(decisions.encode(entry), "e") == entry


@pytest.mark.parametrize(
    "text",
    [
        b"",
        b"null",
        b"[]",
        b"{",
        b'{"v":1,"v":1}',
        b'{"v":NaN}',
        b'{"v":Infinity}',
        b'{"v":-Infinity}',
        b"[" * 100_000,
        b'{"a":' * 100_000,
        b"\xff\xfe",
        b'"\\ud800',
        b"1" * 5000,
        b"{}" + b" " * 100 + b"x",
    ],
)
def test_json_that_could_be_misread_is_refused(text):
    with pytest.raises(CorruptLogError):
        decisions.decode(text, "e")


def test_json_beyond_its_size_is_not_even_parsed():
    with pytest.raises(CorruptLogError, match="at most 10"):
        strict_json.loads(b"[" + b"1," * 100 + b"1]", "x", 10)


@pytest.mark.parametrize(
    "field", [name for name in APPEND if name not in ("v", "rules", "kind", "parts")]
)
@pytest.mark.parametrize("bad", [None, 1.0, 1.5, "x" * 5000, [], {}, -(2**70), 2**70])
def test_values_of_the_wrong_type_or_range(field, bad):
    if isinstance(APPEND[field], bool) and isinstance(bad, bool):
        return
    refused({field: bad})


@pytest.mark.parametrize("field", ["seq", "born", "life", "hashed", "ts", "time"])
def test_a_boolean_is_not_a_number(field):
    refused({field: True})


def test_a_number_is_not_a_boolean():
    refused({"own": 1})


PART = APPEND["parts"][0]


@pytest.mark.parametrize(
    "parts",
    [
        [[]],
        [PART[:4]],
        [[*PART, [], []]],
        [[*PART, [1, 2]]],
        [[*PART, [0, "z" * 32, 100, 20, "0" * 16]]],
        [[*PART, [0, "a" * 32, 100, 200, "0" * 16]]],
        [[-1, *PART[1:]]],
        [[10**6, *PART[1:]]],
        [[PART[0], 0, *PART[2:]]],
        [[PART[0], -3, *PART[2:]]],
        [[*PART[:3], 9, 8]],
        "parts",
        None,
    ],
)
def test_parts_that_cannot_be(parts):
    refused({"parts": parts})


def test_newer_versions_and_unknown_kinds_are_refused_by_name():
    """They stop the fold: passing over them would give one offset to two records."""
    refused({"v": 2}, "format 2.*reads format 1")
    refused({"rules": RULES_VERSION + 1}, f"rules {RULES_VERSION + 1}; this library reads")
    refused({"kind": "transmogrify"}, "unknown kind 'transmogrify'")
    refused({"kind": 3})
    refused({"v": 0})


def test_a_replace_may_not_leave_a_hole():
    replace = json.loads(decisions.encode(chain()[4][1]))
    run = replace["runs"][0]
    for start, end in ((0, 8), (1, 7), (7, 7), (3, 1)):
        broken = {**replace, "runs": [[run[0], start, end, run[3]]]}
        with pytest.raises(CorruptLogError):
            decisions.decode(json.dumps(broken).encode(), "e")


EMPTY_RUN = ReplacedRun(0, 3, 9, (ReplacementPiece(3, 9, 0, 0, 0, 0, 0),))
RULES_2 = {
    "compacting": Create("t", 1, (("cleanup.policy", "compact"),), -1),
    "compacting and deleting": Configure(1, (("cleanup.policy", "compact,delete"),), 0),
    "a table": Create("t", 1, (("table.format", "delta"),), -1),
    "a file that is not there": Replace(4, (EMPTY_RUN,)),
    "compact": Compact(4, (EMPTY_RUN,), (CompactedTo(0, 9, 7, 3),)),
    "erase": Erase(4, (EMPTY_RUN,), ((0, 9),), "5" * 32, ("7" * 64,), 6, "ann@host"),
}


@pytest.mark.parametrize("name", RULES_2)
def test_what_only_newer_rules_know_is_written_under_them(name):
    """So an older library stops, and its upkeep takes no file that it knows nothing of."""
    entry = Entry("a" * 32, 1, RULES_2[name])
    stored = json.loads(decisions.encode(entry))
    assert stored["rules"] == rules_of(entry.body) == 2
    assert decisions.decode(json.dumps(stored), "e") == entry
    with pytest.raises(CorruptLogError, match="is of rules 1, and says what only rules 2 know"):
        decisions.decode(json.dumps({**stored, "rules": 1}), "e")


def test_whatever_uses_none_of_it_stays_under_the_first_rules():
    plain = [entry for _, entry, _ in chain()]
    plain += [
        Entry("a" * 32, 1, Configure(1, (("cleanup.policy", "delete"),), 0)),
        Entry("a" * 32, 1, Create("t", 1, (("table.format", "none"),), -1)),
    ]
    assert {json.loads(decisions.encode(entry))["rules"] for entry in plain} == {1}


EMPTY = [0, 3, 9, [[3, 9, 0, 0, 0, 0, 0]]]


@pytest.mark.parametrize(
    ("kind", "change"),
    [
        ("compact", {"compacted": [[0, 9, 7, 10]]}),
        ("compact", {"compacted": [[0, 9, 7]]}),
        ("compact", {"runs": [[0, 3, 9, [[3, 9, 1, 0, 0, 0, 0]]]]}),
        ("compact", {"runs": [[0, 3, 9, [[3, 9, 0, 5, 0, 0, 0]]]]}),
        (
            "compact",
            {"runs": [[0, 3, 9, [[3, 9, 0, 0, 0, 0, 0]]], [0, 0, 4, [[0, 4, 0, 0, 0, 0, 0]]]]},
        ),
        ("erase", {"salt": "5" * 31}),
        ("erase", {"keys": ["ann"]}),
        ("erase", {"keys": ["7" * 64] * (decisions.MAX_ERASED_KEYS + 1)}),
        ("erase", {"records": -1}),
        ("erase", {"by": None}),
        ("erase", {"ends": [[0, -1]]}),
    ],
)
def test_replacements_that_cannot_be(kind, change):
    stored = json.loads(decisions.encode(Entry("a" * 32, 1, RULES_2[kind])))
    with pytest.raises(CorruptLogError):
        decisions.decode(json.dumps({**stored, **change}), "e")


def sealed(table: pa.Table, meta: dict[str, str], **settings_) -> bytes:
    """A file with a good checksum and whatever content."""
    sink = pa.BufferOutputStream()
    with pq.ParquetWriter(
        sink, table.schema, compression="zstd", store_schema=False, **settings_
    ) as writer:
        writer.write_table(table)
        writer.add_key_value_metadata({**meta, SEAL: "0" * 16})
    return forge.sealed_again(sink.getvalue().to_pybytes())


def bounded(call) -> None:
    """An error of ours, and less than 100 MB of Arrow's memory for it."""
    pool = pa.proxy_memory_pool(pa.default_memory_pool())
    before = pa.default_memory_pool()
    pa.set_memory_pool(pool)
    try:
        with pytest.raises(CorruptLogError):
            call()
    finally:
        pa.set_memory_pool(before)
    assert (pool.max_memory() or 0) < 100_000_000


MANY = 60_000_000


@pytest.fixture(scope="module")
def bomb() -> pa.Table:
    """Sixty million rows in a few kilobytes."""
    return pa.table({"partition": pa.nulls(MANY, pa.int32())})


def test_a_small_entry_that_would_unfold_to_gigabytes(bomb):
    told = {**APPEND, "parts": [[0, MANY, 0, 0, 0]]}
    data = sealed(bomb, {"offsetlog.decision": json.dumps(told)})
    assert len(data) < 300_000
    bounded(lambda: entries.decode(data, "e"))


def test_a_small_entry_with_one_huge_value():
    value = pa.array([b"x" * 80_000_000])
    one = pa.table({"partition": pa.array([0], pa.int32()), "value": value})
    told = {**APPEND, "parts": [[0, 1, 0, 0, 0]]}
    data = sealed(one, {"offsetlog.decision": json.dumps(told)}, use_dictionary=False)
    del one, value
    assert len(data) < 300_000
    bounded(lambda: entries.decode(data, "e").rows(0, 1, ("value",)))


def test_small_stored_states_that_would_unfold_to_gigabytes():
    columns = {name: pa.nulls(MANY, kind) for name, kind in (("partition", pa.int32()),)}
    table = pa.table({**columns})
    state = json.loads(
        pq.read_metadata(pa.BufferReader(files()["snapshot.parquet"])).metadata[b"offsetlog.state"]
    )
    data = sealed(table, {"offsetlog.state": json.dumps(state)})
    bounded(lambda: snapshots.decode_snapshot(data, "s"))
    bounded(lambda: snapshots.decode_leaf(data, "l"))
    bounded(lambda: snapshots.decode_senders(EMPTY_STATE, data, "s"))


def test_a_segment_with_more_rows_than_its_entry_says(bomb):
    sink = pa.BufferOutputStream()
    writer = pq.ParquetWriter(sink, bomb.schema, store_schema=False)
    writer.write_table(bomb)
    writer.add_key_value_metadata(
        {"offsetlog.version": "1", "offsetlog.groups": json.dumps([[4, 5, "0" * 16, 7]])}
    )
    writer.close()
    data = sink.getvalue().to_pybytes()
    foot = int.from_bytes(data[-8:-4], "little") + 8
    import xxhash

    known = SegmentRef(0, "a" * 32, len(data), foot, xxhash.xxh3_64_hexdigest(data[-foot:]))
    bounded(lambda: segments.OpenSegment.whole(known, 7, "s", data))


FORGED = [
    ("leaves", [[1]]),
    ("leaves", [["a" * 32]]),
    ("leaves", [["a" * 32, -1]]),
    ("leaves", 5),
    ("replaces", [[1, 2]]),
    ("replaces", [["a", "b", "c", "d"]]),
    ("senders", [["a", True]]),
    ("senders", [[1, 2, 3, 4, 5, 6]]),
    ("starts", [1]),
    ("ends", [True, 1, 1, 1]),
    ("partitions", 99),
    ("hash", "0"),
    ("v", 2),
    ("rules", 2),
    ("config", {"a": 1}),
    ("senders_in", "../../x"),
]


@pytest.mark.parametrize("field,value", FORGED)
def test_forged_snapshots(field, value):
    whole = files()["snapshot.parquet"]
    file = pq.ParquetFile(pa.BufferReader(whole))
    state = json.loads(file.metadata.metadata[b"offsetlog.state"])
    data = sealed(file.read(), {"offsetlog.state": json.dumps({**state, field: value})})
    with pytest.raises(CorruptLogError):
        snapshots.decode_snapshot(data, "s")


@pytest.mark.parametrize("drop", ["base", "leaf"])
def test_snapshots_without_a_column_or_of_another_type(drop):
    whole = files()["snapshot.parquet"]
    file = pq.ParquetFile(pa.BufferReader(whole))
    meta = {"offsetlog.state": file.metadata.metadata[b"offsetlog.state"].decode()}
    table = file.read()
    with pytest.raises(CorruptLogError):
        snapshots.decode_snapshot(sealed(table.drop_columns([drop]), meta), "s")
    at = table.schema.names.index(drop)
    for column in (
        pa.array(["x"] * table.num_rows),
        pa.array([99] * table.num_rows),
        pa.nulls(table.num_rows, pa.int64()),
    ):
        if drop == "base" and column.type == pa.int64() and not column.null_count:
            continue
        with pytest.raises(CorruptLogError):
            snapshots.decode_snapshot(sealed(table.set_column(at, drop, column), meta), "s")


@given(st.binary(max_size=300))
@settings(deadline=None, max_examples=200)
def test_garbage_is_named(data):
    for read in (
        lambda: entries.decode(data, "e"),
        lambda: snapshots.decode_snapshot(data, "s"),
        lambda: snapshots.decode_leaf(data, "l"),
        lambda: snapshots.decode_senders(EMPTY_STATE, data, "s"),
        lambda: decisions.decode(data, "d"),
    ):
        with pytest.raises(CorruptLogError):
            read()


# --- names ---------------------------------------------------------------------------------


@given(st.integers(0, 10**12), st.integers(0, 10**5), st.integers(0, 10**6))
def test_names_are_parsed_back(number, partition, born):
    uid = f"{number:032x}"
    for name, parse in (
        (names.EntryName("t", number), names.parse_entry),
        (names.SnapshotName("t", number), names.parse_snapshot),
        (names.LeafName("t", uid), names.parse_leaf),
        (names.SegmentName("t", partition, born, uid), names.parse_segment),
        (names.SegmentName("t", partition, born, uid, 3, 9), names.parse_segment),
    ):
        assert parse(str(name)) == name


@pytest.mark.parametrize(
    "name",
    [
        "t/_log/0000000000000000/00000000000000010000.parquet",
        "t/_log/0000000000000001/00000000000000000001.parquet",
        "t/_log/0000000000000000/1.parquet",
        "t/_log/0000000000000000/../00000000000000000001.parquet",
        "t/_log/0000000000000000/.tmp-00000000000000000001.parquet",
        "t/_log/0000000000000000/0000000000000000000\u0661.parquet",
        "t/partition=01/00000000000000000001-" + "a" * 32 + ".parquet",
        "t/partition=-1/00000000000000000001-" + "a" * 32 + ".parquet",
        "t/partition=0/00000000000000000001-" + "A" * 32 + ".parquet",
        "t/partition=0/00000000000000000001-" + "a" * 32 + ".parquet.tmp",
        "t/_snapshot/hint.json",
        "t/_index/" + "a" * 31 + ".parquet",
        "",
        "/",
    ],
)
def test_what_does_not_parse_is_not_ours(name):
    for parse in (
        names.parse_entry, names.parse_snapshot, names.parse_leaf, names.parse_segment,
    ):  # fmt: skip
        assert parse(name) is None


# --- murmur2 -------------------------------------------------------------------------------

KAFKA = {
    b"21": -973932308,
    b"foobar": -790332482,
    b"a-little-bit-long-string": -985981536,
    b"a-little-bit-longer-string": -1486304829,
    b"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8": -58897971,
    b"abc": 479470107,
}


@pytest.mark.parametrize("times", [1, 5], ids=["few", "many"])
def test_murmur2_is_kafkas(times):
    """The vectors that Kafka publishes with its own clients."""
    assert (len(KAFKA) * times > partitioner.FEW) == (times > 1)
    got = murmur2(pa.array(list(KAFKA) * times)).tolist()
    assert [h - (1 << 32 if h >> 31 else 0) for h in got] == list(KAFKA.values()) * times


def plain_murmur2(data: bytes) -> int:
    """Word by word, as the algorithm is described."""
    mask, m = 0xFFFFFFFF, 0x5BD1E995
    h = 0x9747B28C ^ len(data)
    for i in range(0, len(data) - 3, 4):
        k = int.from_bytes(data[i : i + 4], "little") * m & mask
        h = (h * m ^ (k ^ k >> 24) * m) & mask
    rest = data[len(data) & ~3 :]
    if rest:
        h = (h ^ int.from_bytes(rest, "little")) * m & mask
    h = (h ^ h >> 13) * m & mask
    return h ^ h >> 15


@given(
    st.lists(st.none() | st.binary(max_size=20), max_size=30), st.integers(1, 50), st.integers(0, 5)
)
def test_murmur2_over_a_column(keys, partitions, skip):
    column = pa.array([b"skipped"] * skip + keys, pa.binary()).slice(skip)
    expected = [
        -1 if key is None else (plain_murmur2(key) & 0x7FFFFFFF) % partitions for key in keys
    ]
    assert partitions_of(column, partitions).tolist() == expected
    cut = len(keys) // 2
    chunked = pa.chunked_array([column[:cut], column[cut:]], pa.binary())
    assert partitions_of(chunked, partitions).tolist() == expected
