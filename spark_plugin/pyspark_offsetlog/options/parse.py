"""Reading options one by one: each value is parsed, or refused with what is allowed.

Invariants:

1. Names are compared without case, as Spark does.
2. An error names the option, its value and what is allowed; no value of a ``storage.`` option
   is ever shown.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from typing import Any

from offsetlog.core import strict_json
from offsetlog.core.times import parse_duration
from offsetlog.errors import CorruptLogError, InvalidRequestError
from offsetlog.storage.open import parse_option, refuse_one_slash
from offsetlog.storage.redact import safe_url
from offsetlog.values import MAX_OFFSET, MAX_PARTITIONS, check_name, did_you_mean
from pyspark_offsetlog.options.spec import (
    EARLIEST_OFFSET,
    ENDS,
    SINK,
    SOURCE,
    SPARKS_OWN,
    STARTS,
    SUBSCRIPTIONS,
    LogAddress,
    OffsetBound,
    TopicSubscription,
)

MAX_JSON = 16 * 1024 * 1024
LONGEST_PATTERN = 4096
KAFKA_ONLY = re.compile(r"(kafka|kafkaconsumer|fetchoffset)\..+|groupidprefix", re.ASCII)
_UNITS = {
    "ms": 1, "millisecond": 1, "s": 1000, "sec": 1000, "second": 1000,
    "m": 60_000, "min": 60_000, "minute": 60_000, "h": 3_600_000, "hr": 3_600_000,
    "hour": 3_600_000, "d": 86_400_000, "day": 86_400_000,
}  # fmt: skip


def lowered(options: Mapping[str, str]) -> dict[str, str]:
    return {str(name).lower(): str(value) for name, value in options.items()}


def absolute(path: str) -> str:
    """Tasks run in other folders: a path that is relative here would be another one there."""
    refuse_one_slash(path)
    is_url = "://" in path or path.startswith(("file:", "local:"))
    return path if is_url else os.path.abspath(os.path.expanduser(path))


class OptionParser:
    """The options as they were given, and the reading of each."""

    def __init__(self, options: Mapping[str, str], known: tuple[str, ...]) -> None:
        self.options = lowered(options)
        names = {name.lower(): name for name in known}
        for name in self.options:
            if name in names or KAFKA_ONLY.fullmatch(name):
                continue
            if known is SINK and name in SPARKS_OWN:
                continue
            if name.startswith("storage.") and name != "storage.":
                continue
            others = {n.lower() for n in (*SOURCE, *SINK)} - set(names)
            if name in others:
                side = {SINK: "the sink", SOURCE: "the source"}.get(known, "a table")
                raise InvalidRequestError(
                    f"The option {name!r} is none of {side}.", f"Known: {', '.join(known)}."
                )
            hint = did_you_mean(name, names)
            if hint.startswith("Known"):
                hint = f"Known: {', '.join(known)}."
            for low, full in names.items():
                hint = hint.replace(repr(low), repr(full))
            raise InvalidRequestError(f"There is no option {name!r}.", hint)

    def wrong(self, name: str, allowed: str) -> InvalidRequestError:
        value = self.options.get(name.lower(), "")
        shown = value if len(value) <= 200 else value[:200] + "..."
        return InvalidRequestError(
            f"The option {name} cannot be {shown!r}.", f"Allowed: {allowed}."
        )

    def text(self, name: str) -> str | None:
        value = self.options.get(name.lower())
        if value is not None and not value.strip():
            raise self.wrong(name, "a text that is not empty")
        return value

    def one_of_two(self, name: str, alias: str) -> str | None:
        value, other = self.text(name), self.text(alias)
        if value is not None and other is not None and value.strip() != other.strip():
            raise InvalidRequestError(
                f"{name} is {safe_url(value)!r} and {alias} is {safe_url(other)!r}.",
                "They mean the same: set one.",
            )
        found = value if value is not None else other
        return None if found is None else found.strip()

    def place(self, offsets_table: str | None) -> LogAddress:
        root = self.one_of_two("path", "kafka.bootstrap.servers")
        if root is None:
            raise InvalidRequestError(
                "No path is set.", "Give the root of the log: .option('path', 's3://bucket/log')."
            )
        if "path" not in self.options and _is_servers(root):
            raise InvalidRequestError(
                f"kafka.bootstrap.servers is {root!r}, which names Kafka brokers.",
                "offsetlog has none: give the root of the log, such as s3://bucket/log.",
            )
        storage = {
            name.removeprefix("storage."): parse_option(value)
            for name, value in self.options.items()
            if name.startswith("storage.")
        }
        for name in ("url", "single_writer", "offsets_table"):
            if name in storage:
                raise InvalidRequestError(
                    f"storage.{name} is no option of a filesystem.",
                    "Use path, single_writer and offsets.table.",
                )
        single = self.boolean("single_writer", False)
        table = None if offsets_table is None else absolute(offsets_table)
        return LogAddress(absolute(root), tuple(sorted(storage.items())), single, table)

    # --- values ----------------------------------------------------------------------------

    def boolean(self, name: str, default: bool) -> bool:
        value = self.options.get(name.lower())
        if value is None:
            return default
        if value.strip().lower() not in ("true", "false"):
            raise self.wrong(name, "true or false")
        return value.strip().lower() == "true"

    def number(self, name: str, low: int, high: int = MAX_OFFSET) -> int | None:
        value = self.options.get(name.lower())
        if value is None:
            return None
        if not re.fullmatch(r"[0-9]{1,19}", value.strip(), re.ASCII) or not (
            low <= int(value) <= high
        ):
            most = "" if high == MAX_OFFSET else f" to {high}"
            raise self.wrong(name, f"a whole number from {low}{most}")
        return int(value)

    def count(self, name: str, high: int = MAX_OFFSET) -> int | None:
        return self.number(name, 1, high)

    def choice(self, name: str, allowed: tuple[str, ...], default: str) -> str:
        value = self.options.get(name.lower())
        if value is None:
            return default
        if value.strip().lower() not in allowed:
            raise self.wrong(name, ", ".join(allowed))
        return value.strip().lower()

    def size(self, name: str) -> int | None:
        """Bytes, as Spark writes them: 1048576, 64m, 1g."""
        value = self.options.get(name.lower())
        if value is None:
            return None
        match = re.fullmatch(r"([0-9]{1,18})\s*([kmgt]?)b?", value.strip().lower(), re.ASCII)
        size = 0 if match is None else int(match[1]) << 10 * " kmgt".index(match[2] or " ")
        if not 1 <= size <= MAX_OFFSET:
            raise self.wrong(name, "bytes from 1, such as 1048576, 64m or 1g")
        return size

    def duration(self, name: str, default: int) -> int:
        """Milliseconds, as Spark writes them: 15m, 30s, 100ms, 5 minutes; or ISO 8601."""
        value = self.options.get(name.lower())
        if value is None:
            return default
        text = value.strip().lower()
        match = re.fullmatch(r"([0-9]{1,12})\s*([a-z]{1,12})", text, re.ASCII)
        if match is not None:
            unit = match[2] if match[2] in _UNITS else match[2].removesuffix("s")
            if unit in _UNITS:
                return int(match[1]) * _UNITS[unit]
        elif text.startswith("p"):
            return self.iso(name, text)
        raise self.wrong(name, "a duration such as 15m, 30s or 100ms")

    def iso(self, name: str, text: str) -> int:
        try:
            return parse_duration(text)
        except InvalidRequestError as error:
            raise self.wrong(name, error.hint.rstrip(".")) from None

    # --- what is read ----------------------------------------------------------------------

    def subscription(self) -> TopicSubscription:
        there = [name for name in SUBSCRIPTIONS if name.lower() in self.options]
        if len(there) != 1:
            told = " and ".join(there) + " are set" if there else "None of them is set"
            raise InvalidRequestError(
                f"What to read is said by exactly one of {', '.join(SUBSCRIPTIONS)}. {told}.",
                "For example .option('subscribe', 'orders').",
            )
        [name] = there
        value = self.options[name.lower()].strip()
        if name == "subscribe":
            topics = dict.fromkeys(t.strip() for t in value.split(",") if t.strip())
            if not topics:
                raise self.wrong(name, "names of topics, with commas between them")
            return TopicSubscription(topics=tuple(check_name(topic) for topic in topics))
        if name == "subscribePattern":
            return TopicSubscription(pattern=self._pattern(value))
        return TopicSubscription(assigned=self._assigned(value))

    def _pattern(self, value: str) -> str:
        if not value or len(value) > LONGEST_PATTERN:
            raise self.wrong("subscribePattern", "a regular expression")
        try:
            re.compile(value)
        except (re.error, RecursionError) as error:
            raise self.wrong("subscribePattern", f"a regular expression ({error})") from None
        return value

    def _assigned(self, value: str) -> tuple[tuple[str, int], ...]:
        allowed = 'JSON such as {"orders":[0,1]}'
        out: dict[tuple[str, int], None] = {}
        for topic, numbers in self._object("assign", value, allowed).items():
            check_name(topic)
            if not isinstance(numbers, list) or not numbers:
                raise self.wrong("assign", allowed)
            for number in numbers:
                if type(number) is not int or not 0 <= number < MAX_PARTITIONS:
                    raise self.wrong("assign", allowed)
                out[topic, number] = None
        if not out:
            raise self.wrong("assign", f"{allowed}, with at least one partition")
        return tuple(sorted(out))

    def _object(self, name: str, value: str, allowed: str) -> dict[str, Any]:
        try:
            told = strict_json.loads(value, name, MAX_JSON)
        except CorruptLogError as error:
            raise self.wrong(name, f"{allowed} ({error.message.rstrip('.')})") from None
        if not isinstance(told, dict):
            raise self.wrong(name, allowed)
        return told

    def _each(self, name: str, low: int, allowed: str) -> dict[str, dict[int, int]]:
        """``{"orders": {"0": 23, "1": -2}}``"""
        out: dict[str, dict[int, int]] = {}
        for topic, inner in self._object(name, self.options[name.lower()], allowed).items():
            check_name(topic)
            if not isinstance(inner, dict):
                raise self.wrong(name, allowed)
            numbers = out.setdefault(topic, {})
            for text, number in inner.items():
                if not re.fullmatch(r"[0-9]{1,9}", text, re.ASCII) or str(int(text)) != text:
                    raise self.wrong(name, allowed)
                if type(number) is not int or not low <= number <= MAX_OFFSET:
                    raise self.wrong(name, allowed)
                numbers[int(text)] = number
        return out

    def start(self, default: str) -> OffsetBound:
        words = ("earliest", "latest", "group")
        return self._edge(STARTS, words, default, relative=True)

    def end(self) -> OffsetBound:
        return self._edge(ENDS, ("latest", "earliest"), "latest", relative=False)

    def _edge(
        self, names: tuple[str, ...], words: tuple[str, ...], default: str, relative: bool
    ) -> OffsetBound:
        """The option that counts; the others are read all the same, so that a typo is found."""
        found = [
            read(name, words, relative)
            for name, read in zip(names, (self._time, self._times, self._offsets), strict=True)
            if name.lower() in self.options
        ]
        return found[0] if found else OffsetBound(default, option=names[-1])

    def _time(self, name: str, _: tuple[str, ...], relative: bool) -> OffsetBound:
        value = self.options[name.lower()].strip()
        if re.fullmatch(r"[0-9]{1,18}", value, re.ASCII):
            return OffsetBound("time", int(value), option=name)
        if relative and value.upper().startswith("-P"):
            return OffsetBound("ago", self.iso(name, value[1:]), option=name)
        more = ", or a time before now such as -PT10M" if relative else ""
        raise self.wrong(name, f"milliseconds since 1970{more}")

    def _times(self, name: str, _: tuple[str, ...], relative: bool) -> OffsetBound:
        allowed = 'JSON with milliseconds since 1970, such as {"orders":{"0":1767225600000}}'
        return OffsetBound("times", each=self._each(name, 0, allowed), option=name)

    def _offsets(self, name: str, words: tuple[str, ...], relative: bool) -> OffsetBound:
        value = self.options[name.lower()].strip()
        if value.lower() in words:
            return OffsetBound(value.lower(), option=name)
        if relative and re.fullmatch(r"-[1-9][0-9]{0,17}", value, re.ASCII):
            return OffsetBound("before", -int(value), option=name)
        more = ", -N (records before the end)" if relative else ""
        allowed = f'{", ".join(words)}{more}, or JSON such as {{"orders":{{"0":23,"1":-2}}}}'
        if not value.startswith("{"):
            raise self.wrong(name, allowed)
        return OffsetBound("offsets", each=self._each(name, EARLIEST_OFFSET, allowed), option=name)


def _is_servers(text: str) -> bool:
    """``host:9092,host:9092``, and no path or URL."""
    return all(
        re.fullmatch(r"[a-zA-Z0-9.\[\]_-]+:[0-9]{1,5}", part.strip(), re.ASCII)
        for part in text.split(",")
    )
