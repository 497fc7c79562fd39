"""Records on their way: what ``send`` gathers until it is written and acknowledged together.

Invariants:

1. Until it is written a record costs its place in three lists and one small future: no container
   of its own, which the garbage collector would look at again and again.
2. Every future of a buffer is done, with a result or an error, once the buffer is.
3. A callback that raises is logged, and changes nothing: not the outcome, and not that all others
   are called.
4. A buffer that failed knows which of its records that was reported of, by their futures or by a
   flush of the producer that sent them: the rest is raised by that producer's ``flush``.
5. An interrupted thread (Ctrl-C) leaves nothing locked here, wherever that strikes: locks are
   taken by ``with``, which does not let a signal in between, and ``Done`` needs none.
"""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from itertools import repeat
from typing import Any, NamedTuple, Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from offsetlog.core.topic.entry import Placed
from offsetlog.errors import InvalidRequestError, OffsetLogError, StorageError
from offsetlog.format import record_schema as rows
from offsetlog.values import RecordMetadata

MANY_LOOKUPS = 8
LOOK_SECONDS = 1.0
"""A waiting thread wakes this often by itself: whoever should wake it may have been interrupted."""
_Located = tuple[npt.NDArray[np.int32], npt.NDArray[np.int64], npt.NDArray[np.int64]]
"""Partitions, offsets and timestamps, in the order of sending."""
_NO_TIMES = np.empty(0, np.int64)
_callbacks_lock = threading.Lock()
logger = logging.getLogger(__name__)


def _renew_lock() -> None:
    global _callbacks_lock
    _callbacks_lock = threading.Lock()


if hasattr(os, "register_at_fork"):
    # It may have been held at the fork, by a thread that the child does not have.
    os.register_at_fork(after_in_child=_renew_lock)


class Done:
    """An event that happens once. Unlike ``threading.Event``, whose ``set`` takes a lock in
    Python code, an interrupt inside ``set`` or ``wait`` keeps no other thread waiting."""

    __slots__ = ("_gate", "_is_set")

    def __init__(self) -> None:
        self._is_set = False
        self._gate = threading.Lock()
        self._gate.acquire()

    def is_set(self) -> bool:
        return self._is_set

    def set(self) -> None:
        self._is_set = True
        self._open()

    def wait(self, timeout: float | None = None) -> bool:
        """Whether it happened in time."""
        left = timeout
        while not self._is_set:
            pause = LOOK_SECONDS if left is None else min(LOOK_SECONDS, left)
            if pause <= 0:
                return False
            left = None if left is None else left - pause
            try:
                self._gate.acquire(timeout=pause)
            finally:
                if self._is_set:
                    self._open()
        return True

    def _open(self) -> None:
        """Wake one waiting thread, which wakes the next. One that is missed wakes by itself."""
        with suppress(RuntimeError):
            self._gate.release()


class BufferWriter(Protocol):
    """Whoever writes buffers."""

    def drive(self, batch: SendBuffer) -> None:
        """Write up to this buffer now, if nobody else is writing."""


