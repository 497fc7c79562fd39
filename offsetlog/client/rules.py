"""What the arguments of the client's functions may be: rules for ``offsetlog.arguments``."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterable, Mapping
from itertools import islice
from typing import Any, get_args

import pyarrow as pa

from offsetlog.arguments import (
    CALLBACK,
    FLAG,
    GROUP,
    PARTITION,
    PATH,
    TEXT,
    TOPIC,
    TOPIC_PARTITION,
    WHOLE,
    Rule,
    many,
    mapping,
    number,
    one_of,
    short_text,
    to_text,
    whole,
)
from offsetlog.core.group.assign import STRATEGIES
from offsetlog.core.group.reset import Scenario
from offsetlog.core.group.starting_offset import POLICIES
from offsetlog.engine.append.record_checks import MAX_MS
from offsetlog.errors import InvalidRequestError
from offsetlog.text import quoted
from offsetlog.values import MAX_OFFSET, check_name

MIN_SESSION_MS = 300
MAX_HEADERS = 100_000
MAX_COLUMN_BYTES = 2**31 - 1
"""What Arrow can hold of one column in one piece."""
_LONGEST_MS = 2**31 - 1
"""Kafka's, and some 24 days."""

# --- records -----------------------------------------------------------------------------------


def _to_bytes(value: object) -> bytes:
    if isinstance(value, bytes | bytearray | memoryview):
        return bytes(value)
    if isinstance(value, str):
        raise InvalidRequestError("A str was given for bytes.", "Encode it: text.encode().")
    raise TypeError


BYTES = Rule("bytes", _to_bytes)


def _to_headers(value: object) -> list[tuple[str, bytes | None]]:
    if isinstance(value, str | bytes | Mapping) or not isinstance(value, Iterable):
        raise TypeError
    out: list[tuple[str, bytes | None]] = []
    for name, data in islice(value, MAX_HEADERS + 1):
        clean = None if data is None else BYTES(f"header {quoted(name)}", data)
        out.append((TEXT("A header's name", name), clean))
    if len(out) > MAX_HEADERS:
        raise InvalidRequestError(f"A record has more than {MAX_HEADERS:,} headers.", "Send fewer.")
    return out


def _to_table(value: object) -> pa.Table:
    table = pa.table(value) if isinstance(value, pa.RecordBatch) else value
    if not isinstance(table, pa.Table):
        raise TypeError
    for name, column in zip(table.schema.names, table.columns, strict=True):
        if column.nbytes > MAX_COLUMN_BYTES:
            raise InvalidRequestError(
                f"Column {name!r} of the table has {column.nbytes:,} bytes; one table takes "
                f"{MAX_COLUMN_BYTES:,} of each.",
                "Send it in several tables.",
            )
    return table


HEADERS = Rule("a list of (name, bytes) pairs", _to_headers)
TIMESTAMP = Rule(
    f"a whole number of milliseconds since 1970, from {1 - MAX_MS} to {MAX_MS - 1}",
    whole(1 - MAX_MS, MAX_MS - 1).take,
)
TABLE = Rule("an Arrow table or record batch", _to_table)
PRODUCER_SETTINGS = {
    "linger_ms": number(0, 3_600_000),
    "batch_bytes": whole(1024, 1024**3),
    "app_id": short_text(),
    "sequence": whole(0, 2**62),
}

# --- consumers ---------------------------------------------------------------------------------

TOPICS = many(TOPIC, alone=True)
RECORDS = whole(1, 2**31 - 1)
CONSUMER_SETTINGS = {
    "group": GROUP,
    "topics": TOPICS,
    "auto_offset_reset": one_of(*POLICIES),
    "enable_auto_commit": FLAG,
    "auto_commit_interval_ms": number(0, _LONGEST_MS),
    "session_timeout_ms": whole(MIN_SESSION_MS, _LONGEST_MS),
    "heartbeat_interval_ms": whole(1, _LONGEST_MS),
    "max_poll_interval_ms": whole(1, _LONGEST_MS),
    "partition_assignment_strategy": one_of(*sorted(STRATEGIES)),
    "client_id": Rule("a name", lambda value: check_name(value, "client_id")),
    "on_assign": CALLBACK,
    "on_revoke": CALLBACK,
    "on_lost": CALLBACK,
    "max_poll_records": RECORDS,
    "poll_interval_ms": number(0, _LONGEST_MS),
}


def _to_committed(value: object) -> tuple[int, str]:
    if isinstance(value, tuple):
        offset, metadata = value
        if not isinstance(metadata, str):
            raise TypeError
        return WHOLE.take(offset), metadata  # What of it can be stored, ``check_position`` says.
    return WHOLE.take(value), ""


OFFSETS = mapping(TOPIC_PARTITION, Rule('an offset, or (53, "text")', _to_committed))

# --- groups ------------------------------------------------------------------------------------


def _to_goal(value: object) -> object:
    if isinstance(value, str | dt.datetime):
        return value
    return WHOLE.take(value)


def _to_time(value: object) -> str:
    """As the command line takes it."""
    if isinstance(value, dt.datetime):
        return value.isoformat()
    if isinstance(value, dt.timedelta):
        return f"PT{value.total_seconds():.3f}S"
    return to_text(value)


def _to_scenario(value: object) -> object:
    if not isinstance(value, get_args(Scenario)):
        raise TypeError
    return value


def _to_chosen(value: Any) -> tuple[str, tuple[int, ...] | None]:
    topic, partitions = value
    chosen = None if partitions is None else many(PARTITION)("partitions", partitions)
    return TOPIC("topic", topic), chosen


SCENARIO = Rule("a scenario of a reset", _to_scenario)
TOPIC_AND_PARTITIONS = Rule("a topic with its partitions or None", _to_chosen)
RESET = {
    "topic": TOPIC,
    "to": Rule('"earliest", "latest", "current", an offset or a datetime', _to_goal),
    "partitions": many(PARTITION),
    "shift_by": WHOLE,
    "to_datetime": Rule("a time in ISO 8601, or a datetime", _to_time),
    "by_duration": Rule("a duration in ISO 8601, or a timedelta", _to_time),
    "from_file": PATH,
    "dry_run": FLAG,
}

# --- upkeep ------------------------------------------------------------------------------------

MINUTES = whole(0, MAX_OFFSET // 60_000)
MILLISECONDS = whole(0, MAX_OFFSET)
MEMORY = whole(1024 * 1024, MAX_OFFSET)
