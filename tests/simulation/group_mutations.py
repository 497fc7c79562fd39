"""Planted bugs of groups and queries, found by the simulation of groups only.

They are switched on in tests only, one at a time, by replacing a function."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

from offsetlog.core.group import decide, fold, membership
from offsetlog.core.group.facts import FactKind, OffsetAndMetadata
from offsetlog.core.group.fold import IgnoredReason
from offsetlog.core.group.starting_offset import StartingOffset
from offsetlog.engine.group.group_member import GroupMember
from offsetlog.engine.group.offsets_table import OffsetsTable
from offsetlog.engine.topic.cursor import Cursor
from offsetlog.errors import FencedError
from offsetlog.storage.store import Committed
from pyspark_offsetlog.source import micro_batches as run
from pyspark_offsetlog.source import next_batch, offsets
from pyspark_offsetlog.source.group_owner import GroupOwner
from tests.simulation.planting import Patch, patched


def planted(name: str) -> AbstractContextManager[None]:
    return patched(MUTATIONS[name]())


def _proposals_without(reason: str) -> Callable[[], list[Patch]]:
    """Whoever writes does not ask for this; the fold of the facts does."""

    def lenient(draft: Any, fact: Any) -> str | None:
        found = fold.why_ignored(draft, fact)
        return None if found == reason else found

    return lambda: [(decide, "why_ignored", lenient)]


def _anybody_commits() -> list[Patch]:
    """Nobody asks whether the author of a commit still is a member."""
    [patch] = _proposals_without(IgnoredReason.NOT_A_MEMBER)()
    return [patch, (decide._Decider, "_check_member", lambda self, draft, member, since: None)]


def _a_fence_by_generation_alone() -> list[Patch]:
    """Who worked in another generation is fenced, also when it holds what it commits; and who
    holds a partition is not asked."""

    def by_generation(draft: Any, fact: Any) -> str | None:
        if fact.kind != FactKind.COMMIT or fact.member is None:
            return fold.why_ignored(draft, fact)
        return None if fact.generation == draft.generation else IgnoredReason.OLD_GENERATION

    return [(decide, "why_ignored", by_generation)]


def _takes_before_the_release() -> list[Patch]:
    """A worker reads what is meant for it while somebody else still holds it."""
    true = membership.standing

    def eager(group: Any, member: str, joined: int) -> Any:
        told = true(group, member, joined)
        if isinstance(told, membership.Standing):
            told = told._replace(holds=told.holds | frozenset(told.waits), waits=())
        return told

    from offsetlog.engine.group import group_member

    return [(group_member, "standing", eager)]


def _deaf_to_resets() -> list[Patch]:
    """A worker goes on reading where it was, and commits it under the new number."""

    def follow(self: Any, group: Any) -> None:
        self._followed_reset = group.resets

    return [(GroupMember, "_follow", follow)]


def _reset_of_all_partitions() -> list[Patch]:
    """A query puts every partition back when one of them was reset."""
    true = next_batch.follow_resets

    def all_of_them(group: Any, followed: int, spans: Any, policy: str) -> Any:
        found = true(group, followed, spans, policy)
        return {**dict.fromkeys(spans, StartingOffset(0)), **found} if found else found

    return [(next_batch, "follow_resets", all_of_them)]


def _seeks_looked_up_again() -> list[Patch]:
    """A batch that is run again begins where the group stands now."""

    def begin(start: Any, end: Any, tp: Any) -> int | None:
        return None if tp in end.moved else start.at.get(tp)

    return [(run, "begin_of", begin), (offsets, "begin_of", begin)]


def _commits_what_is_planned() -> list[Patch]:
    """The end of a batch is committed when the batch is planned."""
    true = run.QueryRun.next

    def hasty(self: Any, raw: Any, limited: bool) -> Any:
        end = true(self, raw, limited)
        if end is not raw:
            self.processed(end)
        return end

    return [(run.QueryRun, "next", hasty)]


def _reads_on_after_a_fence() -> list[Patch]:
    """A query that lost its group commits all the same, under nobody's name."""
    from offsetlog.core.group.requests import CommitRequest

    true = GroupOwner._request

    def stubborn(self: Any, positions: Any, followed: int, is_last: bool) -> None:
        try:
            true(self, positions, followed, is_last)
        except FencedError:
            owner = self._table.look().group(self.group).owner
            if owner is not None:
                said = {tuple(tp): OffsetAndMetadata(at) for tp, at in positions.items()}
                self._table.ask(CommitRequest(self.group, owner.name, 2**31, followed, said))

    return [(GroupOwner, "_request", stubborn)]


def _position_before_the_records() -> list[Patch]:
    """A worker's position moves to the end of a batch of which it was given a part."""
    true = Cursor._take_some

    def greedy(self: Any, tp: Any, room: int) -> Any:
        taken = true(self, tp, room)
        if taken is not None and tp in self._streams:
            self._streams.pop(tp)
            self.positions[tp] = taken[0].end
        return taken

    return [(Cursor, "_take_some", greedy)]


def _no_answer_taken_for_an_append() -> list[Patch]:
    """Facts whose append got no answer are taken for written."""
    true = OffsetsTable._append

    def trusting(self: Any, made: Any) -> bool:
        real = self.port

        class Port:
            def __getattr__(self, name: str) -> Any:
                return getattr(real, name)

            def append(self, facts: Any, version: int) -> Any:
                told = real.append(facts, version)
                return Committed() if type(told).__name__ == "Unknown" else told

        self.port = Port()
        try:
            return true(self, made)
        finally:
            self.port = real

    return [(OffsetsTable, "_append", trusting)]


MUTATIONS: dict[str, Callable[[], list[Patch]]] = {
    "who is out commits": _anybody_commits,
    "progress from before a reset counts": _proposals_without(IgnoredReason.RESET_SINCE),
    "a fence by generation alone": _a_fence_by_generation_alone,
    "an owner reads before the release": _takes_before_the_release,
    "a worker is deaf to resets": _deaf_to_resets,
    "a reset moves all partitions": _reset_of_all_partitions,
    "seeks looked up again": _seeks_looked_up_again,
    "what is planned is committed": _commits_what_is_planned,
    "a fenced query commits for the owner": _reads_on_after_a_fence,
    "the position runs ahead of the records": _position_before_the_records,
    "no answer taken for an append of facts": _no_answer_taken_for_an_append,
}
