"""What an entry says, as the JSON in its footer, and back.

Invariants:

1. ``decode(encode(entry)) == entry``.
2. Unknown kinds, newer versions and values out of range raise ``CorruptLogError``: they stop
   the fold. Passing over them would give one offset to two records.
3. An entry is written under the least rules that it needs, and one that says more than its rules
   know is refused.
"""

from __future__ import annotations

from typing import Any, NamedTuple, TypeVar

from offsetlog.core import strict_json
from offsetlog.core.decode import (
    Decoder,
    Malformed,
    anything,
    boolean,
    checked,
    default,
    from_json,
    from_value,
    hexadecimal,
    integer,
    list_of,
    map_of,
    plain,
    record,
    row,
    string,
)
from offsetlog.core.topic.entry import (
    RULES_VERSION,
    Append,
    Body,
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
    rules_of,
)
from offsetlog.errors import CorruptLogError
from offsetlog.format import FORMAT_VERSION
from offsetlog.values import MAX_BYTES, MAX_PARTITIONS, MIN_TIME, check_name, check_stored_config

A = TypeVar("A")
B = TypeVar("B")
P = TypeVar("P", Part, ReplacementPiece)

_KINDS: dict[type, str] = {
    Create: "create",
    Configure: "configure",
    Delete: "delete",
    Append: "append",
    Replace: "replace",
    Compact: "compact",
    Erase: "erase",
    Trim: "trim",
    Collect: "collect",
    Expire: "expire",
}
MAX_PARTS = 1_000_000
_APPEND = ("app", "seq", "own", "born", "life", "hashed", "digest", "ts")
_PLAIN_PART = 5
"""Values of a part whose rows are in the entry."""
FEW_PARTS = 1024
MAX_ERASED_KEYS = 100_000
"""Of one erasure: their digests are in its entry."""
MAX_INTEGER = 2**63 - 1
MAX_FOOTER = 2**31 - 1


def encode(entry: Entry) -> str:
    head = {
        "v": FORMAT_VERSION,
        "rules": rules_of(entry.body),
        "kind": _KINDS[type(entry.body)],
        "id": entry.write_id,
        "time": entry.time,
    }
    return strict_json.encode(head | _encode_body(entry.body))


def is_plain_append(entry: Entry) -> bool:
    """Whether this is an append of rows in the entry itself that ``decode`` surely takes: a look
    at the values in place of decoding what was just encoded."""
    write_id, time, body = entry
    if not isinstance(body, Append) or len(body.parts) > FEW_PARTS:
        return False
    numbers = [time, body.seq, body.born, body.created_at_entry, body.hashed_with, body.ts_type]
    for part in body.parts:
        numbers += part[:5]
    texts = (write_id, body.app, body.digest)
    return (
        {type(number) for number in numbers} == {int}
        and {type(text) for text in texts} == {str}
        and type(body.own) is bool
        and min(numbers) >= MIN_TIME
        and max(numbers) <= MAX_INTEGER
        and min(body.seq, body.born, body.created_at_entry) >= 0
        and 1 <= body.hashed_with <= MAX_PARTITIONS
        and 0 <= body.ts_type <= 1
        and len(write_id) == 32
        and not write_id.strip("0123456789abcdef")
        and len(body.app) <= 4096
        and len(body.digest) <= 64
        and all(
            0 <= part.partition < MAX_PARTITIONS
            and part.records >= 1
            and 0 <= part.bytes <= MAX_BYTES
            and part.min_ts <= part.max_ts
            and part.segment is None
            for part in body.parts
        )
    )


def _encode_body(body: Body) -> dict[str, Any]:
    if isinstance(body, Append):
        parts = [
            list(p[:5]) if p.segment is None else [*p[:5], list(p.segment)] for p in body.parts
        ]
        return {**dict(zip(_APPEND, body, strict=False)), "parts": parts}
    if isinstance(body, Replace | Compact | Erase):
        replacement = {"planned": body.planned_at, "runs": [_encode_run(run) for run in body.runs]}
        if isinstance(body, Compact):
            return {**replacement, "compacted": [list(one) for one in body.compacted]}
        if isinstance(body, Erase):
            return {
                **replacement,
                "ends": [list(pair) for pair in body.ends],
                "salt": body.salt,
                "keys": list(body.keys),
                "records": body.records,
                "by": body.by,
            }
        return replacement
    if isinstance(body, Create | Configure):
        return {
            **({"topic": body.topic} if isinstance(body, Create) else {}),
            "partitions": body.partitions,
            "config": dict(body.config),
            "sees": body.expected_head,
        }
    if isinstance(body, Delete):
        return {"sees": body.expected_head}
    if isinstance(body, Trim):
        return {"starts": [list(pair) for pair in body.starts]}
    if isinstance(body, Collect):
        return {"horizon": body.horizon}
    return {"floor": body.floor, "callers": list(body.callers)}


