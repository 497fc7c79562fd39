"""What senders are told of records that they do not wait for, when things go wrong."""

from __future__ import annotations

import asyncio
import gc
import os
import subprocess
import sys
import threading
import time
from concurrent.futures import Future
from contextlib import contextmanager, suppress
from types import SimpleNamespace

import pyarrow as pa
import pytest

import offsetlog
from offsetlog import InvalidRequestError, RecordMetadata, StorageError, UnknownTopicError
from offsetlog.client.log import Log
from offsetlog.core.group.requests import CommitRequest
from offsetlog.engine.append import group_commit
from offsetlog.engine.append.group_commit import GroupCommit
from offsetlog.engine.append.send_buffer import Done
from offsetlog.engine.append.writer import DELIVERY_SECONDS, Writer
from offsetlog.engine.env import REAL
from offsetlog.engine.group.commit_queue import CommitQueue
from offsetlog.engine.topic.stored_state import StoredState
from offsetlog.storage.memory import MemoryStore
from tests.engine.append.test_sequences import values
from tests.engine.scripted import ScriptedStore, fresh_root
from tests.generators.interrupts import Interrupt
from tests.waiting import until

pytestmark = pytest.mark.root_in("local", "memory")

FULL = "the disk is full"


@pytest.fixture
def scripted():
    """A log whose store answers by a script; what is left of it at the end is not closed."""
    store = ScriptedStore(fresh_root())
    log = Log(store, REAL._replace(sleep=lambda seconds: None))
    log.create_topic("t", partitions=1)
    return store, log


@contextmanager
def writing(commit: GroupCommit):
    """As if another thread was writing meanwhile."""
    commit._writer = object()
    try:
        yield
    finally:
        commit._writer = None


class FullStore(MemoryStore):
    """Takes so many entries of ``t`` and no more."""

    def __init__(self, room: int) -> None:
        super().__init__(fresh_root())
        self.room = room

    def _create(self, name, data):
        if name.startswith("t/_log"):
            self.room -= 1
            if self.room < 0:
                raise StorageError(f"Could not create it: {FULL}.")
        return super()._create(name, data)


def full_log(room: int) -> Log:
    log = Log(FullStore(room + 1))
    log.create_topic("t", partitions=1)
    return log


def send_apart(producer, count: int, size: int = 2000):
    """Records that become several entries."""
    return [producer.send("t", b"%d|" % i + b"x" * size) for i in range(count)]


# --- flush and close -----------------------------------------------------------------------


@pytest.mark.parametrize("how", ["flush", "with", "close", "log.close", "log with"])
def test_what_was_not_written_and_not_asked_for_is_raised(how):
    log = full_log(3)
    producer = log.producer(batch_bytes=1024)
    futures = send_apart(producer, 20)
    with pytest.raises(StorageError, match=FULL) as error:
        if how == "flush":
            producer.flush()
        elif how == "with":
            with producer:
                pass
        elif how == "close":
            producer.close()
        elif how == "log.close":
            log.close()
        else:
            with log:
                pass
    assert "Not acknowledged for topic 't': 1 record." in str(error.value)
    assert not error.value.may_have_landed
    assert sum(future.exception() is None for future in futures) == 3
    # It was told once, and by the futures.
    producer.close()
    log.close()


def test_a_table_that_was_not_written_is_raised(scripted):
    store, log = scripted
    store.script = ["refused"]
    producer = log.producer()
    producer.send_arrow("t", pa.table({"value": [b"a", b"b"]}))
    with pytest.raises(StorageError, match="Not acknowledged for topic 't': 2 records"):
        producer.flush()


def test_a_failure_that_each_future_told_is_not_raised_again():
    log = full_log(0)
    with log.producer() as producer:
        futures = send_apart(producer, 5)
        for asking in (lambda f: f.exception(), _result):
            assert [FULL in str(asking(future)) for future in futures] == [True] * 5
        producer.flush()
    log.close()


def _result(future):
    with pytest.raises(StorageError) as error:
        future.result()
    return error.value


