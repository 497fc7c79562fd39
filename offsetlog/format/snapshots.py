"""Stored states: a snapshot with the fences of its index, and the index's leaves.

Invariants:

1. Both are caches: a broken or missing one costs time, never correctness. Whatever is wrong
   with one is ``CorruptLogError`` here, and its reader goes to the chain instead.
2. ``decode_snapshot`` gives a state whose tails are empty: all its extents are in the index.
3. All senders are in the snapshot itself while they are few; many get a file of their own.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterable
from functools import wraps
from typing import NamedTuple, ParamSpec, TypeVar

import pyarrow as pa

from offsetlog.core import strict_json
from offsetlog.core.decode import (
    anything,
    boolean,
    default,
    fields,
    from_value,
    hexadecimal,
    integer,
    list_of,
    nullable,
    record,
    row,
    string,
)
from offsetlog.core.topic.entry import FIRST_RULES, RULES_VERSION
from offsetlog.core.topic.index import MAX_LEAF_EXTENTS, Fence, Index, Leaf, LeafRef
from offsetlog.core.topic.senders import SenderState, SenderTable
from offsetlog.core.topic.state import Compaction, PartitionState, Replaced, TopicState
from offsetlog.errors import CorruptLogError
from offsetlog.format import FORMAT_VERSION
from offsetlog.format.decisions import CONFIG
from offsetlog.format.parquet import ParquetReader, first_line, open_sealed, write_sealed
from offsetlog.values import MIN_TIME

P = ParamSpec("P")
T = TypeVar("T")
MAX_SNAPSHOT_BYTES = 256 * 1024 * 1024
MAX_LEAF_BYTES = 16 * 1024 * 1024
MANY_SENDERS = 512

_STATE = "offsetlog.state"
_FENCES = Fence._fields
_LEAF_INTS = tuple(name for name in Leaf._fields if name not in ("ids", "sums"))
_LEAF_BYTES = {"ids": 16, "sums": 8}
_SMALL = {
    "partition": pa.int32(),
    "leaf": pa.int32(),
    "ts_type": pa.int8(),
    "kind": pa.int8(),
    "foot": pa.int32(),
}
_SENDERS = pa.schema(
    [
        ("app", pa.string()),
        ("own", pa.bool_()),
        ("seq", pa.int64()),
        ("entry", pa.int64()),
        ("time", pa.int64()),
        ("digest", pa.string()),
    ]
)


def _judged(decode: Callable[P, T]) -> Callable[P, T]:
    """With an error for shapes and types that a sealed file of ours never has: only a forged one
    does. The last argument is the file's name."""

    @wraps(decode)
    def judged(*args: P.args, **kwargs: P.kwargs) -> T:
        try:
            return decode(*args, **kwargs)
        except (
            ValueError,
            TypeError,
            LookupError,
            ArithmeticError,
            OSError,
            pa.ArrowException,
        ) as error:
            raise CorruptLogError(f"{args[-1]} cannot be read: {first_line(error)}") from None

    return judged


def _type(name: str) -> pa.DataType:
    return _SMALL.get(name, pa.int64())


_FENCE_SCHEMA = pa.schema([(name, _type(name)) for name in _FENCES])
_LEAF_INT_SCHEMA = pa.schema([(name, _type(name)) for name in _LEAF_INTS])
_LEAF_BYTE_SCHEMA = pa.schema([(name, pa.binary(width)) for name, width in _LEAF_BYTES.items()])
_LEAF_SCHEMA = pa.unify_schemas([_LEAF_INT_SCHEMA, _LEAF_BYTE_SCHEMA])


def _packed(schema: pa.Schema) -> dict[str, str]:
    """Offsets and times differ little from one row to the next."""
    wide = (pa.int32(), pa.int64())
    return {field.name: "DELTA_BINARY_PACKED" for field in schema if field.type in wide}


_PACKED_FENCES = _packed(_FENCE_SCHEMA)
_PACKED_LEAF = _packed(_LEAF_SCHEMA)


# --- snapshots -----------------------------------------------------------------------------


def encode_snapshot(state: TopicState, index: Index, senders_in: str | None) -> bytes:
    """The file of ``state``, whose extents are all in ``index``. ``senders_in`` is the uid of
    the file of senders, when they are stored apart."""
    stored = {
        "v": FORMAT_VERSION,
        "rules": state.rules,
        "tip": state.tip,
        "hash": state.hash,
        "topic": state.topic,
        "alive": state.alive,
        "life": state.created_at_entry,
        "head": state.head,
        "config": dict(state.config),
        "partitions": state.partitions,
        "starts": [part.start for part in state.parts],
        "ends": [part.end for part in state.parts],
        "floor": state.floor,
        "horizon": state.horizon,
        "collected_at": state.collected_at,
        "replaces": [list(seen) for seen in state.replaces],
        "replaces_forgotten": state.replaces_forgotten,
        "leaves": [list(ref) for ref in index.leaves],
        "senders_in": senders_in,
        "senders": [] if senders_in else [list(s) for s in _senders(state)],
    }
    compactions = [
        [partition, part.tombstones_from, [list(done) for done in part.compactions]]
        for partition, part in enumerate(state.parts)
        if part.compactions or part.tombstones_from
    ]
    if compactions:
        stored["compactions"] = compactions
    arrays = [_to_arrow(getattr(index, name), name) for name in _FENCES]
    table = pa.Table.from_arrays(arrays, schema=_FENCE_SCHEMA)
    meta = {_STATE: strict_json.dumps(stored).decode()}
    return write_sealed(table.schema, table, meta, "zstd", column_encoding=_PACKED_FENCES)