def _encode_run(run: ReplacedRun) -> list[Any]:
    pieces = [list(p[:7]) if p.segment is None else [*p[:7], list(p.segment)] for p in run.pieces]
    return [run.partition, run.start, run.end, pieces]


def decode(data: bytes | str, where: str) -> Entry:
    """The entry of a file, which errors call ``where``."""
    value = strict_json.loads(data, where)
    entry = _plain_append(value)
    if entry is not None:
        return entry
    raw = from_value(plain, value, where)
    head = from_value(_HEAD, raw, where)
    if head.version > FORMAT_VERSION or head.rules > RULES_VERSION:
        raise CorruptLogError(
            f"{where} is of format {head.version}, rules {head.rules}; this library reads format "
            f"{FORMAT_VERSION}, rules {RULES_VERSION}.",
            "Upgrade offsetlog.",
        )
    if not isinstance(head.kind, str) or head.kind not in _BODIES:
        raise CorruptLogError(
            f"{where} is an entry of the unknown kind {head.kind!r}.", "Upgrade offsetlog."
        )
    write_id, time = from_value(_AUTHORSHIP, raw, where)
    body = from_value(_BODIES[head.kind], raw, where)
    if rules_of(body) > head.rules:
        raise CorruptLogError(
            f"{where} is of rules {head.rules}, and says what only rules {rules_of(body)} know.",
            "It was not written by offsetlog.",
        )
    return Entry(write_id, time, body)


def _plain_append(raw: Any) -> Entry | None:
    """What most entries are, without a shape for each value; None for what ``is_plain_append``
    does not take: the shapes below read or refuse it."""
    try:
        if raw["kind"] != "append" or not type(raw["v"]) is type(raw["rules"]) is int:
            return None
        parts = tuple([Part(*part) for part in raw["parts"] if len(part) == _PLAIN_PART])
        body = Append._make([*[raw[name] for name in _APPEND], parts])
        entry = Entry(raw["id"], raw["time"], body)
        known = 1 <= raw["v"] <= FORMAT_VERSION and 1 <= raw["rules"] <= RULES_VERSION
        whole = type(raw["parts"]) is list and len(parts) == len(raw["parts"])
        return entry if known and whole and is_plain_append(entry) else None
    except (KeyError, TypeError):
        return None


def decode_parts(parts: object, where: str) -> tuple[Part, ...]:
    """The parts of an append, as its JSON has them."""
    return from_json(_PARTS, strict_json.dumps(parts), where)


class _Head(NamedTuple):
    version: int
    rules: int
    kind: object


def _pair(first: A, second: B) -> tuple[A, B]:
    return first, second


def _check_times(part: P) -> P:
    if part.min_ts > part.max_ts:
        raise Malformed(f"the least timestamp {part.min_ts} is above the greatest, {part.max_ts}")
    return part


def _check_segment(segment: SegmentRef) -> SegmentRef:
    if segment.footer_bytes > segment.size:
        raise Malformed(f"the footer of {segment.footer_bytes} bytes is longer than the segment")
    return segment


def _check_piece(piece: ReplacementPiece) -> ReplacementPiece:
    if not 0 <= piece.records <= piece.end - piece.base or piece.base == piece.end:
        raise Malformed(f"[{piece.base}, {piece.end}) can't hold {piece.records} records")
    if piece.segment is None and (piece.records or piece.bytes):
        raise Malformed(f"no file holds the {piece.records} records of a piece")
    return _check_times(piece)


def _check_run(run: ReplacedRun) -> ReplacedRun:
    reached = run.start
    for piece in run.pieces:
        if piece.base != reached:
            raise Malformed(f"the pieces of a run leave a hole at {reached}")
        reached = piece.end
    if reached != run.end or run.start >= run.end:
        raise Malformed(f"the pieces of a run end at {reached}, not at {run.end}")
    return run


