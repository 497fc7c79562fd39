"""What a producer with ``app_id`` and ``sequence`` sends to one topic: one batch under that number.

Invariants:

1. The first flush closes the batch. Nothing else writes it: nothing else knows that it is whole.
2. A flush whose fate is open sends the very same rows when it is called again.
3. An unfinished batch is reported when it is dropped and when the log is closed.
"""

from __future__ import annotations

import threading
import warnings
from collections.abc import Callable
from contextlib import suppress

import pyarrow as pa

from offsetlog.core.topic.entry import Part
from offsetlog.core.topic.state import TopicState
from offsetlog.engine.append.group_commit import RECORD_OVERHEAD
from offsetlog.engine.append.record_batch import (
    RecordBatch,
    SentColumns,
    assign_partitions,
    columns_of,
    prepare,
)
from offsetlog.engine.append.segment_writer import SegmentWriter
from offsetlog.engine.append.send_buffer import (
    Done,
    SendBuffer,
    in_words,
    refuse_in_callback,
)
from offsetlog.engine.append.writer import KEYS_REMEMBERED, Sender
from offsetlog.engine.topic.open_topic import OpenTopic
from offsetlog.errors import (
    InvalidRequestError,
    OffsetLogError,
    OffsetLogWarning,
    StorageError,
    UnknownTopicError,
)
from offsetlog.storage import forks
from offsetlog.values import settings_of

KEYED_BYTES = 256 * 1024 * 1024
"""The most that gathers under one sequence."""
DROPPED_NAMED = 100


class SequenceRows:
    """The rows of one sequence. Where they go follows from them, the sequence and the partition
    count alone, so what an entry of an earlier run holds can be compared with them."""

    def __init__(self, columns: SentColumns, partitions: int, sequence: int, topic: str) -> None:
        self._columns = columns
        self._sequence = sequence
        self._topic = topic
        self._partitions = partitions
        self.prepared = self._place(partitions)

    def _place(self, partitions: int) -> RecordBatch:
        by = assign_partitions(self._columns, partitions, self._sequence, self._topic)
        return prepare(self._columns.table, by, self._columns.times, self._columns.ts_type)

    def placed_anew(self, partitions: int) -> SequenceRows:
        """The same rows for a topic with so many partitions."""
        return SequenceRows(self._columns, partitions, self._sequence, self._topic)

    def placed(self, partitions: int) -> RecordBatch:
        """As they go to so many partitions."""
        return self.prepared if partitions == self._partitions else self._place(partitions)

    @property
    def digest(self) -> str:
        return self.prepared.digest

    @property
    def ts_type(self) -> int:
        return self.prepared.ts_type

    def digest_under(self, partitions: int) -> str:
        try:
            return self.placed(partitions).digest
        except InvalidRequestError:
            return ""  # A partition is named that was not there: other rows.

    def parts(self, segment_writer: SegmentWriter, state: TopicState) -> tuple[Part, ...]:
        return self.prepared.parts(segment_writer, state)

    def inline(self) -> pa.Table:
        return self.prepared.inline()


