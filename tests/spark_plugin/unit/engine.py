"""A stand-in for Spark's micro-batch engine: the same calls in the same order, without a JVM.

``wal`` are the ends of the batches that were planned (Spark's ``offsets`` folder), ``done`` is
how many of them were finished (its ``commits`` folder). A crash is a new ``Engine`` over the
same two.
"""

from __future__ import annotations

import itertools
import json
from pathlib import Path
from typing import Any, NamedTuple

from pyspark_offsetlog.options.check import source_options
from pyspark_offsetlog.runtime.open_logs import open_log
from pyspark_offsetlog.schema import source_schema
from pyspark_offsetlog.source.micro_batches import QueryRun
from pyspark_offsetlog.source.plans import LogPartition, PlannedRange
from pyspark_offsetlog.source.read_tasks import read
from pyspark_offsetlog.source.to_spark import output_columns

_roots = itertools.count()
TARGET = output_columns(source_schema(False))


def fresh_root() -> str:
    return f"memory://source-{next(_roots)}"


class Row(NamedTuple):
    topic: str
    partition: int
    offset: int
    value: bytes


class Checkpoint:
    def __init__(self) -> None:
        self.wal: list[dict[str, Any]] = []
        self.done = 0


class Engine:
    def __init__(
        self,
        root: Path | str,
        checkpoint: Checkpoint | None = None,
        once: bool = False,
        **given: Any,
    ) -> None:
        options = {name.replace("__", "."): str(value) for name, value in given.items()}
        self.options = source_options({"path": str(root), **options}, True)
        self.checkpoint = checkpoint or Checkpoint()
        self.log = open_log(self.options.place)
        self.run = QueryRun(self.log, self.options)
        self.limited = not once
        self._recovered = False

    def available_now(self) -> Engine:
        self.run.prepare_available_now()
        return self

    def plan(self) -> dict[str, Any] | None:
        """Decide on the next batch, as Spark does before it runs it."""
        kept = self.checkpoint
        if not self._recovered:
            self._recovered = True
            if len(kept.wal) > kept.done:
                return kept.wal[-1]
        start = kept.wal[-1] if kept.wal else _copied(self.run.initial())
        end = _copied(self.run.next(start, self.limited))
        if end == start and kept.wal:
            return None
        # A query's first batch is made even if there is nothing to read.
        kept.wal.append(end)
        if len(kept.wal) > 1:
            self.run.processed(kept.wal[-2])
        return end

    def ranges(self) -> list[Any]:
        """What the batch that was planned last reads."""
        kept = self.checkpoint
        start = kept.wal[-2] if len(kept.wal) > 1 else _copied(self.run.initial())
        return self.run.ranges(start, kept.wal[-1])

    def rows(self) -> list[Row]:
        out: list[Row] = []
        for r in self.ranges():
            for batch in read(LogPartition(self.options.place, (PlannedRange(r),)), TARGET):
                for said in batch.to_pylist():
                    out.append(Row(said["topic"], said["partition"], said["offset"], said["value"]))
        return out

    def batch(self) -> list[Row] | None:
        """One batch from beginning to end; None if there is nothing to do (the first batch is
        made all the same, and empty)."""
        if self.plan() is None:
            return None
        rows = self.rows()
        self.checkpoint.done = len(self.checkpoint.wal)
        return rows

    def drain(self) -> list[Row]:
        """Batches until there is nothing to do; the last look commits the last of them."""
        out: list[Row] = []
        while (rows := self.batch()) is not None:
            out.extend(rows)
        return out

    def stop(self) -> Checkpoint:
        self.run.stop()
        return self.checkpoint

    def restarted(self, **given: Any) -> Engine:
        """The same query after a crash: nothing of this run was said good-bye to."""
        return Engine(self.options.place.root, self.checkpoint, **given)


def _copied(offset: dict[str, Any]) -> dict[str, Any]:
    return dict(json.loads(json.dumps(offset)))


def fill(log: Any, topic: str, counts: dict[int, int], size: int = 4) -> None:
    """Records whose values say where they lie."""
    with log.producer() as producer:
        ends = log.topic(topic).end_offsets()
        sent = []
        for partition, count in counts.items():
            for at in range(ends[partition], ends[partition] + count):
                value = f"{topic}-{partition}-{at}".encode().ljust(size, b".")
                sent.append(producer.send(topic, value, partition=partition))
        for one in sent:
            one.result()


def at(rows: list[Row] | None) -> dict[tuple[str, int], list[int]]:
    """The offsets that were read of each partition, in the order they were read."""
    out: dict[tuple[str, int], list[int]] = {}
    for row in rows or []:
        out.setdefault((row.topic, row.partition), []).append(row.offset)
        assert row.value.startswith(f"{row.topic}-{row.partition}-{row.offset}".encode())
    return out
