"""What goes over the wire: one request for one question, and what a lost answer comes to."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from offsetlog.errors import StorageError
from offsetlog.storage import Committed, Conflict, Store, Unknown, open_store
from offsetlog.storage import fsspec as fsspec_store
from offsetlog.storage.faults import SilenceError
from tests.servers.azurite import connection_string
from tests.servers.relay import Proxy

SERVERS = ["latency_s3", "seaweedfs", "moto", "azurite", "fake_gcs"]
_UPLOAD = {"fake_gcs": "POST"}


class Wire:
    """A store that talks through a proxy."""

    def __init__(self, server: str, store: Store, proxy: Proxy) -> None:
        self.store = store
        self.proxy = proxy
        self.upload = _UPLOAD.get(server, "PUT")
        self.is_azure = server == "azurite"

    def count(self, work: Callable[[], Any]) -> dict[str, int]:
        self.proxy.reset()
        work()
        return dict(self.proxy.counts)

    def create(self, name: str, data: bytes = b"x" * 100) -> Any:
        offer = self.store.offer(data, name)
        try:
            return offer.put(name)
        finally:
            offer.close()


@pytest.fixture(params=SERVERS)
def wire(request: pytest.FixtureRequest) -> Iterator[Wire]:
    place = request.getfixturevalue(request.param)
    with Proxy(place.http_port) as proxy:
        options = dict(place.options)
        if request.param == "azurite":
            options["connection_string"] = connection_string(proxy.port)
        else:
            options["endpoint_url"] = proxy.url
        if place.url.startswith("s3:"):
            options["config_kwargs"] = {"retries": {"max_attempts": 1}}
        store = open_store(f"{place.url}/wire-{proxy.port}", **options)
        store.get("warm")
        yield Wire(request.param, store, proxy)
        store.delete_tree("")
        store.close()


def test_one_request_each(wire: Wire) -> None:
    store = wire.store
    assert wire.count(lambda: wire.create("f/a")) == {wire.upload: 1}
    assert wire.count(lambda: wire.create("f/a")) == {wire.upload: 1}, "a conflict"
    assert wire.count(lambda: store.get("f/a")) == {"GET": 1}
    assert wire.count(lambda: store.get("f/a", 10, 20)) == {"GET": 1}
    assert wire.count(lambda: store.get("f/a", 10)) == {"GET": 1}
    assert wire.count(lambda: store.get("f/none")) == {"GET": 1}
    assert wire.count(lambda: store.get("f/none", 10, 20)) == {"GET": 1}
    assert wire.count(lambda: store.put("f/b", b"y" * 300_000)) == {wire.upload: 1}
    assert wire.count(lambda: list(store.list("f"))) == {"GET": 1}
    assert sum(wire.count(lambda: store.info("f/a")).values()) == 1
    assert sum(wire.count(lambda: store.info("f/none")).values()) == 1
    assert wire.count(lambda: store.delete(["f/b"])) == {"DELETE": 1}


def test_a_range_from_the_end_is_one_request_but_on_azure(wire: Wire) -> None:
    wire.create("f/a")
    # Azure has no such range; the size is asked for first.
    wanted = {"HEAD": 1, "GET": 1} if wire.is_azure else {"GET": 1}
    assert wire.count(lambda: wire.store.get("f/a", -8)) == wanted
    missing = {"HEAD": 1} if wire.is_azure else {"GET": 1}
    assert wire.count(lambda: wire.store.get("f/none", -8)) == missing


def test_the_answer_to_a_create_is_lost_once(wire: Wire) -> None:
    """The client repeats it by itself, and meets its own file: a conflict, and it is there."""
    wire.proxy.lose(1, wire.upload)
    assert isinstance(wire.create("lost/once", b"mine"), Conflict)
    assert wire.proxy.counts[wire.upload] == 2
    assert wire.store.get("lost/once") == b"mine"


def test_no_answer_to_a_create_ever(wire: Wire, monkeypatch: pytest.MonkeyPatch) -> None:
    _be_quick(wire, monkeypatch)
    wire.proxy.lose(1000, wire.upload)
    result = wire.create("lost/ever", b"mine")
    assert isinstance(result, Unknown)
    assert result.error
    assert wire.store.get("lost/ever") == b"mine", "it did land"


def test_no_answer_to_an_overwrite(wire: Wire, monkeypatch: pytest.MonkeyPatch) -> None:
    _be_quick(wire, monkeypatch)
    wire.proxy.lose(1000, wire.upload)
    with pytest.raises(StorageError) as caught:
        wire.store.put("lost/put", b"mine")
    assert caught.value.may_have_landed
    assert caught.value.retryable


def test_the_answer_to_a_read_is_lost_once(wire: Wire) -> None:
    wire.create("lost/read", b"mine")
    wire.proxy.lose(1, "GET")
    assert wire.store.get("lost/read") == b"mine"
    assert wire.proxy.counts["GET"] >= 2


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fsspec_store, "CALL_SECONDS", 1.0)
    monkeypatch.setattr(fsspec_store, "SILENT_SECONDS", 0.3)
    monkeypatch.setattr(fsspec_store, "LEAST_SPEED", 64 << 20)


def test_a_silent_server_ends_every_call(
    wire: Wire, impatient: None, caplog: pytest.LogCaptureFixture
) -> None:
    """Each at once, so that the test takes as long as one."""
    store = wire.store
    wire.create("quiet/a", b"there")
    calls: dict[str, Callable[[], object]] = {
        "get": lambda: store.get("quiet/a"),
        "a range": lambda: store.get("quiet/a", 0, 3),
        "the end": lambda: store.get("quiet/a", -3),
        "info": lambda: store.info("quiet/a"),
        "list": lambda: list(store.list("quiet")),
        "folders": lambda: list(store.folders("quiet")),
        "put": lambda: store.put("quiet/b", b"x"),
        "create": lambda: wire.create("quiet/c", b"mine"),
        "delete": lambda: store.delete(["quiet/none"]),
        "a large file": lambda: store.put("quiet/d", bytes(33 << 20)),
    }
    ends: dict[str, object] = {}

    def call(name: str) -> None:
        try:
            ends[name] = calls[name]()
        except Exception as error:  # noqa: BLE001 - looked at below
            ends[name] = error

    threads = [threading.Thread(target=call, args=(name,), daemon=True) for name in calls]
    began = time.monotonic()
    with wire.proxy.silent(acts=True):
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(max(0.0, began + 20 - time.monotonic()))
        assert ends.keys() == calls.keys(), "some call has no end"
    created = ends.pop("create")
    assert isinstance(created, Unknown) and created.waited
    for name, error in ends.items():
        assert isinstance(error, SilenceError), (name, error)
        assert "did not answer within" in error.message
        assert error.may_have_landed == (name in ("put", "a large file"))
    told = [r.getMessage() for r in caplog.records if "has not answered for" in r.getMessage()]
    assert told and store.url in told[0]
    assert wire.store.get("quiet/c") == b"mine", "it did land"


def test_a_slow_answer_is_waited_for(wire: Wire, impatient: None) -> None:
    wire.create("slow/a", b"there")
    wire.proxy.latency = 0.5
    assert wire.store.get("slow/a") == b"there"
    wire.proxy.latency = 0.0


def test_the_answer_to_the_end_of_an_upload_is_lost(wire: Wire) -> None:
    """It is complete, and the client's next try is told that there is none."""
    data = bytes(range(256)) * (4096 * 33)
    wire.proxy.lose(1, "POST", "uploadId")
    wire.store.put("lost/parts", data)
    assert wire.store.get("lost/parts") == data


