"""How near our source and sink, in Python, are to what Spark lets any Python source and sink do.

The peers do nothing but hand rows over (``floors/hand_over.py``): what separates them from Spark's
own Parquet reader and writer is the way through Python itself.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from bench.figure import Case, Figure, Rig, Setting
from bench.spark import jobs
from bench.spark.rows import PARTITIONS, RANDOM, Rows, rows_of
from bench.spark.session import spark

FIGURES = (
    Figure("spark_source_vs_hand_over", "rows/s", "a Python source of ready rows", 0.8, "higher"),
    Figure("spark_sink_vs_hand_over", "rows/s", "a Python sink that drops rows", 0.5, "higher"),
)


class _HandOver:
    def __init__(self, rows: Rows, setting: Setting, log: Any) -> None:
        from bench.floors.hand_over import HandOver

        self._rows = rows
        self._spark = spark(setting)
        self._spark.dataSource.register(HandOver)
        self._log = log
        self._made = 0

    def _named(self, source: float, sink: float) -> dict[str, float]:
        rates = (self._rows.count / source, self._rows.count / sink)
        return {figure.name: rate for figure, rate in zip(FIGURES, rates, strict=True)}

    def ours(self) -> dict[str, float]:
        self._made += 1
        topic = f"handed{self._made}"
        self._log.create_topic(topic, partitions=PARTITIONS)
        root = self._log.url
        with jobs.tasks_in(self._spark, "python"):
            read = jobs.seconds(lambda: jobs.into_noop(jobs.read_ours(self._spark, self._rows)))
            wrote = jobs.seconds(lambda: jobs.write_ours(self._spark, self._rows, root, topic))
        self._log.delete_topic(topic, purge=True)
        return self._named(read, wrote)

    def peer(self) -> dict[str, float]:
        ready = self._spark.read.format("handover").option("rows", self._rows.count)
        ready = ready.option("partitions", PARTITIONS)
        read = jobs.seconds(lambda: jobs.into_noop(ready.load()))
        rows = jobs.source_of(self._spark, self._rows, "key", "value")
        wrote = jobs.seconds(lambda: rows.write.format("handover").mode("append").save())
        return self._named(read, wrote)


@contextmanager
def _rig(setting: Setting) -> Iterator[Rig]:
    import offsetlog

    with offsetlog.open(f"file://{setting.work.resolve()}/log") as log:
        yield _HandOver(rows_of(RANDOM, setting), setting, log)


CASES = (Case("spark_hand_over", FIGURES, _rig),)
