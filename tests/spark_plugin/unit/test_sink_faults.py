"""What a write meets in the wild: old drivers, slow batches, numbers that come again, topics that
go; no Spark runs here."""

from __future__ import annotations

import pickle
import threading

import pytest

from offsetlog.client.log import Log
from offsetlog.errors import StorageError, UnknownTopicError
from pyspark_offsetlog.datasource import OffsetLogDataSource
from pyspark_offsetlog.sink import plan as sink_plan
from pyspark_offsetlog.sink import task as sink_task
from pyspark_offsetlog.sink.writers import BatchWriter
from tests.engine.scripted import quick_env
from tests.spark_plugin.unit.sink_tools import (
    ROWS,
    batch,
    by_column,
    entries,
    scripted_log,
    stream,
    values,
)

log = scripted_log()


@pytest.fixture
def in_segments(monkeypatch):
    """Not even one row is few."""
    monkeypatch.setattr(sink_task, "MESSAGE_BYTES", 0)


def files(log: Log, topic: str = "t") -> set[str]:
    """Segments that are stored, named or not."""
    return {info.name for p in range(4) for info in log.store.list(f"{topic}/partition={p}")}


def another(log: Log) -> Log:
    """What another process sees of the same store."""
    return Log(log.store, quick_env())


# --- numbers that come again -----------------------------------------------------------------


def test_a_number_that_is_passed_over_is_told(log, task, capfd):
    """A checkpoint that was set back plans other rows under old numbers."""
    for number in (0, 1, 2, 2, 0):
        stream().commit([task(stream(), ["x"], batch=number, partition=0)], number)
        if number == 2:
            assert capfd.readouterr().err == ""
    told = capfd.readouterr().err
    assert "batch 0 of q is not written to topic 't', which holds a later one already" in told
    made = batch(txnappid="job", txnversion="5")
    made.commit([task(made, ["a"])])
    lower = batch(txnappid="job", txnversion="4")
    lower.commit([task(lower, ["b"])])
    assert "batch 4 of job is not written" in capfd.readouterr().err
    assert len(values(log)) == 4


@pytest.mark.parametrize("limit", [0, 1 << 18], ids=["many", "few"])
def test_a_second_write_under_the_same_number_is_told(log, task, capfd, monkeypatch, limit):
    """A run again has as many rows; two writes in one foreachBatch hardly ever do."""
    monkeypatch.setattr(sink_task, "MESSAGE_BYTES", limit)
    for rows in (["a", "b"], ["b", "a"]):
        made = batch(txnappid="job", txnversion="5")
        made.commit([task(made, rows[:1]), task(made, rows[1:], 1)])
        assert capfd.readouterr().err == ""
    made = batch(txnappid="job", txnversion="5")
    made.commit([task(made, ["c"])])
    told = "not written to topic 't', which holds it with 2 records in place of these 1: a second"
    assert told in capfd.readouterr().err
    assert sorted(values(log)) == ["a", "b"]


def test_an_old_driver_comes_late_with_several_topics(log, task, in_segments):
    """It wrote one of two topics when it was given up; the new one went on for three batches."""
    log.create_topic("u", partitions=2)
    old = task(by_column(), ["old", "old"], topic=["t", "u"], batch=3, partition=0)
    log.store.script = ["ok", "refused"]
    with pytest.raises(StorageError, match="Written before it: t"):
        by_column().commit([old], 3)
    for number, text in ((3, "again"), (4, "b"), (5, "c")):
        message = task(by_column(), [text] * 2, topic=["t", "u"], batch=number, partition=0)
        by_column().commit([message], number)
    by_column().commit([old], 3)
    assert (values(log), values(log, "u")) == (["old", "b", "c"], ["again", "b", "c"])


@pytest.mark.parametrize("script", [["lost"], ["unknown", "lost"], ["hidden"], ["unknown"] * 3])
def test_several_topics_whose_answers_are_lost(log, task, script):
    log.create_topic("u", partitions=2)
    made = by_column(BatchWriter, txnappid="a", txnversion="1")
    message = task(made, ["a", "b"], topic=["t", "u"], partition=0)
    log.store.script = [*script, *script]
    made.commit([message])
    log.store.script = []
    made.commit([message])
    assert (values(log), values(log, "u")) == (["a"], ["b"])


# --- segments that nobody names --------------------------------------------------------------


