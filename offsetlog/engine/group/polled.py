"""What a consumer polled of each partition, and under which reset of its group.

Invariants:

1. Following a reset closes what was polled until then: a commit of it is no progress, for the
   group was put elsewhere since. What is polled again after that is progress.
2. It outlives the loss of a partition: a consumer that gets it back still knows what it polled
   before.
3. Bounded: of each partition at most ``MAX_RANGES`` ranges are known on each side of the reset;
   beyond that the two that lie nearest to each other count as one.
"""

from __future__ import annotations

from collections.abc import Iterable

from offsetlog.values import TopicPartition

MAX_RANGES = 64
OffsetRange = tuple[int, int]
"""The first offset that was polled, and the one after the last."""


class _Polled:
    """One partition."""

    def __init__(self) -> None:
        self.reset = self.reset_before = 0
        self.since: list[OffsetRange] = []
        self.before: list[OffsetRange] = []


class PolledRanges:
    def __init__(self) -> None:
        self._partitions: dict[TopicPartition, _Polled] = {}

    def add(self, tp: TopicPartition, first: int, after: int) -> None:
        polled = self._partitions.setdefault(tp, _Polled())
        if polled.since and polled.since[-1][0] <= first <= polled.since[-1][1]:
            low, high = polled.since.pop()
            polled.since.append((low, max(high, after)))
        else:
            polled.since = _merge([*polled.since, (first, after)])

    def follow(self, partitions: Iterable[TopicPartition], reset: int) -> None:
        """These were reset, and ``reset`` is the number that is followed from now on."""
        for tp in partitions:
            polled = self._partitions.setdefault(tp, _Polled())
            if polled.reset == reset:
                continue
            polled.before = _merge([*polled.before, *polled.since])
            polled.reset_before = polled.reset
            polled.reset, polled.since = reset, []

    def followed(self, tp: TopicPartition) -> int:
        """The last reset of the partition that was followed; 0: none."""
        polled = self._partitions.get(tp)
        return 0 if polled is None else polled.reset

    def number_before(self, tp: TopicPartition, offset: int) -> int | None:
        """The reset under which this position was polled; None unless it was before the last
        one that was followed."""
        polled = self._partitions.get(tp)
        if polled is None or _within(polled.since, offset) or not _within(polled.before, offset):
            return None
        return polled.reset_before


def _within(ranges: list[OffsetRange], offset: int) -> bool:
    return any(low <= offset <= high for low, high in ranges)


def _merge(ranges: list[OffsetRange]) -> list[OffsetRange]:
    """The same offsets in a bounded number of disjoint ranges; the last one stays the last."""
    last = ranges[-1] if ranges else None
    merged: list[OffsetRange] = []
    for low, high in sorted(ranges):
        if merged and low <= merged[-1][1]:
            merged[-1] = (merged[-1][0], max(merged[-1][1], high))
        else:
            merged.append((low, high))
    while len(merged) > MAX_RANGES:
        gap = min(range(1, len(merged)), key=lambda n: merged[n][0] - merged[n - 1][1])
        merged[gap - 1 : gap + 1] = [(merged[gap - 1][0], merged[gap][1])]
    if last is not None:
        newest = next(r for r in merged if r[0] <= last[0] and last[1] <= r[1])
        merged.remove(newest)
        merged.append(newest)
    return merged
