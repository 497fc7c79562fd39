"""What a task reads: planned by the driver, read by whoever runs the task.

Invariants:

1. A task reads the columns that the query's schema names, and no others.
2. A range gives exactly its records or an error that names the file: never fewer, but for
   what retention or a deletion took since, where ``failOnDataLoss`` is false. What is out of
   sight was not taken (see ``visibility``).
3. Whoever planned the range may send the plan along; then the topic itself is opened only if
   that plan is old.
4. Before a task reads anything, and again when it has read all, it sees that the root on its
   machine is the one that the driver planned with.
5. What the driver sends is what the offsets say: the ranges of all tasks tile it, and the pieces
   of a range tile the range. What a task reads tiles its ranges (``Reader.read``). Anything else
   is an error that names the offsets.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, suppress
from itertools import islice

import pyarrow as pa

from offsetlog.client.log import Log
from offsetlog.core.topic.plan import PlannedPiece, max_extents, tiling_fault
from offsetlog.engine import OpenTopic
from offsetlog.errors import (
    CorruptLogError,
    OffsetLogError,
    OffsetOutOfRangeError,
    UnknownTopicError,
)
from offsetlog.filesystems import hadoop_url
from offsetlog.logs import get_logger
from pyspark_offsetlog.options.spec import LogAddress
from pyspark_offsetlog.runtime.open_logs import open_log
from pyspark_offsetlog.source.offsets import OffsetRange, check_tiling, not_covered
from pyspark_offsetlog.source.plans import LogPartition, PlannedRange
from pyspark_offsetlog.source.to_spark import OutputColumns, spark_batches
from pyspark_offsetlog.source.visibility import DataLoss, state_with

logger = get_logger(__name__)

SHIPPED_EXTENTS = 4096
"""A range of more extents is planned by its task: Spark warns of large tasks."""
PLANNED_EXTENTS = 32_768
"""How many extents the driver plans for all tasks together, and looks through for a range."""
TASK_RECORDS, TASK_BYTES = 10_000, 2 * 1024 * 1024
"""What makes a task of its own worth while for rows that lie in the chain."""
SENT_BYTES = 768 * 1024
"""Of entries that a task is sent: Spark warns of tasks of 1000 KiB."""
SHARED_BYTES = 16 * 1024 * 1024
"""Of more rows than that a task would not remember the entries from one range to the next."""


# --- the driver ----------------------------------------------------------------------------


def plan_ranges(
    topic: Callable[[str], OpenTopic], ranges: Sequence[OffsetRange]
) -> tuple[PlannedRange, ...]:
    """The ranges, each with where its records lie if that is little to find and to say. ``topic``
    gives topics that were looked at."""
    work, room = [], PLANNED_EXTENTS
    for r in ranges:
        reader = topic(r.topic).reader
        pieces: tuple[PlannedPiece, ...] = ()
        if room and max_extents(reader.chain.state, *r[1:]) <= PLANNED_EXTENTS:
            pieces = reader.plan(r.partition, r.start, r.end)
            fault = tiling_fault(r.start, r.end, ((piece.start, piece.end) for piece in pieces))
            if fault is not None:
                raise not_covered(r, fault)
            if len(pieces) > room:
                pieces, room = (), 0  # Nor is any other range looked through in vain.
            elif len(pieces) > SHIPPED_EXTENTS:
                pieces = ()
        work.append(PlannedRange(r, pieces))
        room -= len(pieces)
    return tuple(work)


def plan_tasks(
    log: Log,
    place: LogAddress,
    work: Sequence[PlannedRange],
    one_each: bool = False,
    fails: bool = True,
) -> list[LogPartition]:
    """A task for each range; but ranges whose rows all lie in the chain share tasks, since every
    one that reads them reads the same entries. Such a task is still worth its start."""
    shared = [] if one_each else [w for w in work if w.is_in_chain]
    records = sum(w.range.size for w in shared)
    size = sum(w.bytes for w in shared)
    extents = sum(len(w.pieces) for w in shared)
    if len(shared) < 2 or size > SHARED_BYTES:
        tasks = [LogPartition(place, (w,), fails) for w in work]
    else:
        limits = (records, TASK_RECORDS), (size, TASK_BYTES), (extents, SHIPPED_EXTENTS)
        count = max(1, *(-(-amount // limit) for amount, limit in limits))
        tasks = [LogPartition(place, (w,), fails) for w in work if not w.is_in_chain]
        tasks += [LogPartition(place, some, fails) for some in _runs(shared, records / count)]
    check_tiling((w.range for w in work), (w.range for task in tasks for w in task.work))
    for task in tasks:
        task.jvm_root = _jvm_root(log)
        add_entries(log, task)
    return tasks


def _jvm_root(log: Log) -> str | None:
    protocol, _, path = log.store.url.partition("://")
    if log.store.is_local:
        return path if protocol == "file" else None
    return hadoop_url(log.store.url)


def _runs(work: Sequence[PlannedRange], records: float) -> Iterator[tuple[PlannedRange, ...]]:
    """Runs of about so many records each."""
    run: list[PlannedRange] = []
    size = 0
    for w in work:
        if run and size + w.range.size / 2 > records:
            yield tuple(run)
            run, size = [], 0
        run.append(w)
        size += w.range.size
    yield tuple(run)


def add_entries(log: Log, task: LogPartition) -> None:
    """Give a task the entries that it needs and that the driver has in memory, since it folded
    them. On an object store that is a request less for each of them."""
    if log.store.is_local:
        return
    needed = {
        (work.range.topic, piece.extent.entry)
        for work in task.work
        for piece in work.pieces
        if piece.extent.inline
    }
    room = SENT_BYTES
    for topic, number in sorted(needed):
        entry = log.open_topic(topic).chain.recent(number)
        if entry is not None and not entry.stub and len(entry.data) <= room:
            task.entries.setdefault(topic, {})[number] = entry.data
            room -= len(entry.data)


# --- the task ------------------------------------------------------------------------------


def read(partition: LogPartition, columns: OutputColumns) -> Iterator[pa.RecordBatch]:
    log = open_log(partition.place)
    if partition.columns is not None:
        columns = columns.only(partition.columns)
    if partition.work or partition.columns is not None:
        log.root.check()
    lost = DataLoss(partition.fails)
    with ExitStack() as stack:
        if len({work.range[:2] for work in partition.work}) > 1 or partition.entries:
            for name in {work.range.topic for work in partition.work}:
                read_already = partition.entries.get(name, {})
                stack.enter_context(log.open_topic(name).reader.keeping_entries(read_already))
        ranges = _fetched_ahead(log, partition)
        for i, count in enumerate(partition.windows):
            if i:
                yield columns.no_rows()
            for work in islice(ranges, count):
                topic = log.open_topic(work.range.topic)
                yield from read_range(log, topic, work, columns, lost)
    if partition.work:
        log.root.check()


def _fetched_ahead(log: Log, partition: LogPartition) -> Iterator[PlannedRange]:
    """The ranges of a task. Where the storage makes one wait for each file, entries of several
    windows are fetched at once; within a window the topic's reader does that."""
    at_once = 1 if log.store.is_local or len(partition.windows) == 1 else log.env.limits.window
    for low in range(0, len(partition.work), at_once):
        some = partition.work[low : low + at_once]
        for name in {work.range.topic for work in some} if at_once > 1 else ():
            sent = partition.entries.get(name, {})
            inline = [
                piece.extent.entry
                for work in some
                for piece in work.pieces
                if work.range.topic == name and piece.extent.inline
            ]
            with suppress(OffsetLogError):  # Who reads the entry says what is wrong with it.
                wanted = [number for number in inline if number not in sent]
                log.open_topic(name).chain.read_entries(wanted[:at_once])
        yield from some


