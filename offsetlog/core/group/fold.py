"""The fold: the table as the facts so far make it.

Rules of this module:

1. ``state = fold(facts)`` and nothing else: folding all at once, or what is new on top of
   what was folded before, gives the same.
2. The order is (version, place). Facts of one version are one step: who shall hold what is
   computed once, after the last of them. So a version is never folded in two halves.
3. A fact that does not count (``why_ignored``) changes nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from itertools import groupby

from offsetlog.core.group.draft import GroupDraft
from offsetlog.core.group.facts import Fact, check_kind
from offsetlog.core.group.refusal import why_ignored
from offsetlog.core.group.state import GroupsState
from offsetlog.errors import CorruptLogError

OnIgnored = Callable[[Fact, str], None]


def fold(
    table: GroupsState, facts: Iterable[Fact], tip: int, on_ignored: OnIgnored | None = None
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
    draft = TableDraft(table)
    for _, together in groupby(_without_duplicates(new), key=lambda f: f.version):
        for fact in together:
            reason = draft.apply(fact)
            if reason is not None and on_ignored is not None:
                on_ignored(fact, reason)
        draft.end_version()
    return draft.to_state(max(tip, table.version))


def _without_duplicates(facts: list[Fact]) -> Iterator[Fact]:
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


class TableDraft:
    """A table under construction: copies the groups that it changes, shares the others."""

    def __init__(self, table: GroupsState) -> None:
        self._base = table
        self._drafts: dict[str, GroupDraft] = {}

    def group(self, name: str) -> GroupDraft:
        if name not in self._drafts:
            self._drafts[name] = GroupDraft(self._base.group(name))
        return self._drafts[name]

    def apply(self, fact: Fact) -> str | None:
        """Let the fact count, or say why it does not."""
        check_kind(fact.kind)
        draft = self.group(fact.group)
        reason = why_ignored(draft, fact)
        if reason is None:
            draft.apply(fact)
        return reason

    def end_version(self) -> None:
        for draft in self._drafts.values():
            draft.end_version()

    def alive(self) -> Iterator[str]:
        """The names of the groups that exist."""
        for name, group in self._base.groups.items():
            if name not in self._drafts and group.alive:
                yield name
        yield from [name for name, draft in self._drafts.items() if draft.alive]

    def to_state(self, version: int) -> GroupsState:
        changed = {n: d.to_state() for n, d in self._drafts.items() if d.touched}
        groups = {**self._base.groups, **changed} if changed else self._base.groups
        return GroupsState(version, groups)
