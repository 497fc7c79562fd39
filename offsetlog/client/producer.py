"""The producer: what a program sends records with.

Invariants:

1. What is wrong with a record is said by ``send`` itself, before anything is written.
2. A record is acknowledged when it is durable and its offset can never change.
3. With ``app_id`` and ``sequence`` all that is sent to a topic is one batch under that number,
   which the first ``flush`` or ``result`` closes: sending it again, from any process, never
   writes it twice. Only these, and the end of the producer's own block, write it: nothing else
   knows that it is whole. One that nobody finished is named when the log is closed.
4. ``flush``, ``close`` and the end of a ``with`` block raise the first failure of this producer
   that nobody asked a future for.
"""

from __future__ import annotations

import atexit
import logging
import operator
import os
import threading
import warnings
import weakref
from collections.abc import Mapping, Sequence
from contextlib import suppress
from types import TracebackType
from typing import Any, Protocol

import pyarrow as pa
import pyarrow.compute as pc

from offsetlog.core.topic.entry import Part
from offsetlog.core.topic.state import TopicState
from offsetlog.engine.append.group_commit import (
    RECORD_OVERHEAD,
    GroupCommit,
    assign_partitions,
    check_named_partition,
    columns_of,
    stamped,
)
from offsetlog.engine.append.record_batch import (
    MAX_MS,
    RecordBatch,
    SegmentFiles,
    bad_timestamp,
    check_headers,
    check_times,
    prepare,
    row_bytes,
    too_large,
)
from offsetlog.engine.append.send_buffer import (
    ArrowFuture,
    SendBuffer,
    SendFuture,
    SentColumns,
    in_words,
)
from offsetlog.engine.append.writer import Sender
from offsetlog.engine.env import Env
from offsetlog.engine.topic.open_topic import OpenTopic
from offsetlog.errors import InvalidRequestError, OffsetLogError, OffsetLogWarning, StorageError
from offsetlog.format import record_schema as rows
from offsetlog.storage import forks

Headers = Sequence[tuple[str, bytes | None]]
KEYED_BYTES = 256 * 1024 * 1024
"""The most that gathers under one sequence."""
DROPPED_NAMED = 100
_new_future = tuple.__new__
_log = logging.getLogger("offsetlog")
_producers: weakref.WeakSet[Producer] = weakref.WeakSet()


class ProducerHost(Protocol):
    """What a producer needs of the ``Log`` that made it."""

    env: Env

    def topic_handle(self, name: str) -> OpenTopic: ...
    def appender(self, name: str) -> GroupCommit: ...


