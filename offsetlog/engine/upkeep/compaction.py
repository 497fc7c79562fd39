"""Compaction by key: of each key the newest record stays.

Invariants:

1. What is dropped is decided from one look at all of [log start, end) of a partition; a record goes
   only because of a later one of its key that was seen there, because it has no key, or because it
   is a tombstone whose time is over (``core.topic.compaction``).
2. That a partition is compacted up to its end is said in the same entry as the last of what it
   replaces, or a later one, and only if all of it counted.
3. The time of a pass is read after the state that it is planned from: no tombstone in it was sent
   later, however long it takes.
4. Whatever a maintainer that was killed, or was slow, had written is void or never named: it is
   collected like any other file.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cache
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from offsetlog.core.topic.compaction import (
    CompactionPass,
    Met,
    due_pass,
    is_ahead,
    still_met,
)
from offsetlog.core.topic.entry import Compact, CompactedTo, ReplacedRun
from offsetlog.core.topic.plan import PlannedPiece
from offsetlog.core.topic.retention import Sizes
from offsetlog.core.topic.state import PartitionState
from offsetlog.engine.topic.open_topic import OpenTopic
from offsetlog.engine.upkeep.newest_of_keys import NewestOfKeys
from offsetlog.engine.upkeep.offset_set import Mask, Offsets, OffsetSet
from offsetlog.engine.upkeep.shrink import Dropped, Shrinker
from offsetlog.errors import OffsetOutOfRangeError, UnknownTopicError
from offsetlog.logs import get_logger
from offsetlog.values import settings_of

ENTRY_BYTES = 256 * 1024 * 1024
"""Of segments that one entry brings: what a conflict with another maintainer costs."""
KEY_WEIGHT = 32
"""What a record weighs here besides its bytes, at the most."""
logger = get_logger(__name__)


class Compacted(NamedTuple):
    records: int
    """That are gone."""
    files: int
    """That were replaced."""
    segments: int
    """That were written."""
    met: Mapping[int, Met]
    """What is to be noted of partitions whose passes have times in the future."""


class _Newest(NamedTuple):
    """Stays: what is in a set that covers [start, end), and all else."""

    offsets: OffsetSet
    start: int
    end: int

    def loses(self, piece: PlannedPiece) -> bool:
        extent = piece.extent
        if piece.start < self.start or piece.end > self.end or extent.base < piece.start:
            return not extent.is_empty
        return self.offsets.count(extent.base, extent.end) < extent.records

    def keeps(self, offsets: Offsets) -> Mask:
        mask = np.ones(len(offsets), bool)
        low, high = np.searchsorted(offsets, [self.start, self.end])
        mask[low:high] = self.offsets.has(offsets[low:high])
        return mask


class KeyCompaction:
    """One pass over the partitions of a topic for which one is due."""

    def __init__(self, topic: OpenTopic) -> None:
        self._topic = topic
        self._limits = topic.chain.env.limits
        self._runs: list[ReplacedRun] = []
        self._compacted: list[CompactedTo] = []
        self._bytes = 0
        self._planned_at = 0
        self._void: set[int] = set()
        """Partitions of which something did not count."""
        self._records = self._files = self._segments = 0

    def run(
        self, now_ms: int, clock: Callable[[], int], noted: Mapping[int, Met] | None = None
    ) -> Compacted:
        """``now_ms``: what ``clock``, the storage's, said some time ago; it is asked again where
        something is due. ``noted``: by partition, what earlier rounds noted."""
        state = self._topic.chain.state
        config = settings_of(state.config)
        met: dict[int, Met] = {}
        later = cache(clock)
        if state.alive and config.compacts:
            self._planned_at = state.tip
            for partition, sizes in enumerate(self._topic.reader.sizes(state)[: state.partitions]):
                part = state.parts[partition]
                seen = still_met(part, (noted or {}).get(partition), now_ms)
                if seen is None and is_ahead(part, now_ms) and is_ahead(part, later()):
                    seen = Met(part.compacted_to, later())
                if seen is not None:
                    met[partition] = seen
                due = due_pass(part, sizes, config, now_ms, seen)
                if due is not None:
                    try:
                        self._compact(partition, part, due, sizes, later())
                    except (OffsetOutOfRangeError, UnknownTopicError):
                        # The log start was moved into it, or the topic deleted: another time.
                        self._void.add(partition)
            self._land()
        return Compacted(self._records, self._files, self._segments, met)

    def _compact(
        self, partition: int, part: PartitionState, due: CompactionPass, sizes: Sizes, now_ms: int
    ) -> None:
        """``part``: as it was when this was planned. Others may have gone further since."""
        start, compacted_to = part.start, part.compacted_to
        if due.end <= start:
            return
        tombstones = OffsetSet(start, due.end)
        """Of the ranges that tombstones are looked for in."""
        if due.compacts:
            weight = sum(sizes.bytes) + KEY_WEIGHT * (due.end - start)
            keys = NewestOfKeys(weight)
            self._scan(partition, start, due.due_from, tombstones, keys, values=False)
            self._scan(partition, due.due_from, due.due_to, tombstones, keys, values=True)
            middle = max(start, compacted_to, due.due_to)
            self._scan(partition, max(start, due.due_to), middle, tombstones, keys, values=False)
            self._scan(partition, middle, due.end, tombstones, keys, values=True)
            newest = OffsetSet(start, due.end)
            keys.into(newest)
            # Those in [due_from, due_to) go, the newest of their keys or not.
            newest.remove_all(tombstones, due.due_from, due.due_to)
            survivors: _Newest | Dropped = _Newest(newest, start, due.end)
            left = newest.first(middle, tombstones)
        else:
            self._scan(partition, due.due_from, due.due_to, tombstones, None, values=True)
            survivors = Dropped(tombstones, due.due_from, due.due_to)
            left = None
        for shrunk in Shrinker(self._topic).shrink(partition, start, due.end, survivors):
            self._runs.append(shrunk.run)
            self._bytes += shrunk.bytes
            self._records += shrunk.dropped
            self._segments += shrunk.segments
            self._files += shrunk.files
            if len(self._runs) >= self._limits.runs_per_entry or self._bytes >= ENTRY_BYTES:
                self._land()
        tombstones_from = max(due.due_from, due.due_to)
        if tombstones_from >= compacted_to:
            tombstones_from = due.end if left is None else left
        self._compacted.append(CompactedTo(partition, due.end, now_ms, tombstones_from))

    def _scan(
        self,
        partition: int,
        start: int,
        end: int,
        tombstones: OffsetSet,
        keys: NewestOfKeys | None,
        *,
        values: bool,
    ) -> None:
        """Note the keys of [start, end), and which of their values are null."""
        columns = ("key", *(("value",) if values else ()), "offset")
        if start >= end:
            return
        for batch in self._topic.reader.read(partition, start, end, columns):
            table = batch.table
            if not table.num_rows:
                continue
            offsets = table.column("offset").to_numpy()
            if values:
                nulls = table.column("value").is_null().to_numpy()
                tombstones.add(offsets[nulls])
            if keys is not None:
                column = table.column("key")
                joined = column.combine_chunks()
                chunk = joined.chunk(0) if isinstance(joined, pa.ChunkedArray) else joined
                keys.add(chunk, offsets)

    def _land(self) -> None:
        """Land what was written. If it does not count, its partitions wait for the next round."""
        compacted = tuple(one for one in self._compacted if one.partition not in self._void)
        runs = tuple(self._runs)
        self._runs, self._compacted, self._bytes = [], [], 0
        if not runs and not compacted:
            return
        void = self._topic.decide(Compact(self._planned_at, runs, compacted))
        if void is not None:
            logger.info("%s: a compaction does not count: %s", self._topic.name, void.detail)
            self._void.update(run.partition for run in runs)
