"""Files that version 1 wrote stay readable for ever."""

from __future__ import annotations

import json

import pyarrow as pa
import pytest

from offsetlog.core.topic import plan as fetch
from offsetlog.core.topic.fold import fold
from offsetlog.core.topic.state import EMPTY_STATE, TopicState
from offsetlog.format import decisions, entries, root_file, segments, snapshots
from offsetlog.format import record_schema as rows
from tests.format.samples import GOLDEN, RULES_2, chain_of_rules_2, described, files_of_rules_2

MEANING = json.loads((GOLDEN / "meaning.json").read_text())
KINDS = list(MEANING["entries"])
COLUMNS = ("key", "value", "headers", "timestamp")


def golden(name: str) -> bytes:
    return (GOLDEN / name).read_bytes()


def entry(kind: str) -> entries.StoredEntry:
    return entries.decode(golden(f"entry-{kind}.parquet"), kind)


@pytest.mark.parametrize("kind", KINDS)
def test_entries(kind):
    stored = entry(kind)
    assert repr(stored.entry) == MEANING["entries"][kind]
    assert not stored.stub


def test_inline_rows():
    stored = entry("append-inline")
    assert stored.inline_records == 3
    found = stored.rows(0, 3, ("partition", *COLUMNS))
    assert repr(found.to_pylist()) == MEANING["inline_rows"]
    assert repr(stored.rows(1, 1, ("value",)).to_pylist()) == "[{'value': b''}]"


def test_stub():
    stub = entry("stub")
    assert stub.stub
    assert repr(stub.entry) == MEANING["entries"]["append-inline"]


def test_segments():
    append, replace = entry("append-segment").entry.body, entry("replace").entry.body
    ref = append.parts[0].segment
    opened = segments.OpenSegment.whole(ref, 7, "segment", golden("segment.parquet"))
    assert [group.records for group in opened.groups] == [3, 3, 1]
    table = pa.concat_tables(opened.read(0, 7, COLUMNS))
    assert repr(table.to_pylist()) == MEANING["segment_rows"]
    piece = replace.runs[0].pieces[0]
    data = golden("segment-rewritten.parquet")
    ranged = segments.OpenSegment(piece.segment, piece.records, "r", lambda a, b: data[a:b])
    table = pa.concat_tables(ranged.read(0, 4, (*COLUMNS, "offset")))
    assert repr(table.to_pylist()) == MEANING["rewritten_rows"]


def state_of(name: str) -> TopicState:
    state, apart = snapshots.decode_snapshot(golden(f"{name}.parquet"), name)
    if apart is not None:
        state = snapshots.decode_senders(state, golden("senders.parquet"), "senders")
    return state


@pytest.mark.parametrize("name", ["snapshot", "snapshot-apart"])
def test_stored_states(name):
    state = state_of(name)
    assert repr(described(state)) == MEANING["state"]
    folded = fold(EMPTY_STATE, [entry(kind).entry for kind in KINDS][:-1])
    leaves = {
        ref.uid: snapshots.decode_leaf(golden(f"leaf-{n}.parquet"), f"leaf {n}")
        for n, ref in enumerate(state.index.leaves)
    }
    for partition, part in enumerate(folded.parts):
        found = fetch.plan_part(state, partition, part.start, part.end, leaves)
        assert [piece.extent for piece in found.pieces] == [
            e for e in part.tail if e.end > part.start
        ]


def test_what_only_rules_2_know():
    stored = {path.name: path.read_bytes() for path in RULES_2.iterdir()}
    assert files_of_rules_2().keys() == stored.keys()
    for name, entry, _ in chain_of_rules_2():
        assert decisions.encode(entry).encode() in stored[f"entry-{name}.parquet"]
        assert entries.decode(stored[f"entry-{name}.parquet"], name).entry == entry
    state, _ = snapshots.decode_snapshot(stored["snapshot.parquet"], "snapshot")
    folded = fold(EMPTY_STATE, [entry for _, entry, _ in chain_of_rules_2()])
    assert described(state) == described(folded)
    assert [part[3:] for part in state.parts] == [part[3:] for part in folded.parts]
    assert (state.rules, state.parts[1].compactions) == (2, ((7, 99),))
    leaf = snapshots.decode_leaf(stored["leaf-0.parquet"], "leaf")
    assert [leaf.extent(i) for i in range(leaf.extents)] == list(folded.parts[1].tail)
    assert [extent.is_empty for extent in folded.parts[1].tail] == [False, True]


def test_root():
    data = golden("_offsetlog.json")
    assert root_file.decode(data, "root") == json.loads(data)["id"]
    assert json.loads(data)["format"] == 1


def test_all_columns_are_there_also_where_the_file_left_them_out():
    stored = entry("append-inline")
    assert rows.complete(stored.rows(0, 3, ("value",)), COLUMNS).schema.names == list(COLUMNS)