class Producer:
    """Sends records. Threads may share it."""

    def __init__(
        self,
        host: ProducerHost,
        *,
        linger_ms: float = 0,
        batch_bytes: int = 8 * 1024 * 1024,
        app_id: str | None = None,
        sequence: int | None = None,
    ) -> None:
        if (app_id is None) != (sequence is None):
            raise InvalidRequestError("app_id and sequence belong together.", "Give both.")
        self._host = host
        self._linger = _number("linger_ms", linger_ms, 0, 3_600_000) / 1000
        self._limit = whole_number("batch_bytes", batch_bytes, 1024, 1024**3)
        self._topics: dict[str, SendTarget] = {}
        self.failure: OffsetLogError | None = None
        """The first one of many, kept here when a lane has no room for more."""
        self._sender = None
        if app_id is not None:
            self._sender = (_app_id(app_id), whole_number("sequence", sequence, 0, 2**62))
        self._stamp = host.env.stamp()
        self._closed = False
        self._made_in = forks.process()
        _producers.add(self)

    def send(
        self,
        topic: str,
        value: bytes | None = None,
        key: bytes | None = None,
        headers: Headers | None = None,
        partition: int | None = None,
        timestamp: int | None = None,
    ) -> SendFuture:
        """Send one record; the future tells its offset. ``timestamp`` is in milliseconds."""
        lane = self._topics.get(topic)
        if lane is None:
            lane = self._lane(topic)
        size = RECORD_OVERHEAD
        if value is not None:
            if type(value) is not bytes:
                value = _bytes("value", value)
            size += len(value)
        if key is not None:
            if type(key) is not bytes:
                key = _bytes("key", key)
            size += len(key)
        stored = None
        if headers:
            stored, weight = _headers(headers)
            size += weight
        if size > lane.most:
            raise too_large(topic, size - RECORD_OVERHEAD, lane.most - RECORD_OVERHEAD)
        if timestamp is None or lane.append_time:
            stamp = self._stamp()
        elif type(timestamp) is int and -MAX_MS < timestamp < MAX_MS:
            stamp = timestamp * 1_000_000
        else:
            raise bad_timestamp(timestamp)
        if partition is not None:
            lane.check_partition(partition)
        # From here on every name and call is paid a million times a second.
        with lane.lock:
            batch = lane.open
            if batch is None or batch.size >= self._limit:
                batch = lane.room_for(size, self._linger)
            if batch.sender is not self:
                batch.taken_by(self)
            values = batch.values
            values.append(value)
            batch.keys.append(key)
            batch.times.append(stamp)
            batch.size += size
            index = len(values) - 1
            if stored is not None:
                batch.headers[index] = stored
            if partition is not None:
                batch.named[index] = partition
        return _new_future(SendFuture, (batch, index))

    def send_arrow(self, topic: str, table: pa.Table | pa.RecordBatch) -> ArrowFuture:
        """Send a whole table as one atomic batch. Columns: ``value``, and if wanted ``key``,
        ``headers``, ``timestamp`` and ``partition``."""
        lane = self._topics.get(topic) or self._lane(topic)
        rows_ = _as_rows(table, lane, self._host.env.now_ms())
        return ArrowFuture(lane.add_table(rows_, self))

    def flush(self, timeout: float | None = None) -> None:
        """Return once all that was sent before is acknowledged. Raises the first failure since
        the last flush that nobody asked a future for; the others were tried all the same."""
        forks.check(self._made_in)
        self._flush(self._topics, timeout)

    def _flush(self, lanes: Mapping[str, SendTarget], timeout: float | None) -> None:
        first: OffsetLogError | None = None
        for lane in list(lanes.values()):
            try:
                lane.flush(timeout)
            except OffsetLogError as error:
                first = first or error
            failure = lane.failure(self)
            first = first or failure
        kept, self.failure = self.failure, None
        first = first or kept
        if first is not None:
            raise first

    def close(self) -> None:
        """Flush, and take nothing more."""
        if self._closed:
            return
        self._closed = True
        # A send that comes from here on asks for its lane, and is refused.
        lanes, self._topics = self._topics, {}
        if forks.is_foreign(self._made_in):
            return
        for lane in lanes.values():
            if isinstance(lane, SequenceTarget):
                lane.refuse_more()
        self._flush(lanes, None)

    def __enter__(self) -> Producer:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if kind is not None and self._sender is not None:
            # A batch that its caller did not finish must not be written under its number.
            self._closed = True
            lanes, self._topics = self._topics, {}
            for lane in lanes.values():
                if isinstance(lane, SequenceTarget):
                    lane.abandon("The producer was left by an exception")
            return
        try:
            self.close()
        except OffsetLogError as failure:
            if error is None:
                raise
            error.add_note(str(failure))  # What ended the block comes first.

    def _lane(self, topic: str) -> SendTarget:
        forks.check(self._made_in)
        if self._closed:
            raise InvalidRequestError("The producer is closed.", "Make a new one.")
        handle = self._host.topic_handle(topic)
        handle.state(fresh=False)
        lane: SendTarget
        if self._sender is None:
            lane = self._host.appender(topic)
        else:
            lane = SequenceTarget(handle, *self._sender)
        self._topics[topic] = lane
        return lane


