"""How far positions are behind the log: of a group, or of anybody who reads.

Invariants:

1. Records are counted on a fresh look at each topic; bytes are what its index says, without
   reading. Only the age of the first record is read, one record for each partition.
2. A topic that is gone has no span; it is never an error here.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Protocol

from ..errors import UnknownTopicError
from ..group.facts import Partition
from ..group.lag import Behind, Lag, positions_lag
from ..group.reset import Span
from ..log import fetch
from ..log.state import State
from .env import Env
from .handle import TopicHandle


class Topics(Protocol):
    """Of a ``Log``, what is needed here."""

    env: Env

    def topic_handle(self, name: str) -> TopicHandle: ...


def spans_of(log: Topics, topics: Iterable[str]) -> dict[Partition, Span]:
    """From where to where each partition of these topics reaches."""
    spans = {}
    for topic in sorted(topics):
        state = _state(log, topic)
        for partition in range(state.partitions if state is not None else 0):
            assert state is not None
            spans[topic, partition] = Span(state.start(partition), state.end(partition))
    return spans


def _state(log: Topics, topic: str) -> State | None:
    try:
        return log.topic_handle(topic).state()
    except UnknownTopicError:
        return None


def behind(log: Topics, partition: Partition, at: int) -> Behind:
    """Bytes from an offset to the end, and the timestamp of the first record there."""
    topic, number = partition
    handle = log.topic_handle(topic)
    state = handle.chain.state
    end = state.end(number)
    size = fetch.estimate_bytes(state, number, at, end)
    for batch in handle.reader.read(number, at, end, ("timestamp", "offset")):
        if batch.table.num_rows:
            return Behind(size, batch.table.column("timestamp")[0].value)
    return Behind(size)


def lag_of(log: Topics, positions: Mapping[Partition, int]) -> tuple[Lag, ...]:
    """A line for each position, whoever stands there."""
    spans = spans_of(log, {topic for topic, _ in positions})
    found = {
        partition: behind(log, partition, max(at, spans[partition].start))
        for partition, at in positions.items()
        if partition in spans and at < spans[partition].end
    }
    return positions_lag(positions, spans, found, log.env.now_ms())