def read_range(
    log: Log, topic: OpenTopic, work: PlannedRange, columns: OutputColumns, lost: DataLoss
) -> Iterator[pa.RecordBatch]:
    name, partition, at, end = work.range
    pieces = work.pieces
    waited_at = -1
    while at < end:
        try:
            if not pieces and topic.known_state().end(partition) < end:
                topic.state()
            for batch in topic.reader.read(partition, at, end, columns.stored, planned=pieces):
                yield from spark_batches(name, columns, batch)
                at = batch.end
        except (OffsetOutOfRangeError, UnknownTopicError):
            log.root.check()
            left, pieces = _first_left(topic, partition, at, end), ()
            if left == at == waited_at:
                raise
            if left == at:
                # All is there now: this machine's view was late.
                logger.info("Offset %d of %s-%d came into sight late.", at, name, partition)
                waited_at = at
                continue
            lost(
                f"{name}-{partition} was to be read from {at} to {end}, and the records before "
                f"{left} were deleted or taken by retention after that was planned."
            )
            at = left
        except CorruptLogError:
            # Files that are not there: the root may have gone meanwhile, which says it better.
            log.root.check()
            raise


def _first_left(topic: OpenTopic, partition: int, at: int, end: int) -> int:
    """From where on records of the range are there still; ``end`` if the chain says that none
    are."""
    state = state_with(topic, partition, end)
    if not state.alive or state.topic != topic.name or partition >= state.partitions:
        return end
    return min(end, max(at, state.start(partition)))
