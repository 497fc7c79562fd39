"""Every name below a root, parsed once into a type.

Invariants:

1. ``parse(str(name)) == name`` for every name made here.
2. What does not parse is not ours, and is never opened, replaced or deleted.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from offsetlog.core.topic.entry import SegmentRef
from offsetlog.core.topic.extents import Extent
from offsetlog.errors import InvalidRequestError
from offsetlog.values import canonical_name, check_name

ROOT_FILE = "_offsetlog.json"
BUCKET_ENTRIES = 10_000
"""Directories have limits: so many entries share one."""

_SEGMENT = re.compile(r"(?:(\d{20})-(\d{20})-)?(\d{20})-([0-9a-f]{32})\.parquet", re.ASCII)
_NUMBERED = re.compile(r"(\d{20})\.parquet", re.ASCII)
_LEAF = re.compile(r"([0-9a-f]{32})\.parquet", re.ASCII)
_PARTITION = re.compile(r"partition=(0|[1-9][0-9]{0,8})", re.ASCII)
_BUCKET = re.compile(r"_log/\d{16}", re.ASCII)
_DELTA = re.compile(
    r"_delta_log/(?:_last_checkpoint|_last_vacuum_info|\d{20}[0-9a-z.-]*\.(?:json|parquet|crc)"
    r"|(?:_staged_commits|_sidecars)/[0-9A-Za-z._-]+\.(?:json|parquet))",
    re.ASCII,
)
_TABLES_PARTS = ("_delta_log", "_delta_log/_staged_commits", "_delta_log/_sidecars")


def topic_folder(topic: str) -> str:
    """The folder of a topic: names that may not exist side by side share it."""
    return canonical_name(topic)


def is_topic_folder(name: str) -> bool:
    """Whether a folder of a root may be a topic's. What is not is somebody else's."""
    try:
        return canonical_name(check_name(name)) == name
    except InvalidRequestError:
        return False


class EntryName(NamedTuple):
    folder: str
    number: int

    def __str__(self) -> str:
        return f"{self.folder}/_log/{self.number // BUCKET_ENTRIES:016d}/{self.number:020d}.parquet"


class SnapshotName(NamedTuple):
    folder: str
    seq: int

    def __str__(self) -> str:
        return f"{snapshot_folder(self.folder)}/{self.seq:020d}.parquet"


class LeafName(NamedTuple):
    folder: str
    uid: str

    def __str__(self) -> str:
        return f"{leaf_folder(self.folder)}/{self.uid}.parquet"


class SegmentName(NamedTuple):
    """Of a segment as it was written; with ``base`` and ``end``, of a rewritten one."""

    folder: str
    partition: int
    born: int
    uid: str
    base: int | None = None
    end: int | None = None

    def __str__(self) -> str:
        span = "" if self.base is None else f"{self.base:020d}-{self.end:020d}-"
        where = partition_folder(self.folder, self.partition)
        return f"{where}/{span}{self.born:020d}-{self.uid}.parquet"


def log_folder(folder: str) -> str:
    return f"{folder}/_log"


def bucket_folder(folder: str, number: int) -> str:
    return f"{folder}/_log/{number // BUCKET_ENTRIES:016d}"


def snapshot_folder(folder: str) -> str:
    return f"{folder}/_snapshot"


def hint_name(folder: str) -> str:
    return f"{folder}/_snapshot/hint.json"


def clock_name(folder: str) -> str:
    """A file that maintenance touches to read the storage's clock."""
    return f"{folder}/_snapshot/clock.json"


def stubs_name(folder: str) -> str:
    """A note of maintenance: up to where entries need no look any more."""
    return f"{folder}/_snapshot/stubs.json"


def table_name(folder: str) -> str:
    """A note of maintenance: a version that the topic's table has reached."""
    return f"{folder}/_snapshot/table.json"


def leaf_folder(folder: str) -> str:
    return f"{folder}/_index"


def partition_folder(folder: str, partition: int) -> str:
    return f"{folder}/partition={partition}"


def segment_name(folder: str, partition: int, ref: SegmentRef) -> SegmentName:
    return SegmentName(folder, partition, ref.born, ref.uid)


def segment_of(folder: str, extent: Extent) -> SegmentName:
    """The name of the segment that an extent lies in."""
    ref = extent.segment
    assert ref is not None
    if extent.rewritten:
        return SegmentName(folder, extent.partition, ref.born, ref.uid, extent.base, extent.end)
    return segment_name(folder, extent.partition, ref)


def parse_segment(name: str) -> SegmentName | None:
    """The segment that a path names, if it names one."""
    parts = name.rsplit("/", 2)
    if len(parts) != 3:
        return None
    folder, where, last = parts
    partition, match = _PARTITION.fullmatch(where), _SEGMENT.fullmatch(last)
    if partition is None or match is None:
        return None
    base, end, born, uid = match.groups()
    return SegmentName(
        folder,
        int(partition[1]),
        int(born),
        uid,
        None if base is None else int(base),
        None if end is None else int(end),
    )


def parse_partition_folder(name: str) -> int | None:
    match = _PARTITION.fullmatch(name)
    return int(match[1]) if match else None


def parse_entry(name: str) -> EntryName | None:
    parts = name.rsplit("/", 3)
    if len(parts) != 4 or parts[1] != "_log":
        return None
    match = _NUMBERED.fullmatch(parts[3])
    made = EntryName(parts[0], int(match[1])) if match else None
    return made if made is not None and str(made) == name else None


def parse_snapshot(name: str) -> SnapshotName | None:
    parts = name.rsplit("/", 2)
    match = _NUMBERED.fullmatch(parts[-1])
    if len(parts) != 3 or parts[1] != "_snapshot" or match is None:
        return None
    return SnapshotName(parts[0], int(match[1]))


def parse_leaf(name: str) -> LeafName | None:
    parts = name.rsplit("/", 2)
    match = _LEAF.fullmatch(parts[-1])
    if len(parts) != 3 or parts[1] != "_index" or match is None:
        return None
    return LeafName(parts[0], match[1])


def is_topics_part(path: str) -> bool:
    """Whether a folder is a part of a topic, by its path below the topic's folder."""
    return (
        path in ("_log", "_snapshot", "_index")
        or path in _TABLES_PARTS
        or _PARTITION.fullmatch(path) is not None
        or _BUCKET.fullmatch(path) is not None
    )


def is_topics_file(name: str) -> bool:
    """Whether a file is a topic's own, by its path below the root."""
    folder, _, below = name.partition("/")
    notes = (hint_name, clock_name, stubs_name, table_name)
    if name in [note(folder) for note in notes]:
        return True
    parsed = parse_entry(name) or parse_snapshot(name) or parse_leaf(name) or parse_segment(name)
    if parsed is not None:
        return parsed.folder == folder and str(parsed) == name
    return _DELTA.fullmatch(below) is not None
