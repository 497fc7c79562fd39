"""A log that was used before a fork belongs to the parent: in the child everything refuses by one
error and hangs nowhere, the parent goes on, and the child may open the log for itself."""

from __future__ import annotations

import os
import signal
import sys
import traceback

import pyarrow as pa
import pytest

import offsetlog
from offsetlog import InvalidRequestError

if not hasattr(os, "fork"):
    pytest.skip("this system has no fork", allow_module_level=True)


def in_child(call) -> str:
    """What ``call`` said in a forked process: its result, or its error."""
    reading, writing = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.close(reading)
        signal.alarm(20)  # A child that hangs is ended.
        try:
            said = repr(call())
        except BaseException as error:
            said = f"{type(error).__name__}: {error}"
            if not isinstance(error, InvalidRequestError):
                traceback.print_exc(file=sys.stderr)
        os.write(writing, said.encode())
        os._exit(0)
    os.close(writing)
    with os.fdopen(reading, "rb") as pipe:
        said = pipe.read().decode()
    os.waitpid(pid, 0)
    return said or "the child hung"


REFUSED = (
    "InvalidRequestError: This log was opened before the process was forked. Open it again in "
    "the child process, or start that with multiprocessing's 'spawn'."
)


@pytest.fixture(autouse=True)
def topic(log):
    log.create_topic("t", partitions=2)


def fill(log, count: int = 3, size: int = 1) -> None:
    with log.producer() as producer:
        for i in range(count):
            producer.send_arrow(
                "t", pa.table({"value": [b"x" * size] * 3, "partition": [i % 2] * 3})
            )


def test_senders_of_the_parent_refuse_in_a_child(log):
    unkeyed, later = log.producer(), log.producer(linger_ms=60_000)
    keyed, gathered = (log.producer(app_id="a", sequence=n) for n in (1, 2))
    done = unkeyed.send("t", b"one")
    done.result()
    waiting = later.send("t", b"two")
    keyed.send("t", b"three").result()
    number_two = gathered.send("t", b"four")
    for call in (
        lambda: unkeyed.send("t", b"child"),
        lambda: unkeyed.send_arrow("t", pa.table({"value": [b"child"]})),
        lambda: unkeyed.flush(),
        lambda: later.send("t", b"child"),
        lambda: waiting.result(),
        lambda: keyed.send("t", b"child"),
        lambda: gathered.send("t", b"child"),
        lambda: gathered.flush(),
        lambda: number_two.result(),
        lambda: log.producer(),
        lambda: log.producer(app_id="a", sequence=3),
    ):
        assert in_child(call) == REFUSED
    for call in (unkeyed.close, later.close, gathered.close, log.close):
        assert in_child(call) == "None"
    assert in_child(done.result).startswith("RecordMetadata")
    # Nothing of the child is there, and the parent goes on.
    later.flush()
    gathered.flush()
    assert number_two.result().topic == "t"
    assert sum(log.topic("t").end_offsets().values()) == 4


def test_a_fork_while_a_lock_is_held_hangs_nobody(log):
    """The thread that holds it is not there in the child."""
    fill(log)
    producer = log.producer()
    producer.send("t", b"x").result()
    handle = log.open_topic("t")
    consumer = log.consumer(topics=["t"])
    with log.group_commit("t").lock, handle.stored._opening, handle.chain._lock, log._topics.lock:
        for call in (
            lambda: producer.send("t", b"x"),
            lambda: producer.flush(),
            lambda: log.topic("t").end_offsets(),
            lambda: consumer.poll(),
            lambda: log.consumer(topics=["t"]),
            lambda: log.maintain(),
        ):
            assert in_child(call) == REFUSED


