"""Text that others wrote, on its way to a terminal, a log line, a page, a notebook or a message.

Invariants:

1. What can't be printed is shown as its escape: control characters, ends of lines, what turns
   the direction of a text, halves of surrogate pairs. Nothing stored moves a cursor, makes a line
   of its own, or fails to be encoded.
2. Every message has a bounded length: of one that is longer its middle is left out.
3. Shown text stays as it is when it is shown again.
"""

from __future__ import annotations

import html

MAX_MESSAGE = 2000
MAX_VALUE = 200


def printable(text: object, keep: str = "") -> str:
    """The text with an escape in place of each character that is not printable; those in ``keep``
    stay."""
    out = text if isinstance(text, str) else str(text)
    if out.isprintable():
        return out
    return "".join(c if c.isprintable() or c in keep else _escape(c) for c in out)


def printable_json(text: str) -> str:
    """JSON of the same meaning, with nothing unprintable but the ends of its own lines."""
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() or c == "\n" else _json_escape(c) for c in text)


def shortened(text: str, limit: int = MAX_MESSAGE) -> str:
    """The text without its middle, if it has more than ``limit`` characters."""
    if len(text) <= limit:
        return text
    end = limit // 3
    start = limit - end
    return f"{text[:start]}[... {len(text) - limit:,} characters ...]{text[-end:]}"


def quoted(value: object) -> str:
    """``repr`` of a value that somebody gave, whatever it is."""
    try:
        # Cut first: the repr of a long text would be made whole.
        if isinstance(value, str | bytes | bytearray) and len(value) > MAX_VALUE:
            return shortened(repr(value[:MAX_VALUE])[:-1], MAX_VALUE) + "..."
        if isinstance(value, int) and value.bit_length() > 512:
            return f"a number of {value.bit_length()} bits"
        return shortened(printable(repr(value)), MAX_VALUE)
    except Exception:  # noqa: BLE001 - a repr of somebody's own
        return f"a {type(value).__name__}"


def as_html(text: object) -> str:
    """Text for a notebook or a page, where it is never read as HTML."""
    return html.escape(printable(text))


def _escape(char: str) -> str:
    return char.encode("unicode_escape").decode("ascii")


def _json_escape(char: str) -> str:
    number = ord(char)
    if number < 0x10000:
        return f"\\u{number:04x}"
    number -= 0x10000
    return f"\\u{0xD800 + (number >> 10):04x}\\u{0xDC00 + (number & 0x3FF):04x}"
