"""A keyed producer: one batch for each topic under a sequence, once, with the rows it was sent."""

from __future__ import annotations

import gc
import os
import subprocess
import sys
import threading
import time
import warnings
from decimal import Decimal

import numpy as np
import pyarrow as pa
import pytest

import offsetlog
from offsetlog import InvalidRequestError, OffsetLogWarning, StorageError
from offsetlog.core.topic.entry import LOG_APPEND_TIME
from offsetlog.engine.append import sequence_target
from offsetlog.engine.topic.recent_entries import RecentEntries
from offsetlog.storage.local.disk import LocalStore
from tests.engine.append.test_open_fates import keyed, values_of
from tests.engine.scripted import OneTopicHost, topic

pytestmark = pytest.mark.root_in("local", "memory")


def values(log, name: str = "t") -> list[bytes]:
    with log.consumer(topics=[name], auto_offset_reset="earliest") as consumer:
        out: list[bytes] = []
        while records := consumer.poll(max_records=10_000):  # A slow one returns a part.
            out += [record.value for record in records]
        return out


def send(log, sequence: int, *records: bytes, keys: bool = False):
    with log.producer(app_id="loader", sequence=sequence) as producer:
        futures = [producer.send("t", v, v if keys else None) for v in records]
    return [future.result() for future in futures]


@pytest.mark.parametrize("closing", ["flush", "result", "exception"])
def test_the_first_flush_or_result_closes_a_sequence(log, closing):
    log.create_topic("t")
    log.create_topic("u")
    producer = log.producer(app_id="loader", sequence=17)
    future = producer.send("t", b"one")
    if closing == "flush":
        producer.flush()
    else:
        getattr(future, closing)()
    with pytest.raises(InvalidRequestError, match="No more records are taken for sequence 17"):
        producer.send("t", b"two")
    with pytest.raises(InvalidRequestError, match="sequence 17"):
        producer.send_arrow("t", pa.table({"value": [b"two"]}))
    producer.send("u", b"another topic has a batch of its own")
    producer.close()
    assert values(log) == [b"one"]
    assert len(values(log, "u")) == 1
    # The next run's batch is written, as no number was taken behind its back.
    send(log, 18, b"eighteen")
    assert values(log) == [b"one", b"eighteen"]


def test_result_for_each_record_does_not_take_the_next_runs_sequence(log):
    log.create_topic("t")
    producer = log.producer(app_id="loader", sequence=17)
    with pytest.raises(InvalidRequestError, match="sequence 17"):
        for value in (b"one", b"two"):
            producer.send("t", value).result()
    send(log, 18, b"eighteen")
    assert values(log) == [b"one", b"eighteen"]


def test_other_records_under_a_used_sequence_are_an_error_whoever_asks(log):
    """Also as many of them, and also when only ``flush`` is called."""
    log.create_topic("t")
    first = send(log, 17, b"one", b"two")
    assert [m[:3] for m in send(log, 17, b"one", b"two")] == [m[:3] for m in first]
    for other in ([b"one", b"three"], [b"one"], [b"two", b"one"]):
        with offsetlog.open(log.url) as fresh:
            producer = fresh.producer(app_id="loader", sequence=17)
            future = [producer.send("t", value) for value in other][-1]
            with pytest.raises(InvalidRequestError, match="was used for other records") as error:
                producer.flush()
            assert not error.value.may_have_landed
            assert isinstance(future.exception(), InvalidRequestError)
            producer.close()
    assert values(log) == [b"one", b"two"]


def test_a_table_and_single_records_with_the_same_rows_are_the_same_batch(log):
    log.create_topic("t", partitions=3)
    [a, b] = send(log, 17, b"one", b"two")
    with log.producer(app_id="loader", sequence=17) as producer:
        future = producer.send_arrow("t", pa.table({"value": [b"one", b"two"]}))
    assert [future.metadata(i)[:3] for i in range(2)] == [a[:3], b[:3]]


