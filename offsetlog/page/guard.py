"""The door: what is checked of every request, and the headers of every answer.

Invariants:

1. Nothing else sees a request before its host, origin and token were checked.
2. No answer lets a browser run, embed or fetch anything that is not the page's own.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any
from urllib.parse import parse_qsl

from starlette.responses import Response

from offsetlog.page.access import Access, Refusal
from offsetlog.page.responses import refused

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]
AsgiApp = Callable[[Scope, Receive, Send], Awaitable[None]]

DAY_SECONDS = 86_400
SINGLE = ("origin", "authorization", "sec-fetch-site")
"""Headers that are judged: of two that differ no one says which is meant."""
HEADERS = {
    "content-security-policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; "
        "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    ),
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
    "referrer-policy": "no-referrer",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "permissions-policy": "camera=(), geolocation=(), microphone=()",
}


class Guard:
    """Checks a request before anything else sees it, and adds the headers that every answer has."""

    def __init__(self, app: AsgiApp, access: Access, base_path: str) -> None:
        self._app = app
        self._access = access
        self._base = base_path

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            raise RuntimeError("the page speaks HTTP alone")

        async def send_with_headers(message: MutableMapping[str, Any]) -> None:
            if message["type"] == "http.response.start":
                own = [(name.encode(), value.encode()) for name, value in HEADERS.items()]
                message["headers"] = [*message.get("headers", []), *own]
            await send(message)

        answer = self._check(scope)
        await (self._app if answer is None else answer)(scope, receive, send_with_headers)

    def _check(self, scope: Scope) -> Response | None:
        """What is answered in place of the page; None where the request may pass."""
        pairs = [
            (name.decode("latin-1"), value.decode("latin-1")) for name, value in scope["headers"]
        ]
        headers = dict(pairs)
        refusal: Refusal | None = None
        if sum(name == "host" for name, _ in pairs) != 1:
            refusal = Refusal(400, "The request names no host, or several.")
        elif any(sum(name == one for name, _ in pairs) > 1 for one in SINGLE):
            refusal = Refusal(400, f"The request has one of {', '.join(SINGLE)} twice.")
        path = self._path(scope["path"])
        if refusal is None:
            refusal = self._access.check_host(headers["host"])
        if refusal is None:
            is_api = path is None or path != "/"
            refusal = self._access.check_origin(headers, is_api)
        if refusal is not None:
            return refused(*refusal)
        if path is None:
            location = f"{self._base}/"
            return Response(b"", 307, {"location": location, "cache-control": "no-store"})
        if path == "/" and scope["query_string"]:
            return self._sign_in(scope["query_string"])
        has_token = self._access.has_token(headers)
        cookie = _cookie(self._access.cookie_name, headers.get("cookie", ""))
        refusal = self._access.check_read(has_token, cookie)
        if refusal is not None:
            return refused(*refusal)
        scope["offsetlog.has_token"] = has_token
        scope["path"] = path
        scope["raw_path"] = path.encode()
        return None

    def _path(self, path: str) -> str | None:
        """The path without the base, which a proxy may have taken away already; None: it is the
        base without its slash, below which the page's own addresses would be wrong."""
        if self._base and path == self._base:
            return None
        if self._base and path.startswith(f"{self._base}/"):
            return path[len(self._base) :]
        return path

    def _sign_in(self, query: bytes) -> Response:
        """``/?token=...`` sets the cookie for reading, and hands the token to the page's script
        behind the ``#``, which no browser sends to a server; the script takes it out of there."""
        pairs = parse_qsl(query.decode("latin-1"), keep_blank_values=True)
        if len(pairs) != 1 or pairs[0][0] != "token":
            return refused(400, "This address takes a token and nothing else.")
        if not self._access.is_token(pairs[0][1]):
            return refused(401, "This is not the token of this page, or no longer.")
        cookie = (
            f"{self._access.cookie_name}={self._access.read_pass}; Path={self._base}/; "
            f"Max-Age={DAY_SECONDS}; HttpOnly; SameSite=Strict"
        )
        location = f"{self._base}/#token={pairs[0][1]}"
        headers = {"location": location, "set-cookie": cookie, "cache-control": "no-store"}
        return Response(b"", 303, headers)


def _cookie(name: str, header: str) -> str | None:
    for part in header.split(";"):
        own, _, value = part.strip().partition("=")
        if own == name:
            return value
    return None
