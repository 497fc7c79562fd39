"""Types of options and arguments: from text to values.

Invariants:

1. Text that is not fully understood is refused, with the option's name.
2. A time is milliseconds since 1970 or ISO 8601, which is UTC where it names no zone.
"""

from __future__ import annotations

import re
from abc import abstractmethod
from typing import TYPE_CHECKING, Any, NamedTuple

import click

from offsetlog.core.times import UNITS_MS, parse_datetime, parse_duration
from offsetlog.errors import InvalidRequestError
from offsetlog.values import MAX_OFFSET

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

    ParamType = click.ParamType[Any]
else:
    ParamType = click.ParamType

_WHOLE = re.compile(r"-?[0-9]{1,19}", re.ASCII)
_SIZE = re.compile(r"([0-9]{1,15})\s*([kmgt]?)i?b?", re.ASCII)
_SPAN = re.compile(r"([0-9]{1,15})(ms|s|m|h|d|w)?", re.ASCII)
_ESCAPES = {"t": "\t", "n": "\n", "r": "\r", "0": "\0", "\\": "\\"}


class ConsumeFrom(NamedTuple):
    """Where to begin: ``earliest``, ``latest``, ``offset`` or ``time``, and its number."""

    kind: str
    number: int = 0


EARLIEST = ConsumeFrom("earliest")
LATEST = ConsumeFrom("latest")


class _Param(ParamType):
    """A type whose ``parse`` turns text into a value, or raises ValueError with the reason."""

    @abstractmethod
    def parse(self, text: str) -> Any:
        """The value of this text."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        if not isinstance(value, str):
            return value
        try:
            return self.parse(value)
        except InvalidRequestError as error:
            self.fail(str(error), param, ctx)
        except ValueError as error:
            self.fail(str(error), param, ctx)


def _time(text: str) -> int:
    bare = text.removeprefix("@")
    if _WHOLE.fullmatch(bare):
        number = int(bare)
        if not 0 <= number <= MAX_OFFSET:
            raise ValueError(f"{text} is not a time in milliseconds since 1970.")
        return number
    try:
        return parse_datetime(text)
    except InvalidRequestError:
        raise ValueError(
            f"{text!r} is neither milliseconds since 1970 nor a time in ISO 8601, such as "
            "2026-03-01T12:30:00Z."
        ) from None


class OffsetOrTime(_Param):
    """For ``consume --from``: a bare number is an offset; a time in milliseconds has an @."""

    name = "earliest|latest|OFFSET|TIMESTAMP"

    def parse(self, text: str) -> ConsumeFrom:
        if text in ("earliest", "latest"):
            return ConsumeFrom(text)
        if _WHOLE.fullmatch(text):
            number = int(text)
            if not 0 <= number <= MAX_OFFSET:
                raise ValueError(f"{text} is not an offset: offsets start at 0.")
            return ConsumeFrom("offset", number)
        try:
            return ConsumeFrom("time", _time(text))
        except ValueError:
            raise ValueError(
                f"{text!r} is not 'earliest', 'latest', an offset, a time in ISO 8601 such as "
                "2026-03-01T12:30:00Z, or @ and milliseconds since 1970."
            ) from None


class Time(_Param):
    """For ``offsets --time``: a bare number is a time, or -1 and -2 as in Kafka's tool."""

    name = "earliest|latest|TIMESTAMP"

    def parse(self, text: str) -> ConsumeFrom:
        if text in ("earliest", "-2"):
            return EARLIEST
        if text in ("latest", "-1"):
            return LATEST
        try:
            return ConsumeFrom("time", _time(text))
        except ValueError as error:
            raise ValueError(f"{error} 'earliest' and 'latest' are allowed too.") from None


class Duration(_Param):
    """Milliseconds, from 24h, 30m, PT10M or a bare number of milliseconds."""

    name = "DURATION"

    def parse(self, text: str) -> int:
        span = _SPAN.fullmatch(text.strip())
        if span:
            return int(span[1]) * UNITS_MS.get(span[2], 1)
        try:
            milliseconds = parse_duration(text)
        except InvalidRequestError:
            milliseconds = -1
        if milliseconds < 0:
            raise ValueError(
                f"{text!r} is not a duration, such as 24h, 30m, 90s, 7d, PT10M, or milliseconds."
            )
        return milliseconds


