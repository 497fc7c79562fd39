"""What is kept of a history: for each value where it was sent, acknowledged and read.

Invariants:

1. Columns are arrays of numbers, one row for each value; no operation is kept.
2. ``places`` holds the first value met at each offset, told by an acknowledgement or a read;
   whatever contradicts it is in ``clashes`` (one offset, two values) or ``moved`` (one value,
   two offsets).
3. What can only be judged with everybody's events at hand is put off: ``jumps`` of readers,
   ``looks`` at ends, and all that concerns groups.
"""

from __future__ import annotations

from array import array
from typing import NamedTuple

from offsetlog.testing.history.faults import Ref

NEVER = 2**63 - 1
"""Later than everything."""
NOWHERE = -1

UNSENT, FAILED, UNKNOWN, OK = range(4)


class Jump(NamedTuple):
    """A reader did not go on where it was."""

    tp: int
    reader: Ref
    consumer: str
    group: str | None
    inside: bool
    """Within one poll."""
    sought: bool
    """It had been told to read from ``expected``."""
    expected: int
    got: int
    began: int
    ended: int


class Clash(NamedTuple):
    tp: int
    offset: int
    value: int
    seen: Ref


class Moved(NamedTuple):
    value: int
    tp: int
    offset: int
    seen: Ref


class Look(NamedTuple):
    """Log end offsets as one question was answered."""

    began: int
    ends: tuple[tuple[int, int], ...]
    seen: Ref


class Write(NamedTuple):
    """A commit or reset of one partition that did not fail for certain."""

    value: int | None
    is_reset: bool
    began: int
    ended: int
    """``NEVER`` if its outcome is unknown."""
    by: Ref


class Seen(NamedTuple):
    """A committed offset as somebody saw it."""

    value: int | None
    began: int
    ended: int
    by: Ref


class Hold(NamedTuple):
    """One member believed that a partition was its own."""

    began: int
    ended: int
    how: str
    """``revoke``, ``lost``, or ``""``: it never said."""
    by: Ref


class Trim(NamedTuple):
    began: int
    to: int


class Attempt(NamedTuple):
    """One send of a batch: its values, in the order of the partitions."""

    values: array[int]
    state: int
    by: Ref


GroupPartition = tuple[str, int]


class Evidence:
    """Everything that is judged."""

    def __init__(self) -> None:
        self.processes: list[str] = []
        self.partitions: list[str] = []
        self._tps: dict[str, int] = {}
        self.senders: list[str] = []
        self._senders: dict[str, int] = {}
        self.ids: dict[str | int, int] = {}
        # One row for each value.
        self.state = bytearray()
        self.home = array("i")
        """The partition it was sent to."""
        self.sender = array("i")
        self.rank = array("q")
        """Its turn among all that its process sent; -1 if it was sent more than once."""
        self.sent_by = array("i")
        self.sent_n = array("q")
        self.sent = array("q")
        """When the first send began."""
        self.known = array("q")
        """When the first acknowledgement or read ended."""
        self.acked = array("q")
        """The offset that was acknowledged."""
        self.read_tp = array("i")
        self.read = array("q")
        """The offset where it was read."""
        self.read_by = array("i")
        self.read_n = array("q")
        self.read_at = array("q")
        self.keyed = bytearray()
        """1: it belongs to a batch."""
        self.places: list[dict[int, int]] = []
        self.clashes: list[Clash] = []
        self.moved: list[Moved] = []
        self.jumps: list[Jump] = []
        self.looks: list[Look] = []
        self.trims: dict[int, list[Trim]] = {}
        self.batches: dict[tuple[str, int], list[Attempt]] = {}
        self.writes: dict[GroupPartition, list[Write]] = {}
        self.seen: dict[GroupPartition, list[Seen]] = {}
        self.holds: dict[GroupPartition, list[Hold]] = {}

    def tp(self, name: str) -> int:
        found = self._tps.get(name)
        if found is None:
            found = self._tps[name] = len(self.partitions)
            self.partitions.append(name)
            self.places.append({})
        return found

    def sender_id(self, name: str) -> int:
        found = self._senders.setdefault(name, len(self.senders))
        if found == len(self.senders):
            self.senders.append(name)
        return found

    def value(self, value: str | int) -> int:
        found = self.ids.get(value)
        return self.new_value(value) if found is None else found

    def new_value(self, value: str | int) -> int:
        row = self.ids[value] = len(self.ids)
        self.state.append(UNSENT)
        self.keyed.append(0)
        self.home.append(NOWHERE)
        self.sender.append(NOWHERE)
        self.rank.append(NOWHERE)
        self.sent_by.append(NOWHERE)
        self.sent_n.append(NOWHERE)
        self.sent.append(NEVER)
        self.known.append(NEVER)
        self.acked.append(NOWHERE)
        self.read_tp.append(NOWHERE)
        self.read.append(NOWHERE)
        self.read_by.append(NOWHERE)
        self.read_n.append(NOWHERE)
        self.read_at.append(NEVER)
        return row

    # --- for whoever judges ----------------------------------------------------------------

    def trimmed(self, tp: int, before: int = NEVER) -> int:
        """Below this offset records may have been gone by that time."""
        return max((t.to for t in self.trims.get(tp, ()) if t.began < before), default=0)

    def place(self, row: int) -> tuple[int, int] | None:
        """Partition and offset of a value, if anybody told."""
        if self.read[row] != NOWHERE:
            return self.read_tp[row], self.read[row]
        if self.acked[row] != NOWHERE:
            return self.home[row], self.acked[row]
        return None

    def sent_ref(self, row: int) -> Ref | None:
        if self.sent_by[row] == NOWHERE:
            return None
        return Ref(self.processes[self.sent_by[row]], self.sent_n[row])

    def read_ref(self, row: int) -> Ref | None:
        if self.read_by[row] == NOWHERE:
            return None
        return Ref(self.processes[self.read_by[row]], self.read_n[row])
