"""Every parser, fed what nobody wrote under good checksums: a value of ours, or an error of ours.

What a parser lets through goes on to the fold and back to bytes, which must not fail either."""

from __future__ import annotations

import json
import random
import time

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from offsetlog.core import strict_json
from offsetlog.core.group.facts import (
    Expulsion,
    Fact,
    Subscription,
    TopicView,
    decode_subscription,
    decode_topic,
    encode_expulsion,
    encode_subscription,
    encode_topic,
)
from offsetlog.core.group.fold import fold as fold_facts
from offsetlog.core.group.state import EMPTY
from offsetlog.core.topic.fold import fold
from offsetlog.core.topic.state import EMPTY_STATE
from offsetlog.errors import CorruptLogError, OffsetLogError
from offsetlog.format import decisions, root_file, segments, snapshots
from offsetlog.format import facts_arrow as fact_rows
from offsetlog.values import MAX_PARTITIONS, settings_of
from tests.format.junk import JUNK, mutated
from tests.format.samples import chain, files
from tests.format.test_hostile import bounded, sealed

RANDOM = st.integers(0, 2**40).map(random.Random)
ENTRIES = [item[1] for item in chain()]
fuzz = settings(deadline=None, max_examples=400)


def test_the_samples_themselves_are_good():
    assert fold(EMPTY_STATE, ENTRIES).tip == len(ENTRIES)
    assert fold_facts(EMPTY, FACTS, 6).version == 6


@fuzz
@given(RANDOM)
def test_decisions(rng):
    at = rng.randrange(len(ENTRIES))
    raw = mutated(rng, json.loads(decisions.encode(ENTRIES[at])))
    try:
        entry = decisions.decode(json.dumps(raw).encode(), "e")
    except CorruptLogError:
        return
    state = fold(EMPTY_STATE, [*ENTRIES[:at], entry, *ENTRIES[at + 1 :]])
    settings_of(state.config)
    assert decisions.decode(decisions.encode(entry), "e") == entry


SNAPSHOT = pq.ParquetFile(pa.BufferReader(files()["snapshot.parquet"]))
STATE = json.loads(SNAPSHOT.metadata.metadata[b"offsetlog.state"])
FENCES = SNAPSHOT.read()


@fuzz
@given(RANDOM)
def test_snapshots(rng):
    told = json.dumps(mutated(rng, STATE))
    try:
        state, _ = snapshots.decode_snapshot(sealed(FENCES, {"offsetlog.state": told}), "s")
    except CorruptLogError:
        return
    settings_of(state.config)
    fold(state, ENTRIES)


STRANGE_COLUMNS = (
    pa.array(["x"]), pa.array([b"x"]), pa.array([1.5]), pa.array([None], pa.int64()),
    pa.array([[1]]), pa.array([{"a": 1}]), pa.array([-1]), pa.array([2**63 - 1]),
    pa.array([True]), pa.array(["x"]).dictionary_encode(),
    pa.array([2**63 - 1], pa.timestamp("us")),
)  # fmt: skip


def strange_table(rng: random.Random, table: pa.Table) -> pa.Table:
    at = rng.randrange(table.num_columns)
    name = table.schema.names[at]
    dice = rng.random()
    if dice < 0.2:
        return table.drop_columns([name])
    if dice < 0.3:
        return pa.Table.from_arrays([*table.columns, table.column(at)], [*table.schema.names, name])
    column = rng.choice(STRANGE_COLUMNS)
    full = pa.chunked_array([column] * table.num_rows, column.type)
    return table.set_column(at, name, full)


@settings(deadline=None, max_examples=150)
@given(RANDOM, st.sampled_from(["leaf-0.parquet", "senders.parquet", "snapshot.parquet"]))
def test_columns_of_stored_states(rng, kind):
    file = pq.ParquetFile(pa.BufferReader(files()[kind]))
    table = strange_table(rng, file.read())
    data = sealed(table, {"offsetlog.state": json.dumps(STATE)})
    decode = {
        "leaf-0.parquet": lambda: snapshots.decode_leaf(data, "l"),
        "senders.parquet": lambda: snapshots.decode_senders(EMPTY_STATE, data, "s"),
        "snapshot.parquet": lambda: snapshots.decode_snapshot(data, "s"),
    }[kind]
    try:
        decode()
    except CorruptLogError:
        return


