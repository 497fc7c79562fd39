"""The server of the page: a socket, a token where one is needed, and uvicorn.

Invariants:

1. The socket is bound before anything is printed, so the address that is shown answers.
2. A token is made anew at each start, is never logged, and is in no address but the one that is
   printed at the start.
3. Slow and many clients are bounded: connections, headers, keep-alives and the end.
"""

from __future__ import annotations

import asyncio
import secrets
import socket
import threading
from collections.abc import Iterable

import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol

from offsetlog.client import running_pages
from offsetlog.client.log import Log
from offsetlog.errors import InvalidRequestError, OffsetLogError
from offsetlog.metrics import Metrics
from offsetlog.page.access import Access, is_loopback, split_host
from offsetlog.page.app import Page

DEFAULT_HOST = "127.0.0.1"
DEFAULT_PORT = 8900
MAX_CONNECTIONS = 200
START_SECONDS = 30.0
REQUEST_SECONDS = 10.0
"""In which the head of a request comes, or the connection ends."""
LEAST_BYTES = 16 * 1024
"""What a client takes of an answer in that time, or the connection ends."""


class _Impatient(H11Protocol):
    """A connection ends on which no request comes, or whose client does not take its answer: it
    counts among the most that there may be, and is held by anybody who can connect, with the token
    or without."""

    _takes = False
    """What was written did not fit, and room came since the last look."""
    _next_look: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._look_later()

    def resume_writing(self) -> None:
        super().resume_writing()
        self._takes = True

    def connection_lost(self, exc: Exception | None) -> None:
        if self._next_look is not None:
            self._next_look.cancel()
        super().connection_lost(exc)

    def _look_later(self) -> None:
        self._takes = False
        unread = self.transport.get_write_buffer_size()
        self._next_look = self.loop.call_later(REQUEST_SECONDS, self._look, self.cycle, unread)

    def _look(self, request: object, unread: int) -> None:
        left = self.transport.get_write_buffer_size()
        is_asked = self.cycle is not request
        is_answering = self.cycle is not None and not self.cycle.response_complete and not left
        if is_asked or is_answering or self._takes or 0 < left <= unread - LEAST_BYTES:
            self._look_later()
        else:
            self.transport.abort()  # A close waits for the client.


class PageServer:
    """The page of an open log. Serve until Ctrl-C, or in the background of a ``with`` block."""

    def __init__(
        self,
        log: Log,
        *,
        host: str = DEFAULT_HOST,
        port: int = DEFAULT_PORT,
        allow_changes: bool = False,
        allowed_hosts: Iterable[str] = (),
        base_path: str = "",
        metrics: Metrics | None = None,
    ) -> None:
        root_id = log.root_id  # A log that is not there is an error, not an empty page.
        base = check_base_path(base_path)
        names = [check_allowed_host(name) for name in allowed_hosts]
        self.needs_token = allow_changes or not is_loopback(host.lower())
        token = secrets.token_urlsafe(32) if self.needs_token else None
        self._host, self._token, self._base = shown_host(host), token, base
        access = Access(host, names, token=token, allow_changes=allow_changes, shown=self._host)
        self.page = Page(log, access, base_path=base, metrics=metrics)
        self._socket = _bound(host, port)
        self.port: int = self._socket.getsockname()[1]
        self._root_id = root_id
        self._thread: threading.Thread | None = None
        self._server = uvicorn.Server(
            uvicorn.Config(
                self.page.app,
                access_log=False,
                log_config=None,
                lifespan="off",
                ws="none",
                http=_Impatient,
                loop="asyncio",
                proxy_headers=False,
                server_header=False,
                limit_concurrency=MAX_CONNECTIONS,
                timeout_keep_alive=10,
                timeout_graceful_shutdown=1,
                h11_max_incomplete_event_size=64 * 1024,
            )
        )

    @property
    def url(self) -> str:
        """Where it is, without the token."""
        shown = f"[{self._host}]" if ":" in self._host else self._host
        return f"http://{shown}:{self.port}{self._base}/"

    @property
    def sign_in_url(self) -> str:
        """The same, with the token where there is one: for who started it."""
        return self.url if self._token is None else f"{self.url}?token={self._token}"

    def serve(self) -> None:
        """Until Ctrl-C or SIGTERM."""
        note = running_pages.announce(self._root_id, self.url)
        try:
            self._server.run(sockets=[self._socket])
        finally:
            running_pages.withdraw(note)
            self._socket.close()
            self.page.close()

    def __enter__(self) -> PageServer:
        self._thread = threading.Thread(target=self.serve, name="offsetlog-page", daemon=True)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.should_exit = True
        if self._thread is not None:
            self._thread.join(START_SECONDS)


def shown_host(host: str) -> str:
    """The name that is printed, which the page answers to: this machine's where it listens on all
    of its addresses."""
    everywhere = ("", "0.0.0.0", "::")  # noqa: S104 - what was asked for
    return socket.gethostname() if host in everywhere else host


def check_base_path(text: str) -> str:
    """``/logs``, with a slash in front and none behind; nothing stands for none."""
    path = text.strip("/")
    if not path:
        return ""
    parts = path.split("/")
    plain = all(
        part
        and part not in (".", "..")
        and all(c.isascii() and (c.isalnum() or c in "._~-") for c in part)
        for part in parts
    )
    if not plain:
        raise InvalidRequestError(
            f"{text!r} is not a base path.", "Write it like /logs, of letters, digits and ._~-."
        )
    return f"/{path}"


def check_allowed_host(text: str) -> str:
    if not split_host(text)[0] or "/" in text:
        raise InvalidRequestError(
            f"{text!r} is not the name of a host.", "Write it like logs.example.org."
        )
    return text


def _bound(host: str, port: int) -> socket.socket:
    """A socket that listens there."""
    try:
        family, kind, proto, _, address = socket.getaddrinfo(
            host or None, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
        sock = socket.socket(family, kind, proto)
        try:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            sock.bind(address)
            sock.listen(128)
        except OSError:
            sock.close()
            raise
        return sock
    except OSError as error:
        raise OffsetLogError(
            f"The page can't listen on {host}:{port}: {error.strerror or error}.",
            "Choose another with --host and --port.",
        ) from None
