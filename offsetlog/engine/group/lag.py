"""How far positions are behind the log: of a group, or of anybody who reads.

Invariants:

1. Records are counted on a fresh look at each topic, those that are there; bytes are what its
   index says, without reading. Only the age of the first record is read, one record for each
   partition, and where a position cuts a file with gaps, its offsets; where that is too many
   requests (``estimated_backlog``), it is what the index says, too: rounded up, so that it is
   never 0 where a record is left.
2. A topic that is gone has no span; it is never an error here.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Mapping
from typing import Protocol

from offsetlog.core.group.facts import Partition
from offsetlog.core.group.lag import Backlog, Lag, positions_lag
from offsetlog.core.group.reset import OffsetSpan
from offsetlog.core.topic.plan import (
    estimate_bytes,
    estimate_records,
    estimate_time,
    max_extents,
)
from offsetlog.core.topic.state import TopicState
from offsetlog.engine.env import Env
from offsetlog.engine.topic.open_topic import OpenTopic
from offsetlog.errors import UnknownTopicError
from offsetlog.values import is_name

COUNTED_EXTENTS = 100_000


class TopicLookup(Protocol):
    """Of a ``Log``, what is needed here."""

    env: Env

    def open_topic(self, name: str) -> OpenTopic: ...


def states_of(log: TopicLookup, topics: Iterable[str]) -> dict[str, TopicState]:
    """A fresh look at each topic; one that is gone has no state. Nor has one whose name is none:
    the offsets table may hold any."""
    states = {}
    for topic in sorted(filter(is_name, topics)):
        with contextlib.suppress(UnknownTopicError):
            states[topic] = log.open_topic(topic).state()
    return states


def spans_of(states: Mapping[str, TopicState]) -> dict[Partition, OffsetSpan]:
    """From where to where each partition of these topics reaches."""
    return {
        (topic, number): OffsetSpan(part.start, part.end)
        for topic, state in states.items()
        for number, part in enumerate(state.parts[: state.partitions])
    }


def backlog(log: TopicLookup, partition: Partition, offset: int) -> Backlog:
    """Bytes from an offset to the end, and the timestamp of the first record there."""
    topic, number = partition
    opened = log.open_topic(topic)
    state = opened.chain.state
    end = state.end(number)
    size = estimate_bytes(state, number, offset, end)
    records = _records(opened, state, number, offset)
    for batch in opened.reader.read(number, offset, end, ("timestamp", "offset")):
        if batch.table.num_rows:
            time = batch.table.column("timestamp")[0].value
            return Backlog(size, time, records)
    return Backlog(size, None, records)


def _records(opened: OpenTopic, state: TopicState, number: int, offset: int) -> int:
    """How many records lie from an offset to the end. Where files have gaps that is known of each
    file, and of the one that the offset cuts its offsets are read; only of very many files it is
    an estimate."""
    end = state.end(number)
    if state.rules < 2 or offset >= end:
        return max(0, end - offset)
    if max_extents(state, number, offset, end) > COUNTED_EXTENTS:
        return estimate_records(state, number, offset, end)
    first, *rest = opened.reader.plan(number, offset, end)
    records = sum(piece.records for piece in rest)
    if first.extent.dense or first.is_whole:
        return records + first.records
    for batch in opened.reader.read(number, offset, first.end, ("offset",)):
        records += batch.table.num_rows
    return records


def estimated_backlog(state: TopicState, number: int, offset: int) -> Backlog:
    """The same from what is in memory alone."""
    size = estimate_bytes(state, number, offset, state.end(number))
    records = estimate_records(state, number, offset, state.end(number))
    return Backlog(size, estimate_time(state, number, offset), records)


def lag_of(log: TopicLookup, positions: Mapping[Partition, int]) -> tuple[Lag, ...]:
    """A line for each position, whoever stands there."""
    spans = spans_of(states_of(log, {topic for topic, _ in positions}))
    backlogs = {
        partition: backlog(log, partition, max(offset, spans[partition].start))
        for partition, offset in positions.items()
        if partition in spans and offset < spans[partition].end
    }
    return positions_lag(positions, spans, backlogs, log.env.now_ms())
