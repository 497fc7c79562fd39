"""Memory of an executor that reads all rows of a topic, beside one that scans the same Parquet.

Each is measured in a Spark of its own (``bench/executor_memory.py``), which ends afterwards.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from bench.executor_memory import HEAP_MB
from bench.figure import Case, Figure, Rig, Setting
from bench.memory import in_fresh_process
from bench.spark.rows import RANDOM, Rows, rows_of
from bench.spark.session import CORES
from tests.spark_plugin import spark_cluster

SCAN = "Spark's Parquet scan"
FIGURES = (
    Figure("spark_executor_memory", "MB", SCAN, 1.2, "lower"),
    Figure("spark_executor_memory_python", "MB", SCAN, 1.2, "lower"),
)


class _Memory:
    def __init__(self, rows: Rows, master: str) -> None:
        self._rows = rows
        self._master = master

    def _of(self, reader: str) -> float:
        rows = self._rows
        return float(
            in_fresh_process(
                "bench.executor_memory",
                reader,
                self._master,
                rows.kind.name,
                rows.place,
                rows.count,
            )  # fmt: skip
        )

    def ours(self) -> dict[str, float]:
        return {
            "spark_executor_memory": self._of("jvm"),
            "spark_executor_memory_python": self._of("python"),
        }

    def peer(self) -> dict[str, float]:
        return dict.fromkeys((figure.name for figure in FIGURES), self._of("scan"))


@contextmanager
def _rig(setting: Setting) -> Iterator[Rig]:
    rows = rows_of(RANDOM, setting)
    with spark_cluster.running(workers=1, cores=CORES, memory_mb=HEAP_MB) as master:
        yield _Memory(rows, master)


CASES = (Case("spark_memory", FIGURES, _rig, warmups=0),)