@_judged
def decode_snapshot(data: bytes, name: str) -> tuple[TopicState, str | None]:
    """The state, and the uid of the file of its senders when they are stored apart."""
    file = open_sealed(data, name, MAX_SNAPSHOT_BYTES)
    raw = file.key_values.get(_STATE.encode())
    if raw is None:
        raise CorruptLogError(f"{name} holds no state.")
    plain = strict_json.loads(raw, name)
    version, rules = from_value(_VERSIONS, plain, name)
    if version != FORMAT_VERSION or rules not in range(FIRST_RULES, RULES_VERSION + 1):
        raise CorruptLogError(f"{name} was written by rules that this library does not know.")
    state_fields = from_value(_STATE_FIELDS, plain, name)
    stored = from_value(_BESIDE_STATE, plain, name)
    if not len(stored.starts) == len(stored.ends) >= state_fields["partitions"]:
        raise CorruptLogError(
            f"{name} has {state_fields['partitions']} partitions, {len(stored.starts)} log starts "
            f"and {len(stored.ends)} log ends."
        )
    # Each fence holds an extent at least, so a small file cannot unfold to more than that.
    if file.num_rows > 2 * sum(leaf.extents for leaf in stored.leaves):
        raise CorruptLogError(f"{name} has {file.num_rows} fences.")
    columns = _columns(file, _FENCE_SCHEMA, MAX_SNAPSHOT_BYTES)
    if any(not 0 <= leaf < len(stored.leaves) for leaf in set(columns[_FENCES.index("leaf")])):
        raise CorruptLogError(f"{name} points to a leaf that it does not name.")
    parts = list(map(PartitionState, stored.starts, stored.ends))
    for partition, tombstones_from, passes in stored.compactions:
        if partition >= len(parts):
            raise CorruptLogError(f"{name} compacts partition {partition} of {len(parts)}.")
        parts[partition] = parts[partition]._replace(
            compactions=passes, tombstones_from=tombstones_from
        )
    state = TopicState(
        created_at_entry=state_fields.pop("life"),
        rules=rules,
        **state_fields,
        parts=tuple(parts),
        index=Index(state_fields["tip"], stored.leaves, *columns),
    )
    if stored.senders_in is None:
        state = _with_senders(state, stored.senders)
    return state, stored.senders_in


# --- senders -------------------------------------------------------------------------------


def _senders(state: TopicState) -> list[tuple[str, bool, int, int, int, str]]:
    return [(app, True, *known) for app, known in state.own.items()] + [
        (app, False, *known) for app, known in state.callers.items()
    ]


class _Sender(NamedTuple):
    app: str
    own: bool
    state: SenderState


def _sender(app: str, own: bool, seq: int, entry: int, time: int, digest: str) -> _Sender:
    return _Sender(app, own, SenderState(seq, entry, time, digest))


def encode_senders(state: TopicState, many: int = MANY_SENDERS) -> bytes | None:
    """The file of a state's senders; None while they are few."""
    senders = _senders(state)
    if len(senders) <= many:
        return None
    columns = list(zip(*senders, strict=True))
    table = pa.Table.from_arrays(
        [pa.array(c, f.type) for c, f in zip(columns, _SENDERS, strict=True)], schema=_SENDERS
    )
    return write_sealed(table.schema, table, {}, "zstd")


@_judged
def decode_senders(state: TopicState, data: bytes, name: str) -> TopicState:
    """``state`` with the senders of a file of their own."""
    file = open_sealed(data, name, MAX_SNAPSHOT_BYTES)
    # Ids differ, so each takes a byte at least however well it is compressed.
    if file.num_rows > len(data):
        raise CorruptLogError(f"{name} has {file.num_rows} senders.")
    table = _read(file, _SENDERS, MAX_SNAPSHOT_BYTES)
    columns = [table.column(i).to_pylist() for i in range(table.num_columns)]
    senders = [from_value(_SENDER, list(sender), name) for sender in zip(*columns, strict=True)]
    return _with_senders(state, senders)


def _with_senders(state: TopicState, senders: Iterable[_Sender]) -> TopicState:
    return state._replace(
        own=SenderTable.of((app, known) for app, own, known in senders if own),
        callers=SenderTable.of((app, known) for app, own, known in senders if not own),
    )


