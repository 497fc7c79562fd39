"""How one entry comes to land: which name to try next, after which answer.

Rules of this module:

1. No answer: the same bytes at the same name again. Only a conflict moves on, to the next
   name. So an undecided entry can land at one name only, the last that was tried.
2. After ``look_after`` conflicts in a row the author looks where the tip is.
3. An author gives up after some lost answers, or after one that it waited for as long as a call
   has. It says what it knows: nothing landed, or the fate is open.
4. Where an entry landed is found in the fold by its write id, since a client library may
   have hidden a lost answer behind a conflict with the author's own file.
"""

from __future__ import annotations

from typing import NamedTuple


class LandingLimits(NamedTuple):
    look_after: int = 8
    """Conflicts in a row after which the author looks for the tip."""
    max_unknown: int = 5
    """Answers lost in a row at one name before the author gives up."""


LIMITS = LandingLimits()


class PutAt(NamedTuple):
    """Put the bytes at this number; ``again`` counts the answers lost there."""

    number: int
    again: int = 0


class FindTip(NamedTuple):
    """Fold forward from this number to find the tip, then go on there."""

    number: int


class GiveUp(NamedTuple):
    """The fate at this number is open."""

    number: int
    error: str


class Landing(NamedTuple):
    """An entry on its way. Each method answers with what to do, and the new value."""

    number: int
    limits: LandingLimits = LIMITS
    conflicts: int = 0
    unknown: int = 0

    def conflicted(self) -> tuple[Landing, PutAt | FindTip]:
        number = self.number + 1
        if self.conflicts + 1 >= self.limits.look_after:
            return Landing(number, self.limits), FindTip(number)
        return Landing(number, self.limits, self.conflicts + 1), PutAt(number)

    def looked(self, tip: int) -> tuple[Landing, PutAt]:
        number = max(self.number, tip)
        return Landing(number, self.limits), PutAt(number)

    def unanswered(self, error: str, waited: bool = False) -> tuple[Landing, PutAt | GiveUp]:
        """``waited``: for as long as a call has."""
        again = self.unknown + 1
        waiting = self._replace(unknown=again)
        if waited or again >= self.limits.max_unknown:
            return waiting, GiveUp(self.number, error)
        return waiting, PutAt(self.number, again)
