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
from collections.abc import Callable, Mapping

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
    """Keep what is held, hand out what is free, then pass on from the loaded to the idle."""

    def __init__(
        self, readers: Readers, counts: dict[str, int], holders: Mapping[Partition, str]
    ) -> None:
        self.readers = {topic: readers[topic] for topic in counts}
        self.counts = counts
        self.holders = holders
        members = sorted({name for who in self.readers.values() for name in who})
        self.load = dict.fromkeys(members, 0)
        self.has: dict[str, dict[str, set[int]]] = {name: {} for name in members}
        self.owners: Assignment = {}

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
        for partition_ in sorted(free, key=lambda p: (len(self.readers[p[0]]), p)):
            self._give(partition_, self._idlest(partition_[0]))
        while self._relieve():
            pass
        return {p: self.owners[p] for p in sorted(self.owners)}

    def _idlest(self, topic: str) -> str:
        return min(
            self.readers[topic],
            key=lambda name: (self.load[name], len(self.has[name].get(topic, ())), name),
        )

    def _give(self, partition: Partition, name: str) -> None:
        before = self.owners.get(partition)
        if before is not None:
            self.load[before] -= 1
            self.has[before][partition[0]].discard(partition[1])
        self.owners[partition] = name
        self.load[name] += 1
        self.has[name].setdefault(partition[0], set()).add(partition[1])

    def _relieve(self) -> bool:
        """Pass one partition on from the most loaded member that can be relieved. Each time
        the sum of squared loads falls, so this ends."""
        least = min(self.load.values(), default=0)
        givers = [name for name, load in self.load.items() if load - least >= 2]
        for giver in sorted(givers, key=lambda name: (-self.load[name], name)):
            path = self._path(giver)
            for partition, taker in path:
                self._give(partition, taker)
            if path:
                return True
        return False

    def _path(self, giver: str) -> list[tuple[Partition, str]]:
        """The shortest chain of hand-overs to the idlest member with two fewer, or nothing."""
        came: dict[str, tuple[str, str] | None] = {giver: None}
        steps = {giver: 0}
        seen: set[str] = set()
        queue = deque([giver])
        while queue:
            name = queue.popleft()
            for topic in sorted(t for t, p in self.has[name].items() if p and t not in seen):
                seen.add(topic)
                for taker in self.readers[topic]:
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
            path.append((self._spare(source, topic), name))
            name = source
        return path

    def _spare(self, name: str, topic: str) -> Partition:
        """Rather one that is on the move anyway than one that stays where it is."""
        return max(
            ((topic, p) for p in self.has[name][topic]),
            key=lambda p: (self.holders.get(p) != name, p),
        )


STRATEGIES: dict[str, Callable[[Readers, dict[str, int], Mapping[Partition, str]], Assignment]] = {
    RANGE: _range,
    ROUND_ROBIN: _round_robin,
    STICKY: _sticky,
}
