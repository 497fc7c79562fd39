"""Waiting for records: no longer than was said, never for oneself, with an error of one's own."""

from __future__ import annotations

import threading
import time
import traceback
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from offsetlog.client.log import Log
from offsetlog.errors import InvalidRequestError, StorageError
from offsetlog.storage.memory import MemoryStore
from tests.engine.append.test_sending import full_log
from tests.engine.append.test_sequences import values
from tests.engine.scripted import fresh_root
from tests.waiting import until

pytestmark = pytest.mark.root_in("local", "memory")

SOON = 20.0


class StuckStore(MemoryStore):
    """Gives no answer to an append until it may."""

    def __init__(self) -> None:
        super().__init__(fresh_root())
        self.may = threading.Event()
        self.may.set()

    def _create(self, name: str, data: bytes) -> Any:
        if "/_log" in name:
            assert self.may.wait(60)
        return super()._create(name, data)


@pytest.fixture
def stuck() -> Iterator[tuple[StuckStore, Log]]:
    store = StuckStore()
    with Log(store) as log:
        log.create_topic("t", partitions=1)
        yield store, log
        store.may.set()


@pytest.mark.parametrize("is_keyed", [False, True])
@pytest.mark.parametrize("how", ["result", "exception", "flush"])
def test_no_wait_is_longer_than_was_said(how: str, is_keyed: bool, stuck: Any) -> None:
    store, log = stuck
    producer = log.producer(**({"app_id": "a", "sequence": 1} if is_keyed else {}))
    future = producer.send("t", b"v")
    store.may.clear()
    began = time.monotonic()
    with pytest.raises(StorageError, match="unacknowledged|not acknowledged") as late:
        if how == "exception":
            error = future.exception(timeout=0.2)
            raise error
        (producer.flush if how == "flush" else future.result)(timeout=0.2)
    assert time.monotonic() - began < 10 and late.value.may_have_landed
    assert not future.done()
    store.may.set()
    assert future.result(timeout=SOON).offset == 0
    producer.flush(timeout=SOON)
    producer.close()
    assert values(log) == [b"v"]


def test_a_timeout_of_0_only_looks(stuck: Any) -> None:
    store, log = stuck
    store.may.clear()
    future = log.producer().send("t", b"v")
    assert isinstance(future.exception(timeout=0), StorageError)
    with pytest.raises(StorageError):
        future.result(timeout=-5)
    store.may.set()


@pytest.mark.parametrize("is_keyed", [False, True])
@pytest.mark.parametrize("how", ["flush", "result", "close", "arrow", "other topic"])
def test_a_callback_that_waits_gets_an_error_and_nothing_hangs(
    how: str, is_keyed: bool, log: Any
) -> None:
    log.create_topic("t", partitions=1)
    log.create_topic("u", partitions=1)
    producer = log.producer(linger_ms=1)
    first = log.producer(app_id="a", sequence=1) if is_keyed else producer
    told: list[BaseException] = []

    def waits(future: Any) -> None:
        calls: dict[str, Callable[[], Any]] = {
            "flush": lambda: (producer.send("t", b"second"), producer.flush()),
            "result": lambda: producer.send("t", b"second").result(),
            "close": lambda: (producer.send("t", b"second"), producer.close()),
            "arrow": lambda: producer.send("t", b"second").result(timeout=60),
            "other topic": lambda: producer.send("u", b"second").result(),
        }
        try:
            calls[how]()
        except InvalidRequestError as error:
            told.append(error)

    future = first.send("t", b"first")
    future.add_done_callback(waits)
    worker = threading.Thread(target=first.flush, daemon=True)
    worker.start()
    worker.join(SOON)
    assert not worker.is_alive(), "it waits for itself"
    until(lambda: told, SOON)  # The records are done before their callbacks are called.
    assert "A callback of records can't wait" in str(told[0])
    # What it sent is written all the same, and a wait outside of callbacks is one.
    with log.producer() as another:
        another.send("t", b"third").result(SOON)
    topic = "u" if how == "other topic" else "t"
    producer.flush(SOON)
    assert b"second" in values(log, topic)


def test_a_keyed_producer_s_callback_does_not_wait_for_its_own_batch(log: Any) -> None:
    log.create_topic("t", partitions=1)
    producer = log.producer(app_id="a", sequence=1)
    told: list[BaseException] = []

    def waits(future: Any) -> None:
        try:
            producer.flush()
        except InvalidRequestError as error:
            told.append(error)
        assert future.result().offset == 0  # Its own is known.

    producer.send("t", b"v").add_done_callback(waits)
    worker = threading.Thread(target=producer.flush, daemon=True)
    worker.start()
    worker.join(SOON)
    assert not worker.is_alive() and len(told) == 1


def test_a_callback_of_what_is_done_may_wait(log: Any) -> None:
    """It is called by whoever adds it."""
    log.create_topic("t", partitions=1)
    producer = log.producer()
    future = producer.send("t", b"first")
    future.result()
    offsets: list[int] = []
    future.add_done_callback(lambda _: offsets.append(producer.send("t", b"2").result().offset))
    assert offsets == [1]


def test_each_future_raises_an_error_of_its_own() -> None:
    log = full_log(0)
    producer = log.producer(linger_ms=50)
    futures = [producer.send("t", b"x") for _ in range(50)]
    errors = []
    for future in futures * 20:
        with pytest.raises(StorageError) as raised:
            future.result()
        errors.append(raised.value)
    frames = [len(traceback.extract_tb(error.__traceback__)) for error in errors]
    assert max(frames) < 10 and len({id(error) for error in errors}) == len(errors)
    assert len({(str(error), error.retryable, error.may_have_landed) for error in errors}) == 1
