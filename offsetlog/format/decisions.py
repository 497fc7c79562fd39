"""What an entry says, as the JSON in its footer, and back.

Invariants:

1. ``decode(encode(entry)) == entry``.
2. Unknown kinds, newer versions and values out of range raise ``CorruptLogError``: they stop
   the fold. Passing over them would give one offset to two records.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from offsetlog.core import strict_json
from offsetlog.core.strict_json import boolean, fields, hexadecimal, integer, items, string
from offsetlog.core.topic.entry import (
    RULES_VERSION,
    Append,
    Body,
    Collect,
    Configure,
    Create,
    Delete,
    Entry,
    Expire,
    Part,
    Replace,
    ReplacedRun,
    ReplacementPiece,
    SegmentRef,
    Trim,
)
from offsetlog.errors import CorruptLogError, InvalidRequestError
from offsetlog.format import FORMAT_VERSION
from offsetlog.values import MAX_PARTITIONS, MIN_TIME, check_name, check_stored_config

_KINDS: dict[type, str] = {
    Create: "create",
    Configure: "configure",
    Delete: "delete",
    Append: "append",
    Replace: "replace",
    Trim: "trim",
    Collect: "collect",
    Expire: "expire",
}
MAX_PARTS = 1_000_000


def encode(entry: Entry) -> bytes:
    head = {
        "v": FORMAT_VERSION,
        "rules": RULES_VERSION,
        "kind": _KINDS[type(entry.body)],
        "id": entry.write_id,
        "time": entry.time,
    }
    return strict_json.dumps(head | _encode_body(entry.body))


def _encode_body(body: Body) -> dict[str, Any]:
    if isinstance(body, Append):
        return {
            "app": body.app,
            "seq": body.seq,
            "own": body.own,
            "born": body.born,
            "life": body.life,
            "hashed": body.hashed_with,
            "digest": body.digest,
            "ts": body.ts_type,
            "parts": [
                list(p[:5]) if p.segment is None else [*p[:5], list(p.segment)] for p in body.parts
            ],
        }
    if isinstance(body, Replace):
        runs = [
            [r.partition, r.start, r.end, [[*p[:7], list(p.segment)] for p in r.pieces]]
            for r in body.runs
        ]
        return {"planned": body.planned_at, "runs": runs}
    if isinstance(body, Create):
        return {
            "topic": body.topic,
            "partitions": body.partitions,
            "config": dict(body.config),
            "sees": body.sees,
        }
    if isinstance(body, Configure):
        return {
            "partitions": body.partitions,
            "config": dict(body.config),
            "sees": body.sees,
        }
    if isinstance(body, Delete):
        return {"sees": body.sees}
    if isinstance(body, Trim):
        return {"starts": [list(pair) for pair in body.starts]}
    if isinstance(body, Collect):
        return {"horizon": body.horizon}
    return {"floor": body.floor, "callers": list(body.callers)}


def decode(data: bytes, what: str) -> Entry:
    """The entry; ``what`` names its file in errors."""
    raw = fields(strict_json.loads(data, what), what)
    version = integer(raw.get("v"), f"{what}: version", 1)
    rules = integer(raw.get("rules"), f"{what}: rules version", 1)
    if version > FORMAT_VERSION or rules > RULES_VERSION:
        raise CorruptLogError(
            f"{what} is of format {version}, rules {rules}; this library reads format "
            f"{FORMAT_VERSION}, rules {RULES_VERSION}.",
            "Upgrade offsetlog.",
        )
    kind = string(raw.get("kind"), f"{what}: kind")
    if kind not in _DECODERS:
        raise CorruptLogError(
            f"{what} is an entry of the unknown kind {kind!r}.", "Upgrade offsetlog."
        )
    return Entry(
        hexadecimal(raw.get("id"), f"{what}: write id", 32),
        integer(raw.get("time"), f"{what}: time", MIN_TIME),
        _DECODERS[kind](raw, what),
    )


def _append(raw: dict[str, Any], what: str) -> Append:
    return Append(
        string(raw.get("app"), f"{what}: app"),
        integer(raw.get("seq"), f"{what}: seq"),
        boolean(raw.get("own"), f"{what}: own"),
        integer(raw.get("born"), f"{what}: born"),
        integer(raw.get("life"), f"{what}: life"),
        integer(raw.get("hashed"), f"{what}: hashed", 1, MAX_PARTITIONS),
        string(raw.get("digest"), f"{what}: digest", 64),
        integer(raw.get("ts"), f"{what}: ts", 0, 1),
        tuple(_part(p, what) for p in items(raw.get("parts"), f"{what}: parts", MAX_PARTS)),
    )


def _part(raw: object, what: str) -> Part:
    values = items(raw, f"{what}: part", 6)
    if len(values) < 5:
        raise CorruptLogError(f"{what}: a part has {len(values)} values.")
    low, high = _times(values[3], values[4], what)
    return Part(
        integer(values[0], f"{what}: partition", 0, MAX_PARTITIONS - 1),
        integer(values[1], f"{what}: records", 1),
        integer(values[2], f"{what}: bytes"),
        low,
        high,
        _segment(values[5], what) if len(values) == 6 else None,
    )


def _times(low: object, high: object, what: str) -> tuple[int, int]:
    least = integer(low, f"{what}: least timestamp", MIN_TIME)
    return least, integer(high, f"{what}: greatest timestamp", least)


def _segment(raw: object, what: str) -> SegmentRef:
    values = items(raw, f"{what}: segment", 5)
    if len(values) != 5:
        raise CorruptLogError(f"{what}: a segment has {len(values)} values.")
    size = integer(values[2], f"{what}: segment size", 12)
    return SegmentRef(
        integer(values[0], f"{what}: born"),
        hexadecimal(values[1], f"{what}: uid", 32),
        size,
        integer(values[3], f"{what}: foot", 8, size),
        hexadecimal(values[4], f"{what}: sum", 16),
    )


def _replace(raw: dict[str, Any], what: str) -> Replace:
    runs = tuple(_run(r, what) for r in items(raw.get("runs"), f"{what}: runs", MAX_PARTS))
    return Replace(integer(raw.get("planned"), f"{what}: planned"), runs)


def _run(raw: object, what: str) -> ReplacedRun:
    values = items(raw, f"{what}: run", 4)
    if len(values) != 4:
        raise CorruptLogError(f"{what}: a run has {len(values)} values.")
    partition = integer(values[0], f"{what}: partition", 0, MAX_PARTITIONS - 1)
    start = integer(values[1], f"{what}: start")
    end = integer(values[2], f"{what}: end", start + 1)
    pieces = tuple(_piece(p, what) for p in items(values[3], f"{what}: pieces", MAX_PARTS))
    at = start
    for piece in pieces:
        if piece.base != at:
            raise CorruptLogError(f"{what}: the pieces of a run leave a hole at {at}.")
        at = piece.end
    if at != end:
        raise CorruptLogError(f"{what}: the pieces of a run end at {at}, not at {end}.")
    return ReplacedRun(partition, start, end, pieces)


def _piece(raw: object, what: str) -> ReplacementPiece:
    values = items(raw, f"{what}: piece", 8)
    if len(values) != 8:
        raise CorruptLogError(f"{what}: a piece has {len(values)} values.")
    base = integer(values[0], f"{what}: base")
    end = integer(values[1], f"{what}: end", base + 1)
    low, high = _times(values[4], values[5], what)
    return ReplacementPiece(
        base,
        end,
        integer(values[2], f"{what}: records", 0, end - base),
        integer(values[3], f"{what}: bytes"),
        low,
        high,
        integer(values[6], f"{what}: ts", 0, 1),
        _segment(values[7], what),
    )


def _config(raw: object, what: str) -> tuple[tuple[str, str], ...]:
    return config_of(raw, f"{what}: config")


def config_of(raw: object, what: str) -> tuple[tuple[str, str], ...]:
    """A topic's config as it is stored, with values that parse."""
    pairs = {
        string(key, what, 249): string(value, f"{what}: {key[:60]}")
        for key, value in fields(raw, what).items()
    }
    try:
        check_stored_config(pairs)
    except InvalidRequestError as error:
        raise CorruptLogError(f"{what}: {error.message}") from None
    return tuple(sorted(pairs.items()))