@settings(deadline=None, max_examples=100)
@given(RANDOM)
def test_row_groups_of_a_segment(rng):
    whole = files()["segment.parquet"]
    file = pq.ParquetFile(pa.BufferReader(whole))
    told = json.loads(file.metadata.metadata[b"offsetlog.groups"])
    sink = pa.BufferOutputStream()
    writer = pq.ParquetWriter(sink, file.schema_arrow, store_schema=False)
    writer.write_table(file.read())
    told = mutated(rng, told)
    writer.add_key_value_metadata({"offsetlog.version": "1", "offsetlog.groups": json.dumps(told)})
    writer.close()
    data = sink.getvalue().to_pybytes()
    foot = int.from_bytes(data[-8:-4], "little") + 8
    import xxhash

    from offsetlog.core.topic.entry import SegmentRef

    known = SegmentRef(0, "a" * 32, len(data), foot, xxhash.xxh3_64_hexdigest(data[-foot:]))
    with pytest.raises(CorruptLogError):
        # Sums of the row groups never fit: these bytes are not those that were summed.
        segments.OpenSegment.whole(known, 7, "s", data).read(0, 7, ("value",))


@fuzz
@given(RANDOM)
def test_the_roots_own_file(rng):
    good = {"format": 1, "id": "a" * 32}
    raw = mutated(rng, good)
    try:
        root_id = root_file.decode(json.dumps(raw).encode(), "r")
    except CorruptLogError:
        return
    assert type(raw["format"]) is int and type(root_id) is str and len(root_id) == 32


# --- JSON bombs ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    "text",
    [
        b"[" + b"[]," * (16 << 20) + b"[]]",
        b"[" + b"{}," * (16 << 20) + b"{}]",
        b"[" * (60 << 20),
        b'{"a":' * 4_200_000,
        b"[" + b'"a",' * 4_200_000 + b'"a"]',
        b"[" + b"1.5," * (15 << 20) + b"1]",
        b'"' + b"[" * (60 << 20) + b'","a":{',
    ],
    ids=["lists", "objects", "deep", "deep objects", "strings", "numbers", "one string"],
)
def test_json_bombs_are_refused_in_bounded_time(text):
    began = time.process_time()
    with pytest.raises(CorruptLogError):
        strict_json.loads(text, "x")
    assert time.process_time() - began < 30


def test_commas_in_strings_are_no_values():
    text = json.dumps(["," * 100, '\\",[{' * 10, "x"])
    assert strict_json.loads(text, "x", max_values=3) == json.loads(text)
    with pytest.raises(CorruptLogError, match="more than 2 values"):
        strict_json.loads(text, "x", max_values=2)


# --- facts, checkpoints --------------------------------------------------------------------

JOIN = encode_subscription(Subscription(("t",), host="h"))
FACTS = [
    Fact("g", None, None, None, JOIN, 5, 1, 0, "m", "join", "w" * 32, 1, 0),
    Fact("g", "t", None, None, encode_topic(TopicView(3, 2)), 5, 1, 0, None, "topics",
         "w" * 32, 1, 1),
    Fact("g", "t", 0, 5, "", 5, 1, 0, "m", "commit", "v" * 32, 2, 0),
    Fact("g", "t", 0, 2, "", 5, 1, 1, None, "reset", "u" * 32, 3, 0),
    Fact("g", "t", 1, None, "", 5, 1, 1, "m", "release", "u" * 32, 4, 0),
    Fact("g", None, None, None, encode_expulsion(Expulsion("x", "y")), 5, 1, 1, "m", "expel",
         "u" * 32, 5, 0),
    Fact("g", None, None, None, "", 5, 1, 1, None, "delete", "u" * 32, 6, 0),
]  # fmt: skip


