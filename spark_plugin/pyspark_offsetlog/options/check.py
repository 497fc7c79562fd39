"""What a user sets with ``.option(...)``: parsed once, checked whole, plain values from then on.

Invariants:

1. Names are compared without case, as Spark does. An unknown name, a value that does not parse
   and two options that contradict each other are errors that name the option, the value and
   what is allowed.
2. Options that only a Kafka client would need are accepted, since a moved query has them; one
   warning names them all.
3. Values are plain and pickle; nothing here touches a filesystem, Spark or Arrow.
4. No value of a ``storage.`` option is ever shown.
"""

from __future__ import annotations

from collections.abc import Mapping

from offsetlog.core.group.starting_offset import POLICIES
from offsetlog.errors import InvalidRequestError
from offsetlog.values import MAX_PARTITIONS, check_name
from pyspark_offsetlog.options.parse import KAFKA_ONLY, OptionParser, lowered
from pyspark_offsetlog.options.spec import (
    EARLIEST_OFFSET,
    ENDS,
    LATEST_OFFSET,
    SINK,
    SOURCE,
    STARTS,
    SUBSCRIPTIONS,
    LogAddress,
    OffsetBound,
    SinkOptions,
    SourceOptions,
    TopicSubscription,
)

__all__ = [
    "SINK",
    "SOURCE",
    "OffsetBound",
    "LogAddress",
    "SinkOptions",
    "SourceOptions",
    "TopicSubscription",
    "is_source",
    "losers",
    "passed_over",
    "sink_options",
    "source_options",
]

_OUR_OWN = {
    "kafka.auto.offset.reset": "startingOffsets=group with auto.offset.reset",
    "groupidprefix": "group.id",
    "kafka.enable.auto.commit": "group.id",
}


def is_source(options: Mapping[str, str]) -> bool:
    """Whether these can only be meant for reading."""
    return any(name.lower() in options for name in SUBSCRIPTIONS)


def source_options(options: Mapping[str, str], streaming: bool | None) -> SourceOptions:
    """``streaming`` is None where that is not known yet: then both kinds pass."""
    given = OptionParser(options, SOURCE)
    place = given.place(given.text("offsets.table"))
    subscription = given.subscription()
    start = given.start("earliest" if streaming is False else "latest")
    end = given.end()
    group = given.one_of_two("group.id", "kafka.group.id")
    read = SourceOptions(
        place,
        subscription,
        start,
        end,
        given.choice("startingOffsetsByTimestampStrategy", ("error", "latest"), "error"),
        given.choice("auto.offset.reset", POLICIES, "latest"),
        given.count("maxOffsetsPerTrigger"),
        given.count("minOffsetsPerTrigger"),
        given.size("maxBytesPerTrigger"),
        given.duration("maxTriggerDelay", 15 * 60_000),
        given.count("minPartitions", 1_000_000),
        given.count("maxRecordsPerPartition"),
        given.boolean("failOnDataLoss", True),
        None if group is None else check_name(group, "group"),
        given.options.get("kafka.client.id", "")[:200],
        given.boolean("includeHeaders", False),
        given.number("pollIntervalMs", 0, 3_600_000),
    )
    _check_together(given, read, streaming)
    return read


def sink_options(options: Mapping[str, str]) -> SinkOptions:
    given = OptionParser(options, SINK)
    topic = given.text("topic")
    app, version = given.text("txnAppId"), given.number("txnVersion", 0, 2**62)
    if (app is None) != (version is None):
        there, missing = ("txnAppId", "txnVersion")[:: 1 if version is None else -1]
        raise InvalidRequestError(
            f"The option {there} is set and {missing} is not.", "They belong together: set both."
        )
    if app is not None and not 1 <= len(app) <= 1024:
        raise given.wrong("txnAppId", "1 to 1024 characters")
    return SinkOptions(
        given.place(None),
        None if topic is None else check_name(topic.strip()),
        given.boolean("includeHeaders", False),
        None if app is None or version is None else (app, version),
        given.count("createTopicPartitions", MAX_PARTITIONS),
    )


def passed_over(options: Mapping[str, str], known: tuple[str, ...]) -> str:
    """A warning about the options that are accepted and do nothing; empty if there are none."""
    ours = {name.lower() for name in known} | {"kafka.client.id"}
    idle = sorted(name for name in lowered(options) if name not in ours)
    idle = [name for name in idle if KAFKA_ONLY.fullmatch(name)]
    if not idle:
        return ""
    hints = [f"{_OUR_OWN[name]} in place of {name}" for name in idle if name in _OUR_OWN]
    told = f"offsetlog has no Kafka client, so these options do nothing: {', '.join(idle)}."
    return told + (f" Use {'; '.join(hints)}." if hints else "")


def losers(options: Mapping[str, str]) -> str:
    """A warning about starts and ends that another option overrules; empty if there are none."""
    given = lowered(options)
    out = []
    for names in (STARTS, ENDS):
        there = [name for name in names if name.lower() in given]
        if len(there) > 1:
            verb = "is" if len(there) == 2 else "are"
            out.append(f"{there[0]} is set, so {' and '.join(there[1:])} {verb} passed over.")
    return " ".join(out)


def _check_together(given: OptionParser, read: SourceOptions, streaming: bool | None) -> None:
    low, high = read.min_offsets, read.max_offsets
    if low is not None and high is not None and low > high:
        raise InvalidRequestError(
            f"minOffsetsPerTrigger={low} is more than maxOffsetsPerTrigger={high}.",
            "Lower the one or raise the other.",
        )
    if read.start.kind == "group" and read.group is None:
        raise InvalidRequestError(
            "startingOffsets=group needs a group.", "Set group.id to its name."
        )
    if streaming:
        for name in ENDS:
            if name.lower() in given.options:
                raise InvalidRequestError(
                    f"The option {name} is set for a stream, which has no end.",
                    "Leave it out, or read with spark.read.",
                )
    if streaming is False:
        _check_batch(read)


def _check_batch(read: SourceOptions) -> None:
    if read.start.kind == "latest":
        raise InvalidRequestError(
            "startingOffsets=latest would read nothing in a batch query.",
            "Use earliest, offsets, -N (records before the end), or a time.",
        )
    if read.end.kind == "earliest":
        raise InvalidRequestError(
            "endingOffsets=earliest would read nothing.", "Use latest, or offsets."
        )
    refusals = (
        (read.start, LATEST_OFFSET, "latest"),
        (read.end, EARLIEST_OFFSET, "earliest"),
    )
    for edge, refused, word in refusals:
        if edge.kind != "offsets":
            continue
        for topic, each in edge.each.items():
            for partition, offset in each.items():
                if offset == refused:
                    raise InvalidRequestError(
                        f"{edge.option} for {topic}-{partition} is {offset} ({word}), which "
                        "a batch query cannot take.",
                        "Give an offset that is there.",
                    )
