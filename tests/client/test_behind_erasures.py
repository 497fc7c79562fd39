"""What is erased or deleted is in no read that begins five seconds later, in any process."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from offsetlog.client.consumer import Consumer
from offsetlog.client.log import Log
from offsetlog.engine.env import REAL, Env
from offsetlog.engine.topic.chain import MAX_AGE_SECONDS
from offsetlog.errors import OffsetOutOfRangeError
from offsetlog.storage import open_store

pytestmark = [
    pytest.mark.root_in("local", "memory"),
    pytest.mark.filterwarnings("ignore:Position:offsetlog.OffsetLogWarning"),
]
READ = 12
"""Records that a poll returns: far fewer than there are, so its consumer reads ahead."""


class Time:
    """The clock of a machine: ``slept`` is what its monotonic clock does not count."""

    def __init__(self) -> None:
        self.now = self.slept = 0.0

    def env(self) -> Env:
        return REAL._replace(
            monotonic=lambda: self.now - self.slept, boottime=lambda: self.now, sleep=self.wait
        )

    def wait(self, seconds: float) -> None:
        self.now += seconds

    def suspend(self, seconds: float) -> None:
        self.now += seconds
        self.slept += seconds


class Programs:
    """Two programs on one root, each with its own open log."""

    def __init__(self, url: str, count: int, size: int = 10) -> None:
        self.time = Time()
        self.here, self.there = (Log(open_store(url), self.time.env()) for _ in range(2))
        self.here.create_topic("t", partitions=2)
        self.sent = 0
        self.gone: dict[bytes, float] = {}
        """Values that were erased or deleted, and when that had returned."""
        self.size = size
        self.send(count)

    def send(self, count: int) -> None:
        with self.here.producer() as producer:
            for number in range(self.sent, self.sent + count):
                value = b"%06d" % number + bytes(self.size)
                producer.send("t", value, b"key-%d" % (number % 5), partition=number % 2)
        self.sent += count

    def erase(self, key: int) -> None:
        self.here.topic("t").erase(keys=[b"key-%d" % key])
        self._went(lambda number: number % 5 == key)

    def delete(self, partition: int, before: int) -> None:
        self.here.topic("t").delete_records({partition: before})
        self._went(lambda number: number % 2 == partition and number // 2 < before)

    def _went(self, is_gone: Callable[[int], bool]) -> None:
        for number in filter(is_gone, range(self.sent)):
            self.gone.setdefault(b"%06d" % number, self.time.now)

    def poll(self, consumer: Consumer, most: int = READ) -> int:
        """Poll, and judge what it gives."""
        began = self.time.now
        records = consumer.poll(0, max_records=most)
        for record in records:
            assert record.value is not None
            went = self.gone.get(record.value[:6])
            assert went is None or began - went < MAX_AGE_SECONDS, (
                f"{record.partition}-{record.offset} came {began - went:.1f} s late"
            )
        return len(records)

    def drain(self, consumer: Consumer) -> int:
        count = 0
        while got := self.poll(consumer):
            count += got
        return count

    def close(self) -> None:
        self.here.close()
        self.there.close()


@pytest.fixture(params=["entries", "segments"])
def programs(request: pytest.FixtureRequest, root: Path | str) -> Iterator[Programs]:
    made = Programs(str(root), 200, 10 if request.param == "entries" else 5_000)
    yield made
    made.close()


def reading(log: Log) -> Consumer:
    return log.consumer(topics=["t"], auto_offset_reset="earliest")


@pytest.mark.parametrize("how", ["erase", "delete"])
@pytest.mark.parametrize("where", ["before it reads", "in the middle", "seeks back", "in arrow"])
@pytest.mark.parametrize("passes", ["wait", "suspend"])
def test_a_consumer_that_is_behind(programs: Programs, how: str, where: str, passes: str) -> None:
    consumer = reading(programs.there)
    if where == "in the middle":
        assert programs.poll(consumer) == READ
    elif where == "seeks back":
        assert programs.drain(consumer) == 200
    else:
        programs.there.topic("t")
        for partition in (0, 1):
            consumer.position(("t", partition))
    if how == "erase":
        programs.erase(2)
    else:
        programs.delete(0, 90)
        programs.delete(1, 90)
    getattr(programs.time, passes)(MAX_AGE_SECONDS)
    if where == "seeks back":
        for partition in (0, 1):
            try:
                consumer.seek(("t", partition), 20)
            except OffsetOutOfRangeError:
                assert how == "delete"
                consumer.seek_to_beginning(("t", partition))
    if where == "in arrow":
        values = []
        while tables := consumer.poll_arrow(0):
            for table in tables.values():
                values += [value[:6] for value in table.column("value").to_pylist()]
        assert not programs.gone.keys() & set(values)
        assert len(values) == 200 - len(programs.gone)
        return
    count = programs.drain(consumer)
    if where == "before it reads":
        assert count == 200 - len(programs.gone)


def test_a_group_that_is_behind(programs: Programs) -> None:
    consumer = programs.there.consumer("g", ["t"], auto_offset_reset="earliest")
    assert programs.poll(consumer, 3) == 3
    programs.erase(1)
    programs.delete(1, 50)
    programs.time.wait(MAX_AGE_SECONDS)
    programs.drain(consumer)
    consumer.close()


def test_what_is_replaced_beside_a_reader_is_read_once(programs: Programs) -> None:
    """Upkeep replaces files, too: what was read ahead is read again, and nothing is missing."""
    consumer = reading(programs.there)
    got = programs.poll(consumer)
    while some := programs.poll(consumer):
        got += some
        if got == 5 * READ:
            programs.here.maintain("t", grace_ms=0)
        programs.time.wait(1.0)
    assert got == 200


@pytest.mark.parametrize("seed", range(40))
def test_readers_that_are_behind_seekers_and_erasers(tmp_path: Path, seed: int) -> None:
    chance = random.Random(seed)
    url = str(tmp_path / "log") if chance.random() < 0.2 else f"memory://{tmp_path.name}"
    with ExitStack() as stack:
        programs = Programs(url, chance.choice((20, 200)), chance.choice((10, 5_000)))
        stack.callback(programs.close)
        consumers = [reading(log) for log in (programs.here, programs.there, programs.there)]
        for _ in range(60):
            step = chance.randrange(12)
            consumer = chance.choice(consumers)
            if step == 0:
                programs.erase(chance.randrange(5))
            elif step == 1:
                partition = chance.randrange(2)
                span = programs.here.topic("t")
                low, end = (
                    span.beginning_offsets()[partition], span.end_offsets()[partition]
                )  # fmt: skip
                programs.delete(partition, chance.randint(low, min(end, low + 20)))
            elif step == 2:
                programs.send(chance.choice((1, 40)))
            elif step == 3:
                programs.here.maintain("t", grace_ms=chance.choice((0, 60_000)))
            elif step == 4:
                with_new = chance.random() < 0.5
                consumers[1] = reading(programs.there) if with_new else consumers[1]
            elif step in (5, 6):
                tp = ("t", chance.randrange(2))
                try:
                    consumer.seek(tp, chance.randrange(programs.sent // 2 + 1))
                except OffsetOutOfRangeError:
                    consumer.seek_to_beginning(tp)
            else:
                programs.poll(consumer, chance.choice((1, READ, 500)))
            passes = programs.time.wait if chance.random() < 0.7 else programs.time.suspend
            passes(chance.choice((0.0, 0.0, 0.5, 2.0, 6.0)))
        for consumer in consumers:
            programs.time.wait(MAX_AGE_SECONDS)
            programs.drain(consumer)


def test_it_costs_a_request_each_five_seconds_and_none_of_an_idle_reader(tmp_path: Path) -> None:
    from tests.engine.topic.test_backups import Remote

    programs = Programs(str(tmp_path / "log"), 200)
    store, time = Remote(open_store(str(tmp_path / "log"))), programs.time
    store.has_stamps, store.stays = False, True
    consumer = reading(Log(store, time.env()))
    consumer.poll(0, max_records=1)

    def asked(count: int) -> int:
        store.asked.clear()
        consumer.poll(0, max_records=count)
        return len(store.asked)

    assert [asked(1) for _ in range(20)] == [0] * 20
    time.wait(MAX_AGE_SECONDS)
    assert [asked(1) for _ in range(20)] == [1] + [0] * 19
    while consumer.poll(0):
        pass
    looks = []
    for _ in range(20):
        time.wait(MAX_AGE_SECONDS)
        looks.append(asked(1))
    assert sorted(looks)[:-2] == [1] * 18, "its look alone, but for one beyond the end a minute"
    programs.close()
