"""The fold: the table as the facts so far make it. Which facts count, and what each one changes.

Rules of this module:

1. ``state = fold(facts)`` and nothing else: folding all at once, or what is new on top of
   what was folded before, gives the same.
2. The order is (version, place). Facts of one version are one step: who shall hold what is
   computed once, after the last of them. So a version is never folded in two halves.
3. Whether a fact counts (``why_ignored``) is seen from the state and the fact alone, so all
   programs agree. ``decide`` asks before a fact is written; the fold asks again, so that a row that
   somebody put into the table by hand moves nothing. A fact that does not count changes nothing.
4. A commit or a release counts when its member holds the partition, and has held it since a
   generation no later than the one it worked in. In a group without members anybody may commit,
   and only without a name. A commit made before the partition's last reset does not count; of
   such a release only the position is passed over.
5. A member that owns its group alone holds every partition; nobody joins beside it but another
   such owner, which expels it.
6. A position moves only by a commit, a release, a reset or a delete.
7. A partition stays with its holder until its release, leave or expulsion. What is free at
   the end of a version is held by its target from then on: nobody has to take it.
8. The generation grows by one in each version that changes members, their subscriptions, or
   a partition count that they read.
9. A partition by which a topic is seen to grow while the group has a member or a position in the
   topic is ``added``, until it has a position of its own or the group has left the topic. A topic
   that the group sees for the first time has not grown.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import groupby
from typing import TypeVar

from offsetlog.core.group.assign import STRATEGIES, assign
from offsetlog.core.group.facts import (
    Fact,
    FactKind,
    Partition,
    check_kind,
    decode_expulsion,
    decode_subscription,
    decode_topic,
    whole,
)
from offsetlog.core.group.state import (
    MAX_DEPARTURES,
    Departure,
    GroupsState,
    GroupState,
    Held,
    Member,
    Position,
    owner_of,
)
from offsetlog.errors import CorruptLogError
from offsetlog.values import MAX_GROUP_PARTITIONS, MAX_OFFSET

OnIgnored = Callable[[Fact, str], None]
K = TypeVar("K")
V = TypeVar("V")


def fold(
    table: GroupsState, facts: Iterable[Fact], tip: int, on_ignored: OnIgnored | None = None
) -> GroupsState:
    """The state at version ``tip`` of the table; the very same where that is the one it has. Facts
    that are in the state already, as a rewritten file gives them again, are passed over."""
    new = sorted(
        (f for f in facts if f.version > table.version), key=lambda f: (f.version, f.place)
    )
    if not new:
        return table if tip <= table.version else GroupsState(tip, table.groups)
    if new[-1].version > tip:
        raise CorruptLogError(
            f"The offsets table is at version {tip}, but holds a fact of version "
            f"{new[-1].version}.",
            "Rows of this table are written by offsetlog only: delete the rows that are not.",
        )
    draft = TableDraft(table)
    for _, together in groupby(_without_duplicates(new), key=lambda f: f.version):
        for fact in together:
            check_kind(fact.kind)
            group = draft.group(fact.group)
            reason = why_ignored(group, fact)
            if reason is None:
                group.apply(fact)
            elif on_ignored is not None:
                on_ignored(fact, reason)
        draft.end_version()
    return draft.to_state(tip)


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


class GroupDraft:
    """A group under construction, private to one fold. Its fields are ``GroupState``'s."""

    def __init__(self, group: GroupState) -> None:
        self._base = group
        self.touched = False
        self.name = group.name
        self.alive = group.alive
        self.generation = group.generation
        self.resets = group.resets
        self.members = dict(group.members)
        self.topics = dict(group.topics)
        self.partitions = sum([view.partitions for view in group.topics.values()])
        """Of all these topics together."""
        self.added = set(group.added)
        self.targets = dict(group.targets)
        self.holders = dict(group.holders)
        self.positions = dict(group.positions)
        self.last_reset = dict(group.last_reset)
        self.reset_to = dict(group.reset_to)
        self.departures = group.departures
        self.active_at = group.active_at
        self.open_reset = -1
        """The reset that is being written: its rows share its number, within one version."""
        self._changed = False
        self._freed: set[Partition] = set()

    def to_state(self) -> GroupState:
        """The value, once and at the end. What did not change is the mapping that was there."""
        base = self._base
        return GroupState(
            name=self.name,
            alive=self.alive,
            generation=self.generation,
            resets=self.resets,
            members=_shared(base.members, self.members),
            topics=_shared(base.topics, self.topics),
            added=base.added if base.added == self.added else frozenset(self.added),
            targets=_shared(base.targets, self.targets),
            holders=_shared(base.holders, self.holders),
            positions=self.positions,
            last_reset=_shared(base.last_reset, self.last_reset),
            reset_to=_shared(base.reset_to, self.reset_to),
            departures=self.departures,
            active_at=self.active_at,
        )

    @property
    def owner(self) -> Member | None:
        return owner_of(self.members)

    def reads(self, topic: str) -> bool:
        return any(
            topic in m.subscription.topics or m.subscription.alone for m in self.members.values()
        )

    # --- what a fact changes ---------------------------------------------------------------

    def apply(self, fact: Fact) -> None:
        """Let a fact that counts count."""
        self.touched = True
        _KINDS[fact.kind][1](self, fact)
        if fact.kind not in (FactKind.TOPICS, FactKind.DELETE):
            self.active_at = max(self.active_at, fact.committed_at)

    def commit(self, fact: Fact) -> None:
        self.alive = True
        self._set_position(fact)

    def release(self, fact: Fact) -> None:
        partition = partition_of(fact)
        if fact.offset is not None and fact.reset >= self.last_reset.get(partition, 0):
            self._set_position(fact)
        if self.owner is None:
            del self.holders[partition]
            self._freed.add(partition)

    def reset(self, fact: Fact) -> None:
        self.alive = True
        self.resets = self.open_reset = fact.reset
        partition = self._set_position(fact)
        self.last_reset[partition] = fact.reset
        self.reset_to[partition] = self.positions[partition].offset

    def join(self, fact: Fact) -> None:
        name, subscription = _member_of(fact), decode_subscription(fact.metadata)
        assert subscription is not None  # why_ignored made sure
        self.alive = True
        if subscription.alone:
            for other in [m for m in self.members if m != name]:
                self._remove_member(other)
                # Of these the generation is recorded, not the one that each joined in.
                by, why = subscription.client or name, "it owns the group now"
                self._record_departure(other, self.generation, by, why, fact.version)
        before = self.members.get(name)
        if before is not None and before.subscription == subscription:
            return
        joined = before.joined if before is not None else self.generation + 1
        version = before.version if before is not None else fact.version
        self.members[name] = Member(name, subscription, joined, version)
        if before is None or before.subscription.rules != subscription.rules:
            self._changed = True

    def leave(self, fact: Fact) -> None:
        self._remove_member(_member_of(fact))

    def expel(self, fact: Fact) -> None:
        name = _member_of(fact)
        by, why = decode_expulsion(fact.metadata)
        self._record_departure(name, self.members[name].joined, by, why, fact.version)
        self._remove_member(name)

    def topic(self, fact: Fact) -> None:
        view = decode_topic(fact.metadata)
        assert view is not None and fact.topic is not None  # why_ignored made sure
        before = self.topics.get(fact.topic)
        self.topics[fact.topic] = view
        self.partitions += view.partitions - (before.partitions if before is not None else 0)
        added = {p for p in self.added if p[0] != fact.topic}
        if before is not None and self._is_in(fact.topic):
            # Fewer than before: the topic was deleted, and what comes then is new.
            grown = range(before.partitions, view.partitions)
            kept = {p for p in self.added - added if p[1] < view.partitions}
            added |= kept | ({(fact.topic, p) for p in grown} - self.positions.keys())
        self.added = added
        if (before is None or before.partitions != view.partitions) and self.reads(fact.topic):
            self._changed = True

    def delete(self, fact: Fact) -> None:
        if fact.topic is not None:
            del self.positions[partition_of(fact)]
            if not self._is_in(fact.topic):
                self.added = {p for p in self.added if p[0] != fact.topic}
            return
        self.alive = False
        self.positions, self.added, self.departures, self.active_at = {}, set(), (), 0

    def _set_position(self, fact: Fact) -> Partition:
        assert fact.offset is not None  # why_ignored made sure
        partition = partition_of(fact)
        self.added.discard(partition)
        self.positions[partition] = Position(
            fact.offset,
            fact.metadata,
            fact.committed_at,
            fact.member,
            fact.generation,
            fact.kind,
            fact.version,
        )
        return partition

    def _is_in(self, topic: str) -> bool:
        """Whether the group has a position in a topic, or a member that named it."""
        return any(topic in m.subscription.topics for m in self.members.values()) or any(
            topic == name for name, _ in self.positions
        )

    def _remove_member(self, name: str) -> None:
        del self.members[name]
        held = [p for p, h in self.holders.items() if h.member == name]
        for partition in held:
            del self.holders[partition]
        self._freed.update(held)
        self._changed = True

    def _record_departure(self, name: str, joined: int, by: str, why: str, version: int) -> None:
        departure = Departure(name, joined, by, why, version)
        self.departures = (*self.departures, departure)[-MAX_DEPARTURES:]

    def end_version(self) -> None:
        """Once after the last fact of a version: the generation, the targets, and what is free
        goes to its target."""
        if self._changed:
            self.generation += 1
            self.targets = {}
            if self.owner is not None:
                self.holders = {}
            elif self.members:
                self.targets = assign(
                    next(iter(self.members.values())).subscription.strategy,
                    {name: m.subscription.topics for name, m in self.members.items()},
                    {topic: view.partitions for topic, view in self.topics.items()},
                    {p: held.member for p, held in self.holders.items()},
                )
            free = [p for p in self.targets if p not in self.holders]
        else:
            free = [p for p in sorted(self._freed) if p in self.targets]
        for partition in free:
            self.holders[partition] = Held(self.targets[partition], self.generation)
        self._changed, self.open_reset = False, -1
        self._freed.clear()


