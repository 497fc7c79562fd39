"""The value of one option: parsed, or refused with what is allowed.

Invariants:

1. A parser takes the text of an option and nothing else. ``BadValue`` says what is allowed; who
   reads the options adds the option's name and the value.
2. Values are plain and pickle; nothing here touches a filesystem, Spark or Arrow.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from offsetlog.core import strict_json
from offsetlog.core.times import parse_duration
from offsetlog.errors import CorruptLogError, InvalidRequestError
from offsetlog.values import MAX_OFFSET, MAX_PARTITIONS, check_name

EARLIEST_OFFSET, LATEST_OFFSET = -2, -1
MAX_JSON = 16 * 1024 * 1024
MAX_PATTERN = 4096
_UNITS = {
    "ms": 1, "millisecond": 1, "s": 1000, "sec": 1000, "second": 1000,
    "m": 60_000, "min": 60_000, "minute": 60_000, "h": 3_600_000, "hr": 3_600_000,
    "hour": 3_600_000, "d": 86_400_000, "day": 86_400_000,
}  # fmt: skip


class BadValue(ValueError):
    """The text is what is allowed."""


class OffsetBound(NamedTuple):
    """Where reading starts or ends. ``kind`` is ``earliest``, ``latest``, ``group``, ``before``
    (records before the end), ``offsets``, ``time``, ``ago`` (milliseconds before now) or
    ``times``; ``number`` or ``each`` says the rest."""

    kind: str
    number: int = 0
    each: Mapping[str, Mapping[int, int]] = {}  # noqa: RUF012 - never changed
    option: str = ""


class TopicSubscription(NamedTuple):
    """One of the three is set."""

    topics: tuple[str, ...] = ()
    pattern: str = ""
    assigned: tuple[tuple[str, int], ...] = ()


# --- plain values --------------------------------------------------------------------------


def text(value: str) -> str:
    if not value.strip():
        raise BadValue("a text that is not empty")
    return value


def stripped(value: str) -> str:
    return text(value).strip()


def name(kind: str) -> Callable[[str], str]:
    return lambda value: check_name(stripped(value), kind)


def boolean(value: str) -> bool:
    word = value.strip().lower()
    if word not in ("true", "false"):
        raise BadValue("true or false")
    return word == "true"


def choice(*words: str) -> Callable[[str], str]:
    def parse(value: str) -> str:
        word = value.strip().lower()
        if word not in words:
            raise BadValue(", ".join(words))
        return word

    return parse


def whole_number(low: int, high: int = MAX_OFFSET) -> Callable[[str], int]:
    def parse(value: str) -> int:
        digits = re.fullmatch(r"[0-9]{1,19}", value.strip(), re.ASCII)
        if not digits or not low <= int(value) <= high:
            upper = "" if high == MAX_OFFSET else f" to {high}"
            raise BadValue(f"a whole number from {low}{upper}")
        return int(value)

    return parse


def size(value: str) -> int:
    """Bytes, as Spark writes them: 1048576, 64m, 1g."""
    match = re.fullmatch(r"([0-9]{1,19})\s*([kmgt]?)b?", value.strip().lower(), re.ASCII)
    number = 0 if match is None else int(match[1]) << 10 * " kmgt".index(match[2] or " ")
    if not 1 <= number <= MAX_OFFSET:
        raise BadValue("bytes from 1, such as 1048576, 64m or 1g")
    return number


def duration(value: str) -> int:
    """Milliseconds, as Spark writes them: 15m, 30s, 100ms, 5 minutes; or ISO 8601."""
    lowered = value.strip().lower()
    match = re.fullmatch(r"([0-9]{1,12})\s*([a-z]{1,12})", lowered, re.ASCII)
    if match is not None:
        unit = match[2] if match[2] in _UNITS else match[2].removesuffix("s")
        if unit in _UNITS:
            return int(match[1]) * _UNITS[unit]
    elif lowered.startswith("p"):
        return _iso_duration(lowered)
    raise BadValue("a duration such as 15m, 30s or 100ms")


def _iso_duration(value: str) -> int:
    try:
        return parse_duration(value)
    except InvalidRequestError as error:
        raise BadValue(error.hint.rstrip(".")) from None


# --- what is read --------------------------------------------------------------------------


def topic_list(value: str) -> TopicSubscription:
    topics = dict.fromkeys(t.strip() for t in value.split(",") if t.strip())
    if not topics:
        raise BadValue("names of topics, with commas between them")
    return TopicSubscription(topics=tuple(check_name(topic) for topic in topics))


def topic_pattern(value: str) -> TopicSubscription:
    pattern = value.strip()
    if not pattern or len(pattern) > MAX_PATTERN:
        raise BadValue("a regular expression")
    try:
        re.compile(pattern)
    except (re.error, RecursionError) as error:
        raise BadValue(f"a regular expression ({error})") from None
    return TopicSubscription(pattern=pattern)


def assignment(value: str) -> TopicSubscription:
    allowed = 'JSON such as {"orders":[0,1]}'
    assigned: dict[tuple[str, int], None] = {}
    for topic, numbers in _json_object(value, allowed).items():
        check_name(topic)
        if not isinstance(numbers, list) or not numbers:
            raise BadValue(allowed)
        for number in numbers:
            if type(number) is not int or not 0 <= number < MAX_PARTITIONS:
                raise BadValue(allowed)
            assigned[topic, number] = None
    if not assigned:
        raise BadValue(f"{allowed}, with at least one partition")
    return TopicSubscription(assigned=tuple(sorted(assigned)))


def _json_object(value: str, allowed: str) -> dict[str, Any]:
    try:
        data = strict_json.loads(value.strip(), "value", MAX_JSON)
    except CorruptLogError as error:
        why = error.message.removeprefix("value: ").rstrip(".")
        raise BadValue(f"{allowed} ({why})") from None
    if not isinstance(data, dict):
        raise BadValue(allowed)
    return data


def _each_partition(value: str, low: int, allowed: str) -> dict[str, dict[int, int]]:
    """``{"orders": {"0": 23, "1": -2}}``"""
    each: dict[str, dict[int, int]] = {}
    for topic, partitions in _json_object(value, allowed).items():
        check_name(topic)
        if not isinstance(partitions, dict):
            raise BadValue(allowed)
        numbers = each.setdefault(topic, {})
        for partition, number in partitions.items():
            if not re.fullmatch(r"0|[1-9][0-9]{0,8}", partition, re.ASCII):
                raise BadValue(allowed)
            if type(number) is not int or not low <= number <= MAX_OFFSET:
                raise BadValue(allowed)
            numbers[int(partition)] = number
    return each


# --- where it starts and ends --------------------------------------------------------------


def end_time(value: str, more: str = "") -> OffsetBound:
    if not re.fullmatch(r"[0-9]{1,18}", value.strip(), re.ASCII):
        raise BadValue(f"milliseconds since 1970{more}")
    return OffsetBound("time", int(value))


def start_time(value: str) -> OffsetBound:
    """As an end, or so long before now."""
    if value.strip().upper().startswith("-P"):
        return OffsetBound("ago", _iso_duration(value.strip()[1:]))
    return end_time(value, ", or a time before now such as -PT10M")


def times_bound(value: str) -> OffsetBound:
    allowed = 'JSON with milliseconds since 1970, such as {"orders":{"0":1767225600000}}'
    return OffsetBound("times", each=_each_partition(value, 0, allowed))


def end_offsets(value: str, words: str = "latest, earliest", more: str = "") -> OffsetBound:
    allowed = f'{words}{more}, or JSON such as {{"orders":{{"0":23,"1":-2}}}}'
    if value.strip().lower() in words.split(", "):
        return OffsetBound(value.strip().lower())
    if not value.strip().startswith("{"):
        raise BadValue(allowed)
    return OffsetBound("offsets", each=_each_partition(value, EARLIEST_OFFSET, allowed))


def start_offsets(value: str) -> OffsetBound:
    """As an end, or the group's, or so many records before the end."""
    if re.fullmatch(r"-[1-9][0-9]{0,17}", value.strip(), re.ASCII):
        return OffsetBound("before", -int(value))
    return end_offsets(value, "earliest, latest, group", ", -N (records before the end)")


at_no_match = choice("error", "latest")
