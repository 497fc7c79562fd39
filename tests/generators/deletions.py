"""Records that are deleted, erased and compacted away, in entries and segments that they share with
live ones, beside upkeep with and without a grace period, a table and programs that begin anew.

1. At any time what is read is what was sent and not deleted; of a compacted topic, at least the
   newest record of each key.
2. Some grace periods later no entry and no segment holds another value than those that are read.
3. Then a round of upkeep adds no entry, and the log is sound.

The clock is the history's, so grace periods take no time.
"""

from __future__ import annotations

import itertools
import random
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from unittest import mock

import pyarrow as pa

from offsetlog.engine.upkeep.maintenance import Maintenance
from tests.engine.upkeep.clocked import ClockedLog, ClockedStore
from tests.engine.upkeep.test_compaction import COMPACT, read, sound
from tests.engine.upkeep.test_deleted_rows import stored_values
from tests.generators.registry import OPERATIONS, Bug

HOUR = 3_600_000
GRACE = 24 * HOUR
ROUNDS, IDLE = 14, 3  # Producers are forgotten after a week, which is an entry too.
Row = tuple[int, bytes, bytes]
"""Offset, key and value."""


class _TableStore(ClockedStore):
    """As if a reader of Delta could reach it: a topic may be a table."""

    def delta_address(self, folder: str) -> str:
        return f"memory://deletions/{folder}"


class _History:
    def __init__(self, seed: int) -> None:
        self.rng = rng = random.Random(seed)
        self.counts: Counter[str] = Counter()
        self.clocked = ClockedLog(min_files=rng.choice((2, 4, 8)), store=_TableStore)
        self.keys = [b"key-%d" % number for number in range(6)]
        self.erases = rng.random() < 0.5
        """Else rows go by deletion alone, and stay where taking them out saves little."""
        self.compacts = self.erases and rng.random() < 0.8
        config = {"compression.type": "none", "retention.ms": "-1"}
        if self.compacts:
            config |= COMPACT | {"delete.retention.ms": str(10 * HOUR)}
        if rng.random() < 0.4:
            config["table.format"] = "delta"
        if rng.random() < 0.4:
            config["segment.bytes"] = str(2**20)
        partitions = rng.choice((1, 2, 3))
        self.clocked.log.create_topic("t", partitions=partitions, config=config)
        self.live: list[list[Row]] = [[] for _ in range(partitions)]
        """What was sent to each partition and not deleted since."""
        self.ends = [0] * partitions
        self.numbers = itertools.count()

    @property
    def topic(self) -> Any:
        return self.clocked.log.topic("t")

    def send(self) -> None:
        count, size = self.rng.choice((1, 3, 20)), self.rng.choice((1, 1, 600))
        rows = []
        for _ in range(count):
            value = b"value-%06d-" % next(self.numbers) + b"x" * size
            rows.append((self.rng.randrange(len(self.live)), self.rng.choice(self.keys), value))
        partition, key, value = zip(*rows, strict=True)
        with self.clocked.log.producer() as producer:
            producer.send_arrow("t", pa.table({"partition": partition, "key": key, "value": value}))
        for number, *record in rows:
            self.live[number].append((self.ends[number], *record))
            self.ends[number] += 1

    def erase(self) -> None:
        if not self.erases:
            self.delete()
            return
        keys = self.rng.sample(self.keys, self.rng.randint(1, 2))
        self.topic.erase(keys=keys)
        self.counts["erased"] += len(keys)
        self.live = [[row for row in rows if row[1] not in keys] for rows in self.live]

    def delete(self) -> None:
        number = self.rng.randrange(len(self.live))
        before = self.rng.randint(0, self.ends[number])
        self.topic.delete_records({number: before})
        self.counts["deleted"] += 1
        self.live[number] = [row for row in self.live[number] if row[0] >= before]

    def maintain(self) -> None:
        self.clocked.log.maintain("t", grace_ms=self.rng.choice((0, GRACE, GRACE)))

    def change_table(self) -> None:
        self.topic.alter(config={"table.format": self.rng.choice(("delta", "none"))})

    def reopen(self) -> None:
        self.clocked.reopen()

    def check(self) -> None:
        there = read(self.clocked.log)
        for number, rows in enumerate(self.live):
            expected, found = set(rows), set(there.get(number, []))
            if self.compacts:
                expected = set({row[1]: row for row in rows}.values())
            assert expected <= found, f"partition {number} lost {sorted(expected - found)[:3]}"
            assert found <= set(rows), f"partition {number} has {sorted(found - set(rows))[:3]}"

    def run(self) -> None:
        steps = (self.send, self.erase, self.maintain, self.delete, self.change_table, self.reopen)
        for _ in range(self.rng.randint(5, 30)):
            [step] = self.rng.choices(steps, (45, 15, 20, 10, 4, 6))
            step()
            self.counts[OPERATIONS] += 1
            self.clocked.wait(self.rng.choice((0, 60_000, HOUR, GRACE)))
        self.check()
        tips = []
        for _ in range(ROUNDS + IDLE):
            self.clocked.wait(GRACE + 1)
            self.clocked.log.maintain("t", grace_ms=GRACE)
            tips.append(self.clocked.log.open_topic("t").state().tip)
        self.check()
        read_now = {row[2] for rows in read(self.clocked.log).values() for row in rows}
        left = stored_values(self.clocked) - read_now
        assert not left, f"{len(left)} values are stored that nobody reads: {sorted(left)[:3]}"
        assert tips[-1] == tips[-1 - IDLE], f"idle rounds added entries: {tips}"
        sound(self.clocked.log)


def history(seed: int, folder: Path) -> Counter[str]:
    """One history; what is wrong is raised. It needs no folder: its files lie in memory."""
    made = _History(seed)
    try:
        made.run()
    finally:
        made.clocked.close()
    return made.counts


# --- planted bugs --------------------------------------------------------------------------


@contextmanager
def _not_looked_at_again() -> Iterator[None]:
    """An entry that was needed, below others that were left with their rows, is passed over."""
    true = Maintenance._note

    def note(self: Maintenance) -> Any:
        found = true(self)
        return found._replace(stubbed_to=max(found.stubbed_to, found.left_from))

    with mock.patch.object(Maintenance, "_note", note):
        yield


@contextmanager
def _shared_files_stay() -> Iterator[None]:
    def part_from_deleted(self: Maintenance, now_ms: int, note: Any) -> Any:
        return note, 0, 0

    with mock.patch.object(Maintenance, "_part_from_deleted", part_from_deleted):
        yield


@contextmanager
def _collects_for_nothing() -> Iterator[None]:
    with mock.patch.object(Maintenance, "_has_news", lambda self, after, to: True):
        yield


PLANTED = {
    "an entry that was needed is not looked at again": Bug(_not_looked_at_again),
    "deleted rows stay beside live ones": Bug(_shared_files_stay),
    "each round collects": Bug(_collects_for_nothing),
}
