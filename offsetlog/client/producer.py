"""The producer: what a program sends records with.

Invariants:

1. What is wrong with a record is said by ``send`` itself, before anything is written.
2. A record is acknowledged when it is durable and its offset can never change.
3. With ``app_id`` and ``sequence`` everything that is sent up to a flush is one batch for each
   topic, under that number: sending it again, from any process, never writes it twice.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from types import TracebackType
from typing import Any, Protocol

import pyarrow as pa
import pyarrow.compute as pc

from ..errors import InvalidRequestError, OffsetLogError
from ..format import rows
from ..log.state import State
from .appender import (
    RECORD_OVERHEAD,
    Appender,
    assign_partitions,
    check_named_partition,
    columns_of,
)
from .batches import ArrowFuture, Batch, SendFuture
from .env import Env
from .handle import TopicHandle
from .prepared import (
    MAX_MS,
    Prepared,
    bad_timestamp,
    check_headers,
    check_times,
    prepare,
    row_bytes,
    too_large,
)
from .writer import Sender

Headers = Sequence[tuple[str, bytes | None]]
KEYED_BYTES = 256 * 1024 * 1024
"""The most that gathers under one sequence."""
_new_future = tuple.__new__


class ProducerHost(Protocol):
    """What a producer needs of the ``Log`` that made it."""

    env: Env

    def topic_handle(self, name: str) -> TopicHandle: ...
    def appender(self, name: str) -> Appender: ...


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
        self._limit = int(_number("batch_bytes", batch_bytes, 1024, 1024**3))
        self._topics: dict[str, Lane] = {}
        self._sender = None
        if app_id is not None:
            if not isinstance(app_id, str) or not 1 <= len(app_id) <= 1024:
                raise InvalidRequestError(f"app_id is {app_id!r}.", "It is a short string.")
            self._sender = (app_id, int(_number("sequence", sequence, 0, 2**62)))
        self._stamp = host.env.stamp()
        self._closed = False

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
        return ArrowFuture(lane.add_table(rows_))

    def flush(self, timeout: float | None = None) -> None:
        """Return once all that was sent before is acknowledged or has failed."""
        for lane in list(self._topics.values()):
            lane.flush(timeout)

    def close(self) -> None:
        if not self._closed:
            self._closed = True
            self.flush()

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
            for lane in self._topics.values():
                if isinstance(lane, KeyedLane):
                    lane.abandon()
            return
        self.close()

    def _lane(self, topic: str) -> Lane:
        if self._closed:
            raise InvalidRequestError("The producer is closed.", "Make a new one.")
        handle = self._host.topic_handle(topic)
        handle.state(fresh=False)
        lane: Lane
        if self._sender is None:
            lane = self._host.appender(topic)
        else:
            lane = KeyedLane(handle, *self._sender)
        self._topics[topic] = lane
        return lane


class Lane(Protocol):
    """Where the records for one topic go: a shared appender, or a caller's own batch."""

    most: int
    append_time: bool
    lock: threading.Lock
    open: Batch | None
    """The batch that takes records, if there is one. Held: the lock."""

    def room_for(self, size: int, linger: float) -> Batch:
        """A batch that takes a record of ``size``. Held: the lock."""

    def add_table(self, table: pa.Table) -> Batch: ...
    def check_partition(self, partition: int) -> None: ...
    def flush(self, timeout: float | None) -> None: ...


class KeyedLane:
    """Gathers the records of one topic under a caller's key until they are flushed.

    A flush lands one entry with the present sequence, and the next batch has the next one."""

    open: Batch | None = None
    """Never: each record is looked at by ``room_for``."""

    def __init__(self, handle: TopicHandle, app_id: str, sequence: int) -> None:
        self._handle = handle
        self._app = app_id
        self._sequence = sequence
        self._batch: Batch | None = None
        self._prepared: tuple[Prepared, State] | None = None
        """Of a flush whose fate is open: its next try must send the very same rows."""
        self.lock = threading.Lock()
        self.most = handle.config.max_message_bytes + RECORD_OVERHEAD
        self.append_time = handle.config.log_append_time

    def room_for(self, size: int, linger: float) -> Batch:
        batch = self._gathering(size)
        if batch.table is not None:
            raise _mixed(self._app)
        return batch

    def add_table(self, table: pa.Table) -> Batch:
        with self.lock:
            batch = self._gathering(table.nbytes)
            if batch.values or batch.table is not None:
                raise _mixed(self._app)
            batch.table = table
            batch.size = table.nbytes
            return batch

    def _gathering(self, size: int) -> Batch:
        if self._prepared is not None:
            raise InvalidRequestError(
                f"The fate of sequence {self._sequence} of app_id {self._app!r} is open.",
                "Call flush() again before sending more.",
            )
        if self._batch is None:
            self._batch = Batch(self._handle.name, self, 0.0)
        if self._batch.size + size > KEYED_BYTES and self._batch.size:
            raise InvalidRequestError(
                f"More than {KEYED_BYTES} bytes wait under one sequence of app_id {self._app!r}.",
                "Call flush() more often, or use send_arrow() for one large batch.",
            )
        return self._batch

    def check_partition(self, partition: int) -> None:
        check_named_partition(self._handle, partition)

    def drive(self, batch: Batch) -> None:
        """Called by a future that is waited for: its batch is flushed."""
        self.flush(None)

    def abandon(self) -> None:
        with self.lock:
            batch, self._batch = self._batch, None
            self._prepared = None
        if batch is not None:
            batch.fail(
                InvalidRequestError(
                    "The producer was left by an exception; nothing of this batch was written.",
                    "Send it again under the same sequence.",
                )
            )

    def flush(self, timeout: float | None) -> None:
        with self.lock:
            batch = self._batch
            if batch is None:
                return
            try:
                self._write(batch)
            except OffsetLogError as error:
                batch.fail(error)
                if not error.may_have_landed:
                    self._batch = self._prepared = None
                raise
            self._batch = self._prepared = None
            self._sequence += 1

    def _write(self, batch: Batch) -> None:
        if self._prepared is None:
            state = self._handle.state(fresh=False)
            columns = columns_of(batch)
            placed_by = assign_partitions(
                columns, state.partitions, self._sequence, self._handle.name
            )
            self._prepared = prepare(columns.table, placed_by), state
        prepared, state = self._prepared
        sender = Sender(self._app, self._sequence, False)
        receipt = self._handle.writer.append(prepared, sender, state.partitions, state.life)
        batch.succeed(receipt.placed, prepared.order, prepared.times)


def _mixed(app: str) -> InvalidRequestError:
    return InvalidRequestError(
        f"One sequence of app_id {app!r} takes records or one table, not both.",
        "Call flush() between them.",
    )


# --- what is taken -------------------------------------------------------------------------


def _as_rows(given: pa.Table | pa.RecordBatch, lane: Lane, now_ms: int) -> pa.Table:
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


def _number(what: str, given: object, low: float, high: float) -> float:
    if isinstance(given, bool) or not isinstance(given, int | float) or not low <= given <= high:
        raise InvalidRequestError(f"{what} is {given!r}.", f"Allowed: {low} to {high}.")
    return given
