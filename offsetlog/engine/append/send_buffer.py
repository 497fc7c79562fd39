"""Records on their way: what ``send`` gathers until it is written and acknowledged together, and
the futures that ``send`` and ``send_arrow`` hand out.

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
6. A future is a buffer and a place in it. ``result`` may be called from any thread; it makes sure
   that somebody writes the buffer.
"""

from __future__ import annotations

import copy
import os
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from offsetlog.arguments import CALLBACK, OFFSET, SECONDS, checked, checks_itself
from offsetlog.core.topic.entry import Placed
from offsetlog.errors import InvalidRequestError, OffsetLogError, StorageError
from offsetlog.logs import get_logger
from offsetlog.values import RecordMetadata

MANY_LOOKUPS = 8
LOOK_SECONDS = 1.0
"""A waiting thread wakes this often by itself: whoever should wake it may have been interrupted."""
_Located = tuple[npt.NDArray[np.int32], npt.NDArray[np.int64], npt.NDArray[np.int64]]
"""Partitions, offsets and timestamps, in the order of sending."""
_NO_TIMES = np.empty(0, np.int64)
_callbacks_lock = threading.Lock()
logger = get_logger(__name__)
T = TypeVar("T")


class _Calling(threading.local):
    """Whether this thread is calling the callbacks of records that it has written."""

    now = False


CALLING = _Calling()


def _renew_lock() -> None:
    global _callbacks_lock
    _callbacks_lock = threading.Lock()


if hasattr(os, "register_at_fork"):
    # It may have been held at the fork, by a thread that the child does not have.
    os.register_at_fork(after_in_child=_renew_lock)


def refuse_in_callback(topic: str) -> None:
    """A writing thread that waited for records would wait for itself, and others for it."""
    if CALLING.now:
        raise InvalidRequestError(
            f"A callback of records can't wait for others, here for topic {topic!r}: it is called "
            "by the thread that writes them.",
            "Send without waiting there, and wait in another thread.",
        )


class Done:
    """An event that happens once. Unlike ``threading.Event``, whose ``set`` takes a lock in
    Python code, an interrupt inside ``set`` or ``wait`` keeps no other thread waiting."""

    __slots__ = ("_gate", "is_set")

    def __init__(self) -> None:
        self.is_set = False
        self._gate = threading.Lock()
        self._gate.acquire()

    def set(self) -> None:
        self.is_set = True
        # Wake one waiting thread, which wakes the next. One that is missed wakes by itself.
        with suppress(RuntimeError):
            self._gate.release()

    def wait(self, timeout: float | None = None) -> bool:
        """Whether it happened in time."""
        left = timeout
        while not self.is_set:
            pause = LOOK_SECONDS if left is None else min(LOOK_SECONDS, left)
            if pause <= 0:
                return False
            left = None if left is None else left - pause
            try:
                self._gate.acquire(timeout=pause)
            finally:
                if self.is_set:
                    self.set()
        return True


class BufferWriter(Protocol):
    """Whoever writes buffers."""

    def drive(self, batch: SendBuffer) -> None:
        """Write up to this buffer now, if nobody else is writing."""

    def hasten(self, batch: SendBuffer) -> None:
        """Let another thread write up to this buffer now."""