def test_an_honest_retry_after_partitions_were_added_is_no_error_and_tells_the_true_places(log):
    log.create_topic("t", partitions=2)
    records = [b"%d" % i for i in range(40)]
    first = send(log, 17, *records, keys=True)
    first_without = send(log, 18, b"no key")
    log.topic("t").alter(partitions=7)
    with offsetlog.open(log.url) as fresh:
        again = send(fresh, 18, b"no key")
        assert [m[:3] for m in again] == [m[:3] for m in first_without]
        with pytest.raises(InvalidRequestError, match="used for other records"):
            send(fresh, 18, b"another")
        with pytest.raises(InvalidRequestError, match="is below 18"):
            send(fresh, 17, *records, keys=True)
    send(log, 19, *records, keys=True)
    log.topic("t").alter(partitions=11)
    with offsetlog.open(log.url) as fresh:
        told = send(fresh, 19, *records, keys=True)
        by_place = {}
        with fresh.consumer(topics=["t"], auto_offset_reset="earliest") as consumer:
            # On a busy machine one poll gives up on some partitions.
            while len(by_place) < 2 * len(first) + 1:
                for record in consumer.poll(timeout=5, max_records=10_000):
                    by_place[record.partition, record.offset] = record.value
        assert [by_place[m.partition, m.offset] for m in told] == records
    assert len(by_place) == 2 * len(first) + 1


def test_a_named_partition_that_was_not_there_is_another_batch(log):
    log.create_topic("t", partitions=1)
    send(log, 17, b"one")
    log.topic("t").alter(partitions=3)
    producer = log.producer(app_id="loader", sequence=17)
    producer.send("t", b"one", partition=2)
    with pytest.raises(InvalidRequestError, match="used for other records"):
        producer.flush()


def test_other_records_after_a_write_that_surely_did_not_happen_are_taken(tmp_path):
    store, handle = topic()
    store.script = ["refused"]
    producer = keyed(handle)
    future = producer.send("t", b"one", partition=0)
    with pytest.raises(StorageError) as error:
        producer.flush()
    assert not error.value.may_have_landed and not future.exception().may_have_landed
    with pytest.raises(InvalidRequestError, match="nothing of it was written"):
        producer.send("t", b"more", partition=0)
    producer.close()
    other = keyed(handle)
    other.send("t", b"two", partition=0)
    other.flush()
    assert values_of(handle) == [b"two"]


def test_a_failure_of_one_topic_does_not_keep_the_others_from_being_written(log):
    log.create_topic("t")
    log.create_topic("u")
    producer = log.producer(app_id="loader", sequence=1)
    producer.send("t", b"one")
    producer.send("u", b"two")
    log.delete_topic("t")
    with pytest.raises(InvalidRequestError, match="'t' was deleted"):
        producer.flush()
    assert values(log, "u") == [b"two"]


@pytest.mark.parametrize("then", ["at once", "by another program", "after upkeep"])
@pytest.mark.parametrize("size", [10, 200_000])
def test_a_repeat_is_told_the_times_that_are_stored(tmp_path, size, then):
    """Or none, where many times lie in a file; never those of the repeat."""
    root = str(tmp_path / "log")

    def sent(log, pause: float = 0.0) -> list[offsetlog.RecordMetadata]:
        with log.producer(app_id="loader", sequence=1) as producer:
            futures = []
            for number in range(4):
                futures.append(producer.send("t", b"%d" % number * size, key=b"%d" % number))
                time.sleep(pause)
        with log.producer(app_id="tables", sequence=1) as producer:
            values = [b"%d" % number * size for number in range(4)]
            result = producer.send_arrow("t", pa.table({"value": values}))
            producer.flush()
            return [f.result() for f in futures] + [result.metadata(n) for n in range(4)]

    with offsetlog.open(root) as log:
        log.create_topic("t", partitions=2)
        first = sent(log, 0.005)
        if then == "after upkeep":
            log.maintain(grace_ms=0)
        again = sent(log) if then == "at once" else None
    with offsetlog.open(root) as log:
        again = again or sent(log)
        with log.consumer(topics=["t"], auto_offset_reset="earliest") as consumer:
            stored = {}
            while records := consumer.poll():
                stored |= {(r.partition, r.offset): r.timestamp for r in records}
    assert [m[:3] for m in again] == [m[:3] for m in first]
    assert [m.timestamp for m in first] == [stored[m[1:3]] for m in first]
    known = [m for m in again if m.timestamp != -1]
    assert [m.timestamp for m in known] == [stored[m[1:3]] for m in known]
    assert len(known) >= (4 if size > 10 or then == "after upkeep" else 8)


@pytest.mark.parametrize(
    "bad", [17.9, 17.0, True, False, Decimal(17), "17", None, -1, 2**63, np.float64(17), np.True_]
)
def test_a_sequence_is_a_whole_number(log, bad):
    log.create_topic("t")
    with pytest.raises(InvalidRequestError, match="sequence|belong together"):
        log.producer(app_id="loader", sequence=bad)
    if bad is not None:
        with pytest.raises(InvalidRequestError, match="batch_bytes"):
            log.producer(batch_bytes=bad)


