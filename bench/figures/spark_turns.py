"""Spark reads a topic whose records lie in segments and entries by turns, as a job beside a small
producer leaves them until upkeep has been there.

Spark's JVM reads the segments, Python the entries between them, and rows keep their order, so the
two take turns within one task. The peer is Python alone, which hands rows over: no shape of a log
may make the JVM's reader the slower one, or a user would have to know about it. Both are warm: so
little data is read before the JVM has compiled its decoder.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from bench.figure import Case, Figure, Rig, Setting
from bench.spark import jobs
from bench.spark.rows import TOPIC
from bench.spark.session import spark

TURNS = 500
SEGMENT, ENTRY = 300, 20
"""Records of 1 kB: what is above 256 KiB goes to a segment."""
FIGURES = (
    Figure("spark_turns", "rows/s", "Python alone (`rows`), same turns", 1.0, "higher"),
)  # fmt: skip


class _Turns:
    def __init__(self, setting: Setting, root: str, rows: int) -> None:
        self._spark = spark(setting)
        self._root = root
        self._rows = rows
        for reader in ("jvm", "rows"):
            with jobs.tasks_in(self._spark, reader):
                jobs.checked(self._frame(), rows)

    def _frame(self) -> Any:
        return jobs.read_topic(self._spark, self._root)

    def _rate(self, reader: str) -> dict[str, float]:
        with jobs.tasks_in(self._spark, reader):
            seconds = jobs.seconds(lambda: jobs.into_noop(self._frame()))
        return {FIGURES[0].name: self._rows / seconds}

    def ours(self) -> dict[str, float]:
        return self._rate("jvm")

    def peer(self) -> dict[str, float]:
        return self._rate("rows")


@contextmanager
def _rig(setting: Setting) -> Iterator[Rig]:
    import offsetlog

    turns = setting.pick(TURNS, 20)
    root = f"file://{setting.work.resolve()}/turns"
    rng = random.Random(7)
    with offsetlog.open(root) as log:
        log.create_topic(TOPIC, config={"retention.ms": "-1"})
        with log.producer(linger_ms=60_000) as producer:
            for count in (SEGMENT, ENTRY) * turns:
                for _ in range(count):
                    producer.send(TOPIC, rng.randbytes(1000), key=rng.randbytes(8))
                producer.flush()
    yield _Turns(setting, root, (SEGMENT + ENTRY) * turns)


CASES = (Case("spark_turns", FIGURES, _rig, warmups=4),)