def _check_runs(runs: tuple[ReplacedRun, ...]) -> tuple[ReplacedRun, ...]:
    """What is replaced twice by one entry would be lost."""
    ranges = sorted(run[:3] for run in runs)
    for before, after in zip(ranges, ranges[1:], strict=False):
        if before[0] == after[0] and after[1] < before[2]:
            raise Malformed(f"two runs of partition {after[0]} have offset {after[1]}")
    return runs


def _check_compacted(compacted: CompactedTo) -> CompactedTo:
    if compacted.tombstones_from > compacted.end:
        raise Malformed(f"what was compacted ends below {compacted.tombstones_from}")
    return compacted


def _check_config(config: dict[str, str]) -> tuple[tuple[str, str], ...]:
    check_stored_config(config)
    return tuple(sorted(config.items()))


CONFIG = checked(map_of(string(), key=string(249)), _check_config)
"""A topic's config as it is stored, with values that parse."""
_HEAD = record(_Head, v=integer(1), rules=integer(1), kind=anything)
_PARTITION = integer(0, MAX_PARTITIONS - 1)
_COUNT = integer(1, MAX_PARTITIONS)
_TIME = integer(MIN_TIME)
_BYTES = integer(0, MAX_BYTES)
_AUTHORSHIP: Decoder[tuple[str, int]] = record(_pair, id=hexadecimal(32), time=_TIME)
_TS_TYPE = integer(0, 1)
_HEAD_SEEN = integer(-1)
_SEGMENT = checked(
    row(
        SegmentRef,
        integer(),
        hexadecimal(32),
        integer(12, MAX_BYTES),
        integer(8, MAX_FOOTER),
        hexadecimal(16),
    ),
    _check_segment,
)
_PART = checked(
    row(Part, _PARTITION, integer(1), _BYTES, _TIME, _TIME, _SEGMENT, optional=1),
    _check_times,
)
_PARTS = list_of(_PART, MAX_PARTS)
_PIECE = checked(
    row(
        ReplacementPiece,
        integer(),
        integer(),
        integer(),
        _BYTES,
        _TIME,
        _TIME,
        _TS_TYPE,
        _SEGMENT,
        optional=1,
    ),
    _check_piece,
)
_RUN = checked(
    row(ReplacedRun, _PARTITION, integer(), integer(), list_of(_PIECE, MAX_PARTS)), _check_run
)
_START: Decoder[tuple[int, int]] = row(_pair, _PARTITION, integer())
_RUNS = list_of(_RUN, MAX_PARTS)
_DISJOINT_RUNS = checked(_RUNS, _check_runs)
_COMPACTED = checked(row(CompactedTo, _PARTITION, integer(), _TIME, integer()), _check_compacted)
_BODIES: dict[str, Decoder[Body]] = {
    "create": record(
        Create,
        topic=checked(string(249), check_name),
        partitions=_COUNT,
        config=CONFIG,
        sees=_HEAD_SEEN,
    ),
    "configure": record(Configure, partitions=_COUNT, config=CONFIG, sees=_HEAD_SEEN),
    "delete": record(Delete, sees=_HEAD_SEEN),
    "append": record(
        Append,
        app=string(),
        seq=integer(),
        own=boolean,
        born=integer(),
        life=integer(),
        hashed=_COUNT,
        digest=string(64),
        ts=_TS_TYPE,
        parts=_PARTS,
    ),
    "replace": record(Replace, planned=integer(), runs=_RUNS),
    "compact": record(
        Compact,
        planned=integer(),
        runs=_DISJOINT_RUNS,
        compacted=list_of(_COMPACTED, MAX_PARTITIONS),
    ),
    "erase": record(
        Erase,
        planned=integer(),
        runs=_DISJOINT_RUNS,
        ends=list_of(_START, MAX_PARTITIONS),
        salt=hexadecimal(32),
        keys=list_of(hexadecimal(64), MAX_ERASED_KEYS),
        records=integer(),
        by=string(),
    ),
    "trim": record(Trim, starts=list_of(_START, MAX_PARTITIONS)),
    "collect": record(Collect, horizon=integer()),
    "expire": record(Expire, floor=integer(), callers=default(list_of(string(), MAX_PARTS), ())),
}