class SendTarget(Protocol):
    """Where the records for one topic go: a shared appender, or a caller's own batch."""

    most: int
    append_time: bool
    lock: threading.Lock
    open: SendBuffer | None
    """The batch that takes records, if there is one. Held: the lock."""

    def room_for(self, size: int, linger: float) -> SendBuffer:
        """A batch that takes a record of ``size``. Held: the lock."""

    def add_table(self, table: pa.Table, sender: object) -> SendBuffer: ...
    def check_partition(self, partition: int) -> None: ...
    def flush(self, timeout: float | None) -> None: ...

    def failure(self, sender: object | None = None) -> OffsetLogError | None:
        """The first failure that this producer was not told by a future or a flush."""


class Gathered:
    """The rows of one sequence. Where they go follows from them, the sequence and the partition
    count alone, so what an entry of an earlier run holds can be compared with them."""

    def __init__(self, columns: SentColumns, partitions: int, sequence: int, topic: str) -> None:
        self._columns = columns
        self._sequence = sequence
        self._topic = topic
        self._partitions = partitions
        self.prepared = self.placed(partitions)

    def placed(self, partitions: int) -> RecordBatch:
        """As they go to so many partitions."""
        if partitions == self._partitions and hasattr(self, "prepared"):
            return self.prepared
        by = assign_partitions(self._columns, partitions, self._sequence, self._topic)
        return prepare(self._columns.table, by)

    @property
    def digest(self) -> str:
        return self.prepared.digest

    def digest_under(self, partitions: int) -> str:
        try:
            return self.placed(partitions).digest
        except InvalidRequestError:
            return ""  # A partition is named that was not there: other rows.

    def parts(self, files: SegmentFiles, state: TopicState) -> tuple[Part, ...]:
        return self.prepared.parts(files, state)

    def inline(self) -> pa.Table:
        return self.prepared.inline()


class SequenceTarget:
    """Gathers the records of one topic under a caller's key: one batch, which the first flush
    closes and writes as one entry."""

    open: SendBuffer | None = None
    """Never: each record is looked at by ``room_for``."""

    def __init__(self, handle: OpenTopic, app_id: str, sequence: int) -> None:
        self._handle = handle
        self._app = app_id
        self._sequence = sequence
        self._batch: SendBuffer | None = None
        """What is not decided yet."""
        self._closed = ""
        """Why nothing more is taken."""
        self._gathered: tuple[Gathered, TopicState] | None = None
        """Of a flush whose fate is open: its next try must send the very same rows."""
        self.lock = threading.Lock()
        self.most = handle.config.max_message_bytes + RECORD_OVERHEAD
        self.append_time = handle.config.log_append_time

    def room_for(self, size: int, linger: float) -> SendBuffer:
        batch = self._gathering(size)
        if batch.table is not None:
            raise _mixed(self._app)
        return batch

    def add_table(self, table: pa.Table, sender: object) -> SendBuffer:
        with self.lock:
            batch = self._gathering(table.nbytes)
            if batch.values or batch.table is not None:
                raise _mixed(self._app)
            batch.table = table
            batch.size = table.nbytes
            return batch

    def _gathering(self, size: int) -> SendBuffer:
        if self._closed:
            raise self._refusal()
        if self._batch is None:
            self._batch = SendBuffer(self._handle.name, self, 0.0)
            self._handle.gathering.add(self)
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

    def check_partition(self, partition: int) -> None:
        check_named_partition(self._handle, partition)

    def drive(self, batch: SendBuffer) -> None:
        """Called by a future that is waited for: its batch is flushed."""
        self._handle.check_process()
        with suppress(OffsetLogError):
            self.flush(None)  # Its failure is the batch's, and so the future's.

    def refuse_more(self) -> None:
        with self.lock:
            self._closed = self._closed or "the producer was closed"

    def abandon(self, why: str) -> OffsetLogError | None:
        """Nothing more will be tried; what became of the batch, if nobody was told yet."""
        with self.lock:
            batch, self._batch = self._batch, None
            tried, self._gathered = self._gathered is not None, None
            self._closed = self._closed or "the producer was left"
        if batch is None:
            return None
        self._handle.gathering.discard(self)
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
        if batch.done.is_set():
            return None  # The flush that left its fate open has said so.
        batch.fail(error)
        return error

    def flush(self, timeout: float | None) -> None:
        self._handle.check_process()
        with self.lock:
            batch = self._batch
            if batch is None:
                return
            self._closed = "its batch was written by the first flush() or result()"
            try:
                self._write(batch)
            except OffsetLogError as error:
                batch.fail(error)
                if not error.may_have_landed:
                    self._closed = "its batch failed, and nothing of it was written"
                    self._decided()
                raise
            except Exception as error:  # noqa: BLE001 - a future that is never done would hang
                failure = StorageError(
                    f"Writing {self} failed: {error!r}.",
                    "Call flush() again.",
                    may_have_landed=True,
                )
                batch.fail(failure)
                raise failure from error
            self._decided()

    def _decided(self) -> None:
        self._batch = self._gathered = None
        self._handle.gathering.discard(self)

    def failure(self, sender: object | None = None) -> OffsetLogError | None:
        return None  # ``flush`` itself has raised it.

    def _write(self, batch: SendBuffer) -> None:
        if self._gathered is None:
            state = self._handle.state(fresh=False)
            columns = stamped(columns_of(batch), state, self._handle.chain.env.now_ms)
            gathered = Gathered(columns, state.partitions, self._sequence, self._handle.name)
            self._gathered = gathered, state
        gathered, state = self._gathered
        sender = Sender(self._app, self._sequence, False)
        receipt = self._handle.writer.append(gathered, sender, state.partitions, state.life)
        # An earlier run may have written them when the topic had fewer partitions.
        there = gathered.placed(receipt.hashed_with)
        batch.succeed(receipt.placed, there.order, there.times)

    def __str__(self) -> str:
        return f"sequence {self._sequence} of app_id {self._app!r} for topic {self._handle.name!r}"

    def __del__(self) -> None:
        # Dropped with records that were never flushed: said at once, and when the log is closed.
        batch = getattr(self, "_batch", None)
        if batch is not None and not batch.done.is_set():
            text = f"{self} was dropped before flush() ({_records(batch)}): nothing was written"
            if len(self._handle.dropped) < DROPPED_NAMED:
                self._handle.dropped.append(text)
            warnings.warn(f"{text}.", OffsetLogWarning, stacklevel=2)


