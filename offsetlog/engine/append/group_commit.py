"""Group commit: what all threads of a process send to one topic, in one entry after another.

Invariants:

1. One entry of ours is on its way at a time, so records of one sender keep their order.
2. While an entry is on its way, what is sent meanwhile gathers for the next one.
3. A thread that waits for its result writes the batch itself if nobody else is writing: a
   single synchronous sender pays for no thread switch.
4. Memory is bounded: ``send`` waits when too much is unacknowledged.
5. A batch whose fate is open keeps its number and its rows until it is known or given up. Who
   is interrupted (Ctrl-C) while it writes the batch of all leaves it so to the next one.
6. A failure that no future told is kept until a flush or close of its producer has raised it.
7. What is waiting when the program ends is written, also when nobody closed the log.
"""

from __future__ import annotations

import atexit
import logging
import threading
import weakref
from collections import deque
from collections.abc import Callable
from contextlib import suppress

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from offsetlog.core.topic.state import TopicState
from offsetlog.engine.append.record_batch import RecordBatch, prepare
from offsetlog.engine.append.send_buffer import SendBuffer, SentColumns, to_columns, unheard
from offsetlog.engine.append.writer import DELIVERY_SECONDS, Receipt, Sender
from offsetlog.engine.topic.open_topic import OpenTopic
from offsetlog.errors import InvalidRequestError, OffsetLogError, StorageError, UnknownTopicError
from offsetlog.format import record_schema as rows
from offsetlog.format.partitioner import partitions_of
from offsetlog.storage import forks
from offsetlog.values import settings_of

MAX_BLOCK_SECONDS = 60.0
BUFFER_BYTES = 64 * 1024 * 1024
TICK_SECONDS = 0.002
IDLE_TICKS = 100
JOIN_SECONDS = 0.0002
RECORD_OVERHEAD = 64
"""What a record weighs in memory besides its bytes."""
FAILURES_KEPT = 1000
"""Batches that failed and were not told yet; of more, each producer keeps the first."""
_log = logging.getLogger("offsetlog")
_in_use: weakref.WeakSet[GroupCommit] = weakref.WeakSet()
"""Those that took records."""


