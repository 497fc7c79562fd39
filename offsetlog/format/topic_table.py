"""A topic as a Delta table, as Delta's log has it: what a version and a checkpoint say.

Rules of this module:

1. A version's ``commitInfo`` holds the point that it reached, in the field ``offsetlog``: what is
   in force follows from that and the chain. A version without it is somebody else's.
2. What an ``add`` says follows from the segment's extent alone, so a checkpoint says it alike.
3. The protocol demands a feature of our own of writers, and of readers none; a table that is
   closed demands one of readers too, so that nobody takes it for an empty one.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from offsetlog.core.decode import (
    boolean,
    field,
    from_json,
    integer,
    list_of,
    nullable,
    record,
)
from offsetlog.core.topic.extents import Extent
from offsetlog.core.topic.table import Point, Removal
from offsetlog.errors import InvalidRequestError
from offsetlog.format import notes
from offsetlog.format.delta_log import (
    ENGINE,
    MOST_LOG_BYTES,
    Action,
    as_checkpoint,
    checkpoint_file,
    column,
    encode_version,
    metadata_of,
)
from offsetlog.format.names import segment_of

FEATURE = "offsetlog"
"""Demanded of who writes: nobody else does."""
CLOSED = "offsetlog-closed"
"""Demanded of who reads a table that was turned off or whose topic was deleted: nobody can."""
_FIRST_TIME, _LAST_TIME = -62_135_596_800_000, 253_402_300_799_999
"""The years 1 to 9999, which every reader of Delta can spell."""
_EPOCH = dt.datetime(1970, 1, 1)


class Head(NamedTuple):
    """What the newest version of a table says."""

    version: int
    point: Point
    files: int
    checkpoint: int
    """The version of the newest checkpoint that its author knew; -1: there was none."""
    actions: int
    """In the versions since then, this one among them."""
    closed: bool
    retention_ms: int
    """For how long removed files stay, as the table's metadata says."""
    table_id: str


def unknown(version: int, table_id: str) -> Head:
    """What is taken for said by a version of somebody else's, of whose table only the id is known:
    so it can be closed."""
    return Head(version, Point(0, ()), 0, -1, 0, False, 0, table_id)


class _Own(NamedTuple):
    tip: int
    ends: tuple[int, ...]
    files: int
    checkpoint: int
    actions: int
    closed: bool
    retention: int
    table: str


def _text(value: object) -> str:
    return value if isinstance(value, str) else ""


_OWN = field(
    "commitInfo",
    field(
        ENGINE,
        nullable(
            record(
                _Own,
                tip=integer(),
                ends=list_of(integer()),
                files=integer(),
                checkpoint=integer(-1),
                actions=integer(),
                closed=boolean,
                retention=integer(),
                table=_text,
            )
        ),
    ),
)


def head_of(version: int, data: bytes, where: str) -> Head:
    """What a version says of the table."""
    first = data.partition(b"\n")[0]
    own = from_json(_OWN, first, where, MOST_LOG_BYTES) if b'"commitInfo"' in first else None
    if own is None:
        raise InvalidRequestError(
            f"{where} was written by somebody else: the Delta table of a topic is offsetlog's "
            "to write.",
            "Set table.format=none, run maintain, and set it to delta again: the table is made "
            "anew from the topic's own files.",
        )
    return Head(version, Point(own.tip, own.ends), *own[2:])


# --- versions ------------------------------------------------------------------------------


def protocol(closed: bool) -> Action:
    if closed:
        both = [CLOSED]
        return {"minReaderVersion": 3, "minWriterVersion": 7, "readerFeatures": both,
                "writerFeatures": [FEATURE, *both]}  # fmt: skip
    return {"minReaderVersion": 1, "minWriterVersion": 7, "writerFeatures": [FEATURE]}


def metadata(topic: str, table_id: str, retention_ms: int) -> Action:
    settings = {
        "delta.deletedFileRetentionDuration": _interval(retention_ms),
        "delta.logRetentionDuration": _interval(max(retention_ms, LOG_MS)),
        "delta.enableExpiredLogCleanup": "false",
    }
    return metadata_of(COLUMNS, table_id, settings, None, topic, ["partition"])


def _interval(milliseconds: int) -> str:
    hours, rest = divmod(milliseconds, 3_600_000)
    return f"interval {-(-milliseconds // 1000)} seconds" if rest else f"interval {hours} hours"


LOG_MS = 7 * 24 * 3_600_000
"""Versions stay for so long behind a checkpoint, for streams that are behind."""
_HEADERS = {
    "type": "array",
    "elementType": {"type": "struct", "fields": [column("key", "string"),
                                                 column("value", "binary")]},
    "containsNull": True,
}  # fmt: skip
COLUMNS = (
    column("partition", "integer"),
    column("offset", "long"),
    column("timestamp", "timestamp"),
    column("key", "binary"),
    column("value", "binary"),
    column("headers", _HEADERS),
)


