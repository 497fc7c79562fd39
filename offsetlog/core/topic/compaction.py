"""When a partition is compacted by key, and which of its tombstones go.

Rules of this module:

1. As in Kafka: a pass is due when the bytes that were never compacted are more than
   ``min.cleanable.dirty.ratio`` of all, or the oldest of them is older than
   ``max.compaction.lag.ms``. What is younger than ``min.compaction.lag.ms``, and all behind it,
   waits. Unlike in Kafka, one is also due when tombstones are.
2. A tombstone goes only if it lies below the last counted pass: no older record of its key can be
   left there, whatever becomes of the pass that takes it.
3. A tombstone counts from the pass that met it first, by the storage's clock. A time that lies in
   the future is none: it counts from when upkeep met the pass (``Met``).
"""

from __future__ import annotations

from typing import NamedTuple

from offsetlog.core.topic.retention import Sizes
from offsetlog.core.topic.state import Compaction, PartitionState
from offsetlog.values import TopicConfig


class CompactionPass(NamedTuple):
    end: int
    """Of each key with a record in [log start, end) the newest one stays."""
    compacts: bool
    """False: no more than tombstones that are due go."""
    due_from: int
    due_to: int
    """Tombstones in [due_from, due_to) go."""


class Met(NamedTuple):
    """Passes up to an offset that had a time in the future, and when that was seen first."""

    end: int
    since_ms: int


def due_pass(
    part: PartitionState,
    sizes: Sizes,
    config: TopicConfig,
    now_ms: int,
    met: Met | None = None,
) -> CompactionPass | None:
    """What is to be done for a partition now, if anything."""
    compacted_to = part.compacted_to
    waits_from = now_ms - config.min_compaction_lag_ms if config.min_compaction_lag_ms else None
    clean = dirty = 0
    end, oldest = compacted_to, now_ms
    for extent_end, size, min_ts, max_ts in zip(*sizes, strict=True):
        if extent_end <= compacted_to:
            clean += size
            continue
        if waits_from is not None and max_ts > waits_from:
            break
        dirty += size
        end = extent_end
        oldest = min(oldest, min_ts)
    ratio = dirty / (clean + dirty) if clean + dirty else 1.0
    compacts = end > compacted_to and (
        ratio > config.min_cleanable_dirty_ratio or now_ms - oldest > config.max_compaction_lag_ms
    )
    due_from, due_to = due_tombstones(part, config.delete_retention_ms, now_ms, met)
    if not compacts and due_from >= due_to:
        return None
    return CompactionPass(end if compacts else compacted_to, compacts, due_from, due_to)


def due_tombstones(
    part: PartitionState, delete_retention_ms: int, now_ms: int, met: Met | None = None
) -> tuple[int, int]:
    """[from, to): where tombstones lie whose time is over. Nothing if to is not above from."""
    first = max(part.start, part.tombstones_from)
    times = [*part.compactions, *([] if met is None else [Compaction(met.end, met.since_ms)])]
    due = [done.end for done in times if done.time + delete_retention_ms <= now_ms]
    return first, min(max(due), part.end) if due else first


def still_met(part: PartitionState, met: Met | None, now_ms: int) -> Met | None:
    """What was noted of a partition, as far as its tombstones wait for it still."""
    if met is None or not part.tombstones_from < met.end <= part.compacted_to:
        return None
    return met if met.since_ms <= now_ms else None


def is_ahead(part: PartitionState, now_ms: int) -> bool:
    """Whether tombstones wait for a time in the future."""
    passes = part.compactions
    waits = part.tombstones_from < part.compacted_to
    return waits and bool(passes) and passes[-1].time > now_ms