class GroupCommit:
    """Writes to one topic for all producers of a ``Log``."""

    def __init__(self, handle: OpenTopic, buffer_bytes: int = BUFFER_BYTES) -> None:
        self.handle = handle
        self._env = handle.chain.env
        self._buffer_bytes = buffer_bytes
        self._in_flight = 0
        """Bytes of the batch that is being written."""
        self._waiting: deque[SendBuffer] = deque()
        self.open: SendBuffer | None = None
        """The last of ``_waiting``, while it takes records. Held: the lock."""
        self.lock = threading.Lock()
        self._changed = threading.Condition(self.lock)
        self._writing = threading.Lock()
        self._app = self._env.new_id()
        self._seq = 0
        self._sticky = int(self._env.chance() * 2**31)
        self._thread: threading.Thread | None = None
        self._blocked = 0
        """Senders that wait for room."""
        self._crowd = 0
        """Records of the last batch whose senders waited for it."""
        self._drives = 0
        self._driven = False
        """Senders wait for their results and write by themselves: waking the thread for each
        batch would only take the interpreter from them, so it looks now and then instead."""
        self._closed = False
        self._made_in = forks.process()
        self._current: SendBuffer | None = None
        """The one that is being written."""
        self._failed: list[SendBuffer] = []
        """Those whose failure somebody has not been told. Held: the lock."""
        self.most = 0
        self.append_time = False
        self._limits_of = -2
        self._take_limits(handle.chain.state)

    def _take_limits(self, state: TopicState) -> None:
        """What the topic's present config says about single records."""
        if state.head != self._limits_of:
            self._limits_of = state.head
            self.most = self.handle.config.max_message_bytes + RECORD_OVERHEAD
            self.append_time = self.handle.config.log_append_time

    @property
    def is_foreign(self) -> bool:
        """Whether a fork lies behind it: what it holds is the parent's to write."""
        return forks.is_foreign(self._made_in)

    def check_partition(self, partition: int) -> None:
        check_named_partition(self.handle, partition)

    # --- taking records --------------------------------------------------------------------

    def add_table(self, table: pa.Table, sender: object) -> SendBuffer:
        """Take a table, which becomes one entry."""
        forks.check(self._made_in)
        with self.lock:
            batch = self.room_for(table.nbytes, 0.0)
            batch.taken_by(sender)
            batch.table = table
            batch.size = table.nbytes
            self.open = None
            return batch

    def room_for(self, size: int, linger: float) -> SendBuffer:
        """A new batch to be filled, when there is room for it. Held: the lock."""
        if self._unacknowledged() + size > self._buffer_bytes and self._unacknowledged():
            self._wait_for_room(size)
        self.open = self._new_batch(linger)
        return self.open

    def _unacknowledged(self) -> int:
        return self._in_flight + sum(batch.size for batch in self._waiting)

    def _new_batch(self, linger: float) -> SendBuffer:
        if self._closed:
            raise InvalidRequestError("The log is closed.", "Open it again.")
        forks.check(self._made_in)
        self._ensure_thread()
        batch = SendBuffer(self.handle.name, self, self._env.monotonic() + linger)
        self._waiting.append(batch)
        if not self._driven:
            self._changed.notify_all()
        return batch

    def _ensure_thread(self) -> None:
        """Somebody must write what is not waited for. Held: the lock."""
        if self._thread is not None and self._thread.is_alive():
            return
        thread = threading.Thread(
            target=self._run, name=f"offsetlog-{self.handle.name}", daemon=True
        )
        try:
            thread.start()
        except RuntimeError as error:
            raise StorageError(
                f"The thread that writes to topic {self.handle.name!r} can't be started: {error}. "
                "This record was not taken.",
                "The system has no room for another thread: end some, or raise its limit.",
            ) from None
        self._thread = thread
        _in_use.add(self)

    def _wait_for_room(self, size: int) -> None:
        for batch in self._waiting:
            batch.forced = True
        self._changed.notify_all()
        self._blocked += 1
        try:
            room = self._changed.wait_for(
                lambda: (
                    self._unacknowledged() + size <= self._buffer_bytes
                    or not self._unacknowledged()
                ),
                MAX_BLOCK_SECONDS,
            )
        finally:
            self._blocked -= 1
        if not room:
            raise StorageError(
                f"{self._unacknowledged()} bytes for topic {self.handle.name!r} wait to be "
                f"written for {MAX_BLOCK_SECONDS:.0f} s; this record was not taken.",
                "The filesystem is slower than the sender: send less, or wait.",
            )

    # --- writing them ----------------------------------------------------------------------

    def drive(self, batch: SendBuffer) -> None:
        """Write up to ``batch`` in this thread, unless another one is writing."""
        forks.check(self._made_in)
        self._driven = True
        self._drives += 1
        if self._writing.acquire(blocking=False):
            try:
                if len(batch.values) < self._crowd and batch.table is None:
                    # The others of the last batch are about to send again: let them join.
                    self._env.sleep(JOIN_SECONDS)
                while not batch.done.is_set() and self._write_next():
                    pass
            finally:
                self._writing.release()
        if not batch.done.is_set():
            with self._changed:
                batch.forced = True
                self._changed.notify_all()

    def flush(self, timeout: float | None) -> None:
        """Return when all that was taken before the call is written, or has failed."""
        forks.check(self._made_in)
        with self._changed:
            current = [] if self._current is None else [self._current]
            pending = [*current, *self._waiting]
        for batch in pending:
            if not batch.done.is_set():
                self.drive(batch)
        for batch in pending:
            if not batch.done.wait(timeout):
                raise StorageError(
                    f"Records for topic {self.handle.name!r} are still unacknowledged after "
                    f"{timeout} s.",
                    may_have_landed=True,
                )

    def failure(self, sender: object | None = None) -> OffsetLogError | None:
        """The first failure that was not told to this producer (or to any): now it is."""
        if not self._failed:
            return None
        with self.lock:
            owing = [batch for batch in self._failed if batch.owes(sender)]
            for batch in owing:
                batch.told_to(sender)
            self._failed = [batch for batch in self._failed if batch.owes()]
        return unheard(owing[0]) if owing else None

    def _keep_failure(self, batch: SendBuffer) -> None:
        with self.lock:
            if len(self._failed) >= FAILURES_KEPT:
                self._failed = [other for other in self._failed if other.owes()]
            if len(self._failed) < FAILURES_KEPT:
                self._failed.append(batch)
                return
            for sender in batch.senders():
                if getattr(sender, "failure", batch) is None:
                    sender.failure = unheard(batch)  # type: ignore[attr-defined]

    def close(self) -> None:
        """Write what waits; raises the first failure that nobody was told."""
        self.flush(None)
        with self._changed:
            self._closed = True
            self._changed.notify_all()
        if self._thread is not None and self._thread is not threading.current_thread():
            self._thread.join(DELIVERY_SECONDS)
        self.handle.stored.publish_if_due(every=32)
        failure = self.failure()
        if failure is not None:
            raise failure

    def _run(self) -> None:
        idle = drives = 0
        while True:
            with self._changed:
                if not self._due():
                    if self._closed and not self._waiting:
                        return
                    self._changed.wait(self._patience())
                    idle = 0 if self._drives > drives else idle + 1
                    drives = self._drives
                    if idle > IDLE_TICKS:
                        self._driven = False
                due = self._due()
            if due:
                with self._writing:
                    # A sender may have written what was due; what lingers is left to linger.
                    with self._changed:
                        due = self._due()
                    if due:
                        self._write_next()
            # Senders that write by themselves leave this to the thread as well.
            self.handle.stored.publish_if_due()

    def _due(self) -> bool:
        if not self._waiting:
            return False
        first = self._waiting[0]
        ready = first.forced or first.table is not None or len(self._waiting) > 1 or self._closed
        return ready or first.opened <= self._env.monotonic()

    def _patience(self) -> float | None:
        if self._driven:
            return TICK_SECONDS
        if not self._waiting:
            return None
        return max(0.0, self._waiting[0].opened - self._env.monotonic())

    def _write_next(self) -> bool:
        """Write the oldest batch. Held: ``_writing``."""
        batch: SendBuffer | None = None
        try:
            with self._changed:
                if not self._waiting:
                    return False
                batch = self._current = self._waiting[0]
                if batch is self.open:
                    self.open = None
                self._waiting.popleft()
                self._in_flight = batch.size
                self._crowd = len(batch.values) if self._driven else 0
            self._write(batch)
        except OffsetLogError as error:
            assert batch is not None
            self._fail(batch, error)
        except Exception as error:  # noqa: BLE001 - a future that is never done would hang its user
            assert batch is not None
            failure = StorageError(f"Writing to {self.handle.name!r} failed: {error!r}.")
            failure.__cause__ = error
            self._fail(batch, failure)
        except BaseException:
            # Ctrl-C is this thread's alone, and the batch everybody's.
            if batch is not None:
                self._put_back(batch)
            raise
        finally:
            with self._changed:
                self._in_flight = 0
                self._current = None
                if self._blocked:
                    self._changed.notify_all()
        return True

    def _fail(self, batch: SendBuffer, error: OffsetLogError) -> None:
        batch.will_fail(error)
        self._keep_failure(batch)
        batch.fail(error)

    def _put_back(self, batch: SendBuffer) -> None:
        """Its writer was interrupted: the next one goes on with the same number and rows."""
        again = False
        with self._changed:
            if batch.done.is_set():
                return
            if not batch.interrupted and threading.current_thread() is not self._thread:
                again = batch.interrupted = batch.forced = True
                if batch not in self._waiting:
                    self._waiting.appendleft(batch)
                self._driven = False
                with suppress(OffsetLogError):
                    self._ensure_thread()
                self._changed.notify_all()
            elif batch in self._waiting:
                self._waiting.remove(batch)
        if not again:
            failure = StorageError(
                f"The write of records to topic {self.handle.name!r} was interrupted.",
                "They may have been written; look before you send them again.",
                may_have_landed=True,
            )
            self._fail(batch, failure)

    def _write(self, batch: SendBuffer) -> None:
        if batch.attempt is None:
            state = self.handle.state(fresh=False)
            columns = stamped(columns_of(batch), state, self._env.now_ms)
            placed_by = self._partition(columns, state)
            prepared = prepare(columns.table, placed_by)
            self._seq += 1
            batch.attempt = prepared, Sender(self._app, self._seq, True), state
        prepared, sender, state = batch.attempt
        receipt = self._deliver(prepared, sender, state)
        batch.succeed(receipt.placed, prepared.order, prepared.times)
        self._take_limits(self.handle.chain.state)

    def _deliver(self, prepared: RecordBatch, sender: Sender, state: TopicState) -> Receipt:
        return self.handle.writer.deliver(prepared, sender, state.partitions, state.life)

    def _partition(self, columns: SentColumns, state: TopicState) -> npt.NDArray[np.int32]:
        self._sticky += 1
        return assign_partitions(columns, state.partitions, self._sticky, self.handle.name)