class SendBuffer:
    """Records that are written, and acknowledged, together."""

    __slots__ = (
        "topic", "values", "keys", "times", "headers", "named", "size", "table", "opened",
        "done", "error", "callbacks", "forced", "sender", "attempt", "interrupted", "count",
        "results", "placed", "_starts", "_senders", "_reported", "_is_table",
        "_writer", "_order", "_times", "_columns", "_lookups",
    )  # fmt: skip

    def __init__(
        self, topic: str, writer: BufferWriter, opened: float, sender: object | None
    ) -> None:
        self.topic = topic
        self.values: list[bytes | None] = []
        self.keys: list[bytes | None] = []
        self.times: list[int] = []
        """Nanoseconds since the epoch."""
        self.headers: dict[int, list[tuple[str, bytes | None]]] = {}
        self.named: dict[int, int] = {}
        """Partitions of the records whose sender named one."""
        self.size = 0
        self.table: pa.Table | None = None
        """A whole table in place of rows: ``send_arrow``."""
        self.opened = opened
        self.forced = False
        self.done = Done()
        self.error: OffsetLogError | None = None
        self.callbacks: list[Callable[[], None]] = []
        self.sender = sender
        """The producer that sent into it last."""
        self.attempt: Any = None
        """What its writer must send again, as it is, when a try was interrupted."""
        self.interrupted = False
        self._is_table = False
        self.count = 0
        """Of its records, once it failed."""
        self.placed: tuple[Placed, ...] = ()
        """The runs of offsets that its rows got, in the order of the partitions."""
        self._starts = [0]
        self._senders = [sender]
        """Who sent the records from each start to the next one."""
        self._reported = bytearray()
        """Of a buffer that failed: 1 for each record whose sender was told."""
        self._writer = writer
        self._order: npt.NDArray[np.int64] | None = None
        self._times: npt.NDArray[np.int64] = _NO_TIMES
        self._columns: _Located | None = None
        self._lookups = 0
        self.results: list[RecordMetadata] | None = None
        """Of all records, once many of them were looked up."""

    # --- the producers' side ---------------------------------------------------------------

    def add_sender(self, sender: object) -> None:
        """Records of this producer are in it. Held: the lock of whoever took them."""
        self._starts.append(len(self.values))
        self._senders.append(sender)
        self.sender = sender

    def unreported(self, sender: object | None = None) -> int:
        """How many records of this producer (or of all) it lost without their being told."""
        if self.error is None:
            return 0
        count = sum(self._reported.count(0, low, high) for low, high in self._runs(sender))
        return self.count if count and self._is_table else count

    def size_now(self) -> int:
        """Its records, as long as it is not done."""
        return len(self.values) if self.table is None else self.table.num_rows

    def senders(self) -> list[object]:
        return list({id(sender): sender for sender in self._senders}.values())

    def mark_reported(self, sender: object | None = None) -> None:
        """This producer (or each) has been told."""
        for low, high in self._runs(sender):
            self._reported[low:high] = b"\1" * (high - low)

    def _runs(self, sender: object | None) -> Iterator[tuple[int, int]]:
        """The records of this producer, or all."""
        if sender is None:
            yield 0, len(self._reported)
            return
        ends = [*self._starts[1:], len(self._reported)]
        for low, high, who in zip(self._starts, ends, self._senders, strict=True):
            if who is sender:
                yield low, high

    # --- the writer's side -----------------------------------------------------------------

    def succeed(
        self,
        placed: tuple[Placed, ...],
        order: npt.NDArray[np.int64] | None,
        times: npt.NDArray[np.int64],
    ) -> None:
        self.placed, self._order, self._times = placed, order, times
        self.error = None
        self._finish()

    def note_failure(self, error: OffsetLogError) -> None:
        """Note why, before any waiting thread learns of it."""
        self.error = error
        if not self.count:
            self.count = self.size_now()
            self._is_table = self.table is not None
            self._reported = bytearray(1 if self._is_table else self.count)

    def fail(self, error: OffsetLogError) -> None:
        self.note_failure(error)
        self._finish()

    def _finish(self) -> None:
        with _callbacks_lock:
            self.done.set()
            callbacks, self.callbacks = self.callbacks, []
        # Not before it is done: an interrupted writer must find them again.
        self.attempt = None
        self.values, self.keys, self.times = [], [], []
        self.headers, self.named, self.table = {}, {}, None
        interrupt: BaseException | None = None
        for callback in callbacks:
            try:
                self._call(callback)
            except BaseException as error:  # noqa: BLE001 - the others are called first
                interrupt = interrupt or error
        if interrupt is not None:
            raise interrupt

    def _call(self, callback: Callable[[], None]) -> None:
        try:
            callback()
        except Exception:  # noqa: BLE001 - what a callback does is not the batch's outcome
            logger.exception("A callback of records for topic %r raised an error.", self.topic)

    def add_callback(self, callback: Callable[[], None]) -> None:
        with _callbacks_lock:
            if not self.done.is_set():
                self.callbacks.append(callback)
                return
        self._call(callback)

    # --- the futures' side -----------------------------------------------------------------

    def wait(self, timeout: float | None, index: int = 0) -> None:
        """Until it is done; raises why it failed, to the future of record ``index``."""
        if not self.done.is_set():
            self._writer.drive(self)
            if not self.done.wait(timeout):
                raise StorageError(
                    f"Records for topic {self.topic!r} were not acknowledged within {timeout} s.",
                    "They may still be; wait longer or look.",
                    may_have_landed=True,
                )
        if self.error is not None:
            self._reported[index] = 1
            raise self.error

    def metadata(self, index: int) -> RecordMetadata:
        """Where the record that was sent as number ``index`` of the batch lies."""
        if len(self._times) == 1 and len(self.placed) == 1 and self.placed[0].records == 1:
            [(partition, offset, _)] = self.placed
            return RecordMetadata(self.topic, partition, offset, int(self._times[0]))
        if self._columns is None:
            self._columns = self._locate()
        partitions, offsets, times = self._columns
        self._lookups += 1
        if self._lookups == MANY_LOOKUPS:
            # Whoever looks up some of them looks up all: made together they cost a third.
            pairs = zip(
                repeat(self.topic),
                partitions.tolist(),
                offsets.tolist(),
                times.tolist(),
                strict=False,
            )
            self.results = list(map(tuple.__new__, repeat(RecordMetadata), pairs))
        return RecordMetadata(
            self.topic, int(partitions[index]), int(offsets[index]), int(times[index])
        )

    def _locate(self) -> _Located:
        partitions = np.concatenate(
            [np.full(run.records, run.partition, np.int32) for run in self.placed]
        )
        offsets = np.concatenate(
            [np.arange(run.base, run.base + run.records, dtype=np.int64) for run in self.placed]
        )
        times = self._times
        if len(times) != len(offsets):
            raise InvalidRequestError(
                f"Topic {self.topic!r} holds a batch under this app_id and sequence already, "
                f"with {len(offsets)} records in place of {len(times)}.",
                "The earlier one stays; which of its records is which cannot be told.",
            )
        if self._order is not None:
            back = np.empty_like(self._order)
            back[self._order] = np.arange(len(self._order))
            partitions, offsets, times = partitions[back], offsets[back], times[back]
        return partitions, offsets, times


