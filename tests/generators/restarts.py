"""Restarts with a difference: a query and its groups, against a model of docs/replay.md.

Between a plan and its restart, and between two runs, anything changes: options, the group's name,
records that retention took, a topic that was deleted or recreated, an added partition, a restored
checkpoint; and its groups are reset, committed to, deleted, expire and are taken over.

The model is a position for each partition and the number of the reset that was followed:

1. A batch begins where the last one ended, but for partitions that its group reset since, which
   begin where the last reset put them, and for new ones, which begin at their start.
2. A batch that was planned reads the same rows however often it is run again, by whatever options;
   only what the log has no more is missing.
3. What is gone is an error with ``failOnDataLoss`` and only then.
4. Commits, deletions and expiries of a group, and other groups' resets, move no query.
"""

from __future__ import annotations

import copy
import random
from collections import Counter
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, NamedTuple

from offsetlog.core.group import membership
from offsetlog.core.group.starting_offset import StartingOffset
from offsetlog.errors import FencedError, OffsetOutOfRangeError
from pyspark_offsetlog.options.spec import LogAddress
from pyspark_offsetlog.runtime.open_logs import open_log
from pyspark_offsetlog.source import (
    group_owner,
    micro_batches,
    next_batch,
    visibility,
)
from tests.generators.registry import OPERATIONS, Bug
from tests.simulation.planting import patched
from tests.spark_plugin.unit.engine import Checkpoint, Engine, at, fill, fresh_root
from tests.spark_plugin.unit.group_tools import committed

STEPS = 50
Tp = tuple[str, int]
STARTS = ("earliest", "latest", "-2", '{"orders":{"0":0,"1":0}}', '{"orders":{"0":99999,"1":0}}')
LIMITS: tuple[dict[str, Any], ...] = (
    {},
    {},
    {"maxOffsetsPerTrigger": 3},
    {"maxBytesPerTrigger": 40},
    {"minPartitions": 5, "maxOffsetsPerTrigger": 4},
)
STEP_KINDS = (
    ["append"] * 6 + ["batch"] * 9 + ["lose"] * 4 + ["reset"] * 6 + ["restart"] * 3
    + ["commit", "delete_group", "delete_offsets", "expire", "takeover", "backup", "backup"]
    + ["restore", "trim", "trim", "partition", "recreate", "delete_topic", "maintain"]
)  # fmt: skip


class Progress(NamedTuple):
    """What a checkpoint says."""

    positions: dict[Tp, int]
    mark: tuple[str, int] | None
    """The group, and the number of its last reset that these positions have followed."""
    planned: tuple[dict[Tp, int], dict[Tp, int], tuple[str, int] | None] | None = None
    """Begin, end and mark of a batch that was planned and is not done."""


