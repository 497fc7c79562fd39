"""The sink, for batches and streams: what Spark calls.

Invariants:

1. A writer checks everything that can be checked when it is made, while Spark plans.
2. Tasks only stage rows; the driver's ``commit`` makes them visible (see ``sink_commit``).
3. Where the JVM runs the tasks, the plan for them travels with the writer, which is there for the
   rows that the JVM can't write (see ``jvm_tasks``).
4. ``abort`` does nothing. It also runs after a commit that failed without an answer, which may
   have landed: only the collector deletes.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from pyspark.sql.datasource import (
    DataSourceArrowWriter,
    WriterCommitMessage,
)
from pyspark.sql.types import StructType

from offsetlog.errors import InvalidRequestError
from pyspark_offsetlog.lines.classes import StreamArrowWriter
from pyspark_offsetlog.options.spec import LogAddress, SinkOptions
from pyspark_offsetlog.runtime import upkeep_process
from pyspark_offsetlog.runtime.pickling import PickledWithReason
from pyspark_offsetlog.runtime.user_errors import one_line_errors
from pyspark_offsetlog.sink.commit import commit_write
from pyspark_offsetlog.sink.jvm_tasks import plan_for_jvm
from pyspark_offsetlog.sink.plan import plan_of
from pyspark_offsetlog.sink.task import run_task

if TYPE_CHECKING:
    import pyarrow as pa

Messages = list[WriterCommitMessage | None]


class BatchWriter(PickledWithReason, DataSourceArrowWriter):
    @one_line_errors
    def __init__(self, options: SinkOptions, schema: StructType, in_jvm: bool = False) -> None:
        if options.maintain_ms is not None:
            raise InvalidRequestError(
                "maintainInterval is set for a batch, which ends.",
                "Leave it out; 'offsetlog maintain' or log.maintain() looks after the topic.",
            )
        self.plan = plan_of(options, schema, streaming=False)
        self.plan_for_jvm = plan_for_jvm(self.plan, schema) if in_jvm else b""

    @one_line_errors
    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        return run_task(self.plan, iterator)

    @one_line_errors
    def commit(self, messages: Messages) -> None:
        commit_write(self.plan.place, self.plan.sender, messages, None)

    def abort(self, messages: Messages) -> None:
        """See invariant 4."""


class StreamCommitter(PickledWithReason, StreamArrowWriter):
    """The driver's side of a micro-batch, which is planned already."""

    def __init__(self, place: LogAddress, maintain_ms: int | None = None) -> None:
        self.place = place
        self.maintain_ms = maintain_ms

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        raise AssertionError("tasks have a writer that was planned")

    @one_line_errors
    def commit(self, messages: Messages, batchId: int) -> None:  # noqa: N803 - Spark's word
        topics = commit_write(self.place, None, messages, batchId)
        if self.maintain_ms is not None and topics:
            upkeep_process.start_if_due(self.place, topics, self.maintain_ms)

    def abort(self, messages: Messages, batchId: int) -> None:  # noqa: N803
        """See invariant 4."""


class StreamWriter(StreamCommitter):
    """Made for each micro-batch; its tasks have it."""

    @one_line_errors
    def __init__(self, options: SinkOptions, schema: StructType, in_jvm: bool = False) -> None:
        super().__init__(options.place, options.maintain_ms)
        self.plan = plan_of(options, schema, streaming=True)
        self.plan_for_jvm = plan_for_jvm(self.plan, schema) if in_jvm else b""

    @one_line_errors
    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        return run_task(self.plan, iterator)
