"""What a micro-batch costs that carries next to nothing, in and out; and a query that waits.

A trigger's time is Spark's own ``triggerExecution``. The smallest batch that a source can have is
one row; Spark's rate source by micro-batch makes one of that size at each trigger. The sink's
batches of a hundred rows come from that source too. An idle query's cost is the processor time
of Spark's driver, of the Python process that started it and of their workers; the broker's own is
left out.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from statistics import median
from typing import Any

from bench import processor_time
from bench.figure import Case, Figure, Rig, Setting
from bench.peers import confluent
from bench.spark.broker import broker
from bench.spark.session import spark
from bench.spark.streams import arrivals, triggers

ROWS = 100
TOPIC = "orders"


class _Base:
    """A session, a log, and names for what each round makes."""

    def __init__(self, setting: Setting, log: Any) -> None:
        self._setting = setting
        self._spark = spark(setting)
        self._log = log
        self._place = setting.work.resolve()
        self._count = setting.pick(40, 3)
        self._round = 0

    def _checkpoint(self) -> Path:
        self._round += 1
        return self._place / f"checkpoint-{self._round}"

    def _rate(self, rows: int) -> Any:
        reader = self._spark.readStream.format("rate-micro-batch").option("rowsPerBatch", rows)
        return reader.option("advanceMillisPerBatch", 1).load()

    def _triggers(self, writer: Any) -> float:
        return median(triggers(writer, self._checkpoint(), self._count))


class _Source(_Base):
    """One row a trigger, all the time."""

    def __init__(self, setting: Setting, log: Any) -> None:
        super().__init__(setting, log)
        log.create_topic(TOPIC, partitions=1)
        with log.producer() as producer:
            for number in range(1_000):
                producer.send(TOPIC, value=b"row %d" % number)

    def ours(self) -> dict[str, float]:
        reader = self._spark.readStream.format("offsetlog").option("subscribe", TOPIC)
        reader = reader.option("startingOffsets", "earliest").option("maxOffsetsPerTrigger", 1)
        stream = reader.load(self._log.url)
        return {"spark_empty_batch": self._triggers(stream.writeStream.format("noop"))}

    def peer(self) -> dict[str, float]:
        return {"spark_empty_batch": self._triggers(self._rate(1).writeStream.format("noop"))}


class _Sink(_Base):
    """A hundred rows a trigger."""

    def __init__(self, setting: Setting, log: Any) -> None:
        super().__init__(setting, log)
        log.create_topic(TOPIC, partitions=8)

    def _rows(self) -> Any:
        return self._rate(ROWS).selectExpr(
            "cast(cast(value as string) as binary) as key",
            "cast(repeat('x', 100) as binary) as value",
        )

    def ours(self) -> dict[str, float]:
        writer = self._rows().writeStream.format("offsetlog").option("topic", TOPIC)
        return {"spark_sink_100_rows": self._triggers(writer.option("path", self._log.url))}

    def peer(self) -> dict[str, float]:
        path = str(self._place / f"files-{self._round}")
        writer = self._rows().writeStream.format("parquet").option("path", path)
        return {"spark_sink_100_rows": self._triggers(writer)}


class _Idle(_Base):
    """Queries that have read all there is."""

    def __init__(self, setting: Setting, log: Any) -> None:
        super().__init__(setting, log)
        self._seconds = setting.pick(10.0, 1.0)
        self._broker = broker(setting)
        log.create_topic(TOPIC, partitions=8)
        self._broker.create_topic("idle", 8)

    def _share(self, stream: Any, send: Callable[[bytes], object]) -> dict[str, float]:
        """Percent of one core."""
        with arrivals(stream, self._checkpoint()) as running:
            last = b"last %d" % self._round
            send(last)
            running.wait_for(last)
            time.sleep(self._seconds / 5)
            before = processor_time.of_the_tree(without={self._broker.pid})
            time.sleep(self._seconds)
            spent = processor_time.of_the_tree(without={self._broker.pid}) - before
        return {"spark_idle_cpu": 100 * spent / self._seconds}

    def ours(self) -> dict[str, float]:
        reader = self._spark.readStream.format("offsetlog").option("subscribe", TOPIC)
        stream = reader.option("startingOffsets", "earliest").load(self._log.url)
        with self._log.producer(linger_ms=0) as producer:
            return self._share(stream, lambda value: producer.send(TOPIC, value=value).result())

    def peer(self) -> dict[str, float]:
        address = self._broker.address
        reader = self._spark.readStream.format("kafka").option("subscribe", "idle")
        reader = reader.option("kafka.bootstrap.servers", address)
        stream = reader.option("startingOffsets", "earliest").load()

        def send(value: bytes) -> None:
            client = confluent.producer(address)
            client.produce("idle", value)
            client.flush()

        return self._share(stream, send)


def _case(name: str, figure: Figure, rig: Callable[[Setting, Any], Rig]) -> Case:
    @contextmanager
    def opened(setting: Setting) -> Iterator[Rig]:
        import offsetlog

        with offsetlog.open(f"file://{setting.work.resolve()}/log") as log:
            yield rig(setting, log)

    return Case(name, (figure,), opened)


RATE, FILES, KAFKA = (
    "Spark's rate source by micro-batch",
    "Spark's Parquet file sink",
    "Kafka source",
)
CASES = (
    _case("spark_empty_batch", Figure("spark_empty_batch", "ms", RATE, 1.2, "lower"), _Source),
    _case("spark_sink_100_rows", Figure("spark_sink_100_rows", "ms", FILES, 1.2, "lower"), _Sink),
    _case("spark_idle_cpu", Figure("spark_idle_cpu", "% of a core", KAFKA, 1.0, "lower"), _Idle),
)
