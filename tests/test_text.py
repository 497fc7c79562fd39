"""Text of others, as it may be shown."""

from __future__ import annotations

import json

from hypothesis import given
from hypothesis import strategies as st

from offsetlog.errors import InvalidRequestError, OffsetLogWarning
from offsetlog.text import MAX_MESSAGE, as_html, printable, printable_json, quoted, shortened

WILD = "a\x1b[2J\x07\r\nb\x85\u2028\u202e\u200b\ud800\udc80\U000e0001\x7fé漢"


def test_what_is_not_printable_is_its_escape() -> None:
    assert printable(WILD) == (
        "a\\x1b[2J\\x07\\r\\nb\\x85\\u2028\\u202e\\u200b\\ud800\\udc80\\U000e0001\\x7fé漢"
    )
    assert printable("a\tb\nc", keep="\n") == "a\\tb\nc"


@given(st.text(st.characters()))
def test_it_can_always_be_shown_and_shows_the_same_again(text: str) -> None:
    shown = printable(text)
    assert shown.isprintable() and printable(shown) == shown
    shown.encode()
    assert json.loads(printable_json(json.dumps(text, ensure_ascii=False))) == text
    assert printable_json(json.dumps(text, ensure_ascii=False)).isprintable()


def test_html_is_text() -> None:
    assert as_html("<b>\x1b</b>") == "&lt;b&gt;\\x1b&lt;/b&gt;"


def test_what_is_long_loses_its_middle() -> None:
    text = "begin" + "x" * 100_000 + "end"
    short = shortened(text)
    assert short.startswith("begin") and short.endswith("end") and len(short) < MAX_MESSAGE + 50
    assert "98,008 characters" in short
    assert shortened("x" * MAX_MESSAGE) == "x" * MAX_MESSAGE


class Broken:
    def __repr__(self) -> str:
        raise ValueError("no words")


def test_any_value_can_be_named_in_a_message() -> None:
    for value in ("x" * 10**7, b"x" * 10**7, 10**5000, Broken(), [10**5000], WILD):
        shown = quoted(value)
        assert shown.isprintable() and 0 < len(shown) < 300


def test_errors_and_warnings_are_one_bounded_line() -> None:
    error = InvalidRequestError(f"There is no topic {'x' * 100_000}.", "Look\nat \x1b[31mit.")
    assert len(str(error)) < 2 * MAX_MESSAGE and str(error).isprintable()
    assert error.hint == "Look\\nat \\x1b[31mit." and str(error).endswith(error.hint)
    assert str(OffsetLogWarning("a\x1bb" + "x" * 100_000)).startswith("a\\x1bb")
    assert len(str(OffsetLogWarning("x" * 100_000))) < MAX_MESSAGE + 50
