"""What must be true of a folded state, shared by ``verify``, the tests and the simulation.

Each function yields faults as sentences; nothing is repaired.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from offsetlog.core.topic.extents import Extent
from offsetlog.core.topic.state import TopicState


def tiling_faults(partition: int, start: int, end: int, extents: Iterable[Extent]) -> Iterator[str]:
    """Do the extents of a partition tile [start, end), each with a count that fits."""
    at: int | None = None
    for extent in extents:
        where = f"partition {partition}, offsets {extent.base} to {extent.end}"
        if extent.partition != partition:
            yield f"{where}: the extent belongs to partition {extent.partition}"
        if at is None:
            if extent.base > start:
                yield f"partition {partition}: nothing holds offsets {start} to {extent.base}"
        elif extent.base != at:
            yield f"{where}: the extent before it ends at {at}"
        if extent.end <= extent.base:
            yield f"{where}: the extent is empty"
        dense = extent.records == extent.end - extent.base
        if not dense and not (extent.rewritten and 0 <= extent.records < extent.end - extent.base):
            yield f"{where}: the extent counts {extent.records} records"
        at = extent.end
    if (at is None and start != end) or (at is not None and at != end):
        yield f"partition {partition}: ends at {at}, but the log end offset is {end}"


def state_faults(state: TopicState) -> Iterator[str]:
    """Is a state possible at all."""
    for partition, part in enumerate(state.parts):
        if not 0 <= part.start <= part.end:
            yield f"partition {partition}: log start {part.start}, log end {part.end}"
        if not state.alive and part.start != part.end:
            yield f"partition {partition}: holds records of a deleted topic"
    if state.partitions > len(state.parts):
        yield f"{state.partitions} partitions, but {len(state.parts)} are known"
    if max(state.horizon, state.floor, state.head + 1, state.collected_at + 1) > state.tip:
        yield f"horizon {state.horizon}, floor {state.floor}, tip {state.tip}"
