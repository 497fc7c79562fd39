"""Many workers with clocks of their own, paused, killed, put out and reset: what always holds.

Each worker is a real consumer on a log of its own, with a clock that runs at its own rate, and
its heartbeats are driven by hand. After every step:

- two members that are in the group never both hold one partition;
- a position goes back only by a reset;
- in a history without kills, pauses and resets no record is given twice.

When the faults stop, all records are read.
"""

from __future__ import annotations

import contextlib
import random
import warnings

import pytest

from offsetlog.client.log import Log
from offsetlog.core.group.fold import fold
from offsetlog.core.group.state import EMPTY
from offsetlog.engine.env import REAL
from offsetlog.engine.group.heartbeats import Heartbeat, Heartbeats
from offsetlog.engine.group.offsets_table import OffsetsTable
from offsetlog.errors import FencedError, InvalidRequestError, StorageError
from offsetlog.storage import Committed, Unknown, open_store

PARTITIONS = 5
SESSION_MS = 3000


class HandHeartbeats(Heartbeats):
    """Heartbeats that are sent when the test says so."""

    def add(self, heart: Heartbeat) -> None:
        self._hearts[heart.member] = heart

    def now(self) -> None:
        self.send_due()
        self.watch_due()


class Forgetful:
    """A port that loses answers: what was appended may be there, or not."""

    def __init__(self, port, chance: random.Random, share: float) -> None:
        self._port, self._chance, self._share = port, chance, share

    def __getattr__(self, name):
        return getattr(self._port, name)

    def append(self, facts, version):
        if self._chance.random() >= self._share:
            return self._port.append(facts, version)
        if self._chance.random() < 0.5:
            self._port.append(facts, version)
        return Unknown("the answer was lost")


class Worker:
    def __init__(self, world: World, number: int) -> None:
        self.world, self.number = world, number
        self.clock = 1000.0 * number
        self.rate = world.chance.choice([0.7, 1.0, 1.3])
        self.asleep = 0
        env = REAL._replace(
            monotonic=lambda: self.clock,
            sleep=lambda s: None,
            now_ms=lambda: int(self.clock * 1000) + world.chance.randrange(10**9),
        )
        self.log = Log(open_store(world.url), env)
        table: OffsetsTable = self.log.offsets_table
        table.port = Forgetful(table.port, world.chance, world.lost_answers)
        self.heartbeats = HandHeartbeats(table)
        self.log._heartbeats = self.heartbeats
        self.given: list[tuple[int, int]] = []
        self.consumer = self.fresh()

    def fresh(self):
        return self.log.consumer(
            "fight", ["orders"], auto_offset_reset="earliest", session_timeout_ms=SESSION_MS,
            auto_commit_interval_ms=self.world.chance.choice([500, 5000]),
            enable_auto_commit=self.world.auto,
        )  # fmt: skip

    def poll(self) -> None:
        batch = self.consumer.poll(0.0, self.world.chance.randrange(1, 8))
        self.given += [(r.partition, r.offset) for r in batch]
        self.world.given += [(r.partition, r.offset) for r in batch]

    def commit(self) -> None:
        try:
            self.consumer.commit()
        except FencedError:
            self.world.fenced += 1


