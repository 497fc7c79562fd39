"""Files of every kind that version 1 writes, with what they mean.

``python -m tests.format.samples`` wrote ``golden/v1``. Those files must stay readable for ever:
never write them again for a change of the code; a new version gets a folder of its own."""

from __future__ import annotations

import json
from itertools import count
from pathlib import Path

import pyarrow as pa

from offsetlog.core import strict_json
from offsetlog.core.topic import publish as publishing
from offsetlog.core.topic.entry import (
    Append,
    Collect,
    Compact,
    CompactedTo,
    Configure,
    Create,
    Delete,
    Entry,
    Erase,
    Expire,
    Part,
    Replace,
    ReplacedRun,
    ReplacementPiece,
    SegmentRef,
    Trim,
)
from offsetlog.core.topic.fold import fold
from offsetlog.core.topic.publish import publish
from offsetlog.core.topic.state import EMPTY_STATE, TopicState
from offsetlog.format import entries, segments, snapshots
from offsetlog.format import record_schema as rows

GOLDEN = Path(__file__).parent / "golden" / "v1"
RULES_2 = Path(__file__).parent / "golden" / "rules2"
ROWS = [
    # partition, key, value, headers, timestamp
    (0, b"k", b"v", [("h", b"1"), ("empty", None), ("h", b"")], 1_700_000_000_000),
    (0, None, b"", None, -5),
    (2, b"", None, [], 1_700_000_000_123),
]
SEGMENT_ROWS = [(b"k%d" % i if i % 3 else None, b"value %d" % i, None, 1000 + i) for i in range(7)]


def write_id(n: int) -> str:
    return f"{n:032x}"


def ref(encoded: segments.EncodedSegment, born: int, n: int) -> SegmentRef:
    return encoded.ref(born, write_id(1000 + n))


def inline_table() -> pa.Table:
    columns = list(zip(*ROWS, strict=True))
    return pa.table(
        {
            "partition": pa.array(columns[0], pa.int32()),
            "key": pa.array(columns[1], pa.binary()),
            "value": pa.array(columns[2], pa.binary()),
            "headers": pa.array(columns[3], rows.HEADERS),
            "timestamp": pa.array(columns[4], pa.int64()).cast(rows.TIMESTAMP),
        },
        schema=entries.ENTRY_ROWS,
    )


def segment_table(offsets: list[int] | None = None) -> pa.Table:
    chosen = SEGMENT_ROWS if offsets is None else [SEGMENT_ROWS[i] for i in offsets]
    columns = list(zip(*chosen, strict=True))
    table = pa.table(
        {
            "key": pa.array(columns[0], pa.binary()),
            "value": pa.array(columns[1], pa.binary()),
            "headers": pa.array(columns[2], rows.HEADERS),
            "timestamp": pa.array(columns[3], pa.int64()).cast(rows.TIMESTAMP),
        },
        schema=rows.ROWS,
    )
    return table if offsets is None else table.append_column(rows.OFFSET, pa.array(offsets))


def written_segment() -> segments.EncodedSegment:
    return segments.encode(segment_table(), "zstd", group_records=3)


GAPS = [0, 2, 3, 6]


def rewritten_segment() -> segments.EncodedSegment:
    return segments.encode(segment_table(GAPS), "lz4", group_records=2)


def chain() -> list[tuple[str, Entry, pa.Table | None]]:
    """One entry of each kind, which all count but the last."""
    written, rewritten = written_segment(), rewritten_segment()
    inline = (
        Part(0, 2, 2, -5, 1_700_000_000_000),
        Part(2, 1, 0, 1_700_000_000_123, 1_700_000_000_123),
    )
    one = Part(1, 7, 49, 1000, 1006, ref(written, 2, 1))
    bodies: list[tuple[str, object, pa.Table | None]] = [
        ("create", Create("Orders.v1", 3, (("retention.ms", "-1"),), -1), None),
        ("append-inline", Append("a" * 32, 1, True, 1, 0, 3, "d" * 16, 0, inline), inline_table()),
        ("append-segment", Append("query", 7, False, 2, 0, 3, "e" * 16, 1, (one,)), None),
        ("configure", Configure(4, (("compression.type", "lz4"),), 0), None),
        (
            "replace",
            Replace(
                4,
                (
                    ReplacedRun(
                        1,
                        0,
                        7,
                        (ReplacementPiece(0, 7, 4, 30, 1000, 1006, 1, ref(rewritten, 4, 2)),),
                    ),
                ),
            ),
            None,
        ),
        ("trim", Trim(((0, 1), (3, 0))), None),
        ("collect", Collect(5), None),
        ("expire", Expire(1, ("nobody",)), None),
        ("delete", Delete(3), None),
    ]
    return [
        (name, Entry(write_id(n), 1_700_000_000_000 + n, body), table)  # type: ignore[arg-type]
        for n, (name, body, table) in enumerate(bodies)
    ]


def state_before_the_delete() -> TopicState:
    return fold(EMPTY_STATE, [entry for _, entry, _ in chain()][:-1])


