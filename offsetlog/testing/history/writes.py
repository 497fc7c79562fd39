"""Of what was sent: lost, aborted, duplicated, out of order, one offset with two values.

Rules of this module:

1. A value whose outcome is unknown may be there or not; where it is, its place counts.
2. Lost is what lies below records that were read; unseen is what lies above all of them.
3. What may have been trimmed, or compacted, is not missed.
"""

from __future__ import annotations

from offsetlog.testing.history.evidence import FAILED, NEVER, NOWHERE, OK, UNSENT, Evidence
from offsetlog.testing.history.faults import Found, Kind, Ref


def judge(e: Evidence, found: Found, complete: bool, real_time: bool, may_vanish: set[int]) -> None:
    names = _Names(e)
    _clashes(e, found, names)
    _moved(e, found, names)
    _aborted(e, found, names, real_time)
    for tp, places in enumerate(e.places):
        # A value that was met at two places is told of above, and judged at one of them here.
        order = sorted((o, row) for o, row in places.items() if e.place(row) == (tp, o))
        _program_order(e, found, names, tp, order)
        if real_time:
            _real_order(e, found, names, tp, order)
    if complete:
        _missing(e, found, names, may_vanish)


class _Names:
    """Values by row, looked up only when there is something to tell."""

    def __init__(self, e: Evidence) -> None:
        self._e = e
        self._all: list[str | int] | None = None

    def __call__(self, row: int) -> str:
        if self._all is None:
            self._all = list(self._e.ids)
        return repr(self._all[row])


def _clashes(e: Evidence, found: Found, names: _Names) -> None:
    told: set[tuple[int, int, int]] = set()
    for tp, offset, row, seen in e.clashes:
        if (tp, offset, row) in told:
            continue
        told.add((tp, offset, row))
        first = e.places[tp][offset]
        found.add(
            Kind.INCONSISTENT_OFFSETS,
            f"{e.partitions[tp]} has {names(first)} and {names(row)} at offset {offset}",
            (e.sent_ref(first), e.sent_ref(row), e.read_ref(first), seen),
        )


def _moved(e: Evidence, found: Found, names: _Names) -> None:
    told: set[tuple[int, int, int]] = set()
    for row, tp, offset, seen in e.moved:
        if (row, tp, offset) in told:
            continue
        told.add((row, tp, offset))
        other_tp, other = (
            (e.home[row], e.acked[row])
            if (e.read_tp[row], e.read[row]) in ((tp, offset), (NOWHERE, NOWHERE))
            else (e.read_tp[row], e.read[row])
        )
        kind = Kind.BATCH_NOT_ONCE if e.keyed[row] else Kind.DUPLICATE
        found.add(
            kind,
            f"{names(row)} is at {e.partitions[other_tp]} offset {other} and at "
            f"{e.partitions[tp]} offset {offset}",
            (e.sent_ref(row), e.read_ref(row), seen),
        )


def _aborted(e: Evidence, found: Found, names: _Names, real_time: bool) -> None:
    for row in range(len(e.ids)):
        if e.read[row] == NOWHERE:
            continue
        state = e.state[row]
        if state == UNSENT:
            says = f"{names(row)} was read, and nobody ever sent it"
        elif state == FAILED:
            says = f"{names(row)} was read, and its send had failed for certain"
        elif e.read_tp[row] != e.home[row]:
            says = (
                f"{names(row)} was sent to {e.partitions[e.home[row]]} and read from "
                f"{e.partitions[e.read_tp[row]]}"
            )
        elif real_time and e.read_at[row] < e.sent[row]:
            says = f"{names(row)} was read before anybody had begun to send it"
        else:
            continue
        found.add(Kind.ABORTED_READ, says, (e.sent_ref(row), e.read_ref(row)))


def _program_order(
    e: Evidence, found: Found, names: _Names, tp: int, order: list[tuple[int, int]]
) -> None:
    """What one sender sent later lies later."""
    latest: dict[tuple[int, int], tuple[int, int, int]] = {}
    for offset, row in order:
        rank = e.rank[row]
        if rank == NOWHERE or e.home[row] != tp:
            continue
        # Turns are counted by process: a sender's name that two of them use means nothing.
        sender = (e.sent_by[row], e.sender[row])
        before = latest.get(sender)
        if before is None or rank > before[0]:
            latest[sender] = (rank, row, offset)
            continue
        later, its_offset = before[1], before[2]
        both = e.state[row] == OK == e.state[later] and offset == e.acked[row]
        acked_first = both and e.sent_n[row] != e.sent_n[later] and e.known[row] < e.sent[later]
        kind = Kind.NON_MONOTONIC_SEND if acked_first else Kind.WRITE_OUT_OF_ORDER
        found.add(
            kind,
            f"{e.senders[sender[1]]} sent {names(row)} before {names(later)}, but they lie at "
            f"offsets {offset} and {its_offset} of {e.partitions[tp]}",
            (e.sent_ref(row), e.sent_ref(later)),
        )


def _real_order(
    e: Evidence, found: Found, names: _Names, tp: int, order: list[tuple[int, int]]
) -> None:
    """What was sent when a record was known to be there lies above that record."""
    earliest, there, its_offset = NEVER, NOWHERE, NOWHERE
    for offset, row in reversed(order):
        if earliest < e.sent[row] < NEVER and e.sent_by[row] != e.sent_by[there]:
            found.add(
                Kind.WRITE_OUT_OF_ORDER,
                f"{names(there)} was known to be at {e.partitions[tp]} offset {its_offset} when "
                f"{names(row)} was sent, which lies below it, at {offset}",
                (e.sent_ref(there), e.read_ref(there), e.sent_ref(row)),
            )
        if e.known[row] < earliest:
            earliest, there, its_offset = e.known[row], row, offset


def _missing(e: Evidence, found: Found, names: _Names, may_vanish: set[int]) -> None:
    highest = [-1] * len(e.partitions)
    for row in range(len(e.ids)):
        if e.read[row] > highest[e.read_tp[row]] and e.read_tp[row] != NOWHERE:
            highest[e.read_tp[row]] = e.read[row]
    taken = [e.trimmed(tp) for tp in range(len(e.partitions))]
    for row, state in enumerate(e.state):
        if state != OK or e.read[row] != NOWHERE:
            continue
        tp, offset = e.home[row], e.acked[row]
        if tp in may_vanish or offset < taken[tp]:
            continue
        where = f"{e.partitions[tp]} offset {offset}"
        if e.keyed[row]:
            continue  # ``batches`` tells of the whole.
        if offset <= highest[tp]:
            says = (
                f"{names(row)} was acknowledged at {where}; nobody ever read it, though "
                f"the partition was read up to {highest[tp]}"
            )
            found.add(Kind.LOST_WRITE, says, (e.sent_ref(row), _reader_of(e, tp, offset)))
        else:
            says = f"{names(row)} was acknowledged at {where}; at the end nobody had read it"
            found.add(Kind.UNSEEN, says, (e.sent_ref(row),))


def _reader_of(e: Evidence, tp: int, offset: int) -> Ref | None:
    row = e.places[tp].get(offset)
    return None if row is None else e.read_ref(row)
