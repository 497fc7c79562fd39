"""A group under construction: what each fact changes, and what the end of a version does.

Rules of this module:

1. A position moves only by a commit, a release, a reset or a delete.
2. A partition stays with its holder until its release, leave or expulsion. What is free at
   the end of a version is held by its target from then on: nobody has to take it.
3. The generation grows by one in each version that changes members, their subscriptions, or
   a partition count that they read.
4. A partition by which a topic is seen to grow while the group has a member or a position in the
   topic is ``added``, until it has a position of its own or the group has left the topic. A topic
   that the group sees for the first time has not grown.
5. A draft is private to one fold. ``to_state`` gives the value, and shares with the group it
   was made from whatever did not change.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TypeVar

from offsetlog.core.group.assign import assign
from offsetlog.core.group.facts import (
    Fact,
    FactKind,
    Partition,
    decode_expulsion,
    decode_subscription,
    decode_topic,
)
from offsetlog.core.group.state import MAX_DEPARTURES, Departure, GroupState, Held, Member, Position

K = TypeVar("K")
V = TypeVar("V")


def partition_of(fact: Fact) -> Partition:
    """The partition of a fact that counts as one of a partition."""
    assert fact.topic is not None and fact.partition is not None
    return fact.topic, fact.partition


def member_of(fact: Fact) -> str:
    assert fact.member is not None
    return fact.member


def _shared(before: Mapping[K, V], after: dict[K, V]) -> Mapping[K, V]:
    """The mapping that was there before, where nothing in it changed."""
    return before if before == after else dict(after)


class GroupDraft:
    """A group under construction. Its fields are ``GroupState``'s, copied at the first change."""

    def __init__(self, group: GroupState) -> None:
        self._base = group
        self.touched = False
        self.name = group.name
        self.alive = group.alive
        self.generation = group.generation
        self.resets = group.resets
        self.members = dict(group.members)
        self.topics = dict(group.topics)
        self.added = set(group.added)
        self.targets = dict(group.targets)
        self.holders = dict(group.holders)
        self.positions = dict(group.positions)
        self.last_reset = dict(group.last_reset)
        self.reset_to = dict(group.reset_to)
        self.departures = group.departures
        self.active_at = group.active_at
        self._changed = False
        self._freed: set[Partition] = set()
        self._open_reset = -1

    def to_state(self) -> GroupState:
        """The value. What did not change is the very mapping that was there before."""
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
            positions=dict(self.positions),
            last_reset=_shared(base.last_reset, self.last_reset),
            reset_to=_shared(base.reset_to, self.reset_to),
            departures=self.departures,
            active_at=self.active_at,
        )

    @property
    def owner(self) -> Member | None:
        for member in self.members.values():
            return member if member.subscription.alone else None
        return None

    def may_reset(self, number: int) -> bool:
        """A reset's number is the next one; its rows share it, within one version."""
        return number == self.resets + 1 or number == self.resets == self._open_reset

    def reads(self, topic: str) -> bool:
        return any(
            topic in m.subscription.topics or m.subscription.alone for m in self.members.values()
        )

    # --- what a fact changes ---------------------------------------------------------------

    def apply(self, fact: Fact) -> None:
        self.touched = True
        _APPLY[fact.kind](self, fact)
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
        self.resets = self._open_reset = fact.reset
        partition = partition_of(fact)
        assert fact.offset is not None  # why_ignored made sure
        self.last_reset[partition], self.reset_to[partition] = fact.reset, fact.offset
        self._set_position(fact)

    def join(self, fact: Fact) -> None:
        name, subscription = member_of(fact), decode_subscription(fact.metadata)
        assert subscription is not None  # why_ignored made sure
        self.alive = True
        if subscription.alone:
            for other in [m for m in self.members if m != name]:
                self._remove_member(other)
                self._record_departure(
                    other, subscription.client or name, "it owns the group now", fact.version
                )
        before = self.members.get(name)
        if before is not None and before.subscription == subscription:
            return
        joined = before.joined if before is not None else self.generation + 1
        version = before.version if before is not None else fact.version
        self.members[name] = Member(name, subscription, joined, version)
        self._changed = True

    def leave(self, fact: Fact) -> None:
        self._remove_member(member_of(fact))

    def expel(self, fact: Fact) -> None:
        name = member_of(fact)
        expulsion = decode_expulsion(fact.metadata)
        self._record_departure(name, expulsion.by, expulsion.why, fact.version)
        self._remove_member(name)

    def topic(self, fact: Fact) -> None:
        view = decode_topic(fact.metadata)
        assert view is not None and fact.topic is not None  # why_ignored made sure
        before = self.topics.get(fact.topic)
        self.topics[fact.topic] = view
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

    def _set_position(self, fact: Fact) -> None:
        assert fact.offset is not None  # why_ignored made sure
        self.added.discard(partition_of(fact))
        self.positions[partition_of(fact)] = Position(
            fact.offset,
            fact.metadata,
            fact.committed_at,
            fact.member,
            fact.generation,
            fact.kind,
            fact.version,
        )

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

    def _record_departure(self, name: str, by: str, why: str, version: int) -> None:
        member = self.members.get(name)
        joined = member.joined if member is not None else self.generation
        departure = Departure(name, joined, by, why, version)
        self.departures = (*self.departures, departure)[-MAX_DEPARTURES:]

    def end_version(self) -> None:
        """Once after the last fact of a version: the generation, the targets, and what is free
        goes to its target."""
        if self._changed:
            self.generation += 1
            if self.owner is not None:
                self.targets, self.holders = {}, {}
            else:
                self.targets = self._assign()
            free = [p for p in self.targets if p not in self.holders]
        else:
            free = [p for p in sorted(self._freed) if p in self.targets]
        for partition in free:
            self.holders[partition] = Held(self.targets[partition], self.generation)
        self._changed, self._open_reset = False, -1
        self._freed.clear()

    def _assign(self) -> dict[Partition, str]:
        if not self.members:
            return {}
        return assign(
            next(iter(self.members.values())).subscription.strategy,
            {name: m.subscription.topics for name, m in self.members.items()},
            {topic: view.partitions for topic, view in self.topics.items()},
            {p: held.member for p, held in self.holders.items()},
        )


_APPLY: dict[str, Callable[[GroupDraft, Fact], None]] = {
    FactKind.COMMIT: GroupDraft.commit,
    FactKind.RELEASE: GroupDraft.release,
    FactKind.RESET: GroupDraft.reset,
    FactKind.JOIN: GroupDraft.join,
    FactKind.LEAVE: GroupDraft.leave,
    FactKind.EXPEL: GroupDraft.expel,
    FactKind.TOPICS: GroupDraft.topic,
    FactKind.DELETE: GroupDraft.delete,
}