class SendBuffer:
    """Records that are written, and acknowledged, together."""

    __slots__ = (
        "topic", "values", "keys", "times", "headers", "named", "size", "table", "opened",
        "done", "error", "callbacks", "forced", "sender", "attempt", "interrupted", "count",
        "located", "placed", "_senders", "_reported", "_is_table",
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
        self._senders = [(0, sender)]
        """Who sent the records from here to the next one."""
        self._reported = bytearray()
        """Of a buffer that failed: 1 for each record whose sender was told."""
        self._writer = writer
        self._order: npt.NDArray[np.int64] | None = None
        self._times: npt.NDArray[np.int64] = _NO_TIMES
        self._columns: _Located | None = None
        self._lookups = 0
        self.located: tuple[list[int], list[int], list[int]] | None = None
        """Partitions, offsets and times of all records, where many of them are asked for."""

    # --- the producers' side ---------------------------------------------------------------

    def add_sender(self, sender: object) -> None:
        """Records of this producer are in it. Held: the lock of whoever took them."""
        self._senders.append((len(self.values), sender))
        self.sender = sender

    def drop_partial(self) -> None:
        """The thread that added a record was interrupted. Held: the lock."""
        count = len(self.times)
        del self.values[count:], self.keys[count:]
        self.headers.pop(count, None)
        self.named.pop(count, None)

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
        return list({id(sender): sender for _, sender in self._senders}.values())

    def mark_reported(self, sender: object | None = None) -> None:
        """This producer (or each) has been told."""
        for low, high in self._runs(sender):
            self._reported[low:high] = b"\1" * (high - low)

    def _runs(self, sender: object | None) -> Iterator[tuple[int, int]]:
        """The records of this producer, or all."""
        if sender is None:
            yield 0, len(self._reported)
            return
        ends = [*(start for start, _ in self._senders[1:]), len(self._reported)]
        for (low, who), high in zip(self._senders, ends, strict=True):
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
        before = CALLING.now
        try:
            CALLING.now = True
            for callback in callbacks:
                try:
                    self._call(callback)
                except BaseException as error:  # noqa: BLE001 - the others are called first
                    interrupt = interrupt or error
        finally:
            CALLING.now = before
        if interrupt is not None:
            raise interrupt

    def _call(self, callback: Callable[[], None]) -> None:
        try:
            callback()
        except Exception:  # noqa: BLE001 - what a callback does is not the batch's outcome
            logger.exception("A callback of records for topic %r raised an error.", self.topic)

    def add_callback(self, callback: Callable[[], None]) -> None:
        with _callbacks_lock:
            if not self.done.is_set:
                self.callbacks.append(callback)
                return
        self._call(callback)

    # --- the futures' side -----------------------------------------------------------------

    def wait(self, timeout: float | None, index: int = 0) -> None:
        """Until it is done; raises why it failed, to the future of record ``index``."""
        if not self.done.is_set:
            refuse_in_callback(self.topic)
            if timeout is None:
                self._writer.drive(self)
            else:
                # Whoever writes is kept by the storage for as long as that likes.
                self._writer.hasten(self)
            if not self.done.is_set and not self.done.wait(timeout):
                raise StorageError(
                    f"Records for topic {self.topic!r} were not acknowledged within {timeout} s.",
                    "They may still be; wait longer or look.",
                    may_have_landed=True,
                )
        if self.error is not None:
            self._reported[index] = 1
            # Each time another: an exception keeps the frames of all that ever raised it.
            raise copy.copy(self.error) from self.error.__cause__

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
            # Whoever looks up some of them looks up all. Numbers in a list are none of Python's
            # garbage collector's business; as many answers, made beforehand, would be walked over
            # again and again.
            self.located = partitions.tolist(), offsets.tolist(), times.tolist()
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


# --- what the senders get -------------------------------------------------------------------


_new = tuple.__new__


if TYPE_CHECKING:
    _Future = Future
else:

    class _Future(Generic[T]):
        """Says that it is one of ``concurrent.futures``, for ``asyncio``; its lock and lists for
        each record would cost more than all the rest of ``send``."""

        __slots__ = ()
        __class__ = property(lambda self: Future)


class _Sent(_Future[T]):
    """What was sent can't be taken back."""

    __slots__ = ()

    def cancel(self) -> bool:
        """False: what was sent is on its way."""
        return False

    def cancelled(self) -> bool:
        """False, as nothing cancels it."""
        return False

    def running(self) -> bool:
        """Whether it is still on its way."""
        return not self.done()


class SendFuture(tuple[SendBuffer, int], _Sent[RecordMetadata]):
    """The answer to one ``send``: where the record lies, once it is acknowledged."""

    __slots__ = ()

    @checks_itself(timeout=SECONDS)
    def result(self, timeout: float | None = None) -> RecordMetadata:
        """Wait until the record is acknowledged; raises why if it is not."""
        batch, index = self
        if timeout is not None:
            timeout = SECONDS("timeout", timeout)
        if batch.located is not None:
            partitions, offsets, times = batch.located
            answer = batch.topic, partitions[index], offsets[index], times[index]
            return _new(RecordMetadata, answer)
        batch.wait(timeout, index)
        return batch.metadata(index)

    @checks_itself(timeout=SECONDS)
    def exception(self, timeout: float | None = None) -> OffsetLogError | None:
        batch, index = self
        if timeout is not None:
            timeout = SECONDS("timeout", timeout)
        try:
            batch.wait(timeout, index)
        except OffsetLogError as error:
            return error
        return None

    def done(self) -> bool:
        return self[0].done.is_set

    @checked(callback=CALLBACK)
    def add_done_callback(self, callback: Callable[[SendFuture], Any]) -> None:
        """Call back with this future once it is done, from the thread that wrote it."""
        self[0].add_callback(lambda: callback(self))

    def __repr__(self) -> str:
        return f"SendFuture({self[0].topic!r}, done={self.done()})"


class ArrowFuture(_Sent[tuple[Placed, ...]]):
    """The answer to ``send_arrow``: the runs of offsets that the table's rows got."""

    __slots__ = ("_batch",)

    def __init__(self, batch: SendBuffer) -> None:
        self._batch = batch

    @checks_itself(timeout=SECONDS)
    def result(self, timeout: float | None = None) -> tuple[Placed, ...]:
        """(partition, base, records) of each run of rows, in the order of the partitions."""
        if timeout is not None:
            timeout = SECONDS("timeout", timeout)
        self._batch.wait(timeout)
        return self._batch.placed

    @checked(index=OFFSET)
    def metadata(self, index: int) -> RecordMetadata:
        """Where row ``index`` of the table lies."""
        self._batch.wait(None)
        if not 0 <= index < sum(run.records for run in self._batch.placed):
            raise InvalidRequestError(f"The table has no row {index}.", "Rows count from 0.")
        return self._batch.metadata(index)

    @checks_itself(timeout=SECONDS)
    def exception(self, timeout: float | None = None) -> OffsetLogError | None:
        if timeout is not None:
            timeout = SECONDS("timeout", timeout)
        try:
            self._batch.wait(timeout)
        except OffsetLogError as error:
            return error
        return None

    def done(self) -> bool:
        return self._batch.done.is_set

    @checked(callback=CALLBACK)
    def add_done_callback(self, callback: Callable[[ArrowFuture], Any]) -> None:
        self._batch.add_callback(lambda: callback(self))
