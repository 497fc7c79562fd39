"""What can be wrong with a history, by name.

1. A fault names one broken promise and the operations that show it, oldest first.
2. Of each kind at most ``MOST`` are kept; how many there were beyond is said, not dropped.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import NamedTuple

MOST = 100
"""Faults of one kind that are told; one broken rule can show itself a million times."""


class Kind:
    """The kinds of faults."""

    LOST_WRITE = "lost write"
    """Acknowledged, and not among the records though later ones of its partition are."""
    ABORTED_READ = "aborted read"
    """A record was read whose send failed for certain, or that nobody had sent yet."""
    DUPLICATE = "duplicate"
    """One record at two places."""
    WRITE_OUT_OF_ORDER = "write out of order"
    """A record lies before one that was there, or was sent by its sender, earlier."""
    READ_OUT_OF_ORDER = "read out of order"
    """One poll gave a partition's records in another order than their offsets."""
    POLL_SKIP = "poll skip"
    """A reader passed over offsets that nobody took away."""
    NON_MONOTONIC_POLL = "non-monotonic poll"
    """A reader went back though nobody told it to."""
    NON_MONOTONIC_SEND = "non-monotonic send"
    """A sender was given a lower offset than for what had been acknowledged to it before."""
    INCONSISTENT_OFFSETS = "inconsistent offsets"
    """One offset, two values."""
    UNSEEN = "unseen"
    """Acknowledged, and nobody had read it when everything had been read to its end."""
    STALE_END = "stale end"
    """A log end offset below a record that was acknowledged or read before the question."""
    COMMITTED_MOVED = "committed offset moved"
    """A group's committed offset is not what the commits and resets explain."""
    DOUBLE_OWNER = "double owner"
    """Two members owned one partition at one time."""
    BATCH_NOT_ONCE = "micro-batch not exactly once"
    """An acknowledged batch is not there, or a batch is there more than once."""
    BATCH_IN_PART = "micro-batch in part"
    """Somebody could see a part of a batch without the rest."""


KINDS = tuple(value for name, value in vars(Kind).items() if name.isupper())


class Ref(NamedTuple):
    """An operation of a history."""

    process: str
    n: int


class Fault(NamedTuple):
    kind: str
    says: str
    evidence: tuple[Ref, ...] = ()

    def __str__(self) -> str:
        return f"{self.kind}: {self.says}"


class Found:
    """The faults so far, capped by kind."""

    def __init__(self) -> None:
        self._kept: list[Fault] = []
        self._counts: Counter[str] = Counter()

    def add(self, kind: str, says: str, evidence: Iterable[Ref | None] = ()) -> None:
        self._counts[kind] += 1
        if self._counts[kind] <= MOST:
            known = dict.fromkeys(ref for ref in evidence if ref is not None)
            self._kept.append(Fault(kind, says, tuple(known)))

    def all(self) -> list[Fault]:
        """By kind, in the order of ``Kind``."""
        more = [
            Fault(kind, f"and {count - MOST:,} more of this kind")
            for kind, count in self._counts.items()
            if count > MOST
        ]
        return sorted([*self._kept, *more], key=lambda fault: KINDS.index(fault.kind))
