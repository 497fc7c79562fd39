"""A scrape says of topics and groups what ``groups describe`` and ``topics describe`` say."""

from __future__ import annotations

import json
import random

import pytest

import offsetlog
from offsetlog.client.log import Log
from offsetlog.engine.upkeep.maintenance import Maintenance
from offsetlog.format.names import EntryName
from offsetlog.metrics import Metrics, exposition
from offsetlog.metrics.families import OF_A_LOG
from offsetlog.storage.memory import MemoryStore
from tests.cli.shell import offsetlog as command
from tests.engine.scripted import fresh_root
from tests.metrics.scrapes import Series, committed, parsed, value, written

pytestmark = pytest.mark.root_in("local", "memory")


def of_group(series: Series, name: str, group: str, topic: str) -> dict[int, float]:
    found = {}
    for (metric, labels), number in series.items():
        own = dict(labels)
        if metric == name and (own.get("consumergroup"), own.get("topic")) == (group, topic):
            found[int(own["partition"])] = number
    return found


def test_what_kafka_exporter_would_show(log) -> None:
    log.create_topic("orders", partitions=3)
    written(log, "orders", 10, partition=0)
    written(log, "orders", 4, partition=1)
    log.topic("orders").delete_records({0: 3})
    committed(log, "billing", {("orders", 0): 7, ("orders", 1): 4})
    series = parsed(exposition(log))
    assert value(series, "kafka_topic_partitions", topic="orders") == 3
    assert value(series, "kafka_topic_partition_current_offset", topic="orders", partition=0) == 10
    assert value(series, "kafka_topic_partition_oldest_offset", topic="orders", partition=0) == 3
    assert value(series, "kafka_topic_partition_current_offset", topic="orders", partition=2) == 0
    assert value(series, "kafka_consumergroup_members", consumergroup="billing") == 0
    assert value(series, "offsetlog_unreadable_topics") == 0
    # As in kafka_exporter, a partition of a topic that the group reads has -1 without a commit.
    positions = of_group(series, "kafka_consumergroup_current_offset", "billing", "orders")
    assert positions == {0: 7, 1: 4, 2: -1}
    assert of_group(series, "kafka_consumergroup_lag", "billing", "orders") == {0: 3, 1: 0, 2: -1}
    seconds = of_group(series, "offsetlog_consumergroup_lag_seconds", "billing", "orders")
    assert seconds.keys() == {0, 1} and seconds[1] == 0 and seconds[0] >= 0
    size = of_group(series, "offsetlog_consumergroup_lag_bytes", "billing", "orders")
    assert size.keys() == {0, 1} and size[1] == 0 and size[0] > 0


def test_a_group_that_has_committed_nothing_is_behind_by_all(log) -> None:
    log.create_topic("orders", partitions=2)
    written(log, "orders", 10, partition=0)
    with log.consumer(group="new", topics=["orders"], auto_offset_reset="earliest"):
        series = parsed(exposition(log))
        positions = of_group(series, "kafka_consumergroup_current_offset", "new", "orders")
        assert positions == {0: -1, 1: -1}
        assert of_group(series, "kafka_consumergroup_lag", "new", "orders") == {0: 10, 1: 0}
        seconds = of_group(series, "offsetlog_consumergroup_lag_seconds", "new", "orders")
        assert seconds.keys() == {0, 1} and seconds[1] == 0
    with log.consumer(group="tail", topics=["orders"]):
        series = parsed(exposition(log))
        assert of_group(series, "kafka_consumergroup_lag", "tail", "orders") == {0: -1, 1: -1}
        assert not of_group(series, "offsetlog_consumergroup_lag_seconds", "tail", "orders")
    assert not of_group(parsed(exposition(log)), "kafka_consumergroup_lag", "new", "orders")


def test_when_upkeep_was_last_there(log) -> None:
    def told() -> float | None:
        return value(parsed(exposition(log)), "offsetlog_maintained_timestamp_seconds")

    log.create_topic("orders")
    assert told() == 0
    log.maintain()
    first = told()
    assert first is not None and abs(first - log.env.now_ms() / 1000) < 60
    committed(log, "billing", {("orders", 0): 0})
    assert told() == first, "there are groups now, and nobody looked after them yet"
    log.env.sleep(0.02)
    log.maintain("orders")
    log.env.sleep(0.02)
    log.maintain()
    second = told()
    assert second is not None and second > first
    log.env.sleep(0.02)
    log.maintain("orders")
    assert told() == second, "one topic is not the log"


