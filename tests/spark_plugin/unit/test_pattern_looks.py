"""Topics that come to a pattern: the next look finds what was acknowledged before it."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import offsetlog
from offsetlog.client.log import Log
from offsetlog.engine.topic import lifecycle
from offsetlog.storage.memory import MemoryStore
from pyspark_offsetlog.runtime import open_logs
from tests.spark_plugin.unit.engine import Engine, fill
from tests.spark_plugin.unit.views import another_process

pytestmark = [
    pytest.mark.root_in("local", "memory"),
    pytest.mark.filterwarnings("ignore::offsetlog.OffsetLogWarning"),
]


@pytest.fixture
def root(root: Path | str) -> Iterator[str]:
    another_process()
    yield str(root)
    another_process()


@pytest.fixture
def log(log: Log) -> Log:
    log.create_topic("orders")
    return log


def pattern(root: str, text: str = "^orders") -> Engine:
    given = {"subscribePattern": text, "startingOffsets": "earliest", "failOnDataLoss": "false"}
    query = Engine(root, **given)
    query.drain()
    return query


def count(query: Engine, topic: str) -> int:
    """Records that it reads of a topic until it says that nothing is there."""
    return sum(row.topic == topic for row in query.drain())


def test_a_topic_that_is_made_again_is_read_by_the_next_look(log: Log, root: str) -> None:
    query = pattern(root)
    for _ in range(3):
        log.delete_topic("orders")
        query.drain()
        log.create_topic("orders")
        fill(log, "orders", {0: 10})
        assert count(query, "orders") == 10


def test_a_look_inside_its_making(log: Log, root: str, monkeypatch: pytest.MonkeyPatch) -> None:
    query = pattern(root)
    true = lifecycle.create

    def create(topic: Any, *given: Any) -> Any:
        if "://" not in root:
            (Path(root) / topic.chain.folder).mkdir()
        query.drain()
        return true(topic, *given)

    monkeypatch.setattr(lifecycle, "create", create)
    for number in range(5):
        log.create_topic(f"orders{number}")
        fill(log, f"orders{number}", {0: 1})
        assert count(query, f"orders{number}") == 1


def test_a_folder_whose_topic_did_not_match(log: Log, root: str) -> None:
    log.create_topic("Orders.EU")
    query = pattern(root)
    log.delete_topic("Orders.EU")
    query.drain()
    log.create_topic("orders.eu")
    fill(log, "orders.eu", {0: 2})
    assert count(query, "orders.eu") == 2


@pytest.mark.parametrize("seed", range(15))
def test_whatever_is_made_and_deleted_is_read_by_the_next_look(tmp_path: Path, seed: int) -> None:
    another_process()
    chance = random.Random(seed)
    root = str(tmp_path / "log") if seed % 2 else f"memory://{tmp_path.name}"
    with offsetlog.open(root) as log:
        names = ["orders", "Orders", "orders_a", "orders.A", "other", "orders-b"]
        log.create_topic("orders")
        query = pattern(root)
        for _ in range(40):
            name = chance.choice(names)
            folder = name.lower().replace(".", "_")
            there = {t.lower().replace(".", "_"): t for t in log.topics()}
            if folder in there and chance.random() < 0.5:
                log.delete_topic(there[folder])
            elif folder not in there:
                log.create_topic(name)
                new = chance.randrange(1, 4)
                fill(log, name, {0: new})
                assert count(query, name) == (new if name.startswith("orders") else 0), name
            else:
                fill(log, there[folder], {0: 1})
            if chance.random() < 0.6:
                query.drain()


def test_idle_looks_cost_a_stat_for_each_folder_that_is_passed_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    another_process()
    root = str(tmp_path / "log")
    with offsetlog.open(root) as log:
        for number in range(20):
            log.create_topic(f"other-{number}")
        log.create_topic("orders")
        for number in range(5):
            log.create_topic(f"orders-{number}")
            log.delete_topic(f"orders-{number}")
        query = pattern(root)
        asked: list[str] = []
        store = query.run.log.store
        true = store.get

        def get(name: str, *given: Any) -> Any:
            asked.append(name)
            return true(name, *given)

        monkeypatch.setattr(store, "get", get)
        for _ in range(10):
            query.plan()
        assert len(asked) == 10, "the matching topic's next name"


def test_where_a_look_is_a_request_only_matching_topics_cost_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    another_process()
    root = f"memory://{tmp_path.name}"
    with offsetlog.open(root) as log:
        for number in range(20):
            log.create_topic(f"other-{number}")
            log.create_topic(f"else-{number}")
            log.delete_topic(f"else-{number}")
        log.create_topic("orders")
        log.create_topic("orders-gone")
        log.delete_topic("orders-gone")
    monkeypatch.setattr(MemoryStore, "has_stamps", False)
    query = pattern(root)
    store = open_logs.open_log(query.options.place).store
    asked: list[str] = []
    true = store.get

    def get(name: str, *given: Any) -> Any:
        if name != "_offsetlog.json":
            asked.append(name)
        return true(name, *given)

    monkeypatch.setattr(store, "get", get)
    query.plan()
    assert sorted(name.split("/")[0] for name in asked) == ["orders", "orders-gone"]
    monkeypatch.undo()
