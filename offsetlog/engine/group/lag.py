"""How far positions are behind the log: of a group, or of anybody who reads.

Invariants:

1. Records are counted on a fresh look at each topic; bytes are what its index says, without
   reading. Only the age of the first record is read, one record for each partition.
2. A topic that is gone has no span; it is never an error here.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Protocol

from offsetlog.core.group.facts import Partition
from offsetlog.core.group.lag import Lag, PartitionPosition, positions_lag
from offsetlog.core.group.reset import OffsetSpan
from offsetlog.core.topic import plan as fetch
from offsetlog.core.topic.state import TopicState
from offsetlog.engine.env import Env
from offsetlog.engine.topic.open_topic import OpenTopic
from offsetlog.errors import UnknownTopicError


class TopicLookup(Protocol):
    """Of a ``Log``, what is needed here."""

    env: Env

    def topic_handle(self, name: str) -> OpenTopic: ...


def spans_of(log: TopicLookup, topics: Iterable[str]) -> dict[Partition, OffsetSpan]:
    """From where to where each partition of these topics reaches."""
    spans = {}
    for topic in sorted(topics):
        state = _state(log, topic)
        for partition in range(state.partitions if state is not None else 0):
            assert state is not None
            spans[topic, partition] = OffsetSpan(state.start(partition), state.end(partition))
    return spans


def _state(log: TopicLookup, topic: str) -> TopicState | None:
    try:
        return log.topic_handle(topic).state()
    except UnknownTopicError:
        return None


def behind(log: TopicLookup, partition: Partition, at: int) -> PartitionPosition:
    """Bytes from an offset to the end, and the timestamp of the first record there."""
    topic, number = partition
    handle = log.topic_handle(topic)
    state = handle.chain.state
    end = state.end(number)
    size = fetch.estimate_bytes(state, number, at, end)
    for batch in handle.reader.read(number, at, end, ("timestamp", "offset")):
        if batch.table.num_rows:
            return PartitionPosition(size, batch.table.column("timestamp")[0].value)
    return PartitionPosition(size)


def lag_of(log: TopicLookup, positions: Mapping[Partition, int]) -> tuple[Lag, ...]:
    """A line for each position, whoever stands there."""
    spans = spans_of(log, {topic for topic, _ in positions})
    found = {
        partition: behind(log, partition, max(at, spans[partition].start))
        for partition, at in positions.items()
        if partition in spans and at < spans[partition].end
    }
    return positions_lag(positions, spans, found, log.env.now_ms())
