"""Bytes on the disk for each data set: ours, Kafka's log at its best compression, and Delta.

Ours is the whole topic's folder, chain and stored states included. Kafka's are its log files
without their indexes, from a producer with batches of 1 MB, which help every codec. Delta is
written by partition with Spark's defaults, and holds no timestamp, as the Kafka sink takes none.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from bench.figure import Case, Figure, Rig, Setting
from bench.spark import jobs
from bench.spark.broker import broker, topic_of
from bench.spark.rows import KINDS, Kind, Rows, rows_of
from bench.spark.session import spark

FIGURES = tuple(
    Figure(f"stored_{kind.name}{against}", "bytes/record", peer, 1.0, "lower")
    for kind in KINDS
    for against, peer in (("", "Kafka's log, best codec"), ("_vs_delta", "Delta"))
)


class _Stored:
    """What lies there is the same in every round, so it is laid down once."""

    def __init__(self, setting: Setting) -> None:
        self._ours: dict[str, float] = {}
        self._peer: dict[str, float] = {}
        for kind in KINDS:
            rows = rows_of(kind, setting)
            name = f"stored_{kind.name}"
            ours = jobs.size_of(Path(rows.root.removeprefix("file://"))) / rows.count
            self._ours |= {name: ours, f"{name}_vs_delta": ours}
            self._peer[name] = self._kafka(rows, setting)
            self._peer[f"{name}_vs_delta"] = self._delta(kind, rows, setting)

    @staticmethod
    def _kafka(rows: Rows, setting: Setting) -> float:
        topics = [topic_of(rows, setting, codec) for codec in jobs.CODECS]
        return min(broker(setting).stored(topic) for topic in topics) / rows.count

    @staticmethod
    def _delta(kind: Kind, rows: Rows, setting: Setting) -> float:
        place = setting.work / kind.name
        jobs.write_delta(spark(setting), rows, str(place))
        return jobs.size_of(place) / rows.count

    def ours(self) -> dict[str, float]:
        return self._ours

    def peer(self) -> dict[str, float]:
        return self._peer


@contextmanager
def _rig(setting: Setting) -> Iterator[Rig]:
    yield _Stored(setting)


CASES = (Case("stored_bytes", FIGURES, _rig, warmups=0),)