def test_the_answer_to_the_end_of_an_upload_is_lost_each_time(latency_s3: Any) -> None:
    place = latency_s3
    with Proxy(place.http_port) as proxy:
        options = {
            **place.options, "endpoint_url": proxy.url,
            "config_kwargs": {"retries": {"max_attempts": 1}},
        }  # fmt: skip
        store = open_store(f"{place.url}/parts-{proxy.port}", **options)
        proxy.lose(1, "POST", "uploadId")
        puts: list[int] = []
        true = store.fs._pipe_file  # type: ignore[attr-defined]

        async def pipe(*given: Any, **named: Any) -> None:
            puts.append(1)
            proxy._losses.clear()
            proxy.lose(1, "POST", "uploadId")
            await true(*given, **named)

        store.fs._pipe_file = pipe  # type: ignore[attr-defined]
        with pytest.raises(StorageError, match="the end of an upload was lost") as caught:
            store.put("lost/parts", bytes(33 << 20))
        assert caught.value.may_have_landed and caught.value.retryable
        assert len(puts) == 3


def _be_quick(wire: Wire, monkeypatch: pytest.MonkeyPatch) -> None:
    """The clients' own pauses would take a minute."""
    if wire.is_azure:
        policy = wire.store.fs.service_client._config.retry_policy  # type: ignore[attr-defined]
        monkeypatch.setattr(policy, "total_retries", 1)
        monkeypatch.setattr(policy, "initial_backoff", 0.1)
    if hasattr(wire.store.fs, "retries"):  # type: ignore[attr-defined]
        monkeypatch.setattr(wire.store.fs, "retries", 1)  # type: ignore[attr-defined]
    if wire.upload == "POST":
        import gcsfs.retry

        monkeypatch.setattr(gcsfs.retry, "min", lambda *_: 0.01, raising=False)


