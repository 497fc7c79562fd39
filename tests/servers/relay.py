"""An HTTP proxy that stands before a server and does what networks do.

1. It counts the requests that reach it, retries and hidden ones of client libraries too.
2. It can be slow, and it can lose an answer after the server has acted: the connection ends
   where the answer should have been.
3. It can be silent: it takes requests, and answers them when the silence is over, if their sender
   still waits. The server acts on them before that or after it.
4. It passes heads and bodies on as they are (signatures stay good), and keeps connections
   open on both sides, one to the server for each from a client.
5. It holds one request or answer in memory at a time: it is for tests.
"""

from __future__ import annotations

import socket
import socketserver
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from io import BufferedIOBase
from typing import NamedTuple

_WAIT_SECONDS = 60


@dataclass
class _Loss:
    left: int
    method: str
    within: str


class Request(NamedTuple):
    """One request that was answered; bytes of bodies only, without heads and framing."""

    method: str
    path: str
    sent: int
    received: int


class Requests(list[Request]):
    """Those of a stretch of time."""

    @property
    def bytes(self) -> int:
        """Bodies, both ways."""
        return sum(request.sent + request.received for request in self)


@dataclass(frozen=True)
class _Message:
    start: str
    headers: tuple[tuple[str, str], ...]
    raw_head: bytes
    body: bytes
    """As it came, with the framing of chunks."""
    size: int
    """Of the body itself."""

    def header(self, name: str) -> str:
        return next((v for k, v in self.headers if k.lower() == name), "")


class Proxy:
    """``with Proxy(port) as proxy: ...`` then talk to ``proxy.url`` instead of the server."""

    def __init__(self, port: int, host: str = "127.0.0.1", latency: float = 0.0) -> None:
        self.latency = latency
        """Seconds added to each request, half before the server acts and half after."""
        self.counts: Counter[str] = Counter()
        self.paths: list[str] = []
        self._answered: list[Request] = []
        self._losses: list[_Loss] = []
        self._speaks = threading.Event()
        self._speaks.set()
        self._acts = False
        self._lock = threading.Lock()
        self._server = _Server(("127.0.0.1", 0), _Handler)
        self._server.proxy = self
        self._server.upstream = (host, port)
        self.port: int = self._server.server_address[1]
        self.url = f"http://127.0.0.1:{self.port}"
        self._thread = threading.Thread(target=self._server.serve_forever, daemon=True)

    def __enter__(self) -> Proxy:
        self._thread.start()
        return self

    def __exit__(self, *about: object) -> None:
        self._speaks.set()
        self._server.shutdown()
        self._server.server_close()
        self._thread.join(timeout=5)

    @contextmanager
    def silent(self, acts: bool = False) -> Iterator[None]:
        """Nothing is answered in a block; ``acts``: though the server does what it is asked."""
        self._acts = acts
        self._speaks.clear()
        try:
            yield
        finally:
            self._speaks.set()

    def be_silent(self, seconds: float, acts: bool = False) -> None:
        """Answer nothing for so long; returns at once."""
        self._acts = acts
        self._speaks.clear()
        timer = threading.Timer(seconds, self._speaks.set)
        timer.daemon = True
        timer.start()

    @contextmanager
    def counted(self) -> Iterator[Requests]:
        """The requests that are answered in a block, when it has ended."""
        before = len(self._answered)
        requests = Requests()
        yield requests
        requests.extend(self._answered[before:])

    def reset(self) -> None:
        """Forget what was counted."""
        with self._lock:
            self.counts.clear()
            self.paths.clear()

    def lose(self, count: int = 1, method: str = "", within: str = "") -> None:
        """Lose the answers to the next ``count`` requests of a method whose path contains
        ``within``. The server acts on them."""
        with self._lock:
            self._losses.append(_Loss(count, method, within))

    def _saw(self, method: str, path: str) -> None:
        with self._lock:
            self.counts[method] += 1
            self.paths.append(f"{method} {path}")

    def _loses(self, method: str, path: str) -> bool:
        with self._lock:
            for loss in self._losses:
                if loss.left and loss.method in ("", method) and loss.within in path:
                    loss.left -= 1
                    return True
        return False