def partition_of(fact: Fact) -> Partition:
    """The partition of a fact that counts as one of a partition."""
    assert fact.topic is not None and fact.partition is not None
    return fact.topic, fact.partition


def _member_of(fact: Fact) -> str:
    assert fact.member is not None
    return fact.member


def _shared(before: Mapping[K, V], after: Mapping[K, V]) -> Mapping[K, V]:
    """The mapping that was there before, where nothing in it changed."""
    return before if before == after else after


# --- which facts count ---------------------------------------------------------------------


class IgnoredReason:
    """Why a fact does not count."""

    MALFORMED = "malformed"
    UNKNOWN_GROUP = "unknown-group"
    HAS_MEMBERS = "has-members"
    NOT_A_MEMBER = "not-a-member"
    NOT_THE_HOLDER = "not-the-holder"
    OLD_GENERATION = "old-generation"
    RESET_SINCE = "reset-since"
    NOT_THE_NEXT_RESET = "not-the-next-reset"
    OWNED_ALONE = "owned-alone"
    OTHER_STRATEGY = "other-strategy"
    OLD_VIEW = "old-view"
    NO_OFFSET = "no-offset"
    IS_READ = "is-read"
    TOO_MANY_PARTITIONS = "too-many-partitions"


def why_ignored(draft: GroupDraft, fact: Fact) -> str | None:
    """Why the fact does not count (an ``IgnoredReason``), or None: it does."""
    return _KINDS[fact.kind][0](draft, fact)


