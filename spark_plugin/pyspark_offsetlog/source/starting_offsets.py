"""Where a query starts and where a batch ends: from what was asked for to offsets.

Invariants:

1. Each partition that is read gets an offset that the log has, or the query fails and says
   what is there.
2. Offsets as JSON name exactly the partitions that are read: one too few or too many is an
   error.
3. A time stands for the first record at or after it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Set

from offsetlog.client.log import Log
from offsetlog.core.group.reset import OffsetSpan
from offsetlog.core.group.starting_offset import starting_offset
from offsetlog.errors import InvalidRequestError, OffsetOutOfRangeError
from offsetlog.values import TopicPartition, held_offsets
from pyspark_offsetlog.options.parse import EARLIEST_OFFSET, LATEST_OFFSET, OffsetBound
from pyspark_offsetlog.options.spec import SourceOptions
from pyspark_offsetlog.source.next_batch import Look
from pyspark_offsetlog.source.offsets import Positions
from pyspark_offsetlog.source.subscription import SubscribedTopics

Lost = Callable[[str], None]
"""Told when records that were asked for are gone: raises, or passes with a warning."""
SHOWN = 5


def resolve(
    log: Log,
    options: SourceOptions,
    bound: OffsetBound,
    topics: SubscribedTopics,
    look: Look,
    lost: Lost,
) -> tuple[Positions, Look]:
    """The offset of each partition that ``bound`` stands for, and the look with all of them in
    sight."""
    spans = look.spans
    match bound.kind:
        case "earliest":
            return {tp: span.start for tp, span in spans.items()}, look
        case "latest":
            return {tp: span.end for tp, span in spans.items()}, look
        case "before":
            n = bound.number
            return {tp: max(span.start, span.end - n) for tp, span in spans.items()}, look
        case "offsets":
            _check_partitions(bound, spans.keys())
            return {tp: _explicit(bound, tp, span, lost) for tp, span in spans.items()}, look
        case "group":
            return _committed(log, options, topics, look, lost)
        case _:
            return _by_time(log, options, bound, spans), look


def _check_partitions(bound: OffsetBound, partitions: Set[TopicPartition]) -> None:
    named = {TopicPartition(topic, p) for topic, each in bound.each.items() for p in each}
    if named == partitions:
        return
    faults = []
    missing, extra = partitions - named, named - partitions
    for text, which in (("leaves out", missing), ("names too many:", extra)):
        if which:
            names = [f"{topic}-{partition}" for topic, partition in sorted(which)]
            more = f" and {len(names) - SHOWN} more" if len(names) > SHOWN else ""
            faults.append(f"{text} {', '.join(names[:SHOWN])}{more}")
    raise InvalidRequestError(
        f"{bound.option} {' and '.join(faults)}.",
        "Name each partition that is read; -2 stands for earliest and -1 for latest.",
    )


def _explicit(bound: OffsetBound, tp: TopicPartition, span: OffsetSpan, lost: Lost) -> int:
    offset = bound.each[tp.topic][tp.partition]
    if offset == EARLIEST_OFFSET:
        return span.start
    if offset == LATEST_OFFSET:
        return span.end
    if offset > span.end:
        raise OffsetOutOfRangeError(
            f"{bound.option} is {offset} for {tp.topic}-{tp.partition}, which is beyond its end.",
            held_offsets(span.start, span.end),
        )
    if offset < span.start:
        lost(
            f"{bound.option} is {offset} for {tp.topic}-{tp.partition}, which now starts at "
            f"{span.start}: the records before that are gone."
        )
        return span.start
    return offset


def _committed(
    log: Log, options: SourceOptions, topics: SubscribedTopics, look: Look, lost: Lost
) -> tuple[Positions, Look]:
    """A position that the log has not means lost records; the reset policy is for none at all."""
    assert options.group is not None
    positions = log.offsets_table.look().group(options.group).positions
    # The group was seen after the topics, and may be read by others: what it stands at may have
    # come since.
    committed = {tp: positions[tp].offset for tp in look.spans if tp in positions}
    old = {tp.topic for tp, offset in committed.items() if not look.reaches(tp, offset)}
    look = topics.look_for(topics.look_again(look, old), committed)
    starts: Positions = {}
    for tp, span in look.spans.items():
        offset = committed.get(tp)
        if offset is not None and not span.start <= offset <= span.end:
            lost(
                f"The group {options.group!r} stands at {offset} of {tp.topic}-"
                f"{tp.partition}, which holds {span.start} to {span.end} now."
            )
            starts[tp] = span.start
            continue
        starts[tp] = starting_offset(options.group, tp, offset, span, options.reset_policy).offset
    return starts, look


def _by_time(
    log: Log, options: SourceOptions, bound: OffsetBound, spans: Mapping[TopicPartition, OffsetSpan]
) -> Positions:
    if bound.kind == "times":
        _check_partitions(bound, spans.keys())
    common = log.env.now_ms() - bound.number if bound.kind == "ago" else bound.number
    starts: Positions = {}
    for tp, span in spans.items():
        time = bound.each[tp.topic][tp.partition] if bound.kind == "times" else common
        offset = log.open_topic(tp.topic).offset_for_time(tp.partition, time)
        if offset is None and _needs_match(options, bound):
            raise InvalidRequestError(
                f"{bound.option}: {tp.topic}-{tp.partition} has no record at or after {time}.",
                "Give an earlier time, or set startingOffsetsByTimestampStrategy=latest.",
            )
        starts[tp] = span.end if offset is None else offset
    return starts


def _needs_match(options: SourceOptions, bound: OffsetBound) -> bool:
    # Nobody asks for the last ten minutes to be told that they were quiet.
    starts = bound.option.startswith("starting")
    return starts and bound.kind != "ago" and options.at_no_match == "error"
