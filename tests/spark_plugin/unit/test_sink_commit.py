"""Plan, tasks and commit of a write, one after another in this process; no Spark runs here."""

from __future__ import annotations

import pickle

import numpy as np
import pyarrow as pa
import pytest

import offsetlog
from offsetlog.engine.append import writer
from offsetlog.errors import InvalidRequestError, StorageError, UnknownTopicError
from pyspark_offsetlog.options.check import sink_options
from pyspark_offsetlog.sink import task as sink_task
from pyspark_offsetlog.sink.task import TaskMessage
from pyspark_offsetlog.sink.writers import BatchWriter, StreamWriter
from tests.spark_plugin.unit.sink_tools import (
    ROWS,
    batch,
    by_column,
    entries,
    roots,
    scripted_log,
    stream,
    values,
)

log = scripted_log()


def test_a_micro_batch_counts_once_whatever_is_run_again(log, task):
    made = stream()
    messages = [task(made, ["a"], 0, partition=0), None, task(made, ["b"], 1, partition=0)]
    stream().commit(messages, 0)
    assert (values(log), entries(log)) == (["a", "b"], 2)
    stream().commit(messages, 0)
    stream().commit([task(stream(), ["other", "rows"])], 0)
    stream().commit([task(stream(), ["c"], batch=1, partition=0)], 1)
    stream().commit(messages, 0)
    assert (values(log), entries(log)) == (["a", "b", "c"], 3)
    stream().commit([task(stream(), ["of another query"], query="r", partition=0)], 0)
    assert len(values(log)) == 4


OLD, NEW = "0f8e5f3c-0000-4000-8000-00000000000a", "0f8e5f3c-0000-4000-8000-00000000000b"


def test_a_batch_that_is_run_again_under_another_query_id_is_refused(log, task):
    """Spark before 4.2 makes up a new id when a checkpoint's metadata is lost."""

    def commit(values, number, query):
        message = task(stream(), values, query=query, batch=number, partition=0)
        stream().commit([message], number)

    for number in range(4):
        commit(["a", "b"], number, OLD)
    with pytest.raises(InvalidRequestError, match=f"batch 3 of the query {OLD} with as many") as e:
        commit(["a", "b"], 3, NEW)
    assert f'Put the file back: {{"id":"{OLD}"}}' in str(e.value)
    assert len(values(log)) == 8
    # A new query begins at 0; and one that comes later has other numbers, or other rows.
    commit(["c"], 0, NEW)
    commit(["d"], 3, NEW)
    commit(["e", "f"], 4, "0f8e5f3c-0000-4000-8000-00000000000c")
    commit(["e", "f", "g"], 3, "0f8e5f3c-0000-4000-8000-00000000000d")
    # Two queries that were started together have the same numbers, and may have as many records.
    commit(["g", "h"], 3, "0f8e5f3c-0000-4000-8000-00000000000f")
    # Whoever writes with a key of his own is no query.
    batch(txnappid="job", txnversion="9").commit([task(batch(), ["x"], partition=0)])
    commit(["x"], 9, "0f8e5f3c-0000-4000-8000-00000000000e")


def test_an_abort_leaves_everything_where_it_is(log, task, monkeypatch):
    monkeypatch.setattr(sink_task, "MESSAGE_BYTES", 0)
    message = task(stream(), ["a"], partition=0)
    [part] = message.shares[0].parts
    stream().abort([message, None], 0)
    batch().abort([message])
    stream().commit([message], 0)
    assert values(log) == ["a"] and part.segment is not None


def test_a_write_without_rows_is_no_entry(log, task):
    stream().commit([], 0)
    stream().commit([None], 0)
    stream().commit([task(stream(), []), task(stream(), [], 1)], 0)
    batch().commit([None, task(batch(), [])])
    assert entries(log) == 1


def test_tasks_that_belong_to_no_query_or_to_two(log, task):
    one, two = task(stream(), ["a"]), task(stream(), ["b"], query="other")
    nobody = task(stream(), ["a"], query=None)
    for messages in ([one, two], [nobody], [one, nobody]):
        with pytest.raises(InvalidRequestError, match="which query they belong to"):
            stream().commit(messages, 0)
    assert entries(log) == 1


def test_a_batch_write_with_a_key_of_its_own(log, task):
    for version, value in ((3, "a"), (3, "again"), (2, "older"), (4, "b")):
        made = batch(txnappid="job", txnversion=str(version))
        made.commit([task(made, [value], partition=0)])
    assert values(log) == ["a", "b"]


def test_a_batch_write_without_a_key_is_written_each_time(log, task):
    for _ in range(2):
        made = batch()
        made.commit([task(made, ["a"], partition=0)])
    assert values(log) == ["a", "a"]
    state = log.open_topic("t").refresh()
    assert len(state.own) == 2 and len(state.callers) == 0