def test_one_future_of_a_batch_that_was_asked_does_not_speak_for_the_others():
    log = full_log(0)
    producer = log.producer(linger_ms=60_000)
    first, _ = send_apart(producer, 2)
    assert first.exception() is not None
    with pytest.raises(StorageError, match=FULL):
        producer.flush()


def test_a_callback_that_asks_its_future_was_told():
    log = full_log(0)
    told = []
    with log.producer() as producer:
        producer.send("t", b"x").add_done_callback(lambda f: told.append(f.exception()))
        time.sleep(0.2)
    assert FULL in str(told[0])


def test_a_failure_is_told_to_the_producers_whose_records_failed_and_to_no_others():
    """All threads of a log share a batch, but not its bad news."""
    log = full_log(1)
    good, one, other = (log.producer(linger_ms=60_000) for _ in range(3))
    good.send("t", b"x")
    good.flush()
    one.send("t", b"y")
    other.send("t", b"z")
    for producer in (one, other):
        with pytest.raises(StorageError, match="Not acknowledged for topic 't': 1 record[.]"):
            producer.flush()
    good.flush()
    one.flush()
    log.close()


def test_failures_of_producers_that_were_dropped_are_told_by_the_log():
    log = full_log(0)
    log.producer().send("t", b"x")
    with pytest.raises(StorageError, match=FULL):
        log.close()


def test_a_flush_tells_what_failed_since_the_last_one():
    log = full_log(0)
    producer = log.producer()
    for _ in range(2):
        producer.send("t", b"x")
        with pytest.raises(StorageError, match=FULL):
            producer.flush()
        producer.flush()


def test_no_failure_is_forgotten_because_there_were_too_many(monkeypatch):
    monkeypatch.setattr(group_commit, "FAILURES_KEPT", 3, raising=False)
    log = full_log(0)
    noisy, late = log.producer(batch_bytes=1024), log.producer()
    send_apart(noisy, 10)
    time.sleep(0.3)
    late.send("t", b"x")
    time.sleep(0.3)
    for producer in (late, noisy):
        with pytest.raises(StorageError, match=FULL):
            producer.flush()
        producer.flush()


def test_what_ended_a_block_is_not_hidden_by_what_could_not_be_written():
    log = full_log(0)
    with pytest.raises(ZeroDivisionError) as error, log.producer() as producer:
        producer.send("t", b"x")
        1 / 0  # noqa: B018
    assert FULL in error.value.__notes__[0]


def test_a_flush_that_runs_out_of_time_does_not_say_that_all_is_written(scripted):
    store, log = scripted
    holding, held = threading.Event(), threading.Event()

    def hold(name: str) -> None:
        held.set()
        holding.wait(60)

    store.after_put = hold
    producer = log.producer()
    future = producer.send("t", b"x")
    held.wait(60)
    with pytest.raises(StorageError, match="unacknowledged after 0.1 s"):
        producer.flush(timeout=0.1)
    holding.set()
    assert future.result().offset == 0
    producer.flush()


# --- callbacks -----------------------------------------------------------------------------


def test_a_callback_that_raises_changes_nothing(log, caplog):
    log.create_topic("t")
    called = []

    def callback(future) -> None:
        called.append(future)
        raise ValueError("mine")

    with log.producer(linger_ms=100) as producer:
        futures = [producer.send("t", b"%d" % i) for i in range(3)]
        for future in futures:
            future.add_done_callback(callback)
        assert [future.result().offset for future in futures] == [0, 1, 2]
        futures[0].add_done_callback(callback)
    assert len(called) == 4
    assert [future.exception() for future in futures] == [None] * 3
    assert caplog.text.count("A callback of records for topic 't' raised an error") == 4
    assert caplog.text.count("ValueError: mine") == 4


@pytest.mark.parametrize("kind", ["keyed", "keyed table"])
def test_a_callback_that_raises_changes_nothing_of_a_sequence(log, kind):
    log.create_topic("t")
    producer = log.producer(app_id="a", sequence=1)
    if kind == "keyed":
        future = producer.send("t", b"x")
    else:
        future = producer.send_arrow("t", pa.table({"value": [b"x"]}))
    future.add_done_callback(lambda f: 1 / 0)
    producer.flush()
    assert future.exception() is None
    assert values(log) == [b"x"]


