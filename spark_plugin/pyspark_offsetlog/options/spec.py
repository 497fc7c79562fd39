"""The options: one table for the source and one for the sink, and what they come to.

Invariants:

1. Each option is one row: its name, the field that it sets, its parser and its default. Of
   several options for one field the first that is set counts.
2. Values are plain and pickle; nothing here touches a filesystem, Spark or Arrow.
3. No value of a ``storage.`` option is shown by a ``repr``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from offsetlog.core.group.starting_offset import POLICIES
from offsetlog.engine import safe_url
from offsetlog.values import MAX_PARTITIONS
from pyspark_offsetlog.options import parse
from pyspark_offsetlog.options.parse import OffsetBound, TopicSubscription


class Option(NamedTuple):
    name: str
    field: str
    parse: Callable[[str], Any]
    default: Any = None


Options = Mapping[str, Option]
"""By name, in the order in which they count."""


def _table(*options: Option) -> Options:
    return {option.name: option for option in options}


_PLACE = (
    Option("path", "root", parse.stripped),
    Option("kafka.bootstrap.servers", "root", parse.stripped),
    Option("single_writer", "single_writer", parse.boolean, False),
)
_OFFSETS_TABLE = Option("offsets.table", "offsets_table", parse.text)
_GROUP = Option("group.id", "group", parse.name("group"))
_TAKEOVER = Option("group.takeover", "takeover", parse.boolean, False)
_HEADERS = Option("includeHeaders", "include_headers", parse.boolean, False)

_LATEST = OffsetBound("latest", option="endingOffsets")

SOURCE = _table(
    *_PLACE,
    Option("subscribe", "subscription", parse.topic_list),
    Option("subscribePattern", "subscription", parse.topic_pattern),
    Option("assign", "subscription", parse.assignment),
    Option("startingTimestamp", "start", parse.start_time),
    Option("startingOffsetsByTimestamp", "start", parse.times_bound),
    Option("startingOffsets", "start", parse.start_offsets),
    Option("endingTimestamp", "end", parse.end_time),
    Option("endingOffsetsByTimestamp", "end", parse.times_bound),
    Option("endingOffsets", "end", parse.end_offsets, _LATEST),
    Option("startingOffsetsByTimestampStrategy", "at_no_match", parse.at_no_match, "error"),
    Option("auto.offset.reset", "reset_policy", parse.choice(*POLICIES), "latest"),
    Option("maxOffsetsPerTrigger", "max_offsets", parse.whole_number(1)),
    Option("minOffsetsPerTrigger", "min_offsets", parse.whole_number(1)),
    Option("maxBytesPerTrigger", "max_bytes", parse.size),
    Option("maxTriggerDelay", "max_delay_ms", parse.duration, 15 * 60_000),
    Option("minPartitions", "min_partitions", parse.whole_number(1, 1_000_000)),
    Option("maxRecordsPerPartition", "max_records", parse.whole_number(1)),
    Option("failOnDataLoss", "fail_on_data_loss", parse.boolean, True),
    _GROUP,
    _GROUP._replace(name="kafka.group.id"),
    _TAKEOVER,
    _OFFSETS_TABLE,
    _HEADERS,
    Option("pollIntervalMs", "poll_ms", parse.whole_number(0, 3_600_000)),
)
SINK = _table(
    *_PLACE,
    Option("topic", "topic", parse.name("topic")),
    _HEADERS,
    Option("txnAppId", "txn_app_id", parse.text),
    Option("txnVersion", "txn_version", parse.whole_number(0, 2**62)),
    Option("createTopicPartitions", "create_partitions", parse.whole_number(1, MAX_PARTITIONS)),
    Option("maintainInterval", "maintain_ms", parse.duration),
)
TABLES = ("offsets", "positions", "lag", "topics")
TABLE = _table(
    _PLACE[0],
    _PLACE[2],
    _OFFSETS_TABLE,
    Option("table", "table", parse.choice(*TABLES)),
    _GROUP,
)


SUBSCRIPTIONS, STARTS, ENDS = (
    tuple(option.name for option in SOURCE.values() if option.field == field)
    for field in ("subscription", "start", "end")
)


class LogAddress(NamedTuple):
    """A root, and what its filesystem must be told."""

    root: str
    storage: tuple[tuple[str, Any], ...] = ()
    single_writer: bool = False
    offsets_table: str | None = None
    root_id: str | None = None
    """Which root it is: set by who plans, for those who read and write as planned."""

    @property
    def url(self) -> str:
        """The root without secrets."""
        return safe_url(self.root)

    def __repr__(self) -> str:
        return f"LogAddress({self.url!r})"


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
    takeover: bool
    """Whether the group is taken over from a query that lives."""
    client: str
    include_headers: bool
    poll_ms: int | None

    @property
    def shares_out(self) -> bool:
        """Whether the user said how rows are shared out among tasks."""
        return self.min_partitions is not None or self.max_records is not None


JVM_TASKS = "offsetlog.jvm.tasks"
"""Set by the class in Spark's JVM, and by no user: the version of offsetlog that runs the tasks of
a write there."""


class SinkOptions(NamedTuple):
    place: LogAddress
    topic: str | None
    include_headers: bool
    txn: tuple[str, int] | None
    create_partitions: int | None
    maintain_ms: int | None = None
    """The least time from one round of upkeep to the next; None: no upkeep."""


class TableOptions(NamedTuple):
    place: LogAddress
    table: str
    group: str | None
