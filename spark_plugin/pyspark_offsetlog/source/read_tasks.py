"""From what is stored to the Arrow batches that Spark takes.

Invariants:

1. A task reads the columns that the query's schema names, and no others.
2. A range gives exactly its records or an error that names the file: never fewer, but for
   what retention or a deletion took since, where ``failOnDataLoss`` is false. What is out of
   sight was not taken (see ``sight``).
3. Whoever planned the range may send the plan along; then the topic itself is opened only if
   that plan is old.
4. Before a task reads anything, and again when it has read all, it sees that the root on its
   machine is the one that the driver planned with.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
from pyspark.sql.datasource import InputPartition
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

from offsetlog.client.log import Log
from offsetlog.core.topic.plan import PlannedPiece
from offsetlog.engine.topic.open_topic import OpenTopic
from offsetlog.engine.topic.reader import FetchedBatch
from offsetlog.errors import CorruptLogError, OffsetOutOfRangeError, UnknownTopicError
from offsetlog.format.record_schema import as_arrow
from pyspark_offsetlog.options.check import LogAddress
from pyspark_offsetlog.runtime.open_logs import open_log
from pyspark_offsetlog.schema import chosen_columns
from pyspark_offsetlog.source.data_loss import DataLoss
from pyspark_offsetlog.source.offsets import OffsetRange
from pyspark_offsetlog.source.visibility import state_with

BATCH_RECORDS = 16_384
"""Rows that go to the JVM at once: more of them fall out of its caches."""
SHIPPED_EXTENTS = 4096
"""A plan of more extents is left to the tasks."""
TASK_RECORDS, TASK_BYTES = 10_000, 2 * 1024 * 1024
"""What makes a task of its own worth while for rows that lie in the chain."""
SENT_BYTES = 768 * 1024
"""Of entries that a task is sent: Spark warns of tasks of 1000 KiB."""
SHARED_BYTES = 16 * 1024 * 1024
"""Of more rows than that a task would not remember the entries from one range to the next."""
_STORED = ("key", "value", "headers", "timestamp", "offset")


class PlannedRange(NamedTuple):
    range: OffsetRange
    planned: tuple[PlannedPiece, ...] = ()
    """Where its records lie, if the driver knew; else the task looks by itself."""

    @property
    def bytes(self) -> int:
        """About how many, as far as the driver knew."""
        return sum(piece.bytes for piece in self.planned)


class LogPartition(InputPartition):
    """What one task reads. Plain data: Spark pickles it."""

    def __init__(
        self, place: LogAddress, work: tuple[PlannedRange, ...], fails: bool = True
    ) -> None:
        super().__init__(None)
        self.place = place
        """With the id of the root."""
        self.work = work
        self.entries: dict[str, dict[int, bytes]] = {}
        """Files of the chains of topics, by their numbers, which the driver has read already."""
        self.fails = fails
        """What becomes of it when records are gone meanwhile: ``failOnDataLoss``."""

    def __repr__(self) -> str:
        ranges = ", ".join(f"{w.range.topic}-{w.range.partition}" for w in self.work)
        return f"LogPartition({ranges})"


class OutputColumns(NamedTuple):
    """The rows that are wanted."""

    schema: pa.Schema
    columns: tuple[str, ...]

    @property
    def stored(self) -> tuple[str, ...]:
        """Of the stored columns, those that are needed; ``offset`` costs nothing to make."""
        return tuple(name for name in _STORED if name in self.columns) or ("offset",)


def target_of(schema: StructType) -> OutputColumns:
    return OutputColumns(to_arrow_schema(schema, timezone="UTC"), chosen_columns(schema))


def plan_work(log: Log, ranges: Sequence[OffsetRange]) -> tuple[PlannedRange, ...]:
    """The ranges, each with where its records lie if that is little to say for all of them."""
    extents = 0
    for r in ranges:
        state = log.topic_handle(r.topic).state(fresh=False)
        fences = state.index.fences(r.partition, r.start, r.end)
        extents += sum(state.index.leaves[fence.leaf].extents for fence in fences)
        extents += len(state.parts[r.partition].tail)
        if extents > SHIPPED_EXTENTS:
            return tuple(PlannedRange(r) for r in ranges)
    return tuple(
        PlannedRange(r, log.topic_handle(r.topic).reader.plan(r.partition, r.start, r.end))
        for r in ranges
    )


def tasks_of(
    place: LogAddress, work: Sequence[PlannedRange], one_each: bool = False, fails: bool = True
) -> list[LogPartition]:
    """A task for each range; but ranges whose rows all lie in the chain share tasks, since every
    one that reads them reads the same entries. Such a task is still worth its start."""
    shared = [w for w in work if _in_chain(w)] if not one_each else []
    records = sum(w.range.size for w in shared)
    size = sum(w.bytes for w in shared)
    if len(shared) < 2 or size > SHARED_BYTES:
        return [LogPartition(place, (w,), fails) for w in work]
    tasks = max(1, -(-records // TASK_RECORDS), -(-size // TASK_BYTES))
    out = [LogPartition(place, (w,), fails) for w in work if not _in_chain(w)]
    shares = _even(shared, records / tasks)
    return out + [LogPartition(place, tuple(some), fails) for some in shares]


def send_entries(log: Log, tasks: Sequence[LogPartition]) -> None:
    """Give tasks the entries that they need and that the driver has in memory, since it folded
    them. On an object store that is a request less for each of them and task."""
    if log.store.is_local:
        return
    for task in tasks:
        room = SENT_BYTES
        for topic, number in sorted(_entries(task)):
            found = log.topic_handle(topic).chain.recent(number)
            if found is not None and not found.stub and len(found.data) <= room:
                task.entries.setdefault(topic, {})[number] = found.data
                room -= len(found.data)


def _entries(task: LogPartition) -> set[tuple[str, int]]:
    return {
        (work.range.topic, piece.extent.entry)
        for work in task.work
        for piece in work.planned
        if piece.extent.inline
    }


def _in_chain(work: PlannedRange) -> bool:
    return bool(work.planned) and all(piece.extent.inline for piece in work.planned)


def _even(work: Sequence[PlannedRange], most: float) -> Iterator[list[PlannedRange]]:
    """Runs of about so many records each."""
    some: list[PlannedRange] = []
    size = 0
    for w in work:
        if some and size + w.range.size / 2 > most:
            yield some
            some, size = [], 0
        some.append(w)
        size += w.range.size
    yield some


def read(partition: LogPartition, target: OutputColumns) -> Iterator[pa.RecordBatch]:
    log = open_log(partition.place)
    if partition.work:
        log.root.check()
    lost = DataLoss(partition.fails)
    with ExitStack() as stack:
        if len(partition.work) > 1 or partition.entries:
            for topic in {work.range.topic for work in partition.work}:
                read_already = partition.entries.get(topic, {})
                stack.enter_context(log.topic_handle(topic).reader.keeping_entries(read_already))
        for work in partition.work:
            yield from read_range(log, work, target, lost)
    if partition.work:
        log.root.check()


def read_range(
    log: Log, work: PlannedRange, target: OutputColumns, lost: DataLoss
) -> Iterator[pa.RecordBatch]:
    topic, partition, at, end = work.range
    handle, planned = log.topic_handle(topic), work.planned
    shape = _Shape(topic, partition, target)
    waited_at = -1
    while at < end:
        try:
            if not planned and handle.state(fresh=False).end(partition) < end:
                handle.state()
            for batch in handle.reader.read(partition, at, end, target.stored, planned=planned):
                yield from shape.batches(batch)
                at = batch.end
        except (OffsetOutOfRangeError, UnknownTopicError):
            log.root.check()
            left, planned = _left(handle, partition, at, end), ()
            if left == at == waited_at:
                raise
            if left == at:
                # All is there now: this machine's view was late.
                waited_at = at
                continue
            lost(
                f"{topic}-{partition} was to be read from {at} to {end}, and the records before "
                f"{left} were deleted or taken by retention after that was planned."
            )
            at = left
        except CorruptLogError:
            # Files that are not there: the root may have gone meanwhile, which says it better.
            log.root.check()
            raise


def _left(handle: OpenTopic, partition: int, at: int, end: int) -> int:
    """From where on records of the range are there still; ``end`` if the chain says that none
    are."""
    state = state_with(handle, partition, end)
    if not state.alive or state.topic != handle.name or partition >= state.partitions:
        return end
    return min(end, max(at, state.start(partition)))


class _Shape:
    """Makes Spark's rows of one partition; what is the same in all of them is made once."""

    def __init__(self, topic: str, partition: int, target: OutputColumns) -> None:
        self._target = target
        self._same: dict[str, Any] = {}
        values: dict[str, Any] = {"topic": topic, "partition": partition}
        for name, value in values.items():
            if name in target.columns:
                self._same[name] = _repeated(value, target.schema.field(name).type)
        self._ts_type = -1

    def batches(self, batch: FetchedBatch) -> Iterator[pa.RecordBatch]:
        table = batch.table
        if "timestampType" in self._target.columns and batch.ts_type != self._ts_type:
            self._ts_type = batch.ts_type
            kind = self._target.schema.field("timestampType").type
            self._same["timestampType"] = _repeated(batch.ts_type, kind)
        stored = {}
        for name in self._target.columns:
            if name not in self._same:
                kind = self._target.schema.field(name).type
                column = table.column(name)
                stored[name] = column if column.type == kind else column.cast(kind)
        for low in range(0, table.num_rows, BATCH_RECORDS):
            count = min(BATCH_RECORDS, table.num_rows - low)
            yield pa.RecordBatch.from_arrays(
                [
                    self._same[name].slice(0, count)
                    if name in self._same
                    else _one(stored[name].slice(low, count))
                    for name in self._target.columns
                ],
                schema=self._target.schema,
            )


def _repeated(value: str | int, kind: pa.DataType) -> pa.Array:
    """As many of one value as a batch may have. Not by way of a scalar: making one of a Python
    value imports pandas."""
    if isinstance(value, int):
        return as_arrow(np.full(BATCH_RECORDS, value, np.int64), pa.int64()).cast(kind)
    data = value.encode()
    ends = np.arange(0, len(data) * (BATCH_RECORDS + 1), len(data), dtype=np.int32)
    buffers = [None, pa.py_buffer(ends), pa.py_buffer(data * BATCH_RECORDS)]
    return pa.Array.from_buffers(pa.string(), BATCH_RECORDS, buffers).cast(kind)


def _one(column: pa.ChunkedArray) -> pa.Array:
    return column.chunk(0) if column.num_chunks == 1 else column.combine_chunks()
