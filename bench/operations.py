"""What is measured on a large log; and, as a program, the memory that all of it takes."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from typing import Any

from bench.large_log import PARTITIONS, TOPIC
from bench.memory import high_water_mb

Range = tuple[int, int]
Operation = Callable[[Any, Range, Range], None]


def cold_open(log: Any, planned: Range, wanted: Range) -> None:
    """Open the topic; every way to do so folds up to the tip."""
    if log.topic(TOPIC).partitions != PARTITIONS:
        raise RuntimeError("the topic was not opened")


def end_offsets(log: Any, planned: Range, wanted: Range) -> None:
    """The end offset of every partition."""
    if len(log.topic(TOPIC).end_offsets()) != PARTITIONS:
        raise RuntimeError("end offsets are missing")


def plan_100_segments(log: Any, planned: Range, wanted: Range) -> None:
    """Which files hold a range that spans a hundred segments of one partition."""
    handle = log.open_topic(TOPIC)
    handle.state()
    pieces = handle.reader.plan(0, *planned)
    if pieces[0].start != planned[0] or pieces[-1].end != planned[1]:
        raise RuntimeError("the plan does not cover the range")


def time_lookup(log: Any, planned: Range, wanted: Range) -> None:
    """The offset for a time in the middle of the log; it reads that one segment."""
    time, offset = wanted
    if log.topic(TOPIC).offsets_for_times({0: time}) != {0: offset}:
        raise RuntimeError("the lookup by time is wrong")


ALL: dict[str, Operation] = {
    "cold_open": cold_open,
    "end_offsets": end_offsets,
    "plan_100_segments": plan_100_segments,
    "time_lookup": time_lookup,
}


def main(url: str, *numbers: str) -> None:
    """Do all of it, and tell the most memory that it took."""
    import offsetlog

    first, end, time, offset = map(int, numbers)
    with offsetlog.open(url) as log:
        for operation in ALL.values():
            operation(log, (first, end), (time, offset))
    sys.stdout.write(json.dumps({"high_water_mb": high_water_mb()}) + "\n")


if __name__ == "__main__":
    main(*sys.argv[1:])