def test_a_stream_takes_no_transaction_of_a_user(log):
    with pytest.raises(InvalidRequestError, match="txnAppId and txnVersion are set for a stream"):
        stream(txnappid="job", txnversion="1")


def test_several_topics_in_one_batch(log, task):
    log.create_topic("u", partitions=2)
    message = task(by_column(), ["a", "b", "c"], topic=["t", "u", "t"], partition=1)
    for _ in range(2):
        by_column().commit([message], 7)
    assert (values(log), values(log, "u")) == (["a", "c"], ["b"])
    assert (entries(log), entries(log, "u")) == (2, 2)


def test_an_error_says_which_topics_were_written_before_it(log, task):
    log.create_topic("u", partitions=2)
    for made, hint in (
        (by_column(), "Start the query again"),
        (
            by_column(BatchWriter, txnappid="a", txnversion="1"),
            "Write it again with the same txnAppId",
        ),
        (by_column(BatchWriter), "Look at the topic before writing again"),
    ):
        message = task(made, ["a", "b"], topic=["t", "u"], partition=0)
        log.store.script = ["ok", "refused"]
        with pytest.raises(StorageError, match=f"Written before it: t. .*{hint}") as error:
            made.commit([message], *([0] if isinstance(made, StreamWriter) else []))
        assert error.value.may_have_landed
    assert values(log, "u") == []
    log.store.script = []
    by_column().commit([task(by_column(), ["a", "b"], topic=["t", "u"], partition=0)], 0)
    assert (len(values(log)), values(log, "u")) == (3, ["b"])


def test_what_is_wrong_with_a_later_topic_is_still_said(log, task):
    log.create_topic("u", partitions=2)
    made = by_column(BatchWriter, txnappid="a", txnversion="1")
    message = task(made, ["a", "b"], topic=["t", "u"], partition=0)
    log.delete_topic("u")
    told = "Topic 'u' was deleted.*Written before it: t. Create it again.*Write it again with"
    with pytest.raises(UnknownTopicError, match=told):
        made.commit([message])
    log.create_topic("u", partitions=2)
    made.commit([task(made, ["a", "b"], topic=["t", "u"], partition=0)])
    assert (values(log), values(log, "u")) == (["a"], ["b"])


def test_an_answer_that_never_came_is_told_as_such(log, task, monkeypatch):
    monkeypatch.setattr(writer, "DELIVERY_SECONDS", 0.05)
    made = stream()
    message = task(made, ["a"], partition=0)
    log.store.script, log.store.fail_reads = ["lost"] + ["unknown"] * 500, 0
    log.store.after_put = lambda name: setattr(log.store, "fail_reads", 500)
    with pytest.raises(StorageError, match="Start the query again: it runs the batch again"):
        made.commit([message], 0)
    log.store.script, log.store.fail_reads = [], 0
    log.store.after_put = lambda name: None
    stream().commit([message], 0)
    assert values(log) == ["a"]


def test_a_refusal_says_that_nothing_was_written(log, task):
    made = stream()
    message = task(made, ["a"], partition=0)
    log.store.script = ["refused"]
    with pytest.raises(StorageError, match="disk is full") as error:
        made.commit([message], 0)
    assert not error.value.may_have_landed
    assert "Start the query again" not in str(error.value)


# --- topics --------------------------------------------------------------------------------


def test_topics_that_are_not_there(log, task):
    with pytest.raises(UnknownTopicError, match="no topic 'nope'.*createTopicPartitions"):
        stream(topic="nope")
    with pytest.raises(UnknownTopicError, match="no topic 'nope'.*createTopicPartitions"):
        task(by_column(), ["a"], topic="nope")
    with pytest.raises(UnknownTopicError, match="Did you mean 'tt'"):
        log.create_topic("tt")
        stream(topic="TT", createtopicpartitions="2")
    with pytest.raises(InvalidRequestError, match="not a legal topic name"):
        task(by_column(), ["a"], topic="a/b")
    with pytest.raises(InvalidRequestError, match="null in column 'topic'"):
        task(by_column(), ["a", "b"], topic=["t", None])


def test_a_log_that_is_not_there():
    options = {"path": f"memory://nothing-{next(roots)}"}
    for made in (StreamWriter, BatchWriter):
        for more in ({}, {"topic": "t"}):
            with pytest.raises(InvalidRequestError, match="There is no log at memory://nothing"):
                made(sink_options({**options, **more}), ROWS)