class History:
    def __init__(self, seed: int) -> None:
        self.chance = random.Random(seed)
        self.root = fresh_root()
        self.log: Any = open_log(LogAddress(self.root))
        for topic in ("orders", "more"):
            self.log.create_topic(topic, partitions=2)
        self.checkpoint = Checkpoint()
        self.progress = Progress({}, None)
        self.resets: dict[str, list[tuple[int, Tp, int]]] = {"g": [], "h": []}
        self.joined: int | None = None
        """The group's last reset when the present run took it over."""
        self.backups: list[tuple[Checkpoint, Progress]] = []
        self.trace: list[Any] = []
        self.counts = Counter[str]()
        self.query: Engine | None = None
        self._start()

    def run(self) -> None:
        try:
            for _ in range(STEPS):
                step = self.chance.choice(STEP_KINDS)
                self.counts[OPERATIONS if step in ("append", "batch") else step] += 1
                getattr(self, f"_{step}")()
            self._end()
        except AssertionError:
            raise
        except Exception as error:
            raise AssertionError(self.trace[-12:]) from error
        finally:
            if self.query is not None:
                self.query.stop()

    # --- runs of the query -----------------------------------------------------------------

    def _start(self, **given: Any) -> None:
        chance = self.chance
        if self.query is not None and chance.random() < 0.5:
            self.query.stop()
        elif self.query is not None and self.query.run._owner is not None:
            # Killed, and long ago: its heart beats in a thread of this process.
            self.query.log.heartbeats.remove(self.query.run._owner.member)
        self.group = chance.choice(("g", "g", "g", "h", None))
        self.fails = chance.random() < 0.4
        is_there = "more" in self.log.topics()
        options: dict[str, Any] = {
            "subscribe" if is_there and chance.random() < 0.5 else "subscribePattern": "",
            "startingOffsets": chance.choice(STARTS) if self.checkpoint.wal else "earliest",
            "auto__offset__reset": chance.choice(("latest", "none", "earliest")),
            "failOnDataLoss": str(self.fails).lower(),
            **chance.choice(LIMITS),
            **given,
        }
        for name, value in (("subscribe", "orders,more"), ("subscribePattern", "orders|more")):
            if name in options:
                options[name] = value
        self.fails = options["failOnDataLoss"] == "true"
        if self.group:
            options["group__id"] = self.group
        self.query = Engine(self.root, self.checkpoint, **options)
        self.is_open = False
        self.trace.append(("start", options))

    def _open(self) -> Engine:
        assert self.query is not None
        if not self.is_open:
            kept, run = self.checkpoint.wal, self.query.run
            run._open(run._parse(kept[-1]) if kept else None)
            self.is_open = True
            self.joined = self._number(self.group) if self.group else None
        return self.query

    def _restart(self) -> None:
        self._start()

    def _batch(self, loses: bool = False) -> None:
        query = self._open()
        planned = self.progress.planned
        losses, begin = self._losses_of(planned) if planned else self._due()
        try:
            end = query.plan()
            rows = None if end is None else at(query.rows())
        except OffsetOutOfRangeError:
            assert self.fails and losses, ("nothing is lost", begin, self.trace[-12:])
            self.counts["loss reported"] += 1
            self._note_plan(begin)
            self._start(failOnDataLoss="false")
            return
        assert not (self.fails and losses), ("nobody was told", losses, self.trace[-12:])
        if rows is None:
            ends = {tp: high for tp, (_, high) in self._spans().items()}
            assert begin == ends == self.progress.positions, (begin, ends, self.trace[-12:])
            return
        if planned is None:
            self._note_plan(begin)
            planned = self.progress.planned
            assert planned is not None
        self.trace.append(("batch", begin, rows, "lost" if loses else ""))
        for tp in planned[1].keys() | rows.keys():
            first, to = begin.get(tp, 0), planned[1].get(tp, 0)
            expected = list(range(first, to)) if tp in begin else []
            assert rows.get(tp, []) == expected, (tp, begin, planned, rows, self.trace[-12:])
        if loses:
            self._start()
            return
        self.checkpoint.done = len(self.checkpoint.wal)
        self.progress = Progress(dict(planned[1]), planned[2])

    def _lose(self) -> None:
        """The driver dies in a batch."""
        self._batch(loses=True)

    def _note_plan(self, begin: dict[Tp, int]) -> None:
        """A batch was planned: it ends where the checkpoint says, from here on for ever."""
        wal = self.checkpoint.wal
        if self.progress.planned is not None or len(wal) == self.checkpoint.done:
            return
        end = {
            (topic, int(p)): to
            for topic, each in wal[-1].items()
            if not topic.startswith("@")
            for p, to in each.items()
        }
        for tp, to in end.items():
            assert begin[tp] <= to <= self._spans()[tp][1], (tp, begin, wal[-1], self.trace[-12:])
        mark = (self.group, self._number(self.group)) if self.group else None
        self.progress = self.progress._replace(planned=(begin, end, mark))

    # --- the model -------------------------------------------------------------------------

    def _number(self, group: str) -> int:
        return self.resets[group][-1][0] if self.resets[group] else 0

    def _due(self) -> tuple[set[Tp], dict[Tp, int]]:
        """What is lost, and where the next batch that is planned begins."""
        spans, (positions, mark, _) = self._spans(), self.progress
        begin = {tp: positions.get(tp, low) for tp, (low, _) in spans.items()}
        if self.group:
            is_known = mark is not None and mark[0] == self.group
            followed = mark[1] if is_known and mark is not None else self.joined
            assert followed is not None
            for number, tp, target in self.resets[self.group]:
                if number > followed and tp in spans:
                    low, high = spans[tp]
                    begin[tp] = target if low <= target <= high else low
        lost = {tp for tp in begin if begin[tp] < spans[tp][0]} | (positions.keys() - spans.keys())
        return lost, {tp: max(first, spans[tp][0]) for tp, first in begin.items()}

    def _losses_of(self, planned: Any) -> tuple[set[Tp], dict[Tp, int]]:
        """What is lost of a batch that was planned, and where its partitions begin now."""
        was, end, _ = planned
        spans, begin, lost = self._spans(), {}, set()
        topics = {topic for topic, _ in spans}
        for tp, to in end.items():
            first = was[tp]
            if tp in spans:
                first = max(first, min(spans[tp][0], to))
                begin[tp] = first
            elif tp[0] in topics:
                first = to
            if tp[0] not in topics or was[tp] < first:
                lost.add(tp)
        return lost, begin

    def _spans(self) -> dict[Tp, tuple[int, int]]:
        return {
            (name, partition): (low, self.log.topic(name).end_offsets()[partition])
            for name in self.log.topics()
            for partition, low in self.log.topic(name).beginning_offsets().items()
        }

    def _some(self) -> Tp:
        return self.chance.choice(sorted(self._spans()))

    # --- what happens to the topics ----------------------------------------------------------

    def _append(self) -> None:
        topic, partition = self._some()
        fill(self.log, topic, {partition: self.chance.randrange(1, 5)})

    def _trim(self) -> None:
        topic, partition = self._some()
        low, high = self._spans()[topic, partition]
        to = self.chance.randrange(low, high + 1)
        self.log.topic(topic).delete_records({partition: to})
        self.trace.append(("trim", topic, partition, to))

    def _partition(self) -> None:
        topic, _ = self._some()
        count = self.log.topic(topic).partitions
        if count < 4:
            self.log.topic(topic).alter(partitions=count + 1)
            self.trace.append(("partition", topic, count))

    def _recreate(self) -> None:
        if "more" in self.log.topics():
            self.log.delete_topic("more")
        self.log.create_topic("more", partitions=self.chance.randrange(1, 4))
        self.trace.append(("recreated",))

    def _delete_topic(self) -> None:
        if "more" in self.log.topics():
            self.log.delete_topic("more")
            self.trace.append(("deleted",))
            self._start()

    def _maintain(self) -> None:
        self.log.maintain(grace_ms=0)

    # --- what happens to the groups ----------------------------------------------------------

    def _reset(self) -> None:
        group, (topic, partition) = self.chance.choice(("g", "g", "h")), self._some()
        if not self.is_open and not self.checkpoint.wal:
            return
        spans = self._spans()
        both = self.chance.random() < 0.4
        tps = [tp for tp in spans if tp[0] == topic] if both else [(topic, partition)]
        to = self.chance.randrange(*map(sum, zip(spans[topic, partition], (0, 1), strict=True)))
        self.log.group(group).reset(topic, to=to, partitions=[p for _, p in tps], dry_run=False)
        number = self._number(group) + 1
        for tp in tps:
            low, high = spans[tp]
            self.resets[group].append((number, tp, min(max(to, low), high)))
        self.trace.append(("reset", group, tps, to, number))

    def _away(self, what: str, call: Callable[[str], object]) -> None:
        """Somebody does this to a group that nobody uses just now."""
        group = self.chance.choice(("g", "h"))
        if self.query is not None:
            self.query.stop()
        if group in self.log.groups():
            if self.log.group(group).members():
                self.log.group(group).remove_members()
            call(group)
            self.trace.append((what, group))
        self._start()

    def _delete_group(self) -> None:
        self._away("delete", lambda group: self.log.group(group).delete())

    def _delete_offsets(self) -> None:
        def delete(group: str) -> None:
            if any(tp.topic == "orders" for tp in self.log.group(group).committed()):
                self.log.group(group).delete_offsets("orders")

        self._away("delete offsets", delete)

    def _commit(self) -> None:
        def commit(group: str) -> None:
            low, high = self._spans()["orders", 0]
            with self.log.consumer(group=group) as consumer:
                consumer.assign([("orders", 0)])
                consumer.commit({("orders", 0): self.chance.randrange(low, high + 1)})

        self._away("commit", commit)

    def _expire(self) -> None:
        def expire(group: str) -> None:
            self.log.maintain(grace_ms=0, offsets_retention_minutes=0)
            assert group not in self.log.groups()

        self._away("expire", expire)

    def _takeover(self) -> None:
        """Another query takes the group of this one, for a while."""
        if self.group is None or self.progress.planned is not None:
            return
        self._open()
        options = {
            "subscribePattern": "orders|more",
            "group__id": self.group,
            "group__takeover": "true",
        }
        other = Engine(self.root, startingOffsets="latest", **options)
        other.batch()
        try:
            assert self.query is not None
            self.query.plan()
        except FencedError:
            self.trace.append(("taken over", self.group))
        except OffsetOutOfRangeError:
            assert self.fails
        else:
            raise AssertionError(("two queries own a group", self.trace[-12:]))
        other.stop()
        self._start()

    # --- checkpoints -----------------------------------------------------------------------

    def _backup(self) -> None:
        kept = copy.deepcopy((self.checkpoint.wal, self.checkpoint.done))
        backup = Checkpoint()
        backup.wal, backup.done = kept
        self.backups.append((backup, self.progress))

    def _restore(self) -> None:
        backups = [backup for backup in self.backups if backup[0].wal]
        if not backups or self.chance.random() < 0.5:
            return
        checkpoint, self.progress = self.chance.choice(backups)
        self.checkpoint = copy.deepcopy(checkpoint)
        self.trace.append(("restored", self.progress))
        self._start()

    # --- the end -----------------------------------------------------------------------------

    def _end(self) -> None:
        """A last run reads all that is left, and its group stands there."""
        self._start(failOnDataLoss="false")
        while True:
            before = (len(self.checkpoint.wal), self.checkpoint.done)
            self._batch()
            if before == (len(self.checkpoint.wal), self.checkpoint.done):
                break
        if self.group:
            group = committed(self.log, self.group)
            for tp, (low, high) in self._spans().items():
                stands = group.get(tp, low)
                assert stands == high or low == high, (tp, group, high, self.trace[-12:])