def test_topics_that_a_group_has_no_position_in_are_not_its(log) -> None:
    log.create_topic("orders")
    log.create_topic("other")
    committed(log, "billing", {("orders", 0): 0})
    series = parsed(exposition(log))
    assert of_group(series, "kafka_consumergroup_lag", "billing", "orders") == {0: 0}
    assert of_group(series, "kafka_consumergroup_lag", "billing", "other") == {}


def test_a_deleted_topic_and_a_deleted_group_are_gone(log) -> None:
    log.create_topic("orders")
    log.create_topic("gone")
    committed(log, "billing", {("gone", 0): 0, ("orders", 0): 0})
    committed(log, "left", {("orders", 0): 0})
    log.delete_topic("gone")
    log.group("left").delete()
    series = parsed(exposition(log))
    assert not [labels for _, labels in series if ("topic", "gone") in labels]
    assert not [labels for _, labels in series if ("consumergroup", "left") in labels]
    assert of_group(series, "kafka_consumergroup_lag", "billing", "orders") == {0: 0}


def test_positions_outside_the_log_are_as_in_describe(log) -> None:
    """Expired records can't be read, so they are no lag; a position past the end has none."""
    log.create_topic("orders", partitions=2)
    written(log, "orders", 10, partition=0)
    committed(log, "billing", {("orders", 0): 2, ("orders", 1): 5})
    log.topic("orders").delete_records({0: 6})
    series = parsed(exposition(log))
    assert of_group(series, "kafka_consumergroup_lag", "billing", "orders") == {0: 4, 1: 0}
    positions = of_group(series, "kafka_consumergroup_current_offset", "billing", "orders")
    assert positions == {0: 2, 1: 5}
    assert log.group("billing").lag() == {("orders", 0): 4, ("orders", 1): 0}


def test_members_are_counted(log) -> None:
    log.create_topic("orders", partitions=2)
    with log.consumer("billing", ["orders"]) as one, log.consumer("billing", ["orders"]) as two:
        one.poll(timeout=0.1)
        two.poll(timeout=0.1)
        series = parsed(exposition(log))
        assert value(series, "kafka_consumergroup_members", consumergroup="billing") == 2


def test_an_empty_log_and_a_broken_topic(log, tmp_path) -> None:
    log.create_topic("orders")
    log.create_topic("broken")
    written(log, "orders", 3)
    written(log, "broken", 3)
    store = log.open_topic("broken").chain.store
    store.delete([str(EntryName("broken", 0))])
    with Log(log.store) as fresh:
        series = parsed(exposition(fresh))
    assert value(series, "offsetlog_unreadable_topics") == 1
    assert value(series, "kafka_topic_partition_current_offset", topic="orders", partition=0) == 3
    assert value(series, "kafka_topic_partitions", topic="broken") is None


def test_the_same_as_groups_describe(log) -> None:
    """Random histories: each line that one shows, the other shows."""
    chance = random.Random(7)
    topics = {name: chance.randrange(1, 5) for name in ("a", "b", "c.d", "e_f", "g-h")}
    for name, partitions in topics.items():
        log.create_topic(name, partitions=partitions)
    for _ in range(25):
        name = chance.choice(list(topics))
        partition = chance.randrange(topics[name])
        written(log, name, chance.randrange(1, 30), partition)
        end = log.topic(name).end_offsets()[partition]
        match chance.randrange(4):
            case 0:
                log.topic(name).delete_records({partition: chance.randrange(end + 1)})
            case 1:
                Maintenance(log.open_topic(name), grace_ms=0).run()
            case _:
                group = f"g{chance.randrange(4)}"
                committed(log, group, {(name, partition): chance.randrange(end + 3)})
    series = parsed(exposition(log))
    for group in log.groups():
        info = log.group(group).describe()
        described = {(line.topic, line.partition): line for line in info.partitions}
        for name in topics:
            lag = of_group(series, "kafka_consumergroup_lag", group, name)
            at = of_group(series, "kafka_consumergroup_current_offset", group, name)
            size = of_group(series, "offsetlog_consumergroup_lag_bytes", group, name)
            own = {p: line for (t, p), line in described.items() if t == name}
            assert {p: n for p, n in lag.items() if n != -1} == {
                p: line.records for p, line in own.items()
            }
            assert {p: n for p, n in at.items() if n != -1} == {
                p: line.committed for p, line in own.items()
            }
            assert size == {p: line.bytes for p, line in own.items()}
            assert not own or lag.keys() == set(range(topics[name]))
    for topic in log.topics().infos:
        for part in topic.partitions:
            labels = {"topic": topic.name, "partition": part.partition}
            end = value(series, "kafka_topic_partition_current_offset", **labels)
            start = value(series, "kafka_topic_partition_oldest_offset", **labels)
            assert (start, end) == (part.beginning_offset, part.end_offset)


