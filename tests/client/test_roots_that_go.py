"""A log that stays open while its root does not: it goes on when the root is back, and meanwhile
neither makes a root nor uses another one."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest

import offsetlog
from offsetlog.client.log import Log
from offsetlog.engine.env import REAL
from offsetlog.engine.root import BEGIN_SECONDS
from offsetlog.errors import StorageError
from offsetlog.format.names import ROOT_FILE
from offsetlog.storage import open_store
from tests.engine.topic.test_backups import Remote
from tests.engine.topic.test_removed_topics import Clock


def _contents(folder: Path) -> list[str]:
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*"))


LOOKS: dict[str, Callable[[Log], object]] = {
    "topics": lambda log: log.topics(),
    "overview": lambda log: log.overview(),
    "groups": lambda log: log.groups(),
    "positions": lambda log: log.positions(),
    "lag": lambda log: log.group("g").lag(),
    "describe": lambda log: log.group("g").describe(),
    "topic": lambda log: log.topic("orders").end_offsets(),
    "verify": lambda log: log.verify(),
    "verify a topic": lambda log: log.verify("orders"),
}
CHANGES: dict[str, Callable[[Log], object]] = {
    "create": lambda log: log.create_topic("new"),
    "alter": lambda log: log.topic("orders").alter(partitions=3),
    "delete": lambda log: log.delete_topic("orders"),
    "purge": lambda log: log.delete_topic("orders", purge=True),
    "send": lambda log: log.producer().send("orders", b"x").result(),
    "a table": lambda log: log.producer().send_arrow("orders", pa.table({"value": [b"x"]})),
    "a sequence": lambda log: log.producer(app_id="a", sequence=1).send("orders", b"x").result(),
    "join": lambda log: log.consumer("g", ["orders"]),
    "reset": lambda log: log.group("g").reset("orders", to="earliest", dry_run=False),
    "maintain": lambda log: log.maintain(grace_ms=0),
    "erase": lambda log: log.topic("orders").erase(keys=[b"k"]),
    "delete records": lambda log: log.topic("orders").delete_records({0: -1}),
    "delete a group": lambda log: log.group("g").delete(),
}


@pytest.mark.parametrize("there", ["nothing", "an empty folder", "another log"])
@pytest.mark.parametrize("call", [*LOOKS, *CHANGES])
@pytest.mark.parametrize("used", ["before", "only opened"])
def test_an_open_log_is_of_one_root(tmp_path: Path, call: str, there: str, used: str) -> None:
    root, away = tmp_path / "log", tmp_path / "away"
    with offsetlog.open(str(root)) as log:
        log.create_topic("orders")
        with log.producer() as producer:
            producer.send("orders", b"mine", b"k")
        consumer = log.consumer("g", ["orders"], auto_offset_reset="earliest")
        assert len(consumer.poll(1)) == 1
        consumer.close()
    with offsetlog.open(str(root)) as log:
        if used == "before":
            for look in LOOKS.values():
                look(log)
        root.rename(away)
        if there != "nothing":
            root.mkdir()
        if there == "another log":
            with offsetlog.open(str(root)) as other:
                other.create_topic("orders")
                with other.producer() as producer:
                    producer.send("orders", b"not mine", b"k")
                other.consumer("g", ["orders"]).close()
        before = _contents(tmp_path)
        with pytest.raises(StorageError, match="is not at|Another log than") as no:
            {**LOOKS, **CHANGES}[call](log)
        assert no.value.hint and not no.value.may_have_landed
        assert _contents(tmp_path) == before, "nothing is made or removed"
        if there != "nothing":
            shutil.rmtree(root)
        away.rename(root)
        {**LOOKS, **CHANGES}[call](log)
        if call == "topics":
            assert log.topics() == ["orders"]
    with offsetlog.open(str(root)) as log:
        assert all(report.sound for report in log.verify())


@pytest.mark.parametrize("group", [None, "g"])
def test_a_consumer_waits_while_its_root_is_gone(tmp_path: Path, group: str | None) -> None:
    root, away = tmp_path / "log", tmp_path / "away"
    with offsetlog.open(str(root)) as log:
        log.create_topic("orders")
        consumer = log.consumer(group, ["orders"], auto_offset_reset="earliest")
        assert consumer.poll(0) == []
        with log.producer() as producer:
            producer.send("orders", b"x")
        root.rename(away)
        for _ in range(3):
            assert consumer.poll(0.03) == []
        away.rename(root)
        assert [record.value for record in consumer.poll(5)] == [b"x"]
        consumer.close()


def test_on_a_server_the_root_is_asked_for_when_something_begins(tmp_path: Path) -> None:
    root, clock = tmp_path / "log", Clock()
    with offsetlog.open(str(root)) as log:
        log.create_topic("orders")
    store = Remote(open_store(str(root)))
    store.stays, store.has_stamps = True, False
    store.keep_to = lambda *given: None  # type: ignore[attr-defined]
    log = Log(store, REAL._replace(monotonic=clock, sleep=lambda seconds: None))

    def asked(call: Callable[[], object]) -> int:
        store.asked.clear()
        call()
        return store.asked.count(ROOT_FILE)

    assert asked(lambda: log.topic("orders")) == 0, "a look is not made dearer"
    assert asked(log.producer) == 1
    producer = log.producer()
    consumer = log.consumer(topics=["orders"])
    for _ in range(20):
        clock.now += 1
        assert asked(lambda: producer.send("orders", b"x").result()) == 0
        assert asked(lambda: consumer.poll(0)) == 0
    assert asked(log.topics) == 1
    assert asked(log.groups) == 0, "nor is it asked twice within five seconds"
    away = root.rename(tmp_path / "away")
    clock.now += BEGIN_SECONDS
    with pytest.raises(StorageError, match="is not at"):
        log.create_topic("new")
    for look in (log.topics, log.overview, log.groups, log.producer):
        with pytest.raises(StorageError, match="is not at"):
            look()
    assert not root.exists()
    away.rename(root)
    assert log.topics() == ["orders"]
