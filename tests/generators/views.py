"""A driver and tasks that see the root differently, for a while: not at all, empty, another log, or
as it was some time ago; in the midst of a query's batches and of a sink's, which Spark runs again.

1. A task reads the rows that were planned, or fails; a query reads every record once, in order.
2. A sink's batch is there once, all of it, in the log; nothing is made where the log is not.
3. Left out is what nobody can tell: an older copy for a driver that writes, and another log for a
   query that starts.
"""

from __future__ import annotations

import pickle
import random
import shutil
from collections import Counter
from collections.abc import Callable
from contextlib import AbstractContextManager, ExitStack, nullcontext
from pathlib import Path
from typing import Any

import pyarrow as pa

import offsetlog
from offsetlog.engine.append import distributed_append
from offsetlog.errors import OffsetLogError
from pyspark_offsetlog.runtime import open_logs
from pyspark_offsetlog.sink import task as sink_task
from pyspark_offsetlog.source.micro_batches import QueryRun
from tests.generators.registry import OPERATIONS, Bug
from tests.generators.restarts import at_once
from tests.simulation.planting import patched
from tests.spark_plugin.unit.engine import Checkpoint, Engine, Row
from tests.spark_plugin.unit.sink_tools import ROWS, FakeContext, stream
from tests.spark_plugin.unit.views import VIEWS, another_process, keep_copy, seen_as

STEPS = 16
STEP_KINDS = ["append"] * 3 + ["read"] * 6 + ["write"] * 6 + ["copy", "copy", "restart"]
HIDDEN = 0.45
"""How often somebody sees something else."""


