"""A consumer's positions: where they are, and putting them elsewhere.

Invariants:

1. A position is put only where the partition has a record, or at its end.
2. Offsets of a log are asked for anew each time.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from offsetlog.core.topic.plan import check_partition
from offsetlog.core.topic.state import TopicState
from offsetlog.engine.group.committer import WorkerHost
from offsetlog.engine.topic.cursor import Cursor
from offsetlog.engine.topic.open_topic import OpenTopic
from offsetlog.errors import InvalidRequestError, OffsetOutOfRangeError
from offsetlog.values import TopicPartition, as_partition


class Seeking:
    _host: WorkerHost
    _cursor: Cursor

    def pause(self, *partitions: tuple[str, int]) -> None:
        """Give nothing of these partitions until ``resume``."""
        self._cursor.paused |= {self._mine(p) for p in partitions}

    def resume(self, *partitions: tuple[str, int]) -> None:
        self._cursor.paused -= {self._mine(p) for p in partitions}

    def paused(self) -> set[TopicPartition]:
        return set(self._cursor.paused)

    def seek(self, partition: tuple[str, int], offset: int) -> None:
        """Let the next poll begin at ``offset``, which must be there or be the end."""
        tp = self._mine(partition)
        if type(offset) is not int:
            raise InvalidRequestError(f"{offset!r} is not an offset.", "It is a whole number.")
        part = self._handle(tp.topic).state(fresh=False).parts[tp.partition]
        if not part.start <= offset <= part.end:
            part = self._checked(tp).parts[tp.partition]
        if not part.start <= offset <= part.end:
            raise OffsetOutOfRangeError(
                f"Offset {offset} of {tp.topic}-{tp.partition} is not there.",
                f"It holds {part.start} to {part.end}.",
            )
        self._cursor.move(tp, offset)

    def seek_to_beginning(self, *partitions: tuple[str, int]) -> None:
        for tp, state in self._looked(self._these(partitions)).items():
            self._cursor.move(tp, state.start(tp.partition))

    def seek_to_end(self, *partitions: tuple[str, int]) -> None:
        for tp, state in self._looked(self._these(partitions)).items():
            self._cursor.move(tp, state.end(tp.partition))

    def seek_to_time(self, time_ms: int, *partitions: tuple[str, int]) -> None:
        """Let the next poll begin at the first record at or after a time; at the end if none."""
        for tp, state in self._looked(self._these(partitions)).items():
            found = self._handle(tp.topic).offset_for_time(tp.partition, time_ms)
            self._cursor.move(tp, state.end(tp.partition) if found is None else found)

    def position(self, partition: tuple[str, int]) -> int:
        """The offset of the next record that a poll gives."""
        return self._cursor.position(self._mine(partition))

    def beginning_offsets(self, partitions: Iterable[tuple[str, int]]) -> dict[TopicPartition, int]:
        looked = self._looked(map(as_partition, partitions))
        return {tp: state.start(tp.partition) for tp, state in looked.items()}

    def end_offsets(self, partitions: Iterable[tuple[str, int]]) -> dict[TopicPartition, int]:
        looked = self._looked(map(as_partition, partitions))
        return {tp: state.end(tp.partition) for tp, state in looked.items()}

    def offsets_for_times(
        self, times: Mapping[tuple[str, int], int]
    ) -> dict[TopicPartition, int | None]:
        """The first offset at or after a time for each partition; None where there is none."""
        wanted = {as_partition(given): time_ms for given, time_ms in times.items()}
        return {
            tp: self._handle(tp.topic).offset_for_time(tp.partition, wanted[tp])
            for tp in self._looked(wanted)
        }

    def _handle(self, topic: str) -> OpenTopic:
        return self._host.topic_handle(topic)

    def _looked(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, TopicState]:
        """The state of each partition's topic, from one fresh look at each topic."""
        states: dict[str, TopicState] = {}
        out: dict[TopicPartition, TopicState] = {}
        for tp in partitions:
            if tp.topic not in states:
                states[tp.topic] = self._handle(tp.topic).state()
            check_partition(states[tp.topic], tp.partition)
            out[tp] = states[tp.topic]
        return out

    def _checked(self, tp: TopicPartition) -> TopicState:
        state = self._handle(tp.topic).state()
        check_partition(state, tp.partition)
        return state

    def _mine(self, partition: tuple[str, int]) -> TopicPartition:
        tp = as_partition(partition)
        if tp not in self._cursor.positions:
            raise InvalidRequestError(
                f"{tp.topic}-{tp.partition} is not assigned to this consumer.",
                "Call assign() or subscribe() first; with a group, it may be another worker's.",
            )
        return tp

    def _these(self, partitions: tuple[tuple[str, int], ...]) -> list[TopicPartition]:
        return [self._mine(p) for p in partitions] or list(self._cursor.positions)
