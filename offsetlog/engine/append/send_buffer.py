"""Records on their way: what ``send`` gathers, and the futures that it hands out.

Invariants:

1. Until it is written a record of a batch costs its place in three lists and one small future:
   no container of its own, which the garbage collector would look at again and again.
2. Every future of a batch is done, with a result or an error, once the batch is.
3. ``result`` may be called from any thread; it makes sure that somebody writes the batch.
4. A callback that raises is logged, and changes nothing: not what the batch came to, and not
   that all others are called.
5. A batch that failed knows which of its futures were asked, and which producers it has not
   been told to: what nobody heard of is raised by their ``flush`` and ``close``.
"""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Callable
from itertools import repeat
from typing import Any, NamedTuple, Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from offsetlog.core.topic.entry import Placed
from offsetlog.errors import InvalidRequestError, OffsetLogError, StorageError
from offsetlog.format import record_schema as rows
from offsetlog.values import RecordMetadata

MANY_ASKED = 8
_Located = tuple[npt.NDArray[np.int32], npt.NDArray[np.int64], npt.NDArray[np.int64]]
"""Partitions, offsets and timestamps, in the order of sending."""
_NO_TIMES = np.empty(0, np.int64)
_callbacks_lock = threading.Lock()
_log = logging.getLogger("offsetlog")


def _renew_lock() -> None:
    global _callbacks_lock
    _callbacks_lock = threading.Lock()


if hasattr(os, "register_at_fork"):
    # It may have been held at the fork, by a thread that the child does not have.
    os.register_at_fork(after_in_child=_renew_lock)


class SendBufferWriter(Protocol):
    """Whoever writes batches."""

    def drive(self, batch: SendBuffer) -> None:
        """Write up to this batch now, if nobody else is writing."""


