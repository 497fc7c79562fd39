"""Spark writes a topic: ours beside partitioned Parquet, Delta and Kafka, from the same input.

Ours and Kafka's sink find each record's partition from its key; Parquet and Delta are given it as
a column. Ours is exactly once and synced to the disk when the job ends; Parquet and Delta are not
synced, and Kafka's sink is at least once, into the page cache of one broker. Kafka writes with
the compression that was fastest in a trial at the start. Ours writes in Spark's JVM; ``_python``
is the same with Python's writer.
"""

from __future__ import annotations

import dataclasses
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from bench.figure import Case, Figure, Rig, Setting
from bench.spark import jobs
from bench.spark.broker import broker
from bench.spark.rows import EVENTS, PARTITIONS, RANDOM, Kind, Rows, rows_of
from bench.spark.session import spark

TRIAL_FILES = 4
"""Input files of the trial of Kafka's compressions: two million rows."""


def _figures(prefix: str, goal: float) -> tuple[Figure, ...]:
    unit, parquet = "rows/s", "Spark's Parquet write, partitioned"
    return (
        Figure(f"{prefix}sink", unit, parquet, goal, "higher"),
        Figure(f"{prefix}sink_python", unit, parquet, 1.3, "higher"),
        Figure(f"{prefix}sink_vs_delta", unit, "Delta write, partitioned", 1.8, "higher"),
        Figure(f"{prefix}sink_vs_kafka", unit, "Kafka sink, its fastest codec", 4.0, "higher"),
    )


class _Sink:
    def __init__(self, prefix: str, rows: Rows, setting: Setting, log: Any) -> None:
        self._prefix = prefix
        self._rows = rows
        self._spark = spark(setting)
        self._log = log
        self._broker = broker(setting)
        self._place = setting.work
        self._made = 0
        self._topics: list[str] = []
        self._codec = self._fastest_codec()

    def _fastest_codec(self) -> str:
        """Two turns with each, of which the first warms up."""
        trial = dataclasses.replace(self._rows, place=self._place / "trial")
        Path(trial.input).mkdir(parents=True)
        for file in sorted(Path(self._rows.input).glob("*.parquet"))[:TRIAL_FILES]:
            shutil.copy(file, trial.input)
        took: dict[str, float] = {}
        for _ in range(2):
            took = {codec: self._kafka(trial, codec) for codec in jobs.CODECS}
        return min(took, key=took.__getitem__)

    def _name(self) -> str:
        self._made += 1
        return f"{self._prefix}{self._made}"

    def _kafka(self, rows: Rows, codec: str) -> float:
        topic = self._name()
        there = self._broker
        there.create_topic(topic, PARTITIONS)
        job = lambda: jobs.write_kafka(self._spark, rows, there.address, topic, codec)  # noqa: E731
        self._topics.append(topic)
        return jobs.seconds(job)

    def _to_folder(self, write: Callable[[Any, Rows, str], None]) -> float:
        path = str(self._place / self._name())
        seconds = jobs.seconds(lambda: write(self._spark, self._rows, path))
        jobs.drop(path)
        return seconds

    def close(self) -> None:
        """Not before: Spark keeps its producers, and one of a topic that went waits for it."""
        for topic in self._topics:
            self._broker.delete_topic(topic)

    def _rate(self, reader: str) -> float:
        topic = self._name()
        self._log.create_topic(topic, partitions=PARTITIONS)
        root = self._log.url
        with jobs.tasks_in(self._spark, reader):
            seconds = jobs.seconds(lambda: jobs.write_ours(self._spark, self._rows, root, topic))
        written = sum(self._log.topic(topic).end_offsets().values())
        if written != self._rows.count:
            raise RuntimeError(f"{written} rows were written; there are {self._rows.count}")
        self._log.delete_topic(topic, purge=True)
        return self._rows.count / seconds

    def _named(self, **measured: float) -> dict[str, float]:
        return {self._prefix + name: value for name, value in measured.items()}

    def ours(self) -> dict[str, float]:
        rate = self._rate("jvm")
        return self._named(
            sink=rate, sink_python=self._rate("python"), sink_vs_delta=rate, sink_vs_kafka=rate
        )

    def peer(self) -> dict[str, float]:
        parquet = self._rows.count / self._to_folder(jobs.write_parquet)
        return self._named(
            sink=parquet,
            sink_python=parquet,
            sink_vs_delta=self._rows.count / self._to_folder(jobs.write_delta),
            sink_vs_kafka=self._rows.count / self._kafka(self._rows, self._codec),
        )


def _case(name: str, kind: Kind, prefix: str, goal: float) -> Case:
    @contextmanager
    def rig(setting: Setting) -> Iterator[Rig]:
        import offsetlog

        rows = rows_of(kind, setting)
        with offsetlog.open(f"file://{setting.work.resolve()}/log") as log:
            sink = _Sink(prefix, rows, setting, log)
            yield sink
            sink.close()

    return Case(name, _figures(prefix, goal), rig)


CASES = (
    _case("spark_sink", RANDOM, "spark_", 1.8),
    _case("spark_sink_events", EVENTS, "spark_events_", 2.0),
)
