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
import os
import threading
import weakref
from collections.abc import Mapping, Sequence
from typing import Any, Protocol

import pyarrow as pa
import pyarrow.compute as pc

from offsetlog.arguments import ANYTHING, PARTITION, SECONDS, TOPIC, checked, checks_itself
from offsetlog.client.rules import BYTES, HEADERS, PRODUCER_SETTINGS, TABLE, TIMESTAMP
from offsetlog.engine.append.group_commit import RECORD_OVERHEAD, GroupCommit
from offsetlog.engine.append.record_batch import row_bytes
from offsetlog.engine.append.record_checks import (
    MAX_MS,
    check_headers,
    check_named_partition,
    check_times,
    too_large,
    without_key,
)
from offsetlog.engine.append.send_buffer import ArrowFuture, SendBuffer, SendFuture
from offsetlog.engine.append.sequence_target import SequenceTarget
from offsetlog.engine.env import Env
from offsetlog.engine.topic.open_topic import OpenTopic
from offsetlog.errors import InvalidRequestError, OffsetLogError
from offsetlog.format import record_schema as rows
from offsetlog.logs import get_logger
from offsetlog.storage import forks
from offsetlog.values import MAX_PARTITIONS

Headers = Sequence[tuple[str, bytes | None]]
_new_future = tuple.__new__
logger = get_logger(__name__)
_producers: weakref.WeakSet[Producer] = weakref.WeakSet()


class ProducerHost(Protocol):
    """What a producer needs of the ``Log`` that made it."""

    env: Env

    def open_topic(self, name: str) -> OpenTopic: ...
    def group_commit(self, name: str) -> GroupCommit: ...


class Producer:
    """Sends records. Threads may share it."""

    @checked(host=ANYTHING, **PRODUCER_SETTINGS)
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
        self._linger = linger_ms / 1000
        self._limit = batch_bytes
        self._topics: dict[str, SendTarget] = {}
        self.failure: OffsetLogError | None = None
        """The first one of many, kept here when a target has no room for more."""
        self._sender = None
        if app_id is not None and sequence is not None:
            self._sender = (app_id, sequence)
        self._stamp = host.env.stamp()
        self._closed = False
        self._made_in = forks.process()
        _producers.add(self)

    @checks_itself(
        topic=TOPIC,
        value=BYTES,
        key=BYTES,
        headers=HEADERS,
        partition=PARTITION,
        timestamp=TIMESTAMP,
    )
    def send(
        self,
        topic: str,
        value: bytes | None = None,
        key: bytes | None = None,
        headers: Headers | None = None,
        partition: int | None = None,
        timestamp: int | None = None,
    ) -> SendFuture:
        """Send one record; the future's result has its offset. ``timestamp`` is in milliseconds."""
        target = self._topics.get(topic) if type(topic) is str else None
        if target is None:
            target = self._target(TOPIC("topic", topic))
        size = RECORD_OVERHEAD
        if value is not None:
            if type(value) is not bytes:
                value = BYTES("value", value)
            size += len(value)
        if key is not None:
            if type(key) is not bytes:
                key = BYTES("key", key)
            size += len(key)
        elif target.needs_key:
            target.look_again()
            if target.needs_key:
                raise without_key(topic)
        stored = None
        if headers is not None:
            stored = HEADERS("headers", headers)
            weight = rows.HEADER_BYTES * len(stored)
            weight += sum(len(name.encode()) + len(data or b"") for name, data in stored)
            size += weight
        if size > target.max_bytes:
            target.look_again()
            if size > target.max_bytes:
                raise too_large(topic, size - RECORD_OVERHEAD, target.max_bytes - RECORD_OVERHEAD)
        if timestamp is None:
            stamp = self._stamp()
        elif type(timestamp) is int and -MAX_MS < timestamp < MAX_MS:
            stamp = timestamp * 1_000_000
        else:
            stamp = TIMESTAMP("timestamp", timestamp) * 1_000_000
        if partition is not None:
            if type(partition) is not int or partition > MAX_PARTITIONS:
                partition = PARTITION("partition", partition)
            check_named_partition(target.topic, partition)
        # From here on every name and call is paid a million times a second.
        with target.lock:
            batch = target.open
            if batch is None or batch.size >= self._limit:
                batch = target.room_for(size, self._linger, self)
            if batch.sender is not self:
                batch.add_sender(self)
            values = batch.values
            index = len(values)
            try:
                if stored:
                    batch.headers[index] = stored
                if partition is not None:
                    batch.named[index] = partition
                values.append(value)
                batch.keys.append(key)
                batch.times.append(stamp)  # With this it is taken.
                batch.size += size
            except BaseException:
                batch.drop_partial()
                raise
        return _new_future(SendFuture, (batch, index))

    @checked(topic=TOPIC, table=TABLE)
    def send_arrow(self, topic: str, table: pa.Table | pa.RecordBatch) -> ArrowFuture:
        """Send a whole table as one atomic batch. Columns: ``value``, and optionally ``key``,
        ``headers``, ``timestamp`` and ``partition``."""
        target = self._topics.get(topic) or self._target(topic)
        rows_ = _as_rows(table, target, self._host.env.now_ms())
        return ArrowFuture(target.add_table(rows_, self))

    @checked(timeout=SECONDS)
    def flush(self, timeout: float | None = None) -> None:
        """Wait until everything that was sent before is acknowledged. Raises the first failure
        since the last flush that no future has raised; the other records are sent all the same."""
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
        """Flush, and accept no more records."""
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

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
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
        opened = self._host.open_topic(topic)
        opened.state_to_write()
        target: SendTarget
        if self._sender is None:
            target = self._host.group_commit(topic)
        else:
            target = SequenceTarget(opened, *self._sender)
        self._topics[topic] = target
        return target


