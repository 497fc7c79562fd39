"""Positions in partitions, and the reading on from them.

Invariants:

1. A position is the offset of the next record that is returned. It moves only by returning records
   and by ``move``; what fails moves nothing. ``gather`` moves them tentatively: they hold once
   ``before`` is None, the last step of a poll, and ``rewind`` puts them back, whatever stopped it.
2. Partitions are served in turn: one that has much does not starve the others.
3. What was read ahead is returned only as long as the topic, as it was looked at in the last five
   seconds, still holds it where it was read: erased and deleted records are not.
4. Where a partition without a position begins, and where one goes on that lies outside the log,
   its owner decides (``StartingOffsets``).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple, Protocol

from offsetlog.core.topic.plan import check_partition, holds_still
from offsetlog.engine.topic.chain import FolderTakenError
from offsetlog.engine.topic.open_topic import OpenTopic
from offsetlog.engine.topic.reader import ALL_COLUMNS, FetchedBatch
from offsetlog.errors import OffsetLogError, OffsetOutOfRangeError, UnknownTopicError
from offsetlog.values import TopicPartition

GATHER_SECONDS = 0.02
"""How long a poll that has something goes on for more."""

Rows = tuple[TopicPartition, FetchedBatch, int, int]
Positions = dict[TopicPartition, int | None]


class StartingOffsets(Protocol):
    """Decides where reading begins."""

    def begin(self, tp: TopicPartition) -> int:
        """The first position of a partition, in the topic as it was just looked at."""

    def out_of_range(self, tp: TopicPartition, position: int) -> int:
        """The new position of one whose old one is not there any more."""


class _Stream(NamedTuple):
    """What was read ahead for a partition: rows of ``batch`` from ``row`` on."""

    batch: FetchedBatch
    row: int
    offset: int
    """The position that it goes on from; with any other it is of no use."""


class Cursor:
    """For one thread."""

    def __init__(self, open_topic: Callable[[str], OpenTopic], starts: StartingOffsets) -> None:
        self._open = open_topic
        self._topics: dict[str, OpenTopic] = {}
        """Of the topics that are read: positions are of the chain that was opened, and never of
        one that took its folder."""
        self._starts = starts
        self.positions: Positions = {}
        self.paused: set[TopicPartition] = set()
        self.skips_unknown = False
        """Whether a topic that is gone is passed over."""
        self._streams: dict[TopicPartition, _Stream] = {}
        self._running: dict[TopicPartition, Iterator[FetchedBatch]] = {}
        self._planned_at: dict[TopicPartition, int] = {}
        """The tip up to which that is known to be what the topic holds."""
        self._turn = 0
        self.before: Positions | None = None
        """While a poll gathers: the positions of the last poll that returned."""

    def open_topic(self, name: str) -> OpenTopic:
        """The topic as it was opened, as long as one of its partitions is read."""
        topic = self._topics.get(name)
        if topic is None:
            topic = self._open(name)
            if any(tp.topic == name for tp in self.positions):
                self._topics[name] = topic
        return topic

    def check_places(self) -> None:
        """Raise if another topic took the folder of one that is read."""
        for topic in self._topics.values():
            topic.chain.check_not_taken()

    def rewind(self, before: Positions | None = None) -> None:
        """Nothing of what was gathered last was returned, so the positions are again those of
        ``before``. What was read ahead knows where it goes on, and is passed over."""
        before = before if self.before is None else self.before
        if before is not None:
            self.positions = before
            self.before = None

    def keep(self, partitions: Iterable[TopicPartition]) -> None:
        """Read these and no others; those that were read already go on where they were."""
        self.positions = {tp: self.positions.get(tp) for tp in partitions}
        topics = {tp.topic for tp in self.positions}
        self._topics = {name: t for name, t in self._topics.items() if name in topics}
        self._streams = {tp: s for tp, s in self._streams.items() if tp in self.positions}
        self._running = {tp: r for tp, r in self._running.items() if tp in self.positions}
        self._planned_at = {tp: n for tp, n in self._planned_at.items() if tp in self.positions}
        self.paused &= self.positions.keys()

    def drop(self, partitions: Iterable[TopicPartition]) -> None:
        dropped = set(partitions)
        self.keep([tp for tp in self.positions if tp not in dropped])

    def move(self, tp: TopicPartition, position: int | None) -> None:
        self.positions[tp] = position
        self._forget(tp)

    def _forget(self, tp: TopicPartition) -> None:
        """What was read ahead."""
        self._streams.pop(tp, None)
        self._running.pop(tp, None)
        self._planned_at.pop(tp, None)

    def clear(self) -> None:
        self._streams.clear()
        self._running.clear()
        self._planned_at.clear()

    def position(self, tp: TopicPartition) -> int:
        position = self.positions[tp]
        if position is None:
            self.open_topic(tp.topic).state()
            position = self.positions[tp] = self._starts.begin(tp)
        return position

    def _resolve(self) -> None:
        """Give a position to all that have none, by one look at each topic: what "latest" means
        must not depend on when a partition's turn comes."""
        new = [tp for tp, position in self.positions.items() if position is None]
        looked: set[str] = set()
        for tp in new:
            if tp in self.paused:
                continue
            try:
                if tp.topic not in looked:
                    self.open_topic(tp.topic).state()
                    looked.add(tp.topic)
                self.positions[tp] = self._starts.begin(tp)
            except UnknownTopicError as error:
                if not self.skips_unknown or isinstance(error, FolderTakenError):
                    raise

    # --- reading ---------------------------------------------------------------------------

    def holds(self, limit: int) -> bool:
        """Whether ``gather`` has that many rows at hand, and asks the storage nothing."""
        order = [tp for tp in self.positions if tp not in self.paused]
        if not order or None in self.positions.values():
            return False
        tp = order[self._turn % len(order)]
        stream = self._streams.get(tp)
        return (
            stream is not None
            and stream.offset == self.positions[tp]
            and stream.batch.table.num_rows - stream.row >= limit
            and not self.open_topic(tp.topic).chain.is_old
        )

    def gather(self, limit: int, monotonic: Callable[[], float]) -> list[Rows]:
        """Up to ``limit`` rows that are at hand or known to be there, from each partition in turn:
        once round, and again for as long as it takes next to no time.

        What was read is returned even if a later partition fails: its turn comes again. Then the
        positions hold only once ``before`` is set to None again."""
        self.rewind()
        self._resolve()
        positions = dict(self.positions)
        self.before = self.positions
        self.positions = positions
        order = [tp for tp in self.positions if tp not in self.paused]
        turn = self._turn % max(1, len(order))
        order = order[turn:] + order[:turn]
        rows: list[Rows] = []
        room = limit
        until = monotonic() + GATHER_SECONDS
        try:
            while order and room > 0:
                more = []
                for tp in order:
                    part = self._take_some(tp, room) if room > 0 else None
                    if part is not None:
                        rows.append((tp, *part))
                        room -= part[2] - part[1]
                        more.append(tp)
                order = more if monotonic() < until else []
        except OffsetLogError:
            if not rows:
                raise
        if rows:
            self._turn += 1
        else:
            self.before = None
        return rows

    def _take_some(self, tp: TopicPartition, room: int) -> tuple[FetchedBatch, int, int] | None:
        while True:
            self._renew(tp)
            stream = self._streams.get(tp)
            if stream is not None and stream.offset == self.positions[tp]:
                batch, row = stream.batch, stream.row
            else:
                read = self._read(tp)
                if read is None:
                    return None
                batch, row = read, 0
            high = min(batch.table.num_rows, row + room)
            if high < batch.table.num_rows:
                offset = batch.table.column("offset")[high].as_py()
                self._streams[tp] = _Stream(batch, high, offset)
                self.positions[tp] = offset
            else:
                self._streams.pop(tp, None)
                self.positions[tp] = batch.end
            if high > row:
                return batch, row, high

    def _renew(self, tp: TopicPartition) -> None:
        """Let go of what was read ahead where the topic holds something else by now."""
        planned_at, position = self._planned_at.get(tp), self.positions[tp]
        if planned_at is None or position is None:
            return
        topic = self.open_topic(tp.topic)
        if topic.chain.state.end(tp.partition) == position:
            return  # Nothing is left to be returned, and a look comes before there is.
        state = topic.stored.recent()
        if holds_still(state, tp.partition, position, planned_at):
            self._planned_at[tp] = state.tip
        else:
            self._forget(tp)

    def _read(self, tp: TopicPartition) -> FetchedBatch | None:
        """The next batch of a partition; None when the position is at the end."""
        topic, position = self.open_topic(tp.topic), self.positions[tp]
        try:
            state = topic.known_state()
            check_partition(state, tp.partition)
            if position == state.end(tp.partition):
                return None
            state = topic.recent_state()
        except UnknownTopicError:
            if self.skips_unknown:
                return None
            state = topic.state()  # It may have been made again.
        check_partition(state, tp.partition)
        if position is None:
            return None
        part = state.parts[tp.partition]
        if not part.start <= position <= part.end:
            position = self._starts.out_of_range(tp, position)
            self.move(tp, position)
            part = topic.chain.state.parts[tp.partition]
        if position == part.end:
            return None
        try:
            return self._continue(topic, tp, position, part.end)
        except OffsetOutOfRangeError:
            # Retention took it between the plan and the read.
            self.move(tp, self._starts.out_of_range(tp, position))
            return self._read(tp)

    def _continue(
        self, topic: OpenTopic, tp: TopicPartition, position: int, end: int
    ) -> FetchedBatch:
        """The next batch of the run that is being read, or of a new one up to ``end``."""
        running = self._running.pop(tp, None)
        batch = None if running is None else next(running, None)
        if batch is None or batch.start != position:
            self._planned_at[tp] = topic.chain.state.tip
            running = topic.reader.read(tp.partition, position, end, ALL_COLUMNS)
            batch = next(running)
        assert running is not None
        self._running[tp] = running
        return batch
