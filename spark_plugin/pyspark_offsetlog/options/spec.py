"""What a user asks for, as plain values: the names of the options, and what they come to.

Invariants:

1. Values are plain and pickle; nothing here touches a filesystem, Spark or Arrow.
2. No value of a ``storage.`` option is shown by a ``repr``.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from offsetlog.storage.redact import safe_url

EARLIEST_OFFSET, LATEST_OFFSET = -2, -1

PLACE = ("path", "kafka.bootstrap.servers", "single_writer")
SUBSCRIPTIONS = ("subscribe", "subscribePattern", "assign")
STARTS = ("startingTimestamp", "startingOffsetsByTimestamp", "startingOffsets")
ENDS = ("endingTimestamp", "endingOffsetsByTimestamp", "endingOffsets")
SOURCE = (
    *PLACE,
    *SUBSCRIPTIONS,
    *STARTS,
    *ENDS,
    "startingOffsetsByTimestampStrategy",
    "auto.offset.reset",
    "maxOffsetsPerTrigger",
    "minOffsetsPerTrigger",
    "maxBytesPerTrigger",
    "maxTriggerDelay",
    "minPartitions",
    "maxRecordsPerPartition",
    "failOnDataLoss",
    "group.id",
    "kafka.group.id",
    "offsets.table",
    "includeHeaders",
    "pollIntervalMs",
)
SINK = (*PLACE, "topic", "includeHeaders", "txnAppId", "txnVersion", "createTopicPartitions")
SPARKS_OWN = frozenset({"checkpointlocation", "queryname"})
"""What Spark itself was told about a stream, and hands to its sink."""


class LogAddress(NamedTuple):
    """A root, and what its filesystem must be told."""

    root: str
    storage: tuple[tuple[str, Any], ...] = ()
    single_writer: bool = False
    offsets_table: str | None = None
    root_id: str | None = None
    """Which root it is: set by who plans, for those who read and write as planned."""

    def __repr__(self) -> str:
        return f"Place({safe_url(self.root)!r})"


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


class SourceOptions(NamedTuple):
    place: LogAddress
    subscription: TopicSubscription
    start: OffsetBound
    end: OffsetBound
    at_no_match: str
    """``error`` or ``latest``: a time that no record has reached."""
    reset_policy: str
    max_offsets: int | None
    min_offsets: int | None
    max_bytes: int | None
    max_delay_ms: int
    min_partitions: int | None
    max_records: int | None
    fail_on_data_loss: bool
    group: str | None
    client: str
    include_headers: bool
    poll_ms: int | None

    @property
    def shares_out(self) -> bool:
        """Whether the user said how rows are shared out among tasks."""
        return self.min_partitions is not None or self.max_records is not None


class SinkOptions(NamedTuple):
    place: LogAddress
    topic: str | None
    include_headers: bool
    txn: tuple[str, int] | None
    create_partitions: int | None