def test_numpys_whole_numbers_are_whole_numbers(log):
    log.create_topic("t")
    with log.producer(app_id="a", sequence=np.int64(17), batch_bytes=np.uint32(4096)) as producer:
        producer.send("t", b"one")
    assert send_again(log) == 0


def send_again(log) -> int:
    with log.producer(app_id="a", sequence=17) as producer:
        future = producer.send("t", b"one")
    return future.result().offset


def test_an_app_id_that_is_no_text_is_refused_at_the_door(log):
    log.create_topic("t")
    with pytest.raises(InvalidRequestError, match="can be written as UTF-8"):
        log.producer(app_id="loader-\udcff", sequence=1)


# --- the end of it -------------------------------------------------------------------------


def test_send_after_close_is_refused(log):
    log.create_topic("t")
    for producer in (log.producer(), log.producer(app_id="a", sequence=1)):
        future = producer.send("t", b"one")
        producer.close()
        assert future.result().topic == "t"
        with pytest.raises(InvalidRequestError, match="producer is closed"):
            producer.send("t", b"two")
    assert values(log) == [b"one", b"one"]


def test_a_lane_that_was_at_hand_when_its_producer_was_closed_takes_nothing_more(log):
    """A thread that was about to send while another one closed the producer."""
    log.create_topic("t")
    producer = log.producer(app_id="a", sequence=1)
    with pytest.raises(InvalidRequestError):
        producer.send("t", b"x", partition=5)
    lane = producer._topics["t"]
    producer.close()
    with pytest.raises(InvalidRequestError, match="producer was closed"):
        lane.room_for(1, 0.0, producer)


def test_a_log_that_is_closed_names_what_was_never_flushed(tmp_path):
    with offsetlog.open(str(tmp_path / "log")) as log:
        log.create_topic("t")
    said = "The log was closed before flush.*sequence 5 of app_id 'loader' for topic 't'.*2 rec"
    log = offsetlog.open(str(tmp_path / "log"))
    with pytest.raises(InvalidRequestError, match=said), log:
        producer = log.producer(app_id="loader", sequence=5)
        futures = [producer.send("t", b"%d" % i) for i in range(2)]
    assert isinstance(futures[0].exception(), InvalidRequestError)
    with offsetlog.open(str(tmp_path / "log")) as log:
        assert values(log) == []


def test_a_log_that_is_closed_names_what_was_dropped_before(tmp_path):
    def load(log) -> None:
        log.producer(app_id="loader", sequence=5).send("t", b"x")

    log = offsetlog.open(str(tmp_path / "log"))
    with pytest.raises(InvalidRequestError, match="sequence 5 .* was dropped before flush"), log:
        log.create_topic("t")
        with pytest.warns(
            offsetlog.OffsetLogWarning, match=r"dropped before flush\(\) \(1 record\)"
        ):
            load(log)
            gc.collect()


def test_what_ended_the_block_is_not_hidden_by_what_was_not_flushed(tmp_path):
    with pytest.raises(ZeroDivisionError), offsetlog.open(str(tmp_path / "log")) as log:
        log.create_topic("t")
        producer = log.producer(app_id="loader", sequence=5)
        producer.send("t", b"x")
        1 / 0  # noqa: B018


def test_a_producer_left_by_an_exception_with_an_open_fate_says_so():
    store, handle = topic()
    store.script = ["lost"] + ["unknown"] * 4
    producer = keyed(handle)
    with pytest.raises(KeyboardInterrupt), producer:
        future = producer.send("t", b"x", partition=0)
        with pytest.raises(StorageError):
            producer.flush()
        raise KeyboardInterrupt
    assert future.exception().may_have_landed
    again = keyed(handle)
    future = again.send("t", b"x", partition=0)
    again.flush()
    assert future.result().offset == 0
    assert values_of(handle) == [b"x"]


def test_a_producer_left_while_it_was_writing_says_that_it_may_be_there():
    store, handle = topic()
    producer = keyed(handle)

    def interrupt(name: str) -> None:
        store.after_put = lambda name: None
        raise KeyboardInterrupt

    store.after_put = interrupt
    with pytest.raises(KeyboardInterrupt), producer:
        future = producer.send("t", b"x", partition=0)
        producer.flush()
    assert future.exception().may_have_landed
    assert values_of(handle) == [b"x"]