def test_what_failed_tasks_left_is_collected_and_nothing_else(log, task, in_segments):
    made = stream()
    task(made, ["of an attempt that was lost"], partition=0)
    left = files(log)
    named = task(made, ["a"], partition=0)
    made.commit([named], 0)
    stream().commit([task(stream(), ["b"], batch=1, partition=0)], 1)
    for _ in range(3):
        log.maintain("t", grace_ms=0)
    assert len(left) == 1 and not left & files(log)
    assert values(log) == ["a", "b"]
    [report] = log.verify("t")
    assert report.faults == ()


def test_a_slow_batch_meets_the_collector_at_every_step(log, task, in_segments):
    """With no grace at all: it is written whole, or fails and says what to do, and its run again
    is written whole."""
    outcomes = set()
    for number in range(12):
        others = another(log)
        messages = []
        for at in range(3):
            messages.append(task(stream(), [f"{number}-{at}"], at, batch=number, partition=at))
            if number % 4 == at:
                others.maintain("t", grace_ms=0)
                with others.producer() as producer:
                    producer.send("t", b"between", partition=3)
                if number % 2:
                    others.maintain("t", grace_ms=0)
        try:
            stream().commit(messages, number)
            outcomes.add("written")
        except StorageError as error:
            assert "--grace" in str(error)
            outcomes.add("refused")
            assert not any(value.startswith(f"{number}-") for value in values(log))
            again = [task(stream(), [f"{number}-{i}"], i, batch=number, partition=i)
                     for i in range(3)]  # fmt: skip
            stream().commit(again, number)
        mine = sorted(value for value in values(log) if value.startswith(f"{number}-"))
        assert mine == [f"{number}-{i}" for i in range(3)]
    assert outcomes == {"written", "refused"}
    [report] = log.verify("t")
    assert report.faults == ()


# --- topics that come and go -----------------------------------------------------------------


def test_only_what_spark_plans_with_looks_at_the_topic(log, task):
    """The writer that commits or aborts must not fail before it is asked to, nor look again."""
    made = OffsetLogDataSource({"path": "x", "topic": "t"})
    planned = made.streamWriter(ROWS, False)
    message = task(planned, ["a"])
    pickle.loads(pickle.dumps(made)).streamWriter(ROWS, False).commit([message], 0)
    assert values(log) == ["a"]
    log.delete_topic("t", purge=True)
    with pytest.raises(UnknownTopicError, match="no topic 't'"):
        made.streamWriter(ROWS, False)
    late = pickle.loads(pickle.dumps(made)).streamWriter(ROWS, False)
    late.abort([None], 1)
    with pytest.raises(UnknownTopicError, match="Topic 't' was deleted; nothing was written"):
        late.commit([message], 1)


@pytest.mark.parametrize("name", ["A.B", "a_b", "A_b"])
def test_a_topic_beside_one_of_nearly_the_same_name(log, task, name):
    log.create_topic("a.b", partitions=2)
    for more in ({}, {"createtopicpartitions": "3"}):
        with pytest.raises(UnknownTopicError, match=f"no topic '{name}'. Did you mean 'a.b'"):
            stream(topic=name, **more)
        with pytest.raises(UnknownTopicError, match=f"no topic '{name}'. Did you mean 'a.b'"):
            task(by_column(**more), ["x"], topic=name)
    assert entries(log, "a.b") == 1


def test_many_tasks_create_one_topic(log, monkeypatch):
    """Each in a process of its own, none of which knows of the others."""
    processes = [another(log) for _ in range(8)]
    found = []

    def look(process: Log, count: int) -> None:
        found.append(sink_plan.look_up(process, "new", count).partitions)

    threads = [
        threading.Thread(target=look, args=(process, 2 + number % 2))
        for number, process in enumerate(processes)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == 8 and len(set(found)) == 1


def test_a_topic_made_anew_between_the_tasks_of_one_batch(log, task):
    """Nothing of it is written, and its run again is written whole."""
    made = by_column()
    first = task(made, ["a"])
    log.delete_topic("t")
    log.create_topic("t", partitions=4)
    second = task(made, ["b"], 1)
    for messages in ([first], [first, second]):
        with pytest.raises(UnknownTopicError, match="deleted"):
            by_column().commit(messages, 0)
    by_column().commit([task(made, ["a"]), second], 0)
    [kept] = {log.open_topic("t").state().start(p) for p in range(4)}
    assert kept == 0 and sorted(values(log)) == ["a", "b"]