class World:
    def __init__(self, seed: int, *, faults: bool, lost_answers: float = 0.0) -> None:
        self.chance = random.Random(seed)
        self.url = f"memory://model-{seed}-{faults}-{lost_answers}"
        self.faults, self.lost_answers = faults, lost_answers
        self.auto = not faults or self.chance.random() < 0.5
        self.given: list[tuple[int, int]] = []
        self.fenced = self.resets = self.made = 0
        self.admin = Log(open_store(self.url), REAL._replace(sleep=lambda s: None))
        self.admin.create_topic("orders", PARTITIONS)
        self.state = EMPTY
        self.positions: dict[tuple[str, int], int] = {}
        self.workers: list[Worker] = []
        for _ in range(3):
            self.start()

    def start(self) -> None:
        self.made += 1
        self.workers.append(Worker(self, self.made))

    def produce(self) -> None:
        with self.admin.producer() as producer:
            for _ in range(self.chance.randrange(1, 10)):
                producer.send("orders", b"x", partition=self.chance.randrange(PARTITIONS))

    def step(self) -> None:
        chance = self.chance
        passed = chance.choice([0.01, 0.1, 0.4])
        for worker in self.workers:
            worker.clock += passed * worker.rate
            worker.asleep = max(worker.asleep - 1, 0)
        awake = [worker for worker in self.workers if not worker.asleep]
        if awake:
            worker = chance.choice(awake)
            chance.choice([worker.poll, worker.poll, worker.commit])()
        for worker in awake:
            worker.heartbeats.now()
        if chance.random() < 0.3:
            self.produce()
        if self.faults and chance.random() < 0.12:
            self.fault()
        elif chance.random() < 0.03 and len(self.workers) < 6:
            self.start()
        self.check()

    def fault(self) -> None:
        chance = self.chance
        worker = chance.choice(self.workers) if self.workers else None
        what = chance.choice(["pause", "pause", "kill", "leave", "reset", "expel"])
        if what == "reset":
            self.resets += 1
            chance.choice(
                [
                    lambda g: g.reset("orders", to="earliest", dry_run=False),
                    lambda g: g.reset("orders", to="latest", partitions=[1], dry_run=False),
                    lambda g: g.reset("orders", to=3, partitions=[0, 2], dry_run=False),
                ]
            )(self.admin.group("fight"))
        elif worker is None or len(self.workers) < 2:
            self.start()
        elif what == "pause":
            worker.asleep = chance.randrange(5, 60)
        elif what == "kill":
            self.workers.remove(worker)
        elif what == "leave" and not worker.asleep:
            worker.consumer.close()
            self.workers.remove(worker)
        elif what == "expel" and worker.consumer.member in self.state.group("fight").members:
            with contextlib.suppress(InvalidRequestError):  # It left in this very step.
                self.admin.group("fight").remove_members(worker.consumer.member)

    def check(self) -> None:
        news = self.admin.offsets_table.port.read(self.state.version)
        for fact in news.facts:
            if fact.offset is None:
                continue
            key = fact.topic, fact.partition
            if fact.kind != "reset":
                assert fact.offset >= self.positions.get(key, 0), fact
            self.positions[key] = fact.offset
        self.state = fold(self.state, news.facts, news.version, _never_void)
        group = self.state.group("fight")
        said = {p: position.offset for p, position in group.positions.items()}
        assert said == self.positions
        holders: dict[tuple[str, int], int] = {}
        for worker in self.workers:
            if worker.consumer.member not in group.members:
                continue
            for partition in worker.consumer.assignment():
                assert partition not in holders, f"{partition} is held twice"
                holders[partition] = worker.number

    def finish(self) -> None:
        """No more faults: all is read and committed, by whoever is left."""
        self.faults, self.lost_answers = False, 0.0
        if not self.workers:
            self.start()
        for worker in self.workers:
            worker.asleep, worker.rate = 0, 1.0
            worker.log.offsets_table.port._share = 0.0
        ends = self.admin.topic("orders").end_offsets()
        for _ in range(600):
            for worker in self.workers:
                worker.clock += 0.05
                worker.poll()
                worker.heartbeats.now()
                worker.commit()
            self.check()
            if all(self.positions.get(("orders", p), 0) == end for p, end in ends.items()):
                return
        raise AssertionError(f"never ends: {self.positions} of {ends}")


def _never_void(fact, reason):
    raise AssertionError(f"{fact} is in the table, but is {reason}")


