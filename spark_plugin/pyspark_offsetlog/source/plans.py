"""What a task reads, and how that travels: as Python pickles it, and so that the JVM can read it.

Invariants:

1. The plan itself is JSON behind a header of fixed length (magic with a version, and how long the
   JSON is); what only Python needs follows as a pickle. It holds no secret: options of the
   filesystem are in the pickle.
2. A pickled partition is a call of ``from_plan`` with these bytes. The JVM adds what Python is to
   read of it: windows of offsets, between which the JVM reads, and the columns that are wanted. All
   else of a partition stays.
"""

from __future__ import annotations

import json
import pickle
import struct
from bisect import bisect_left, bisect_right
from collections.abc import Iterator
from operator import attrgetter
from typing import Any, NamedTuple

from pyspark.sql.datasource import InputPartition

import offsetlog
from offsetlog.core.topic.entry import SegmentRef
from offsetlog.core.topic.extents import Extent
from offsetlog.core.topic.plan import PlannedPiece
from offsetlog.engine import topic_folder
from pyspark_offsetlog.options.spec import LogAddress
from pyspark_offsetlog.source.offsets import OffsetRange

_HEADER = struct.Struct(">QI")
_START, _END = attrgetter("start"), attrgetter("end")
MAGIC = 0x4F4C504C414E0001
"""``OLPLAN`` and the version of this form."""


class PlannedRange(NamedTuple):
    range: OffsetRange
    pieces: tuple[PlannedPiece, ...] = ()
    """Where its records lie, if the driver knew; else the task looks by itself."""

    @property
    def bytes(self) -> int:
        """About how many, as far as the driver knew."""
        return sum(piece.bytes for piece in self.pieces)

    @property
    def is_in_chain(self) -> bool:
        """Whether all of its records are known to lie in entries."""
        return bool(self.pieces) and all(piece.extent.inline for piece in self.pieces)


class LogPartition(InputPartition):
    """What one task reads. Plain data: Spark pickles it."""

    def __init__(
        self, place: LogAddress, work: tuple[PlannedRange, ...], fails: bool = True
    ) -> None:
        super().__init__(None)
        self.place = place
        """With the id of the root."""
        self.work = work
        self.entries: dict[str, dict[int, bytes]] = {}
        """Files of the chains of topics, by their numbers, which the driver has read already."""
        self.fails = fails
        """What becomes of it when records are gone meanwhile: ``failOnDataLoss``."""
        self.jvm_root: str | None = None
        """The root as the JVM can reach it to read segments by itself: a folder of this machine, or
        a URL for a client of Hadoop's; None: neither."""
        self.columns: tuple[str, ...] | None = None
        """Those that are wanted, if not all of the query's schema are; the others may be null."""
        self.windows: tuple[int, ...] = (len(work),)
        """How many of the ranges are in each window. The JVM reads on its own between windows, so
        an empty batch tells it where one ends."""

    def __repr__(self) -> str:
        ranges = ", ".join(f"{w.range.topic}-{w.range.partition}" for w in self.work)
        return f"LogPartition({ranges})"

    def __reduce__(self) -> tuple[Any, ...]:
        return from_plan, (encode(self),)


def encode(partition: LogPartition) -> bytes:
    plan = {
        "version": offsetlog.__version__,
        "root": partition.jvm_root,
        "id": partition.place.root_id,
        # Whether fsspec has some that a client of Hadoop's does not know.
        "options": bool(partition.place.storage),
        "ranges": [
            {
                "topic": work.range.topic,
                "folder": topic_folder(work.range.topic),
                "partition": work.range.partition,
                "start": work.range.start,
                "end": work.range.end,
                "pieces": [(piece.start, piece.end, *piece.extent[1:]) for piece in work.pieces],
            }
            for work in partition.work
        ],
    }
    text = json.dumps(plan, separators=(",", ":")).encode()
    rest = (partition.place, partition.entries, partition.fails, partition.jvm_root)
    return _HEADER.pack(MAGIC, len(text)) + text + pickle.dumps(rest)


def from_plan(data: bytes, wanted: bytes = b"") -> LogPartition:
    """The partition, or what is wanted of it."""
    magic, length = _HEADER.unpack_from(data)
    if magic != MAGIC:
        raise ValueError("a plan of another offsetlog")
    end = _HEADER.size + length
    plan = json.loads(data[_HEADER.size : end])
    place, entries, fails, jvm_root = pickle.loads(data[end:])
    work = tuple(map(_range, plan["ranges"]))
    partition = LogPartition(place, work, fails)
    partition.entries, partition.jvm_root = entries, jvm_root
    if wanted:
        part = json.loads(wanted)
        windows = part["windows"]
        partition.columns = tuple(part["columns"])
        partition.windows = tuple(map(len, windows))
        partition.work = tuple(
            _cut(work[i], start, end) for window in windows for i, start, end in window
        )
    return partition


def _range(plan: dict[str, Any]) -> PlannedRange:
    place = OffsetRange(plan["topic"], plan["partition"], plan["start"], plan["end"])
    return PlannedRange(place, tuple(_pieces(plan["partition"], plan["pieces"])))


def _pieces(partition: int, pieces: list[list[Any]]) -> Iterator[PlannedPiece]:
    for start, end, *fields in pieces:
        extent = Extent(partition, *fields)
        if extent.segment is not None:
            extent = extent._replace(segment=SegmentRef(*extent.segment))
        yield PlannedPiece(extent, start, end)


def _cut(work: PlannedRange, start: int, end: int) -> PlannedRange:
    """Of a range only the offsets [start, end). There may be thousands of windows and pieces."""
    low = bisect_right(work.pieces, start, key=_END)
    high = bisect_left(work.pieces, end, key=_START)
    pieces = (
        piece._replace(start=max(piece.start, start), end=min(piece.end, end))
        for piece in work.pieces[low:high]
    )
    return PlannedRange(work.range._replace(start=start, end=end), tuple(pieces))