def test_a_sequence_whose_flush_was_interrupted_is_finished_by_whoever_asks_next():
    store, handle = topic()
    producer = keyed(handle)
    future = producer.send("t", b"x", partition=0)

    def interrupt(name: str) -> None:
        store.after_put = lambda name: None
        raise KeyboardInterrupt

    store.after_put = interrupt
    with pytest.raises(KeyboardInterrupt):
        producer.flush()
    with pytest.raises(InvalidRequestError, match="fate of sequence 7"):
        producer.send("t", b"more", partition=0)
    told = []
    other = threading.Thread(target=lambda: told.append(future.result(5)))
    other.start()
    other.join(10)
    assert told[0].offset == 0
    assert values_of(handle) == [b"x"]


def test_the_first_records_after_a_switch_to_append_time_have_it(log):
    log.create_topic("t")
    for producer in (log.producer(), log.producer(app_id="a", sequence=1)):
        log.topic("t").alter(config={"message.timestamp.type": "CreateTime"})
        future = producer.send("t", b"one", timestamp=5)
        other = None
        if producer._sender is None:
            future.result()
            log.topic("t").alter(config={"message.timestamp.type": "LogAppendTime"})
            other = producer.send("t", b"two", timestamp=5)
        else:
            log.topic("t").alter(config={"message.timestamp.type": "LogAppendTime"})
            other = future
        assert other.result().timestamp > 1_600_000_000_000


@pytest.mark.parametrize(
    "before, after", [("CreateTime", "LogAppendTime"), ("LogAppendTime", "CreateTime")]
)
@pytest.mark.parametrize("given", [{}, {"app_id": "a", "sequence": 1}])
def test_a_switch_while_a_batch_is_written_leaves_its_times_true(
    log, monkeypatch, given, before, after
):
    log.create_topic("t", config={"message.timestamp.type": before})
    writer = log.open_topic("t").writer
    append = writer.append

    def late(*args):
        log.topic("t").alter(config={"message.timestamp.type": after})
        return append(*args)

    monkeypatch.setattr(writer, "append", late)
    with log.producer(**given) as producer:
        producer.send("t", b"one", timestamp=5)
    with log.consumer(topics=["t"], auto_offset_reset="earliest") as consumer:
        [record] = consumer.poll()
    said = record.timestamp_type == LOG_APPEND_TIME
    assert (record.timestamp > 5) == said == (before == "LogAppendTime")


# --- durable -------------------------------------------------------------------------------


class Recorder(LocalStore):
    def __init__(self, root: str) -> None:
        super().__init__(root)
        self.settled: list[str] = []

    def settle(self, folder: str) -> None:
        self.settled.append(folder)
        super().settle(folder)


def test_a_batch_that_is_sent_again_is_made_durable_before_it_is_acknowledged(tmp_path):
    """Its first writer may have died between the link and the fsync of the folder."""
    from offsetlog.engine.env import REAL
    from offsetlog.engine.topic.open_topic import OpenTopic

    with offsetlog.open(str(tmp_path)) as log:
        log.create_topic("t")
        send(log, 1, b"one")
    store = Recorder(str(tmp_path))
    handle = OpenTopic(store, "t", REAL, None)
    from offsetlog.client.producer import Producer

    producer = Producer(OneTopicHost(handle), app_id="loader", sequence=1)
    future = producer.send("t", b"one")
    assert future.result().offset == 0
    assert store.settled == ["t/_log/0000000000000000"]


def test_a_batch_that_cannot_be_made_durable_is_not_acknowledged(tmp_path, monkeypatch):
    store, handle = topic()
    first = keyed(handle)
    first.send("t", b"x", partition=0)
    first.flush()

    def broken(folder: str) -> None:
        raise StorageError(f"Could not sync {folder}.")

    monkeypatch.setattr(store, "settle", broken)
    again = keyed(handle)
    future = again.send("t", b"x", partition=0)
    with pytest.raises(StorageError) as error:
        again.flush()
    assert error.value.may_have_landed
    monkeypatch.undo()
    again.flush()
    assert future.result().offset == 0


def test_a_batch_that_is_there_and_cannot_be_looked_at_is_not_said_to_be_missing():
    store, handle = topic()
    first = keyed(handle)
    first.send("t", b"x", partition=0)
    first.flush()
    handle.chain._recent = RecentEntries(0).of_chain()
    store.fail_reads = 1
    again = keyed(handle)
    again.send("t", b"x", partition=0)
    with pytest.raises(StorageError) as error:
        again.flush()
    assert error.value.may_have_landed
    again.flush()