def test_readers_of_the_parent_refuse_in_a_child(log):
    """Files of a megabyte are read ahead by threads that the child does not have."""
    fill(log, 6, 600_000)
    view = log.topic("t")
    consumer = log.consumer(topics=["t"], auto_offset_reset="earliest")
    assert consumer.poll(max_records=1)
    handle = log.open_topic("t")
    for call in (
        lambda: consumer.poll(max_records=100),
        lambda: consumer.poll_arrow(),
        lambda: consumer.seek_to_beginning(),
        lambda: view.end_offsets(),
        lambda: view.describe(),
        lambda: view.offsets_for_times({0: 0}),
        lambda: view.delete_records({0: 1}),
        lambda: view.alter(partitions=3),
        lambda: log.topics(),
        lambda: log.topic("t"),
        lambda: log.create_topic("u"),
        lambda: log.delete_topic("t"),
        lambda: log.maintain(),
        lambda: log.verify(),
        lambda: list(handle.reader.read(0, 0, 6)),
        lambda: log._pool.submit(print),
    ):
        assert in_child(call) == REFUSED
    assert in_child(consumer.close) == "None"
    count = 1
    while count < 18:
        count += len(consumer.poll(timeout=1, max_records=100))
    assert count == 18
    assert log.topic("t").end_offsets() == {0: 9, 1: 9}


def test_workers_and_groups_of_the_parent_refuse_in_a_child(log):
    fill(log)
    worker = log.consumer("g", ["t"], auto_offset_reset="earliest", max_poll_records=2)
    assert len(worker.poll(timeout=5)) == 2
    group = log.group("g")
    for call in (
        lambda: worker.poll(),
        lambda: worker.commit(),
        lambda: worker.commit_async(),
        lambda: worker.committed(),
        lambda: worker.unsubscribe(),
        lambda: log.groups(),
        lambda: log.positions(),
        lambda: log.consumer("g", ["t"]),
        lambda: group.describe(),
        lambda: group.reset("t", to="earliest", dry_run=False),
    ):
        assert in_child(call) == REFUSED
    assert in_child(worker.close) == "None"
    worker.commit()
    assert sum(group.committed().get(("t", p), (0,))[0] for p in range(2)) == 2
    assert len(group.members()) == 1
    worker.close()


def test_a_child_may_open_the_log_for_itself(log):
    fill(log, 6, 600_000)
    waiting = log.producer(linger_ms=60_000).send("t", b"parent")

    def child() -> tuple[int, int]:
        with offsetlog.open(log.url) as own:
            with own.producer() as producer:
                producer.send("t", b"child").result()
            count = 0
            with own.consumer(topics=["t"], auto_offset_reset="earliest") as consumer:
                while count < 19:
                    count += len(consumer.poll(timeout=1, max_records=100))
            return count, len(own.topics())

    assert in_child(child) == "(19, 1)"
    assert waiting.result().topic == "t"
    assert sum(log.topic("t").end_offsets().values()) == 20


@pytest.mark.parametrize("used", ["looked at groups", "read with a group"])
def test_a_child_that_opens_the_log_itself_uses_groups(log, used):
    fill(log)
    if used == "read with a group":
        with log.consumer("g", ["t"], auto_offset_reset="earliest") as consumer:
            consumer.poll(timeout=5)
    log.groups()

    def child() -> tuple[int, list[str]]:
        with (
            offsetlog.open(log.url) as own,
            own.consumer("c", ["t"], auto_offset_reset="earliest") as consumer,
        ):
            count = len(consumer.poll(timeout=5, max_records=100))
            consumer.commit()
            return count, list(own.groups())

    names = ["c", "g"] if used == "read with a group" else ["c"]
    assert in_child(child) == str((9, names))
    assert list(log.groups()) == names


def test_a_child_that_ends_by_itself_writes_nothing_of_its_parents(log):
    """A script's end writes what waits: the parent's, and not the child's copy of it as well."""
    producer = log.producer(linger_ms=60_000)
    producer.send("t", b"parent")
    pid = os.fork()
    if pid == 0:
        signal.alarm(20)
        from offsetlog.client import producer as producers
        from offsetlog.engine.append import group_commit as appender

        appender._write_at_exit()
        producers._tell_at_exit()
        os._exit(0)
    assert os.waitpid(pid, 0)[1] == 0
    assert sum(log.topic("t").end_offsets().values()) == 0
    producer.flush()
    assert sum(log.topic("t").end_offsets().values()) == 1
