"""A server that takes requests and answers nothing: each call has an end, poll in its own time."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

import offsetlog
from offsetlog.client.log import Log
from offsetlog.engine.append import writer
from offsetlog.errors import OffsetLogError, StorageError
from offsetlog.storage import fsspec as fsspec_store
from offsetlog.storage.faults import SilenceError
from tests.servers.relay import Proxy


@pytest.fixture
def proxy(latency_s3: Any) -> Iterator[Proxy]:
    with Proxy(latency_s3.http_port) as proxy:
        yield proxy


@pytest.fixture
def log(latency_s3: Any, proxy: Proxy, monkeypatch: pytest.MonkeyPatch) -> Iterator[Log]:
    options = {**latency_s3.options, "endpoint_url": proxy.url}
    with offsetlog.open(f"{latency_s3.url}/silent-{proxy.port}", **options) as log:
        log.create_topic("orders", 2)
        monkeypatch.setattr(fsspec_store, "CALL_SECONDS", 1.5)
        monkeypatch.setattr(writer, "DELIVERY_SECONDS", 1.0)
        yield log


@pytest.fixture
def other(log: Log, latency_s3: Any, proxy: Proxy) -> Iterator[Log]:
    """A program that has a way of its own to the server."""
    with offsetlog.open(f"{latency_s3.url}/silent-{proxy.port}", **latency_s3.options) as other:
        yield other


def _send(log: Log, *values: bytes) -> None:
    with log.producer() as producer:
        for value in values:
            producer.send("orders", value, partition=0)


def _took(call: Callable[[], object]) -> tuple[float, object]:
    began = time.monotonic()
    found = call()
    return time.monotonic() - began, found


def _all(poll: Callable[[], list[offsetlog.Record]], count: int) -> list[bytes | None]:
    """Polls until there are so many, or for ten seconds."""
    until, values = time.monotonic() + 10, []
    while len(values) < count and time.monotonic() < until:
        values += [record.value for record in poll()]
    return values


@pytest.mark.parametrize("group", [None, "billing"])
@pytest.mark.parametrize("known", [False, True], ids=["new", "running"])
def test_poll_returns_in_its_time(
    log: Log,
    other: Log,
    proxy: Proxy,
    group: str | None,
    known: bool,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(fsspec_store, "CALL_SECONDS", 60.0)
    consumer = log.consumer(group, ["orders"], auto_offset_reset="earliest")
    if known:
        consumer.poll(1)
    _send(other, b"1", b"2", b"3")
    with proxy.silent():
        first, found = _took(lambda: consumer.poll(1.2))
        assert found == [] and 1.0 < first < 2.5
        for timeout in (0.0, 0.3):
            took, found = _took(lambda timeout=timeout: consumer.poll(timeout))  # type: ignore[misc]
            assert found == [] and took < timeout + 1.0
    assert _all(lambda: consumer.poll(1), 3) == [b"1", b"2", b"3"]
    assert consumer.position(("orders", 0)) == 3
    consumer.close()


def test_what_a_round_found_is_given_once(log: Log, other: Log, proxy: Proxy) -> None:
    """By a poll that takes fewer, after a seek, after a commit."""
    consumer = log.consumer("billing", ["orders"], auto_offset_reset="earliest")
    consumer.poll(1)
    _send(other, b"1", b"2", b"3")
    with proxy.silent():
        assert consumer.poll(0) == []
    assert [r.value for r in consumer.poll(5, max_records=1)] == [b"1"]
    consumer.commit()
    consumer.seek(("orders", 0), 0)
    with proxy.silent():
        consumer.poll(0)
    assert consumer.position(("orders", 0)) <= 3
    consumer.seek(("orders", 0), 0)
    assert _all(lambda: consumer.poll(1, max_records=1), 3) == [b"1", b"2", b"3"]
    consumer.close()
    assert log.group("billing").lag()["orders", 0] == 0


def test_callbacks_run_in_the_thread_that_polls(log: Log, proxy: Proxy) -> None:
    threads: list[int] = []
    seen: list[object] = []

    def assigned(consumer: offsetlog.Consumer, partitions: object) -> None:
        threads.append(threading.get_ident())
        consumer.seek_to_beginning()  # As a callback may.
        seen.append(consumer.assignment())

    _send(log, b"1")
    one = log.consumer("billing", ["orders"], on_assign=assigned, on_revoke=assigned)
    two = log.consumer("billing", ["orders"], on_assign=assigned, on_revoke=assigned)
    until = time.monotonic() + 30
    while len(two.assignment()) + len(one.assignment()) < 2 or not two.assignment():
        assert time.monotonic() < until
        one.poll(0.2)
        two.poll(0.2)
    assert set(threads) == {threading.get_ident()}
    assert len(threads) >= 3
    failed = ValueError("the callback's")

    def fails(consumer: offsetlog.Consumer, partitions: object) -> None:
        raise failed

    three = log.consumer("other", ["orders"])
    three.subscribe(["orders"], on_assign=fails, on_revoke=fails)
    four = log.consumer("other", ["orders"])
    with pytest.raises(ValueError, match="the callback's"):
        while time.monotonic() < until:
            three.poll(0.2)
            four.poll(0.2)
    for consumer in (one, two, four):
        consumer.close()


CALLS: dict[str, Callable[[Log], object]] = {
    "end_offsets": lambda log: log.topic("orders").end_offsets(),
    "lag": lambda log: log.group("billing").lag(),
    "groups": lambda log: log.groups(),
    "reset": lambda log: log.group("billing").reset("orders", to="earliest", dry_run=False),
    "topics": lambda log: log.topics(),
    "create": lambda log: log.create_topic("more"),
    "maintain": lambda log: log.maintain(),
    "send": lambda log: log.producer().send("orders", b"x").result(),
}


def test_every_call_has_an_end(log: Log, proxy: Proxy) -> None:
    _send(log, b"1")
    log.group("billing").reset("orders", to="earliest", dry_run=False)
    ends: dict[str, object] = {}

    def call(name: str) -> None:
        try:
            ends[name] = CALLS[name](log)
        except OffsetLogError as error:
            ends[name] = error

    threads = [threading.Thread(target=call, args=(name,), daemon=True) for name in CALLS]
    with proxy.silent():
        for thread in threads:
            thread.start()
        until = time.monotonic() + 40
        for thread in threads:
            thread.join(max(0.0, until - time.monotonic()))
        assert ends.keys() == CALLS.keys(), "some call has no end"
    for name, error in ends.items():
        assert isinstance(error, StorageError), (name, error)
        assert "did not answer within" in str(error), (name, error)
        assert "127.0.0.1" in str(error), "the server is named"


@pytest.mark.parametrize("acts", [False, True])
def test_a_write_that_is_given_up_says_so_and_is_never_doubled(
    log: Log, proxy: Proxy, acts: bool
) -> None:
    producer = log.producer()
    producer.send("orders", b"1", partition=0).result()
    with proxy.silent(acts):
        with pytest.raises(StorageError) as caught:
            producer.send("orders", b"2", partition=0).result()
        assert caught.value.may_have_landed
    producer.send("orders", b"3", partition=0).result()
    producer.close()
    with log.consumer(topics=["orders"], auto_offset_reset="earliest") as consumer:
        values = _all(lambda: consumer.poll(1), 3 if acts else 2)
        values += [record.value for record in consumer.poll(0.5)]
    assert values in ([b"1", b"2", b"3"], [b"1", b"3"])
    if acts:
        assert b"2" in values
    assert all(report.sound for report in log.verify())


def test_a_commit_that_is_given_up_is_known_later(log: Log, proxy: Proxy) -> None:
    _send(log, b"1", b"2")
    consumer = log.consumer(
        "billing", ["orders"], auto_offset_reset="earliest", enable_auto_commit=False
    )
    assert len(_all(lambda: consumer.poll(1), 2)) == 2
    with proxy.silent(acts=True), pytest.raises(SilenceError):
        log.offsets_table.port.read(0)
    with proxy.silent(acts=True), pytest.raises(StorageError):
        consumer.commit()
    consumer.commit({("orders", 0): 1})
    assert consumer.committed(("orders", 0)) == {("orders", 0): 1}
    consumer.close()