def test_an_own_landing_that_was_met_behind_conflicts_is_made_durable(tmp_path):
    """The put at its name got no answer (its folder was not synced), the next names were
    others', and only a look at the chain finds it."""
    store, handle = topic()
    settled = []
    store.settle = settled.append  # type: ignore[method-assign]
    store.script = ["lost", *["hidden"] * 20]
    producer = keyed(handle)
    future = producer.send("t", b"x", partition=0)
    producer.flush()
    assert future.result().offset == 0
    assert settled == ["t/_log/0000000000000000"]


# --- scripts -------------------------------------------------------------------------------

SCRIPT = """
import sys, offsetlog
root, how = sys.argv[1:]
log = offsetlog.open(root)
def main():
    if how == "keyed":
        producer = log.producer(app_id="loader", sequence=3)
    else:
        producer = log.producer(linger_ms=0 if how == "at once" else 60_000)
    for i in range(1000):
        producer.send("t", b"%d" % i, b"%d" % i)
    return producer
kept = main()
if how == "big":
    kept.send_arrow("t", __import__("pyarrow").table({"value": [b"x" * 400_000, b"y" * 400_000],
                    "partition": [0, 1]}))
if how == "fails":
    log.delete_topic("t")
"""


@pytest.mark.parametrize(
    "how, there", [("at once", 1000), ("later", 1000), ("big", 1002), ("keyed", 0), ("fails", 0)]
)
def test_a_script_that_ends_without_closing_its_log(tmp_path, how, there):
    root = str(tmp_path / "log")
    with offsetlog.open(root) as log:
        log.create_topic("t", partitions=2)
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT, root, how],
        capture_output=True, text=True, timeout=60, env={**os.environ}, check=True,
    )  # fmt: skip
    if how == "keyed":
        assert "The program ended before flush(): nothing of sequence 3" in done.stderr
    elif how == "fails":
        assert "Not acknowledged for topic 't': 1000 records." in done.stderr
        return
    else:
        assert done.stderr == ""
    with offsetlog.open(root) as log:
        assert sum(log.topic("t").end_offsets().values()) == there


# --- what was sent again, and what was never tried ------------------------------------------


def test_what_was_dropped_is_forgotten_once_its_sequence_is_acknowledged(log):
    """The loop that the documentation advises: after a failure all of it goes to a new producer."""
    log.create_topic("t")
    with pytest.warns(OffsetLogWarning, match="was dropped before flush"):
        producer = log.producer(app_id="nightly", sequence=1)
        producer.send("t", b"a")
        del producer
        gc.collect()
    kept = log.producer(app_id="nightly", sequence=1)
    kept.send("t", b"a")
    with log.producer(app_id="nightly", sequence=2) as producer:
        producer.send("t", b"a")
    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        del kept
        gc.collect()
    assert not warned
    log.close()


@pytest.mark.parametrize("table", [False, True])
def test_what_failed_before_it_was_sent_was_not_written_and_says_so(log, monkeypatch, table):
    log.create_topic("t")
    producer = log.producer(app_id="a", sequence=1)
    if table:
        future = producer.send_arrow("t", pa.table({"value": [b"x", b"y"]}))
    else:
        future = producer.send("t", b"x")

    def full(*given):
        raise MemoryError("no room")

    monkeypatch.setattr(sequence_target, "prepare", full)
    with pytest.raises(StorageError, match="Nothing was written") as error:
        producer.flush()
    assert not error.value.may_have_landed
    monkeypatch.undo()
    producer.flush()  # It is decided, and was said.
    assert not future.exception().may_have_landed
    with pytest.raises(InvalidRequestError, match="nothing of it was written"):
        producer.send("t", b"z")
    [again] = send(log, 1, b"x")
    assert again.offset == 0
    log.close()


def test_a_first_send_that_was_interrupted_leaves_nothing_to_write(log):
    """Ctrl-C after the batch was made, and before its record was added."""
    log.create_topic("t")
    producer = log.producer(app_id="a", sequence=1)
    lane = producer._target("t")
    with lane.lock:
        lane.room_for(10, 0.0, producer)
    producer.flush()
    producer.send("t", b"x")
    producer.flush()
    left = log.producer(app_id="a", sequence=2)
    lane = left._target("t")
    with lane.lock:
        lane.room_for(10, 0.0, left)
    log.close()
