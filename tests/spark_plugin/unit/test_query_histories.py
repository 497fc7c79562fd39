"""Random histories of a query whose topics change under it: whatever is appended, trimmed, added,
made anew, reset, and however often the driver dies, what is read next of a partition is what a
list of plain positions says, and at the end nothing is left."""

from __future__ import annotations

import os
import random
from typing import Any

import pytest

from pyspark_offsetlog.options.spec import LogAddress
from pyspark_offsetlog.runtime.open_logs import open_log
from tests.spark_plugin.unit.engine import Checkpoint, Row, at, fill, fresh_root
from tests.spark_plugin.unit.group_tools import committed

HISTORIES = min(300, int(os.environ.get("OFFSETLOG_HISTORIES", "20")))
STEPS = 70
LIMITS: tuple[dict[str, Any], ...] = (
    {},
    {"maxOffsetsPerTrigger": 3},
    {"maxOffsetsPerTrigger": 7},
    {"maxBytesPerTrigger": 40},
    {"minOffsetsPerTrigger": 4, "maxTriggerDelay": "0s"},
    {"minPartitions": 5, "maxOffsetsPerTrigger": 4},
)
WHAT = (
    ["append"] * 3 + ["batch"] * 4 + ["reset"] * 3
    + ["crash", "lost", "partition", "topic", "trim", "maintain", "now", "anew"]
)  # fmt: skip


class History:
    def __init__(self, seed: int, running: Any) -> None:
        self.chance = random.Random(seed)
        root = fresh_root()
        self.log = open_log(LogAddress(root))
        self.topics = ["orders"]
        self.log.create_topic("orders", partitions=2)
        given = {"startingOffsets": "earliest", "group__id": "g", "failOnDataLoss": "false"}
        self.by_pattern = self.chance.random() < 0.5
        if self.by_pattern:
            given["subscribePattern"] = "ord"
        else:
            given["subscribe"] = "orders,ord1"
            self._topic()
        given.update(self.chance.choice(LIMITS))
        self.checkpoint = Checkpoint()
        self._start = lambda: running(root, self.checkpoint, **given)
        self.query = self._start()
        self.position: dict[tuple[str, int], int] = {}
        self.told: list[Any] = []

    def step(self) -> None:
        what = self.chance.choice(WHAT)
        topic = self.chance.choice(self.topics)
        partition = self.chance.randrange(self.log.topic(topic).partitions)
        self.told.append((what, topic, partition))
        getattr(self, f"_{what}")(topic, partition)

    # --- what happens ----------------------------------------------------------------------

    def _append(self, topic: str, partition: int) -> None:
        fill(self.log, topic, {partition: self.chance.randrange(1, 6)})

    def _partition(self, topic: str, _: int) -> None:
        count = self.log.topic(topic).partitions
        if count < 4:
            self.log.topic(topic).alter(partitions=count + 1)

    def _topic(self, *_: Any) -> None:
        if len(self.topics) < (4 if self.by_pattern else 2):
            self.topics.append(f"ord{len(self.topics)}")
            self.log.create_topic(self.topics[-1])

    def _anew(self, topic: str, _: int) -> None:
        if topic != "orders" and self.chance.random() < 0.5:
            self.log.delete_topic(topic)
            self.log.create_topic(topic)
            for tp in [tp for tp in self.position if tp[0] == topic and tp[1] > 0]:
                del self.position[tp]

    def _trim(self, topic: str, partition: int) -> None:
        low, high = self._spans()[topic, partition]
        self.log.topic(topic).delete_records({partition: self.chance.randrange(low, high + 1)})

    def _maintain(self, *_: Any) -> None:
        self.log.maintain(grace_ms=0)

    def _reset(self, topic: str, partition: int) -> None:
        if not self.checkpoint.wal or "g" not in self.log.groups():
            return  # A query without a checkpoint starts where its options say.
        others = range(self.log.topic(topic).partitions)
        for each in {partition, *(p for p in others if self.chance.random() < 0.4)}:
            if self.chance.random() < 0.3:
                fill(self.log, topic, {each: 2})  # The query has not seen these yet.
            low, high = self._spans()[topic, each]
            to = self.chance.randrange(low, high + 1)
            self.log.group("g").reset(topic, to=to, partitions=[each], dry_run=False)
            self.position[topic, each] = to
            self.told.append(("to", topic, each, to))

    def _crash(self, *_: Any) -> None:
        self.query = self._start()

    def _now(self, *_: Any) -> None:
        self.query = self._start().available_now()
        if self.chance.random() < 0.5:
            self._follow(self.query.drain())
            self.query = self._start()

    def _batch(self, *_: Any) -> None:
        self._follow(self.query.batch() or [])

    def _lost(self, topic: str, partition: int) -> None:
        """The driver dies in a batch, and more happens before that is run again."""
        if self.query.plan() is None:
            return
        rows = self.query.rows()
        self._follow(rows)
        self._append(topic, partition)
        self._reset(topic, partition)
        self._maintain()
        self.query = self._start()
        assert self.query.batch() == rows, self.told[-9:]

    # --- what must hold --------------------------------------------------------------------

    def _spans(self) -> dict[tuple[str, int], tuple[int, int]]:
        return {
            (name, partition): (low, self.log.topic(name).end_offsets()[partition])
            for name in self.topics
            for partition, low in self.log.topic(name).beginning_offsets().items()
        }

    def _follow(self, rows: list[Row]) -> None:
        self.told.append(at(rows))
        spans = self._spans()
        for row in rows:
            tp = row.topic, row.partition
            low, _ = spans.get(tp, (0, 0))
            due = self.position.get(tp, low)
            # Retention may have taken what was due.
            assert row.offset == due or due < row.offset <= low, (tp, due, low, self.told[-9:])
            self.position[tp] = row.offset + 1

    def end(self) -> None:
        self.query = self._start()
        self._follow(self.query.drain())
        group = committed(self.log)
        for tp, (low, high) in self._spans().items():
            assert max(low, self.position.get(tp, low)) == high, (tp, self.told[-9:])
            assert group.get(tp, 0) == high, (tp, self.told[-9:])


@pytest.mark.parametrize("seed", range(1, HISTORIES + 1))
def test_topics_that_change_under_a_query(
    running: Any, monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    monkeypatch.setattr("pyspark_offsetlog.source.group_owner.IDLE_LOOK", 0.0)
    history = History(seed, running)
    for _ in range(STEPS):
        history.step()
    history.end()