def test_an_interrupt_in_a_callback_reaches_its_thread_and_no_other_callback(log):
    log.create_topic("t")
    called = []

    def interrupt(future) -> None:
        raise KeyboardInterrupt

    producer = log.producer(linger_ms=60_000)
    futures = [producer.send("t", b"%d" % i) for i in range(3)]
    futures[0].add_done_callback(interrupt)
    futures[1].add_done_callback(called.append)
    with pytest.raises(KeyboardInterrupt):
        futures[2].result()
    assert called == [futures[1]]
    assert [future.result().offset for future in futures] == [0, 1, 2]


# --- interrupts ----------------------------------------------------------------------------


@pytest.mark.parametrize("landed", [True, False])
def test_an_interrupt_of_the_thread_that_writes_for_all_loses_nothing(scripted, landed):
    """Ctrl-C strikes the main thread while it writes the batch of three others."""
    store, log = scripted
    producer = log.producer(linger_ms=60_000)
    gathered = threading.Barrier(4)
    results: list[int] = []

    def other(i: int) -> None:
        future = producer.send("t", b"%d" % i)
        gathered.wait()
        results.append(future.result().offset)

    threads = [threading.Thread(target=other, args=(i,), daemon=True) for i in range(3)]

    def strike(*given: object) -> None:
        store.after_put = lambda name: None
        raise KeyboardInterrupt

    if landed:
        store.after_put = strike
    else:
        true = store._create

        def create(name, data):
            if name.startswith("t/_log") and store.__dict__.pop("_create", None):
                raise KeyboardInterrupt
            return true(name, data)

        store._create = create  # type: ignore[method-assign]
    mine = producer.send("t", b"mine")
    # The others ask while this thread writes.
    with writing(log.group_commit("t")):
        for thread in threads:
            thread.start()
        gathered.wait()
    with pytest.raises(KeyboardInterrupt):
        mine.result()
    for thread in threads:
        thread.join(10)
    assert not any(thread.is_alive() for thread in threads)
    assert sorted([*results, mine.result().offset]) == [0, 1, 2, 3]
    producer.flush()
    assert sorted(values(log)) == [b"0", b"1", b"2", b"mine"]
    log.close()


def test_a_batch_that_was_interrupted_twice_says_that_it_may_be_there(scripted, monkeypatch):
    _, log = scripted
    producer = log.producer(linger_ms=60_000)
    idle = threading.Event()
    appender = log.group_commit("t")
    appender._thread = threading.Thread(target=idle.wait, daemon=True)
    appender._thread.start()
    future = producer.send("t", b"x")
    deliver = Writer.deliver

    def interrupted(self, *arguments: object) -> None:
        deliver(self, *arguments)
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(Writer, "deliver", interrupted)
        for _ in range(2):
            assert not future.done()
            with pytest.raises(KeyboardInterrupt):
                appender.drive(future[0])
    error = future.exception(timeout=60)
    assert error is not None and error.may_have_landed
    assert producer.send("t", b"y").result().offset == 1
    assert values(log) == [b"x", b"y"]
    idle.set()


def test_a_flush_waits_for_a_batch_whose_writer_was_interrupted(scripted):
    store, log = scripted
    producer = log.producer(linger_ms=60_000)
    future = producer.send("t", b"x")
    writing, strike = threading.Event(), threading.Event()

    def interrupted(name: str) -> None:
        store.after_put = lambda name: None
        writing.set()
        strike.wait(60)
        raise KeyboardInterrupt

    store.after_put = interrupted

    def ask() -> None:
        with pytest.raises(KeyboardInterrupt):
            future.result()

    asking = threading.Thread(target=ask)
    asking.start()
    writing.wait(60)
    threading.Timer(0.2, strike.set).start()
    producer.flush()
    assert future.done() and future.exception() is None
    asking.join(60)
    assert values(log) == [b"x"]


# --- threads -------------------------------------------------------------------------------


