"""Who may ask the page for what, by the headers of a request."""

from __future__ import annotations

import pytest

from offsetlog.page.access import Access, is_loopback, split_host


@pytest.mark.parametrize(
    ("host", "expected"),
    [
        ("localhost", True), ("127.0.0.1", True), ("127.8.9.1", True), ("::1", True),
        ("0.0.0.0", False), ("10.0.0.1", False), ("localhost.evil.example", False),
        ("127.0.0.1.evil.example", False), ("", False), ("2130706433", False),
    ],
)  # fmt: skip
def test_loopback(host: str, expected: bool) -> None:
    assert is_loopback(host) is expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("LOCALHOST:8900", ("localhost", "8900")), ("[::1]:8900", ("::1", "8900")),
        ("a.example.", ("a.example", "")), ("a@b:1", ("", "")), ("a/b", ("", "")),
        ("a#", ("", "")), ("a?", ("", "")), ("a/", ("", "")), ("a\\b", ("", "")),
        ("a:99999", ("", "")), ("a:b", ("", "")), ("[::1", ("", "")), ("", ("", "")),
    ],
)  # fmt: skip
def test_a_host_header_is_split(text: str, expected: tuple[str, str]) -> None:
    assert split_host(text) == expected


def test_hosts() -> None:
    access = Access("logs.internal", ["logs.example.org", "[fd00::1]"], token="t")
    for host in ("localhost:1", "127.0.0.1", "logs.internal:8900", "LOGS.example.org", "[fd00::1]"):
        assert access.check_host(host) is None, host
    for host in ("evil.example", "", "logs.example.org.evil.example", "0.0.0.0", "a@localhost"):
        refusal = access.check_host(host)
        assert refusal is not None and refusal.status == 421, host


@pytest.mark.parametrize(
    ("host", "origin", "allowed"),
    [
        ("127.0.0.1:8900", "http://127.0.0.1:8900", True),
        ("localhost:8900", "http://localhost:8900", True),
        ("localhost", "http://localhost", True),
        ("localhost:80", "http://localhost", True),
        ("logs.example.org", "https://logs.example.org", True),
        ("127.0.0.1:8900", "https://logs.example.org", True),  # A proxy that names itself.
        ("127.0.0.1:8900", "https://logs.example.org:444", False),
        ("localhost:8900", "http://localhost:3000", False),
        ("localhost:8900", "http://127.0.0.1:8900", False),
        ("localhost:8900", "http://evil.example", False),
        ("localhost:8900", "http://localhost:8900.evil.example", False),
        ("localhost:8900", "null", False),
        ("localhost:8900", "", False),
        ("localhost:8900", "file://", False),
        ("localhost:8900", "ftp://localhost:8900", False),
    ],
)
def test_origins(host: str, origin: str, allowed: bool) -> None:
    access = Access("127.0.0.1", ["logs.example.org"])
    refusal = access.check_origin({"host": host, "origin": origin}, is_api=True)
    assert (refusal is None) is allowed


def test_what_another_site_makes_a_browser_ask() -> None:
    access = Access("127.0.0.1")
    foreign = {"host": "localhost", "sec-fetch-site": "cross-site"}
    assert access.check_origin(foreign, is_api=True) is not None
    assert access.check_origin(foreign, is_api=False) is None  # A link to the page.
    for site in ("same-origin", "none"):
        own = {"host": "localhost", "sec-fetch-site": site}
        assert access.check_origin(own, is_api=True) is None


def test_tokens() -> None:
    access = Access("127.0.0.1", token="s3cret", allow_changes=True)
    assert access.has_token({"authorization": "Bearer s3cret"})
    assert access.has_token({"authorization": "bearer  s3cret "})
    for headers in (
        {}, {"authorization": "Basic s3cret"}, {"authorization": "Bearer "},
        {"authorization": "Bearer s3cre"}, {"authorization": "Bearer \xe9"},
    ):  # fmt: skip
        assert not access.has_token(headers), headers
    assert not Access("127.0.0.1").has_token({"authorization": "Bearer "})


def test_what_the_cookie_holds_is_good_for_reading_alone() -> None:
    """A browser shows it to every port of the host."""
    access = Access("0.0.0.0", token="s3cret", allow_changes=True)
    held = access.read_pass
    assert access.check_read(False, held) is None
    assert "s3cret" not in held and not access.is_token(held)
    assert not access.has_token({"authorization": f"Bearer {held}"})
    for wrong in ("", "s3cret", held[:-1], "\xe9", "\ud800", None):
        assert access.check_read(False, wrong) is not None, wrong
    assert Access("0.0.0.0", token="other").read_pass != held


def test_a_verification_needs_the_token_where_there_is_one() -> None:
    assert Access("127.0.0.1").check_verification(False) is None
    for access in (Access("127.0.0.1", token="t", allow_changes=True), Access("::", token="t")):
        refusal = access.check_verification(False)
        assert refusal is not None and refusal.status == 401
        assert access.check_verification(True) is None


def test_the_name_that_is_printed_is_answered_to_and_opens_nothing() -> None:
    access = Access("0.0.0.0", token="t", shown="Build-7.internal")
    assert access.check_host("build-7.internal:8900") is None
    # It may be called localhost, and listens on all addresses all the same.
    assert Access("0.0.0.0", token="t", shown="localhost").needs_token
    own = {"host": "build-7.internal:8900", "origin": "http://build-7.internal:8900"}
    assert access.check_origin(own, is_api=True) is None
    other = {"host": "build-7.internal:8900", "origin": "http://build-7.internal"}
    assert access.check_origin(other, is_api=True) is not None


@pytest.mark.parametrize("host", ["127.0.0.1", "0.0.0.0"])
@pytest.mark.parametrize("allow_changes", [False, True])
@pytest.mark.parametrize("has_token", [False, True])
def test_what_needs_the_token(host: str, allow_changes: bool, has_token: bool) -> None:
    access = Access(host, token="t", allow_changes=allow_changes)
    reads = access.check_read(has_token, None) is None
    changes = access.check_change(has_token) is None
    assert reads == (has_token or host == "127.0.0.1")
    assert changes == (allow_changes and has_token)


def test_a_server_that_needs_a_token_has_one() -> None:
    for host, allow_changes in (("0.0.0.0", False), ("127.0.0.1", True)):
        with pytest.raises(AssertionError):
            Access(host, allow_changes=allow_changes)


ODD = [
    "http://[::1",
    "http://[",
    "http://a:b",
    "http://a:99999",
    "\x00",
    "\xff",
    "http://\xff",
    "//",
    "[",
    "a" * 5000,
]


@pytest.mark.parametrize("text", ODD)
def test_odd_headers_are_refused_and_never_fail(text: str) -> None:
    access = Access("127.0.0.1", token="t", allow_changes=True)
    assert access.check_host(text) is not None
    assert access.check_origin({"host": "localhost", "origin": text}, is_api=True) is not None
    assert not access.has_token({"authorization": f"Bearer {text}"})
    assert Access("::", token="t").check_read(False, text) is not None
