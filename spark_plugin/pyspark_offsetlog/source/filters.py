"""What the filters of a batch query say of partitions, offsets and times.

Invariants:

1. A record that passes all filters is in what is left; more may be.
2. A filter that is not understood narrows nothing.
"""

from __future__ import annotations

import datetime as dt
from typing import Any, NamedTuple

from pyspark.sql.datasource import (
    EqualNullSafe,
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    LessThan,
    LessThanOrEqual,
)

from offsetlog.client.log import Log
from offsetlog.values import MAX_OFFSET
from pyspark_offsetlog.source.offsets import OffsetRange

_EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
_MS = dt.timedelta(milliseconds=1)


class Narrowed(NamedTuple):
    topics: frozenset[str] | None = None
    partitions: frozenset[int] | None = None
    low: int = 0
    high: int = MAX_OFFSET
    """Offsets in [low, high)."""
    since: int | None = None
    """Milliseconds: no record before this is wanted."""

    def apply(self, log: Log, ranges: list[OffsetRange]) -> list[OffsetRange]:
        out = []
        for r in ranges:
            if self.topics is not None and r.topic not in self.topics:
                continue
            if self.partitions is not None and r.partition not in self.partitions:
                continue
            start, end = max(r.start, self.low), min(r.end, self.high)
            if start < end and self.since is not None:
                first = log.open_topic(r.topic).offset_for_time(r.partition, self.since)
                start = end if first is None else max(start, first)
            if start < end:
                out.append(r._replace(start=start, end=end))
        return out


def narrow(filters: list[Filter]) -> Narrowed:
    narrowed = Narrowed()
    for each in filters:
        narrowed = _with(narrowed, each)
    return narrowed


def _with(narrowed: Narrowed, pushed: Filter) -> Narrowed:
    column = getattr(pushed, "attribute", ())
    if len(column) != 1:
        return narrowed
    values = _values(pushed)
    if column == ("topic",) and values is not None:
        names = frozenset(v for v in values if isinstance(v, str))
        return narrowed._replace(
            topics=names if narrowed.topics is None else narrowed.topics & names
        )
    if column == ("partition",) and values is not None:
        numbers = frozenset(v for v in values if isinstance(v, int))
        before = narrowed.partitions
        return narrowed._replace(partitions=numbers if before is None else before & numbers)
    if column == ("offset",):
        low, high = _bounds(pushed, values)
        return narrowed._replace(low=max(narrowed.low, low), high=min(narrowed.high, high))
    if column == ("timestamp",):
        since = _since(pushed, values)
        if since is not None:
            return narrowed._replace(
                since=since if narrowed.since is None else max(since, narrowed.since)
            )
    return narrowed


def _values(pushed: Filter) -> tuple[Any, ...] | None:
    """The only values that a column may have, if the filter says that."""
    if isinstance(pushed, (EqualTo, EqualNullSafe)):
        return (pushed.value,)
    if isinstance(pushed, In):
        return tuple(pushed.value)
    return None


def _bounds(pushed: Filter, values: tuple[Any, ...] | None) -> tuple[int, int]:
    if values is not None:
        numbers = [v for v in values if isinstance(v, int)]
        return (min(numbers), max(numbers) + 1) if numbers else (0, 0)
    value = getattr(pushed, "value", None)
    if isinstance(value, int):
        if isinstance(pushed, GreaterThan):
            return value + 1, MAX_OFFSET
        if isinstance(pushed, GreaterThanOrEqual):
            return value, MAX_OFFSET
        if isinstance(pushed, LessThan):
            return 0, value
        if isinstance(pushed, LessThanOrEqual):
            return 0, value + 1
    return 0, MAX_OFFSET


def _since(pushed: Filter, values: tuple[Any, ...] | None) -> int | None:
    times: tuple[Any, ...] = ()
    if values is not None:
        times = values
    elif isinstance(pushed, (GreaterThan, GreaterThanOrEqual)):
        times = (pushed.value,)
    if not times or not all(isinstance(time, dt.datetime) for time in times):
        return None
    return min(_millis(time) for time in times)


def _millis(time: dt.datetime) -> int:
    """Rounded down: a record of that very millisecond may be wanted."""
    if time.tzinfo is None:
        time = time.astimezone()
    return (time - _EPOCH) // _MS
