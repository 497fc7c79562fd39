"""The words that every layer shares: names, configs, records.

Invariants:

1. A name is checked once, where it comes in; what is checked carries its type.
2. ``canonical_name`` maps names that may not exist side by side to one string.
3. A config holds known keys only, with values that parsed.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Mapping
from functools import lru_cache
from typing import NamedTuple

from offsetlog.errors import InvalidRequestError

_NAME = re.compile(r"[a-zA-Z0-9._-]{1,249}", re.ASCII)

NO_LIMIT = -1
TIMESTAMP_TYPES = ("CreateTime", "LogAppendTime")
COMPRESSIONS = ("zstd", "lz4", "snappy", "gzip", "none")
MAX_PARTITIONS = 100_000
MAX_OFFSET = 2**63 - 1
MIN_TIME = -(2**62)
"""The least timestamp that an entry may state, in milliseconds since the epoch."""
DAY_MS = 86_400_000


def check_name(name: object, what: str = "topic") -> str:
    """The name itself, if Kafka's rule and ours allow it."""
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        raise InvalidRequestError(
            f"{name!r} is not a legal {what} name.",
            "Use 1 to 249 of the characters a-z, A-Z, 0-9, '.', '_' and '-'.",
        )
    if name[0] in "._":
        raise InvalidRequestError(
            f"The {what} name {name!r} begins with {name[0]!r}.",
            "Names that begin with '.' or '_' are kept for offsetlog and hidden by Spark.",
        )
    return name


def canonical_name(name: str) -> str:
    """What two names share when they may not both exist: case, and '.' against '_'."""
    return name.lower().replace(".", "_")


def did_you_mean(given: str, known: Iterable[str]) -> str:
    """A hint for a word that is not known."""
    names = list(known)
    close = difflib.get_close_matches(given, names, n=1)
    if close:
        return f"Did you mean {close[0]!r}?"
    return f"Known: {', '.join(sorted(names))}."


class TopicPartition(NamedTuple):
    topic: str
    partition: int


class Record(NamedTuple):
    """One record as a consumer gets it."""

    topic: str
    partition: int
    offset: int
    key: bytes | None
    value: bytes | None
    headers: list[tuple[str, bytes | None]]
    timestamp: int
    timestamp_type: int = 0


class RecordMetadata(NamedTuple):
    """Where an acknowledged record lies."""

    topic: str
    partition: int
    offset: int
    timestamp: int


class TopicConfig(NamedTuple):
    """A topic's settings, under Python names; see ``CONFIG_KEYS`` for the public ones."""

    retention_ms: int = 7 * DAY_MS
    retention_bytes: int = NO_LIMIT
    segment_bytes: int = 128 * 1024 * 1024
    compression: str = "zstd"
    max_message_bytes: int = 1_048_588
    timestamp_type: str = "CreateTime"
    cleanup_policy: str = "delete"
    producer_expiration_ms: int = 7 * DAY_MS

    @property
    def log_append_time(self) -> bool:
        return self.timestamp_type == "LogAppendTime"


CONFIG_KEYS: dict[str, str] = {
    "retention.ms": "retention_ms",
    "retention.bytes": "retention_bytes",
    "segment.bytes": "segment_bytes",
    "compression.type": "compression",
    "max.message.bytes": "max_message_bytes",
    "message.timestamp.type": "timestamp_type",
    "cleanup.policy": "cleanup_policy",
    "producer.id.expiration.ms": "producer_expiration_ms",
}
_ALIASES = {"compression": "compression.type"}

_INTEGERS: dict[str, tuple[int, int]] = {
    "retention.ms": (NO_LIMIT, MAX_OFFSET),
    "retention.bytes": (NO_LIMIT, MAX_OFFSET),
    "segment.bytes": (1024 * 1024, 8 * 1024**3),
    "max.message.bytes": (1, 1024**3),
    "producer.id.expiration.ms": (60_000, MAX_OFFSET),
}
_CHOICES: dict[str, tuple[str, ...]] = {
    "compression.type": COMPRESSIONS,
    "message.timestamp.type": TIMESTAMP_TYPES,
    "cleanup.policy": ("delete", "compact", "compact,delete"),
}


def normalise_config(config: Mapping[str, object] | None) -> dict[str, str]:
    """Known keys with values that parse, as the strings that are stored."""
    out: dict[str, str] = {}
    for given, value in (config or {}).items():
        key = _ALIASES.get(given, given)
        if key not in CONFIG_KEYS:
            raise InvalidRequestError(
                f"There is no topic config {given!r}.", f"Known: {', '.join(sorted(CONFIG_KEYS))}."
            )
        if key in _INTEGERS:
            out[key] = str(_integer(key, value))
        else:
            out[key] = _choice(key, value)
    return out


def _integer(key: str, value: object) -> int:
    low, high = _INTEGERS[key]
    text = str(value).strip()
    if isinstance(value, bool) or not re.fullmatch(r"-?[0-9]{1,19}", text, re.ASCII):
        raise InvalidRequestError(f"{key} takes a whole number, not {value!r}.")
    number = int(text)
    if not low <= number <= high or (low == NO_LIMIT and number < NO_LIMIT):
        raise InvalidRequestError(f"{key}={number} is out of range.", f"Allowed: {low} to {high}.")
    return number


def _choice(key: str, value: object) -> str:
    text = str(value).replace(" ", "")
    for choice in _CHOICES[key]:
        same = sorted(choice.lower().split(",")) == sorted(text.lower().split(","))
        if same:
            return choice
    raise InvalidRequestError(
        f"{key} cannot be {value!r}.", f"Allowed: {', '.join(repr(c) for c in _CHOICES[key])}."
    )


@lru_cache(maxsize=256)
def settings_of(stored: tuple[tuple[str, str], ...]) -> TopicConfig:
    """``parse_config`` of a config as a state holds it, which is asked for with every append."""
    return parse_config(dict(stored))


def check_stored_config(stored: Mapping[str, str]) -> None:
    """``InvalidRequestError`` if a known key has a value that nobody who checked it wrote. Keys
    of a later version are let be."""
    known = {key: text for key, text in stored.items() if key in CONFIG_KEYS}
    for key, text in normalise_config(known).items():
        if known[key] != text:
            raise InvalidRequestError(f"{key} is {known[key]!r}, which is written {text!r}.")


def parse_config(stored: Mapping[str, str]) -> TopicConfig:
    """The settings that a topic's stored config stands for. Keys of a later version that this
    one does not know are passed over: they were checked by whoever wrote them."""
    values: dict[str, int | str] = {}
    for key, text in stored.items():
        field = CONFIG_KEYS.get(key)
        if field is not None:
            values[field] = int(text) if key in _INTEGERS else text
    return TopicConfig(**values)  # type: ignore[arg-type]


def as_partition(given: object) -> TopicPartition:
    """A ``(topic, partition)`` pair as a user gives it."""
    if (
        isinstance(given, tuple)
        and len(given) == 2
        and isinstance(given[0], str)
        and type(given[1]) is int
    ):
        return TopicPartition(given[0], given[1])
    raise InvalidRequestError(f"{given!r} is not a partition.", 'Name it as ("orders", 0).')
