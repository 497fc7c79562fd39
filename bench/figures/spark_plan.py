"""A batch query over a topic of 10^6 segments: how long Spark's driver plans, and what it asks.

Planned means that Spark knows all tasks: offsets are resolved and ranges cut. Each plan is the
first one of its log: the processes in which Spark plans remember what they have opened. Seconds
are on the local disk, from ``load`` on; requests are counted at the HTTP level on an object
store, for each size of the grid.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import product
from typing import Any

from bench.counting import counted_store
from bench.figure import Case, Figure, Rig, Setting, at_most
from bench.figures.requests import PARTITIONS, SMALLEST, is_dear, segment_counts
from bench.floors.s3 import BareHttp
from bench.large_log import TOPIC, sketched
from bench.spark.jobs import seconds
from bench.spark.session import spark
from tests.servers.relay import Proxy

LIMIT_SECONDS = 2.0
SECONDS = (at_most("spark_plan", LIMIT_SECONDS, "s", "10^6 segments, 64 partitions"),)
REQUESTS = (Figure("requests_spark_plan", "requests", SMALLEST, 1.0, "lower"),)


def plan(session: Any, root: str, **options: str) -> int:
    """Plan a batch query over all records, and say how many tasks it has."""
    reader = session.read.format("offsetlog").option("subscribe", TOPIC).options(**options)
    frame = reader.option("startingOffsets", "earliest").load(root)
    return int(frame._jdf.queryExecution().toRdd().getNumPartitions())


class _Seconds:
    def __init__(self, setting: Setting) -> None:
        self._spark = spark(setting)
        self._log = sketched(setting, setting.pick(1_000_000, 2_000)).folder
        self._place = setting.work.resolve()
        self._round = 0

    def ours(self) -> dict[str, float]:
        self._round += 1
        copy = self._place / str(self._round)
        shutil.copytree(self._log, copy)
        return {"spark_plan": seconds(lambda: plan(self._spark, f"file://{copy}"))}

    def peer(self) -> dict[str, float]:
        return {}


class _Requests:
    def __init__(self, setting: Setting, place: Any, proxy: Proxy) -> None:
        self._setting = setting
        self._spark = spark(setting)
        self._proxy = proxy
        self._url = place.url
        options = dict(place.options) | {"endpoint_url": proxy.url}
        self._options = {f"storage.{name}": str(value) for name, value in options.items()}
        self._grid = list(product(segment_counts(setting), PARTITIONS))
        self._server = BareHttp(str(place.options["endpoint_url"]), place.url.removeprefix("s3://"))
        self._round = 0

    def ours(self) -> dict[str, float]:
        self._round += 1
        rows = [self._measure(segments, partitions) for segments, partitions in self._grid]
        self._setting.series["spark_plan"] = rows
        self._smallest = rows[0]["plan"]
        return {"requests_spark_plan": max(row["plan"] for row in rows)}

    def peer(self) -> dict[str, float]:
        return {"requests_spark_plan": self._smallest}

    def close(self) -> None:
        """Let go of the server."""
        self._server.close()

    def _measure(self, segments: int, partitions: int) -> dict[str, float]:
        prefix = f"{self._round}-{segments}-{partitions}"
        sketched(self._setting, segments, partitions).mirror(self._server, prefix)
        with self._proxy.counted() as asked:
            plan(self._spark, f"{self._url}/{prefix}", **self._options)
        return {
            "segments": segments,
            "partitions": partitions,
            "plan": len(asked),
            "plan_dear": sum(is_dear(one) for one in asked),
        }


@contextmanager
def _seconds_rig(setting: Setting) -> Iterator[Rig]:
    yield _Seconds(setting)


@contextmanager
def _requests_rig(setting: Setting) -> Iterator[Rig]:
    with counted_store() as (place, proxy):
        rig = _Requests(setting, place, proxy)
        yield rig
        rig.close()


CASES = (
    Case("spark_plan", SECONDS, _seconds_rig),
    Case("spark_plan_requests", REQUESTS, _requests_rig, warmups=0),
)
