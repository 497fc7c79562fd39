"""Groups: who owned a partition, and what its committed offset may have been.

Rules of this module:

1. A committed offset is explained by a commit or reset that had begun by then, did not fail,
   and was not certainly overwritten: by a write that began after it was over and was over
   before the look. A commit does not overwrite a reset for certain, since progress from
   before a reset is dropped in silence.
2. A commit that succeeded proves that its member owned the partition at some moment of it. Who
   was put out owns it again only after a new assignment.
3. Beliefs prove nothing while members may be put out as they stand still.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right

from offsetlog.testing.history.evidence import NEVER, Evidence, GroupPartition, Hold, Seen, Write
from offsetlog.testing.history.faults import Found, Kind


def judge(e: Evidence, found: Found, real_time: bool, expulsions: bool) -> None:
    if not real_time:
        return
    for key, seen in e.seen.items():
        _Register(e, key).judge(seen, found)
    for key, holds in e.holds.items():
        _commits(e, found, key, holds)
        if not expulsions:
            _overlaps(e, found, key, holds)


def _name(e: Evidence, key: GroupPartition) -> str:
    return f"{e.partitions[key[1]]} of group {key[0]!r}"


class _Register:
    """The writes to one committed offset."""

    def __init__(self, e: Evidence, key: GroupPartition) -> None:
        self._name = _name(e, key)
        writes = e.writes.get(key, [])
        done = sorted((w for w in writes if w.ended != NEVER), key=lambda w: w.began)
        self._any = _Overwriting(done)
        self._resets = _Overwriting([w for w in done if w.is_reset])
        self._by_value: dict[int | None, list[Write]] = {}
        for write in writes:
            self._by_value.setdefault(write.value, []).append(write)

    def judge(self, seen: list[Seen], found: Found) -> None:
        for look in seen:
            told = self._by_value.get(look.value, [])
            if any(self._explains(write, look) for write in told):
                continue
            over = self._any.over(-1)
            if look.value is None and over >= look.began:
                continue
            what = "nothing" if look.value is None else f"offset {look.value}"
            if not told:
                why = "which nobody committed and no reset chose"
                if look.value is None:
                    why = "though something was committed and never taken away"
            elif all(write.began > look.ended for write in told):
                why = "before anybody had begun to commit that"
            else:
                why = "which had been overwritten before the question"
            refs = [write.by for write in told[:2]]
            if (last := self._any.last_before(look.began)) is not None:
                refs.append(last.by)
            says = f"{self._name} was seen to have {what} committed, {why}"
            found.add(Kind.COMMITTED_MOVED, says, (*refs, look.by))

    def _explains(self, write: Write, look: Seen) -> bool:
        if write.began > look.ended:
            return False
        if write.ended == NEVER:
            return True
        overwriting = self._resets if write.is_reset else self._any
        return overwriting.over(write.ended) >= look.began


class _Overwriting:
    """Of writes by their beginning: when was the first of those after a moment over?"""

    def __init__(self, writes: list[Write]) -> None:
        self._writes = writes
        self._began = [write.began for write in writes]
        self._first = [NEVER] * (len(writes) + 1)
        for i in range(len(writes) - 1, -1, -1):
            self._first[i] = min(self._first[i + 1], writes[i].ended)

    def over(self, moment: int) -> int:
        return self._first[bisect_right(self._began, moment)]

    def last_before(self, moment: int) -> Write | None:
        at = bisect_left(self._began, moment)
        return self._writes[at - 1] if at else None


# --- owners --------------------------------------------------------------------------------


def _commits(e: Evidence, found: Found, key: GroupPartition, holds: list[Hold]) -> None:
    """Two members whose commits succeeded in turn, without the assignment that lies between."""
    taken: dict[str, list[int]] = {}
    gave: dict[str, list[int]] = {}
    for hold in holds:
        taken.setdefault(hold.by.process, []).append(hold.began)
        if hold.how == "lost":
            gave.setdefault(hold.by.process, []).append(hold.ended)
    for times in (*taken.values(), *gave.values()):
        times.sort()
    done = [w for w in e.writes.get(key, ()) if not w.is_reset and w.ended != NEVER]
    # The commit of each member that began last among those that were over by now.
    over = sorted(done, key=lambda w: w.ended)
    latest: dict[str, Write] = {}
    at = 0
    for write in sorted(done, key=lambda w: w.began):
        while at < len(over) and over[at].ended < write.began:
            before = latest.get(over[at].by.process)
            if before is None or before.began < over[at].began:
                latest[over[at].by.process] = over[at]
            at += 1
        me = write.by.process
        if me not in taken:
            continue  # It assigned itself: no member of the group.
        mine = _last(taken[me], write.began)
        lost = _last(gave.get(me, []), write.began)
        if lost > mine:
            says = f"{me} committed {_name(e, key)} after it had been put out"
            found.add(Kind.DOUBLE_OWNER, says, (write.by,))
            continue
        rival = max(
            (w for process, w in latest.items() if process != me and process in taken),
            key=lambda w: w.began,
            default=None,
        )
        if rival is not None and rival.began > mine:
            says = (
                f"{rival.by.process} committed {_name(e, key)} while {me} owned it, whose own "
                "commits succeeded before and after"
            )
            found.add(Kind.DOUBLE_OWNER, says, (rival.by, write.by))


def _last(times: list[int], moment: int) -> int:
    at = bisect_left(times, moment)
    return times[at - 1] if at else -1


def _overlaps(e: Evidence, found: Found, key: GroupPartition, holds: list[Hold]) -> None:
    """Nobody was put out in this history, so a belief is a fact; the dead own nothing."""
    farthest: Hold | None = None
    for hold in sorted(holds, key=lambda h: h.began):
        if hold.how == "":
            continue
        if farthest is not None and hold.began < farthest.ended:
            says = f"{farthest.by.process} and {hold.by.process} both owned {_name(e, key)}"
            found.add(Kind.DOUBLE_OWNER, says, (farthest.by, hold.by))
        if farthest is None or hold.ended > farthest.ended:
            farthest = hold
