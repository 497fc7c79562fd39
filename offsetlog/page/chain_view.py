"""A topic's chain and its files, a page at a time, newest first.

Invariants:

1. A page of entries is at most one request for each entry, and ends early where they are large;
   a page of files reads none of them.
2. An entry is shown as what its author proposed. One that lost a race counts for nothing.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from offsetlog.core.topic.entry import (
    Append,
    Body,
    Collect,
    Compact,
    Configure,
    Create,
    Delete,
    Erase,
    Expire,
    Replace,
    ReplacedRun,
    Trim,
)
from offsetlog.core.topic.extents import Extent
from offsetlog.core.topic.plan import check_partition
from offsetlog.engine.topic.open_topic import OpenTopic
from offsetlog.format.entries import StoredEntry
from offsetlog.format.names import EntryName, segment_of

MAX_ENTRIES = 100
MAX_BYTES = 64 * 1024 * 1024
"""Of the entries of a page, but for the last ones that were read together."""
MAX_FILES = 200
SHOWN = 20
"""Partitions that are named of one entry."""


def entries(topic: OpenTopic, before: int | None, limit: int) -> dict[str, object]:
    """The entries below ``before``, or the newest ones."""
    tip = topic.state().tip
    end = tip if before is None else min(before, tip)
    shown: list[dict[str, object]] = []
    size, lowest = 0, max(0, end - limit)
    while end > lowest and size < MAX_BYTES:
        numbers = range(max(lowest, end - topic.chain.env.limits.window), end)
        stored = topic.chain.read_entries(numbers)
        shown += [
            _entry(topic, number, one)
            for number, one in zip(reversed(numbers), reversed(stored), strict=True)
        ]
        size += sum(len(one.data) for one in stored if one is not None)
        end = numbers.start
    return {"entries": shown, "before": end or None, "tip": tip}


def _entry(topic: OpenTopic, number: int, stored: StoredEntry | None) -> dict[str, object]:
    name = str(EntryName(topic.chain.folder, number))
    if stored is None:
        return {"entry": number, "file": name, "kind": "missing"}
    entry = stored.entry
    return {
        "entry": number,
        "file": name,
        "kind": type(entry.body).__name__.lower(),
        "time": entry.time,
        "file_bytes": len(stored.data),
        "is_stub": stored.stub,
        **_about(entry.body),
    }


def _about(body: Body) -> dict[str, object]:
    match body:
        case Append():
            return {
                "records": sum(part.records for part in body.parts),
                "bytes": sum(part.bytes for part in body.parts),
                "partitions": sorted({part.partition for part in body.parts})[:SHOWN],
                "segments": sum(part.segment is not None for part in body.parts),
                "app_id": None if body.own else body.app,
            }
        case Create() | Configure():
            return {"partition_count": body.partitions, "config": dict(body.config)}
        case Replace() | Compact():
            return {
                "partitions": sorted({run.partition for run in body.runs})[:SHOWN],
                "records": sum(piece.records for run in body.runs for piece in run.pieces),
                "segments": _segments(body.runs),
            }
        case Erase():
            return {
                "partitions": sorted({run.partition for run in body.runs})[:SHOWN],
                "erased_records": body.records,
                "keys": len(body.keys),
                "by": body.by,
                "segments": _segments(body.runs),
            }
        case Trim():
            return {"starts": {str(p): start for p, start in body.starts[:SHOWN]}}
        case Collect():
            return {"horizon": body.horizon}
        case Expire():
            return {"app_ids": list(body.callers[:SHOWN])}
        case Delete():
            return {}


def _segments(runs: Sequence[ReplacedRun]) -> int:
    return sum(piece.segment is not None for run in runs for piece in run.pieces)


def segment_files(
    topic: OpenTopic, partition: int, before: int | None, limit: int
) -> dict[str, object]:
    """The files that hold a partition's records below an offset, or its newest ones."""
    state = topic.state()
    check_partition(state, partition)
    start, end = state.start(partition), state.end(partition)
    at = end if before is None else min(max(before, start), end)
    shown = []
    for extent in _downwards(topic, partition, start, at):
        shown.append(_file(topic, extent))
        if len(shown) == limit:
            break
    lowest = shown[-1]["base"] if shown else at
    rest = lowest if isinstance(lowest, int) and lowest > start else None
    return {"partition": partition, "files": shown, "before": rest}


def _downwards(topic: OpenTopic, partition: int, start: int, at: int) -> Iterator[Extent]:
    while at > start:
        extent = topic.reader.extent_at(partition, at - 1)
        yield extent
        at = extent.base


def _file(topic: OpenTopic, extent: Extent) -> dict[str, object]:
    name: str | None = None
    if extent.inline:
        name = str(EntryName(topic.chain.folder, extent.entry))
    elif not extent.is_empty:
        name = str(segment_of(topic.chain.folder, extent))
    return {
        "file": name,
        "is_entry": extent.inline,
        "base": extent.base,
        "end": extent.end,
        "records": extent.records,
        "bytes": extent.bytes,
        "min_timestamp": extent.min_ts,
        "max_timestamp": extent.max_ts,
        "file_bytes": None if extent.segment is None else extent.segment.size,
        "entry": extent.entry,
        "is_rewritten": extent.rewritten,
    }