def check_named_partition(handle: OpenTopic, partition: object) -> None:
    """Refuse a partition that a sender named and that is not there."""
    count = handle.chain.state.partitions
    if type(partition) is not int or partition < 0:
        raise InvalidRequestError(f"{partition!r} is not a partition.", "It is a number from 0.")
    if partition >= count:
        count = handle.state().partitions
    if partition >= count:
        raise UnknownTopicError(
            f"Topic {handle.name!r} has no partition {partition}.", f"It has {count}, from 0."
        )


def columns_of(batch: SendBuffer) -> SentColumns:
    if batch.table is None:
        return to_columns(batch)
    table = batch.table
    named = np.full(table.num_rows, -1, np.int32)
    if "partition" in table.schema.names:
        named = table.column("partition").fill_null(-1).to_numpy().astype(np.int32)
        table = table.drop_columns(["partition"])
    return SentColumns(table, named)


def stamped(columns: SentColumns, state: TopicState, now_ms: Callable[[], int]) -> SentColumns:
    """With the time of append, where that is what the topic keeps."""
    if not settings_of(state.config).log_append_time:
        return columns
    times = np.full(columns.table.num_rows, now_ms(), np.int64)
    place = columns.table.schema.get_field_index("timestamp")
    column = pa.array(times).view(rows.TIMESTAMP)
    return columns._replace(
        table=columns.table.set_column(place, rows.ROWS.field("timestamp"), column)
    )


