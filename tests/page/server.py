"""A page of a log in this process, and requests to it as a program sends them."""

from __future__ import annotations

import http.client
import json
from typing import Any, NamedTuple
from urllib.parse import quote, urlencode, urlsplit

from offsetlog.page.server import PageServer


class Answer(NamedTuple):
    status: int
    headers: dict[str, str]
    data: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.data)

    @property
    def error(self) -> str:
        return self.json["error"]


def token_of(server: PageServer) -> str:
    return urlsplit(server.sign_in_url).query.removeprefix("token=")


class Client:
    """Speaks to one server; headers are as they are given, ``Host`` too."""

    def __init__(self, server: PageServer, **headers: str) -> None:
        self._address = server._socket.getsockname()[:2]
        self._headers = {name.replace("_", "-"): value for name, value in headers.items()}
        self._base = server._base

    def ask(self, method: str, path: str, body: bytes | None = None, headers: Any = None) -> Answer:
        connection = http.client.HTTPConnection(*self._address, timeout=30)
        try:
            given = {**self._headers, **(headers or {})}
            connection.request(method, path, body, given)
            got = connection.getresponse()
            names = {name.lower(): value for name, value in got.getheaders()}
            return Answer(got.status, names, got.read())
        finally:
            connection.close()

    def get(self, path: str, **parameters: object) -> Answer:
        query = f"?{urlencode(parameters)}" if parameters else ""
        return self.ask("GET", f"{self._base}{quote(path, safe='/%')}{query}")

    def post(self, path: str, value: object, **headers: str) -> Answer:
        names = {name.replace("_", "-"): one for name, one in headers.items()}
        sent = {"content-type": "application/json", **names}
        return self.ask("POST", f"{self._base}{path}", json.dumps(value).encode(), sent)