@pytest.mark.parametrize("seed", range(12))
def test_whatever_happens(seed):
    world = World(seed, faults=True, lost_answers=0.1 if seed % 3 == 0 else 0.0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for _ in range(200):
            try:
                world.step()
            except StorageError as error:
                assert world.lost_answers and error.may_have_landed
        world.finish()
    if not world.resets:
        ends = world.admin.topic("orders").end_offsets()
        assert set(world.given) == {(p, o) for p, end in ends.items() for o in range(end)}


@pytest.mark.parametrize("seed", range(4))
def test_without_a_fault_no_record_is_given_twice(seed):
    world = World(100 + seed, faults=False)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for _ in range(150):
            world.step()
        world.finish()
    assert len(world.given) == len(set(world.given))
    for worker in world.workers:
        for partition in range(PARTITIONS):
            offsets = [o for p, o in worker.given if p == partition]
            assert offsets == sorted(offsets)


def test_a_lost_answer_is_found_out_about(tmp_path):
    log = Log(open_store(f"memory://{tmp_path.name}"), REAL._replace(sleep=lambda s: None))
    log.create_topic("orders", 1)
    with log.producer() as producer:
        for _ in range(10):
            producer.send("orders", b"x")
    table = log.offsets_table
    table.look()
    real = table.port

    class Once(Forgetful):
        answers = ["landed", "lost", "landed"]

        def append(self, facts, version):
            if not self.answers:
                return self._port.append(facts, version)
            landed = self._port.append(facts, version) if self.answers[0] == "landed" else None
            assert landed is None or isinstance(landed, Committed)
            self.answers = self.answers[1:]
            return Unknown("the answer was lost")

    table.port = Once(real, random.Random(0), 0.0)
    with log.consumer("billing") as consumer:
        consumer.assign([("orders", 0)])
        for n in range(1, 5):
            before = table.look().version
            consumer.commit({("orders", 0): n})
            assert table.look().version == max(before, 0) + 1, "it is there once"
            assert consumer.committed() == {("orders", 0): n}


def test_a_conflict_that_does_not_end_is_an_error(tmp_path):
    from offsetlog.storage import Conflict

    log = Log(open_store(f"memory://{tmp_path.name}"), REAL._replace(sleep=lambda s: None))
    log.create_topic("orders", 1)
    rival = Log(open_store(f"memory://{tmp_path.name}"), REAL)
    table = log.offsets_table

    class Always(Forgetful):
        def append(self, facts, version):
            with rival.consumer("rival") as consumer:
                consumer.assign([("orders", 0)])
                consumer.commit({("orders", 0): 0})
            return self._port.append(facts, version)

    table.port = Always(table.port, random.Random(0), 0.0)
    with (
        log.consumer("billing") as consumer,
        pytest.raises(StorageError, match="Others wrote .* first, 200 times"),
    ):
        consumer.assign([("orders", 0)])
        consumer.commit({("orders", 0): 0})
    assert list(rival.groups()) == ["rival"]
    assert isinstance(table.port.append((), 0), Conflict)


def test_many_groups_commit_in_one_append(tmp_path):
    import threading

    log = Log(open_store(str(tmp_path / "log")))
    log.create_topic("orders", 1)
    with log.producer() as producer:
        for _ in range(10):
            producer.send("orders", b"x")
    consumers = [log.consumer(f"g{n}") for n in range(32)]
    for consumer in consumers:
        consumer.assign([("orders", 0)])
    consumers[0].commit({("orders", 0): 1})
    before = log.offsets_table.look().version
    barrier = threading.Barrier(33)

    def commit(consumer):
        barrier.wait()
        consumer.commit({("orders", 0): 7})

    threads = [threading.Thread(target=commit, args=(c,)) for c in consumers]
    with log.offsets_table._work:  # An append is on its way; all of them wait behind it.
        for thread in threads:
            thread.start()
        barrier.wait()
        while len(log.offsets_table._queue) < 32:
            pass
    for thread in threads:
        thread.join()
    assert log.offsets_table.look().version == before + 1
    assert {log.group(f"g{n}").committed()["orders", 0].offset for n in range(32)} == {7}
    log.close()