@fuzz
@given(RANDOM)
def test_facts_of_a_chain(rng):
    facts = [list(fact) for fact in FACTS]
    fact = rng.choice(facts)
    place = rng.randrange(len(fact))
    if place == 4 and fact[4].startswith("{") and rng.random() < 0.9:
        fact[4] = json.dumps(mutated(rng, json.loads(fact[4])))
    else:
        fact[place] = rng.choice(JUNK)
    began = time.process_time()
    try:
        told = fact_rows.decode_facts(fact_rows._sealed({"facts": facts}), "f")
        table = fold_facts(EMPTY, told, max(fact.version for fact in told))
    except OffsetLogError:
        return
    assert time.process_time() - began < 2
    fact_rows.to_arrow(told)
    fact_rows.positions_to_arrow(table)
    again = fact_rows.decode_checkpoint(fact_rows.encode_checkpoint(table, "id"), "w")
    assert again == ("id", table)


@fuzz
@given(RANDOM)
def test_checkpoints(rng):
    table = fold_facts(EMPTY, FACTS[:4], 4)
    plain = json.loads(fact_rows.encode_checkpoint(table, "id").partition(b"\n")[2])
    found = fact_rows.decode_checkpoint(fact_rows._sealed(mutated(rng, plain)), "c")
    if found is not None:
        fact_rows.positions_to_arrow(fold_facts(found[1], FACTS[4:], max(6, found[1].version)))


@given(st.binary(max_size=200))
@settings(deadline=None, max_examples=150)
def test_garbage(data):
    assert fact_rows.decode_checkpoint(data, "c") is None
    for read in (lambda: fact_rows.decode_facts(data, "f"), lambda: root_file.decode(data, "r")):
        with pytest.raises(CorruptLogError):
            read()


@settings(deadline=None, max_examples=150)
@given(RANDOM)
def test_columns_of_the_offsets_table(rng):
    table = strange_table(rng, fact_rows.to_arrow(FACTS))
    try:
        facts = fact_rows.from_arrow(table, "f")
    except CorruptLogError:
        return
    fact_rows.to_arrow(facts)


def test_text_that_is_no_text():
    column = pa.Array.from_buffers(
        pa.string(), 1, [None, pa.py_buffer(b"\0\0\0\0\2\0\0\0"), pa.py_buffer(b"\xff\xfe")]
    )
    table = fact_rows.to_arrow(FACTS[2:3]).set_column(0, "group", column)
    with pytest.raises(CorruptLogError):
        fact_rows.from_arrow(table, "f")


def test_a_topic_of_more_partitions_than_there_can_be_is_no_topic():
    """It would be dealt out partition by partition."""
    assert decode_topic('{"partitions":4611686018427387904,"tip":1}') is None
    assert decode_topic(encode_topic(TopicView(MAX_PARTITIONS, 1))) == (MAX_PARTITIONS, 1)


@pytest.mark.parametrize("text", ['{"rules":1,"rules":1}', '{"rules":NaN}', "[" * 100_000, "null"])
def test_a_subscription_that_could_be_misread_is_none(text):
    assert decode_subscription(JOIN) is not None
    assert decode_subscription(text) is None
    assert decode_subscription(JOIN[:-1] + "," + text[1:] if text[0] == "{" else text) is None


def test_small_files_of_facts_that_would_unfold_to_gigabytes():
    many = pa.table({f.name: pa.nulls(1_000_000, f.type) for f in fact_rows.SCHEMA})
    sink = pa.BufferOutputStream()
    with pq.ParquetWriter(sink, many.schema, store_schema=False) as writer:
        for _ in range(fact_rows.MOST_ROWS // many.num_rows + 1):
            writer.write_table(many)
    data = sink.getvalue().to_pybytes()
    bounded(lambda: fact_rows.open_file(data, "f"))
