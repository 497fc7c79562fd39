"""How far positions are behind the log: of a group, or of anybody who reads.

Invariants:

1. Records are counted on a fresh look at each topic; bytes are what its index says, without
   reading. Only the age of the first record is read, one record for each partition.
2. A topic that is gone has no span; it is never an error here.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Mapping
from typing import Protocol

from offsetlog.core.group.facts import Partition
from offsetlog.core.group.lag import Backlog, Lag, positions_lag
from offsetlog.core.group.reset import OffsetSpan
from offsetlog.core.topic.plan import estimate_bytes
from offsetlog.core.topic.state import TopicState
from offsetlog.engine.env import Env
from offsetlog.engine.topic.open_topic import OpenTopic
from offsetlog.errors import UnknownTopicError


class TopicLookup(Protocol):
    """Of a ``Log``, what is needed here."""

    env: Env

    def topic_handle(self, name: str) -> OpenTopic: ...


def states_of(log: TopicLookup, topics: Iterable[str]) -> dict[str, TopicState]:
    """A fresh look at each topic; one that is gone has no state."""
    states = {}
    for topic in sorted(topics):
        with contextlib.suppress(UnknownTopicError):
            states[topic] = log.topic_handle(topic).state()
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
    handle = log.topic_handle(topic)
    state = handle.chain.state
    end = state.end(number)
    size = estimate_bytes(state, number, offset, end)
    for batch in handle.reader.read(number, offset, end, ("timestamp", "offset")):
        if batch.table.num_rows:
            return Backlog(size, batch.table.column("timestamp")[0].value)
    return Backlog(size)


def lag_of(log: TopicLookup, positions: Mapping[Partition, int]) -> tuple[Lag, ...]:
    """A line for each position, whoever stands there."""
    spans = spans_of(states_of(log, {topic for topic, _ in positions}))
    backlogs = {
        partition: backlog(log, partition, max(offset, spans[partition].start))
        for partition, offset in positions.items()
        if partition in spans and offset < spans[partition].end
    }
    return positions_lag(positions, spans, backlogs, log.env.now_ms())
