"""Logs, and queries without Spark, for the tests here."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterator
from typing import Any

import pyarrow as pa
import pytest

from offsetlog.engine.append import distributed_append as staged
from pyspark_offsetlog.sink import task as sink_task
from pyspark_offsetlog.source import visibility as sight
from tests.spark_plugin.unit.engine import Checkpoint, Engine, fill
from tests.spark_plugin.unit.group_tools import GROUP
from tests.spark_plugin.unit.sink_tools import ROWS, FakeContext


@pytest.fixture(autouse=True)
def no_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is not in sight is not waited for."""
    monkeypatch.setattr(sight, "LOOK_SECONDS", 0.001)
    monkeypatch.setattr(staged, "LOOK_SECONDS", 0.001)


@pytest.fixture
def running() -> Iterator[Callable[..., Engine]]:
    """Queries that are stopped at the end, so that none of their threads goes on."""
    made: list[Engine] = []

    def make(root: str, checkpoint: Checkpoint | None = None, **given: Any) -> Engine:
        made.append(Engine(root, checkpoint, **given))
        return made[-1]

    yield make
    for query in made:
        query.stop()


@pytest.fixture
def caught_up(log: Any, root: str, running: Callable[..., Engine]) -> Callable[..., Engine]:
    """A query of the group ``g`` that has read all, so many records of each partition too."""

    def make(counts: dict[int, int], **given: Any) -> Engine:
        fill(log, "orders", counts)
        query = running(root, **given, **GROUP)
        query.drain()
        return query

    return make


@pytest.fixture
def task(monkeypatch):
    """Runs one task of a writer, which comes and whose message goes as Spark carries them."""

    def run(made, values, task=0, query="q", batch=0, topic="t", keys=None, partition=None):
        context = FakeContext(task, query, batch)
        monkeypatch.setattr(sink_task.TaskContext, "get", lambda: context)
        count = len(values)
        columns = [
            pa.array(keys or [None] * count, pa.binary()),
            pa.array(values, pa.string()),
            pa.array([topic] * count if isinstance(topic, str) else topic, pa.string()),
            pa.array([partition] * count, pa.int32()),
        ]
        batches = [pa.RecordBatch.from_arrays(columns, names=ROWS.names)] if count else []
        shipped = pickle.loads(pickle.dumps(made))
        return pickle.loads(pickle.dumps(shipped.write(iter(batches))))

    return run