class SendBuffer:
    """Records that are written, and acknowledged, together."""

    __slots__ = (
        "topic", "values", "keys", "times", "headers", "named", "size", "table", "opened",
        "done", "error", "callbacks", "forced", "sender", "attempt", "interrupted", "count",
        "results", "_owed", "_heard",
        "_driver", "_placed", "_order", "_times", "_columns", "_asked",
    )  # fmt: skip

    def __init__(self, topic: str, driver: SendBufferWriter, opened: float) -> None:
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
        self.done = threading.Event()
        self.error: OffsetLogError | None = None
        self.callbacks: list[Callable[[], None]] = []
        self.sender: object | None = None
        """The producer that sent into it last."""
        self.attempt: Any = None
        """What its writer must send again, as it is, when a try was interrupted."""
        self.interrupted = False
        self.count = 0
        """Of its records, once it failed."""
        self._owed: list[object] = []
        """The producers that sent into it and were not told by a flush that it failed."""
        self._heard = bytearray()
        """Of a batch that failed: 1 for each record whose future was asked."""
        self._driver = driver
        self._placed: tuple[Placed, ...] = ()
        self._order: npt.NDArray[np.int64] | None = None
        self._times: npt.NDArray[np.int64] = _NO_TIMES
        self._columns: _Located | None = None
        self._asked = 0
        self.results: list[RecordMetadata] | None = None
        """Of all records, once many of them were asked for."""

    # --- the producers' side ---------------------------------------------------------------

    def taken_by(self, sender: object) -> None:
        """Records of this producer are in it. Held: the lane's lock."""
        self.sender = sender
        if sender not in self._owed:
            self._owed.append(sender)

    def owes(self, sender: object | None = None) -> bool:
        """Whether it failed, and this producer (or any) has records in it and was not told."""
        if self.error is None or 0 not in self._heard:
            return False
        return bool(self._owed) if sender is None else sender in self._owed

    def senders(self) -> list[object]:
        return list(self._owed)

    def told_to(self, sender: object | None = None) -> None:
        """This producer (or each) has been told."""
        self._owed = [] if sender is None else [other for other in self._owed if other != sender]

    # --- the writer's side -----------------------------------------------------------------

    def succeed(
        self,
        placed: tuple[Placed, ...],
        order: npt.NDArray[np.int64] | None,
        times: npt.NDArray[np.int64],
    ) -> None:
        self._placed, self._order, self._times = placed, order, times
        self.error = None
        self._finish()

    def will_fail(self, error: OffsetLogError) -> None:
        """Note why, before anybody who waits for it hears of it."""
        self.error = error
        if not self.count:
            whole = self.table is not None
            self.count = self.table.num_rows if self.table is not None else len(self.values)
            self._heard = bytearray(1 if whole else self.count)

    def fail(self, error: OffsetLogError) -> None:
        self.will_fail(error)
        self._finish()

    def _finish(self) -> None:
        with _callbacks_lock:
            self.done.set()
            callbacks, self.callbacks = self.callbacks, []
        # Not before it is done: who was interrupted in between must find them.
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
            _log.exception("A callback of records for topic %r raised an error.", self.topic)

    def when_done(self, call: Callable[[], None]) -> None:
        with _callbacks_lock:
            if not self.done.is_set():
                self.callbacks.append(call)
                return
        self._call(call)

    # --- the futures' side -----------------------------------------------------------------

    def wait(self, timeout: float | None, index: int = 0) -> None:
        """Until it is done; raises why it failed, to the future of record ``index``."""
        if not self.done.is_set():
            self._driver.drive(self)
            if not self.done.wait(timeout):
                raise StorageError(
                    f"Records for topic {self.topic!r} were not acknowledged within {timeout} s.",
                    "They may still be; wait longer or look.",
                    may_have_landed=True,
                )
        if self.error is not None:
            self._heard[index] = 1
            raise self.error

    def placed(self) -> tuple[Placed, ...]:
        return self._placed

    def metadata(self, index: int) -> RecordMetadata:
        """Where the record that was sent as number ``index`` of the batch lies."""
        if self._columns is None:
            self._columns = self._locate()
        partitions, offsets, times = self._columns
        self._asked += 1
        if self._asked == MANY_ASKED:
            # Whoever asks for some of them asks for all: made together they cost a third.
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
        counts = [run.records for run in self._placed]
        partitions = np.repeat(np.array([r.partition for r in self._placed], np.int32), counts)
        offsets = np.concatenate(
            [np.arange(r.base, r.base + r.records, dtype=np.int64) for r in self._placed]
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


def unheard(batch: SendBuffer) -> OffsetLogError:
    """The failure of a batch, for who asked none of its futures."""
    error = batch.error
    assert error is not None
    said = type(error)(
        f"Not acknowledged for topic {batch.topic!r}: {in_words(batch.count)}. {error.message}",
        error.hint,
        retryable=error.retryable,
        may_have_landed=error.may_have_landed,
    )
    said.__cause__ = error
    return said


class SendFuture(tuple[SendBuffer, int]):
    """The answer to one ``send``: where the record lies, once it is acknowledged."""

    __slots__ = ()

    def result(self, timeout: float | None = None) -> RecordMetadata:
        """Wait until the record is acknowledged; raises why if it is not."""
        batch, index = self
        known = batch.results
        if known is not None:
            return known[index]
        batch.wait(timeout, index)
        return batch.metadata(index)

    def exception(self, timeout: float | None = None) -> OffsetLogError | None:
        batch, index = self
        try:
            batch.wait(timeout, index)
        except OffsetLogError as error:
            return error
        return None

    def done(self) -> bool:
        return self[0].done.is_set()

    def add_done_callback(self, callback: Callable[[SendFuture], Any]) -> None:
        """Call back with this future once it is done, from the thread that wrote it."""
        self[0].when_done(lambda: callback(self))

    def __repr__(self) -> str:
        return f"SendFuture({self[0].topic!r}, done={self.done()})"


class ArrowFuture:
    """The answer to ``send_arrow``: the runs of offsets that the table's rows got."""

    __slots__ = ("_batch",)

    def __init__(self, batch: SendBuffer) -> None:
        self._batch = batch

    def result(self, timeout: float | None = None) -> tuple[Placed, ...]:
        """(partition, base, records) of each run of rows, in the order of the partitions."""
        self._batch.wait(timeout)
        return self._batch.placed()

    def metadata(self, index: int) -> RecordMetadata:
        """Where row ``index`` of the table lies."""
        self._batch.wait(None)
        return self._batch.metadata(index)

    def exception(self, timeout: float | None = None) -> OffsetLogError | None:
        try:
            self._batch.wait(timeout)
        except OffsetLogError as error:
            return error
        return None

    def done(self) -> bool:
        return self._batch.done.is_set()

    def add_done_callback(self, callback: Callable[[ArrowFuture], Any]) -> None:
        self._batch.when_done(lambda: callback(self))


class SentColumns(NamedTuple):
    table: pa.Table
    partition: npt.NDArray[np.int32]
    """-1 where the sender named none."""
    nobody_chose: bool = False
    """Known to be -1 throughout."""


def to_columns(batch: SendBuffer) -> SentColumns:
    """What ``send`` gathered, as a table with the columns of ``ROWS``."""
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
            pa.array(times).view(rows.TIMESTAMP),
        ],
        schema=rows.ROWS,
    )
    named = np.full(count, -1, np.int32)
    if batch.named:
        named[list(batch.named)] = list(batch.named.values())
    return SentColumns(table, named, not batch.named)