def _is_well_formed(fact: Fact, *, with_offset: bool) -> bool:
    """Whether it names a partition, and a possible offset in it."""
    return (
        bool(fact.topic)
        and whole(fact.partition)
        and fact.partition >= 0
        and (not with_offset or (whole(fact.offset) and 0 <= fact.offset <= MAX_OFFSET))
    )


def _commit(draft: GroupDraft, fact: Fact) -> str | None:
    if not _is_well_formed(fact, with_offset=True):
        return IgnoredReason.MALFORMED
    reason = _holding(draft, fact)
    if reason is None and fact.reset < draft.last_reset.get(partition_of(fact), 0):
        return IgnoredReason.RESET_SINCE
    return reason


def _holding(draft: GroupDraft, fact: Fact) -> str | None:
    if fact.member is None:
        return IgnoredReason.HAS_MEMBERS if draft.members else None
    member = draft.members.get(fact.member)
    if member is None:
        return IgnoredReason.NOT_A_MEMBER
    if fact.generation < member.joined:
        return IgnoredReason.OLD_GENERATION
    if member.subscription.alone:
        return None
    held = draft.holders.get(partition_of(fact))
    if held is None or held.member != fact.member:
        return IgnoredReason.NOT_THE_HOLDER
    return IgnoredReason.OLD_GENERATION if fact.generation < held.since else None


