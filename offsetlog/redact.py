"""Keeping secrets out of every text that a user, a log or a bug report may see.

Invariants:

1. What was given as a storage option or in a URL is known, and is taken out wherever it shows
   up, in whatever form it comes back: quoted for a URL, as ``repr`` or JSON write it, in base64,
   as hex digits, in part of it. So are the values of environment variables whose names say that
   they are secret.
2. What has the shape of a secret (a signature in a query, a bearer token, a user part of a
   URL, an access key) is taken out even if nobody named it.
3. Text is only ever shortened: at a doubt it says less.
4. What is certainly a secret is known to the whole process: ``hide`` stands before every message,
   log line and traceback. What may be one (a user's name) is hidden in foreign words alone.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Iterable, Iterator, Mapping
from urllib.parse import unquote, unquote_plus

from offsetlog.filesystems import CONTAINER_PROTOCOLS
from offsetlog.text import shortened

HIDDEN = "***"

_HARMLESS = frozenset(
    {
        "endpoint_url", "region_name", "region", "anon", "use_ssl", "host", "port", "project",
        "account_host", "location", "default_block_size", "timeout", "protocol", "target_protocol",
        "fo", "share", "auto_mkdir", "signature_version", "addressing_style", "default_location",
        "requests_timeout", "consistency", "look_for_keys", "allow_agent", "known_hosts",
    }
)  # fmt: skip
_HARMLESS_VALUES = frozenset({"true", "false", "none", "null", "default", "latest"})
_SECRET_NAME = re.compile(
    r"secret|token|pass|pwd|credential|api_?key|account_?key|access_?key|sas|connection_string"
    r"|private|authorization|cookie|signature|^key$|^auth$|^sig$|pkey",
    re.IGNORECASE,
)
_LOCAL = ("file:", "local:", "memory://", "/", ".", "~")
_CONTAINERS = f"(?:{'|'.join(CONTAINER_PROTOCOLS)})://"
_CONTAINER = re.compile(_CONTAINERS)
_SHAPES = (
    # A container's name stands where others have a user; a password would follow a colon.
    (
        re.compile(rf"(?<![a-z])(?!{_CONTAINERS}[^:/@\s'\"]*@)"
                   r"([a-z][a-z0-9+.-]*://)[^/@\s'\"]+@", re.IGNORECASE),
        rf"\1{HIDDEN}@",
    ),
    (
        re.compile(
            r"(?i)\b(sig|signature|token|secret|password|passwd|pwd|accountkey|sharedaccesssignature"
            r"|x-amz-(?:signature|credential|security-token)|x-goog-(?:signature|credential)"
            r"|access_token|aws_secret_access_key|sv|se|skoid|st)=[^&;\s'\"<>]+"
        ),
        rf"\1={HIDDEN}",
    ),
    (
        re.compile(r"(?i)\b(bearer|sharedkey|basic|aws4-hmac-sha256)\s+(?=[^\s'\"]*[0-9=.:/])"
                   r"[^\s'\"]{8,}"),
        rf"\1 {HIDDEN}",
    ),
    (re.compile(r"\b(?:AKIA|ASIA)[0-9A-Z]{12,}\b"), HIDDEN),
    (re.compile(r"(?s)-----BEGIN [A-Z ]*PRIVATE KEY-----.*?(-----END [A-Z ]*KEY-----|$)"), HIDDEN),
)  # fmt: skip
_LONGEST = 600
_MOST_KNOWN = 300
_SHORTEST = 3
_ALONE_FROM = 8
"""A shorter one is hidden where it is a word: in the midst of one it says nothing."""
_ENCODED_FROM = 6
"""Of a shorter one the base64 or hex form says too little to be told from other text."""


class _Known:
    """Secrets, and the expression that finds each in all its forms."""

    def __init__(self) -> None:
        self._values: dict[str, None] = {}
        self._pattern: re.Pattern[str] | None = None

    def add(self, values: Iterable[str]) -> None:
        for value in values:
            if len(value) < _SHORTEST or value.lower() in _HARMLESS_VALUES:
                continue
            self._values.pop(value, None)
            self._values[value] = None
            self._pattern = None
        while len(self._values) > _MOST_KNOWN:
            self._values.pop(next(iter(self._values)), None)

    def hide(self, text: str) -> str:
        if not self._values:
            return text
        pattern = self._pattern
        if pattern is None:
            # The longest first: one may be a part of another.
            forms = {form for value in tuple(self._values) for form in _forms(value)}
            ordered = sorted(forms, key=len, reverse=True)
            pattern = self._pattern = re.compile("|".join(ordered))
        return pattern.sub(HIDDEN, text)


_known = _Known()
"""What is certainly secret, of all stores of this process."""


def hide(text: str) -> str:
    """The text without any secret that this process knows, and without what looks like one."""
    out = _known.hide(text)
    for shape, instead in _SHAPES:
        out = shape.sub(instead, out)
    return out


def know(values: Iterable[str]) -> None:
    """Hide these from now on, wherever they would be shown."""
    _known.add(values)


def know_environment(environment: Mapping[str, str]) -> None:
    """Hide the values of variables whose names or forms say that they are secret."""
    for name, value in environment.items():
        if "://" in value:
            know(secret for secret, certain in _of_url(value) if certain)
        # A path is no secret, but what lies there.
        elif len(value) >= 8 and _SECRET_NAME.search(name) and not _PATH.match(value):
            know([value, *_parts(value)])


_PATH = re.compile(r"(?:/|~|\.{1,2}/|[A-Za-z]:\\)[^=+]*$")


def safe_url(url: str) -> str:
    """The URL as it may be shown: no user part, no query, of each of a chain."""
    return "::".join(_safe_link(link) for link in url.split("::"))


def _safe_link(url: str) -> str:
    if url.startswith(_LOCAL):
        return url
    user, bare = _split_user(url)
    shown = url if user and ":" not in user and _CONTAINER.match(url) else bare
    shown = shown.split("?", 1)[0]
    return re.split(r"[;#](?=[^/]*=)", shown, maxsplit=1)[0]


class Redactor:
    """Takes the secrets of one store out of a text of others, which becomes one line."""

    def __init__(self, url: str = "", options: Mapping[str, object] | None = None) -> None:
        self._own = _Known()
        for secret, certain in (*_of_options(options or {}), *_of_url(url)):
            self._own.add([secret])
            if certain and len(secret) > _SHORTEST:
                know([secret])

    def __call__(self, text: object) -> str:
        out = hide(self._own.hide(str(text)))
        return shortened(" ".join(out.split()), _LONGEST)


# --- what is secret ----------------------------------------------------------------------------


def _of_options(options: Mapping[str, object], certain: bool = False) -> Iterator[tuple[str, bool]]:
    """(value, whether it is certainly a secret)."""
    for name, value in options.items():
        if name in _HARMLESS:
            continue
        sure = certain or bool(_SECRET_NAME.search(str(name)))
        yield from _of_value(value, sure)


def _of_value(value: object, certain: bool) -> Iterator[tuple[str, bool]]:
    if isinstance(value, Mapping):
        yield from _of_options(value, certain)
    elif isinstance(value, list | tuple | set | frozenset):
        for item in value:
            yield from _of_value(item, certain)
    elif isinstance(value, bytes | bytearray):
        yield bytes(value).decode("utf-8", "replace"), certain
    elif isinstance(value, str):
        if "://" in value:
            yield from _of_url(value)
        yield value, certain
        yield from ((part, certain) for part in _parts(value))
    elif isinstance(value, int) and not isinstance(value, bool) and certain:
        yield str(value), len(str(value)) >= 4


def _parts(value: str) -> Iterator[str]:
    """The parts of a connection string or of a SAS, which show up alone as well."""
    for separators in ("[;&]", ";"):  # A key may have an & in it.
        for part in re.split(separators, value):
            name, equals, text = part.partition("=")
            if equals and len(text) >= _SHORTEST and name.lower() not in _PLAIN_PARTS:
                yield text


_PLAIN_PARTS = frozenset(
    {"defaultendpointsprotocol", "endpointsuffix", "accountname", "blobendpoint", "ss", "srt", "sp"}
)


def _of_url(url: str) -> Iterator[tuple[str, bool]]:
    for link in url.split("::"):
        user, bare = _split_user(link)
        if user and (":" in user or not _CONTAINER.match(link)):
            name, colon, password = user.partition(":")
            yield user, bool(colon)
            # A long one may be a key or a token.
            yield name, len(name) >= 12
            # Where a slash in it was not quoted, a library sees the part before it as the host.
            for part in (password, unquote(password), *re.split(r"[/@]", password)):
                yield part, len(part) >= 4 or part == password
            yield unquote(name), len(name) >= 12
        for part in re.split(r"[?&;#]", bare)[1:]:
            name, _, value = part.partition("=")
            certain = bool(_SECRET_NAME.search(name)) or len(value) >= 16
            if len(value) >= _ENCODED_FROM or (certain and value):
                yield value, certain
                yield unquote(value), certain
                yield unquote_plus(value), certain


def _split_user(url: str) -> tuple[str, str]:
    """(user part, URL without it). A password with an unquoted slash belongs to the first."""
    if url.startswith(_LOCAL):
        return "", url
    protocol, separator, rest = url.partition("://")
    if not separator:
        # A slash too few, or none: the user part is one all the same.
        typo = re.match(r"([A-Za-z][A-Za-z0-9+.-]+:/)?([^/@]*:.*)@", url, re.DOTALL)
        # ``s3:/key@bucket``: a user part without a password.
        typo = typo or re.match(r"([A-Za-z][A-Za-z0-9+.-]+:/)([^/@]+)@", url)
        return (typo[2], url[: typo.start(2)] + url[typo.end() :]) if typo else ("", url)
    first = rest.split("/", 1)[0]
    port = first.partition(":")[2]
    if "@" in first:
        user, _, bare = first.rpartition("@")
        return user, f"{protocol}://{bare}{rest[len(first) :]}"
    if ":" in first and not port.isdigit() and "@" in rest:
        user, _, bare = rest.rpartition("@")
        return user, f"{protocol}://{bare}"
    return "", url


# --- the forms in which it comes back ----------------------------------------------------------

_ENTITIES = {"&": "amp", "<": "lt", ">": "gt", '"': "quot", "'": "(?:#39|#x27|apos)"}


def _forms(value: str) -> Iterator[str]:
    """Expressions that match the value however it was written down."""
    whole = "".join(_char(char) for char in value)
    if len(value) < _ALONE_FROM:
        yield rf"(?:(?<![A-Za-z0-9])|(?<=%[0-9A-Fa-f]{{2}})){whole}(?![A-Za-z0-9])"
    else:
        yield whole
    if len(value) < _ENCODED_FROM:
        return
    data = value.encode("utf-8", "surrogatepass")
    yield f"(?i:{data.hex()})"
    # Wherever it begins within what was encoded, this much of it is the same.
    for before in range(3):
        encoded = base64.b64encode(b"\0" * before + data).decode()
        start = (0, 2, 3)[before]
        end = len(encoded.rstrip("=")) - (0 if (before + len(data)) % 3 == 0 else 1)
        inner = encoded[start:end]
        if len(inner) >= _ENCODED_FROM:
            yield (
                re.escape(inner).replace(r"\+", r"(?:\+|-|%2[Bb])").replace("/", r"(?:/|_|%2[Ff])")
            )


def _char(char: str) -> str:
    """One character: as it is, quoted for a URL (once or twice), as an escape, as an entity."""
    if char.isascii() and char.isalnum():
        return char
    ways = [rf"\\*{re.escape(char)}"]
    data = char.encode("utf-8", "surrogatepass")
    ways.append("".join(f"%(?:25)*(?i:{byte:02x})" for byte in data))
    number = ord(char)
    if char == " ":
        ways.append(r"\+")
    if char in "\n\r\t":
        ways.append(r"\\+" + {"\n": "n", "\r": "r", "\t": "t"}[char])
        ways.append(r"\s")
    if char in _ENTITIES:
        ways.append(f"&{_ENTITIES[char]};")
    ways.append(rf"\\+(?i:u{number:04x}|U{number:08x}|x{number:02x})")
    if not char.isascii():
        ways.append("".join(rf"\\+x(?i:{byte:02x})" for byte in data))
        pair = char.encode("utf-16-be", "surrogatepass").hex()
        ways.append("".join(rf"\\+u(?i:{pair[i : i + 4]})" for i in range(0, len(pair), 4)))
    return f"(?:{'|'.join(ways)})"