def add_of(extent: Extent, data_change: bool) -> Action:
    assert extent.segment is not None
    return {
        "path": path_of(extent),
        "partitionValues": {"partition": str(extent.partition)},
        "size": extent.segment.size,
        "modificationTime": _within(extent.max_ts, 0),
        "dataChange": data_change,
        "stats": _stats(extent),
    }


def path_of(extent: Extent) -> str:
    """Of a segment, from the table's folder."""
    return str(segment_of("", extent))[1:]


def _within(time_ms: int, least: int = _FIRST_TIME) -> int:
    return min(max(time_ms, least), _LAST_TIME)


def _stats(extent: Extent) -> str:
    """Bounds that are exact: some readers answer from them. Those of offsets are known where there
    are no gaps."""
    least: list[str] = []
    greatest: list[str] = []
    if extent.dense:
        least.append(f'"offset":{extent.base}')
        greatest.append(f'"offset":{extent.end - 1}')
    if _FIRST_TIME <= extent.min_ts <= extent.max_ts <= _LAST_TIME:
        least.append(f'"timestamp":"{_iso(extent.min_ts)}"')
        greatest.append(f'"timestamp":"{_iso(extent.max_ts)}"')
    return (
        f'{{"numRecords":{extent.records},"minValues":{{{",".join(least)}}},'
        f'"maxValues":{{{",".join(greatest)}}},"nullCount":{{"offset":0,"timestamp":0}}}}'
    )


def _iso(time_ms: int) -> str:
    return (_EPOCH + dt.timedelta(milliseconds=time_ms)).isoformat(timespec="milliseconds") + "Z"


def version_text(
    head: Head,
    topic: str,
    now_ms: int,
    *,
    removed: Sequence[Removal] = (),
    added: Sequence[Extent] = (),
    new: Sequence[Extent] = (),
    paths: Iterable[str] = (),
    before: Head | None = None,
) -> bytes:
    """The file of version ``head.version``, which follows ``before``. ``paths`` are removed too."""
    actions: list[Action] = []
    if before is None or before.closed != head.closed:
        actions.append({"protocol": protocol(head.closed)})
    if before is None or before.retention_ms != head.retention_ms:
        actions.append({"metaData": metadata(topic, head.table_id, head.retention_ms)})
    actions.append({"txn": {"appId": ENGINE, "version": head.point.tip, "lastUpdated": now_ms}})
    actions += [{"remove": _removal(path, now_ms, True)} for path in paths]
    actions += [
        {"remove": removal_of(removal.extent, now_ms, removal.takes_records)} for removal in removed
    ]
    actions += [{"add": add_of(extent, False)} for extent in added]
    actions += [{"add": add_of(extent, True)} for extent in new]
    own = {
        "tip": head.point.tip,
        "ends": list(head.point.ends),
        "files": head.files,
        "checkpoint": head.checkpoint,
        "actions": head.actions,
        "closed": head.closed,
        "retention": head.retention_ms,
        "table": head.table_id,
    }
    operation = "CLOSE" if head.closed else "PUBLISH"
    return encode_version(operation, now_ms, actions, own, tip=str(head.point.tip))


def removal_of(extent: Extent, now_ms: int, data_change: bool) -> Action:
    return _removal(path_of(extent), now_ms, data_change) | {
        "extendedFileMetadata": True,
        "partitionValues": {"partition": str(extent.partition)},
        "size": extent.segment.size if extent.segment is not None else 0,
    }


def _removal(path: str, now_ms: int, data_change: bool) -> Action:
    return {"path": path, "deletionTimestamp": now_ms, "dataChange": data_change}


# --- checkpoints ---------------------------------------------------------------------------


def checkpoint(
    head: Head,
    topic: str,
    now_ms: int,
    extents: Iterable[Sequence[Extent]],
    removed: Iterable[Action] = (),
) -> tuple[bytes, int]:
    """The file, and how many rows it has; ``extents`` come in parts, which are held one at a
    time."""
    first: list[Action] = [
        {"protocol": protocol(head.closed)},
        {"metaData": metadata(topic, head.table_id, head.retention_ms)},
        {"txn": {"appId": ENGINE, "version": head.point.tip, "lastUpdated": now_ms}},
    ]
    first += [{"remove": {**body, "dataChange": False}} for body in removed]
    return checkpoint_file(map(as_checkpoint, _parts(first, extents)))


def _parts(first: list[Action], extents: Iterable[Sequence[Extent]]) -> Iterator[list[Action]]:
    yield first
    for part in extents:
        if part:
            yield [{"add": add_of(extent, False)} for extent in part]


# --- the note of where it is ---------------------------------------------------------------

_VERSION = field("version", integer())
MOST_NOTE_BYTES = 4096


def encode_note(version: int) -> bytes:
    return notes.encode({"version": version})


def decode_note(data: bytes, where: str) -> int:
    return notes.decode(_VERSION, data, where, MOST_NOTE_BYTES)