def _release(draft: GroupDraft, fact: Fact) -> str | None:
    if not _is_well_formed(fact, with_offset=fact.offset is not None) or fact.member is None:
        return IgnoredReason.MALFORMED
    return _holding(draft, fact)


def _reset(draft: GroupDraft, fact: Fact) -> str | None:
    if not _is_well_formed(fact, with_offset=True):
        return IgnoredReason.MALFORMED
    is_next = fact.reset == draft.resets + 1 or fact.reset == draft.resets == draft.open_reset
    return None if is_next else IgnoredReason.NOT_THE_NEXT_RESET


def _join(draft: GroupDraft, fact: Fact) -> str | None:
    subscription = decode_subscription(fact.metadata)
    if not fact.member or subscription is None or subscription.strategy not in STRATEGIES:
        return IgnoredReason.MALFORMED
    if subscription.alone:
        return None
    owner = draft.owner
    if owner is not None and owner.name != fact.member:
        return IgnoredReason.OWNED_ALONE
    others = [m for m in draft.members.values() if m.name != fact.member]
    if any(m.subscription.strategy != subscription.strategy for m in others):
        return IgnoredReason.OTHER_STRATEGY
    return None


def _leave(draft: GroupDraft, fact: Fact) -> str | None:
    return None if fact.member in draft.members else IgnoredReason.NOT_A_MEMBER


def _topics(draft: GroupDraft, fact: Fact) -> str | None:
    view = decode_topic(fact.metadata)
    if not fact.topic or view is None:
        return IgnoredReason.MALFORMED
    known = draft.topics.get(fact.topic)
    if known is not None and view.tip <= known.tip:
        return IgnoredReason.OLD_VIEW
    more = view.partitions - (known.partitions if known is not None else 0)
    too_many = more > 0 and draft.partitions + more > MAX_GROUP_PARTITIONS
    return IgnoredReason.TOO_MANY_PARTITIONS if too_many else None


def _delete(draft: GroupDraft, fact: Fact) -> str | None:
    if not draft.alive:
        return IgnoredReason.UNKNOWN_GROUP
    if fact.topic is None:
        return IgnoredReason.HAS_MEMBERS if draft.members else None
    if not _is_well_formed(fact, with_offset=False):
        return IgnoredReason.MALFORMED
    if draft.reads(fact.topic):
        return IgnoredReason.IS_READ
    return None if partition_of(fact) in draft.positions else IgnoredReason.NO_OFFSET


Rule = Callable[[GroupDraft, Fact], str | None]
Effect = Callable[[GroupDraft, Fact], object]
_KINDS: dict[str, tuple[Rule, Effect]] = {
    FactKind.COMMIT: (_commit, GroupDraft.commit),
    FactKind.RELEASE: (_release, GroupDraft.release),
    FactKind.RESET: (_reset, GroupDraft.reset),
    FactKind.JOIN: (_join, GroupDraft.join),
    FactKind.LEAVE: (_leave, GroupDraft.leave),
    FactKind.EXPEL: (_leave, GroupDraft.expel),
    FactKind.TOPICS: (_topics, GroupDraft.topic),
    FactKind.DELETE: (_delete, GroupDraft.delete),
}
