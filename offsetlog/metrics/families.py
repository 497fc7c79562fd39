"""Which metrics there are, and their samples of what was seen.

Invariants:

1. Names and labels are kafka_exporter's where it has the like, so dashboards that know it work;
   what it has not begins with ``offsetlog_``.
2. As there, a partition of a topic that a group reads, in which the group has no position, has
   the position -1. Its lag is counted from where the group would begin; where that is not known it
   is -1, as there, and its bytes and seconds are left out.
3. A lag is what ``groups describe`` shows: it counts what can still be read, and is never
   negative but where it is not known. A position in a topic that is gone is left out, as in
   kafka_exporter.
4. Values only: nothing here looks anything up.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, NamedTuple

from offsetlog.client.notebook_html import GroupInfo
from offsetlog.client.overview import Overview

if TYPE_CHECKING:
    from pyspark_offsetlog.about.lag_report import LagReport

NOT_KNOWN = -1


class Family(NamedTuple):
    """A gauge: its name, what it says, and the names of its labels."""

    name: str
    help: str
    labels: tuple[str, ...] = ()


class Sample(NamedTuple):
    labels: tuple[str, ...]
    """The values of the family's labels, in their order."""
    value: float


Samples = Mapping[Family, list[Sample]]

_PARTITION = ("topic", "partition")
_GROUP_PARTITION = ("consumergroup", "topic", "partition")
_QUERY_PARTITION = ("query", "topic", "partition")

TOPIC_PARTITIONS = Family(
    "kafka_topic_partitions", "Number of partitions of the topic.", ("topic",)
)
TOPIC_END = Family(
    "kafka_topic_partition_current_offset", "The next offset of the partition.", _PARTITION
)
TOPIC_START = Family(
    "kafka_topic_partition_oldest_offset", "The first offset that the partition has.", _PARTITION
)
TOPIC_BYTES = Family(
    "offsetlog_topic_bytes",
    "About how many bytes of keys, values and headers the topic has, before compression.",
    ("topic",),
)
UNREADABLE_TOPICS = Family(
    "offsetlog_unreadable_topics", "Number of topics that are broken and can't be read."
)
MAINTAINED = Family(
    "offsetlog_maintained_timestamp_seconds",
    "When upkeep of the whole log last came to its end, in seconds since 1970 by the storage's "
    "clock; 0 if it never did.",
)
GROUP_MEMBERS = Family(
    "kafka_consumergroup_members", "Number of members of the group.", ("consumergroup",)
)
GROUP_POSITION = Family(
    "kafka_consumergroup_current_offset",
    "The next offset that the group reads; -1 where it has committed none.",
    _GROUP_PARTITION,
)
GROUP_LAG = Family(
    "kafka_consumergroup_lag",
    "Records that the group has still to read, without a commit from where it begins; "
    "-1 where that is not known.",
    _GROUP_PARTITION,
)
GROUP_LAG_BYTES = Family(
    "offsetlog_consumergroup_lag_bytes",
    "About how many bytes the group has still to read, before compression.",
    _GROUP_PARTITION,
)
GROUP_LAG_SECONDS = Family(
    "offsetlog_consumergroup_lag_seconds",
    "About the age of the oldest record that the group has still to read; 0 where there is none.",
    _GROUP_PARTITION,
)
QUERY_POSITION = Family(
    "offsetlog_query_current_offset",
    "The next offset that the Spark query reads.",
    _QUERY_PARTITION,
)
QUERY_LAG = Family(
    "offsetlog_query_lag", "Records that the Spark query has still to read.", _QUERY_PARTITION
)
QUERY_LAG_BYTES = Family(
    "offsetlog_query_lag_bytes",
    "About how many bytes the Spark query has still to read, before compression.",
    _QUERY_PARTITION,
)
QUERY_LAG_SECONDS = Family(
    "offsetlog_query_lag_seconds",
    "Age of the oldest record that the Spark query has still to read; 0 where there is none.",
    _QUERY_PARTITION,
)

OF_A_LOG = (
    TOPIC_PARTITIONS,
    TOPIC_END,
    TOPIC_START,
    TOPIC_BYTES,
    UNREADABLE_TOPICS,
    MAINTAINED,
    GROUP_MEMBERS,
    GROUP_POSITION,
    GROUP_LAG,
    GROUP_LAG_BYTES,
    GROUP_LAG_SECONDS,
)
OF_QUERIES = (QUERY_POSITION, QUERY_LAG, QUERY_LAG_BYTES, QUERY_LAG_SECONDS)
FAMILIES = (*OF_A_LOG, *OF_QUERIES)


def of_log(seen: Overview, maintained_ms: int | None) -> Samples:
    """The samples of a log's topics and groups, and of when upkeep was last there."""
    samples: dict[Family, list[Sample]] = {family: [] for family in OF_A_LOG}
    partitions: dict[str, int] = {}
    for topic in seen.topics:
        partitions[topic.name] = len(topic.partitions)
        samples[TOPIC_PARTITIONS].append(Sample((topic.name,), len(topic.partitions)))
        samples[TOPIC_BYTES].append(Sample((topic.name,), sum(p.bytes for p in topic.partitions)))
        for part in topic.partitions:
            labels = topic.name, str(part.partition)
            samples[TOPIC_END].append(Sample(labels, part.end_offset))
            samples[TOPIC_START].append(Sample(labels, part.beginning_offset))
    samples[UNREADABLE_TOPICS].append(Sample((), len(seen.unreadable)))
    if seen.topics:
        samples[MAINTAINED].append(Sample((), (maintained_ms or 0) / 1000))
    for group in seen.groups:
        samples[GROUP_MEMBERS].append(Sample((group.name,), len(group.members)))
        for family, sample in _of_group(group, partitions):
            samples[family].append(sample)
    return samples


def _of_group(group: GroupInfo, partitions: Mapping[str, int]) -> Iterator[tuple[Family, Sample]]:
    lines = {(line.topic, line.partition): line for line in group.partitions}
    for topic in sorted({line.topic for line in group.partitions} & partitions.keys()):
        for number in range(partitions[topic]):
            labels = group.name, topic, str(number)
            line = lines.get((topic, number))
            if line is None or line.end is None:
                yield GROUP_POSITION, Sample(labels, NOT_KNOWN)
                yield GROUP_LAG, Sample(labels, NOT_KNOWN)
                continue
            yield GROUP_POSITION, Sample(labels, _or_not_known(line.committed))
            yield GROUP_LAG, Sample(labels, _or_not_known(line.records))
            if line.bytes is not None:
                yield GROUP_LAG_BYTES, Sample(labels, line.bytes)
            if line.seconds is not None:
                yield GROUP_LAG_SECONDS, Sample(labels, line.seconds)


def _or_not_known(value: int | None) -> int:
    return NOT_KNOWN if value is None else value


def of_queries(reports: Iterable[LagReport]) -> Samples:
    """The samples of running Spark queries, one report each."""
    samples: dict[Family, list[Sample]] = {family: [] for family in OF_QUERIES}
    for report in reports:
        for line in report.lines:
            labels = report.query, line.topic, str(line.partition)
            for family, value in (
                (QUERY_POSITION, line.committed),
                (QUERY_LAG, line.records),
                (QUERY_LAG_BYTES, line.bytes),
                (QUERY_LAG_SECONDS, line.seconds),
            ):
                if value is not None:
                    samples[family].append(Sample(labels, value))
    return samples
