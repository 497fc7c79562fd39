"""How ranges become tasks: rows that lie in the chain share them."""

from __future__ import annotations

import json
import pickle
import subprocess
import sys

import pyarrow as pa
import pytest

import offsetlog
from offsetlog.errors import CorruptLogError, OffsetLogError, OffsetOutOfRangeError
from pyspark_offsetlog.options.spec import LogAddress
from pyspark_offsetlog.source import plans
from pyspark_offsetlog.source import read_tasks as rows
from pyspark_offsetlog.source.offsets import OffsetRange, check_tiling
from pyspark_offsetlog.source.plans import LogPartition
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
from pyspark_offsetlog.source.offsets import OffsetRange, check_tiling
from pyspark_offsetlog.source.plans import LogPartition
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


# --- nothing is left out -------------------------------------------------------------------


@pytest.fixture
def erased(tmp_path):
    """What erasure rewrote is in no stored index yet, and lies before what is in one."""
    with offsetlog.open(str(tmp_path / "erased")) as log:
        log.create_topic("orders", config={"retention.ms": -1})
        for number in range(13):
            keys = [b"%d-%d" % (number, at) for at in range(10)]
            with log.producer() as producer:
                producer.send_arrow("orders", pa.table({"key": keys, "value": keys}))
            if number == 9:
                log.maintain("orders", grace_ms=0)
        log.open_topic("orders").stored.publish()
        log.topic("orders").erase(keys=[b"0-0"])
    with offsetlog.open(str(tmp_path / "erased")) as log:
        state = log.open_topic("orders").state()
        assert [(e.base, e.end) for e in state.parts[0].tail] == [(0, 100)]
        assert state.index.fences(0, 100, 130)
        yield log


def test_what_was_rewritten_before_stored_files_does_not_end_a_plan(erased):
    [work] = rows.plan_ranges(erased.open_topic, [OffsetRange("orders", 0, 0, 130)])
    assert [(p.start, p.end) for p in work.pieces] == [(0, 100), (100, 110), (110, 120), (120, 130)]
    [task] = rows.plan_tasks(erased, LogAddress(erased.url), [work])
    assert sum(batch.num_rows for batch in rows.read(task, TARGET)) == 129


def test_the_driver_sends_no_pieces_that_leave_something_out(erased, monkeypatch):
    reader = erased.open_topic("orders").reader
    pieces = reader.plan(0, 0, 130)
    for wrong, said in (
        (pieces[:-1], "offsets 120 to 130 are left out"),
        (pieces[:1] + pieces[2:], "offsets 100 to 110 are left out"),
        (pieces[:2] + pieces[1:], "offsets 100 to 110 are there twice"),
    ):
        monkeypatch.setattr(reader, "plan", lambda *_, wrong=wrong: wrong)
        with pytest.raises(OffsetLogError, match=f"0 to 130 of orders-0 .*: {said}"):
            rows.plan_ranges(erased.open_topic, [OffsetRange("orders", 0, 0, 130)])


def test_the_driver_sends_tasks_for_all_ranges(log, monkeypatch):
    send(log, 5)
    ranges = [OffsetRange("orders", p, 0, 5) for p in range(PARTITIONS)]
    work = rows.plan_ranges(log.open_topic, ranges)
    monkeypatch.setattr(rows, "_runs", lambda shared, _: iter([tuple(shared[1:])]))
    with pytest.raises(OffsetLogError, match="0 to 5 of orders-0 .*0 to 5 are left out"):
        rows.plan_tasks(log, LogAddress(log.url), work)


def test_ranges_tile_what_was_asked_for():
    def of(*pairs, topic="t"):
        return [OffsetRange(topic, 0, start, end) for start, end in pairs]

    check_tiling(of((5, 9)), of((7, 9), (5, 7)))
    check_tiling(of((0, 2), (8, 9)), of((8, 9), (0, 1), (1, 2)))
    check_tiling([], [])
    for asked, sent, said in (
        (of((5, 9)), of((5, 8)), "offsets 8 to 9 are left out"),
        (of((5, 9)), of((6, 9)), "offsets 5 to 6 are left out"),
        (of((5, 9)), of((5, 7), (8, 9)), "offsets 7 to 8 are left out"),
        (of((5, 9)), of((5, 8), (7, 9)), "offsets 7 to 8 are there twice"),
        (of((5, 9)), of((5, 10)), "offsets 5 to 10 lie outside"),
        (of((5, 9)), of((5, 9), (9, 10)), "nobody asked"),
        (of((5, 9)), of((5, 9)) + of((0, 1), topic="u"), "0 to 1 of u-0 .*nobody asked"),
        (of((5, 9)) + of((0, 1), topic="u"), of((5, 9)), "0 to 1 of u-0 .*left out"),
    ):
        with pytest.raises(OffsetLogError, match=said):
            check_tiling(asked, sent)