def assign_partitions(
    columns: SentColumns, partitions: int, sticky: int, topic: str
) -> npt.NDArray[np.int32]:
    """Named ones stay; keyed ones go where Kafka's hash says; the rest share one partition."""
    keys = columns.table.column("key")
    if columns.nobody_chose and keys.null_count == len(keys):
        return np.full(len(keys), sticky % partitions, np.int32)
    out = columns.partition.copy()
    if len(out) and out.max() >= partitions:
        raise InvalidRequestError(
            f"Topic {topic!r} has no partition {out.max()}.", f"It has {partitions}, from 0."
        )
    free = out < 0
    if free.any():
        if keys.null_count < len(keys):
            hashed = partitions_of(keys, partitions)
            out[free] = hashed[free]
            free = out < 0
        out[free] = sticky % partitions
    return out


@atexit.register
def _write_at_exit() -> None:
    """A script that ends without closing its log meant to send what it sent."""
    for appender in list(_in_use):
        if appender.is_foreign:
            continue
        try:
            appender.flush(None)
            failure = appender.failure()
        except Exception as error:  # noqa: BLE001 - nobody is left to whom it could be raised
            failure = error if isinstance(error, OffsetLogError) else StorageError(repr(error))
        if failure is not None:
            _log.error("%s", failure)
