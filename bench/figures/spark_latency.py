"""One record from ``send`` until ``foreachBatch`` holds it: ours, Delta's stream, Kafka's source.

Each side sends as its users do: our producer waits for the ack, as Kafka's does, and Delta's is a
``deltalake`` append on a handle that is kept. The query runs with the default trigger; the clock
stops when the batch's rows have been collected. All on the local disk and loopback.

Kafka's consumer waits up to 500 ms for a byte when it is not told otherwise, and Spark's
source inherits that; it is measured with that default, and with a wait of 10 ms.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from bench.figure import Case, Figure, Rig, Setting
from bench.peers import confluent
from bench.results import quantile
from bench.spark.broker import broker
from bench.spark.session import spark
from bench.spark.streams import arrivals, latencies

PARTS = {"p50": 0.5, "p95": 0.95}
DELTA, KAFKA, TUNED = "Delta stream", "Kafka source", "Kafka source, fetch.max.wait.ms 10"
FIGURES = (
    *(Figure(f"spark_latency_{part}", "ms", DELTA, 0.35, "lower") for part in PARTS),
    *(Figure(f"spark_latency_{part}_vs_kafka", "ms", KAFKA, 0.25, "lower") for part in PARTS),
    *(Figure(f"spark_latency_{part}_vs_kafka_10ms", "ms", TUNED, 1.0, "lower") for part in PARTS),
)
SHORT_WAIT = {"kafka.fetch.max.wait.ms": "10"}


class _Latency:
    def __init__(self, setting: Setting, log: Any) -> None:
        self._spark = spark(setting)
        self._log = log
        self._broker = broker(setting)
        self._client = confluent.producer(self._broker.address, **{"linger.ms": 0})
        self._place = setting.work
        self._count = setting.pick(40, 3)
        self._round = 0

    def _new(self) -> str:
        self._round += 1
        return f"latency-{self._round}"

    def _checkpoint(self, name: str) -> Path:
        return self._place / f"checkpoint-{name}"

    def ours(self) -> dict[str, float]:
        name = self._new()
        self._log.create_topic(name, partitions=1)
        stream = self._spark.readStream.format("offsetlog").option("subscribe", name)
        stream = stream.option("startingOffsets", "earliest").load(self._log.url)
        with (
            self._log.producer(linger_ms=0) as producer,
            arrivals(stream, self._checkpoint(name)) as running,
        ):
            times = latencies(running, lambda v: producer.send(name, value=v).result(), self._count)
        return _named("", times) | _named("_vs_kafka", times) | _named("_vs_kafka_10ms", times)

    def peer(self) -> dict[str, float]:
        found = _named("", self._delta()) | _named("_vs_kafka", self._kafka({}))
        return found | _named("_vs_kafka_10ms", self._kafka(SHORT_WAIT))

    def _delta(self) -> list[float]:
        import pyarrow as pa
        from deltalake import DeltaTable, write_deltalake

        name = self._new()
        schema = pa.schema([("key", pa.binary()), ("value", pa.binary())])
        table = DeltaTable.create(str(self._place / name), schema)

        def send(value: bytes) -> None:
            write_deltalake(table, pa.table([[b"key"], [value]], schema=schema), mode="append")

        stream = self._spark.readStream.format("delta").load(str(self._place / name))
        with arrivals(stream, self._checkpoint(name)) as running:
            return latencies(running, send, self._count)

    def _kafka(self, options: dict[str, str]) -> list[float]:
        name = self._new()
        self._broker.create_topic(name, 1)

        def send(value: bytes) -> None:
            self._client.produce(name, value)
            self._client.flush()

        stream = self._spark.readStream.format("kafka").option("subscribe", name)
        stream = stream.option("kafka.bootstrap.servers", self._broker.address)
        stream = stream.option("startingOffsets", "earliest").options(**options).load()
        with arrivals(stream, self._checkpoint(name)) as running:
            return latencies(running, send, self._count)


def _named(suffix: str, times: list[float]) -> dict[str, float]:
    return {f"spark_latency_{n}{suffix}": quantile(times, part) for n, part in PARTS.items()}


@contextmanager
def _rig(setting: Setting) -> Iterator[Rig]:
    import offsetlog

    with offsetlog.open(f"file://{setting.work.resolve()}/log") as log:
        yield _Latency(setting, log)


CASES = (Case("spark_latency", FIGURES, _rig),)