def test_a_snapshot_that_cannot_be_made_does_not_end_the_thread_that_writes(log, monkeypatch):
    log.create_topic("t")

    def broken(self) -> None:
        raise MemoryError

    monkeypatch.setattr(StoredState, "publish", broken)
    with log.producer(batch_bytes=1024) as producer:
        for _ in range(3):
            send_apart(producer, 60)
            producer.flush()
            log.group_commit("t").topic.stored._last_published = float("-inf")
            time.sleep(0.05)
        assert log.group_commit("t")._thread.is_alive()
        last = producer.send("t", b"last")
        until(last.done, 5)  # Nobody waits for it.
    log.close()


def test_a_thread_that_died_is_replaced(log):
    log.create_topic("t")
    producer = log.producer()
    producer.send("t", b"one").result()
    appender = log.group_commit("t")
    dead = threading.Thread(target=lambda: None)
    dead.start()
    dead.join()
    appender._thread = dead
    future = producer.send("t", b"two")
    until(future.done, 5)
    assert appender._thread is not dead


def test_a_thread_that_could_not_be_started_is_started_again(log, monkeypatch):
    log.create_topic("t")
    producer = log.producer()
    with monkeypatch.context() as patched:
        patched.setattr(threading.Thread, "start", _no_thread)
        with pytest.raises(StorageError, match="can't be started: .*This record was not taken"):
            producer.send("t", b"one")
    future = producer.send("t", b"two")
    until(future.done, 5)
    assert values(log) == [b"two"]


def _no_thread(self) -> None:
    raise RuntimeError("can't start new thread")


def test_commits_go_on_after_a_thread_that_could_not_be_started(monkeypatch):
    made: list[CommitRequest] = []
    commits = CommitQueue(made.append, "commits")
    request = CommitRequest("g", None, 0, 0, {("t", 0): None})  # type: ignore[dict-item]
    with monkeypatch.context() as patched:
        patched.setattr(threading.Thread, "start", _no_thread)
        with pytest.raises(StorageError, match="can't be started: .*Nothing was committed"):
            commits.submit(request, None)
    drained = threading.Thread(target=commits.drain, daemon=True)
    drained.start()
    drained.join(60)
    assert not drained.is_alive() and not made
    commits.submit(request, None).result(60)
    assert made == [request]


def test_a_commit_that_was_cancelled_does_not_end_the_thread_of_the_others():
    going = threading.Event()
    made: list[CommitRequest] = []

    def make(request: CommitRequest) -> None:
        going.wait(60)
        made.append(request)

    commits = CommitQueue(make, "commits")
    first, second, third = (
        CommitRequest("g", None, 0, number, {("t", 0): None})  # type: ignore[dict-item]
        for number in range(3)
    )
    commits.submit(first, None)
    cancelled = commits.submit(second, None)
    assert cancelled.cancel()
    last = commits.submit(third, None)
    going.set()
    last.result(60)
    drained = threading.Thread(target=commits.drain, daemon=True)
    drained.start()
    drained.join(60)
    assert not drained.is_alive()
    assert made == [first, third]


def test_a_log_closes_the_rest_when_something_of_it_cannot_be_closed(tmp_path, monkeypatch):
    log = offsetlog.open(str(tmp_path / "log"))
    for name in ("t", "u"):
        log.create_topic(name)
        log.producer(linger_ms=60_000).send(name, b"x")

    def broken(self) -> None:
        raise UnicodeEncodeError("utf-8", "\udcff", 0, 1, "surrogates not allowed")

    monkeypatch.setattr(log.group_commit("t"), "close", lambda until: broken(log), raising=False)
    with pytest.raises(UnicodeEncodeError):
        log.close()
    monkeypatch.undo()
    with offsetlog.open(str(tmp_path / "log")) as log:
        assert values(log, "u") == [b"x"]


def test_an_unfit_setting_is_named(log):
    for settings in ({"linger_ms": float("nan")}, {"batch_bytes": 5000.5}):
        with pytest.raises(InvalidRequestError, match=next(iter(settings))):
            log.producer(**settings)