# --- what a snapshot says in JSON ------------------------------------------------------------


class _BesideState(NamedTuple):
    """What a snapshot says beside the fields of ``TopicState``."""

    starts: tuple[int, ...]
    ends: tuple[int, ...]
    leaves: tuple[LeafRef, ...]
    senders_in: str | None
    senders: tuple[_Sender, ...]
    compactions: tuple[_Compacted, ...]


class _Compacted(NamedTuple):
    partition: int
    tombstones_from: int
    passes: tuple[Compaction, ...]


_VERSIONS = record(lambda v, rules: (v, rules), v=anything, rules=anything)
_SENDER = row(_sender, string(), boolean, integer(), integer(), integer(-(2**62)), string())
_STATE_FIELDS = fields(
    tip=integer(),
    hash=hexadecimal(32),
    topic=string(249),
    alive=boolean,
    life=integer(-1),
    head=integer(-1),
    config=CONFIG,
    partitions=integer(),
    floor=integer(),
    horizon=integer(),
    collected_at=integer(-1),
    replaces=list_of(row(Replaced, integer(), integer(), integer(), integer())),
    replaces_forgotten=integer(-1),
)
_BESIDE_STATE = record(
    _BesideState,
    starts=list_of(integer()),
    ends=list_of(integer()),
    leaves=list_of(row(LeafRef, hexadecimal(32), integer(0, MAX_LEAF_EXTENTS))),
    senders_in=nullable(hexadecimal(32)),
    senders=list_of(_SENDER),
    compactions=default(
        list_of(
            row(
                _Compacted,
                integer(),
                integer(),
                list_of(row(Compaction, integer(), integer(MIN_TIME))),
            )
        ),
        (),
    ),
)


# --- leaves --------------------------------------------------------------------------------


def encode_leaf(leaf: Leaf) -> bytes:
    arrays = [_to_arrow(getattr(leaf, name), name) for name in _LEAF_INTS]
    for name, width in _LEAF_BYTES.items():
        buffers = [None, pa.py_buffer(getattr(leaf, name))]
        arrays.append(pa.FixedSizeBinaryArray.from_buffers(pa.binary(width), leaf.extents, buffers))
    table = pa.Table.from_arrays(arrays, schema=_LEAF_SCHEMA)
    return write_sealed(table.schema, table, {}, "zstd", column_encoding=_PACKED_LEAF)


@_judged
def decode_leaf(data: bytes, name: str) -> Leaf:
    """The leaf of a file."""
    file = open_sealed(data, name, MAX_LEAF_BYTES)
    if file.num_rows > MAX_LEAF_EXTENTS:
        raise CorruptLogError(f"{name} has {file.num_rows} extents.")
    ints = _columns(file, _LEAF_INT_SCHEMA, MAX_LEAF_BYTES)
    table = _read(file, _LEAF_BYTE_SCHEMA, MAX_LEAF_BYTES)
    blobs = [_blob(table, column, width) for column, width in _LEAF_BYTES.items()]
    return Leaf(*ints, *blobs)  # type: ignore[arg-type]  # ints first, blobs last


def _blob(table: pa.Table, column: str, width: int) -> bytes:
    chunk = table.column(column).combine_chunks()
    chunk = chunk.chunk(0) if isinstance(chunk, pa.ChunkedArray) else chunk
    raw = chunk.buffers()[1]
    low = chunk.offset * width
    return b"" if raw is None else raw.to_pybytes()[low : low + len(chunk) * width]


# --- columns -------------------------------------------------------------------------------


def _to_arrow(column: array[int], name: str) -> pa.Array:
    whole = pa.Array.from_buffers(pa.int64(), len(column), [None, pa.py_buffer(column)])
    return whole.cast(_type(name))


def _read(file: ParquetReader, schema: pa.Schema, budget: int) -> pa.Table:
    """These columns, all of them there, of these types and without nulls."""
    there = file.types(dict(zip(schema.names, schema.types, strict=True)))
    missing = set(schema.names) - set(there)
    if missing:
        raise CorruptLogError(f"{file.name} has no column {sorted(missing)[0]!r}.")
    table = file.read(schema.names, budget).select(schema.names)
    for name in schema.names:
        if table.column(name).null_count:
            raise CorruptLogError(f"{file.name}: column {name!r} has nulls.")
    return table


def _columns(file: ParquetReader, schema: pa.Schema, budget: int) -> list[array[int]]:
    table = _read(file, schema, budget)
    out = []
    for name in schema.names:
        values: array[int] = array("q")
        for chunk in table.column(name).cast(pa.int64()).chunks:
            raw = chunk.buffers()[1]
            if raw is not None:
                values.frombytes(memoryview(raw)[8 * chunk.offset :][: 8 * len(chunk)])
        out.append(values)
    return out
