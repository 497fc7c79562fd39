"""What a consumer was given of each partition, and under which reset of its group.

Invariants:

1. A reset that is followed closes what was given until then: a commit of it is no progress, for
   the group was put elsewhere since. What was given again since then is progress.
2. It outlives the loss of a partition: who gets it back still knows what it read before.
3. Bounded: of each partition at most ``MOST_RANGES`` ranges are known on each side of the reset;
   beyond that the two that lie nearest to each other count as one.
"""

from __future__ import annotations

from collections.abc import Iterable

from offsetlog.values import TopicPartition

MOST_RANGES = 64
_Range = tuple[int, int]
"""The first offset that was given, and the one after the last."""


class _Given:
    """One partition."""

    def __init__(self) -> None:
        self.number = self.number_before = 0
        self.since: list[_Range] = []
        self.before: list[_Range] = []


class PolledRanges:
    def __init__(self) -> None:
        self._given: dict[TopicPartition, _Given] = {}

    def give(self, tp: TopicPartition, first: int, after: int) -> None:
        given = self._given.setdefault(tp, _Given())
        if given.since and given.since[-1][0] <= first <= given.since[-1][1]:
            low, high = given.since.pop()
            given.since.append((low, max(high, after)))
        else:
            given.since = _few([*given.since, (first, after)])

    def follow(self, partitions: Iterable[TopicPartition], number: int) -> None:
        """These were reset, and ``number`` is the reset that is followed from now on."""
        for tp in partitions:
            given = self._given.setdefault(tp, _Given())
            if given.number == number:
                continue
            given.before = _few([*given.before, *given.since])
            given.number_before = given.number
            given.number, given.since = number, []

    def number(self, tp: TopicPartition) -> int:
        """The last reset of the partition that was followed; 0: none."""
        given = self._given.get(tp)
        return 0 if given is None else given.number

    def number_of(self, tp: TopicPartition, offset: int) -> int | None:
        """The reset under which this position was given; None when it is not one from before
        the last that was followed."""
        given = self._given.get(tp)
        if given is None or _within(given.since, offset) or not _within(given.before, offset):
            return None
        return given.number_before


def _within(ranges: list[_Range], offset: int) -> bool:
    return any(low <= offset <= high for low, high in ranges)


def _few(ranges: list[_Range]) -> list[_Range]:
    """The same offsets in ranges that do not overlap; the last one given stays the last."""
    last = ranges[-1] if ranges else None
    out: list[_Range] = []
    for low, high in sorted(ranges):
        if out and low <= out[-1][1]:
            out[-1] = (out[-1][0], max(out[-1][1], high))
        else:
            out.append((low, high))
    while len(out) > MOST_RANGES:
        at = min(range(1, len(out)), key=lambda n: out[n][0] - out[n - 1][1])
        out[at - 1 : at + 1] = [(out[at - 1][0], out[at][1])]
    if last is not None:
        holds = next(found for found in out if found[0] <= last[0] and last[1] <= found[1])
        out.remove(holds)
        out.append(holds)
    return out
