"""The consumer: reads assigned partitions from a position on.

Invariants:

1. A position is the offset of the next record that ``poll`` gives. It moves only by ``poll``
   and by ``seek``; a poll that fails moves nothing.
2. A partition found after subscribing is read from its start, so none of its records is missed.
3. Partitions are served in turn: one that has much does not starve the others.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from types import TracebackType
from typing import NamedTuple, Protocol

import pyarrow as pa

from ..errors import InvalidRequestError, NoOffsetForGroupError, OffsetOutOfRangeError
from ..log.fetch import check_partition
from ..log.state import State
from ..values import Record, TopicPartition
from .env import Env
from .handle import TopicHandle
from .reader import ALL_COLUMNS, Batch
from .records import to_records
from .views import as_partition, offset_for_time

POLICIES = ("earliest", "latest", "none")
LOCAL_PAUSE = 0.002
REMOTE_PAUSE = 0.1
READ_RECORDS = 1_000_000


class ConsumerHost(Protocol):
    """What a consumer needs of the ``Log`` that made it."""

    env: Env

    def topic_handle(self, name: str) -> TopicHandle: ...


class _Stream(NamedTuple):
    """What was read ahead for a partition: rows of ``batch`` from ``row`` on."""

    batch: Batch
    row: int


class Consumer:
    """Reads records. For one thread."""

    def __init__(
        self,
        host: ConsumerHost,
        group: str | None = None,
        topics: Iterable[str] | str | None = None,
        *,
        auto_offset_reset: str = "latest",
        max_poll_records: int = 500,
        poll_interval_ms: float | None = None,
    ) -> None:
        if group is not None:
            raise InvalidRequestError(
                f"Consumer groups are not there yet (group={group!r}).",
                "Leave the group out and use assign() and seek().",
            )
        if auto_offset_reset not in POLICIES:
            raise InvalidRequestError(
                f"auto_offset_reset is {auto_offset_reset!r}.", f"Allowed: {', '.join(POLICIES)}."
            )
        if type(max_poll_records) is not int or max_poll_records < 1:
            raise InvalidRequestError(
                f"max_poll_records is {max_poll_records!r}.", "It is a whole number from 1."
            )
        self._host = host
        self._policy = auto_offset_reset
        self._most = max_poll_records
        self._pause = None if poll_interval_ms is None else poll_interval_ms / 1000
        self._positions: dict[TopicPartition, int | None] = {}
        self._streams: dict[TopicPartition, _Stream] = {}
        self._running: dict[TopicPartition, Iterator[Batch]] = {}
        self._paused: set[TopicPartition] = set()
        self._subscribed: tuple[str, ...] = ()
        self._counts: dict[str, int] = {}
        self._turn = 0
        self._closed = False
        if topics is not None:
            self.subscribe([topics] if isinstance(topics, str) else topics)

    # --- what is read ----------------------------------------------------------------------

    def subscribe(self, topics: Iterable[str]) -> None:
        """Read all partitions of these topics, those added later too."""
        self._check_open()
        names = tuple(dict.fromkeys(topics))
        if not names:
            raise InvalidRequestError("No topic was given.", "Name at least one.")
        counts = {name: self._handle(name).state().partitions for name in names}
        self._subscribed = names
        self._counts = counts
        self._take([TopicPartition(name, p) for name in names for p in range(counts[name])])

    def assign(self, partitions: Iterable[tuple[str, int]]) -> None:
        """Read just these partitions."""
        self._check_open()
        wanted = [as_partition(p) for p in partitions]
        for topic, partition in wanted:
            check_partition(self._handle(topic).state(), partition)
        self._subscribed, self._counts = (), {}
        self._take(wanted)

    def _take(self, wanted: list[TopicPartition]) -> None:
        self._positions = {tp: self._positions.get(tp) for tp in wanted}
        self._streams = {tp: s for tp, s in self._streams.items() if tp in self._positions}
        self._running = {tp: r for tp, r in self._running.items() if tp in self._positions}
        self._paused &= set(wanted)

    def assignment(self) -> set[TopicPartition]:
        return set(self._positions)

    def subscription(self) -> set[str]:
        return set(self._subscribed)

    def pause(self, *partitions: tuple[str, int]) -> None:
        """Give nothing of these partitions until ``resume``."""
        self._paused |= {self._mine(p) for p in partitions}

    def resume(self, *partitions: tuple[str, int]) -> None:
        self._paused -= {self._mine(p) for p in partitions}

    def paused(self) -> set[TopicPartition]:
        return set(self._paused)

    # --- positions -------------------------------------------------------------------------

    def seek(self, partition: tuple[str, int], offset: int) -> None:
        """Let the next poll begin at ``offset``, which must be there or be the end."""
        tp = self._mine(partition)
        if type(offset) is not int:
            raise InvalidRequestError(f"{offset!r} is not an offset.", "It is a whole number.")
        part = self._handle(tp.topic).state().parts[tp.partition]
        if not part.start <= offset <= part.end:
            raise OffsetOutOfRangeError(
                f"Offset {offset} of {tp.topic}-{tp.partition} is not there.",
                f"It holds {part.start} to {part.end}.",
            )
        self._move(tp, offset)

    def seek_to_beginning(self, *partitions: tuple[str, int]) -> None:
        for tp in self._these(partitions):
            self._move(tp, self._handle(tp.topic).state().start(tp.partition))

    def seek_to_end(self, *partitions: tuple[str, int]) -> None:
        for tp in self._these(partitions):
            self._move(tp, self._handle(tp.topic).state().end(tp.partition))

    def seek_to_time(self, time_ms: int, *partitions: tuple[str, int]) -> None:
        """Let the next poll begin at the first record at or after a time; at the end if none."""
        for tp in self._these(partitions):
            handle = self._handle(tp.topic)
            state = handle.state()
            found = offset_for_time(handle, tp.partition, time_ms)
            self._move(tp, state.end(tp.partition) if found is None else found)

    def position(self, partition: tuple[str, int]) -> int:
        """The offset of the next record that a poll gives."""
        tp = self._mine(partition)
        position = self._positions[tp]
        if position is None:
            position = self._begin(tp)
        return position

    def beginning_offsets(self, partitions: Iterable[tuple[str, int]]) -> dict[TopicPartition, int]:
        return {tp: self._checked(tp).start(tp.partition) for tp in map(as_partition, partitions)}

    def end_offsets(self, partitions: Iterable[tuple[str, int]]) -> dict[TopicPartition, int]:
        return {tp: self._checked(tp).end(tp.partition) for tp in map(as_partition, partitions)}

    def offsets_for_times(
        self, times: Mapping[tuple[str, int], int]
    ) -> dict[TopicPartition, int | None]:
        """The first offset at or after a time for each partition; None where there is none."""
        out: dict[TopicPartition, int | None] = {}
        for given, time_ms in times.items():
            tp = as_partition(given)
            self._checked(tp)
            out[tp] = offset_for_time(self._handle(tp.topic), tp.partition, time_ms)
        return out

    def _move(self, tp: TopicPartition, offset: int) -> None:
        self._positions[tp] = offset
        self._streams.pop(tp, None)
        self._running.pop(tp, None)

    def _begin(self, tp: TopicPartition) -> int:
        """The position of a partition that has none yet: what the policy says."""
        state = self._checked(tp)
        if self._policy == "none":
            raise NoOffsetForGroupError(
                f"There is no position for {tp.topic}-{tp.partition}, and auto_offset_reset is "
                "'none'.",
                "Call seek() first, or choose 'earliest' or 'latest'.",
            )
        part = state.parts[tp.partition]
        position = part.start if self._policy == "earliest" else part.end
        self._positions[tp] = position
        return position

    # --- polling ---------------------------------------------------------------------------

    def poll(self, timeout: float = 0.0, max_records: int | None = None) -> list[Record]:
        """Up to ``max_records`` records; waits up to ``timeout`` seconds for the first."""
        most = self._most if max_records is None else _positive(max_records)
        out: list[Record] = []
        for tp, batch, low, high in self._next(timeout, most):
            out += to_records(tp.topic, batch, low, high)
        return out

    def poll_arrow(
        self, timeout: float = 0.0, max_records: int | None = None
    ) -> dict[TopicPartition, pa.Table]:
        """Arrow tables by partition, each of up to ``max_records`` rows (default: what one
        file or row group holds); waits up to ``timeout`` seconds for the first."""
        most = READ_RECORDS if max_records is None else _positive(max_records)
        tables: dict[TopicPartition, list[pa.Table]] = {}
        for tp, batch, low, high in self._next(timeout, most):
            tables.setdefault(tp, []).append(batch.table.slice(low, high - low))
        return {tp: pa.concat_tables(found) for tp, found in tables.items()}

    def _next(self, timeout: float, most: int) -> list[tuple[TopicPartition, Batch, int, int]]:
        self._check_open()
        if not self._positions and not self._subscribed:
            raise InvalidRequestError("Nothing is assigned.", "Call subscribe() or assign().")
        env = self._host.env
        deadline = env.monotonic() + timeout
        moved = True
        looked = False
        while True:
            found = self._gather(most)
            if found:
                return found
            if looked and not moved:
                if env.monotonic() >= deadline:
                    return []
                env.sleep(min(self._idle_pause(), max(0.0, deadline - env.monotonic())))
            moved = self._look()
            looked = True

    def _idle_pause(self) -> float:
        if self._pause is not None:
            return self._pause
        local = all(self._handle(tp.topic).chain.store.is_local for tp in self._positions)
        return LOCAL_PAUSE if local else REMOTE_PAUSE

    def _look(self) -> bool:
        """One request for each topic: is there anything new?"""
        moved = False
        topics = dict.fromkeys([*self._subscribed, *(tp.topic for tp in self._positions)])
        for topic in topics:
            handle = self._handle(topic)
            before = handle.chain.state.tip
            state = handle.glance()
            moved |= state.tip > before
            known = self._counts.get(topic)
            if known is not None and state.partitions > known:
                for partition in range(known, state.partitions):
                    self._positions[TopicPartition(topic, partition)] = state.start(partition)
                self._counts[topic] = state.partitions
        return moved

    def _gather(self, most: int) -> list[tuple[TopicPartition, Batch, int, int]]:
        """What is at hand or known to be there, from each partition in turn."""
        order = [tp for tp in self._positions if tp not in self._paused]
        turn = self._turn % max(1, len(order))
        out: list[tuple[TopicPartition, Batch, int, int]] = []
        room = most
        for tp in order[turn:] + order[:turn]:
            if room <= 0:
                break
            taken = self._take_some(tp, room)
            if taken is not None:
                out.append((tp, *taken))
                room -= taken[2] - taken[1]
        if out:
            self._turn += 1
        return out

    def _take_some(self, tp: TopicPartition, room: int) -> tuple[Batch, int, int] | None:
        while True:
            stream = self._streams.get(tp)
            if stream is None:
                batch = self._read(tp)
                if batch is None:
                    return None
                stream = _Stream(batch, 0)
            batch, row = stream
            high = min(batch.table.num_rows, row + room)
            if high < batch.table.num_rows:
                self._streams[tp] = _Stream(batch, high)
                self._positions[tp] = batch.table.column("offset")[high].as_py()
            else:
                self._streams.pop(tp, None)
                self._positions[tp] = batch.end
            if high > row:
                return batch, row, high

    def _read(self, tp: TopicPartition) -> Batch | None:
        """The next batch of a partition; None when the position is at the end."""
        handle = self._handle(tp.topic)
        state = handle.state(fresh=False)
        check_partition(state, tp.partition)
        position = self._positions[tp]
        if position is None:
            position = self._begin(tp)
            state = handle.chain.state
        part = state.parts[tp.partition]
        if not part.start <= position <= part.end:
            position = self._out_of_range(tp, position)
            part = handle.chain.state.parts[tp.partition]
        if position == part.end:
            return None
        try:
            return self._continue(handle, tp, position, part.end)
        except OffsetOutOfRangeError:
            # Retention took it between the plan and the read.
            self._out_of_range(tp, position)
            return self._read(tp)

    def _continue(
        self, handle: TopicHandle, tp: TopicPartition, position: int, end: int
    ) -> Batch:
        """The next batch of the run that is being read, or of a new one up to ``end``."""
        running = self._running.pop(tp, None)
        batch = None if running is None else next(running, None)
        if batch is None or batch.start != position:
            running = handle.reader.read(tp.partition, position, end, ALL_COLUMNS)
            batch = next(running)
        assert running is not None
        self._running[tp] = running
        return batch

    def _out_of_range(self, tp: TopicPartition, position: int) -> int:
        part = self._checked(tp).parts[tp.partition]
        if self._policy == "none":
            raise OffsetOutOfRangeError(
                f"Position {position} of {tp.topic}-{tp.partition} is not there any more.",
                f"It holds {part.start} to {part.end}; seek(), or set auto_offset_reset.",
            )
        target = part.start if self._policy == "earliest" else part.end
        _warn_moved(tp, position, target, part.start, part.end, self._policy)
        self._move(tp, target)
        return target

    # --- the rest --------------------------------------------------------------------------

    def _handle(self, topic: str) -> TopicHandle:
        return self._host.topic_handle(topic)

    def _checked(self, tp: TopicPartition) -> State:
        state = self._handle(tp.topic).state()
        check_partition(state, tp.partition)
        return state

    def _mine(self, partition: tuple[str, int]) -> TopicPartition:
        tp = as_partition(partition)
        if tp not in self._positions:
            raise InvalidRequestError(
                f"{tp.topic}-{tp.partition} is not assigned to this consumer.",
                "Call assign() or subscribe() first.",
            )
        return tp

    def _these(self, partitions: tuple[tuple[str, int], ...]) -> list[TopicPartition]:
        return [self._mine(p) for p in partitions] or list(self._positions)

    def _check_open(self) -> None:
        if self._closed:
            raise InvalidRequestError("The consumer is closed.", "Make a new one.")

    def close(self) -> None:
        self._closed = True
        self._streams.clear()
        self._running.clear()

    def __enter__(self) -> Consumer:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def __iter__(self) -> Consumer:
        return self

    def __next__(self) -> list[Record]:
        while True:
            found = self.poll(timeout=1.0)
            if found:
                return found


def _positive(count: object) -> int:
    if type(count) is not int or count < 1:
        raise InvalidRequestError(f"max_records is {count!r}.", "It is a whole number from 1.")
    return count


def _warn_moved(
    tp: TopicPartition, position: int, target: int, start: int, end: int, policy: str
) -> None:
    import warnings

    warnings.warn(
        f"Position {position} of {tp.topic}-{tp.partition} is not there any more (it holds "
        f"{start} to {end}); auto_offset_reset={policy!r} moved it to {target}.",
        stacklevel=6,
    )
