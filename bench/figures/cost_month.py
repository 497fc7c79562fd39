"""A stated load on an object store, counted at the HTTP level, and what it costs a month.

The load is in ``bench/cost.py``. Appends are counted with the stored states that fall among them;
a Spark query with a group runs beside a producer in real time, and its requests for each trigger
are counted; upkeep is counted for each append that it looks after.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from bench import cost
from bench.counting import counted_store
from bench.figure import Case, Figure, Rig, Setting
from bench.figures.requests import is_dear
from bench.spark import jobs
from bench.spark.broker import broker, topic_of
from bench.spark.rows import EVENTS as JSON_EVENTS
from bench.spark.rows import rows_of
from bench.spark.session import spark
from bench.workload import events
from tests.servers.relay import Proxy, Requests

FIGURES = (Figure("cost_month", "$ a month", "machines of a small Kafka cluster", 1.0, "lower"),)


class _Load:
    def __init__(self, setting: Setting, place: Any, proxy: Proxy) -> None:
        self._setting = setting
        self._proxy = proxy
        self._url = place.url
        self._direct: dict[str, Any] = dict(place.options)
        self._relayed = self._direct | {"endpoint_url": proxy.url}
        self._tables = [events(cost.EVENTS, seed) for seed in range(8)]
        self._appends = setting.pick(256, 64)
        self._triggers = setting.pick(4, 2)
        self._fixed = self._bytes(setting)
        self._round = 0

    @staticmethod
    def _bytes(setting: Setting) -> dict[str, float]:
        """Stored for a record, by us and by Kafka with its best codec."""
        rows = rows_of(JSON_EVENTS, setting)
        there = broker(setting)
        topics = [topic_of(rows, setting, codec) for codec in jobs.CODECS]
        ours = jobs.size_of(Path(rows.root.removeprefix("file://")))
        least = min(there.stored(topic) for topic in topics)
        return {"stored_bytes": ours / rows.count, "kafka_bytes": least / rows.count}

    def ours(self) -> dict[str, float]:
        import offsetlog

        self._round += 1
        topic = f"load-{self._round}"
        with (
            offsetlog.open(f"{self._url}/log", **self._relayed) as log,
            offsetlog.open(f"{self._url}/log", **self._direct) as elsewhere,
        ):
            # The events are of another year. A limit all the same: rows go, so each entry is
            # stubbed, as it is where they are kept for a week.
            config = {"retention.ms": -1, "retention.bytes": 10**15}
            log.create_topic(topic, partitions=cost.PARTITIONS, config=config)
            counted = self._fixed | self._send(log, topic)
            counted |= self._upkeep(log, topic)
            with elsewhere.producer(linger_ms=0) as producer:
                counted |= self._read(producer, topic)
        self._setting.series["cost"] = [counted]
        return {"cost_month": cost.total(cost.ours(counted))}

    def peer(self) -> dict[str, float]:
        return {"cost_month": cost.total(cost.kafka(self._fixed))}

    def _table(self, number: int) -> Any:
        return self._tables[number % len(self._tables)]

    def _send(self, log: Any, topic: str) -> dict[str, float]:
        with log.producer(linger_ms=0) as producer:
            producer.send_arrow(topic, self._table(0)).result()
            with self._proxy.counted() as asked:
                for number in range(self._appends):
                    producer.send_arrow(topic, self._table(number)).result()
        return _shared("append", asked, self._appends)

    def _upkeep(self, log: Any, topic: str) -> dict[str, float]:
        with self._proxy.counted() as asked:
            log.maintain(topic, grace_ms=0)
        stubs = [one.sent for one in asked if one.method == "PUT" and "/_log/" in one.path]
        # A round stores a segment for each partition, and some notes: those are shared among the
        # appends of an hour, and not among these few. A stub is each append's own.
        found = _shared("upkeep", asked, self._appends)
        found["upkeep_puts"] = len(stubs) / self._appends
        rounds = {"round_puts": _shared("round", asked, 1)["round_puts"] - len(stubs)}
        return found | rounds | {"stub_bytes": sum(stubs) / len(stubs)}

    def _read(self, producer: Any, topic: str) -> dict[str, float]:
        """A query's requests for a trigger, while the load goes on."""
        options = {f"storage.{name}": str(value) for name, value in self._relayed.items()}
        reader = spark(self._setting).readStream.format("offsetlog").options(**options)
        reader = reader.option("subscribe", topic).option("group.id", topic)
        stream = reader.option("startingOffsets", "latest").load(f"{self._url}/log")
        writer = stream.writeStream.format("noop").trigger(processingTime=f"{cost.TRIGGER} seconds")
        place = self._setting.work / f"checkpoint-{self._round}"
        query = writer.option("checkpointLocation", str(place)).start()
        try:
            self._go_on(producer, topic, cost.TRIGGER)
            with self._proxy.counted() as asked:
                self._go_on(producer, topic, cost.TRIGGER * self._triggers)
        finally:
            query.stop()
        return _shared("trigger", asked, self._triggers)

    def _go_on(self, producer: Any, topic: str, seconds: float) -> None:
        gap = 1 / (cost.PRODUCERS * cost.APPENDS)
        begin = time.monotonic()
        for number in range(round(seconds / gap)):
            producer.send_arrow(topic, self._table(number)).result()
            time.sleep(max(0.0, begin + (number + 1) * gap - time.monotonic()))


def _shared(name: str, asked: Requests, among: int) -> dict[str, float]:
    puts = sum(is_dear(one) for one in asked)
    free = sum(one.method == "DELETE" for one in asked)
    return {f"{name}_puts": puts / among, f"{name}_gets": (len(asked) - puts - free) / among}


@contextmanager
def _rig(setting: Setting) -> Iterator[Rig]:
    with counted_store() as (place, proxy):
        yield _Load(setting, place, proxy)


CASES = (Case("cost_month", FIGURES, _rig, warmups=0),)