def at_once() -> AbstractContextManager[None]:
    """Nothing is waited for, and each look is a fresh one."""
    return patched(
        [
            (group_owner, "IDLE_LOOK", 0.0),
            (micro_batches, "IDLE_LOOK", 0.0),
            (visibility, "LOOK_SECONDS", 0.001),
        ]
    )


def history(seed: int, folder: Path) -> Counter[str]:
    with at_once():
        made = History(seed)
        try:
            made.run()
        finally:
            for name in list(made.log.store.folders("")):
                made.log.store.delete_tree(name)
    return made.counts


# --- planted bugs --------------------------------------------------------------------------


def _group_decides() -> AbstractContextManager[None]:
    """A query that follows a reset goes to where its group stands by then."""

    def stands(group: Any, followed: int, spans: Any, policy: str) -> Any:
        moved = membership.follow_resets(group, followed, spans, policy)
        return {
            tp: StartingOffset(group.positions[tp].offset) if tp in group.positions else start
            for tp, start in moved.items()
        }

    return patched([(next_batch, "follow_resets", stands)])


def _any_group_s_number_counts() -> AbstractContextManager[None]:
    """A checkpoint's reset number is compared with any group's."""

    def followed(self: Any, offset: Any) -> int | None:
        owner = self._owner
        return 0 if owner is None else None if offset.reset is None else offset.reset

    return patched([(micro_batches.QueryRun, "_followed", followed)])


PLANTED = {
    "a reset is followed to where the group stands": Bug(_group_decides),
    "the number of another group's reset counts": Bug(_any_group_s_number_counts),
}