class _Server(socketserver.ThreadingTCPServer):
    allow_reuse_address = True
    daemon_threads = True
    request_queue_size = 128
    proxy: Proxy
    upstream: tuple[str, int]


class _Handler(socketserver.StreamRequestHandler):
    disable_nagle_algorithm = True
    timeout = _WAIT_SECONDS

    def handle(self) -> None:
        assert isinstance(self.server, _Server)
        try:
            with socket.create_connection(self.server.upstream, _WAIT_SECONDS) as upstream:
                upstream.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                with upstream.makefile("rb") as answers:
                    while self._one(self.server.proxy, upstream, answers):
                        continue
        except (OSError, ValueError):
            return  # One side went away; the other learns it from the closed connection.

    def _one(self, proxy: Proxy, upstream: socket.socket, answers: BufferedIOBase) -> bool:
        request = _read_message(self.rfile, self.wfile)
        if request is None:
            return False
        method, path, _ = request.start.split(" ", 2)
        proxy._saw(method, path)
        time.sleep(proxy.latency / 2)
        if not proxy._acts:
            proxy._speaks.wait()
        upstream.sendall(request.raw_head + request.body)
        answer = _read_answer(answers, method)
        proxy._speaks.wait()
        if answer is None or proxy._loses(method, path):
            return False
        time.sleep(proxy.latency / 2)
        # Before the client can go on, so that it is counted by then.
        proxy._answered.append(Request(method, path, request.size, answer.size))
        self.wfile.write(answer.raw_head + answer.body)
        self.wfile.flush()
        closes = "close" in (request.header("connection") + answer.header("connection")).lower()
        return not closes


def _read_message(source: BufferedIOBase, back: BufferedIOBase | None = None) -> _Message | None:
    """A head and the body that it announces; None at the end of the connection."""
    start = source.readline(65536)
    if not start:
        return None
    lines = [start]
    headers: list[tuple[str, str]] = []
    while (line := source.readline(65536)) not in (b"\r\n", b"\n", b""):
        name, _, value = line.decode("latin-1").partition(":")
        headers.append((name.strip(), value.strip()))
        if name.strip().lower() != "expect":
            lines.append(line)
        elif back is not None:
            # The proxy itself takes the body; the server is sent all at once.
            back.write(b"HTTP/1.1 100 Continue\r\n\r\n")
            back.flush()
    head = b"".join(lines) + b"\r\n"
    message = _Message(start.decode("latin-1").strip(), tuple(headers), head, b"", 0)
    if "chunked" in message.header("transfer-encoding").lower():
        body, size = _read_chunks(source)
    else:
        body = source.read(int(message.header("content-length") or 0))
        size = len(body)
    return _Message(message.start, message.headers, head, body, size)


def _read_answer(source: BufferedIOBase, method: str) -> _Message | None:
    while True:
        start = source.peek(1)[:1] if hasattr(source, "peek") else b"H"
        if not start:
            return None
        if method != "HEAD":
            answer = _read_message(source)
        else:
            answer = _read_head(source)
        if answer is None or not answer.start.split(" ")[1].startswith("1"):
            return answer


def _read_head(source: BufferedIOBase) -> _Message | None:
    """An answer that announces a body and has none."""
    lines = [source.readline(65536)]
    headers: list[tuple[str, str]] = []
    while (line := source.readline(65536)) not in (b"\r\n", b"\n", b""):
        lines.append(line)
        name, _, value = line.decode("latin-1").partition(":")
        headers.append((name.strip(), value.strip()))
    head = b"".join(lines) + b"\r\n"
    return _Message(lines[0].decode("latin-1").strip(), tuple(headers), head, b"", 0)


def _read_chunks(source: BufferedIOBase) -> tuple[bytes, int]:
    """The chunks as they are, which are passed on, and the size of what they hold."""
    pieces, total = [], 0
    while True:
        line = source.readline(65536)
        pieces.append(line)
        size = int(line.split(b";")[0], 16)
        pieces.append(source.read(size + 2))
        total += size
        if not size:
            return b"".join(pieces), total
