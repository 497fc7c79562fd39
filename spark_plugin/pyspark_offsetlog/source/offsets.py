"""The offsets of a streaming query, as they lie in Spark's checkpoint.

``{"orders": {"0": 142, "1": 89}, "@group": "billing", "@reset": 3, "@from": {"orders": {"0": 7}},
"@checkpoint": "5c5bd0..."}``

Invariants:

1. What a batch reads follows from its two offsets alone: a batch that is run again reads the
   same rows, whatever was reset or appended since.
2. ``@from`` is where the batch that *ends* at this offset begins, for the partitions that do
   not go on where the last batch ended: those that were reset, those that are new, those whose
   records are gone, and all of them in a query's first batch. Spark asks anew where the query
   starts when that one is run again, and options and log may be others by then.
3. Equal offsets are equal JSON: topics and partitions are in order.
4. ``@checkpoint`` is an id that a query with a group gives to its checkpoint, and finds in it when
   it goes on: so its group knows it from other queries. It says nothing about what is read.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from itertools import groupby
from math import inf
from typing import Any, NamedTuple

from offsetlog.core.decode import (
    Decoder,
    Malformed,
    default,
    from_value,
    integer,
    map_of,
    nullable,
    plain,
    record,
    string,
)
from offsetlog.core.topic.plan import tiling_fault
from offsetlog.errors import CorruptLogError, InvalidRequestError, OffsetLogError
from offsetlog.values import MAX_OFFSET, TopicPartition

GROUP, RESET, FROM, CHECKPOINT = "@group", "@reset", "@from", "@checkpoint"
_KNOWN = frozenset((GROUP, RESET, FROM, CHECKPOINT))
Positions = dict[TopicPartition, int]


class QueryOffset(NamedTuple):
    at: Positions
    group: str | None = None
    reset: int | None = None
    moved: Positions = {}  # noqa: RUF012 - never changed
    checkpoint: str | None = None

    def to_json(self) -> dict[str, Any]:
        out: dict[str, Any] = nested(self.at)
        if self.group is not None:
            out[GROUP] = self.group
            out[RESET] = self.reset
        if self.moved:
            out[FROM] = nested(self.moved)
        if self.checkpoint is not None:
            out[CHECKPOINT] = self.checkpoint
        return out


def parse(raw: object) -> QueryOffset:
    """An offset as Spark hands it back; what is not one of ours is an error."""
    try:
        data = from_value(plain, raw, "offset")
        for key in data.keys() - _KNOWN:
            if key.startswith("@"):
                # A newer version's: passed over, a batch might read other rows than it did.
                raise CorruptLogError(f"{key[:60]!r} is not known to this version.")
        group, reset, moved, checkpoint = from_value(_BESIDE, data, "offset")
        return QueryOffset(
            from_value(_positions, {k: v for k, v in data.items() if k[:1] != "@"}, "offset"),
            group,
            reset,
            moved,
            checkpoint,
        )
    except CorruptLogError as error:
        raise InvalidRequestError(
            f"The checkpoint holds an offset that offsetlog did not write: {error.message}",
            "Give the query a checkpointLocation of its own.",
        ) from None


def _partition(text: object) -> int:
    if not isinstance(text, str) or not re.fullmatch(r"0|[1-9][0-9]{0,8}", text, re.ASCII):
        raise Malformed("it is not a partition")
    return int(text)


_NESTED = map_of(map_of(integer(0, MAX_OFFSET), key=_partition), key=string(inf))


def _positions(value: object) -> Positions:
    return {
        TopicPartition(topic, partition): offset
        for topic, inner in _NESTED(value).items()
        for partition, offset in inner.items()
    }


_BESIDE: Decoder[tuple[str | None, int | None, Positions, str | None]] = record(
    lambda *values: values,
    **{
        GROUP: nullable(string()),
        RESET: nullable(integer()),
        FROM: default(_positions, Positions()),
        CHECKPOINT: nullable(string()),
    },
)


def nested(positions: Mapping[TopicPartition, int]) -> dict[str, Any]:
    out: dict[str, Any] = {}
    for (topic, partition), offset in sorted(positions.items()):
        out.setdefault(topic, {})[str(partition)] = offset
    return out


def begin_of(start: QueryOffset, end: QueryOffset, tp: TopicPartition) -> int | None:
    """Where the batch from ``start`` to ``end`` begins to read a partition; None: nobody said,
    so at the log's start."""
    return end.moved.get(tp, start.at.get(tp))


class OffsetRange(NamedTuple):
    """Records of one partition that one task reads."""

    topic: str
    partition: int
    start: int
    end: int

    @property
    def size(self) -> int:
        return self.end - self.start


def split_ranges(
    ranges: Iterable[OffsetRange], min_partitions: int | None, max_records: int | None
) -> list[OffsetRange]:
    """One range for each partition, or more of them where the user asks for it."""
    asked = [r for r in ranges if r.size > 0]
    out = _split(asked, min_partitions, max_records)
    check_tiling(asked, out)
    return out


def check_tiling(asked: Iterable[OffsetRange], sent: Iterable[OffsetRange]) -> None:
    """Refuse to read anything else than all offsets that were asked for, each of them once."""
    shares: dict[TopicPartition, list[tuple[int, int]]] = {}
    for r in sorted(sent):
        shares.setdefault(TopicPartition(r.topic, r.partition), []).append((r.start, r.end))
    for tp, group in groupby(sorted(asked), lambda r: TopicPartition(r.topic, r.partition)):
        mine = shares.pop(tp, [])
        for r in group:
            taken = [share for share in mine if share[0] < r.end]
            mine = mine[len(taken) :]
            fault = tiling_fault(r.start, r.end, taken)
            if fault is not None:
                raise not_covered(r, fault)
        if mine:
            shares[tp] = mine
    for (topic, partition), [(start, end), *_] in shares.items():
        r = OffsetRange(topic, partition, start, end)
        raise not_covered(r, "nobody asked for them")


def not_covered(r: OffsetRange, fault: str) -> OffsetLogError:
    return OffsetLogError(
        f"Offsets {r.start} to {r.end} of {r.topic}-{r.partition} can't be shared out: {fault}.",
        "Nothing was read. Run 'offsetlog verify' on the topic; if that is sound, report this.",
    )


def _split(
    out: list[OffsetRange], min_partitions: int | None, max_records: int | None
) -> list[OffsetRange]:
    if max_records is not None:
        out = [piece for r in out for piece in _cut(r, -(-r.size // max_records))]
    if min_partitions is None or len(out) >= min_partitions:
        return out
    total = sum(r.size for r in out)
    small = [r for r in out if _parts(r.size, total, min_partitions) == 1]
    rest_total = total - sum(r.size for r in small)
    rest = max(1, min_partitions - len(small))
    whole = set(small)
    return [
        piece
        for r in out
        for piece in ([r] if r in whole else _cut(r, _parts(r.size, rest_total, rest)))
    ]


def _parts(size: int, total: int, wanted: int) -> int:
    # Halves are rounded up, as Java does.
    return max(1, (2 * size * wanted + total) // (2 * total))


def _cut(r: OffsetRange, parts: int) -> list[OffsetRange]:
    out, at = [], r.start
    for left in range(parts, 0, -1):
        end = min(r.end, at + max(1, (r.end - at) // left))
        if at < end:
            out.append(r._replace(start=at, end=end))
        at = end
    return out