class Size(_Param):
    """Bytes, from 512MB, 64m, 1g or a bare number of bytes."""

    name = "SIZE"

    def __init__(self, low: int) -> None:
        self._low = low

    def parse(self, text: str) -> int:
        size = _SIZE.fullmatch(text.strip().lower())
        number = 0 if size is None else int(size[1]) << 10 * " kmgt".index(size[2] or " ")
        if not self._low <= number <= MAX_OFFSET:
            raise ValueError(
                f"{text!r} is not a size of at least {self._low} bytes, such as 512MB or 1g."
            )
        return number


class Whole(_Param):
    """A whole number of at least ``low``, and at most ``high`` if there is one."""

    name = "N"

    def __init__(self, low: int, high: int | None = None) -> None:
        self._low = low
        self._high = high

    def parse(self, text: str) -> int:
        number = int(text) if _WHOLE.fullmatch(text) else None
        if number is None or number < self._low or number > (self._high or MAX_OFFSET):
            limits = (
                f"of at least {self._low}"
                if self._high is None
                else f"from {self._low} to {self._high}"
            )
            raise ValueError(f"{text!r} is not a whole number {limits}.")
        return number


class PartitionOffsets(_Param):
    """{partition: offset} from ``0:120,1:80``; -1 stands for the end."""

    name = "PARTITION:OFFSET,..."

    def parse(self, text: str) -> dict[int, int]:
        offsets: dict[int, int] = {}
        for part in text.split(","):
            match = re.fullmatch(r"\s*([0-9]{1,9}):(-1|[0-9]{1,19})\s*", part, re.ASCII)
            if match is None:
                raise ValueError(f"{part!r} is not PARTITION:OFFSET, such as 0:120,1:80.")
            partition = int(match[1])
            if partition in offsets:
                raise ValueError(f"duplicate partition {partition}.")
            offsets[partition] = int(match[2])
        return offsets


class TopicPartitions(_Param):
    """A topic, or some partitions of it: ``orders`` or ``orders:0,1``."""

    name = "TOPIC[:0,1]"

    def parse(self, text: str) -> tuple[str, tuple[int, ...] | None]:
        topic, colon, numbers = text.partition(":")
        if not topic:
            raise ValueError(f"{text!r} names no topic.")
        if not colon:
            return topic, None
        if not re.fullmatch(r"[0-9]{1,9}(,[0-9]{1,9})*", numbers, re.ASCII):
            raise ValueError(f"{text!r} is not TOPIC or TOPIC:PARTITION,..., such as orders:0,1.")
        return topic, tuple(dict.fromkeys(int(number) for number in numbers.split(",")))


class KeyValue(_Param):
    """A topic's setting, ``name=value``."""

    name = "K=V"

    def parse(self, text: str) -> tuple[str, str]:
        key, equals, value = text.partition("=")
        if not equals or not key:
            raise ValueError(f"{text!r} is not name=value, such as retention.ms=86400000.")
        return key, value


class Separator(_Param):
    """Text between fields, as bytes; understands \\t, \\n, \\r, \\0 and \\\\."""

    name = "TEXT"

    def parse(self, text: str) -> bytes:
        if not text:
            raise ValueError("it must not be empty.")
        plain = re.sub(r"\\([tnr0\\])", lambda match: _ESCAPES[match[1]], text)
        return plain.encode("utf-8", "surrogateescape")


class HostPort(_Param):
    """A place to listen on; without a host it is this machine alone."""

    name = "HOST:PORT"

    def parse(self, text: str) -> tuple[str, int]:
        host, _, port = text.rpartition(":")
        if not (port.isascii() and port.isdecimal() and len(port) < 6 and int(port) < 65536):
            raise ValueError(f"{text!r} is not HOST:PORT, such as 127.0.0.1:9308.")
        if host.startswith("[") and host.endswith("]"):
            host = host[1:-1]
        elif ":" in host:
            raise ValueError(
                f"{text!r} is not HOST:PORT; an IPv6 address is written as [::1]:9308."
            )
        return host or "127.0.0.1", int(port)


class TopicName(ParamType):
    """A topic's name, which the shell can complete."""

    name = "TOPIC"

    def shell_complete(
        self, ctx: click.Context, param: click.Parameter, incomplete: str
    ) -> list[CompletionItem]:
        from click.shell_completion import CompletionItem

        from offsetlog.cli.session import CliSession

        session = ctx.find_object(CliSession)
        if session is None:
            return []
        try:
            with session.open() as log:
                return [
                    CompletionItem(name) for name in log.topics() if name.startswith(incomplete)
                ]
        except Exception:  # noqa: BLE001 - completion must never fail
            return []


TOPIC = TopicName()