def test_what_lingers_is_not_written_with_what_was_due(log):
    """The thread found one batch due, and its sender wrote that one in the meantime."""
    log.create_topic("t")
    writer = log.group_commit("t")
    with writing(writer):
        first = log.producer().send("t", b"one")
        while writer._due() and writer._thread is None:
            time.sleep(0.001)
        time.sleep(0.05)  # It has found the batch due, and waits to write.
        assert writer._write_next() and first.done()
        second = log.producer(linger_ms=60_000).send("t", b"two")
    time.sleep(0.05)
    assert not second.done() and values(log) == [b"one"]


# --- Ctrl-C, and a storage that does not answer ---------------------------------------------


def interrupted(call, number: int) -> bool:
    """Call, with a Ctrl-C when the so manieth C function returns that our code or ``threading``
    called: there Python looks for signals. False when it ended before that."""
    seen = 0

    def profile(frame, event, arg):
        nonlocal seen
        name = frame.f_code.co_filename
        if event == "c_return" and ("/engine/append/" in name or name.endswith("/threading.py")):
            seen += 1
            if seen == number:
                raise KeyboardInterrupt

    sys.setprofile(profile)
    try:
        call()
    except KeyboardInterrupt:
        return True
    finally:
        sys.setprofile(None)
    return seen >= number


def test_who_is_interrupted_anywhere_leaves_nothing_locked():
    """Neither for the threads that send beside it, nor for the log's end."""
    number = 0
    while True:
        number += 1
        log = full_log(1000)
        producer = log.producer()
        producer.send("t", b"first").result()
        if not interrupted(lambda p=producer: p.send("t", b"x").result(), number):
            assert number > 15
            return
        after = threading.Thread(target=lambda p=producer: p.send("t", b"y").result(), daemon=True)
        after.start()
        after.join(10)
        assert not after.is_alive(), f"interrupted at return {number}"
        ending = threading.Thread(target=log.close, daemon=True)
        ending.start()
        ending.join(10)
        assert not ending.is_alive(), f"interrupted at return {number}"


def test_done_wakes_all_who_wait_even_if_a_wake_up_was_lost():
    class Interrupted(Done):
        def set(self) -> None:
            self.is_set = True

    done = Interrupted()
    assert not done.wait(0.01)
    waiting = [threading.Thread(target=done.wait, daemon=True) for _ in range(5)]
    for thread in waiting:
        thread.start()
    done.set()
    for thread in waiting:
        thread.join(10)
    assert not any(thread.is_alive() for thread in waiting)


END = """
import sys, offsetlog
from offsetlog.engine.append import group_commit, writer
from offsetlog.errors import StorageError
writer.DELIVERY_SECONDS = group_commit.DELIVERY_SECONDS = 2
group_commit.LOCK_SECONDS = 1
log = offsetlog.open("memory://ends")
def no_answer(*given):
    raise StorageError("no answer", may_have_landed=True)
kept = log.producer(batch_bytes=1024, linger_ms=60_000)
for name in "tu":
    log.create_topic(name)
    log.open_topic(name).writer.append = no_answer
for i in range(40):
    for name in "tu":
        kept.send(name, b"x" * 100)
if sys.argv[1] == "a lock was left":
    log.group_commit("t").lock.acquire()
"""


@pytest.mark.parametrize("how", ["no answer", "a lock was left"])
def test_a_script_ends_in_time_and_says_how_much_was_not_written(how):
    before = time.monotonic()
    done = subprocess.run(
        [sys.executable, "-c", END, how],
        capture_output=True, text=True, timeout=60, env={**os.environ}, check=True,
    )  # fmt: skip
    assert time.monotonic() - before < 20
    said = [line for line in done.stderr.splitlines() if line.startswith("Not acknowledged")]
    assert sorted(line.split(". ")[0] for line in said) == [
        f"Not acknowledged for topic {name!r}: 40 records" for name in "tu"
    ]


class Clock:
    """Passes by sleeping alone."""

    now = 0.0

    def sleep(self, seconds: float) -> None:
        self.now += seconds


def no_answer(*given):
    raise StorageError("no answer", may_have_landed=True)


