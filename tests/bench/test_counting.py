"""The counting relay sees what a client really sends."""

from __future__ import annotations

import http.client
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from tests.servers.relay import Proxy, Request


class _Echo(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_PUT(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        self._answer(200, body[::-1])

    def do_GET(self) -> None:
        self._answer(404 if "missing" in self.path else 200, b"12345")

    def do_HEAD(self) -> None:
        self.send_response(200)
        self.send_header("Content-Length", "77")
        self.end_headers()

    def _answer(self, status: int, data: bytes) -> None:
        self.send_response(status)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, *_: object) -> None:
        """Quiet."""


@pytest.fixture
def upstream() -> Iterator[int]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), _Echo)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    yield server.server_port
    server.shutdown()
    server.server_close()
    thread.join()


def test_requests_and_bodies_are_counted_both_ways(upstream: int) -> None:
    with Proxy(upstream) as proxy:
        connection = http.client.HTTPConnection("127.0.0.1", proxy.port, timeout=10)

        def ask(method: str, path: str, body: bytes | None = None, **headers: str) -> bytes:
            connection.request(method, path, body, headers)
            return connection.getresponse().read()

        ask("GET", "/before")
        with proxy.counted() as counted:
            assert ask("PUT", "/a", b"abc") == b"cba"
            assert ask("PUT", "/a", b"abcd", Expect="100-continue") == b"dcba"
            assert ask("GET", "/missing") == b"12345"
            ask("HEAD", "/a")
        connection.close()
    assert list(counted) == [
        Request("PUT", "/a", 3, 3),
        Request("PUT", "/a", 4, 4),
        Request("GET", "/missing", 0, 5),
        Request("HEAD", "/a", 0, 0),
    ]
    assert counted.bytes == 19
