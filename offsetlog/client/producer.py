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
import weakref
from collections.abc import Mapping, Sequence
from contextlib import suppress
from types import TracebackType
from typing import Any, Protocol

import pyarrow as pa
import pyarrow.compute as pc

from offsetlog.engine.append.futures import ArrowFuture, SendFuture
from offsetlog.engine.append.group_commit import RECORD_OVERHEAD, GroupCommit
from offsetlog.engine.append.record_batch import row_bytes
from offsetlog.engine.append.record_checks import (
    MAX_MS,
    bad_timestamp,
    check_headers,
    check_times,
    too_large,
)
from offsetlog.engine.append.send_buffer import SendBuffer
from offsetlog.engine.append.sequence_target import SequenceTarget
from offsetlog.engine.env import Env
from offsetlog.engine.topic.open_topic import OpenTopic
from offsetlog.errors import InvalidRequestError, OffsetLogError
from offsetlog.format import record_schema as rows
from offsetlog.storage import forks

Headers = Sequence[tuple[str, bytes | None]]
_new_future = tuple.__new__
logger = logging.getLogger(__name__)
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
        """The first one of many, kept here when a target has no room for more."""
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
        target = self._topics.get(topic)
        if target is None:
            target = self._target(topic)
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
        if size > target.max_bytes:
            raise too_large(topic, size - RECORD_OVERHEAD, target.max_bytes - RECORD_OVERHEAD)
        if timestamp is None or target.append_time:
            stamp = self._stamp()
        elif type(timestamp) is int and -MAX_MS < timestamp < MAX_MS:
            stamp = timestamp * 1_000_000
        else:
            raise bad_timestamp(timestamp)
        if partition is not None:
            target.check_partition(partition)
        # From here on every name and call is paid a million times a second.
        with target.lock:
            batch = target.open
            if batch is None or batch.size >= self._limit:
                batch = target.room_for(size, self._linger, self)
            if batch.sender is not self:
                batch.add_sender(self)
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
        target = self._topics.get(topic) or self._target(topic)
        rows_ = _as_rows(table, target, self._host.env.now_ms())
        return ArrowFuture(target.add_table(rows_, self))

    def flush(self, timeout: float | None = None) -> None:
        """Return once all that was sent before is acknowledged. Raises the first failure since
        the last flush that nobody asked a future for; the others were tried all the same."""
        forks.check(self._made_in)
        self._flush(self._topics, timeout)

    def _flush(self, targets: Mapping[str, SendTarget], timeout: float | None) -> None:
        first: OffsetLogError | None = None
        for target in list(targets.values()):
            try:
                target.flush(timeout)
            except OffsetLogError as error:
                first = first or error
            failure = target.failure(self)
            first = first or failure
        overflow, self.failure = self.failure, None
        first = first or overflow
        if first is not None:
            raise first

    def close(self) -> None:
        """Flush, and take nothing more."""
        if self._closed:
            return
        self._closed = True
        # A send that comes from here on asks for its target, and is refused.
        targets, self._topics = self._topics, {}
        if forks.is_foreign(self._made_in):
            return
        for target in targets.values():
            if isinstance(target, SequenceTarget):
                target.refuse_more()
        self._flush(targets, None)

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
            targets, self._topics = self._topics, {}
            for target in targets.values():
                if isinstance(target, SequenceTarget):
                    target.abandon("The producer was left by an exception")
            return
        try:
            self.close()
        except OffsetLogError as failure:
            if error is None:
                raise
            error.add_note(str(failure))  # What ended the block comes first.

    def _target(self, topic: str) -> SendTarget:
        forks.check(self._made_in)
        if self._closed:
            raise InvalidRequestError("The producer is closed.", "Make a new one.")
        handle = self._host.topic_handle(topic)
        handle.known_state()
        target: SendTarget
        if self._sender is None:
            target = self._host.appender(topic)
        else:
            target = SequenceTarget(handle, *self._sender)
        self._topics[topic] = target
        return target


class SendTarget(Protocol):
    """Where the records for one topic go: a shared appender, or a caller's own batch."""

    max_bytes: int
    append_time: bool
    lock: threading.Lock
    open: SendBuffer | None
    """The batch that takes records, if there is one. Held: the lock."""

    def room_for(self, size: int, linger: float, sender: object) -> SendBuffer:
        """A batch that takes a record of ``size``. Held: the lock."""

    def add_table(self, table: pa.Table, sender: object) -> SendBuffer: ...
    def check_partition(self, partition: int) -> None: ...
    def flush(self, timeout: float | None) -> None: ...

    def failure(self, sender: object | None = None) -> OffsetLogError | None:
        """The first failure that this producer was not told by a future or a flush."""


