"""What a micro-batch asks of an object store: the driver that plans it, its tasks, and the driver
that commits it, each in a process that did the same before.

The root's id, which all of them compare, is read once by each process; on a disk it is read each
time, which costs microseconds.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql.types import BinaryType, IntegerType, StructField, StructType

import offsetlog
from bench.counting import counted_store
from offsetlog.format.names import ROOT_FILE
from pyspark_offsetlog.datasource import OffsetLogDataSource
from pyspark_offsetlog.runtime import open_logs as logs
from pyspark_offsetlog.schema import source_schema
from pyspark_offsetlog.sink import task as sink_task

PARTITIONS, TASKS = 8, 3
SCHEMA = StructType([StructField("value", BinaryType()), StructField("partition", IntegerType())])
MOST = {
    "plan a write": 3,
    "write, many rows": PARTITIONS,
    "write, few rows": 0,
    "commit": 2,
    "plan a read": 2,
    "read": TASKS,
    "idle": 1,
}
"""Of one task of several that write a segment of each partition, or read one partition; whoever
plans a write looks for what others appended since."""


class Counts:
    """Requests of each part of a trigger."""

    def __init__(self, proxy: Any) -> None:
        self._proxy = proxy
        self.asked: dict[str, int] = {}
        self.of_root: dict[str, int] = {}

    def __call__(self, name: str, part: Callable[[], Any]) -> Any:
        with self._proxy.counted() as asked:
            result = part()
        self.asked[name] = len(asked)
        self.of_root[name] = sum(ROOT_FILE in one.path for one in asked)
        return result


@pytest.fixture
def place() -> Iterator[tuple[dict[str, str], Counts]]:
    with counted_store() as (store, proxy):
        root = f"{store.url}/triggers"
        with offsetlog.open(root, **store.options) as log:
            log.create_topic("t", partitions=PARTITIONS)
        given = dict(store.options) | {"endpoint_url": proxy.url}
        storage = {f"storage.{name}": str(value) for name, value in given.items()}
        yield {"path": root, **storage}, Counts(proxy)


def rows(size: int) -> Iterator[pa.RecordBatch]:
    values = [bytes(size)] * PARTITIONS
    columns = [pa.array(values), pa.array(range(PARTITIONS), pa.int32())]
    yield pa.RecordBatch.from_arrays(columns, names=["value", "partition"])


class Processes:
    """The logs that each kind of process has open, since Spark uses its processes again."""

    def __init__(self) -> None:
        self._open: dict[str, tuple[Any, Any]] = {}

    def run(self, name: str, part: Callable[[], Any]) -> Any:
        kept = self._open.setdefault(name, (type(logs._open)(), type(logs._root_ids)()))
        logs._open, logs._root_ids = kept
        return part()


def test_requests_of_a_trigger_do_not_grow(
    place: tuple[dict[str, str], Counts], monkeypatch: pytest.MonkeyPatch
) -> None:
    options, counts = place
    processes = Processes()
    monkeypatch.setattr(logs, "_open", logs._open)
    monkeypatch.setattr(logs, "_root_ids", logs._root_ids)
    sink = OffsetLogDataSource({**options, "topic": "t", "createtopicpartitions": "8"})
    given = {"subscribe": "t", "startingoffsets": "earliest", "minpartitions": "1"}
    source = OffsetLogDataSource({**options, **given, "pollintervalms": "0"})
    stream: Any = source.streamReader(source_schema(False))

    def counted(process: str, name: str, part: Callable[[], Any]) -> Any:
        return processes.run(process, lambda: counts(name, part))

    def write(name: str, size: int) -> list[Any]:
        made = counted("planner", "plan a write", lambda: sink.writer(SCHEMA, False))
        messages = [counted("task", name, lambda: made.write(rows(size))) for _ in range(TASKS)]
        counted("committer", "commit", lambda: made.commit(messages))
        return messages

    start = processes.run("query", stream.initialOffset)
    limit = stream.getDefaultReadLimit()
    for trigger in range(3):
        monkeypatch.setattr(sink_task, "MESSAGE_BYTES", 0)
        write("write, many rows", 1000)
        if not trigger:
            # Before its first entry a process reads the root's file, and sees that a put conflicts.
            assert counts.of_root == {"plan a write": 1, "write, many rows": 0, "commit": 2}

        def plan(start: Any = start) -> tuple[Any, Any]:
            end = stream.latestOffset(start, limit)
            return end, stream.partitions(start, end)

        end, tasks = counted("query", "plan a read", plan)
        for task in tasks:
            counted("reader", "read", lambda task=task: list(stream.read(task)))
        counted("query", "idle", lambda: stream.latestOffset(end, limit))
        start = end
    monkeypatch.setattr(sink_task, "MESSAGE_BYTES", 1 << 18)
    write("write, few rows", 10)
    grown = {n: (counts.asked[n], most) for n, most in MOST.items() if counts.asked[n] > most}
    assert not grown, f"part: (now, the most that it may be): {grown}"
    assert not any(counts.of_root.values())


def test_each_process_reads_the_root_once(
    place: tuple[dict[str, str], Counts], monkeypatch: pytest.MonkeyPatch
) -> None:
    options, counts = place
    monkeypatch.setattr(sink_task, "MESSAGE_BYTES", 0)
    monkeypatch.setattr(logs, "_open", logs._open)
    monkeypatch.setattr(logs, "_root_ids", logs._root_ids)
    processes = Processes()
    made = processes.run(
        "planner", lambda: OffsetLogDataSource({**options, "topic": "t"}).writer(SCHEMA, False)
    )
    for task in range(3):
        processes.run("task", lambda: counts("write", lambda: made.write(rows(1000))))
        assert counts.of_root["write"] == (task == 0)
        assert counts.asked["write"] == PARTITIONS + (task == 0)
