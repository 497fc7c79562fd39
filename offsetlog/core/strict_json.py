"""JSON that cannot be misread.

Rules of this module:

1. The size is capped before anything is parsed.
2. Duplicate keys, NaN, infinities and deep nesting are refused.
"""

from __future__ import annotations

import json
import re
from math import isinf
from typing import Any

from offsetlog.errors import CorruptLogError

MAX_BYTES = 64 * 1024 * 1024
MAX_VALUES = 4_000_000
"""Of one text. A byte of brackets can become a hundred bytes of memory."""
_STRING = rb'"[^"\\]*+(?:\\.[^"\\]*+)*+"'
_STRINGS = re.compile(_STRING, re.DOTALL)
_BLOCKS = re.compile(rb'(?:[^"]++|' + _STRING + rb"){1,50000}+", re.DOTALL)


class _Refused(ValueError):
    pass


def _no_duplicates(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    out = dict(pairs)
    if len(out) != len(pairs):
        seen: set[str] = set()
        twice = next(key for key, _ in pairs if key in seen or seen.add(key))  # type: ignore[func-returns-value]
        raise _Refused(f"duplicate key {twice[:60]!r}")
    return out


def _no_constants(name: str) -> Any:
    raise _Refused(f"{name} is not a number here")


def _finite(digits: str) -> float:
    number = float(digits)
    if isinf(number):
        raise _Refused(f"{digits[:60]} is too large a number")
    return number


_decoder = json.JSONDecoder(
    object_pairs_hook=_no_duplicates, parse_constant=_no_constants, parse_float=_finite
)


encode = json.JSONEncoder(separators=(",", ":"), allow_nan=False).encode


def dumps(value: object) -> bytes:
    return encode(value).encode()


def loads(
    data: bytes | str, what: str, max_bytes: int = MAX_BYTES, max_values: int = MAX_VALUES
) -> Any:
    """The value, or ``CorruptLogError`` that names ``what``."""
    if len(data) > max_bytes:
        raise CorruptLogError(f"{what}: {len(data)} bytes of JSON, at most {max_bytes} are read.")
    if len(data) > max_values:  # Else it can't hold more of them.
        raw = data if isinstance(data, bytes) else data.encode("utf-8", "surrogatepass")
        check_values(raw, what, max_values)
    try:
        text = data.decode("utf-8") if isinstance(data, bytes) else data
        return _decoder.decode(text)
    except RecursionError:
        raise CorruptLogError(f"{what}: the JSON is nested too deeply.") from None
    except ValueError as error:
        raise CorruptLogError(f"{what}: not the JSON that was expected: {error}.") from None


def check_values(text: bytes, what: str, max_values: int = MAX_VALUES) -> None:
    """Refuse a text of more values, before one of them takes memory."""
    if _count(text) > max_values and _more_than(text, max_values):
        raise CorruptLogError(f"{what}: more than {max_values} values in one JSON text.")


def _count(text: bytes) -> int:
    return sum(map(text.count, (b",", b"[", b"{")))


def _more_than(text: bytes, most: int) -> bool:
    """The same without what stands in strings. Only what is suspicious is looked at so closely."""
    found = 0
    for block in _BLOCKS.finditer(text):
        found += _count(_STRINGS.sub(b"", block[0]))
        if found > most:
            return True
    return False  # What is left over is half a string, which is no JSON.