def test_seconds_lie_within_the_times_of_the_file_that_has_the_record(log) -> None:
    """One append with records of an hour, ten seconds apart, merged by upkeep or not."""
    now = log.env.now_ms()
    log.create_topic("orders")
    table = [(now - 3_600_000 + 10_000 * n) for n in range(360)]
    with log.producer() as producer:
        for time in table:
            producer.send("orders", value=b"x", timestamp=time)
    for _ in range(2):
        for position in (0, 1, 100, 358, 359):
            committed(log, "billing", {("orders", 0): position})
            series = parsed(exposition(log))
            labels = {"consumergroup": "billing", "topic": "orders", "partition": 0}
            seconds = value(series, "offsetlog_consumergroup_lag_seconds", **labels)
            exact = log.group("billing").describe().partitions[0].seconds
            assert exact is not None and seconds is not None
            assert abs(seconds - exact) < 15, position
        log.maintain(grace_ms=0)


class Counting(MemoryStore):
    """Counts requests as a server's store would."""

    is_local = False

    def __init__(self, root: str) -> None:
        super().__init__(root)
        self.requests: list[str] = []

    def get(self, name, start=None, end=None):
        self.requests.append(name)
        return super().get(name, start, end)

    def list(self, *args, **kwargs):
        self.requests.append(f"list {args}")
        return super().list(*args, **kwargs)

    def folders(self, name):
        self.requests.append(f"folders {name}")
        return super().folders(name)


def busy(topics: int, partitions: int, groups: int) -> tuple[Counting, Log]:
    root = fresh_root()
    with Log(MemoryStore(root)) as writer:
        for n in range(topics):
            writer.create_topic(f"t{n}", partitions=partitions)
            for partition in range(partitions):
                written(writer, f"t{n}", 2, partition)
        for g in range(groups):
            positions = {(f"t{n}", p): 0 for n in range(topics) for p in range(partitions)}
            committed(writer, f"g{g}", positions)
        writer.maintain()
    store = Counting(root)
    return store, Log(store)


def scraped(store: Counting, log: Log) -> int:
    store.requests.clear()
    exposition(log)
    return len(store.requests)


def test_a_scrape_costs_a_request_for_each_topic_and_none_for_partitions_and_groups() -> None:
    costs = {}
    for topics, partitions, groups in ((1, 1, 1), (1, 16, 1), (1, 1, 4), (4, 1, 1), (4, 16, 4)):
        store, log = busy(topics, partitions, groups)
        first = scraped(store, log)
        again = {scraped(store, log) for _ in range(3)}
        assert len(again) == 1
        costs[topics, partitions, groups] = (first, again.pop())
        log.close()
    base = costs[1, 1, 1]
    assert costs[1, 16, 1][1] == costs[1, 1, 4][1] == base[1]
    assert costs[4, 1, 1][1] == costs[4, 16, 4][1] == base[1] + 3
    assert base[1] <= 4
    assert costs[4, 16, 4][0] <= base[0] + 3 * 6


def test_metrics_are_looked_at_afresh_each_time(log) -> None:
    log.create_topic("orders")
    metrics = Metrics(log)
    labels = {"topic": "orders", "partition": 0}
    before = value(parsed(metrics.text()), "kafka_topic_partition_current_offset", **labels)
    written(log, "orders", 5)
    with offsetlog.open(log.url) if log.url.startswith("file") else Log(log.store) as other:
        written(other, "orders", 5)
        after = value(parsed(metrics.text()), "kafka_topic_partition_current_offset", **labels)
    assert (before, after) == (0, 10)


def test_the_command_prints_the_same(tmp_path, monkeypatch) -> None:
    root = tmp_path / "log"
    with offsetlog.open(str(root)) as log:
        log.create_topic("orders", partitions=2)
        written(log, "orders", 3, partition=1)
        committed(log, "billing", {("orders", 1): 1})
    printed = command("--root", root, "metrics")
    assert (printed.status, printed.err) == (0, "")
    series = parsed(printed.text)
    assert {name for name, _ in series} == {family.name for family in OF_A_LOG}
    as_json = json.loads(command("--root", root, "metrics", "--json").text)
    again = {(s["name"], tuple(sorted(s["labels"].items()))): s["value"] for s in as_json}
    aged = "offsetlog_consumergroup_lag_seconds"
    assert {k: v for k, v in again.items() if k[0] != aged} == {
        k: v for k, v in series.items() if k[0] != aged
    }


def test_a_log_that_is_not_there_is_an_error_of_one_line(tmp_path) -> None:
    printed = command("--root", tmp_path / "nothing", "metrics")
    assert printed.status != 0 and printed.out == b"" and len(printed.err.splitlines()) == 1
