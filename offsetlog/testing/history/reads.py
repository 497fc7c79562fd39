"""Of what was read: skips, steps back, orders within a poll, and log ends that lag.

Rules of this module:

1. A reader goes on where it was, unless it was told otherwise: by a seek, an assignment, a
   reset of its group (each reset moves a reader once), or a log start that passed it.
2. A log end offset is above every record that was known before the question.
"""

from __future__ import annotations

from bisect import bisect_left

from offsetlog.testing.history.evidence import NEVER, Evidence, Jump, Write
from offsetlog.testing.history.faults import Found, Kind, Ref


def judge(e: Evidence, found: Found, real_time: bool, may_vanish: set[int]) -> None:
    used: set[tuple[str, str, Write]] = set()
    for jump in e.jumps:
        if not _allowed(e, jump, may_vanish) and not _by_reset(e, jump, used):
            _tell(e, found, jump)
    if real_time:
        _stale_ends(e, found)


def _allowed(e: Evidence, jump: Jump, may_vanish: set[int]) -> bool:
    """Is the jump explained without a reset?"""
    if jump.got < jump.expected:
        return jump.sought  # A seek beyond the end: the consumer's policy chose the place.
    return jump.tp in may_vanish or jump.got <= e.trimmed(jump.tp, jump.ended)


def _by_reset(e: Evidence, jump: Jump, used: set[tuple[str, str, Write]]) -> bool:
    """Was this reader moved there by a reset that it had not followed yet?"""
    if jump.group is None or jump.inside:
        return False
    resets = [
        reset
        for reset in e.writes.get((jump.group, jump.tp), ())
        if reset.is_reset and reset.began < jump.ended and _fits(e, jump, reset)
    ]
    # One that names the very place first: one that names none can explain another jump.
    for reset in sorted(resets, key=lambda reset: (reset.value is None, reset.began)):
        key = (jump.reader.process, jump.consumer, reset)
        if key not in used:
            used.add(key)
            return True
    return False


def _fits(e: Evidence, jump: Jump, reset: Write) -> bool:
    if reset.value is None or reset.value == jump.got:
        return True
    return reset.value < jump.got <= e.trimmed(jump.tp, jump.ended)


def _tell(e: Evidence, found: Found, jump: Jump) -> None:
    where = f"{jump.reader.process}, reading {e.partitions[jump.tp]},"
    if jump.got < jump.expected:
        kind = Kind.READ_OUT_OF_ORDER if jump.inside else Kind.NON_MONOTONIC_POLL
        how = "within one poll" if jump.inside else "though nobody told it to"
        says = f"{where} went from offset {jump.expected - 1} to {jump.got} {how}"
        found.add(kind, says, (jump.reader,))
        return
    low = max(jump.expected, e.trimmed(jump.tp, jump.ended))
    row = e.places[jump.tp].get(low)
    sent = None if row is None else e.sent_ref(row)
    says = f"{where} passed over offsets {low} to {jump.got - 1}"
    found.add(Kind.POLL_SKIP, says, (sent, jump.reader))


def _stale_ends(e: Evidence, found: Found) -> None:
    for tp, places in enumerate(e.places):
        offsets = sorted(places)
        # From the right: who was known earliest among this offset and all above it.
        earliest: list[tuple[int, int]] = [(NEVER, -1)] * (len(offsets) + 1)
        asked = [(look, end) for look in e.looks for at, end in look.ends if at == tp]
        if not asked:
            continue
        for i in range(len(offsets) - 1, -1, -1):
            row = places[offsets[i]]
            earliest[i] = min(earliest[i + 1], (e.known[row], row))
        for look, end in asked:
            known, row = earliest[bisect_left(offsets, end)]
            if known < look.began:
                place = e.place(row)
                offset = place[1] if place else end
                found.add(
                    Kind.STALE_END,
                    f"{e.partitions[tp]} was said to end at {end} when offset {offset} was "
                    "known to be there",
                    _refs(e.sent_ref(row), e.read_ref(row), look.seen),
                )


def _refs(*refs: Ref | None) -> tuple[Ref, ...]:
    return tuple(ref for ref in refs if ref is not None)