def in_words(records: int) -> str:
    return "1 record" if records == 1 else f"{records} records"


def unreported_failure(batch: SendBuffer, records: int) -> OffsetLogError:
    """The failure of a batch, for a producer that asked no future for this many of its records."""
    error = batch.error
    assert error is not None
    failure = type(error)(
        f"Not acknowledged for topic {batch.topic!r}: {in_words(records)}. {error.message}",
        error.hint,
        retryable=error.retryable,
        may_have_landed=error.may_have_landed,
    )
    failure.__cause__ = error
    return failure


class SentColumns(NamedTuple):
    table: pa.Table
    """With the columns of ``ROWS``."""
    partition: npt.NDArray[np.int32]
    """-1 where the sender named none."""
    nobody_chose: bool = False
    """Known to be -1 throughout."""
    times: npt.NDArray[np.int64] | None = None
    """Those of the table, where they are at hand."""

    def with_time(self, now_ms: int) -> SentColumns:
        """With this time for all of them, as a topic keeps them that has the time of append."""
        times = np.full(self.table.num_rows, now_ms, np.int64)
        place = self.table.schema.get_field_index("timestamp")
        column = pa.array(times).view(rows.TIMESTAMP)
        table = self.table.set_column(place, rows.ROWS.field("timestamp"), column)
        return self._replace(table=table, times=times)


def columns_of(batch: SendBuffer) -> SentColumns:
    """What was gathered, as a table."""
    if batch.table is not None:
        table = batch.table
        named = np.full(table.num_rows, -1, np.int32)
        if "partition" in table.schema.names:
            named = table.column("partition").fill_null(-1).to_numpy().astype(np.int32)
            table = table.drop_columns(["partition"])
        return SentColumns(table, named)
    count = len(batch.values)
    headers = pa.nulls(count, rows.HEADERS)
    if batch.headers:
        headers = pa.array([batch.headers.get(i) for i in range(count)], rows.HEADERS)
    times = np.array(batch.times, np.int64) // 1_000_000
    table = pa.Table.from_arrays(
        [
            pa.array(batch.keys, pa.binary()),
            pa.array(batch.values, pa.binary()),
            headers,
            rows.as_arrow(times, rows.TIMESTAMP),
        ],
        schema=rows.ROWS,
    )
    named = np.full(count, -1, np.int32)
    if batch.named:
        named[list(batch.named)] = list(batch.named.values())
    return SentColumns(table, named, not batch.named, times)