class History:
    def __init__(self, seed: int, folder: Path) -> None:
        self.chance = random.Random(seed)
        self.root = folder / "log"
        self.counts = Counter[str]()
        self.trace: list[Any] = []
        self.sent: list[bytes] = []
        self.read: list[Row] = []
        self.checkpoint = Checkpoint()
        self.query: Engine | None = None
        self.group = self.chance.random() < 0.5
        self.batches = 0

    def run(self) -> None:
        another_process()
        with offsetlog.open(str(self.root)) as self.log:
            self.log.create_topic("t", partitions=4)
            self._append()
            self._copy()
            try:
                for _ in range(STEPS):
                    step = self.chance.choice(STEP_KINDS)
                    self.counts[OPERATIONS] += 1
                    getattr(self, f"_{step}")()
                self._end()
            except Exception as error:
                raise AssertionError(self.trace[-12:]) from error
            finally:
                if self.query is not None:
                    self.query.stop()

    # --- who sees what -----------------------------------------------------------------------

    def _sees(self, who: str, *but: str) -> AbstractContextManager[None]:
        if self.chance.random() >= HIDDEN:
            return nullcontext()
        if self.query is not None and self.query.run._owner is not None:
            # Its commits are made beside it, and it sees the log unless it is who does not.
            self.query.run._owner.flush()
        view = self.chance.choice(sorted(VIEWS.keys() - set(but)))
        self.counts[view] += 1
        self.trace.append((who, "sees", view))
        if self.chance.random() < 0.5:
            another_process()
        return seen_as(view, self.root)

    def _try(
        self, context: AbstractContextManager[None], call: Callable[[], Any], may_fail: bool = False
    ) -> Any:
        """What it gives; None if it failed, which only who sees something else may."""
        is_hidden = may_fail or not isinstance(context, nullcontext)
        try:
            with context:
                return call()
        except OffsetLogError as error:
            if not is_hidden:
                raise
            self.trace.append(str(error)[:80])
            self.counts["failed"] += 1
            return None

    # --- steps -----------------------------------------------------------------------------

    def _append(self) -> None:
        with self.log.producer() as producer:
            for _ in range(self.chance.randrange(1, 5)):
                self.sent.append(b"record-%d" % len(self.sent))
                producer.send("t", self.sent[-1], partition=0).result()

    def _copy(self) -> None:
        shutil.rmtree(self.root.with_name("older"), ignore_errors=True)
        keep_copy(self.root)

    def _restart(self) -> None:
        if self.query is not None:
            self.query.stop()
        self.query = None
        another_process()

    def _read(self) -> None:
        """A batch: the driver plans, and tasks read."""
        kept = self.checkpoint
        # A group's owner commits beside the query, and would write to an older copy; and a query
        # that starts takes what it finds.
        but = [*(["older"] if self.group else []), *(["another"] if self.query is None else [])]
        context = self._sees("the driver that reads", *but)
        planned = self._try(context, lambda: self._driver().plan())
        query = self.query
        if query is None or (planned is None and len(kept.wal) == kept.done):
            self._restart()
            return
        ranges = query.ranges()  # The driver's, as is the group that it may take over for it.
        query.ranges = lambda: ranges  # type: ignore[method-assign]
        rows = self._try(self._sees("a task that reads"), lambda: self._rows(query))
        del query.ranges
        if rows is None:
            self._restart()
            return
        kept.done = len(kept.wal)
        self.read += rows
        self.trace.append(("read", [row.offset for row in rows]))

    def _driver(self) -> Engine:
        """The query, which finds out which root it reads as Spark's driver does."""
        if self.query is None:
            given = {"subscribe": "t", "startingOffsets": "earliest", "failOnDataLoss": "false"}
            if self.group:
                given["group__id"] = "g"
            query = Engine(str(self.root), self.checkpoint, **given)
            place = open_logs.with_root_id(query.options.place)
            query.options = query.options._replace(place=place)
            query.log = open_logs.open_log(place)
            query.run = QueryRun(query.log, query.options)
            self.query = query
        return self.query

    def _rows(self, query: Engine) -> list[Row]:
        return [row for row in query.rows() if row.partition == 0]

    def _write(self) -> None:
        """A micro-batch of the sink, which is run again until it is there."""
        number, self.batches = self.batches, self.batches + 1
        values = [f"{number}-{i}" for i in range(self.chance.randrange(1, 4))]
        made = self._try(self._sees("the driver that writes", "older"), self._writer)
        for hidden in (True, True, False):
            made = made or self._writer()
            context = self._sees("a task that writes") if hidden else nullcontext()
            writer = made
            message = self._try(context, lambda: self._task(writer, values, number), hidden)
            if message is None:
                made = None  # Spark starts the query again.
                continue
            another_process()
            context = self._sees("the driver that commits", "older") if hidden else nullcontext()
            try:
                with context:
                    made.commit([message], number)
            except OffsetLogError as error:
                # What a task wrote to an older copy is missing here, and it says so.
                assert hidden or "segment" in str(error) or "task" in str(error), error
                self.counts["failed"] += 1
                self.trace.append(str(error)[:80])
                made = None
                continue
            self.trace.append(("written", values))
            return

    def _writer(self) -> Any:
        return stream(path=str(self.root))

    def _task(self, writer: Any, values: list[str], number: int) -> Any:
        columns = [
            pa.nulls(len(values), pa.binary()),
            pa.array(values, pa.string()),
            pa.array(["t"] * len(values), pa.string()),
            pa.array([1 + number % 3] * len(values), pa.int32()),
        ]
        rows = pa.RecordBatch.from_arrays(columns, names=ROWS.names)
        context = FakeContext(0, "q", number)
        with patched([(sink_task.TaskContext, "get", staticmethod(lambda: context))]):
            another_process()
            shipped = pickle.loads(pickle.dumps(writer))
            return pickle.loads(pickle.dumps(shipped.write(iter([rows]))))

    # --- the end ---------------------------------------------------------------------------

    def _end(self) -> None:
        self._restart()
        self.chance.random = lambda: 1.0  # type: ignore[method-assign]  # Everybody sees the log.
        while True:
            before = len(self.checkpoint.wal), self.checkpoint.done
            self._read()
            if before == (len(self.checkpoint.wal), self.checkpoint.done):
                break
        assert [row.value for row in self.read] == self.sent, [row.offset for row in self.read]
        written = Counter[bytes | None]()
        with self.log.consumer() as consumer:
            consumer.assign([("t", p) for p in (1, 2, 3)])
            consumer.seek_to_beginning()
            while found := consumer.poll(0.0):
                written.update(record.value for record in found)
        assert all(count == 1 for count in written.values()), written
        for _, values in (step for step in self.trace if step[0] == "written"):
            assert {value.encode() for value in values} <= written.keys(), values
        [report] = self.log.verify("t")
        assert not report.faults, report.faults


def history(seed: int, folder: Path) -> Counter[str]:
    with ExitStack() as stack:
        stack.enter_context(at_once())
        stack.enter_context(
            patched(
                [
                    (distributed_append, "LOOK_SECONDS", 0.001),
                    (sink_task, "MESSAGE_BYTES", 0),
                ]
            )
        )
        made = History(seed, folder)
        made.run()
    return made.counts


# --- planted bugs --------------------------------------------------------------------------


def _any_root_will_do() -> AbstractContextManager[None]:
    """Tasks take whatever lies at the path for the log."""
    return patched([(open_logs, "with_root_id", lambda place: place)])


PLANTED = {"any root will do": Bug(_any_root_will_do)}
