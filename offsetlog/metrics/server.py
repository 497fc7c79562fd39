"""``/metrics`` over HTTP, for Prometheus or a collector, by the standard library alone.

Invariants:

1. The socket is bound before anything is printed, so the address that is shown answers.
2. Whoever connects costs little: at most ``MAX_CONNECTIONS`` at once, one request each, whose head
   comes, and whose answer is taken, within ``PATIENCE_SECONDS``, however slowly bytes drip.
3. One look at a time, and not two within ``LEAST_SECONDS``: those who ask together share one.
4. On loopback a request for another host is refused, so that a web page whose name leads here
   (DNS rebinding) reads nothing.
5. An error of ours is its sentence, by the redactor; of any other the class alone is said.
"""

from __future__ import annotations

import ipaddress
import socket
import threading
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler
from socketserver import TCPServer, ThreadingMixIn
from typing import Any

from offsetlog.engine.env import Env
from offsetlog.errors import OffsetLogError
from offsetlog.logs import get_logger
from offsetlog.metrics.exposition import CONTENT_TYPE

PATH = "/metrics"
MAX_CONNECTIONS = 16
PATIENCE_SECONDS = 10.0
LEAST_SECONDS = 1.0
OK, BAD_HOST, NOT_FOUND, FAILED = 200, 421, 404, 503
PLAIN = "text/plain; charset=utf-8"
logger = get_logger(__name__)


class MetricsServer(ThreadingMixIn, TCPServer):
    """Serves what ``text`` gives, until Ctrl-C."""

    allow_reuse_address = True
    daemon_threads = True
    block_on_close = False
    request_queue_size = 128

    def __init__(self, text: Callable[[], str], host: str, port: int, env: Env) -> None:
        self._text = text
        self._env = env
        self._lock = threading.Lock()
        self._newest: tuple[float, str] | None = None
        self._free = threading.BoundedSemaphore(MAX_CONNECTIONS)
        try:
            found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
            self.address_family, address = found[0], found[4]
            super().__init__((str(address[0]), int(address[1])), _Handler)
        except OSError as error:
            raise OffsetLogError(
                f"Nothing can listen on {host}:{port}: {error.strerror or error}.",
                "Name another place with --listen HOST:PORT.",
            ) from None
        self.port: int = self.server_address[1]
        own = str(self.server_address[0])
        shown = f"[{host}]" if ":" in host else host
        self.url = f"http://{shown}:{self.port}{PATH}"
        self._hosts: frozenset[str] | None = None
        if ipaddress.ip_address(own.partition("%")[0]).is_loopback:
            self._hosts = frozenset({"localhost", "127.0.0.1", "[::1]", shown.lower(), own})

    def answers_to(self, host: str) -> bool:
        """Whether the ``Host`` of a request is one of this server's names."""
        name, colon, port = host.lower().rpartition(":")
        bare = name if colon and port.isdecimal() else host.lower()
        return self._hosts is None or bare in self._hosts

    def newest(self) -> str:
        """The text of a look that is not older than a moment."""
        with self._lock:
            now = self._env.monotonic()
            if self._newest is None or not 0 <= now - self._newest[0] < LEAST_SECONDS:
                self._newest = (now, self._text())
            return self._newest[1]

    def serve(self) -> None:
        """Until Ctrl-C or SIGTERM."""
        try:
            self.serve_forever()
        finally:
            self.server_close()

    def process_request(self, request: Any, client_address: Any) -> None:
        if self._free.acquire(blocking=False):
            try:
                super().process_request(request, client_address)
            except BaseException:
                self._free.release()
                raise
        else:
            self.shutdown_request(request)  # Prometheus asks again by itself.

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        try:
            super().process_request_thread(request, client_address)
        finally:
            self._free.release()

    def handle_error(self, request: Any, client_address: Any) -> None:
        logger.debug("A connection ended early", exc_info=True)


class _Handler(BaseHTTPRequestHandler):
    """One request on a connection of its own."""

    server: MetricsServer
    server_version = "offsetlog"
    sys_version = ""

    def setup(self) -> None:
        super().setup()
        self._patience = self._impatient()

    def finish(self) -> None:
        try:
            super().finish()
        finally:
            self._patience.cancel()

    def _impatient(self) -> threading.Timer:
        """A time limit from now on: after it the connection is cut, whatever it does."""
        timer = threading.Timer(PATIENCE_SECONDS, _cut, [self.connection])
        timer.daemon = True
        timer.start()
        return timer

    def do_GET(self) -> None:
        self._patience.cancel()
        status, kind, text = self._answer()
        self._patience = self._impatient()
        data = text.encode()
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(data)))
        self.send_header("Cache-Control", "no-store")
        self.send_header("X-Content-Type-Options", "nosniff")
        self.end_headers()
        self.wfile.write(data)

    def _answer(self) -> tuple[int, str, str]:
        hosts = self.headers.get_all("Host", [])
        if len(hosts) != 1 or not self.server.answers_to(hosts[0]):
            return BAD_HOST, PLAIN, "The metrics are not served under this name.\n"
        if self.path.partition("?")[0] != PATH:
            return NOT_FOUND, PLAIN, f"The metrics are at {PATH}.\n"
        try:
            return OK, CONTENT_TYPE, self.server.newest()
        except OffsetLogError as error:
            logger.warning("A scrape failed: %s", error)
            return FAILED, PLAIN, f"{error}\n"
        except Exception as error:
            logger.exception("A scrape failed")
            return FAILED, PLAIN, f"An unexpected {type(error).__name__}.\n"

    def log_message(self, *_: object) -> None:
        """Nobody wants a line for each scrape."""


def _cut(connection: socket.socket) -> None:
    try:
        connection.shutdown(socket.SHUT_RDWR)
    except OSError:
        return  # It is gone.
