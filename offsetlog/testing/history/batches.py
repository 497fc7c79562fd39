"""Micro-batches: each exactly once, and all of it at once.

Rules of this module:

1. A batch is known by its key (app, number). It may be sent any number of times, also with
   other contents (a re-run splits its rows otherwise): the contents of one attempt are there.
2. Once one of its records is there, all are, unless a trim may have taken them.
3. In one look at the ends of a topic a batch is there as a whole, or not at all.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections.abc import Iterable
from typing import NamedTuple

from offsetlog.testing.history.evidence import NOWHERE, OK, Attempt, Evidence
from offsetlog.testing.history.faults import Found, Kind


class _Placed(NamedTuple):
    """A batch and those of its values that are there."""

    name: str
    by: Attempt
    rows: array[int]


def judge(e: Evidence, found: Found, complete: bool, may_vanish: set[int]) -> None:
    taken = [e.trimmed(tp) for tp in range(len(e.partitions))]

    def may_be_gone(row: int) -> bool:
        tp, offset = e.home[row], e.acked[row]
        trimmed = taken[tp] > 0 if offset == NOWHERE else offset < taken[tp]
        return trimmed or tp in may_vanish

    placed: list[_Placed] = []
    for (app, number), attempts in e.batches.items():
        name = f"batch {number} of {app!r}"
        rows = dict.fromkeys(row for attempt in attempts for row in attempt.values)
        read = {row for row in rows if e.read[row] != NOWHERE}
        if read:
            fits = [attempt for attempt in attempts if read.issubset(attempt.values)]
            if not fits:
                says = f"{name} is there more than once: records of several attempts were read"
                found.add(Kind.BATCH_NOT_ONCE, says, [a.by for a in attempts])
                continue
            lacks = [[r for r in a.values if r not in read and not may_be_gone(r)] for a in fits]
            least = min(range(len(fits)), key=lambda i: len(lacks[i]))
            if complete and lacks[least]:
                _in_part(e, found, name, fits[least], read, lacks[least])
            placed.append(_Placed(name, fits[least], fits[least].values))
        elif any(a.state == OK and a.values for a in attempts):
            if complete and not any(may_be_gone(row) for row in rows):
                says = f"{name} was acknowledged, and nobody ever read a record of it"
                found.add(Kind.BATCH_NOT_ONCE, says, [a.by for a in attempts])
            sure = next(a for a in attempts if a.state == OK)
            placed.append(_Placed(name, sure, sure.values))
    _looks(e, found, placed)


def _in_part(
    e: Evidence, found: Found, name: str, attempt: Attempt, read: set[int], lacks: list[int]
) -> None:
    where = ", ".join(sorted({e.partitions[e.home[row]] for row in lacks}))
    found.add(
        Kind.BATCH_IN_PART,
        f"of {name} {len(read)} records were read, and {len(lacks)} never were ({where})",
        (attempt.by, e.read_ref(next(iter(read)))),
    )


# --- one look at several ends --------------------------------------------------------------

_Span = tuple[int, int, int]


def _looks(e: Evidence, found: Found, placed: list[_Placed]) -> None:
    """Is there a batch with a record below the end of one partition and another at or above
    the end of another, in one look?"""
    if not e.looks:
        return
    pairs: dict[tuple[int, int], list[_Span]] = {}
    for number, batch in enumerate(placed):
        low, high = _extremes(e, batch.rows)
        for out in high:
            for inside in low:
                if _topic(e, out) == _topic(e, inside):
                    span = (high[out], low[inside], number)
                    pairs.setdefault((out, inside), []).append(span)
    for (out, inside), spans in pairs.items():
        _look_at_pair(e, found, placed, out, inside, sorted(spans))


def _extremes(e: Evidence, rows: Iterable[int]) -> tuple[dict[int, int], dict[int, int]]:
    low: dict[int, int] = {}
    high: dict[int, int] = {}
    for row in rows:
        place = e.place(row)
        if place is not None:
            tp, offset = place
            low[tp] = min(low.get(tp, offset), offset)
            high[tp] = max(high.get(tp, offset), offset)
    return low, high


def _look_at_pair(
    e: Evidence, found: Found, placed: list[_Placed], out: int, inside: int, spans: list[_Span]
) -> None:
    # From the right: of all batches that end at or above this place of ``out``, the one that
    # begins lowest in ``inside``.
    highs = [high for high, _, _ in spans]
    lowest: list[tuple[int, int]] = [(2**63, NOWHERE)] * (len(spans) + 1)
    for i in range(len(spans) - 1, -1, -1):
        lowest[i] = min(lowest[i + 1], spans[i][1:])
    for look in e.looks:
        ends = dict(look.ends)
        if out not in ends or inside not in ends:
            continue
        low, number = lowest[bisect_left(highs, ends[out])]
        if low < ends[inside]:
            batch = placed[number]
            found.add(
                Kind.BATCH_IN_PART,
                f"{batch.name} was there in {e.partitions[inside]} (end {ends[inside]}) and not "
                f"all there in {e.partitions[out]} (end {ends[out]}), in one look",
                (batch.by.by, look.seen),
            )


def _topic(e: Evidence, tp: int) -> str:
    return e.partitions[tp].rpartition("/")[0]
