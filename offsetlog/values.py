"""The words that every layer shares: names, configs, records.

Invariants:

1. A name is checked once, where it comes in; what is checked carries its type.
2. ``canonical_name`` maps names that may not exist side by side to one string.
3. A config holds known keys only, with values that parsed.
"""

from __future__ import annotations

import difflib
import re
from binascii import b2a_base64
from collections.abc import Iterable, Mapping
from functools import lru_cache
from typing import NamedTuple

from offsetlog.errors import InvalidRequestError
from offsetlog.text import quoted

_NAME = re.compile(r"[a-zA-Z0-9._-]{1,249}", re.ASCII)

NO_LIMIT = -1
TIMESTAMP_TYPES = ("CreateTime", "LogAppendTime")
TABLE_FORMATS = ("none", "delta")
COMPRESSIONS = ("zstd", "lz4", "snappy", "gzip", "none")
MAX_PARTITIONS = 100_000
MAX_GROUP_PARTITIONS = 1_000_000
"""Of all topics of a consumer group together: each is dealt out in every program that looks."""
MAX_BYTES = 2**48
"""Of the records of a part: the sum over a topic's index stays far below 2**63."""
MAX_OFFSET = 2**63 - 1
MIN_TIME = -(2**62)
"""The least timestamp that an entry may state, in milliseconds since the epoch."""
DAY_MS = 86_400_000
_LONGEST_WORD = 300
"""Of what was misspelt: the search for what was meant takes the square of its length."""


def check_name(name: object, what: str = "topic") -> str:
    """The name itself, if Kafka's rule and ours allow it."""
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        raise InvalidRequestError(
            f"{quoted(name)} is not a legal {what} name.",
            "Use 1 to 249 of the characters a-z, A-Z, 0-9, '.', '_' and '-'.",
        )
    if name[0] in "._":
        raise InvalidRequestError(
            f"The {what} name {name!r} begins with {name[0]!r}.",
            "Names that begin with '.' or '_' are kept for offsetlog and hidden by Spark.",
        )
    return name


def is_name(name: object) -> bool:
    """Whether it is a legal name of a topic."""
    try:
        return check_name(name) == name
    except InvalidRequestError:
        return False


def canonical_name(name: str) -> str:
    """What two names share when they may not both exist: case, and '.' against '_'."""
    return name.lower().replace(".", "_")


def did_you_mean(given: str, known: Iterable[str]) -> str:
    """A hint for a word that is not known."""
    names = [name for name in known if name != given]
    close = difflib.get_close_matches(given[:_LONGEST_WORD], names, n=1)
    if close:
        return f"Did you mean {close[0]!r}?"
    return f"Known: {', '.join(sorted(names))}."


class TopicPartition(NamedTuple):
    """A partition of a topic. A plain tuple does as well."""

    topic: str
    partition: int


class Record(NamedTuple):
    """A record, as a consumer gets it."""

    topic: str
    partition: int
    offset: int
    key: bytes | None
    value: bytes | None
    headers: list[tuple[str, bytes | None]]
    timestamp: int
    timestamp_type: int = 0

    def to_dict(self) -> dict[str, object]:
        """As ``offsetlog consume --json`` prints it: bytes that are not UTF-8 are None, with their
        base64 beside them."""
        return {
            "partition": self.partition,
            "offset": self.offset,
            "timestamp": self.timestamp,
            **_bytes_to_json("key", self.key),
            **_bytes_to_json("value", self.value),
            "headers": [
                {"key": name, **_bytes_to_json("value", value)} for name, value in self.headers
            ],
        }


def _bytes_to_json(name: str, data: bytes | None) -> dict[str, str | None]:
    try:
        return {name: None if data is None else data.decode()}
    except UnicodeDecodeError:
        assert data is not None
        return {name: None, f"{name}_base64": b2a_base64(data, newline=False).decode()}


NO_TIMESTAMP = -1
"""Kafka's word for none."""


class RecordMetadata(NamedTuple):
    """Where an acknowledged record lies."""

    topic: str
    partition: int
    offset: int
    timestamp: int
    """The stored record's. -1 (``NO_TIMESTAMP``) where the batch of its ``app_id`` and ``sequence``
    was there already and that is not known without reading its file."""


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
    min_compaction_lag_ms: int = 0
    max_compaction_lag_ms: int = MAX_OFFSET
    delete_retention_ms: int = DAY_MS
    min_cleanable_dirty_ratio: float = 0.5
    table_format: str = "none"

    @property
    def compacts(self) -> bool:
        """Whether the newest of each key stays, and the others go."""
        return "compact" in self.cleanup_policy

    @property
    def retires(self) -> bool:
        """Whether retention by time and size applies."""
        return "delete" in self.cleanup_policy

    @property
    def has_table(self) -> bool:
        """Whether the topic is a Delta table too."""
        return self.table_format == "delta"

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
    "min.compaction.lag.ms": "min_compaction_lag_ms",
    "max.compaction.lag.ms": "max_compaction_lag_ms",
    "delete.retention.ms": "delete_retention_ms",
    "min.cleanable.dirty.ratio": "min_cleanable_dirty_ratio",
    "table.format": "table_format",
}
_ALIASES = {"compression": "compression.type"}

_INTEGERS: dict[str, tuple[int, int]] = {
    "retention.ms": (NO_LIMIT, MAX_OFFSET),
    "retention.bytes": (NO_LIMIT, MAX_OFFSET),
    "segment.bytes": (1024 * 1024, 8 * 1024**3),
    "max.message.bytes": (1, 1024**3),
    "producer.id.expiration.ms": (60_000, MAX_OFFSET),
    "min.compaction.lag.ms": (0, MAX_OFFSET),
    "max.compaction.lag.ms": (1, MAX_OFFSET),
    "delete.retention.ms": (0, MAX_OFFSET),
}
_RATIOS = ("min.cleanable.dirty.ratio",)
_CHOICES: dict[str, tuple[str, ...]] = {
    "compression.type": COMPRESSIONS,
    "message.timestamp.type": TIMESTAMP_TYPES,
    "cleanup.policy": ("delete", "compact", "compact,delete"),
    "table.format": TABLE_FORMATS,
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
        elif key in _RATIOS:
            out[key] = str(_ratio(key, value))
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


def _ratio(key: str, value: object) -> float:
    text = str(value).strip()
    if isinstance(value, bool) or not re.fullmatch(r"[0-9]{1,9}(\.[0-9]{1,4})?", text, re.ASCII):
        raise InvalidRequestError(f"{key} takes a number from 0 to 1, not {value!r}.")
    number = float(text)
    if not 0 <= number <= 1:
        raise InvalidRequestError(f"{key}={text} is out of range.", "Allowed: 0 to 1.")
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
    values: dict[str, int | float | str] = {}
    for key, text in stored.items():
        field = CONFIG_KEYS.get(key)
        if field is not None:
            number = int if key in _INTEGERS else float if key in _RATIOS else str
            values[field] = number(text)
    return TopicConfig(**values)  # type: ignore[arg-type]


def held_offsets(start: int, end: int) -> str:
    """What a partition holds from its log start offset up to its end, for an error's hint."""
    if start == end:
        return f"It holds no records, and the next one gets {end}."
    return f"It holds {start} to {end - 1}, and the next record gets {end}."
