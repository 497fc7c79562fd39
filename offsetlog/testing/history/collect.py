"""From events to evidence: one pass over each process's events.

1. Events of one process come in its own order; those of another process do not matter here.
2. An operation that has no end is settled as unknown when its process's events end.
3. A value that is sent twice without a batch's key makes a history that can't be judged.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Iterator
from itertools import groupby
from operator import attrgetter
from typing import TypeAlias

from offsetlog.errors import CorruptLogError
from offsetlog.testing.history.events import Event
from offsetlog.testing.history.evidence import (
    FAILED,
    NEVER,
    NOWHERE,
    OK,
    UNKNOWN,
    UNSENT,
    Attempt,
    Clash,
    Evidence,
    Hold,
    Jump,
    Look,
    Moved,
    Seen,
    Trim,
    Write,
)
from offsetlog.testing.history.faults import Ref

_STATES = {"ok": OK, "fail": FAILED, "unknown": UNKNOWN}
_ENDLESS = 2**62
"""A trim that nobody knows the target of may have taken everything."""

Rows: TypeAlias = "dict[str, array[int]]"


def collect(events: Iterable[Event]) -> Evidence:
    evidence = Evidence()
    for name, own in groupby(events, attrgetter("process")):
        if name in evidence.processes:
            raise CorruptLogError(f"Two histories are of a process called {name!r}.")
        evidence.processes.append(name)
        _Process(evidence, name, len(evidence.processes) - 1).run(own)
    return evidence


class _Process:
    """One process's events."""

    def __init__(self, evidence: Evidence, name: str, number: int) -> None:
        self._e = evidence
        self._name = name
        self._number = number
        self._rank = 0
        self._open: dict[int, tuple[Event, Rows]] = {}
        self._at: dict[tuple[str, int], tuple[int, bool]] = {}
        """Where each consumer goes on, and whether a seek said so."""
        self._held: dict[tuple[str, str, int], tuple[int, int]] = {}

    def run(self, events: Iterator[Event]) -> None:
        for event in events:
            try:
                self._one(event)
            except (KeyError, TypeError, AttributeError, ValueError) as error:
                raise CorruptLogError(
                    f"Operation {event.n} of {self._name} is not what an operation of its kind "
                    f"looks like ({type(error).__name__}).",
                    "See offsetlog.testing.history.events.",
                ) from None
        for begun, rows in list(self._open.values()):
            self._ended(begun, rows, Event(self._name, begun.n, NEVER, "unknown", "", None))
        for (group, _, tp), (began, n) in self._held.items():
            self._hold(group, tp, Hold(began, NEVER, "", Ref(self._name, n)))

    def _one(self, event: Event) -> None:
        if event.step == "do":
            self._open[event.n] = (event, self._sent(event) if event.kind == "send" else {})
        elif event.step == "did":
            self._did(event)
        else:
            begun, rows = self._open.pop(event.n)
            self._ended(begun, rows, event)

    def _ended(self, begun: Event, rows: Rows, event: Event) -> None:
        kind = begun.kind
        if kind == "send":
            self._answered(begun, rows, event)
        elif kind in ("commit", "reset"):
            if event.step != "fail":
                self._written(begun, event)
        elif kind == "trim":
            if event.step != "fail":
                for name, to in begun.what["starts"].items():
                    trim = Trim(begun.at, _ENDLESS if to is None else to)
                    self._e.trims.setdefault(self._e.tp(name), []).append(trim)
        elif event.step == "ok":
            if kind == "poll":
                self._polled(begun, event)
            elif kind == "ends":
                ends = tuple((self._e.tp(name), end) for name, end in event.what.items())
                self._e.looks.append(Look(begun.at, ends, Ref(self._name, begun.n)))
            else:
                self._saw_committed(begun, event)

    # --- records ---------------------------------------------------------------------------

    def _sent(self, event: Event) -> Rows:
        """Rows of the values of a send that begins."""
        e = self._e
        sender = e.sender_id(event.what.get("sender") or self._name)
        keyed = "batch" in event.what
        out: Rows = {}
        for name, values in event.what["records"].items():
            tp = e.tp(name)
            rows = out[name] = array("q")
            for value in values:
                row = e.value(value)
                rows.append(row)
                if e.sent_by[row] == NOWHERE:
                    e.home[row], e.sender[row], e.rank[row] = tp, sender, self._rank
                    e.sent_by[row], e.sent_n[row], e.sent[row] = self._number, event.n, event.at
                    e.keyed[row] = keyed
                    self._rank += 1
                    continue
                if not (keyed and e.keyed[row]) or e.home[row] != tp:
                    raise CorruptLogError(
                        f"Operation {event.n} of {self._name} sends {value!r}, which was sent "
                        "before.",
                        "Values are sent once; only a batch may be sent again, under its key.",
                    )
                e.rank[row] = NOWHERE
                if event.at < e.sent[row]:
                    e.sent_by[row], e.sent_n[row], e.sent[row] = self._number, event.n, event.at
        return out

    def _answered(self, begun: Event, rows: Rows, event: Event) -> None:
        e = self._e
        state = _STATES[event.step]
        for name, values in rows.items():
            for row in values:
                e.state[row] = max(e.state[row], state)
            if state == OK:
                self._acknowledged(begun, e.tp(name), values, event.what[name], event.at)
        if "batch" in begun.what:
            app, number = begun.what["batch"]
            all_rows = array("q", (row for values in rows.values() for row in values))
            attempt = Attempt(all_rows, state, Ref(self._name, begun.n))
            e.batches.setdefault((app, number), []).append(attempt)

    def _acknowledged(
        self, begun: Event, tp: int, rows: array[int], offsets: list[int], at: int
    ) -> None:
        e = self._e
        places = e.places[tp]
        for row, offset in zip(rows, offsets, strict=True):
            if at < e.known[row]:
                e.known[row] = at
            before = e.acked[row]
            if before == NOWHERE:
                e.acked[row] = offset
                if e.read[row] != NOWHERE and (e.read_tp[row], e.read[row]) != (tp, offset):
                    e.moved.append(Moved(row, tp, offset, Ref(self._name, begun.n)))
            elif before != offset:
                e.moved.append(Moved(row, tp, offset, Ref(self._name, begun.n)))
            if places.setdefault(offset, row) != row:
                e.clashes.append(Clash(tp, offset, row, Ref(self._name, begun.n)))

    def _polled(self, begun: Event, event: Event) -> None:
        e = self._e
        ids, read, known = e.ids, e.read, e.known
        consumer, at = begun.what.get("consumer", ""), event.at
        for name, (offsets, values) in event.what.items():
            tp = e.tp(name)
            places = e.places[tp]
            next_, sought = self._at.get((consumer, tp), (NOWHERE, False))
            inside = False
            for offset, value in zip(offsets, values, strict=True):
                row = ids.get(value, NOWHERE)
                if row < 0:
                    row = e.new_value(value)
                if read[row] != offset or e.read_tp[row] != tp:
                    self._first_read(row, tp, offset, begun.n, at)
                if at < known[row]:
                    known[row] = at
                if at < e.read_at[row]:
                    e.read_at[row], e.read_by[row], e.read_n[row] = at, self._number, begun.n
                if places.setdefault(offset, row) != row:
                    e.clashes.append(Clash(tp, offset, row, Ref(self._name, begun.n)))
                if offset != next_ and next_ != NOWHERE:
                    e.jumps.append(
                        Jump(
                            tp, Ref(self._name, begun.n), consumer, begun.what.get("group"),
                            inside, sought, next_, offset, begun.at, at,
                        )
                    )  # fmt: skip
                next_, sought, inside = offset + 1, False, True
            self._at[consumer, tp] = (next_, sought)

    def _first_read(self, row: int, tp: int, offset: int, n: int, at: int) -> None:
        """Read at a place that is new for this value."""
        e = self._e
        if e.read[row] != NOWHERE:
            e.moved.append(Moved(row, tp, offset, Ref(self._name, n)))
            return
        e.read_tp[row], e.read[row] = tp, offset
        if e.acked[row] != NOWHERE and (e.home[row], e.acked[row]) != (tp, offset):
            e.moved.append(Moved(row, tp, offset, Ref(self._name, n)))

    # --- groups ----------------------------------------------------------------------------

    def _written(self, begun: Event, event: Event) -> None:
        ended = event.at if event.step == "ok" else NEVER
        group, by = begun.what["group"], Ref(self._name, begun.n)
        for name, offset in begun.what["offsets"].items():
            write = Write(offset, begun.kind == "reset", begun.at, ended, by)
            self._e.writes.setdefault((group, self._e.tp(name)), []).append(write)

    def _saw_committed(self, begun: Event, event: Event) -> None:
        group, by = begun.what["group"], Ref(self._name, begun.n)
        for name, offset in event.what.items():
            seen = Seen(offset, begun.at, event.at, by)
            self._e.seen.setdefault((group, self._e.tp(name)), []).append(seen)

    def _did(self, event: Event) -> None:
        what = event.what
        consumer = what.get("consumer", "")
        if event.kind == "seek":
            for name, offset in what["offsets"].items():
                to = NOWHERE if offset is None else offset
                self._at[consumer, self._e.tp(name)] = (to, True)
            return
        group = what.get("group")
        for name in what["partitions"]:
            tp = self._e.tp(name)
            self._at.pop((consumer, tp), None)
            if group is None:
                continue
            held = self._held.pop((group, consumer, tp), None)
            if held is not None:
                how = "lost" if event.kind == "assign" else event.kind
                self._hold(group, tp, Hold(held[0], event.at, how, Ref(self._name, held[1])))
            if event.kind == "assign":
                self._held[group, consumer, tp] = (event.at, event.n)

    def _hold(self, group: str, tp: int, hold: Hold) -> None:
        self._e.holds.setdefault((group, tp), []).append(hold)


assert UNSENT < FAILED < UNKNOWN < OK, "the best of several attempts is the greatest"