def test_a_large_file_goes_up_in_parts_and_comes_back(wire: Wire) -> None:
    data = bytes(range(256)) * (4096 * 40)
    wire.store.put("big", data)
    assert wire.store.get("big") == data
    assert wire.store.get("big", -1000) == data[-1000:]


def test_listing_goes_on_page_after_page(latency_s3: Any) -> None:
    store = open_store(f"{latency_s3.url}/pages", **latency_s3.options)
    names = [f"many/{number:05d}" for number in range(2100)]
    offers = iter(names)
    threads = [threading.Thread(target=_fill, args=(store, offers)) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    with Proxy(latency_s3.http_port) as proxy:
        options = {**latency_s3.options, "endpoint_url": proxy.url}
        again = open_store(f"{latency_s3.url}/pages", **options)
        assert sorted(one.name for one in again.list("many")) == names
        assert dict(proxy.counts) == {"GET": 3}
        again.delete_tree("many")
        assert list(again.list("many")) == []


_TURN = threading.Lock()


def _fill(store: Store, names: Iterator[str]) -> None:
    while True:
        with _TURN:
            name = next(names, None)
        if name is None:
            return
        store.put(name, b"x")


@pytest.mark.parametrize(
    ("status", "code", "outcome"),
    [
        (412, "PreconditionFailed", Conflict),
        (409, "ConditionalRequestConflict", Unknown),
        (500, "InternalError", Unknown),
        (503, "ServiceUnavailable", Unknown),
        (400, "InvalidArgument", StorageError),
        (403, "AccessDenied", StorageError),
        (404, "NoSuchBucket", StorageError),
    ],
)
def test_what_s3_says_and_what_it_means(status: int, code: str, outcome: type) -> None:
    with _says(status, f"<Error><Code>{code}</Code><Message>m</Message></Error>") as url:
        store = open_store(
            "s3://b/r",
            key="k",
            secret="s",
            endpoint_url=url,
            config_kwargs={"retries": {"max_attempts": 0}},
        )
        offer = store.offer(b"x", "a")
        if outcome is StorageError:
            with pytest.raises(StorageError) as caught:
                offer.put("a")
            assert not caught.value.may_have_landed
        else:
            assert isinstance(offer.put("a"), outcome)
        store.close()


def test_400_with_a_file_there_is_a_conflict() -> None:
    """What some servers say to a create whose first answer was lost."""
    error = "<Error><Code>InvalidRequest</Code><Message>m</Message></Error>"
    with _says(400, error, heads_there=True) as url:
        store = open_store("s3://b/r", key="k", secret="s", endpoint_url=url)
        assert isinstance(store.offer(b"x", "a").put("a"), Conflict)
        store.close()


def test_a_refusal_after_a_lost_answer_is_not_believed() -> None:
    """The first try may have landed, whatever the next one is told. (The first repetition is
    the HTTP library's own, and nobody is told of it; the second is the S3 client's.)"""
    error = "<Error><Code>AccessDenied</Code><Message>m</Message></Error>"
    with _says(403, error, loses=2) as url:
        store = open_store("s3://b/r", key="k", secret="s", endpoint_url=url)
        assert isinstance(store.offer(b"x", "a").put("a"), Unknown)
        store.close()


class _says:
    """A server that gives one answer to every PUT."""

    def __init__(self, status: int, body: str, heads_there: bool = False, loses: int = 0) -> None:
        self._answer = (
            f"HTTP/1.1 {status} X\r\nContent-Type: application/xml\r\n"
            f"Content-Length: {len(body)}\r\nConnection: close\r\n\r\n{body}"
        ).encode()
        head = "Content-Length: 1\r\nLast-Modified: Thu, 01 Jan 2026 00:00:00 GMT\r\n"
        self._head = f"HTTP/1.1 200 OK\r\n{head}Connection: close\r\n\r\n".encode()
        self._heads_there, self._lose = heads_there, loses
        self._socket = socket.create_server(("127.0.0.1", 0))
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> str:
        self._thread.start()
        return f"http://127.0.0.1:{self._socket.getsockname()[1]}"

    def __exit__(self, *about: object) -> None:
        self._socket.close()

    def _run(self) -> None:
        while True:
            try:
                connection, _ = self._socket.accept()
            except OSError:
                return
            with connection:
                asked = connection.recv(65536)
                if self._lose:
                    self._lose -= 1
                elif asked.startswith(b"HEAD") and self._heads_there:
                    connection.sendall(self._head)
                else:
                    connection.sendall(self._answer)


def test_committed_is_told_from_conflict_by_its_type() -> None:
    """Both are tuples without members: == says nothing."""
    assert not isinstance(Committed(), Conflict)