def test_closing_a_log_waits_once_for_all_that_gets_no_answer():
    clock = Clock()
    env = REAL._replace(monotonic=lambda: clock.now, sleep=clock.sleep)
    log = Log(MemoryStore(fresh_root()), env)
    producer = log.producer(batch_bytes=1024, linger_ms=60_000)
    futures = []
    for topic in ("t", "u", "v"):
        log.create_topic(topic)
        log.open_topic(topic).writer.append = no_answer  # type: ignore[method-assign]
        log.group_commit(
            topic
        )._thread = threading.current_thread()  # Nobody writes before the end.
        futures += [producer.send(topic, bytes(500)) for _ in range(10)]
    with pytest.raises(StorageError, match="no answer"):
        log.close()
    assert clock.now <= DELIVERY_SECONDS + 10
    assert [f.exception().may_have_landed for f in futures if f.done()].count(True) < 10
    assert all(f.done() for f in futures)


def test_a_producer_is_not_told_again_what_its_own_futures_told():
    """Two producers share the batch, and the other one asked for nothing."""
    log = full_log(0)
    mine, other = (log.producer(linger_ms=60_000) for _ in range(2))
    futures = []
    for number in range(3):
        futures.append(mine.send("t", b"mine"))
        if number < 2:
            other.send("t", b"other")
    for future in futures:
        assert isinstance(future.exception(), StorageError)
    mine.flush()
    with pytest.raises(StorageError, match="Not acknowledged for topic 't': 2 records"):
        other.flush()
    other.flush()
    log.close()


def writing_threads(others: list[threading.Thread]) -> int:
    """Those that came since these were the only ones."""
    return sum(
        thread.name.startswith("offsetlog-t") and thread not in others
        for thread in threading.enumerate()
    )


def test_many_topics_share_a_bounded_number_of_threads(log):
    """A producer of 1,000 topics had 1,001 threads."""
    names = [f"t{i}" for i in range(150)]
    for name in names:
        log.create_topic(name)
    producer = log.producer()
    most, others = 0, threading.enumerate()
    futures = []
    for value in (b"one", b"two"):
        for name in names:
            futures.append(producer.send(name, value))
            most = max(most, writing_threads(others))
    deadline = time.monotonic() + 60
    while not all(future.done() for future in futures) and time.monotonic() < deadline:
        most = max(most, writing_threads(others))
        time.sleep(0.001)
    assert all(future.done() for future in futures), "nobody waits for them, and they are written"
    assert 1 < most <= group_commit.MOST_THREADS
    assert {future.result().offset for future in futures} == {0, 1}


def test_a_thread_with_nothing_to_do_ends(log, monkeypatch):
    monkeypatch.setattr(group_commit, "IDLE_SECONDS", 0.05)
    log.create_topic("t")
    producer, others = log.producer(), threading.enumerate()
    for value in (b"one", b"two"):
        future = producer.send("t", value)
        until(future.done, 10)
        until(lambda: not writing_threads(others), 10)


class Served:
    """What a writing thread serves, as far as it knows of it."""

    def __init__(self, dies: bool) -> None:
        self.topic = SimpleNamespace(name="t")
        self.waits_for_thread = False
        self.may_end, self.ended = threading.Event(), threading.Event()
        self._dies = dies

    def serve(self) -> None:
        self.waits_for_thread = False
        assert self.may_end.wait(10)
        self.ended.set()
        if self._dies:
            raise MemoryError


@pytest.mark.parametrize("dies", [False, True])
def test_a_topic_that_waits_gets_the_next_thread_however_it_ends(dies, monkeypatch):
    monkeypatch.setattr(threading, "excepthook", lambda arguments: None)
    threads = group_commit.WritingThreads(1)
    first, second = Served(dies), Served(False)
    thread = threads.serve(first)
    assert thread is not None
    assert threads.serve(second) is None
    assert second.waits_for_thread and threads.is_wanted
    second.may_end.set()
    assert not second.ended.wait(0.05)
    first.may_end.set()
    assert second.ended.wait(10)
    thread.join(10)


