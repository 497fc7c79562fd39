"""Spark reads a topic: ours beside plain Parquet, Kafka and Delta, all rows into ``noop``.

The floor is Spark's own scan of Parquet files with the same rows, with the columns that need not
be stored (topic, offset, type of timestamp) computed. The Kafka topic is uncompressed and in
large batches, on a broker of this machine: what its source reads fastest.

Ours reads in Spark's JVM; ``_python`` is the same with Python's reader, which hands columns over.
``_floor`` is what a bare Java program makes of the same segments, with no Spark.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from bench.figure import Case, Figure, Rig, Setting
from bench.floors.segments import SegmentFloor, segment_floor
from bench.spark import jobs
from bench.spark.broker import broker, topic_of
from bench.spark.rows import EVENTS, RANDOM, TOPIC, Kind, Rows, rows_of
from bench.spark.session import CORES, folder, spark


@dataclass(frozen=True)
class Goals:
    """What of each peer is asked for: values that are random, and values that are compressed,
    leave more or less to win."""

    scan: float
    value: float
    python: float
    delta: float
    floor: float


def _figures(prefix: str, goals: Goals) -> tuple[Figure, ...]:
    scan, value = "Spark's Parquet scan, same columns", "Spark's Parquet scan, `value` alone"
    delta, bare = "Delta stream, availableNow", "a bare Java program, no Spark"

    def figure(name: str, peer: str, goal: float) -> Figure:
        return Figure(prefix + name, "rows/s", peer, goal, "higher")

    return (
        figure("source", scan, goals.scan),
        figure("source_python", scan, goals.python),
        figure("source_floor", bare, goals.floor),
        figure("source_vs_kafka", "Kafka source, large fetches", 5.0),
        figure("source_vs_kafka_defaults", "Kafka source, defaults", 3.0),
        figure("source_value", "ours, seven columns", 1.5),
        figure("source_value_vs_scan", value, goals.value),
        figure("source_value_python", value, goals.python),
        figure("source_value_floor", bare, goals.floor),
        figure("stream_vs_delta", delta, goals.delta),
        figure("stream_python", delta, 1.5),
        figure("stream_floor", bare, goals.floor),
    )


class _Source:
    def __init__(self, prefix: str, rows: Rows, setting: Setting, floor: SegmentFloor) -> None:
        self._prefix = prefix
        self._rows = rows
        self._spark = spark(setting)
        self._floor = floor
        self._floor.add(rows.root, TOPIC)
        self._folder = folder(setting)
        self._address = broker(setting).address
        self._topic = topic_of(rows, setting)
        self._delta = jobs.delta_table(self._spark, rows)
        self._round = 0
        self._seven = 0.0
        with jobs.tasks_in(self._spark, "jvm"):
            jobs.checked_jvm(self._ours(), rows.count)
        for frame in (self._ours(), self._scan(), self._kafka(True)):
            jobs.checked(frame, rows.count)

    def _ours(self) -> Any:
        return jobs.read_ours(self._spark, self._rows)

    def _scan(self) -> Any:
        return jobs.read_parquet(self._spark, self._rows)

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

    def _each(self, reader: str) -> tuple[float, float, float]:
        """A batch, a batch of ``value`` alone, and a stream."""
        with jobs.tasks_in(self._spark, reader):
            return (
                self._read(self._ours),
                self._read(lambda: self._ours().select("value")),
                self._stream(lambda: jobs.stream_ours(self._spark, self._rows)),
            )

    def ours(self) -> dict[str, float]:
        seven, value, stream = self._each("jvm")
        python_seven, python_value, python_stream = self._each("python")
        self._seven = seven
        return self._named(
            source=seven,
            source_python=python_seven,
            source_floor=seven,
            source_vs_kafka=seven,
            source_vs_kafka_defaults=seven,
            source_value=value,
            source_value_vs_scan=value,
            source_value_python=python_value,
            source_value_floor=value,
            stream_vs_delta=stream,
            stream_python=python_stream,
            stream_floor=stream,
        )

    def peer(self) -> dict[str, float]:
        scan = self._read(self._scan)
        value = self._read(lambda: self._scan().select("value"))
        delta = self._stream(lambda: jobs.stream_delta(self._spark, self._delta))
        bare = self._floor.rows_a_second(self._rows.count)
        return self._named(
            source=scan,
            source_python=scan,
            source_floor=bare,
            source_vs_kafka=self._read(lambda: self._kafka(True)),
            source_vs_kafka_defaults=self._read(lambda: self._kafka(False)),
            source_value=self._seven,
            source_value_vs_scan=value,
            source_value_python=value,
            source_value_floor=self._floor.rows_a_second(self._rows.count, "value"),
            stream_vs_delta=delta,
            stream_python=delta,
            stream_floor=bare,
        )


def _case(name: str, kind: Kind, prefix: str, goals: Goals) -> Case:
    @contextmanager
    def rig(setting: Setting) -> Iterator[Rig]:
        with segment_floor(CORES) as floor:
            yield _Source(prefix, rows_of(kind, setting), setting, floor)

    return Case(name, _figures(prefix, goals), rig)


CASES = (
    _case(
        "spark_source", RANDOM, "spark_",
        Goals(scan=2.0, value=1.7, python=0.9, delta=3.5, floor=0.2),
    ),
    _case(
        "spark_source_events", EVENTS, "spark_events_",
        Goals(scan=1.35, value=1.4, python=0.8, delta=2.6, floor=0.5),
    ),
)  # fmt: skip
