"""Answers: JSON, the page's own files, and errors as a status and a sentence.

Invariants:

1. What is wrong with a request is a 4xx, what failed a 5xx; both are one sentence, never a trace.
2. JSON is of ASCII characters, so any stored text can be sent.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from importlib.resources import files
from typing import NamedTuple

from starlette.requests import Request
from starlette.responses import Response

from offsetlog.errors import (
    FencedError,
    InvalidRequestError,
    OffsetLogError,
    StorageError,
    UnknownTopicError,
)
from offsetlog.logs import get_logger
from offsetlog.page.jobs import BusyError, unexpected

logger = get_logger(__name__)


class ClientError(Exception):
    """A request that is answered by a status and a sentence."""

    def __init__(self, status: int, text: str) -> None:
        super().__init__(text)
        self.status = status
        self.text = text


def as_json(
    document: object, status: int = 200, *, at: int | None = None, pause: float | None = None
) -> Response:
    """``at``: when the log was looked at (ms since 1970). ``pause``: seconds to the next look."""
    headers = {"cache-control": "no-store"}
    if at is not None:
        headers["x-offsetlog-at"] = str(at)
    if pause is not None:
        headers["x-offsetlog-pause"] = str(round(pause * 1000))
    data = json.dumps(document, separators=(",", ":"), allow_nan=False).encode()
    return Response(data, status, headers, "application/json")


def refused(status: int, text: str) -> Response:
    return as_json({"error": text}, status)


def failed(error: Exception) -> Response:
    """An error as a status and a sentence."""
    match error:
        case ClientError():
            return refused(error.status, error.text)
        case UnknownTopicError():
            status = 404
        case BusyError() | FencedError():
            status = 409
        case InvalidRequestError():
            status = 400
        case StorageError():
            status = 503
        case OffsetLogError():
            status = 500
        case _:
            logger.error("A request failed", exc_info=error)
            return refused(500, unexpected(error))
    return refused(status, str(error))


class StaticFile(NamedTuple):
    data: bytes
    kind: str
    tag: str

    @classmethod
    def all(cls, kinds: Mapping[str, str]) -> dict[str, StaticFile]:
        """The page's own files, by name; ``kinds`` says what each ending is."""
        out = {}
        for file in files("offsetlog.page").joinpath("static").iterdir():
            kind = kinds.get(file.name[file.name.rfind(".") :])
            if kind is not None:
                data = file.read_bytes()
                out[file.name] = cls(data, kind, f'"{hashlib.sha256(data).hexdigest()[:32]}"')
        return out

    def response(self, request: Request) -> Response:
        headers = {"cache-control": "no-cache", "etag": self.tag, "content-type": self.kind}
        if request.headers.get("if-none-match") == self.tag:
            return Response(b"", 304, headers)
        return Response(self.data, 200, headers)