def test_a_busy_topic_does_not_keep_its_thread_from_the_others(log):
    """The other one's records were not written before the busy sender paused."""
    log._topics._threads._most = 1
    for name in ("busy", "other"):
        log.create_topic(name)
    busy, other = log.producer(linger_ms=50), log.producer()
    stop = threading.Event()

    def keep_busy():
        while not stop.is_set():
            busy.send("busy", b"x")
            time.sleep(0)

    feeder = threading.Thread(target=keep_busy)
    feeder.start()
    try:
        until(busy.send("busy", b"x").done, 10)
        until(other.send("other", b"y").done, 15)
        until(busy.send("busy", b"x").done, 15)
    finally:
        stop.set()
        feeder.join()


def test_a_topic_that_lingers_does_not_keep_its_thread_from_the_others(log):
    log._topics._threads._most = 1
    for name in ("lingers", "other"):
        log.create_topic(name)
    slow, other = log.producer(linger_ms=20_000), log.producer()
    future = slow.send("lingers", b"x")
    time.sleep(0.01)
    until(other.send("other", b"y").done, 15)
    assert not future.done()
    slow.flush(timeout=60)
    assert future.done()


def test_a_thread_that_went_idle_before_all_were_busy_serves_who_waits(log):
    """It slept for 5 s."""
    log._topics._threads._most = 2
    for name in ("idle", "lingers", "other"):
        log.create_topic(name)
    slow, other = log.producer(linger_ms=20_000), log.producer()
    until(other.send("idle", b"x").done, 10)
    time.sleep(0.05)
    slow.send("lingers", b"x")
    until(other.send("other", b"y").done, 4)


def test_a_topic_whose_turn_came_when_no_thread_could_be_started_is_served_later(monkeypatch):
    """It counted as waiting for its turn for ever."""
    monkeypatch.setattr(threading, "excepthook", lambda arguments: None)
    threads = group_commit.WritingThreads(1)
    first, second = Served(True), Served(False)
    thread = threads.serve(first)
    assert threads.serve(second) is None
    monkeypatch.setattr(threading.Thread, "start", _no_thread)
    first.may_end.set()
    thread.join(10)
    assert not second.waits_for_thread, "its next record asks for a thread again"
    monkeypatch.undo()
    second.may_end.set()
    assert threads.serve(second) is not None
    assert second.ended.wait(10)


@pytest.mark.parametrize("partition", [None, 1])
def test_ctrl_c_anywhere_inside_send_leaves_the_records_of_others_whole(log, partition):
    """The interrupted record is there as it was sent, or not at all."""
    log.create_topic("orders", partitions=2)
    mine, other = log.producer(linger_ms=10_000), log.producer(linger_ms=10_000)

    def send(producer, name):
        return producer.send("orders", name, name, [("name", name)], partition)

    futures, line, interrupt = [send(mine, b"first")], 0, None
    while interrupt is None or interrupt.where:
        line += 1
        interrupt = Interrupt(line)
        with suppress(KeyboardInterrupt):
            interrupt.call(lambda: send(mine, b"interrupted"))
        futures.append(send(other, b"whole-%d" % line))
    assert line > 30
    for future in futures:
        future.result(10)
    with log.consumer(auto_offset_reset="earliest") as consumer:
        consumer.assign([("orders", 0), ("orders", 1)])
        records = consumer.poll(0.0, 1000)
    assert {b"whole-%d" % n for n in range(1, line + 1)} <= {record.value for record in records}
    for record in records:
        assert record.key == record.value and record.headers == [("name", record.value)]
        assert partition in (None, record.partition)


def test_ctrl_c_anywhere_inside_send_arrow_takes_no_record_of_others(log):
    """An acknowledged record is there under its offset."""
    log.create_topic("orders")
    mine, other = log.producer(), log.producer()
    for producer in (mine, other):
        producer.send("orders", b"first").result()
    acknowledged, line, interrupt = {}, 0, None
    while interrupt is None or interrupt.where:
        line += 1
        interrupt = Interrupt(line)
        table = pa.table({"value": [b"table-%d" % line]})
        with suppress(KeyboardInterrupt):
            interrupt.call(lambda table=table: mine.send_arrow("orders", table))
        acknowledged[other.send("orders", b"record-%d" % line).result().offset] = line
    assert line > 30
    with log.consumer(auto_offset_reset="earliest") as consumer:
        consumer.assign([("orders", 0)])
        there = {}
        while found := consumer.poll(0.0):
            there.update((record.offset, record.value) for record in found)
    assert {at: there.get(at) for at in acknowledged} == {
        at: b"record-%d" % line for at, line in acknowledged.items()
    }


