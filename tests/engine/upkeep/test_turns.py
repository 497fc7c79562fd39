"""Several maintainers that come again and again: one does the work, and another takes over."""

from __future__ import annotations

import itertools

from offsetlog.client.log import Log
from offsetlog.engine.env import REAL
from offsetlog.storage.memory import MemoryStore
from tests.engine.scripted import fresh_root


class Ticking(MemoryStore):
    """A store whose clock shows another time for each file."""

    ticks = itertools.count(1)

    def info(self, name):
        info = super().info(name)
        return info if name not in self._times else info._replace(modified_ms=self._times[name])

    def put(self, name, data, durable=True):
        super().put(name, data, durable)
        self._times[name] = next(self.ticks)


def logs(count: int) -> list[Log]:
    root = fresh_root()
    times: dict[str, int] = {}
    made = []
    for _ in range(count):
        store = Ticking(root)
        store._times = times
        made.append(Log(store, REAL))
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
