"""Which member is to read which partition.

Rules of this module:

1. A function of its arguments alone, whatever their order: all members compute the same.
   A change of its answers needs a new ``RULES_VERSION``.
2. Complete: each partition of a topic with subscribers has exactly one owner, and the owner
   subscribes to that topic.
3. ``range`` and ``roundrobin`` are Kafka's. ``sticky`` is balanced (nobody could hand one
   over, directly or through others, to a member with two fewer), and with equal
   subscriptions it moves as few partitions as any balanced assignment can.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from heapq import heapify, heappop, heappush, heapreplace
from itertools import groupby
from operator import itemgetter

from offsetlog.core.group.facts import Partition
from offsetlog.errors import InvalidRequestError

RANGE = "range"
ROUND_ROBIN = "roundrobin"
STICKY = "sticky"

Subscriptions = Mapping[str, tuple[str, ...]]
Assignment = dict[Partition, str]


def assign(
    strategy: str,
    subscriptions: Subscriptions,
    counts: Mapping[str, int],
    holders: Mapping[Partition, str],
) -> Assignment:
    """The owner of each partition. ``holders`` is who has them now."""
    readers = {
        topic: sorted(m for m, topics in subscriptions.items() if topic in topics)
        for topic in sorted(counts)
    }
    read = {topic: counts[topic] for topic, who in readers.items() if who and counts[topic] > 0}
    return STRATEGIES[check_strategy(strategy)](readers, read, holders)


def check_strategy(name: str) -> str:
    if name not in STRATEGIES:
        raise InvalidRequestError(
            f"{name!r} is not an assignment strategy.",
            f"Use one of {', '.join(sorted(STRATEGIES))}.",
        )
    return name


Readers = dict[str, list[str]]


def _range(readers: Readers, counts: dict[str, int], _: Mapping[Partition, str]) -> Assignment:
    owners: Assignment = {}
    for topic, count in counts.items():
        who = readers[topic]
        share, more = divmod(count, len(who))
        sizes = [share + (1 if i < more else 0) for i in range(len(who))]
        names = [name for name, size in zip(who, sizes, strict=True) for _ in range(size)]
        owners.update({(topic, p): name for p, name in enumerate(names)})
    return owners


def _round_robin(
    readers: Readers, counts: dict[str, int], _: Mapping[Partition, str]
) -> Assignment:
    ring = sorted({name for topic in counts for name in readers[topic]})
    allowed = {topic: set(readers[topic]) for topic in counts}
    owners: Assignment = {}
    turn = 0
    for topic, count in counts.items():
        for partition in range(count):
            while ring[turn % len(ring)] not in allowed[topic]:
                turn += 1
            owners[topic, partition] = ring[turn % len(ring)]
            turn += 1
    return owners


def _sticky(
    readers: Readers, counts: dict[str, int], holders: Mapping[Partition, str]
) -> Assignment:
    return _Sticky(readers, counts, holders).solve()


class _Sticky:
    """Keep what is held, hand out what is free, then pass on from the loaded to the idle.

    Topics with the same readers are one class: for who could relieve whom they are all alike, so
    the search looks at classes, and a hand-over costs members and classes, not partitions."""

    def __init__(
        self, readers: Readers, counts: dict[str, int], holders: Mapping[Partition, str]
    ) -> None:
        self.readers = {topic: readers[topic] for topic in counts}
        self.counts = counts
        self.holders = holders
        members = sorted({name for who in self.readers.values() for name in who})
        self.load = dict.fromkeys(members, 0)
        self.held = {name: dict.fromkeys(counts, 0) for name in members}
        """How many partitions of each topic a member has."""
        self.owners: Assignment = {}
        self.classes: dict[tuple[str, ...], list[str]] = {}
        for topic in sorted(counts):
            self.classes.setdefault(tuple(self.readers[topic]), []).append(topic)
        self.classes_of: dict[str, list[tuple[str, ...]]] = {name: [] for name in members}
        for who in self.classes:
            for name in who:
                self.classes_of[name].append(who)
        self.topics: dict[tuple[str, tuple[str, ...]], list[str]] = {}
        """A heap of the topics of a class of which a member has something, or had."""
        self.spares: dict[tuple[str, str], list[tuple[bool, int]]] = {}
        """A heap of what a member has of a topic, or had, the first to be passed on first."""

    def solve(self) -> Assignment:
        free: list[Partition] = []
        for topic, count in self.counts.items():
            allowed = set(self.readers[topic])
            for partition in range(count):
                holder = self.holders.get((topic, partition))
                if holder is not None and holder in allowed:
                    self._give((topic, partition), holder)
                else:
                    free.append((topic, partition))
        # The topics that fewest may read first, since those have the least choice.
        free.sort(key=lambda p: (len(self.readers[p[0]]), p))
        for topic, partitions in groupby(free, key=itemgetter(0)):
            self._hand_out(topic, partitions)
        while self._relieve():
            pass
        return {p: self.owners[p] for p in sorted(self.owners)}

    def _hand_out(self, topic: str, partitions: Iterable[Partition]) -> None:
        """Each to the member with the least, of all topics and then of this one."""
        idlest = [(self.load[m], self.held[m][topic], m) for m in self.readers[topic]]
        heapify(idlest)
        for partition in partitions:
            load, held, name = idlest[0]
            self._give(partition, name)
            heapreplace(idlest, (load + 1, held + 1, name))

    def _give(self, partition: Partition, name: str) -> None:
        topic, number = partition
        before = self.owners.get(partition)
        if before is not None:
            self.load[before] -= 1
            self.held[before][topic] -= 1
        self.owners[partition] = name
        self.load[name] += 1
        self.held[name][topic] += 1
        if self.held[name][topic] == 1:
            of_class = self.topics.setdefault((name, tuple(self.readers[topic])), [])
            heappush(of_class, topic)
        # Rather one that is on the move anyway than one that stays where it is.
        stays = self.holders.get(partition) == name
        heappush(self.spares.setdefault((name, topic), []), (stays, -number))

    def _relieve(self) -> bool:
        """Pass one partition on from the most loaded member that can be relieved. Each time
        the sum of squared loads falls, so this ends."""
        for giver in self._givers():
            path = self._path(giver)
            for partition, taker in path:
                self._give(partition, taker)
            if path:
                return True
        return False

    def _givers(self) -> Iterator[str]:
        """Who has two more than another, the most loaded first."""
        least = min(self.load.values(), default=0)
        givers = [(-load, name) for name, load in self.load.items() if load - least >= 2]
        if givers:
            yield min(givers)[1]  # It is mostly the one, and sorting takes longer.
            yield from [name for _, name in sorted(givers)[1:]]

    def _path(self, giver: str) -> list[tuple[Partition, str]]:
        """The shortest chain of hand-overs to the idlest member with two fewer, or nothing."""
        came: dict[str, tuple[str, str] | None] = {giver: None}
        steps = {giver: 0}
        seen: set[tuple[str, ...]] = set()
        queue = deque([giver])
        while queue:
            name = queue.popleft()
            first = ((self._first(name, c), c) for c in self.classes_of[name] if c not in seen)
            for topic, who in sorted((topic, who) for topic, who in first if topic is not None):
                seen.add(who)
                for taker in who:
                    if taker not in came:
                        came[taker] = (name, topic)
                        steps[taker] = steps[name] + 1
                        queue.append(taker)
        best = min(came, key=lambda name: (self.load[name], steps[name], name))
        if self.load[giver] - self.load[best] < 2:
            return []
        path: list[tuple[Partition, str]] = []
        name = best
        while (link := came[name]) is not None:
            source, topic = link
            path.append(((topic, self._spare(source, topic)), name))
            name = source
        return path

    def _first(self, name: str, who: tuple[str, ...]) -> str | None:
        """The first topic of a class of which a member has a partition."""
        topics = self.topics.get((name, who), [])
        while topics and not self.held[name][topics[0]]:
            heappop(topics)
        return topics[0] if topics else None

    def _spare(self, name: str, topic: str) -> int:
        """The partition that a member passes on: the last of those that it did not have before."""
        spares = self.spares[name, topic]
        while self.owners[topic, -spares[0][1]] != name:
            heappop(spares)
        return -spares[0][1]


STRATEGIES: dict[str, Callable[[Readers, dict[str, int], Mapping[Partition, str]], Assignment]] = {
    RANGE: _range,
    ROUND_ROBIN: _round_robin,
    STICKY: _sticky,
}