# --- the end of the program, and forks -----------------------------------------------------


@atexit.register
def _tell_at_exit() -> None:
    """A sequence that was never flushed is not written by the end of a script, but named."""
    for producer in list(_producers):
        if forks.is_foreign(producer._made_in):
            continue
        for target in producer._topics.values():
            if isinstance(target, SequenceTarget):
                error = target.abandon("The program ended")
                if error is not None:
                    logger.error("%s", str(error))


def _refuse_in_child() -> None:
    """The next send in the child asks for its target, and hears that a fork lies in between: the
    targets' own locks may be held by threads that the child does not have."""
    for producer in list(_producers):
        producer._topics = {}


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_refuse_in_child)


# --- what is taken -------------------------------------------------------------------------


def _as_rows(given: pa.Table | pa.RecordBatch, target: SendTarget, now_ms: int) -> pa.Table:
    """A user's table with the columns of ``ROWS``, and ``partition`` if it was named."""
    if not isinstance(given, pa.Table | pa.RecordBatch):
        raise InvalidRequestError(f"send_arrow takes an Arrow table, not {type(given).__name__}.")
    table = pa.table(given) if isinstance(given, pa.RecordBatch) else given
    allowed = [*rows.ROWS.names, "partition"]
    unknown = [name for name in table.schema.names if name not in allowed]
    if unknown or len(set(table.schema.names)) < table.num_columns:
        raise InvalidRequestError(
            f"send_arrow cannot use the columns {table.schema.names}.",
            f"Allowed, once each: {', '.join(allowed)}.",
        )
    if "value" not in table.schema.names:
        raise InvalidRequestError("The table has no column 'value'.", "Records need one.")
    if not table.num_rows:
        raise InvalidRequestError("The table is empty.", "Send at least one record.")
    columns = {name: table.column(name) for name in table.schema.names}
    if target.append_time or "timestamp" not in columns:
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
    if heaviest + RECORD_OVERHEAD > target.max_bytes:
        raise too_large("of this table", heaviest, target.max_bytes - RECORD_OVERHEAD)
    if "partition" in columns:
        named = _cast(columns["partition"], rows.PARTITION)
        low = pc.min(named).as_py()
        if low is not None:
            target.check_partition(low)
            target.check_partition(pc.max(named).as_py())
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


def _bytes(what: str, value: object) -> bytes:
    if isinstance(value, bytes | bytearray | memoryview):
        return bytes(value)
    if isinstance(value, str):
        raise InvalidRequestError(f"The {what} is a str.", f"Encode it: {what}.encode().")
    raise InvalidRequestError(f"The {what} is a {type(value).__name__}.", "It must be bytes.")


def _headers(headers: object) -> tuple[list[tuple[str, bytes | None]], int]:
    """Headers as they are stored, and their weight."""
    out: list[tuple[str, bytes | None]] = []
    weight = 0
    try:
        pairs = [(name, value) for name, value in headers]  # type: ignore[attr-defined]
    except (TypeError, ValueError):
        raise InvalidRequestError("Headers are a list of (name, bytes) pairs.") from None
    for name, value in pairs:
        if not isinstance(name, str):
            raise InvalidRequestError(f"A header's name is {name!r}.", "It must be a str.")
        clean = None if value is None else _bytes(f"header {name!r}", value)
        out.append((name, clean))
        weight += len(name.encode()) + (0 if clean is None else len(clean))
    return out, weight


def _app_id(value: object) -> str:
    if not isinstance(value, str) or not 1 <= len(value) <= 1024:
        raise InvalidRequestError(f"app_id is {value!r}.", "It is a short string.")
    try:
        value.encode()
    except UnicodeEncodeError:
        raise InvalidRequestError(
            f"app_id is {value!r}, which is no text: it can't be written as UTF-8.",
            "Leave out what stands for bytes that could not be decoded.",
        ) from None
    return value


def whole_number(what: str, value: object, low: int, high: int) -> int:
    """A whole number, numpy's too; 17.9 is none, and neither are 17.0 and True."""
    number = None
    if not isinstance(value, bool):
        with suppress(TypeError):
            number = operator.index(value)  # type: ignore[arg-type]
    if number is None or not low <= number <= high:
        raise InvalidRequestError(
            f"{what} is {value!r}.", f"Allowed: whole numbers from {low} to {high}."
        )
    return number


def _number(what: str, value: object, low: float, high: float) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not low <= value <= high:
        raise InvalidRequestError(f"{what} is {value!r}.", f"Allowed: {low} to {high}.")
    return value