def test_topics_that_are_created(log, task):
    assert stream(topic="new", createtopicpartitions="3").plan.topic.partitions == 3
    assert stream(topic="new", createtopicpartitions="9").plan.topic.partitions == 3
    made = by_column(createtopicpartitions="2")
    made.commit([task(made, ["a", "b"], topic=["fresh", "new"])], 0)
    assert len(log.topic("fresh").describe().partitions) == 2
    assert (values(log, "fresh"), values(log, "new")) == (["a"], ["b"])


def test_two_creators_at_once(log, monkeypatch):
    """Between the look and the creation somebody else creates it."""
    create = log.create_topic

    def late(name, partitions):
        create(name, 5)
        return create(name, partitions)

    monkeypatch.setattr(log, "create_topic", late)
    assert stream(topic="new", createtopicpartitions="3").plan.topic.partitions == 5


def test_a_topic_that_grows_while_a_batch_is_written(log, task):
    """The tasks of one write hash with one count, whatever they could see by themselves."""
    made = stream()
    log.topic("t").alter(partitions=9)
    keys = [b"%d" % i for i in range(50)]
    made.commit([task(made, ["x"] * 50, keys=keys), task(made, ["x"] * 50, 1, keys=keys)], 0)
    assert set(log.topic("t").end_offsets().values()) - {0} and len(values(log)) == 100
    assert all(log.topic("t").end_offsets()[partition] == 0 for partition in range(4, 9))


# --- rows ----------------------------------------------------------------------------------


def test_rows_without_a_key_go_to_a_partition_for_each_task_and_batch(log, task):
    made = stream()
    for number in range(4):
        made.commit([task(made, ["x"] * 3, t, batch=number) for t in range(2)], number)
    assert log.topic("t").end_offsets() == dict.fromkeys(range(4), 6)


def test_few_rows_travel_in_the_message_and_many_in_segments(log, task, monkeypatch):
    made = stream()
    few = task(made, ["x"])
    assert few.shares[0].rows and not few.shares[0].parts
    many = task(made, ["x" * 1000] * 300)
    assert many.shares[0].parts and not many.shares[0].rows
    late = task(made, ["x" * 1000] * 100, task=200)
    assert late.shares[0].parts and not late.shares[0].rows
    monkeypatch.setattr(sink_task, "BUFFER_BYTES", 50_000)
    monkeypatch.setattr("pyspark_offsetlog.sink.from_spark.MAX_BYTES", 25_000)
    both = task(made, [f"{i:05}" * 200 for i in range(230)], partition=2)
    assert len(both.shares[0].parts) == 3 and both.shares[0].rows
    made.commit([both], 0)
    assert values(log) == [f"{i:05}" * 200 for i in range(230)]


def test_messages_are_plain_and_small(log, task):
    message = task(stream(), ["x"])
    assert isinstance(message, TaskMessage) and b"pyarrow" not in pickle.dumps(message)
    assert "t" in repr(message) and "x" not in repr(message)


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"txnappid": "a"}, "The option txnAppId is set and txnVersion is not"),
        ({"txnversion": "1"}, "The option txnVersion is set and txnAppId is not"),
        ({"txnappid": "a", "txnversion": "-1"}, "txnVersion cannot be '-1'"),
        ({"txnappid": "a", "txnversion": "3.7"}, "txnVersion cannot be '3.7'"),
    ],
)
def test_a_transaction_that_is_not_whole(options, told):
    """Where Delta's extension is in the session, that finds it first."""
    with pytest.raises(InvalidRequestError, match=told):
        sink_options({"path": "x", "topic": "t", **options})


def test_no_secret_is_told(task):
    options = {"path": "s3://bucket/log", "topic": "t", "storage.secret": "hunter2"}
    assert "hunter2" not in repr(sink_options(options))
    with pytest.raises(offsetlog.OffsetLogError) as error:
        BatchWriter(sink_options({**options, "path": f"memory://n{next(roots)}"}), ROWS)
    assert "hunter2" not in str(error.value) and "hunter2" not in repr(error.value)


def test_time_of_append(log, task):
    log.create_topic("stamped", partitions=1, config={"message.timestamp.type": "LogAppendTime"})
    made = stream(topic="stamped")
    made.commit([task(made, ["a"])], 0)
    [found] = log.open_topic("stamped").reader.read(0, 0, 1)
    assert found.table.column("timestamp").cast(pa.int64()).to_pylist()[0] > 1_600_000_000_000
    with log.consumer(auto_offset_reset="earliest") as consumer:
        consumer.assign([("stamped", 0)])
        [record] = consumer.poll(timeout=0)
    assert record.timestamp_type == 1


def test_snapshots_are_stored_as_a_stream_goes_on(log, task):
    for number in range(300):
        stream().commit([task(stream(), ["x"], batch=number)], number)
    assert any(log.store.list("t/_snapshot")) and len(values(log)) == 300
    assert np.sum(list(log.topic("t").end_offsets().values())) == 300
