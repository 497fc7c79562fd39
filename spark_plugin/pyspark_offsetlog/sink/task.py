"""One task of a write: its rows to segments, or into its message when they are few.

Invariants:

1. Memory is bounded: at ``BUFFER_BYTES`` the rows that are held become segments.
2. What all tasks send in messages is bounded, however many tasks there are.
3. A task that is run twice writes twice, and only the message of one run is committed: what
   the other wrote is never named, and the collector removes it.
4. Before a task reads or writes anything of the log, it sees that the root on its machine is the
   one that the driver planned with. What travels in its message needs no root.
"""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

from pyspark import TaskContext
from pyspark.sql.datasource import WriterCommitMessage

from offsetlog.engine import TaskShare, TaskStage
from pyspark_offsetlog.runtime.open_logs import open_log
from pyspark_offsetlog.sink.from_spark import as_rows, by_topic, in_pieces
from pyspark_offsetlog.sink.plan import WritePlan, look_up

if TYPE_CHECKING:
    import pyarrow as pa

BUFFER_BYTES = 64 * 1024 * 1024
PUT_THREADS = 4
"""Segments that are put side by side, while the next rows come."""
MESSAGE_BYTES = 256 * 1024
MESSAGES_BYTES = 4 * 1024 * 1024
QUERY_ID = "sql.streaming.queryId"
BATCH_ID = "streaming.sql.batchId"


class TaskMessage(WriterCommitMessage):
    """What a task tells the driver: plain values, which only Spark pickles."""

    def __init__(
        self, query: str | None, shares: tuple[TaskShare, ...], root_id: str | None = None
    ) -> None:
        self.query = query
        self.shares = shares
        self.root_id = root_id
        """Of the root that they are staged for."""

    def __repr__(self) -> str:
        return f"TaskMessage({', '.join(share.topic for share in self.shares)})"


def message_limit(task: int) -> int:
    """How many bytes of rows a task may send. Nobody tells a task how many others there are, so
    a later one may send less: a thousand of them send 20 MiB at most, ten thousand 30 MiB."""
    return min(MESSAGE_BYTES, MESSAGES_BYTES // (task + 1))


def run_task(plan: WritePlan, batches: Iterator[pa.RecordBatch]) -> TaskMessage:
    """Take all rows of a task."""
    context = TaskContext.get()
    query, task, spread = None, 0, plan.spread
    if context is not None:
        query = context.getLocalProperty(QUERY_ID)
        task = context.partitionId()
        spread += task
        if plan.sender is None:
            spread += int(context.getLocalProperty(BATCH_ID) or 0)
    with _Stages(plan, spread) as stages:
        for batch in in_pieces(batches):
            stages.add(batch)
            if stages.weight >= BUFFER_BYTES:
                stages.spill()
        if stages.weight > message_limit(task):
            stages.spill()
        return TaskMessage(query, stages.shares(), plan.place.root_id)


class _Stages:
    """A stage for each topic that the rows of a task name."""

    def __init__(self, plan: WritePlan, spread: int) -> None:
        self._plan = plan
        self._log = open_log(plan.place)
        self._spread = spread
        self._stages: dict[str, TaskStage] = {}
        self._append_time: dict[str, bool] = {}
        self._pool = ThreadPoolExecutor(PUT_THREADS, thread_name_prefix="offsetlog-put")
        self.weight = 0

    def add(self, batch: pa.RecordBatch) -> None:
        if self._plan.topic is not None:
            self._add(self._plan.topic.name, batch)
        else:
            for name, some in by_topic(batch, self._plan.columns):
                self._add(name, some)

    def _add(self, name: str, batch: pa.RecordBatch) -> None:
        stage = self._stages.get(name) or self._stage(name)
        now = self._log.env.now_ms()
        before = stage.weight
        stage.add(*as_rows(batch, self._plan.columns, now, self._append_time[name]))
        self.weight += stage.weight - before

    def _stage(self, name: str) -> TaskStage:
        log, facts = self._log, self._plan.topic
        if facts is None:
            log.root.check()
            facts = look_up(log, name, self._plan.create_partitions)
        self._append_time[name] = facts.settings.log_append_time
        self._stages[name] = stage = TaskStage(log.store, facts, log.env, self._spread, self._pool)
        return stage

    def spill(self) -> None:
        self._log.root.check()
        for stage in self._stages.values():
            stage.spill()
        self.weight = 0

    def shares(self) -> tuple[TaskShare, ...]:
        return tuple(stage.share() for stage in self._stages.values())

    def __enter__(self) -> _Stages:
        return self

    def __exit__(self, *_: object) -> None:
        self._pool.shutdown()
