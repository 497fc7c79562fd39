"""What retention takes, and what collection may delete.

Rules of this module:

1. Retention moves log start offsets, to the edge of an extent, never past the log end offset.
2. A record is kept while any rule that names it does not let it go: retention by time looks
   at the newest record of an extent, retention by bytes at what lies behind it.
3. What may be deleted is decided by a state that contains the collect: segments born below
   its horizon that it does not hold live. That list stays right for ever.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from offsetlog.core.topic.extents import Extent
from offsetlog.values import NO_LIMIT


def retained_from(
    extents: Iterable[Extent],
    start: int,
    total_bytes: int,
    now_ms: int,
    retention_ms: int,
    retention_bytes: int,
) -> int:
    """The log start offset that retention asks for, given the extents from the oldest on."""
    surplus = total_bytes - retention_bytes if retention_bytes != NO_LIMIT else 0
    for extent in extents:
        expired = retention_ms != NO_LIMIT and extent.max_ts < now_ms - retention_ms
        too_much = retention_bytes != NO_LIMIT and surplus >= extent.bytes
        if not expired and not too_much:
            break
        start = extent.end
        surplus -= extent.bytes
    return start


def condemned(
    segments: Iterable[tuple[int, str, str]], horizon: int, live: frozenset[str] | set[str]
) -> Iterator[str]:
    """Of segments given as (born, uid, name), the names that may be deleted."""
    return (name for born, uid, name in segments if born < horizon and uid not in live)