def stored_state(apart: bool) -> dict[str, bytes]:
    """A snapshot with its leaves, and its senders in it or apart."""
    state = state_before_the_delete()
    uids = (write_id(2000 + n) for n in count())
    tails = [(part.start, part.tail) for part in state.parts]
    limits = publishing.IndexLimits(leaf_extents=2)
    made = publish(state.index, state.tip, tails, {}, uids, limits)
    out = {f"leaf-{n}": snapshots.encode_leaf(leaf) for n, (_, leaf) in enumerate(made.leaves)}
    senders = snapshots.encode_senders(state, many=1 if apart else 512)
    uid = None
    if senders is not None:
        uid = write_id(3000)
        out["senders"] = senders
    name = "snapshot-apart" if apart else "snapshot"
    out[name] = snapshots.encode_snapshot(state, made.index, uid)
    return out


def files() -> dict[str, bytes]:
    out = {}
    for name, entry, table in chain():
        out[f"entry-{name}.parquet"] = entries.encode(entry, table, "zstd").data
    inline = entries.decode(out["entry-append-inline.parquet"], "inline")
    out["entry-stub.parquet"] = entries.encode_stub(inline)
    out["segment.parquet"] = written_segment().data
    out["segment-rewritten.parquet"] = rewritten_segment().data
    for name, data in {**stored_state(False), **stored_state(True)}.items():
        out[f"{name}.parquet"] = data
    out["_offsetlog.json"] = strict_json.dumps({"format": 1, "id": write_id(1)})
    return out


def chain_of_rules_2() -> list[tuple[str, Entry, pa.Table | None]]:
    """One entry of each kind that only rules 2 know, which all count."""
    rewritten = SegmentRef(4, write_id(1002), 1163, 758, "b485211aad4dc7ad")
    one = Part(1, 7, 49, 1000, 1006, SegmentRef(2, write_id(1001), 1453, 886, "1c066b83d167592c"))
    gone = ReplacementPiece(2, 7, 0, 0, 0, 0, 0)
    some = ReplacementPiece(0, 7, 4, 30, 1000, 1006, 1, rewritten)
    first = some._replace(end=2, records=1, segment=rewritten)
    policy = (("cleanup.policy", "compact"), ("min.cleanable.dirty.ratio", "0.25"))
    bodies: list[tuple[str, object]] = [
        ("create-compact", Create("Orders.v1", 3, policy, -1)),
        ("append", Append("query", 7, False, 1, 0, 3, "e" * 16, 1, (one,))),
        ("compact", Compact(2, (ReplacedRun(1, 0, 7, (some,)),), (CompactedTo(1, 7, 99, 3),))),
        (
            "erase",
            Erase(
                3,
                (ReplacedRun(1, 0, 7, (first, gone)),),
                ((0, 0), (1, 7)),
                "5" * 32,
                ("6" * 64, "7" * 64),
                3,
                "ann@host",
            ),
        ),
        ("replace-empty", Replace(4, (ReplacedRun(1, 2, 7, (gone,)),))),
        ("configure-table", Configure(3, (("table.format", "delta"),), 0)),
    ]
    return [
        (name, Entry(write_id(n), 1_700_000_000_000 + n, body), None)  # type: ignore[arg-type]
        for n, (name, body) in enumerate(bodies)
    ]


def files_of_rules_2() -> dict[str, bytes]:
    out = {
        f"entry-{name}.parquet": entries.encode(entry, table, "zstd").data
        for name, entry, table in chain_of_rules_2()
    }
    state = fold(EMPTY_STATE, [entry for _, entry, _ in chain_of_rules_2()])
    tails = [(part.start, part.tail) for part in state.parts]
    uids = (write_id(2000 + n) for n in count())
    made = publish(state.index, state.tip, tails, {}, uids)
    for n, (_, leaf) in enumerate(made.leaves):
        out[f"leaf-{n}.parquet"] = snapshots.encode_leaf(leaf)
    out["snapshot.parquet"] = snapshots.encode_snapshot(state, made.index, None)
    return out


def meaning() -> dict[str, object]:
    """What a reader of any later version must find in them, as plain JSON."""
    return {
        "entries": {name: repr(entry) for name, entry, _ in chain()},
        "inline_rows": repr(inline_table().to_pylist()),
        "segment_rows": repr(segment_table().to_pylist()),
        "rewritten_rows": repr(segment_table(GAPS).to_pylist()),
        "state": repr(described(state_before_the_delete())),
    }


def described(state: TopicState) -> dict[str, object]:
    """A state without how its index is split."""
    out = {
        k: v for k, v in state._asdict().items() if k not in ("parts", "index", "own", "callers")
    }
    out["parts"] = [(part.start, part.end) for part in state.parts]
    out["own"] = sorted(state.own.items())
    out["callers"] = sorted(state.callers.items())
    return out


if __name__ == "__main__":
    for folder, content in ((GOLDEN, files()), (RULES_2, files_of_rules_2())):
        if not folder.exists():
            folder.mkdir(parents=True)
            for name, data in content.items():
                (folder / name).write_bytes(data)
    if not (GOLDEN / "meaning.json").exists():
        (GOLDEN / "meaning.json").write_text(json.dumps(meaning(), indent=1) + "\n")