class SequenceTarget:
    """Gathers the records of one topic under a caller's key: one batch, which the first flush
    closes and writes as one entry."""

    open: SendBuffer | None = None
    """Never: each record is looked at by ``room_for``."""

    def __init__(self, topic: OpenTopic, app_id: str, sequence: int) -> None:
        self.topic = topic
        self._app = app_id
        self._sequence = sequence
        self._batch: SendBuffer | None = None
        """What is not decided yet."""
        self._closed = ""
        """Why nothing more is taken."""
        self._attempt: tuple[SequenceRows, TopicState] | None = None
        """Of a flush whose fate is open: its next try must send the very same rows."""
        self.lock = threading.Lock()
        self._made_in = forks.process()
        self._take_settings()

    def _take_settings(self) -> None:
        config = self.topic.config
        self.max_bytes = config.max_message_bytes + RECORD_OVERHEAD
        self.needs_key = config.compacts

    def look_again(self) -> None:
        """Judge records by the config as it is now."""
        self.topic.refresh()
        self._take_settings()

    def room_for(self, size: int, linger: float, sender: object) -> SendBuffer:
        batch = self._gathering(size, sender)
        if batch.table is not None:
            raise _mixed(self._app)
        return batch

    def add_table(self, table: pa.Table, sender: object) -> SendBuffer:
        with self.lock:
            batch = self._gathering(table.nbytes, sender)
            if batch.values or batch.table is not None:
                raise _mixed(self._app)
            batch.table = table
            batch.size = table.nbytes
            return batch

    def _gathering(self, size: int, sender: object) -> SendBuffer:
        if self._closed:
            raise self._refusal()
        if self._batch is None:
            self._batch = SendBuffer(self.topic.name, self, 0.0, sender)
            self.topic.gathering.add(self)
        if self._batch.size + size > KEYED_BYTES and self._batch.size:
            raise InvalidRequestError(
                f"More than {KEYED_BYTES} bytes wait under one sequence of app_id {self._app!r}.",
                "Share them out over several sequences, each with a producer of its own, or use "
                "send_arrow() for one large batch.",
            )
        return self._batch

    def _refusal(self) -> InvalidRequestError:
        if self._batch is not None:
            return InvalidRequestError(
                f"The fate of {self} is open: no more records are taken.",
                "Call flush() again, and send what follows under the next sequence.",
            )
        return InvalidRequestError(
            f"No more records are taken for {self}: {self._closed}.",
            "A sequence is one batch: send all of it before the first flush() or result(), and "
            "what follows by a producer with another sequence.",
        )

    def drive(self, batch: SendBuffer) -> None:
        """Called by a future that is waited for: its batch is flushed."""
        self.topic.check_process()
        with suppress(OffsetLogError):
            self.flush(None)  # Its failure is the batch's, and so the future's.

    def hasten(self, batch: SendBuffer) -> None:
        """Called by a future that is waited for only so long: another thread flushes its batch."""
        self.topic.check_process()
        self._start(lambda: self.drive(batch))

    def _start(self, work: Callable[[], None]) -> None:
        try:
            threading.Thread(target=work, name=f"offsetlog-{self._app}", daemon=True).start()
        except RuntimeError:
            work()  # The system has no room for another thread.

    def refuse_more(self) -> None:
        with self.lock:
            self._closed = self._closed or "the producer was closed"

    def abandon(self, why: str) -> OffsetLogError | None:
        """Give up; the outcome of the batch, if it was not reported yet."""
        with self.lock:
            batch, self._batch = self._batch, None
            tried, self._attempt = self._attempt is not None, None
            self._closed = self._closed or "the producer was left"
        if batch is None:
            return None
        self.topic.gathering.discard(self)
        error: OffsetLogError
        if tried:
            error = StorageError(
                f"{why} while the fate of {self} was open: it may have been written.",
                "Send the same records again under the same sequence: they are never there twice.",
                may_have_landed=True,
            )
        else:
            error = InvalidRequestError(
                f"{why} before flush(): nothing of {self} was written ({_records(batch)}).",
                "Call flush(), or use the producer in a with block; send it again under the same "
                "sequence.",
            )
        if batch.done.is_set:
            return None  # The flush that left its fate open has said so.
        known = _is_empty(batch) or self._is_acknowledged()
        batch.fail(error)
        return None if known else error

    def _is_acknowledged(self) -> bool:
        """Whether this sequence, or a higher one, was acknowledged to another producer."""
        return self.topic.acknowledged.get(self._app, -1) >= self._sequence

    def flush(self, timeout: float | None) -> None:
        self.topic.check_process()
        if self._batch is None:
            return
        refuse_in_callback(self.topic.name)
        if timeout is None:
            self._flush()
            return
        failures: list[OffsetLogError] = []
        ended = Done()

        def flush() -> None:
            try:
                self._flush()
            except OffsetLogError as error:
                failures.append(error)
            finally:
                ended.set()

        self._start(flush)
        if not ended.wait(timeout):
            raise StorageError(
                f"{self} is still unacknowledged after {timeout} s.",
                "It may still be; call flush() again.",
                may_have_landed=True,
            )
        if failures:
            raise failures[0]

    def _flush(self) -> None:
        with self.lock:
            batch = self._batch
            if batch is None:
                return
            if self._attempt is None and _is_empty(batch):
                self._decided()  # Its first send was interrupted before it added the record.
                return
            self._closed = "its batch was written by the first flush() or result()"
            try:
                self._write(batch)
            except Exception as error:  # noqa: BLE001 - a future that is never done would hang
                failure = error if isinstance(error, OffsetLogError) else self._failure(error)
                batch.fail(failure)
                if not failure.may_have_landed:
                    self._closed = "its batch failed, and nothing of it was written"
                    self._decided()
                if failure is error:
                    raise
                raise failure from error
            known = self.topic.acknowledged
            known[self._app] = max(self._sequence, known.pop(self._app, -1))
            if len(known) > KEYS_REMEMBERED:
                del known[next(iter(known))]
            self._decided()

    def _failure(self, error: Exception) -> StorageError:
        """That something else than the storage went wrong."""
        tried = self._attempt is not None
        hint = "Send all of it again by a new producer with the same sequence."
        return StorageError(
            f"Writing {self} failed: {error!r}.{'' if tried else ' Nothing was written.'}",
            "Call flush() again." if tried else hint,
            may_have_landed=tried,
        )

    def _decided(self) -> None:
        self._batch = self._attempt = None
        self.topic.gathering.discard(self)

    def failure(self, sender: object | None = None) -> OffsetLogError | None:
        return None  # ``flush`` itself has raised it.

    def _write(self, batch: SendBuffer) -> None:
        if self._attempt is None:
            state = self.topic.state_to_write()
            columns = columns_of(batch)
            if settings_of(state.config).log_append_time:
                columns = columns.with_time(self.topic.chain.env.now_ms())
            load = SequenceRows(columns, state.partitions, self._sequence, self.topic.name)
            self._attempt = load, state
        load, state = self._attempt
        sender = Sender(self._app, self._sequence, False)
        try:
            receipt = self.topic.writer.append(
                load, sender, state.partitions, state.created_at_entry
            )
        except UnknownTopicError as error:
            if error.may_have_landed or not self.topic.was_made_again(state):
                raise
            # Nothing of it counted: it goes to the topic that has the name now. An earlier flush
            # may have emptied the batch, so these rows are taken.
            state = self.topic.state_to_write()
            try:
                self._attempt = load.placed_anew(state.partitions), state
            except InvalidRequestError as refusal:  # It names a partition that is not there.
                raise UnknownTopicError(refusal.message, refusal.hint) from error
            self._write(batch)
            return
        # An earlier run may have written them when the topic had fewer partitions.
        prepared = load.placed(receipt.hashed_with)
        times = prepared.times
        if receipt.duplicate:
            # What was written then has the times of then.
            times = self.topic.writer.stored_times(receipt)
        batch.succeed(receipt.placed, prepared.order, times)

    def __str__(self) -> str:
        return f"sequence {self._sequence} of app_id {self._app!r} for topic {self.topic.name!r}"

    def __del__(self) -> None:
        # Dropped with records that were never flushed: said at once, and when the log is closed.
        batch = getattr(self, "_batch", None)
        if batch is None or batch.done.is_set or _is_empty(batch):
            return
        if not forks.is_foreign(self._made_in) and not self._is_acknowledged():
            text = f"{self} was dropped before flush() ({_records(batch)}): nothing was written"
            if len(self.topic.dropped) < DROPPED_NAMED:
                self.topic.dropped[self._app, self._sequence] = text
            warnings.warn(f"{text}.", OffsetLogWarning, stacklevel=2)


def _is_empty(batch: SendBuffer) -> bool:
    return batch.table is None and not batch.values


def _records(batch: SendBuffer) -> str:
    return in_words(len(batch.values) if batch.table is None else batch.table.num_rows)


def _mixed(app: str) -> InvalidRequestError:
    return InvalidRequestError(
        f"One sequence of app_id {app!r} takes records or one table, not both.",
        "Send all of it in one table, or give the table a producer with a sequence of its own.",
    )
