"""The stream reader that Spark calls.

Invariants:

1. It is pickled for every plan: it carries the options and the schema. What a run of the query
   needs is made at the first call, in the driver's process for this query.
2. A small batch is handed to Spark by the driver itself, as rows that need no Python worker.
   This rests on a part of PySpark that is not public; without it tasks read all batches.
3. Before 4.2 Spark does not say where a batch starts. With the jar the class in the JVM is asked
   as on 4.2, and says before each question what it is (``asked``). Without it ``BatchStarts`` knows
   the start, and Spark ends a query of ``availableNow`` without another word. What that leaves
   undone is said at its end.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from functools import cached_property
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.types import StructType

from offsetlog.errors import InvalidRequestError
from pyspark_offsetlog.about import tables
from pyspark_offsetlog.lines.batch_starts import ASK, AVAILABLE_NOW, LATEST, BatchStarts
from pyspark_offsetlog.lines.classes import (
    PREFETCHING_READER,
    STARTS_ARE_GIVEN,
    ReadAllAvailable,
    SupportsTriggerAvailableNow,
    read_limit,
)
from pyspark_offsetlog.options.check import source_options
from pyspark_offsetlog.options.spec import SourceOptions
from pyspark_offsetlog.runtime.open_logs import open_log, with_root_id
from pyspark_offsetlog.runtime.pickling import PickledWithReason
from pyspark_offsetlog.runtime.termination import end, leave_when_terminated
from pyspark_offsetlog.runtime.user_errors import one_line_errors, one_line_errors_iterator, warn
from pyspark_offsetlog.source.micro_batches import QueryRun
from pyspark_offsetlog.source.plans import LogPartition, PlannedRange
from pyspark_offsetlog.source.read_tasks import plan_ranges, plan_tasks, read, read_range
from pyspark_offsetlog.source.to_spark import OutputColumns, output_columns

HANDED_RECORDS = 4096
HANDED_BYTES = 1024 * 1024


class OffsetLogStreamReader(PickledWithReason, DataSourceStreamReader, SupportsTriggerAvailableNow):
    def __init__(self, options: dict[str, str], schema: StructType) -> None:
        self._options = options
        self._schema = schema
        self._handed: list[pa.RecordBatch] | None = None
        self._starts = BatchStarts()
        self._asked: Any = None
        """What the class in the JVM says that the next question is."""
        self._is_told = STARTS_ARE_GIVEN
        """Whether it is said where a batch starts, by Spark or by that class."""

    def __getstate__(self) -> dict[str, Any]:
        made_here = ("_run", "_columns")
        return {k: v for k, v in self.__dict__.items() if k not in made_here} | {"_handed": None}

    @property  # type: ignore[misc]
    def __class__(self) -> Any:
        """PySpark's own prefetching reader, for the moment in which rows are handed over."""
        if self.__dict__.get("_handed") is not None:
            return PREFETCHING_READER
        return OffsetLogStreamReader

    @cached_property
    def _run(self) -> QueryRun:
        if tables.is_table(self._options):
            raise InvalidRequestError(
                f"The option table={self._options[tables.OPTION]} is set for a stream.",
                "Tables of a log are read with spark.read: each query shows the present.",
            )
        options = source_options(self._options, True)
        self._columns  # noqa: B018 - what is wrong with the schema is said before all else.
        options = options._replace(place=with_root_id(options.place))
        run = QueryRun(open_log(options.place), options)
        leave_when_terminated(run.stop)
        return run

    @cached_property
    def _columns(self) -> OutputColumns:
        return output_columns(self._schema)

    # --- what Spark asks the driver --------------------------------------------------------

    @one_line_errors
    def initialOffset(self) -> dict[str, Any]:
        return self._run.initial()

    @one_line_errors
    def getDefaultReadLimit(self) -> Any:
        options = source_options(self._options, True)
        return read_limit(options.max_offsets, options.max_bytes, options.min_offsets)

    @one_line_errors
    def latestOffset(self, start: dict[str, Any] | None = None, limit: Any = None) -> Any:
        run = self._run
        asked, self._asked = self._asked, None
        if asked == LATEST:
            return run.latest()
        if asked is not None:
            return run.next(asked["start"], limited=asked["limited"])
        if start is not None:
            return run.next(start, limited=not isinstance(limit, ReadAllAvailable))
        end = run.next(self._starts.next(run.initial), limited=True)
        self._starts.answered(end)
        return end

    @one_line_errors
    def reportLatestOffset(self) -> dict[str, Any] | None:
        return self._run.latest()

    @one_line_errors
    def prepareForTriggerAvailableNow(self) -> None:
        self._run.prepare_available_now()

    @one_line_errors
    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        run = self._run
        if not self._is_told:
            self._starts.planned(start, end, run.initial)
        log, options, topic = run.log, run.options, run.topics.topic
        work = plan_ranges(topic, run.ranges(start, end))
        if not work:
            return []
        fails = options.fail_on_data_loss
        if _is_small(options, work):
            self._handed = [
                batch
                for w in work
                for batch in read_range(log, topic(w.range.topic), w, self._columns, run.lost)
            ]
            log.root.check()
            return [LogPartition(options.place, work, fails)]
        return plan_tasks(log, options.place, work, options.shares_out, fails)

    def getCache(self, start: dict[str, Any], end: dict[str, Any]) -> Iterator[Any]:
        """The rows of the batch that was just planned; called by PySpark."""
        handed, self._handed = self._handed or [], None
        return iter(handed)

    @one_line_errors
    def commit(self, end: dict[str, Any]) -> None:
        if ASK not in end:
            self._run.processed(end)
            return
        self._is_told, self._asked = True, end[ASK]
        if self._asked == AVAILABLE_NOW:
            self._asked = None
            self.prepareForTriggerAvailableNow()

    def stop(self) -> None:
        """The query ended, and this process has nothing else to do. Spark cuts the line without
        a word; PySpark would write a page about that on the user's terminal."""
        if isinstance(sys.exc_info()[1], (EOFError, ConnectionError)):
            end(self._leave)
        self._leave()

    def _leave(self) -> None:
        run: QueryRun | None = self.__dict__.get("_run")  # None: no run began.
        if run is not None:
            run.stop()
            if not self._is_told and self._starts.batches == 1:
                warn(run.left_undone(ran_again=not self._starts.answers))

    # --- what Spark asks its workers -------------------------------------------------------

    @one_line_errors_iterator
    def read(self, partition: LogPartition) -> Iterator[pa.RecordBatch]:
        yield from read(partition, self._columns)


def _is_small(options: SourceOptions, work: tuple[PlannedRange, ...]) -> bool:
    """Whether the driver hands these rows over by itself."""
    if PREFETCHING_READER is None or options.shares_out or not all(w.pieces for w in work):
        return False
    if sum(w.range.end - w.range.start for w in work) > HANDED_RECORDS:
        return False
    return sum(w.bytes for w in work) <= HANDED_BYTES
