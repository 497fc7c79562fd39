"""Keeping secrets out of every text that a user, a log or a bug report may see.

1. What was given as a storage option or in a URL is known, and is taken out wherever it
   shows up; so are the values of environment variables whose names say that they are secret.
2. What has the shape of a secret (a signature in a query, a bearer token, a user part of a
   URL, an access key) is taken out even if nobody named it.
3. Text is only ever shortened: at a doubt it says less.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping
from urllib.parse import quote, unquote

HIDDEN = "***"

_HARMLESS = frozenset(
    {
        "endpoint_url", "region_name", "region", "anon", "use_ssl", "host", "port", "project",
        "account_host", "location", "default_block_size", "timeout", "protocol", "target_protocol",
        "fo", "share", "auto_mkdir", "signature_version", "addressing_style", "default_location",
        "requests_timeout", "consistency", "look_for_keys", "allow_agent", "known_hosts",
    }
)  # fmt: skip
_SECRET_NAME = re.compile(
    r"secret|token|passw|credential|api_?key|account_?key|access_?key|sas|connection_string",
    re.IGNORECASE,
)
_SHAPES = (
    (re.compile(r"(?<=://)[^/@\s'\"]+@"), f"{HIDDEN}@"),
    (
        re.compile(
            r"(?i)\b(sig|signature|token|secret|password|passwd|pwd|accountkey|sharedaccesssignature"
            r"|x-amz-(?:signature|credential|security-token)|x-goog-(?:signature|credential)"
            r"|access_token|aws_secret_access_key|sv|se|skoid|st)=[^&;\s'\"<>]+"
        ),
        rf"\1={HIDDEN}",
    ),
    (re.compile(r"(?i)\b(bearer|sharedkey|basic|aws4-hmac-sha256)\s+[^\s'\"]+"), rf"\1 {HIDDEN}"),
    (re.compile(r"\b(?:AKIA|ASIA)[0-9A-Z]{12,}\b"), HIDDEN),
    (re.compile(r"(?s)-----BEGIN [A-Z ]*PRIVATE KEY-----.*?(-----END [A-Z ]*KEY-----|$)"), HIDDEN),
)
_LONGEST = 600
_CONTAINERS = ("abfs://", "abfss://", "az://", "adl://", "wasb://", "wasbs://")


def safe_url(url: str) -> str:
    """The URL as it may be shown: no user part, no query."""
    user, bare = _split_user(url)
    # A container's name stands where others have a user; a password would follow a colon.
    shown = url if user and ":" not in user and url.startswith(_CONTAINERS) else bare
    return shown.split("?", 1)[0]


class Redactor:
    """Takes the secrets of one store out of a text."""

    def __init__(self, url: str = "", options: Mapping[str, object] | None = None) -> None:
        found = set(_values(options or {}))
        found.update(_of_url(url))
        found.update(
            value
            for name, value in os.environ.items()
            if _SECRET_NAME.search(name) and len(value) >= 8 and not os.path.exists(value)
        )
        forms = {form for value in found for form in (value, quote(value, safe=""))}
        # The longest first: one may be a part of another.
        ordered = sorted((form for form in forms if len(form) >= 3), key=len, reverse=True)
        self._known = re.compile("|".join(map(re.escape, ordered))) if ordered else None

    def __call__(self, text: object) -> str:
        out = str(text)
        if self._known is not None:
            out = self._known.sub(HIDDEN, out)
        for shape, instead in _SHAPES:
            out = shape.sub(instead, out)
        out = " ".join(out.split())
        return out if len(out) <= _LONGEST else f"{out[:_LONGEST]}..."


def _values(options: Mapping[str, object]) -> Iterable[str]:
    for name, value in options.items():
        if isinstance(value, Mapping):
            yield from _values(value)
        elif name in _HARMLESS:
            continue
        elif isinstance(value, bytes):
            yield value.decode("utf-8", "replace")
        elif isinstance(value, str):
            yield value
            # The parts of a connection string or of a SAS show up alone as well.
            yield from (part.partition("=")[2] for part in re.split(r"[;&]", value) if "=" in part)
        elif isinstance(value, (list, tuple)):
            yield from (item for item in value if isinstance(item, str))


def _of_url(url: str) -> Iterable[str]:
    user, _ = _split_user(url)
    for part in (user, *user.split(":", 1)) if user and not url.startswith(_CONTAINERS) else ():
        yield part
        yield unquote(part)
    _, _, query = url.partition("?")
    for part in query.split("&"):
        value = part.partition("=")[2]
        if len(value) >= 6:
            yield value
            yield unquote(value)


def _split_user(url: str) -> tuple[str, str]:
    """(user part, URL without it). A password with an unquoted slash belongs to the first."""
    protocol, separator, rest = url.partition("://")
    if not separator:
        return "", url
    first = rest.split("/", 1)[0]
    port = first.partition(":")[2]
    if "@" in first:
        user, _, bare = first.rpartition("@")
        return user, f"{protocol}://{bare}{rest[len(first) :]}"
    if ":" in first and not port.isdigit() and "@" in rest:
        user, _, bare = rest.rpartition("@")
        return user, f"{protocol}://{bare}"
    return "", url
