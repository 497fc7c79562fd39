"""What the facts add up to: the table, its groups, their members and positions.

Rules of this module:

1. Values only. A state is a pure function of the facts up to its ``version``; nobody changes
   one in place, and states share what they have in common.
2. Every partition has at most one holder, and a holder is a present member.
3. ``generation`` and ``resets`` only grow, also over the deletion of the group: a deleted
   group stays here as ``alive=False``, with its numbers and its newest topic views, so that
   what was old before the deletion is old after it.
4. ``targets`` says who is to hold a partition, ``holders`` who does. They differ until the
   old holder has released it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from offsetlog.core.group.facts import Partition, Subscription, TopicView

MAX_DEPARTURES = 32
"""How many expulsions a group remembers, so that an expelled member learns by whom."""


class Member(NamedTuple):
    name: str
    subscription: Subscription
    joined: int
    """The generation that its joining made. A name that joins again is another member."""
    version: int


class Held(NamedTuple):
    """Who holds a partition, and since which generation: progress made earlier is not its."""

    member: str
    since: int


class Position(NamedTuple):
    offset: int
    metadata: str
    committed_at: int
    member: str | None
    generation: int
    kind: str
    version: int
    """Table version of the fact that it rests on."""


class Departure(NamedTuple):
    """An expulsion: of which membership, by whom and why."""

    member: str
    joined: int
    by: str
    why: str
    version: int


class GroupState(NamedTuple):
    name: str
    alive: bool = False
    generation: int = 0
    resets: int = 0
    """The group's reset number."""
    members: Mapping[str, Member] = {}
    topics: Mapping[str, TopicView] = {}
    added: frozenset[Partition] = frozenset()
    """Partitions by which a topic grew while the group had a member or a position in it, and that
    have had no position yet: none of their records may be missed, so they are read from their
    start."""
    targets: Mapping[Partition, str] = {}
    holders: Mapping[Partition, Held] = {}
    positions: Mapping[Partition, Position] = {}
    last_reset: Mapping[Partition, int] = {}
    """The number of each partition's last reset. It outlives the group, like ``resets``."""
    reset_to: Mapping[Partition, int] = {}
    """Where that reset put it, whatever became of the position since: who follows it later goes
    there. It has the same partitions as ``last_reset``."""
    departures: tuple[Departure, ...] = ()
    active_at: int = 0
    """The latest ``committed_at`` of anything a member or an administrator did."""

    @property
    def owner(self) -> Member | None:
        """The member that owns the group alone, if one does."""
        return owner_of(self.members)


def owner_of(members: Mapping[str, Member]) -> Member | None:
    """The one member, if it owns its group alone: then there is no other."""
    first = next(iter(members.values()), None)
    return first if first is not None and first.subscription.alone else None


class GroupsState(NamedTuple):
    """All groups at one version of the offsets table; -1: nothing is written yet."""

    version: int = -1
    groups: Mapping[str, GroupState] = {}

    def group(self, name: str) -> GroupState:
        """The group, or an empty one that is not alive."""
        return self.groups.get(name) or GroupState(name)


EMPTY = GroupsState()


def by_rules(table: GroupsState) -> GroupsState:
    """The table as every version folds it: without where members begin, which some pass over."""
    groups = {}
    for name, group in table.groups.items():
        members = {
            member: one._replace(subscription=one.subscription.rules)
            for member, one in group.members.items()
        }
        groups[name] = group._replace(members=members)
    return table._replace(groups=groups)


class Status:
    """A group's state, in Kafka's words."""

    DEAD = "Dead"
    EMPTY = "Empty"
    STABLE = "Stable"
    REBALANCING = "PreparingRebalance"


def status(group: GroupState) -> str:
    if not group.alive:
        return Status.DEAD
    if not group.members:
        return Status.EMPTY
    holders = {partition: held.member for partition, held in group.holders.items()}
    return Status.STABLE if holders == dict(group.targets) else Status.REBALANCING
