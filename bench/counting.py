"""Counts what goes over the wire: a small HTTP relay in front of a test server.

1. It counts requests as the server gets them: retries and hidden HEADs of client libraries too.
2. It passes every byte on as it came, so that signatures hold.
3. It runs in a thread of its own, for counts only: times are measured without it.
"""

from __future__ import annotations

import asyncio
import threading
from asyncio import IncompleteReadError, StreamReader, StreamWriter
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple, Self
from urllib.parse import urlsplit

START_SECONDS = 10.0
LINE_LIMIT = 1 << 20


class Asked(NamedTuple):
    """One request as the server saw it; bodies only, without headers."""

    method: str
    path: str
    sent: int
    received: int


class Counted(list[Asked]):
    """The requests of a stretch of time."""

    @property
    def bytes(self) -> int:
        """Bodies, both ways."""
        return sum(one.sent + one.received for one in self)


class _Head(NamedTuple):
    raw: bytes
    first: str
    fields: dict[str, str]


async def _head(source: StreamReader) -> _Head:
    raw = await source.readuntil(b"\r\n\r\n")
    first, *lines = raw.decode("latin-1").split("\r\n")
    pairs = (line.partition(":") for line in lines if line)
    return _Head(raw, first, {name.strip().lower(): value.strip() for name, _, value in pairs})


async def _body(fields: dict[str, str], source: StreamReader) -> tuple[int, bytes]:
    """The size of a body, and its bytes with their framing."""
    if fields.get("transfer-encoding", "").lower() != "chunked":
        size = int(fields.get("content-length", 0))
        return size, await source.readexactly(size)
    total, raw = 0, b""
    while True:
        line = await source.readuntil(b"\r\n")
        size = int(line.split(b";")[0], 16)
        raw += line + await source.readexactly(size + 2)
        total += size
        if not size:
            return total, raw


async def _pass_on(fields: dict[str, str], source: StreamReader, target: StreamWriter) -> int:
    size, data = await _body(fields, source)
    target.write(data)
    return size


class CountingProxy:
    """Listens on loopback, forwards to ``upstream``."""

    def __init__(self, upstream: str) -> None:
        address = urlsplit(upstream)
        self._host, self._port = address.hostname, address.port
        self.endpoint = ""
        self._seen: list[Asked] = []
        self._tasks: set[asyncio.Task[None]] = set()
        self._loop = asyncio.new_event_loop()
        self._ready = threading.Event()
        self._stop = asyncio.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    @contextmanager
    def counted(self) -> Iterator[Counted]:
        """The requests of a block."""
        before = len(self._seen)
        counted = Counted()
        yield counted
        counted.extend(self._seen[before:])

    def _run(self) -> None:
        self._loop.run_until_complete(self._serve())
        self._loop.close()

    async def _serve(self) -> None:
        server = await asyncio.start_server(self._client, "127.0.0.1", 0, limit=LINE_LIMIT)
        self.endpoint = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        self._ready.set()
        await self._stop.wait()
        server.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _client(self, client: StreamReader, back: StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        server, there = await asyncio.open_connection(self._host, self._port, limit=LINE_LIMIT)
        try:
            while await self._exchange(client, back, server, there):
                pass
        except (IncompleteReadError, ConnectionError, asyncio.CancelledError):
            pass
        finally:
            there.close()
            back.close()
            self._tasks.discard(task)

    async def _exchange(
        self, client: StreamReader, back: StreamWriter, server: StreamReader, there: StreamWriter
    ) -> bool:
        """One request and its answer; whether the connection is kept."""
        asked = await _head(client)
        method, path, _ = asked.first.split(" ", 2)
        there.write(asked.raw)
        body = asyncio.create_task(_pass_on(asked.fields, client, there))
        answer = await _head(server)
        while answer.first.split(" ", 2)[1] == "100":
            back.write(answer.raw)
            answer = await _head(server)
        kept = "close" not in answer.fields.get("connection", "").lower()
        if "expect" in asked.fields and not body.done():
            body.cancel()  # the server has answered without the body
            sent, kept = 0, False
        else:
            sent = await body
        empty = method == "HEAD" or answer.first.split(" ", 2)[1] in ("204", "304")
        received, data = (0, b"") if empty else await _body(answer.fields, server)
        self._seen.append(Asked(method, path, sent, received))  # before the client can go on
        back.write(answer.raw + data)
        await back.drain()
        return kept

    def __enter__(self) -> Self:
        self._thread.start()
        if not self._ready.wait(START_SECONDS):
            raise RuntimeError("the counting proxy did not start")
        return self

    def __exit__(self, *_: object) -> None:
        self._loop.call_soon_threadsafe(self._stop.set)
        self._thread.join(START_SECONDS)


@contextmanager
def counted_store() -> Iterator[tuple[Any, CountingProxy]]:
    """An S3 server that answers at once, and the relay in front of it."""
    from tests.servers import latency_s3

    with (
        latency_s3.running(0, 0) as place,
        CountingProxy(str(place.options["endpoint_url"])) as proxy,
    ):
        yield place, proxy
