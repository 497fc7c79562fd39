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
7. What waits when the program ends is written, also if the log was never closed.
8. An interrupted thread (Ctrl-C) leaves nothing locked: where nothing is waited for the lock itself
   is taken by ``with``, and not its condition, and ``_writer`` is given back by ``finally``.
9. A log has so many writing threads at the most, whatever it has of topics: a topic has one while
   something of it waits, and for a while after; when there are more topics than threads, they take
   turns: neither a busy topic nor one that lingers keeps its thread while another waits for one.
10. What waited behind a batch whose time was up fails with it, untried; and all topics of a log
   that is closed, or of a program that ends, have one deadline between them.
"""

from __future__ import annotations

import atexit
import threading
import weakref
from collections import deque
from contextlib import suppress

import pyarrow as pa

from offsetlog.core.topic.state import TopicState
from offsetlog.engine.append.record_batch import assign_partitions, columns_of, prepare
from offsetlog.engine.append.send_buffer import (
    CALLING,
    SendBuffer,
    in_words,
    refuse_in_callback,
    unreported_failure,
)
from offsetlog.engine.append.writer import DELIVERY_SECONDS, Sender
from offsetlog.engine.topic.open_topic import OpenTopic
from offsetlog.errors import (
    InvalidRequestError,
    OffsetLogError,
    StorageError,
    UnknownTopicError,
)
from offsetlog.logs import get_logger
from offsetlog.storage import forks
from offsetlog.values import settings_of

MAX_BLOCK_SECONDS = 60.0
BUFFER_BYTES = 64 * 1024 * 1024
TICK_SECONDS = 0.002
IDLE_TICKS = 100
IDLE_SECONDS = 5.0
"""So long a thread stays with a topic of which nothing waits."""
MOST_THREADS = 32
"""That write, for all topics of a log."""
LOOK_SECONDS = 0.25
"""One with nothing to write looks this often whether another topic waits for it ..."""
CROWDED_SECONDS = 0.05
"""... and this often when there are so many."""
LOCK_SECONDS = 5.0
"""The end of a program waits so long for a lock."""
JOIN_SECONDS = 0.0002
RECORD_OVERHEAD = 64
"""What a record weighs in memory besides its bytes."""
FAILURES_KEPT = 1000
"""Batches that failed and were not told yet; of more, each producer keeps the first."""
logger = get_logger(__name__)
_in_use: weakref.WeakSet[GroupCommit] = weakref.WeakSet()
"""Those that took records."""


class WritingThreads:
    """Those of a log. Each serves one topic at a time."""

    def __init__(self, most: int = MOST_THREADS) -> None:
        self._most = most
        self._lock = threading.Lock()
        self._alive = 0
        self._queue: deque[GroupCommit] = deque()

    @property
    def is_full(self) -> bool:
        return self._alive >= self._most

    @property
    def is_wanted(self) -> bool:
        """Whether a topic waits for a thread."""
        return bool(self._queue)

    def serve(self, commit: GroupCommit) -> threading.Thread | None:
        """Give it a thread, or its turn at one; ``RuntimeError`` where none can be started."""
        with self._lock:
            if self.is_full:
                self._wait(commit)
                return None
            self._alive += 1
        thread = threading.Thread(target=self._work, args=(commit,), daemon=True)
        try:
            thread.start()
        except BaseException:
            self._give_up_one()
            raise
        return thread

    def take_turns(self, commit: GroupCommit) -> None:
        """Its thread serves who waits longest; this one waits for its next turn."""
        with self._lock:
            self._wait(commit)

    def _wait(self, commit: GroupCommit) -> None:
        self._queue.append(commit)
        commit.waits_for_thread = True

    def _work(self, commit: GroupCommit | None) -> None:
        try:
            while commit is not None:
                threading.current_thread().name = f"offsetlog-{commit.topic.name}"
                commit.serve()
                commit = self._next()
        except BaseException:
            self._replace()
            raise

    def _next(self) -> GroupCommit | None:
        """Who waits longest; None: this thread ends."""
        with self._lock:
            if self._queue:
                return self._queue.popleft()
            self._alive -= 1
            return None

    def _replace(self) -> None:
        """A thread dies: who waited for it gets another one."""
        with self._lock:
            self._alive -= 1
            commit = self._queue.popleft() if self._queue else None
        if commit is not None:
            try:
                self.serve(commit)
            except RuntimeError:
                commit.waits_for_thread = False

    def _give_up_one(self) -> None:
        """It could not be started. The others serve who waits; if there are none, each topic asks
        again with its next record."""
        with self._lock:
            self._alive -= 1
            while self._queue and not self._alive:
                self._queue.popleft().waits_for_thread = False


class GroupCommit:
    """Writes to one topic for all producers of a ``Log``."""

    def __init__(
        self,
        topic: OpenTopic,
        buffer_bytes: int = BUFFER_BYTES,
        threads: WritingThreads | None = None,
    ) -> None:
        self.topic = topic
        self._env = topic.chain.env
        self._buffer_bytes = buffer_bytes
        self._in_flight = 0
        """Bytes of the batch that is being written."""
        self._waiting: deque[SendBuffer] = deque()
        self.open: SendBuffer | None = None
        """The last of ``_waiting``, while it takes records. Held: the lock."""
        self.lock = threading.Lock()
        self._changed = threading.Condition(self.lock)
        self._writer: object | None = None
        """A mark of the writing thread. It is set with the lock held and cleared without it."""
        self._app = self._env.new_id()
        self._seq = 0
        self._spread = int(self._env.chance() * 2**31)
        self._threads = WritingThreads() if threads is None else threads
        self._thread: threading.Thread | None = None
        """The one that serves it. Held: the lock."""
        self.waits_for_thread = False
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
        self._take_settings(topic.chain.state)

    def _take_settings(self, state: TopicState) -> None:
        """What the topic's present config says about single records."""
        settings = settings_of(state.config)
        self.max_bytes = settings.max_message_bytes + RECORD_OVERHEAD
        self.needs_key = settings.compacts
        self._settings_of = state.head

    # --- taking records --------------------------------------------------------------------

    def look_again(self) -> None:
        """Judge records by the config as it is now."""
        self._take_settings(self.topic.refresh())

    def add_table(self, table: pa.Table, sender: object) -> SendBuffer:
        """Take a table, which becomes one entry."""
        forks.check(self._made_in)
        with self.lock:
            batch = self.room_for(table.nbytes, 0.0, sender)
            # First: a record that came into a buffer with a table would not be written.
            self.open = None
            batch.size = table.nbytes
            batch.table = table
            return batch

    def room_for(self, size: int, linger: float, sender: object) -> SendBuffer:
        """A new batch to be filled, when there is room for it. Held: the lock."""
        if self._in_flight or self._waiting:
            self._wait_for_room(size)
        if self._closed:
            raise InvalidRequestError("The log is closed.", "Open it again.")
        self._ensure_thread()
        opened = self._env.monotonic() + linger
        batch = SendBuffer(self.topic.name, self, opened, sender)
        self._waiting.append(batch)  # First: what is open is written.
        self.open = batch
        if not self._driven:
            self._changed.notify_all()
        return batch

    def _unacknowledged(self) -> int:
        return self._in_flight + sum(batch.size for batch in self._waiting)

    def _ensure_thread(self) -> None:
        """Somebody must write what is not waited for. Held: the lock."""
        if self.waits_for_thread or (self._thread is not None and self._thread.is_alive()):
            return
        _in_use.add(self)
        try:
            self._thread = self._threads.serve(self)
        except RuntimeError as error:
            raise StorageError(
                f"The thread that writes to topic {self.topic.name!r} can't be started: {error}. "
                "This record was not taken.",
                "The system has no room for another thread: end some, or raise its limit.",
            ) from None

    def _wait_for_room(self, size: int) -> None:
        if not self._unacknowledged() or self._unacknowledged() + size <= self._buffer_bytes:
            return
        if CALLING.now:
            return  # It would wait for itself.
        logger.debug("Topic %r: the buffer is full, send() waits.", self.topic.name)
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
                f"{self._unacknowledged()} bytes for topic {self.topic.name!r} wait to be "
                f"written for {MAX_BLOCK_SECONDS:.0f} s; this record was not taken.",
                "The filesystem is slower than the sender: send less, or wait.",
            )

    # --- writing them ----------------------------------------------------------------------

    def drive(self, batch: SendBuffer) -> None:
        """Write up to ``batch`` in this thread, unless another one is writing."""
        forks.check(self._made_in)
        self._driven = True
        self._drives += 1
        mark = object()
        try:
            with self.lock:
                if self._writer is None:
                    self._writer = mark
            if self._writer is mark:
                if len(batch.values) < self._crowd and batch.table is None:
                    # The others of the last batch are about to send again: let them join.
                    self._env.sleep(JOIN_SECONDS)
                while not batch.done.is_set and self._write_next():
                    pass
        finally:
            if self._writer is mark:
                self._writer = None
        if self._waiting or not batch.done.is_set:
            with self.lock:
                batch.forced = True
                self._changed.notify_all()

    def hasten(self, batch: SendBuffer) -> None:
        """Let a thread write up to ``batch`` now."""
        forks.check(self._made_in)
        with self.lock:
            batch.forced = True
            self._ensure_thread()
            self._changed.notify_all()

    def flush(self, timeout: float | None) -> None:
        """Return when all that was taken before the call is written, or has failed."""
        forks.check(self._made_in)
        with self.lock:
            pending = [batch for batch in self._pending() if not batch.done.is_set]
        if pending:
            refuse_in_callback(self.topic.name)
        until = float("inf") if timeout is None else self._env.monotonic() + timeout
        for batch in pending:
            if timeout is None:
                self.drive(batch)
            else:
                self.hasten(batch)
        for batch in pending:
            left = None if timeout is None else max(0.0, until - self._env.monotonic())
            if not batch.done.wait(left):
                raise StorageError(
                    f"Records for topic {self.topic.name!r} are still unacknowledged after "
                    f"{timeout} s.",
                    may_have_landed=True,
                )

    def _pending(self) -> list[SendBuffer]:
        """All that is not written yet. Held: the lock."""
        return [*([] if self._current is None else [self._current]), *self._waiting]

    def failure(self, sender: object | None = None) -> OffsetLogError | None:
        """The first failure that was not reported to this producer (or to any): now it is."""
        if not self._failed:
            return None
        with self.lock:
            failed = [(batch, batch.unreported(sender)) for batch in self._failed]
            failed = [(batch, records) for batch, records in failed if records]
            for batch, _ in failed:
                batch.mark_reported(sender)
            self._failed = [batch for batch in self._failed if batch.unreported()]
        return unreported_failure(*failed[0]) if failed else None

    def _keep_failure(self, batch: SendBuffer) -> None:
        with self.lock:
            if len(self._failed) >= FAILURES_KEPT:
                self._failed = [other for other in self._failed if other.unreported()]
            if len(self._failed) < FAILURES_KEPT:
                self._failed.append(batch)
                return
            for sender in batch.senders():
                records = batch.unreported(sender)
                if records and getattr(sender, "failure", batch) is None:
                    sender.failure = unreported_failure(batch, records)  # type: ignore[attr-defined]

    def close(self, until: float = float("inf")) -> None:
        """Write what waits, until a time of the clock; raises the first failure that nobody was
        told."""
        self.topic.writer.until = until
        self.flush(None)
        with self.lock:
            self._closed = True
            self._changed.notify_all()
            left = max(1.0, min(DELIVERY_SECONDS, until - self._env.monotonic()))
            if self._thread is not threading.current_thread():
                self._changed.wait_for(
                    lambda: self._thread is None or not self._thread.is_alive(), left
                )
        self.topic.stored.publish_if_due(every=32)
        failure = self.failure()
        if failure is not None:
            raise failure

    def hurry(self, until: float) -> list[SendBuffer]:
        """The program ends: let the thread write what waits, which is returned."""
        self.topic.writer.until = until
        locked = self.lock.acquire(timeout=LOCK_SECONDS)
        pending = self._pending()
        for batch in pending:
            batch.forced = True
        if locked:
            if pending:
                with suppress(OffsetLogError):
                    self._ensure_thread()
            self._changed.notify_all()
            self.lock.release()
        else:
            self.topic.writer.until = self._env.monotonic()  # Nobody can write any more.
        return pending

    def end(self, pending: list[SendBuffer]) -> OffsetLogError | None:
        """Wait for these until the time of ``hurry``; what was not written, if anything."""
        until = self.topic.writer.until + 1.0
        for batch in pending:
            batch.done.wait(max(0.0, until - self._env.monotonic()))
        failed = [batch for batch in self._failed if batch.unreported()]
        open_ = [batch for batch in pending if not batch.done.is_set]
        records = sum(batch.unreported() for batch in failed) + sum(
            batch.size_now() for batch in open_
        )
        if not records:
            return None
        if failed:
            return unreported_failure(failed[0], records)
        return StorageError(
            f"Not acknowledged for topic {self.topic.name!r}: {in_words(records)}. The program "
            "ended before they were written.",
            "They may have been written; look before you send them again.",
            may_have_landed=True,
        )

    def serve(self) -> None:
        """Write in this thread until nothing waits any more, and for a while after that."""
        idle = drives = 0
        idle_since: float | None = None
        mark = object()
        with self.lock:
            self._thread, self.waits_for_thread = threading.current_thread(), False
        while True:
            with self._changed:
                if self._writer is not None or not self._due():
                    now = self._env.monotonic()
                    idle_since = None if self._waiting or self._driven else idle_since or now
                    is_done = idle_since is not None and now - idle_since >= IDLE_SECONDS
                    if not self._waiting and (self._closed or is_done or self._threads.is_wanted):
                        self._thread = None
                        self._changed.notify_all()
                        return
                    self._changed.wait(self._patience())
                    idle = 0 if self._drives > drives else idle + 1
                    drives = self._drives
                    if idle > IDLE_TICKS:
                        self._driven = False
                due = self._writer is None and self._due()
                if due:
                    self._writer = mark
            if due:
                try:
                    self._write_next()
                finally:
                    self._writer = None
            # Senders that write by themselves leave this to the thread as well.
            self.topic.stored.publish_if_due()
            if self._threads.is_wanted and self._waiting:
                with self.lock:
                    self._thread = None
                    self._threads.take_turns(self)
                    self._changed.notify_all()
                return

    def _due(self) -> bool:
        if not self._waiting:
            return False
        first = self._waiting[0]
        ready = first.forced or first.table is not None or len(self._waiting) > 1 or self._closed
        return ready or first.opened <= self._env.monotonic()

    def _patience(self) -> float:
        if self._driven or (self._writer is not None and self._due()):
            return TICK_SECONDS
        look = CROWDED_SECONDS if self._threads.is_full else LOOK_SECONDS
        if not self._waiting:
            return look
        return max(0.0, min(look, self._waiting[0].opened - self._env.monotonic()))

    def _write_next(self) -> bool:
        """Write the oldest batch. Only ``_writer`` does."""
        batch: SendBuffer | None = None
        try:
            with self.lock:
                if not self._waiting:
                    return False
                batch = self._current = self._waiting[0]
                if batch is self.open:
                    self.open = None
                self._waiting.popleft()
                if batch.done.is_set:
                    return True  # It failed, and the thread that removed it was interrupted.
                self._in_flight = batch.size
                self._crowd = len(batch.values) if self._driven else 0
            self._write(batch)
        except OffsetLogError as error:
            assert batch is not None
            self._fail(batch, error)
            if error.may_have_landed:
                self._fail_rest(error)
        except Exception as error:  # noqa: BLE001 - a future that is never done would hang its user
            assert batch is not None
            failure = StorageError(f"Writing to {self.topic.name!r} failed: {error!r}.")
            failure.__cause__ = error
            self._fail(batch, failure)
        except BaseException:
            # Ctrl-C is this thread's alone, and the batch everybody's.
            if batch is not None:
                self._put_back(batch)
            raise
        finally:
            with self.lock:
                self._in_flight = 0
                self._current = None
                if self._blocked:
                    self._changed.notify_all()
        return True

    def _fail_rest(self, error: OffsetLogError) -> None:
        """The time of a batch was up: what waited behind it is not tried for as long again."""
        with self.lock:
            rest, self.open = list(self._waiting), None
        for batch in rest:
            failure = StorageError(
                f"Not tried, since what was sent before it got no answer. {error.message}",
                "Send it again when the storage answers.",
                may_have_landed=batch.attempt is not None,
            )
            self._fail(batch, failure)
            with self.lock, suppress(ValueError):
                self._waiting.remove(batch)

    def _fail(self, batch: SendBuffer, error: OffsetLogError) -> None:
        # Its text alone: a handler that keeps records would keep all that the error's frames hold.
        count, text = batch.size_now(), str(error)
        logger.info("%d records for topic %r failed: %s", count, batch.topic, text)
        batch.note_failure(error)
        self._keep_failure(batch)
        batch.fail(error)

    def _put_back(self, batch: SendBuffer) -> None:
        """Its writer was interrupted: the next one goes on with the same number and rows."""
        again = False
        with self.lock:
            if batch.done.is_set:
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
                f"The write of records to topic {self.topic.name!r} was interrupted.",
                "They may have been written; look before you send them again.",
                may_have_landed=True,
            )
            self._fail(batch, failure)

    def _write(self, batch: SendBuffer) -> None:
        chain = self.topic.chain
        if batch.attempt is None:
            state = chain.state
            if not state.alive or state.topic != self.topic.name:
                state = self.topic.state_to_write()
            if state.head != self._settings_of:
                self._take_settings(state)
            columns = columns_of(batch)
            if settings_of(state.config).log_append_time:
                columns = columns.with_time(self._env.now_ms())
            self._spread += 1
            name, count = self.topic.name, state.partitions
            partition_of = assign_partitions(columns, count, self._spread, name)
            prepared = prepare(columns.table, partition_of, columns.times, columns.ts_type)
            self._seq += 1
            batch.attempt = prepared, Sender(self._app, self._seq, True), state
        prepared, sender, state = batch.attempt
        try:
            receipt = self.topic.writer.deliver(
                prepared, sender, state.partitions, state.created_at_entry
            )
        except UnknownTopicError as error:
            if error.may_have_landed or not self.topic.was_made_again(state):
                raise
            batch.attempt = None  # Nothing of it counted: it goes to the topic of that name.
            try:
                self._write(batch)
            except InvalidRequestError as refusal:  # It names a partition that is not there.
                raise UnknownTopicError(refusal.message, refusal.hint) from error
            return
        batch.succeed(receipt.placed, prepared.order, prepared.times)
        if chain.state.head != self._settings_of:
            self._take_settings(chain.state)


@atexit.register
def _write_at_exit() -> None:
    """A script that ends without closing its log meant to send what it sent. Its threads write,
    and this one waits until one deadline for all: an interrupt that left something locked, or a
    storage that does not answer, must not keep the program from ending."""
    ending: list[tuple[GroupCommit, list[SendBuffer]]] = []
    for commit in list(_in_use):
        if not forks.is_foreign(commit._made_in):  # What a child holds is its parent's to write.
            until = commit._env.monotonic() + DELIVERY_SECONDS
            ending.append((commit, commit.hurry(until)))
    for commit, pending in ending:
        failure = commit.end(pending)
        if failure is not None:
            logger.error("%s", failure)
