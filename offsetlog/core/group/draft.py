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
5. A draft is private to one fold. ``frozen`` gives the value, and shares with the group it
   was made from whatever did not change.
"""

from __future__ import annotations

from collections.abc import Callable

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


def partition_of(fact: Fact) -> Partition:
    """The partition of a fact that was judged to have one."""
    assert fact.topic is not None and fact.partition is not None
    return fact.topic, fact.partition


def member_of(fact: Fact) -> str:
    assert fact.member is not None
    return fact.member


class Draft:
    """A group under construction. Its fields are ``GroupState``'s, copied at the first change."""

    def __init__(self, group: GroupState) -> None:
        self.was = group
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
        self.marks = dict(group.marks)
        self.reset_to = dict(group.reset_to)
        self.gone = group.gone
        self.active_at = group.active_at
        self._changed = False
        self._freed: set[Partition] = set()
        self._open_reset = -1

    def frozen(self) -> GroupState:
        """The value. What did not change is the very mapping that was there before."""
        was = self.was
        return GroupState(
            name=self.name,
            alive=self.alive,
            generation=self.generation,
            resets=self.resets,
            members=was.members if was.members == self.members else dict(self.members),
            topics=was.topics if was.topics == self.topics else dict(self.topics),
            added=was.added if was.added == self.added else frozenset(self.added),
            targets=was.targets if was.targets == self.targets else dict(self.targets),
            holders=was.holders if was.holders == self.holders else dict(self.holders),
            positions=dict(self.positions),
            marks=was.marks if was.marks == self.marks else dict(self.marks),
            reset_to=was.reset_to if was.reset_to == self.reset_to else dict(self.reset_to),
            gone=self.gone,
            active_at=self.active_at,
        )

    @property
    def owner(self) -> Member | None:
        for member in self.members.values():
            return member if member.said.alone else None
        return None

    def may_reset(self, number: int) -> bool:
        """A reset's number is the next one; its rows share it, within one version."""
        return number == self.resets + 1 or number == self.resets == self._open_reset

    def reads(self, topic: str) -> bool:
        return any(topic in m.said.topics or m.said.alone for m in self.members.values())

    # --- what a fact changes ---------------------------------------------------------------

    def apply(self, fact: Fact) -> None:
        self.touched = True
        _APPLY[fact.kind](self, fact)
        if fact.kind not in (FactKind.TOPICS, FactKind.DELETE):
            self.active_at = max(self.active_at, fact.committed_at)

    def commit(self, fact: Fact) -> None:
        self.alive = True
        self._put(fact)

    def release(self, fact: Fact) -> None:
        partition = partition_of(fact)
        if fact.offset is not None and fact.reset >= self.marks.get(partition, 0):
            self._put(fact)
        if self.owner is None:
            del self.holders[partition]
            self._freed.add(partition)

    def reset(self, fact: Fact) -> None:
        self.alive = True
        self.resets = self._open_reset = fact.reset
        partition = partition_of(fact)
        assert fact.offset is not None  # judged
        self.marks[partition], self.reset_to[partition] = fact.reset, fact.offset
        self._put(fact)

    def join(self, fact: Fact) -> None:
        name, said = member_of(fact), decode_subscription(fact.metadata)
        assert said is not None  # judged
        self.alive = True
        if said.alone:
            for other in [m for m in self.members if m != name]:
                self._drop(other)
                self._remember(other, said.client or name, "it owns the group now", fact.version)
        before = self.members.get(name)
        if before is not None and before.said == said:
            return
        joined = before.joined if before is not None else self.generation + 1
        version = before.version if before is not None else fact.version
        self.members[name] = Member(name, said, joined, version)
        self._changed = True

    def leave(self, fact: Fact) -> None:
        self._drop(member_of(fact))

    def expel(self, fact: Fact) -> None:
        name = member_of(fact)
        said = decode_expulsion(fact.metadata)
        self._remember(name, said.by, said.why, fact.version)
        self._drop(name)

    def topic(self, fact: Fact) -> None:
        view = decode_topic(fact.metadata)
        assert view is not None and fact.topic is not None  # judged
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
        self.positions, self.added, self.gone, self.active_at = {}, set(), (), 0

    def _put(self, fact: Fact) -> None:
        assert fact.offset is not None  # judged
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
        return any(topic in m.said.topics for m in self.members.values()) or any(
            topic == name for name, _ in self.positions
        )

    def _drop(self, name: str) -> None:
        del self.members[name]
        held = [p for p, h in self.holders.items() if h.member == name]
        for partition in held:
            del self.holders[partition]
        self._freed.update(held)
        self._changed = True

    def _remember(self, name: str, by: str, why: str, version: int) -> None:
        member = self.members.get(name)
        joined = member.joined if member is not None else self.generation
        left = Departure(name, joined, by, why, version)
        self.gone = (*self.gone, left)[-MAX_DEPARTURES:]

    # --- the end of a version --------------------------------------------------------------

    def settle(self, version: int) -> None:
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
            next(iter(self.members.values())).said.strategy,
            {name: m.said.topics for name, m in self.members.items()},
            {topic: view.partitions for topic, view in self.topics.items()},
            {p: held.member for p, held in self.holders.items()},
        )


_APPLY: dict[str, Callable[[Draft, Fact], None]] = {
    FactKind.COMMIT: Draft.commit,
    FactKind.RELEASE: Draft.release,
    FactKind.RESET: Draft.reset,
    FactKind.JOIN: Draft.join,
    FactKind.LEAVE: Draft.leave,
    FactKind.EXPEL: Draft.expel,
    FactKind.TOPICS: Draft.topic,
    FactKind.DELETE: Draft.delete,
}
