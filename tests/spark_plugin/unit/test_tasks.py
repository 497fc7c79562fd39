"""How ranges become tasks: rows that lie in the chain share them."""

from __future__ import annotations

import pickle
import subprocess
import sys

import pyarrow as pa
import pytest

import offsetlog
from offsetlog.errors import OffsetOutOfRangeError
from pyspark_offsetlog.options.spec import LogAddress
from pyspark_offsetlog.source import read_tasks as rows
from pyspark_offsetlog.source.offsets import OffsetRange
from tests.spark_plugin.unit.engine import TARGET

PARTITIONS = 6


@pytest.fixture(autouse=True)
def orders(log):
    log.create_topic("orders", partitions=PARTITIONS)


def send(log, times, each=1, size=10):
    """Entries that hold rows of every partition: none leaves before the flush."""
    with log.producer(linger_ms=60_000) as producer:
        for _ in range(times):
            for p in range(PARTITIONS):
                for _ in range(each):
                    producer.send("orders", bytes(size), partition=p)
            producer.flush()


def tasks(log, one_each=False):
    ends = log.topic("orders").end_offsets()
    work = rows.plan_ranges(
        log.open_topic, [OffsetRange("orders", p, 0, end) for p, end in ends.items()]
    )
    made = rows.plan_tasks(log, LogAddress(log.url), work, one_each)
    told = [w.range for task in made for w in task.work]
    assert sorted(told) == [OffsetRange("orders", p, 0, end) for p, end in sorted(ends.items())]
    return [len(task.work) for task in made]


def test_few_rows_of_many_partitions_are_one_task(log):
    send(log, 5)
    assert tasks(log) == [PARTITIONS]
    assert tasks(log, one_each=True) == [1] * PARTITIONS


@pytest.mark.parametrize("limit", ["TASK_RECORDS", "TASK_BYTES"])
def test_more_rows_are_shared_out_evenly(log, monkeypatch, limit):
    send(log, 5, size=1)
    monkeypatch.setattr(rows, limit, 10)
    assert tasks(log) == [2] * 3
    monkeypatch.setattr(rows, limit, 1)
    assert tasks(log) == [1] * PARTITIONS


def planned(log):
    """How many extents of each partition the driver has planned."""
    ends = log.topic("orders").end_offsets()
    ranges = [OffsetRange("orders", p, 0, end) for p, end in ends.items()]
    return [len(work.pieces) for work in rows.plan_ranges(log.open_topic, ranges)]


def test_a_range_of_many_extents_is_planned_by_its_task_alone(log, monkeypatch):
    send(log, 5)
    with log.producer() as producer:
        producer.send("orders", bytes(10), partition=2)
    monkeypatch.setattr(rows, "SHIPPED_EXTENTS", 5)
    assert planned(log) == [5, 5, 0, *[5] * (PARTITIONS - 3)]


def test_the_driver_plans_a_bounded_number_of_extents(log, monkeypatch):
    send(log, 5)
    monkeypatch.setattr(rows, "PLANNED_EXTENTS", 12)
    assert planned(log) == [5, 5, *[0] * (PARTITIONS - 2)]
    monkeypatch.setattr(rows, "PLANNED_EXTENTS", 4)
    assert planned(log) == [0] * PARTITIONS


def test_what_would_not_be_remembered_is_not_shared(log, monkeypatch):
    send(log, 5)
    monkeypatch.setattr(rows, "SHARED_BYTES", 5 * PARTITIONS * 10 - 1)
    assert tasks(log) == [1] * PARTITIONS


def test_segments_are_tasks_of_their_own(log):
    with log.producer() as producer:
        for p in (1, 4):
            producer.send("orders", bytes(300_000), partition=p)
    send(log, 1)
    assert sorted(tasks(log)) == [1, 1, PARTITIONS - 2]


def only_task(log):
    ends = log.topic("orders").end_offsets()
    work = rows.plan_ranges(
        log.open_topic, [OffsetRange("orders", p, 0, end) for p, end in ends.items()]
    )
    [task] = rows.plan_tasks(log, LogAddress(log.url), work)
    return task


def read_elsewhere(task, url, monkeypatch):
    """The rows that a task reads in a process that remembers nothing, and the entries that it
    asks for."""
    with offsetlog.open(url) as other:
        monkeypatch.setattr(rows, "open_log", lambda place: other)
        asked = []
        true = other.store.get
        monkeypatch.setattr(
            other.store, "get", lambda name, *a: asked.append(name) or true(name, *a)
        )
        found = pa.Table.from_batches(rows.read(task, TARGET))
    return found, [name for name in asked if "/_log/" in name]