def _topic(raw: object, what: str) -> str:
    name = string(raw, what, 249)
    try:
        return check_name(name)
    except InvalidRequestError as error:
        raise CorruptLogError(f"{what}: {error.message}") from None


def _create(raw: dict[str, Any], what: str) -> Create:
    return Create(
        _topic(raw.get("topic"), f"{what}: topic"),
        integer(raw.get("partitions"), f"{what}: partitions", 1, MAX_PARTITIONS),
        _config(raw.get("config"), what),
        integer(raw.get("sees"), f"{what}: sees", -1),
    )


def _configure(raw: dict[str, Any], what: str) -> Configure:
    return Configure(
        integer(raw.get("partitions"), f"{what}: partitions", 1, MAX_PARTITIONS),
        _config(raw.get("config"), what),
        integer(raw.get("sees"), f"{what}: sees", -1),
    )


def _delete(raw: dict[str, Any], what: str) -> Delete:
    return Delete(integer(raw.get("sees"), f"{what}: sees", -1))


def _trim(raw: dict[str, Any], what: str) -> Trim:
    starts = []
    for pair in items(raw.get("starts"), f"{what}: starts", MAX_PARTITIONS):
        values = items(pair, f"{what}: start", 2)
        if len(values) != 2:
            raise CorruptLogError(f"{what}: a start has {len(values)} values.")
        partition = integer(values[0], f"{what}: partition", 0, MAX_PARTITIONS - 1)
        starts.append((partition, integer(values[1], f"{what}: offset")))
    return Trim(tuple(starts))


def _collect(raw: dict[str, Any], what: str) -> Collect:
    return Collect(integer(raw.get("horizon"), f"{what}: horizon"))


def _expire(raw: dict[str, Any], what: str) -> Expire:
    callers = items(raw.get("callers", []), f"{what}: callers", MAX_PARTS)
    return Expire(
        integer(raw.get("floor"), f"{what}: floor"),
        tuple(string(app, f"{what}: caller") for app in callers),
    )


_DECODERS: dict[str, Callable[[dict[str, Any], str], Body]] = {
    "create": _create,
    "configure": _configure,
    "delete": _delete,
    "append": _append,
    "replace": _replace,
    "trim": _trim,
    "collect": _collect,
    "expire": _expire,
}
