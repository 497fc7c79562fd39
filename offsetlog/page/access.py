"""Who may ask the page for what: rules on a request's headers.

Rules of this module:

1. Values in, values out: nothing is looked up.
2. A host that is neither loopback, nor the one that is served, nor allowed by name is refused, so
   that a name of somebody's own that leads here (DNS rebinding) opens nothing.
3. A foreign ``Origin`` is refused, and so is what another site makes a browser ask of the API.
4. Off loopback everything needs the token. A change needs it everywhere, and is refused where
   changes are not allowed.
5. A browser sends its cookies to every port of a host, so another program may come by one: the
   cookie is good for reading alone, and the token can't be told from it. All else wants the token
   in a header, which no browser sends by itself.
"""

from __future__ import annotations

import hmac
import ipaddress
from collections.abc import Iterable, Mapping
from hashlib import sha256
from typing import NamedTuple
from urllib.parse import urlsplit

BAD_REQUEST = 400
UNAUTHORIZED = 401
FORBIDDEN = 403
MISDIRECTED = 421
DEFAULT_PORTS = {"http": "80", "https": "443"}


class Refusal(NamedTuple):
    status: int
    text: str


def is_loopback(host: str) -> bool:
    """Whether a name or an address means this machine alone."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def split_host(text: str) -> tuple[str, str]:
    """(name in lower case, port or nothing) of a ``Host`` header; no name if it is none."""
    try:
        if not set(text).isdisjoint("/?#@\\"):
            return "", ""
        parts = urlsplit(f"//{text}")
        port = "" if parts.port is None else str(parts.port)
        return (parts.hostname or "").rstrip("."), port
    except ValueError:
        return "", ""


class Access:
    """The rules of one server."""

    def __init__(
        self,
        host: str,
        allowed_hosts: Iterable[str] = (),
        *,
        token: str | None = None,
        allow_changes: bool = False,
        shown: str = "",
    ) -> None:
        """``shown``: the name that is printed, where ``host`` means all addresses."""
        self._allowed = {split_host(name) for name in allowed_hosts}
        self._names = {host.lower(), shown.lower()} | {name for name, _ in self._allowed}
        self._token = token
        self.allow_changes = allow_changes
        self.needs_token = not is_loopback(host.lower())
        if token is None and (self.needs_token or allow_changes):
            raise AssertionError("this server needs a token")

    @property
    def read_pass(self) -> str:
        """What the cookie holds."""
        return hmac.new((self._token or "").encode(), b"read", sha256).hexdigest()

    @property
    def cookie_name(self) -> str:
        """Cookies are shared by all ports of a host: each token's has a name of its own."""
        return f"offsetlog_page_{sha256((self._token or '').encode()).hexdigest()[:8]}"

    def check_host(self, host: str) -> Refusal | None:
        name, _ = split_host(host)
        if is_loopback(name) or (name and name in self._names):
            return None
        shown = host[:100] or "no host"
        return Refusal(
            MISDIRECTED,
            f"This page does not answer for {shown!r}. Start it with --allowed-host to let it.",
        )

    def check_origin(self, headers: Mapping[str, str], is_api: bool) -> Refusal | None:
        """A browser says where a script comes from, and whether another site made it ask."""
        origin = headers.get("origin")
        if origin is None:
            if is_api and headers.get("sec-fetch-site") in ("cross-site", "same-site"):
                return Refusal(FORBIDDEN, "Another site may not ask this page.")
            return None
        scheme, _, rest = origin.partition("://")
        asked = split_host(headers.get("host", ""))
        own = split_host(rest)
        standard = DEFAULT_PORTS.get(scheme)
        own = (own[0], "" if own[1] == standard else own[1])
        is_same = own == (asked[0], "" if asked[1] == standard else asked[1])
        if standard is not None and own[0] and (is_same or own in self._allowed):
            return None
        return Refusal(FORBIDDEN, "A script of another origin may not ask this page.")

    def has_token(self, headers: Mapping[str, str]) -> bool:
        scheme, _, given = headers.get("authorization", "").partition(" ")
        return scheme.lower() == "bearer" and self.is_token(given.strip())

    def is_token(self, text: str) -> bool:
        return self._token is not None and _same(text, self._token)

    def check_read(self, has_token: bool, cookie: str | None) -> Refusal | None:
        if has_token or not self.needs_token:
            return None
        if cookie is not None and _same(cookie, self.read_pass):
            return None
        return Refusal(
            UNAUTHORIZED, "This needs the token that 'offsetlog page' printed when it started."
        )

    def check_change(self, has_token: bool) -> Refusal | None:
        if not self.allow_changes:
            return Refusal(
                FORBIDDEN, "This page only reads. Start it with --allow-changes to change things."
            )
        if not has_token:
            return Refusal(
                UNAUTHORIZED,
                "A change needs the token: open the address that 'offsetlog page' printed when it "
                "started.",
            )
        return None

    def check_verification(self, has_token: bool) -> Refusal | None:
        """It changes nothing, and reads all that is stored: where there is a token it needs it."""
        if has_token or self._token is None:
            return None
        return Refusal(
            UNAUTHORIZED,
            "A verification needs the token: open the address that 'offsetlog page' printed when "
            "it started.",
        )


def _same(text: str, secret: str) -> bool:
    # By bytes: the comparison of texts refuses what is not ASCII.
    return hmac.compare_digest(text.encode("utf-8", "surrogatepass"), secret.encode())
