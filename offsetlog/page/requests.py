"""What a request says: parameters, cursors and bodies, checked.

Invariants:

1. A parameter that is not known, there twice or not understood is an error that names it.
2. A body is JSON, of bounded size, and read no further and no longer than that. It is parsed
   where its caller likes: not in the event loop.
"""

from __future__ import annotations

import asyncio
from base64 import b64decode
from collections.abc import Mapping
from typing import Any

from starlette.requests import Request

from offsetlog.core import strict_json
from offsetlog.core.times import parse_datetime
from offsetlog.errors import CorruptLogError, InvalidRequestError
from offsetlog.page import records
from offsetlog.page.responses import ClientError
from offsetlog.values import MAX_OFFSET, MAX_PARTITIONS

MAX_BODY_BYTES = 4 * 1024 * 1024
"""A file of positions of all partitions that a topic may have."""
MAX_BODY_VALUES = 3 * MAX_PARTITIONS
BODY_SECONDS = 30.0
MAX_WAIT_SECONDS = 20.0


def parameters(request: Request, *names: str) -> dict[str, str]:
    """The query's parameters, each known and there once."""
    out: dict[str, str] = {}
    for name, value in request.query_params.multi_items():
        if name not in names:
            allowed = f"Allowed: {', '.join(names)}." if names else "There are none here."
            raise InvalidRequestError(f"{name[:100]!r} is not a parameter of this.", allowed)
        if name in out:
            raise InvalidRequestError(f"{name} is there twice.", "Give it once.")
        out[name] = value
    return out


def whole(name: str, text: str | None) -> int | None:
    if text is None or text == "":
        return None
    if not (text.isascii() and text.isdecimal() and len(text) < 20 and int(text) <= MAX_OFFSET):
        raise InvalidRequestError(f"{name} is {text[:100]!r}.", "It takes a whole number from 0.")
    return int(text)


def limit_of(given: Mapping[str, str], highest: int) -> int:
    limit = whole("limit", given.get("limit"))
    if limit is None:
        return min(50, highest)
    if not 1 <= limit <= highest:
        raise InvalidRequestError(f"limit is {limit}.", f"It takes 1 to {highest}.")
    return limit


def seconds_of(text: str | None) -> float:
    seconds = whole("wait", text) or 0
    if seconds > MAX_WAIT_SECONDS:
        raise InvalidRequestError(
            f"wait is {seconds}.", f"It takes at most {MAX_WAIT_SECONDS:.0f} seconds."
        )
    return float(seconds)


def flag(name: str, text: str | None) -> bool:
    if text not in (None, "", "true", "false"):
        raise InvalidRequestError(f"{name} is {text[:100]!r}.", "It takes true or false.")
    return text == "true"


def record_query(given: Mapping[str, str]) -> records.Query:
    """Which records are asked for."""
    partitions = given.get("partition") or None
    order = given.get("order") or None
    if order not in (None, "newest", "oldest"):
        raise InvalidRequestError(f"order is {order[:100]!r}.", "It takes newest or oldest.")
    starts = [name for name in ("offset", "timestamp", "cursor") if given.get(name)]
    if len(starts) > 1:
        raise InvalidRequestError(
            f"{starts[0]} and {starts[1]} don't go together.", "Give one of them."
        )
    if given.get("key") is not None and given.get("key_base64"):
        raise InvalidRequestError("key and key_base64 don't go together.", "Give one of them.")
    numbers = None
    if partitions is not None:
        parts = [whole("partition", part) for part in partitions.split(",")[: records.MAX_MERGED]]
        numbers = tuple(dict.fromkeys(part for part in parts if part is not None))
    return records.Query(
        partitions=numbers,
        offset=whole("offset", given.get("offset")),
        time_ms=_time(given.get("timestamp")),
        key=_key(given),
        contains=_bytes(given.get("contains")) or None,
        newest_first=None if order is None else order == "newest",
        cursor=parse_cursor(given.get("cursor")),
        limit=limit_of(given, records.MAX_LIMIT),
    )


def _time(text: str | None) -> int | None:
    """Milliseconds since 1970, or ISO 8601."""
    if not text:
        return None
    return (
        int(text)
        if text.isascii() and text.isdecimal() and len(text) < 16
        else parse_datetime(text)
    )


def _bytes(text: str | None) -> bytes:
    try:
        return (text or "").encode()
    except UnicodeEncodeError:
        raise InvalidRequestError("This text can't be written as UTF-8.") from None


def _key(given: Mapping[str, str]) -> bytes | None:
    if given.get("key_base64"):
        try:
            return b64decode(given["key_base64"], validate=True)
        except ValueError:
            raise InvalidRequestError("key_base64 is not base64.") from None
    return _bytes(given["key"]) if "key" in given else None


def parse_cursor(text: str | None) -> dict[int, int] | None:
    """``0:120,1:80``: offsets by partition."""
    if not text:
        return None
    out: dict[int, int] = {}
    for part in text.split(","):
        number, colon, offset = part.partition(":")
        partition, at = whole("cursor", number), whole("cursor", offset)
        if not colon or partition is None or at is None or partition in out:
            raise InvalidRequestError(
                f"The cursor has {part[:100]!r}.", "Write it like 0:120,1:80."
            )
        out[partition] = at
    return out


def format_cursor(cursor: Mapping[int, int]) -> str:
    return ",".join(f"{partition}:{offset}" for partition, offset in sorted(cursor.items()))


async def body(request: Request) -> bytes:
    """What was sent, which says that it is JSON."""
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind != "application/json":
        raise ClientError(415, "Send JSON, with the content type application/json.")
    data = bytearray()
    try:
        async with asyncio.timeout(BODY_SECONDS):
            async for chunk in request.stream():
                data += chunk
                if len(data) > MAX_BODY_BYTES:
                    raise ClientError(413, f"More than {MAX_BODY_BYTES:,} bytes were sent.")
    except TimeoutError:
        text = f"The request was not whole after {BODY_SECONDS:.0f} seconds."
        raise ClientError(408, text) from None
    return bytes(data)


def json_object(data: bytes) -> dict[str, Any]:
    """The JSON object that a body is."""
    try:
        value = strict_json.loads(data, "The request", max_values=MAX_BODY_VALUES)
    except CorruptLogError as error:
        raise InvalidRequestError(str(error)) from None
    if not isinstance(value, dict):
        raise InvalidRequestError("The request is not a JSON object.")
    return value
