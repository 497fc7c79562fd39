"""Where a query starts and where a batch ends: from what was asked for to offsets.

Invariants:

1. Each partition that is read gets an offset that the log has, or the query fails and says
   what is there.
2. Offsets as JSON name exactly the partitions that are read: one too few or too many is an
   error.
3. A time stands for the first record at or after it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from offsetlog.client.log import Log
from offsetlog.core.group.reset import OffsetSpan
from offsetlog.core.group.starting_offset import starting_offset
from offsetlog.errors import InvalidRequestError, OffsetOutOfRangeError
from offsetlog.values import TopicPartition
from pyspark_offsetlog.options.spec import (
    EARLIEST_OFFSET,
    LATEST_OFFSET,
    OffsetBound,
    SourceOptions,
)
from pyspark_offsetlog.source.offsets import Positions
from pyspark_offsetlog.source.subscription import SubscribedTopics

Lost = Callable[[str], None]
"""Told when records that were asked for are gone: raises, or passes with a warning."""
SHOWN = 5


def resolve(
    log: Log,
    options: SourceOptions,
    edge: OffsetBound,
    topics: SubscribedTopics,
    partitions: list[TopicPartition],
    lost: Lost,
) -> Positions:
    """The offset of each partition that ``edge`` stands for, in topics that were looked at."""
    spans = {tp: _span(topics, tp) for tp in partitions}
    match edge.kind:
        case "earliest":
            return {tp: span.start for tp, span in spans.items()}
        case "latest":
            return {tp: span.end for tp, span in spans.items()}
        case "before":
            return {tp: max(span.start, span.end - edge.number) for tp, span in spans.items()}
        case "offsets":
            _same_partitions(edge, partitions)
            return {tp: _explicit(edge, tp, span, lost) for tp, span in spans.items()}
        case "group":
            return _committed(log, options, topics, partitions, lost)
        case _:
            return _by_time(log, options, edge, spans)


def _span(topics: SubscribedTopics, tp: TopicPartition) -> OffsetSpan:
    state = topics.states[tp.topic]
    return OffsetSpan(state.start(tp.partition), state.end(tp.partition))


def _same_partitions(edge: OffsetBound, partitions: list[TopicPartition]) -> None:
    given = {TopicPartition(topic, p) for topic, each in edge.each.items() for p in each}
    wanted = set(partitions)
    if given == wanted:
        return
    told = []
    for text, which in (("leaves out", wanted - given), ("names too many:", given - wanted)):
        if which:
            names = [f"{topic}-{partition}" for topic, partition in sorted(which)]
            more = f" and {len(names) - SHOWN} more" if len(names) > SHOWN else ""
            told.append(f"{text} {', '.join(names[:SHOWN])}{more}")
    raise InvalidRequestError(
        f"{edge.option} {' and '.join(told)}.",
        "Name each partition that is read; -2 stands for earliest and -1 for latest.",
    )


def _explicit(edge: OffsetBound, tp: TopicPartition, span: OffsetSpan, lost: Lost) -> int:
    offset = edge.each[tp.topic][tp.partition]
    if offset == EARLIEST_OFFSET:
        return span.start
    if offset == LATEST_OFFSET:
        return span.end
    if offset > span.end:
        raise OffsetOutOfRangeError(
            f"{edge.option} is {offset} for {tp.topic}-{tp.partition}, which is beyond its end.",
            f"It holds {span.start} to {span.end}.",
        )
    if offset < span.start:
        lost(
            f"{edge.option} is {offset} for {tp.topic}-{tp.partition}, which now starts at "
            f"{span.start}: the records before that are gone."
        )
        return span.start
    return offset


def _committed(
    log: Log,
    options: SourceOptions,
    topics: SubscribedTopics,
    partitions: list[TopicPartition],
    lost: Lost,
) -> Positions:
    """A position that the log has not means lost records; the reset policy is for none at all."""
    assert options.group is not None
    positions = log.offsets_table.look().group(options.group).positions
    # The group was seen after the topics, and may be read by others: what it stands at may have
    # come since.
    stands = {tp: positions[tp].offset for tp in partitions if tp in positions}
    topics.look_again({tp.topic for tp, at in stands.items() if at > _span(topics, tp).end})
    out: Positions = {}
    for tp in partitions:
        known, span = positions.get(tp), _span(topics, tp)
        if known is not None and known.offset > span.end:
            topics.find(tp, known.offset)
            span = _span(topics, tp)
        if known is not None and not span.start <= known.offset <= span.end:
            lost(
                f"The group {options.group!r} stands at {known.offset} of {tp.topic}-"
                f"{tp.partition}, which holds {span.start} to {span.end} now."
            )
            out[tp] = span.start
            continue
        start = starting_offset(
            options.group, tp, None if known is None else known.offset, span, options.reset_policy
        )
        out[tp] = start.offset
    return out


def _by_time(
    log: Log, options: SourceOptions, edge: OffsetBound, spans: Mapping[TopicPartition, OffsetSpan]
) -> Positions:
    if edge.kind == "times":
        _same_partitions(edge, list(spans))
    at = log.env.now_ms() - edge.number if edge.kind == "ago" else edge.number
    out: Positions = {}
    for tp, span in spans.items():
        time = edge.each[tp.topic][tp.partition] if edge.kind == "times" else at
        found = log.topic_handle(tp.topic).offset_for_time(tp.partition, time)
        if found is None and _needs_match(options, edge):
            raise InvalidRequestError(
                f"{edge.option}: {tp.topic}-{tp.partition} has no record at or after {time}.",
                "Give an earlier time, or set startingOffsetsByTimestampStrategy=latest.",
            )
        out[tp] = span.end if found is None else found
    return out


def _needs_match(options: SourceOptions, edge: OffsetBound) -> bool:
    # Nobody asks for the last ten minutes to be told that they were quiet.
    starts = edge.option.startswith("starting")
    return starts and edge.kind != "ago" and options.at_no_match == "error"