@pytest.mark.parametrize("keyed", [False, True])
@pytest.mark.parametrize("kind", ["record", "table"])
def test_a_limit_that_another_program_raised_is_seen_by_the_first_large_record(
    tmp_path, kind, keyed
):
    """A producer that sends large records alone appended nothing, and so never looked."""
    about = {"app_id": "a", "sequence": 1} if keyed else {}
    with offsetlog.open(str(tmp_path)) as log, offsetlog.open(str(tmp_path)) as other:
        log.create_topic("t", config={"max.message.bytes": 1000})
        table = pa.table({"value": [bytes(5000)]})
        with log.producer(**about) as producer:
            send = (
                (lambda: producer.send("t", bytes(5000)))
                if kind == "record"
                else (lambda: producer.send_arrow("t", table))
            )
            with pytest.raises(InvalidRequestError, match="topic 't' has 5000 bytes"):
                send()
            other.topic("t").alter(config={"max.message.bytes": 10_000})
            send().result()
        assert log.topic("t").end_offsets() == {0: 1}


def test_a_producer_goes_on_with_a_topic_that_was_created_again(tmp_path):
    """Also with what it was just about to write to the old one: nothing of that counted."""
    with offsetlog.open(str(tmp_path)) as log, offsetlog.open(str(tmp_path)) as other:
        log.create_topic("t")
        producer = log.producer()
        producer.send("t", b"0").result()
        other.delete_topic("t")
        other.create_topic("t")
        assert producer.send("t", b"1").result().offset == 1
        assert log.producer().send("t", b"2").result().offset == 2
        with log.producer(app_id="a", sequence=1) as keyed:
            assert keyed.send("t", b"3").result().offset == 3


def test_a_table_of_more_than_arrow_joins_is_refused_by_its_column(tmp_path):
    with offsetlog.open(str(tmp_path)) as log, log.producer() as producer:
        log.create_topic("t")
        value = pa.array([bytes(1 << 20)])
        table = pa.table({"value": pa.chunked_array([value] * 2100)})
        with pytest.raises(InvalidRequestError, match="Column 'value'.*several tables"):
            producer.send_arrow("t", table)


def test_answers_that_nobody_keeps_are_gone():
    """As many as there are records, they would be walked over by each garbage collection."""
    with offsetlog.open("memory://answers") as log, log.producer() as producer:
        log.create_topic("t")
        futures = [producer.send("t", b"x") for _ in range(1_000)]
        answers = [future.result() for future in futures]
        assert [answer.offset for answer in answers] == list(range(1_000))
        assert {type(answer) for answer in answers} == {RecordMetadata}
        del answers
        gc.collect()
        alive = [thing for thing in gc.get_objects() if type(thing) is RecordMetadata]
        assert len(alive) < 100


def test_asyncio_takes_the_futures(log):
    """And so does whatever takes those of ``concurrent.futures``."""
    log.create_topic("async")

    async def main():
        with log.producer() as producer:
            sent = [producer.send("async", b"%d" % n) for n in range(3)]
            table = producer.send_arrow("async", pa.table({"value": [b"3", b"4"]}))
            wrapped = [asyncio.wrap_future(future) for future in (*sent, table)]
            lost = asyncio.wrap_future(producer.send("async", b"5"))
            lost.cancel()
            return await asyncio.gather(*wrapped), sent[0]

    (*records, placed), future = asyncio.run(main())
    assert [one.offset for one in records] == [0, 1, 2] and placed[0].base == 3
    assert isinstance(future, Future) and future.result() is not None
    assert not future.cancel() and not future.cancelled() and not future.running()
    assert log.topic("async").end_offsets() == {0: 6}, "what was sent can't be taken back"


def test_asyncio_is_told_of_a_failure(log):
    async def main():
        future = log.producer().send("gone", b"x")
        await asyncio.wrap_future(future)

    log.create_topic("gone")
    log.delete_topic("gone")
    with pytest.raises(UnknownTopicError):
        asyncio.run(main())