def test_a_task_whose_pieces_leave_something_out_fails_by_name(erased, monkeypatch):
    [work] = rows.plan_ranges(erased.open_topic, [OffsetRange("orders", 0, 0, 130)])
    holed = work._replace(pieces=work.pieces[:1] + work.pieces[2:])
    with pytest.raises(CorruptLogError, match="Offsets 100 to 130 of orders-0 .*110 to 120 came"):
        list(rows.read(LogPartition(LogAddress(erased.url), (holed,)), TARGET))
    short = LogPartition(LogAddress(erased.url), (work._replace(pieces=work.pieces[:1]),))
    assert sum(batch.num_rows for batch in rows.read(short, TARGET)) == 129


def test_a_batch_of_limited_bytes_goes_on_behind_what_was_rewritten(erased):
    """It ended where the first leaf of the index was needed."""
    from pyspark_offsetlog.source.next_batch import BatchPlan, Look, limit_bytes

    state = erased.open_topic("orders").state()
    tp = offsetlog.TopicPartition("orders", 0)
    plan = BatchPlan({tp: 0}, {tp: 130}, {}, ())
    whole = sum(piece.bytes for piece in erased.open_topic("orders").reader.plan(0, 0, 130))
    look = Look({"orders": state})
    limited = limit_bytes(plan, whole - whole // 8, look, erased.open_topic)
    assert 100 < limited.end[tp] < 130
    assert limit_bytes(plan, 1, look, erased.open_topic).end[tp] == 1


def by_turns(log, turns):
    """A segment and an entry by turns, in one partition: the windows of entries, and the task."""
    with log.producer(linger_ms=60_000) as producer:
        for at in range(turns):
            for size in (300_000, 10 + at):
                producer.send("orders", bytes(size), partition=0)
                producer.flush()
    work = rows.plan_ranges(log.open_topic, [OffsetRange("orders", 0, 0, 2 * turns)])
    [task] = rows.plan_tasks(log, LogAddress(log.url), work)
    windows = [[[0, p.start, p.end]] for p in work[0].pieces if p.extent.inline]
    assert len(windows) == turns
    return windows, task


def wanted_of(task, windows, columns=("offset", "value")):
    part = json.dumps({"windows": windows, "columns": columns}).encode()
    return plans.from_plan(plans.encode(task), part)


def test_an_empty_batch_ends_each_window_but_the_last(log):
    windows, task = by_turns(log, 4)
    found = [
        batch.column("offset").to_pylist() for batch in rows.read(wanted_of(task, windows), TARGET)
    ]
    assert found == [[1], [], [3], [], [5], [], [7]]
    # A window in which the JVM gave a segment up holds several pieces; one may hold none.
    some = [[[0, 0, 4]], [], [[0, 5, 6], [0, 7, 8]]]
    found = [
        batch.column("offset").to_pylist() for batch in rows.read(wanted_of(task, some), TARGET)
    ]
    assert found == [[0], [1], [2], [3], [], [], [5], [7]]
    assert list(rows.read(wanted_of(task, [[]]), TARGET)) == []


def test_entries_of_many_windows_are_fetched_at_once_where_one_waits_for_each(log, monkeypatch):
    windows, task = by_turns(log, 40)
    together, most = [], []
    for is_local in (True, False):
        with offsetlog.open(log.url) as other:
            monkeypatch.setattr(rows, "open_log", lambda place, log=other: log)
            chain = other.open_topic("orders").chain
            true, asked = chain.read_entry, []
            monkeypatch.setattr(
                chain, "read_entry", lambda n, true=true, asked=asked: asked.append(n) or true(n)
            )
            fetched = chain.read_entries
            monkeypatch.setattr(
                chain, "read_entries", lambda ns, f=fetched: together.append(len(ns)) or f(ns)
            )
            monkeypatch.setattr(other.store, "is_local", is_local)
            found = pa.Table.from_batches(rows.read(wanted_of(task, windows), TARGET))
            assert found.column("offset").to_pylist() == list(range(1, 80, 2))
            most.append(list(together))
    assert most == [[], [16, 16, 8]]


def test_what_a_window_costs_does_not_grow_with_the_plan(log):
    """A task may have thousands of windows and pieces."""
    _, task = by_turns(log, 1)
    looked = []

    class Pieces(tuple):
        def __getitem__(self, at):
            looked.append(at)
            return super().__getitem__(at)

        def __iter__(self):
            raise AssertionError("all pieces were looked through")

    [first, *_] = task.work[0].pieces
    many = Pieces(first._replace(start=at, end=at + 1) for at in range(20_000))
    cut = plans._cut(task.work[0]._replace(pieces=many), 700, 703)
    assert [piece.start for piece in cut.pieces] == [700, 701, 702]
    assert len(looked) < 50