def _records(batch: SendBuffer) -> str:
    return in_words(len(batch.values) if batch.table is None else batch.table.num_rows)


def _mixed(app: str) -> InvalidRequestError:
    return InvalidRequestError(
        f"One sequence of app_id {app!r} takes records or one table, not both.",
        "Send all of it in one table, or give the table a producer with a sequence of its own.",
    )


# --- the end of the program, and forks -----------------------------------------------------


@atexit.register
def _tell_at_exit() -> None:
    """A sequence that was never flushed is not written by the end of a script, but named."""
    for producer in list(_producers):
        if forks.is_foreign(producer._made_in):
            continue
        for lane in producer._topics.values():
            if isinstance(lane, SequenceTarget):
                error = lane.abandon("The program ended")
                if error is not None:
                    _log.error("%s", error)


def _refuse_in_child() -> None:
    """The next send in the child asks for its lane, and hears that a fork lies in between: the
    lanes' own locks may be held by threads that the child does not have."""
    for producer in list(_producers):
        producer._topics = {}


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_refuse_in_child)


# --- what is taken -------------------------------------------------------------------------


def _as_rows(given: pa.Table | pa.RecordBatch, lane: SendTarget, now_ms: int) -> pa.Table:
    """A user's table with the columns of ``ROWS``, and ``partition`` if it was named."""
    if not isinstance(given, pa.Table | pa.RecordBatch):
        raise InvalidRequestError(f"send_arrow takes an Arrow table, not {type(given).__name__}.")
    table = pa.table(given) if isinstance(given, pa.RecordBatch) else given
    known = [*rows.ROWS.names, "partition"]
    unknown = [name for name in table.schema.names if name not in known]
    if unknown or len(set(table.schema.names)) < table.num_columns:
        raise InvalidRequestError(
            f"send_arrow cannot use the columns {table.schema.names}.",
            f"Allowed, once each: {', '.join(known)}.",
        )
    if "value" not in table.schema.names:
        raise InvalidRequestError("The table has no column 'value'.", "Records need one.")
    if not table.num_rows:
        raise InvalidRequestError("The table is empty.", "Send at least one record.")
    columns = {name: table.column(name) for name in table.schema.names}
    if lane.append_time or "timestamp" not in columns:
        columns["timestamp"] = pa.repeat(pa.scalar(now_ms, pa.int64()), table.num_rows)
    out = pa.table(
        {
            field.name: _cast(columns[field.name], field)
            if field.name in columns
            else pa.nulls(table.num_rows, field.type)
            for field in rows.ROWS
        },
        schema=rows.ROWS,
    )
    if out.column("timestamp").null_count:
        raise InvalidRequestError("Column 'timestamp' has nulls.", "Leave it out, or fill it.")
    check_times(rows.milliseconds(out.column("timestamp")))
    check_headers(out.column("headers"))
    heaviest = int(row_bytes(out).max())
    if heaviest + RECORD_OVERHEAD > lane.most:
        raise too_large("of this table", heaviest, lane.most - RECORD_OVERHEAD)
    if "partition" in columns:
        named = _cast(columns["partition"], rows.PARTITION)
        low = pc.min(named).as_py()
        if low is not None:
            lane.check_partition(low)
            lane.check_partition(pc.max(named).as_py())
        out = out.append_column(rows.PARTITION, named)
    return out