def test_each_entry_is_read_once_by_a_task(log, monkeypatch):
    send(log, 7)
    found, entries = read_elsewhere(only_task(log), log.url, monkeypatch)
    assert found.num_rows == 7 * PARTITIONS
    assert len(entries) == len(set(entries)) <= 8


def test_what_the_driver_read_is_sent_along_where_a_request_is_dear(log, monkeypatch):
    send(log, 7)
    task = only_task(log)
    rows.add_entries(log, task)
    assert task.entries == {}, "a local disk"
    plain, asked = read_elsewhere(task, log.url, monkeypatch)
    assert len(asked) == 7
    monkeypatch.setattr(log.store, "is_local", False)
    rows.add_entries(log, task)
    sizes = [len(data) for data in task.entries["orders"].values()]
    assert len(sizes) == 7
    assert read_elsewhere(pickle.loads(pickle.dumps(task)), log.url, monkeypatch) == (plain, [])
    task.entries.clear()
    monkeypatch.setattr(rows, "SENT_BYTES", sum(sizes[:3]))
    rows.add_entries(log, task)
    found, asked = read_elsewhere(task, log.url, monkeypatch)
    assert found == plain
    assert len(asked) == 4


def test_what_was_sent_is_believed_under_its_write_id_only(log, monkeypatch):
    """As after a purge: the same number, and another entry."""
    send(log, 2)
    task = only_task(log)
    monkeypatch.setattr(log.store, "is_local", False)
    rows.add_entries(log, task)
    plain, _ = read_elsewhere(task, log.url, monkeypatch)
    files = task.entries["orders"]
    first, second = sorted(files)
    files[first] = files[second]
    assert read_elsewhere(task, log.url, monkeypatch)[0] == plain


@pytest.mark.parametrize("how", ["trimmed", "deleted", "made anew"])
def test_records_that_go_between_the_plan_and_the_reading(log, monkeypatch, capfd, how):
    """Retention deletes files of a running batch: that is data loss, and the user said what
    becomes of it."""
    with log.producer() as producer:
        for at in range(9):
            producer.send("orders", bytes(300_000), partition=0, key=str(at).encode()).result()
    work = rows.plan_ranges(log.open_topic, [OffsetRange("orders", 0, 0, 9)])
    log.delete_topic("orders") if how != "trimmed" else log.topic("orders").delete_records({0: 4})
    if how == "made anew":
        log.create_topic("orders", partitions=PARTITIONS)
    for _ in range(3):
        log.maintain(grace_ms=0)

    def read(fails):
        with offsetlog.open(log.url) as other:  # A worker's process: it remembers nothing.
            monkeypatch.setattr(rows, "open_log", lambda place: other)
            return [
                offset
                for task in rows.plan_tasks(log, LogAddress(log.url), work, fails=fails)
                for batch in rows.read(task, TARGET)
                for offset in batch.column("offset").to_pylist()
            ]

    told = f"read from 0 to 9, and the records before {4 if how == 'trimmed' else 9} were deleted"
    with pytest.raises(OffsetOutOfRangeError, match=told) as failed:
        read(fails=True)
    assert "failOnDataLoss=false" in failed.value.hint
    assert read(fails=False) == ([4, 5, 6, 7, 8] if how == "trimmed" else [])
    assert told in capfd.readouterr().err


def test_a_task_does_not_wait_for_pandas(log):
    """Spark begins a process for each query, and each worker: what it imports is waited for."""
    send(log, 3)
    program = """
import sys
import offsetlog
from pyspark_offsetlog import datasource
from pyspark_offsetlog.source import read_tasks, stream
from pyspark_offsetlog.source.to_spark import output_columns
from pyspark_offsetlog.source.offsets import OffsetRange
from pyspark_offsetlog.options.spec import LogAddress
from pyspark_offsetlog.schema import source_schema

with offsetlog.open(sys.argv[1]) as log:
    log.topic("orders")
    work = read_tasks.plan_ranges(log.open_topic, [OffsetRange("orders", 0, 0, 3)])
    [task] = read_tasks.plan_tasks(log, LogAddress(log.url), work)
    target = output_columns(source_schema(True))
    found = sum(batch.num_rows for batch in read_tasks.read(task, target))
    print(found, "pandas" in sys.modules)
"""
    command = [sys.executable, "-c", program, log.url]
    said = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
    assert said.stdout.split() == ["3", "False"]
