"""The forms in which a secret comes back from libraries, and how to find it in a text again."""

from __future__ import annotations

import base64
import binascii
import codecs
import html
import json
import re
from collections.abc import Callable, Iterator
from contextlib import suppress
from urllib.parse import quote, quote_plus, unquote, unquote_plus

FORMS: dict[str, Callable[[str], str]] = {
    "as it is": lambda s: s,
    "quoted": lambda s: quote(s, safe=""),
    "quoted, slashes left": quote,
    "quoted in small letters": lambda s: (
        quote(s, safe="").replace("%2F", "%2f").lower()
        if s.islower()
        else quote(s, safe="").replace("%2F", "%2f").replace("%2B", "%2b")
    ),
    "a form's": quote_plus,
    "quoted twice": lambda s: quote(quote(s, safe=""), safe=""),
    "half quoted": lambda s: s.replace("+", "%2B"),
    "repr": repr,
    "repr of a repr": lambda s: repr(repr(s)),
    "repr of bytes": lambda s: repr(s.encode()),
    "JSON": json.dumps,
    "JSON with its letters": lambda s: json.dumps(s, ensure_ascii=False),
    "JSON in JSON": lambda s: json.dumps(json.dumps(s)),
    "HTML": html.escape,
    "hex": lambda s: s.encode().hex(),
    "HEX": lambda s: s.encode().hex().upper(),
    "base64": lambda s: base64.b64encode(s.encode()).decode(),
    "base64 for URLs": lambda s: base64.urlsafe_b64encode(s.encode()).decode().rstrip("="),
    "basic": lambda s: "x: " + base64.b64encode(f"me:{s}".encode()).decode(),
    "basic with a longer name": lambda s: base64.b64encode(f"user:{s}!".encode()).decode(),
    "base64 in a URL": lambda s: quote(base64.b64encode(s.encode()).decode(), safe=""),
    "in a longer text": lambda s: f"before{s}after",
}


WINDOW = 6


def find_secret(text: str, *secrets: str) -> str | None:
    """Where some characters of a secret stand in a text, in whatever form; None: nowhere."""
    windows = {s[i : i + WINDOW] for s in secrets for i in range(len(s) - WINDOW + 1)}
    any_of_them = re.compile("|".join(map(re.escape, sorted(windows))))
    for read in readings(text):
        found = any_of_them.search(read)
        if found is not None:
            return read[max(0, found.start() - 200) : found.end() + 200]
    return None


def readings(text: str) -> Iterator[str]:
    """The text as it is, and as those read it who know how it was written."""
    yield text
    yield unquote(text)
    yield unquote(unquote(text))
    yield unquote_plus(text)
    yield html.unescape(text)
    out = text
    for _ in range(3):
        out = _unescaped(out)
        yield out
    # Letters that are bytes of UTF-8, as in the repr of bytes.
    with suppress(UnicodeError):
        yield out.encode("latin-1", "ignore").decode("utf-8", "ignore")
    yield "\n".join(_decoded({*re.findall(r"[A-Za-z0-9+/_=-]{8,400}", unquote(text))}))


def _decoded(tokens: set[str]) -> Iterator[str]:
    """What may be base64 or hex."""
    for token in tokens:
        if not re.search(r"[0-9A-Z]", token):
            continue
        plain = token.replace("-", "+").replace("_", "/").rstrip("=")
        for start in range(4):
            part = plain[start:]
            with suppress(binascii.Error, ValueError):
                yield base64.b64decode(part[: len(part) // 4 * 4]).decode("utf-8", "ignore")
        with suppress(ValueError):
            yield bytes.fromhex(token).decode("utf-8", "ignore")


def _unescaped(text: str) -> str:
    """Backslashes are read once."""

    def read(match: re.Match[str]) -> str:
        with suppress(UnicodeError):
            return codecs.decode(match[0], "unicode_escape")
        return match[0]

    return re.sub(r"\\(?:u[0-9a-fA-F]{4}|x[0-9a-fA-F]{2}|[\\'\"nrt/])", read, text)
