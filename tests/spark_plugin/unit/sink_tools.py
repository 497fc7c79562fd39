"""A sink's writers, tasks and commits without Spark, one after another in this process."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
from pyspark.sql.types import BinaryType, IntegerType, StringType, StructField, StructType

from offsetlog.client.log import Log
from pyspark_offsetlog.options.check import sink_options
from pyspark_offsetlog.runtime import open_logs
from pyspark_offsetlog.sink import commit, plan
from pyspark_offsetlog.sink import task as sink_task
from pyspark_offsetlog.sink.writers import BatchWriter, StreamWriter
from tests.engine.scripted import ScriptedStore, quick_env

ROWS = StructType(
    [
        StructField("key", BinaryType()),
        StructField("value", StringType()),
        StructField("topic", StringType()),
        StructField("partition", IntegerType()),
    ]
)
roots = itertools.count()


def scripted_log() -> Any:
    """The fixture ``log`` of a module: a log on a store whose answers can be scripted, which all
    parts of the sink open."""

    @pytest.fixture(name="log")
    def made(monkeypatch):
        log = Log(ScriptedStore(f"sink-{next(roots)}"), quick_env())
        for module in (open_logs, commit, sink_task, plan):
            monkeypatch.setattr(module, "open_log", lambda place: log)
        log.create_topic("t", partitions=4, config={"retention.ms": -1})
        return log

    return made


class FakeContext:
    """What Spark tells a task."""

    def __init__(self, task: int, query: str | None, batch: int | None) -> None:
        self._task = task
        self._told = {
            sink_task.QUERY_ID: query,
            sink_task.BATCH_ID: None if batch is None else str(batch),
        }

    def partitionId(self) -> int:
        return self._task

    def getLocalProperty(self, name: str) -> str | None:
        return self._told[name]


def stream(**options) -> StreamWriter:
    return StreamWriter(sink_options({"path": "x", "topic": "t", **options}), ROWS)


def by_column(kind=StreamWriter, **options):
    return kind(sink_options({"path": "x", **options}), ROWS)


def batch(**options) -> BatchWriter:
    return BatchWriter(sink_options({"path": "x", "topic": "t", **options}), ROWS)


def values(log: Log, topic: str = "t") -> list[str]:
    """All values of a topic, partition after partition."""
    handle = log.open_topic(topic)
    state = handle.state()
    out = []
    for partition in range(state.partitions):
        for found in handle.reader.read(partition, 0, state.end(partition)):
            out += [value.decode() for value in found.table.column("value").to_pylist()]
    return out


def entries(log: Log, topic: str = "t") -> int:
    return log.open_topic(topic).refresh().tip
