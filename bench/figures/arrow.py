"""Whole tables in and out: the data plane.

Sending is held against a number, and shown next to a bare Parquet encode of the same rows in one
thread; what is dirty on the disk is synced before each. Reading is held against a bare decode of
the very files that were written; reading as records against a number, and shown next to
confluent-kafka's ``consume`` of the same records. Two more rounds warm up: a process that touches
memory for the first time waits for it.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from time import perf_counter
from typing import Any

from bench.figure import Case, Figure, Rig, Setting, at_least
from bench.floors.parquet import decode, encode
from bench.peers import confluent, kafka
from bench.workload import random_table

PARTITIONS = 8
SEND = (
    at_least("send_arrow", 4e6, "rows/s"),
    Figure("send_arrow_vs_encode", "rows/s", "bare Parquet encode, fsynced", 1.0, "higher"),
)
READ = (Figure("poll_arrow", "rows/s", "bare decode of the same files", 0.8, "higher"),)
POLL = (
    at_least("poll", 2e6, "records/s"),
    Figure("poll_vs_consume", "records/s", "confluent-kafka consume", 1.0, "higher"),
)


class _Sends:
    def __init__(self, log: Any, work: Path, rows: int) -> None:
        self._log = log
        self._work = work
        self._table = random_table(rows)
        self._round = 0

    def ours(self) -> dict[str, float]:
        topic = f"orders-{self._round}"
        self._round += 1
        self._log.create_topic(topic, partitions=PARTITIONS)
        os.sync()
        with self._log.producer() as producer:
            begin = perf_counter()
            producer.send_arrow(topic, self._table).result()
            rate = self._table.num_rows / (perf_counter() - begin)
        return {"send_arrow": rate, "send_arrow_vs_encode": rate}

    def peer(self) -> dict[str, float]:
        """Eight files of the same rows, one after another."""
        share = self._table.num_rows // PARTITIONS
        os.sync()
        begin = perf_counter()
        for number in range(PARTITIONS):
            encode(self._table.slice(number * share, share), self._work / f"bare-{number}.parquet")
        return {"send_arrow_vs_encode": share * PARTITIONS / (perf_counter() - begin)}


@contextmanager
def _send_rig(setting: Setting) -> Iterator[Rig]:
    import offsetlog

    with offsetlog.open(f"file://{setting.work}/log") as log:
        yield _Sends(log, setting.work, setting.pick(2_000_000, 40_000))


def _fill(log: Any, rows: int) -> int:
    """A topic of large segments; several sends, as a running producer makes them."""
    log.create_topic("orders", partitions=PARTITIONS)
    with log.producer() as producer:
        for seed in range(2):
            producer.send_arrow("orders", random_table(rows // 2, seed)).result()
    return rows // 2 * 2


def _from_the_start(log: Any) -> Any:
    consumer = log.consumer()
    consumer.assign([("orders", number) for number in range(PARTITIONS)])
    consumer.seek_to_beginning()
    return consumer


class _Reads:
    def __init__(self, log: Any, rows: int, segments: list[Path]) -> None:
        self._log = log
        self._rows = rows
        self._segments = segments

    def ours(self) -> dict[str, float]:
        seen = 0
        begin = perf_counter()
        with _from_the_start(self._log) as consumer:
            while seen < self._rows:
                tables = consumer.poll_arrow(timeout=1.0)
                seen += sum(table.num_rows for table in tables.values())
        return {"poll_arrow": seen / (perf_counter() - begin)}

    def peer(self) -> dict[str, float]:
        begin = perf_counter()
        seen = decode(self._segments)
        seconds = perf_counter() - begin
        if seen != self._rows:
            raise RuntimeError(f"the files hold {seen} rows; {self._rows} were sent")
        return {"poll_arrow": seen / seconds}


@contextmanager
def _read_rig(setting: Setting) -> Iterator[Rig]:
    import offsetlog

    with offsetlog.open(f"file://{setting.work}/log") as log:
        rows = _fill(log, setting.pick(4_000_000, 40_000))
        segments = sorted((setting.work / "log" / "orders").glob("partition=*/*.parquet"))
        yield _Reads(log, rows, segments)


class _Polls:
    def __init__(self, log: Any, broker: kafka.Broker, rows: int) -> None:
        self._log = log
        self._broker = broker
        self._rows = rows

    def ours(self) -> dict[str, float]:
        seen = size = 0
        begin = perf_counter()
        with _from_the_start(self._log) as consumer:
            while seen < self._rows:
                for record in consumer.poll(timeout=1.0):
                    size += len(record.value) + (record.offset < 0)
                    seen += 1
        rate = seen / (perf_counter() - begin)
        return {"poll": rate, "poll_vs_consume": rate}

    def peer(self) -> dict[str, float]:
        seconds = confluent.consume_all(self._broker.address, "orders", PARTITIONS, self._rows)
        return {"poll_vs_consume": self._rows / seconds}


@contextmanager
def _poll_rig(setting: Setting) -> Iterator[Rig]:
    import offsetlog

    with (
        kafka.running(setting.work, setting.cache) as broker,
        offsetlog.open(f"file://{setting.work}/log") as log,
    ):
        rows = _fill(log, setting.pick(1_000_000, 4_000))
        broker.create_topic("orders", PARTITIONS)
        client = confluent.producer(broker.address)
        for seed in range(2):
            table = random_table(rows // 2, seed)
            keys, values = table["key"].to_pylist(), table["value"].to_pylist()
            confluent.send_with_callback(client, "orders", keys, values)
        yield _Polls(log, broker, rows)


CASES = (
    Case("send_arrow", SEND, _send_rig, warmups=2),
    Case("poll_arrow", READ, _read_rig, warmups=3),
    Case("poll", POLL, _poll_rig),
)
