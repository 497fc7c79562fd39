"""Spark reads a topic: ours beside plain Parquet, Kafka and Delta, all rows into ``noop``.

The floor is Spark's own scan of Parquet files with the same rows, with the columns that need not
be stored (topic, offset, type of timestamp) computed. The Kafka topic is uncompressed and in
large batches, on a broker of this machine: what its source reads fastest.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from bench.figure import Case, Figure, Rig, Setting
from bench.spark import jobs
from bench.spark.broker import broker, topic_of
from bench.spark.rows import EVENTS, RANDOM, Kind, Rows, rows_of
from bench.spark.session import folder, spark


def _figures(prefix: str) -> tuple[Figure, ...]:
    unit = "rows/s"
    return (
        Figure(f"{prefix}source", unit, "Spark's Parquet scan, same columns", 1.0, "higher"),
        Figure(f"{prefix}source_vs_kafka", unit, "Kafka source, large fetches", 2.0, "higher"),
        Figure(f"{prefix}source_vs_kafka_defaults", unit, "Kafka source, defaults", 3.0, "higher"),
        Figure(f"{prefix}stream_vs_delta", unit, "Delta stream, availableNow", 1.5, "higher"),
        Figure(f"{prefix}source_value", unit, "ours, seven columns", 1.5, "higher"),
    )


class _Source:
    def __init__(self, prefix: str, rows: Rows, setting: Setting) -> None:
        self._prefix = prefix
        self._rows = rows
        self._spark = spark(setting)
        self._folder = folder(setting)
        self._address = broker(setting).address
        self._topic = topic_of(rows, setting)
        self._delta = jobs.delta_table(self._spark, rows)
        self._round = 0
        self._seven = 0.0
        for frame in (self._ours(), jobs.read_parquet(self._spark, rows), self._kafka(True)):
            jobs.checked(frame, rows.count)

    def _ours(self, schema: str | None = None) -> Any:
        return jobs.read_ours(self._spark, self._rows, schema)

    def _kafka(self, raised: bool) -> Any:
        return jobs.read_kafka(self._spark, self._address, self._topic, raised)

    def _rate(self, job: Callable[[], object]) -> float:
        return self._rows.count / jobs.seconds(job)

    def _read(self, frame: Callable[[], Any]) -> float:
        return self._rate(lambda: jobs.into_noop(frame()))

    def _stream(self, frame: Callable[[], Any]) -> float:
        self._round += 1
        place = self._folder / f"checkpoint-{self._prefix}{self._round}"
        return self._rate(lambda: jobs.stream_to_noop(frame(), place))

    def _named(self, **measured: float) -> dict[str, float]:
        return {self._prefix + name: value for name, value in measured.items()}

    def ours(self) -> dict[str, float]:
        self._seven = self._read(self._ours)
        return self._named(
            source=self._seven,
            source_vs_kafka=self._seven,
            source_vs_kafka_defaults=self._seven,
            source_value=self._read(lambda: self._ours("value binary")),
            stream_vs_delta=self._stream(lambda: jobs.stream_ours(self._spark, self._rows)),
        )

    def peer(self) -> dict[str, float]:
        return self._named(
            source=self._read(lambda: jobs.read_parquet(self._spark, self._rows)),
            source_vs_kafka=self._read(lambda: self._kafka(True)),
            source_vs_kafka_defaults=self._read(lambda: self._kafka(False)),
            source_value=self._seven,
            stream_vs_delta=self._stream(lambda: jobs.stream_delta(self._spark, self._delta)),
        )


def _case(name: str, kind: Kind, prefix: str) -> Case:
    @contextmanager
    def rig(setting: Setting) -> Iterator[Rig]:
        yield _Source(prefix, rows_of(kind, setting), setting)

    return Case(name, _figures(prefix), rig)


CASES = (
    _case("spark_source", RANDOM, "spark_"),
    _case("spark_source_events", EVENTS, "spark_events_"),
)