def _cast(column: Any, field: pa.Field) -> Any:
    if column.type == field.type:
        return column
    plain = column.cast(pa.timestamp("ms")) if pa.types.is_timestamp(column.type) else column
    try:
        return plain.cast(field.type)
    except pa.ArrowException:
        raise InvalidRequestError(
            f"Column {field.name!r} is {column.type}; it must be {field.type}."
        ) from None


def _bytes(what: str, given: object) -> bytes:
    if isinstance(given, bytes | bytearray | memoryview):
        return bytes(given)
    if isinstance(given, str):
        raise InvalidRequestError(f"The {what} is a str.", f"Encode it: {what}.encode().")
    raise InvalidRequestError(f"The {what} is a {type(given).__name__}.", "It must be bytes.")


def _headers(given: object) -> tuple[list[tuple[str, bytes | None]], int]:
    """Headers as they are stored, and their weight."""
    out: list[tuple[str, bytes | None]] = []
    weight = 0
    try:
        pairs = [(name, value) for name, value in given]  # type: ignore[attr-defined]
    except (TypeError, ValueError):
        raise InvalidRequestError("Headers are a list of (name, bytes) pairs.") from None
    for name, value in pairs:
        if not isinstance(name, str):
            raise InvalidRequestError(f"A header's name is {name!r}.", "It must be a str.")
        clean = None if value is None else _bytes(f"header {name!r}", value)
        out.append((name, clean))
        weight += len(name.encode()) + (0 if clean is None else len(clean))
    return out, weight


def _app_id(given: object) -> str:
    if not isinstance(given, str) or not 1 <= len(given) <= 1024:
        raise InvalidRequestError(f"app_id is {given!r}.", "It is a short string.")
    try:
        given.encode()
    except UnicodeEncodeError:
        raise InvalidRequestError(
            f"app_id is {given!r}, which is no text: it can't be written as UTF-8.",
            "Leave out what stands for bytes that could not be decoded.",
        ) from None
    return given


def whole_number(what: str, given: object, low: int, high: int) -> int:
    """A whole number, numpy's too; 17.9 is none, and neither are 17.0 and True."""
    number = None
    if not isinstance(given, bool):
        with suppress(TypeError):
            number = operator.index(given)  # type: ignore[arg-type]
    if number is None or not low <= number <= high:
        raise InvalidRequestError(
            f"{what} is {given!r}.", f"Allowed: whole numbers from {low} to {high}."
        )
    return number


def _number(what: str, given: object, low: float, high: float) -> float:
    if isinstance(given, bool) or not isinstance(given, int | float) or not low <= given <= high:
        raise InvalidRequestError(f"{what} is {given!r}.", f"Allowed: {low} to {high}.")
    return given
