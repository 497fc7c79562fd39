"""What retention takes, and what collection may delete.

Rules of this module:

1. Retention moves log start offsets, to the edge of an extent, never past the log end offset.
2. A record is kept while any rule that names it does not let it go: retention by time looks
   at the newest record of an extent, retention by bytes at what lies behind it.
3. A time of the storage that lies in the future is none: its clock was ahead once, or is behind
   now. How old such a file is follows from the files that were written after it.
4. What may be deleted is decided by a state that contains the collect: segments born below
   its horizon that it does not hold live. That list stays right for ever.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple

from offsetlog.core.topic.entry import FIRST_RULES
from offsetlog.core.topic.index import integers
from offsetlog.core.topic.state import TopicState
from offsetlog.values import NO_LIMIT, settings_of

AHEAD_MS = 3_600_000
"""Clocks of one storage may differ by so much."""


class Sizes(NamedTuple):
    """What retention looks at, of the extents of a partition from the oldest on."""

    end: array[int]
    bytes: array[int]
    min_ts: array[int]
    max_ts: array[int]


def joined(chunks: Iterable[Sizes]) -> Sizes:
    """All of a partition, given some here and some there, each in order."""
    whole = Sizes(*(integers() for _ in Sizes._fields))
    for chunk in sorted(chunks, key=lambda chunk: chunk.end[0]):
        for column, more in zip(whole, chunk, strict=True):
            column.extend(more)
    return whole


def lets_rows_go(state: TopicState) -> bool:
    """Whether all rows of a topic go one day, by retention or by compaction, or any may have gone
    by erasure: then each entry with rows becomes a stub, and the sooner the better."""
    config = settings_of(state.config)
    limited = (config.retention_ms, config.retention_bytes) != (NO_LIMIT, NO_LIMIT)
    return not state.alive or state.rules > FIRST_RULES or (limited and config.retires)


def gone(state: TopicState) -> int:
    """A number that grows whenever records of a topic are trimmed or compacted away."""
    return sum(part.start + part.compacted_to + part.tombstones_from for part in state.parts)


def retained_from(
    sizes: Sizes, start: int, now_ms: int, retention_ms: int, retention_bytes: int
) -> int:
    """The log start offset that retention asks for."""
    surplus = sum(sizes.bytes) - retention_bytes if retention_bytes != NO_LIMIT else 0
    for end, size, _, max_ts in zip(*sizes, strict=True):
        expired = retention_ms != NO_LIMIT and max_ts < now_ms - retention_ms
        too_much = retention_bytes != NO_LIMIT and surplus >= size
        if not expired and not too_much:
            break
        start = end
        surplus -= size
    return start


def is_old(
    time_of: Callable[[int], int], number: int, end: int, now_ms: int, age_ms: int
) -> bool | None:
    """Whether a file is of this age: by its own time, or by that of one that was written after it,
    the last of which is ``end`` - 1. None: that has no time either."""
    step = 1
    while True:
        time = time_of(number)
        if time <= now_ms + AHEAD_MS:
            return time <= now_ms - age_ms
        if number >= end - 1:
            return None
        number, step = min(number + step, end - 1), 2 * step


def condemned(
    segments: Iterable[tuple[int, str, str]], horizon: int, live: frozenset[str] | set[str]
) -> Iterator[str]:
    """Of segments given as (born, uid, name), the names that may be deleted."""
    return (name for born, uid, name in segments if born < horizon and uid not in live)
