"""The storage's clock: when it is read, and what is left of a time at which it was ahead."""

from __future__ import annotations

from typing import Any

import pytest

from offsetlog.core.topic.compaction import Met, due_tombstones, is_ahead, still_met
from offsetlog.core.topic.retention import AHEAD_MS, is_old
from offsetlog.core.topic.state import Compaction, PartitionState
from offsetlog.engine.upkeep.maintenance import Maintenance
from tests.engine.upkeep.clocked import ClockedLog, ClockedStore
from tests.engine.upkeep.test_compaction import COMPACT, read, sound
from tests.engine.upkeep.test_deleted_rows import HOUR, KEEP, rounds, stored_values

DAY = 24 * HOUR
YEARS = 3650 * DAY
RETENTION = 6_000


class TableStore(ClockedStore):
    def delta_address(self, folder: str) -> str:
        return f"memory://clocks/{folder}"


@pytest.fixture
def clocked():
    clocked = ClockedLog(min_files=2, store=TableStore)
    yield clocked
    clocked.close()


def send(clocked: ClockedLog, key: bytes, value: bytes | None) -> None:
    with clocked.log.producer() as producer:
        producer.send("t", value, key=key).result()


def test_a_tombstone_counts_from_a_time_after_it_was_sent(clocked, monkeypatch):
    """A maintainer reads the clock, and stands still before its pass."""
    config = COMPACT | {"delete.retention.ms": str(RETENTION)}
    clocked.log.create_topic("t", config=config)
    send(clocked, b"k", b"old")
    consolidate = Maintenance._consolidate

    def still(self: Maintenance) -> Any:
        clocked.wait(RETENTION + 1000)
        send(clocked, b"k", None)
        self._topic.refresh()
        return consolidate(self)

    monkeypatch.setattr(Maintenance, "_consolidate", still)
    clocked.log.maintain("t")
    monkeypatch.undo()
    clocked.wait(1_900)
    clocked.log.maintain("t")
    assert read(clocked.log) == {0: [(1, b"k", None)]}, "gone 1.9 s after it was sent"
    clocked.wait(RETENTION)
    clocked.log.maintain("t")
    assert read(clocked.log) == {}
    sound(clocked.log)


def test_an_idle_round_over_a_compacted_topic_reads_the_clock_once(clocked, monkeypatch):
    clocked.log.create_topic("t", config=COMPACT)
    send(clocked, b"k", b"v")
    clocked.log.maintain("t")
    asked: list[int] = []
    clock = Maintenance._storage_now
    monkeypatch.setattr(Maintenance, "_storage_now", lambda self: asked.append(0) or clock(self))
    clocked.log.maintain("t")
    assert len(asked) == 1


@pytest.mark.parametrize("table", ["none", "delta"])
@pytest.mark.parametrize("ahead", [2 * DAY, YEARS])
@pytest.mark.parametrize("what", ["one reading", "all of a round", "a round with the erasure"])
def test_a_clock_that_was_ahead_once_keeps_nothing(clocked, monkeypatch, what, ahead, table):
    clocked.log.create_topic("t", partitions=2, config=KEEP | {"table.format": table})
    for number in range(12):
        send(clocked, b"k%d" % number, b"value-%d" % number)
        clocked.wait(HOUR)
    clocked.log.maintain("t")
    send(clocked, b"e", b"erased")
    clocked.wait(HOUR)
    if what == "one reading":
        clock = Maintenance._storage_now
        monkeypatch.setattr(Maintenance, "_storage_now", lambda self: clock(self) + ahead)
        clocked.log.maintain("t")
        monkeypatch.undo()
    else:
        clocked.wait(ahead)
        if what == "a round with the erasure":
            clocked.log.topic("t").erase(keys=[b"e"])
        send(clocked, b"s", b"sent when it was ahead")
        clocked.log.maintain("t")
        clocked.wait(-ahead)
    if what != "a round with the erasure":
        clocked.log.topic("t").erase(keys=[b"e"])
    rounds(clocked, 6)
    assert b"erased" not in stored_values(clocked)
    rounds(clocked, 10)  # Producers are forgotten after a week, which is an entry.
    tip = clocked.log.open_topic("t").state().tip
    rounds(clocked, 3)
    assert clocked.log.open_topic("t").state().tip == tip, "idle rounds add no entries"
    snapshots = list(clocked.store.list("t/_snapshot"))
    assert len([info for info in snapshots if info.name.endswith(".parquet")]) <= 8
    sound(clocked.log)


@pytest.mark.parametrize("when", ["before", "after"])
def test_a_pass_by_a_clock_that_was_ahead_does_not_keep_tombstones(clocked, when):
    clocked.log.create_topic("t", config=COMPACT | {"delete.retention.ms": str(10 * HOUR)})
    send(clocked, b"a", b"1")
    if when == "before":
        send(clocked, b"a", None)
    clocked.wait(YEARS)
    clocked.log.maintain("t")
    clocked.wait(-YEARS)
    if when == "after":
        send(clocked, b"a", None)
    clocked.wait(HOUR)
    clocked.log.maintain("t")
    clocked.wait(9 * HOUR)
    clocked.log.maintain("t")
    assert [record[1:] for record in read(clocked.log)[0]] == [(b"a", None)]
    for _ in range(3):
        clocked.wait(10 * HOUR)
        clocked.log.maintain("t")
    assert read(clocked.log) == {}
    sound(clocked.log)


def test_what_is_noted_of_passes_with_times_in_the_future():
    part = PartitionState(0, 50, compactions=(Compaction(10, 900), Compaction(20, 900)))
    assert is_ahead(part, 899) and not is_ahead(part, 900)
    assert not is_ahead(part._replace(tombstones_from=20), 0)
    assert due_tombstones(part, 100, 300) == (0, 0)
    assert due_tombstones(part, 100, 300, Met(20, 200)) == (0, 20)
    assert due_tombstones(part, 100, 299, Met(20, 200)) == (0, 0)
    assert still_met(part, Met(20, 200), 300) == Met(20, 200)
    assert still_met(part, Met(20, 301), 300) is None, "nor is that a time"
    assert still_met(part, Met(21, 200), 300) is None
    assert still_met(part._replace(tombstones_from=20), Met(20, 200), 300) is None


def test_how_old_a_file_is_that_has_a_time_in_the_future():
    future = 10_000 + 2 * AHEAD_MS
    for times, expected in (
        ([1], True),
        ([9_500], False),
        ([10_000 + AHEAD_MS], False),
        ([future], None),
        ([future, 1], True),
        ([future, 9_500], False),
        ([future] * 9, None),
        ([future] * 9 + [1], True),
        ([future, future, 1, 1, 9_500], True),
    ):
        asked: list[int] = []
        answer = is_old(lambda n: asked.append(n) or times[n], 0, len(times), 10_000, 1_000)
        assert answer is expected, times
        assert len(asked) == len(set(asked)) <= 5
