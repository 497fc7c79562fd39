"""The fold: the table as the facts so far make it.

Rules of this module:

1. ``state = fold(facts)`` and nothing else: folding all at once, or what is new on top of
   what was folded before, gives the same.
2. The order is (version, place). Facts of one version are one step: who shall hold what is
   computed once, after the last of them. So a version is never folded in two halves.
3. A fact that does not count (``judge``) changes nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from itertools import groupby

from offsetlog.core.group.draft import Draft
from offsetlog.core.group.facts import Fact, check_kind
from offsetlog.core.group.state import GroupsState
from offsetlog.core.group.verdict import judge
from offsetlog.errors import CorruptLogError

OnVoid = Callable[[Fact, str], None]


def fold(
    table: GroupsState, facts: Iterable[Fact], tip: int, on_void: OnVoid | None = None
) -> GroupsState:
    """The state at version ``tip`` of the table. Facts that are in the state already, as a
    rewritten file gives them again, are passed over."""
    new = sorted(
        (f for f in facts if f.version > table.version), key=lambda f: (f.version, f.place)
    )
    if new and new[-1].version > tip:
        raise CorruptLogError(
            f"The offsets table is at version {tip}, but holds a fact of version "
            f"{new[-1].version}.",
            "Rows of this table are written by offsetlog only: delete the rows that are not.",
        )
    opening = Opening(table)
    for version, together in groupby(_once(new), key=lambda f: f.version):
        for fact in together:
            reason = opening.apply(fact)
            if reason is not None and on_void is not None:
                on_void(fact, reason)
        opening.settle(version)
    return opening.table(max(tip, table.version))


def _once(facts: list[Fact]) -> Iterator[Fact]:
    last: Fact | None = None
    for fact in facts:
        if last is not None and (last.version, last.place) == (fact.version, fact.place):
            if last != fact:
                raise CorruptLogError(
                    f"The offsets table holds two facts at place {fact.place} of version "
                    f"{fact.version}.",
                    "Rows of this table are written by offsetlog only: delete those that are not.",
                )
            continue
        last = fact
        yield fact


class Opening:
    """A table under construction: copies what it changes, shares the rest."""

    def __init__(self, table: GroupsState) -> None:
        self._base = table
        self._open: dict[str, Draft] = {}

    def group(self, name: str) -> Draft:
        if name not in self._open:
            self._open[name] = Draft(self._base.group(name))
        return self._open[name]

    def apply(self, fact: Fact) -> str | None:
        """Let the fact count, or say why it does not."""
        check_kind(fact.kind)
        draft = self.group(fact.group)
        reason = judge(draft, fact)
        if reason is None:
            draft.apply(fact)
        return reason

    def settle(self, version: int) -> None:
        """End a version: the generation, the targets, and what is free goes to its target."""
        for draft in self._open.values():
            draft.settle(version)

    def alive(self) -> Iterator[str]:
        """The names of the groups that there are."""
        for name, group in self._base.groups.items():
            if name not in self._open and group.alive:
                yield name
        yield from [name for name, draft in self._open.items() if draft.alive]

    def table(self, version: int) -> GroupsState:
        changed = {n: d.frozen() for n, d in self._open.items() if d.touched}
        groups = {**self._base.groups, **changed} if changed else self._base.groups
        return GroupsState(version, groups)
