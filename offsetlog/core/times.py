"""Times as people write them: ISO 8601.

Rules of this module:

1. A text that is not wholly understood is refused, by its own words.
2. A time without a zone is UTC, as in Kafka's tools: the answer must not depend on where
   the program runs.
3. A time finer than a millisecond is rounded up: "from then on" never takes in what was
   before.
"""

from __future__ import annotations

import re
from datetime import UTC, date, datetime, timedelta, timezone

from offsetlog.errors import InvalidRequestError

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_DATE = r"(?P<date>\d{4}-\d\d-\d\d|\d{8}|\d{4}-W\d\d-[1-7]|\d{4}W\d\d[1-7])"
_TIME = r"(?P<h>\d\d)(?::(?P<m>\d\d)(?::(?P<s>\d\d)(?:[.,](?P<f>\d{1,9}))?)?)?"
_BARE = r"(?P<h2>\d\d)(?P<m2>\d\d)(?:(?P<s2>\d\d)(?:[.,](?P<f2>\d{1,9}))?)?"
_ZONE = r"(?P<zone>[Zz]|[+-]\d\d(?::?\d\d)?)"
_DATETIME = re.compile(rf"{_DATE}(?:[Tt ](?:{_TIME}|{_BARE}){_ZONE}?)?", re.ASCII)
_DURATION = re.compile(
    r"(?P<sign>[+-]?)P(?=[\dT])(?:(?P<w>\d+)W)?(?:(?P<d>\d+)D)?"
    r"(?:T(?=\d)(?:(?P<h>\d+)H)?(?:(?P<m>\d+)M)?(?:(?P<s>\d+)(?:[.,](?P<f>\d{1,9}))?S)?)?",
    re.ASCII | re.IGNORECASE,
)
UNITS_MS = {"w": 604_800_000, "d": 86_400_000, "h": 3_600_000, "m": 60_000, "s": 1000}
_LONGEST_MS = 10_000 * 366 * 86_400_000


def parse_datetime(text: str) -> int:
    """Milliseconds since the epoch of ``2026-03-01T12:30:00.000+02:00`` and its like."""
    match = _DATETIME.fullmatch(text.strip())
    if match is None:
        raise _wrong_datetime(text)
    part = match.groupdict()
    try:
        day = date.fromisoformat(part["date"])
        hour, minute, second = (
            int(part[name] or part[name + "2"] or 0) for name in ("h", "m", "s")
        )
        whole = datetime(
            day.year, day.month, day.day, hour, minute, second, tzinfo=_zone(part["zone"])
        )
        # By whole numbers: a float of seconds would lose milliseconds.
        since = whole - _EPOCH
    except (ValueError, OverflowError) as error:
        raise _wrong_datetime(text) from error
    nanos = int((part["f"] or part["f2"] or "").ljust(9, "0"))
    return since // timedelta(milliseconds=1) + -(-nanos // 1_000_000)


def _zone(text: str | None) -> timezone:
    if text is None or text in "Zz":
        return UTC
    digits = text[1:].replace(":", "").ljust(4, "0")
    if int(digits[2:]) > 59:
        raise ValueError(text)
    offset = timedelta(hours=int(digits[:2]), minutes=int(digits[2:]))
    return timezone(-offset if text[0] == "-" else offset)


def _wrong_datetime(text: str) -> InvalidRequestError:
    return InvalidRequestError(
        f"{text!r} is not a date and time.",
        "Write it in ISO 8601, such as 2026-03-01T12:30:00.000; without a zone it is UTC.",
    )


def parse_duration(text: str) -> int:
    """Milliseconds of ``P7D``, ``PT10M``, ``P1DT2H3.5S`` and their like; with its sign."""
    match = _DURATION.fullmatch(text.strip())
    if match is None:
        hint = "Write it in ISO 8601, such as P7D, PT10M or P1DT12H30M."
        if re.fullmatch(r"[+-]?P[\dYMWD]+(T.*)?", text.strip(), re.ASCII | re.IGNORECASE):
            hint += " Years and months have no fixed length: use days."
        raise InvalidRequestError(f"{text!r} is not a duration.", hint)
    part = match.groupdict()
    if any(len(part[unit] or "") > 18 for unit in UNITS_MS):
        raise _too_long(text)
    total = sum(int(part[unit] or 0) * size for unit, size in UNITS_MS.items())
    total += -(-int((part["f"] or "").ljust(9, "0")) // 1_000_000)
    if total > _LONGEST_MS:
        raise _too_long(text)
    return -total if part["sign"] == "-" else total


def _too_long(text: str) -> InvalidRequestError:
    return InvalidRequestError(f"The duration {text!r} is too long.", "Use less than 10000 years.")
