"""Several maintainers that come again and again: one does the work, and another takes over."""

from __future__ import annotations

import itertools
import warnings
from unittest import mock

import pytest

from offsetlog.client.log import Log
from offsetlog.engine.env import REAL, Env, Limits
from offsetlog.engine.upkeep.maintenance import Maintenance
from offsetlog.errors import StorageError
from offsetlog.storage.faults import NoSpaceError
from offsetlog.storage.memory import MemoryStore
from tests.engine.scripted import fresh_root
from tests.engine.upkeep.clocked import ClockedLog, ClockedStore


class Ticking(MemoryStore):
    """A store whose clock shows another time for each file."""

    ticks = itertools.count(1)

    def info(self, name):
        info = super().info(name)
        return info if name not in self._times else info._replace(modified_ms=self._times[name])

    def put(self, name, data, durable=True):
        self._check(data)
        super().put(name, data, durable)
        self._times[name] = next(self.ticks)

    largest: int | None = None
    """Of files that may still be written, as by ``ulimit -f``."""

    def _create(self, name, data):
        self._check(data)
        return super()._create(name, data)

    def _check(self, data):
        if self.largest is not None and len(data) > self.largest:
            raise NoSpaceError("Could not write it: the disk quota is used up.")


def logs(count: int, env: Env = REAL) -> list[Log]:
    root = fresh_root()
    times: dict[str, int] = {}
    made = []
    for _ in range(count):
        store = Ticking(root)
        store._times = times
        made.append(Log(store, env))
    made[0].create_topic("orders")
    made[0].create_topic("clicks")
    return made


def round_of(log: Log) -> list[str]:
    return [report.topic for report in log.maintain(take_turns=True)]


BOTH = ["clicks", "orders"]


def test_one_of_two_does_the_work_and_the_other_takes_over() -> None:
    one, two = logs(2)
    assert round_of(one) == BOTH and round_of(two) == BOTH
    did = [(len(round_of(one)), len(round_of(two))) for _ in range(6)]
    assert all(sum(pair) == 2 for pair in did[1:]), did
    # The one that did it is gone.
    worker, other = (one, two) if did[-1][0] else (two, one)
    worker.close()
    taken = [len(round_of(other)) for _ in range(3)]
    assert taken[1:] == [2, 2], taken
    other.close()


def test_alone_every_round_is_its_own() -> None:
    (one,) = logs(1)
    assert [round_of(one) for _ in range(3)] == [BOTH] * 3
    one.close()


def test_who_asks_for_a_round_gets_it() -> None:
    """Only those that come again and again take turns; a round by hand is one that they see."""
    one, two = logs(2)
    round_of(one)
    assert [report.topic for report in two.maintain()] == BOTH
    assert [report.topic for report in two.maintain("orders")] == ["orders"]
    assert round_of(one) == []
    assert round_of(one) == BOTH
    assert one.maintain("orders", take_turns=True)[0].topic == "orders"
    two.maintain("orders")
    assert one.maintain("orders", take_turns=True) == []
    one.close()
    two.close()


SMALL = 100
"""Bytes: the file by which the storage's clock is read is smaller, and nothing else is."""


def waiting(log: Log) -> int:
    reader = log.open_topic("orders").reader
    state = log.open_topic("orders").state()
    return sum(extent.inline for extent in reader.live(state, lambda leaf, span: list(span)))


def fails(ill: Log) -> bool:
    """A round; whether it failed: it may leave the topics to another one."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # Of the topics after the first that failed.
        try:
            round_of(ill)
        except StorageError:
            return True
        return False


@pytest.mark.parametrize("restarted", [False, True])
def test_one_whose_rounds_fail_does_not_keep_a_sound_one_from_the_work(restarted: bool) -> None:
    """It was there first in each round, and had touched the storage's clock."""
    sound, ill = logs(2, REAL._replace(limits=Limits(min_files=4)))
    ill.store.largest = SMALL
    round_of(sound)
    did, failed = [], 0
    for _ in range(4):
        with sound.producer(linger_ms=0) as producer:
            for _ in range(8):
                producer.send("orders", b"value").result()
        if restarted:
            ill = Log(ill.store, ill.env)
        failed += fails(ill) + fails(ill)
        did.append(round_of(sound))
        assert waiting(sound) < 4
    assert did == [BOTH] * 4 and failed >= 4
    sound.close()


def test_the_time_of_the_last_round_is_of_one_that_came_to_its_end() -> None:
    sound, ill = logs(2)
    ill.store.largest = SMALL
    assert sound.last_maintained_ms() is None
    sound.maintain()
    ended = sound.last_maintained_ms()
    assert ended is not None
    assert fails(ill)
    assert sound.last_maintained_ms() == ended
    sound.close()


def test_maintainers_with_other_grace_periods_put_nothing_by_turns() -> None:
    """The grace period is a part of a table's metadata: a version came with each round."""

    class TableStore(ClockedStore):
        def delta_address(self, folder: str) -> str:
            return f"memory://{folder}"

    clocked = ClockedLog(store=TableStore)
    clocked.log.create_topic("orders", config={"table.format": "delta"})
    with clocked.log.producer() as producer:
        producer.send("orders", b"value")
    topic = clocked.log.open_topic("orders")
    hour = 3_600_000
    seen = []
    for grace in [24 * hour, hour, 0] * 4:
        Maintenance(topic, grace_ms=grace).run()
        clocked.wait(60_000)
        seen.append((topic.state().tip, topic.table.head().version))
    assert seen[3:] == [seen[3]] * 9, seen
    clocked.close()


def test_unused_files_are_looked_for_until_they_are_deleted() -> None:
    """One that may not delete had noted that it had looked for them, and others left it at that."""
    clocked = ClockedLog(inline_bytes=0)
    clocked.log.create_topic("orders", config={"retention.ms": -1})
    with clocked.log.producer() as producer:
        producer.send("orders", b"value")
    clocked.log.topic("orders").delete_records({0: -1})
    topic, store = clocked.log.open_topic("orders"), clocked.store
    hour, failed = 3_600_000, 0

    def refuse(names: object) -> None:
        if list(names):
            raise StorageError("Could not delete it: permission denied.")

    for _ in range(6):
        clocked.wait(2 * hour)
        with mock.patch.object(store, "delete", refuse):
            try:
                Maintenance(topic, grace_ms=hour).run()
            except StorageError:
                failed += 1
        Maintenance(topic, grace_ms=hour).run()
    assert failed and list(store.list("orders/partition=0")) == []
    clocked.close()