class SendTarget(Protocol):
    """Where the records for one topic go: the shared group commit, or a caller's own batch."""

    topic: OpenTopic
    max_bytes: int
    needs_key: bool
    lock: threading.Lock
    open: SendBuffer | None
    """The batch that takes records, if there is one. Held: the lock."""

    def look_again(self) -> None:
        """Take ``max_bytes`` and ``needs_key`` from the topic's config as it is now: nothing is
        refused by an older one."""

    def room_for(self, size: int, linger: float, sender: object) -> SendBuffer:
        """A batch that takes a record of ``size``. Held: the lock."""

    def add_table(self, table: pa.Table, sender: object) -> SendBuffer: ...
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


def _as_rows(table: pa.Table, target: SendTarget, now_ms: int) -> pa.Table:
    """A user's table with the columns of ``ROWS``, and ``partition`` if it was named."""
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
    if "timestamp" not in columns:
        columns["timestamp"] = pa.repeat(pa.scalar(now_ms, rows.TIMESTAMP), table.num_rows)
    out = pa.Table.from_arrays(
        [
            _cast(columns[field.name], field)
            if field.name in columns
            else pa.nulls(table.num_rows, field.type)
            for field in rows.ROWS
        ],
        schema=rows.ROWS,
    )
    if out.column("timestamp").null_count:
        raise InvalidRequestError("Column 'timestamp' has nulls.", "Leave it out, or fill it.")
    check_times(rows.milliseconds(out.column("timestamp")))
    check_headers(out.column("headers"))
    heaviest = int(row_bytes(out).max())
    nulls = out.column("key").null_count
    if heaviest + RECORD_OVERHEAD > target.max_bytes or (target.needs_key and nulls):
        target.look_again()
    if heaviest + RECORD_OVERHEAD > target.max_bytes:
        raise too_large(target.topic.name, heaviest, target.max_bytes - RECORD_OVERHEAD)
    if target.needs_key and nulls:
        raise without_key(target.topic.name)
    if "partition" in columns:
        named = _cast(columns["partition"], rows.PARTITION)
        low = pc.min(named).as_py()
        if low is not None:
            check_named_partition(target.topic, low)
            check_named_partition(target.topic, pc.max(named).as_py())
        out = out.append_column(rows.PARTITION, named)
    return out


def _cast(column: Any, field: pa.Field) -> Any:
    if column.type == field.type:
        return column
    try:
        if pa.types.is_timestamp(column.type):
            # Finer digits, as of pandas' times, are cut off: a record's time is of milliseconds.
            column = pc.floor_temporal(column, unit="millisecond").cast(pa.timestamp("ms"))
        return column.cast(field.type)
    except (pa.ArrowException, OverflowError):
        raise InvalidRequestError(
            f"Column {field.name!r} is {column.type}; it must be {field.type}."
        ) from None
