"""The state of a topic: what its chain says up to a number, and nothing else.

Invariants:

1. ``state = fold(entries)``: two programs that folded the same entries hold equal states,
   but for how the index of old extents is split into leaves.
2. ``tip`` is the number that the next entry gets.
3. The extents of a partition in ``index`` and ``tail`` tile [start, end); the tail wins.
4. A partition's ``end`` never falls and its offsets never restart, also when the topic is
   deleted and created again.
"""

from __future__ import annotations

from typing import NamedTuple

from offsetlog.core.topic.entry import FIRST_RULES
from offsetlog.core.topic.extents import EMPTY_TAIL, Tail
from offsetlog.core.topic.index import EMPTY_INDEX, Index
from offsetlog.core.topic.senders import SenderTable

REPLACES_REMEMBERED = 4096
"""How many replaced ranges the fold remembers. A replace that was planned before the oldest
of them is void, since it can't be told any more whether all is still as its author saw it."""


COMPACTIONS_REMEMBERED = 64
"""Of a partition, those whose tombstones are not all gone. Of one that is forgotten the tombstones
count from the next one."""


class Compaction(NamedTuple):
    """A pass that made the newest of each key all that is left of a partition below ``end``."""

    end: int
    time: int
    """By the storage's clock."""


class PartitionState(NamedTuple):
    start: int = 0
    """Log start offset."""
    end: int = 0
    """Log end offset: the next one."""
    tail: Tail = EMPTY_TAIL
    compactions: tuple[Compaction, ...] = ()
    """In the order of their ends, which is that of their times: the last one, and those before it
    that may have met a tombstone first that is still there."""
    tombstones_from: int = 0
    """Of what is compacted, no tombstone lies below it."""

    @property
    def compacted_to(self) -> int:
        """Below it each key has one record, and none is without a key."""
        return max(self.start, self.compactions[-1].end) if self.compactions else self.start


class Replaced(NamedTuple):
    entry: int
    partition: int
    start: int
    end: int


class TopicState(NamedTuple):
    tip: int = 0
    rules: int = FIRST_RULES
    """The newest rules of an entry that counted: older libraries know no more of the topic."""
    hash: str = "0" * 32
    """Running hash of write ids and verdicts."""
    topic: str = ""
    alive: bool = False
    created_at_entry: int = -1
    """Number of the create entry of the topic as it is now."""
    head: int = -1
    """Number of the last counted create, configure or delete."""
    config: tuple[tuple[str, str], ...] = ()
    partitions: int = 0
    parts: tuple[PartitionState, ...] = ()
    """Of every partition that ever was: as many as ``partitions``, or more after a delete."""
    own: SenderTable = SenderTable()
    callers: SenderTable = SenderTable()
    floor: int = 0
    """X: of our own senders, those whose last entry is older are forgotten."""
    horizon: int = 0
    """H: segments born before it, and not live, may be deleted."""
    collected_at: int = -1
    """Number of the last counted collect."""
    replaces: tuple[Replaced, ...] = ()
    replaces_forgotten: int = -1
    """Number of the newest replace that is not in ``replaces`` any more."""
    index: Index = EMPTY_INDEX  # type: ignore[assignment]  # a tuple's own method, unused here

    def start(self, partition: int) -> int:
        return self.parts[partition].start

    def end(self, partition: int) -> int:
        return self.parts[partition].end

    @property
    def tail_extents(self) -> int:
        return sum(len(part.tail) for part in self.parts)


EMPTY_STATE = TopicState()


def rebase(state: TopicState, index: Index) -> TopicState:
    """The same state upon a newer stored index, or another one of the same entries: its tails
    keep only what came after it."""
    if index.seq < state.index.seq or index.seq > state.tip:
        return state
    parts = tuple(
        part._replace(tail=part.tail.since(index.seq)) if len(part.tail) else part
        for part in state.parts
    )
    return state._replace(parts=parts, index=index)
