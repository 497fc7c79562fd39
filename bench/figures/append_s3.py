"""One batch to an object store: exactly one request, next to a bare PUT of the same bytes.

Times are taken on a real S3 server on loopback, where there is no network to hide behind.
``append_s3`` is held against a bare HTTP PUT, without a signature; ``append_s3_s3fs`` against
s3fs's own ``pipe_file``, the least that a program which goes through fsspec can cost. Appends
follow each other at once, so the time holds the wait that a winner owes to other writers.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from statistics import median
from time import perf_counter
from typing import Any

from bench.counting import counted_store
from bench.figure import Case, Figure, Rig, Setting, at_most
from bench.floors.s3 import BareHttp, BareS3fs
from bench.peers import seaweed
from bench.workload import random_table
from tests.servers.relay import Proxy

PARTITIONS = 64
ROWS = 2_000
"""216 kB of keys and values: nearly the most that travels in an entry."""
SNAPSHOT_SPAN = 256
"""Appends over which the requests of a writer's snapshots are spread."""
CACHES = re.compile("/_(snapshot|index)/")
COUNTS = (
    at_most("append_s3_requests", 1, "requests"),
    at_most("append_s3_requests_amortised", 1.15, "requests", "snapshots included"),
)
TIMES = (
    Figure("append_s3", "ms", "bare HTTP PUT", 2.0, "lower"),
    Figure("append_s3_s3fs", "ms", "bare s3fs PUT", 1.4, "lower"),
)


class _Counts:
    def __init__(self, log: Any, proxy: Proxy) -> None:
        self._log = log
        self._proxy = proxy

    def ours(self) -> dict[str, float]:
        table = random_table(ROWS)
        with self._log.producer(linger_ms=0) as producer:
            producer.send_arrow("orders", table).result()  # the first opens the topic
            with self._proxy.counted() as one:
                producer.send_arrow("orders", table).result()
            with self._proxy.counted() as many:
                for _ in range(SNAPSHOT_SPAN):
                    producer.send("orders", value=b"small").result()
        return {
            # A snapshot of the appends before it may be on its way beside it: counted below.
            "append_s3_requests": sum(not CACHES.search(asked.path) for asked in one),
            "append_s3_requests_amortised": len(many) / SNAPSHOT_SPAN,
        }

    def peer(self) -> dict[str, float]:
        return {}


@contextmanager
def _count_rig(setting: Setting) -> Iterator[Rig]:
    import offsetlog

    with counted_store() as (place, proxy):
        options: dict[str, Any] = {**place.options, "endpoint_url": proxy.url}
        with offsetlog.open(f"{place.url}/log", **options) as log:
            log.create_topic("orders", partitions=PARTITIONS)
            yield _Counts(log, proxy)


class _Appends:
    def __init__(self, log: Any, floors: tuple[BareHttp, BareS3fs], size: int, count: int) -> None:
        self._log = log
        self._http, self._s3fs = floors
        self._table = random_table(ROWS)
        self._bytes = random_table(size // 108 + 1)["value"].chunk(0).buffers()[2].to_pybytes()
        self._count = count
        self._put = 0

    def _median_ms(self, one: Callable[[], object]) -> float:
        times = []
        for _ in range(self._count):
            begin = perf_counter()
            one()
            times.append((perf_counter() - begin) * 1e3)
        return median(times)

    def ours(self) -> dict[str, float]:
        with self._log.producer(linger_ms=0) as producer:
            took = self._median_ms(lambda: producer.send_arrow("orders", self._table).result())
        return {"append_s3": took, "append_s3_s3fs": took}

    def peer(self) -> dict[str, float]:
        return {
            "append_s3": self._median_ms(lambda: self._bare(self._http)),
            "append_s3_s3fs": self._median_ms(lambda: self._bare(self._s3fs)),
        }

    def _bare(self, floor: BareHttp | BareS3fs) -> None:
        self._put += 1
        floor.put(f"bare/{self._put:020d}", self._bytes)


@contextmanager
def _time_rig(setting: Setting) -> Iterator[Rig]:
    import offsetlog

    with seaweed.running(setting.work) as server, Proxy(server.port) as proxy:
        url = f"s3://{server.bucket}/log"
        with offsetlog.open(url, **server.options(proxy.url)) as log:
            log.create_topic("orders", partitions=PARTITIONS)
            with log.producer(linger_ms=0) as producer, proxy.counted() as asked:
                producer.send_arrow("orders", random_table(ROWS)).result()
        size = max(one.sent for one in asked)
        http = BareHttp(server.endpoint, server.bucket)
        floors = (http, BareS3fs(server.bucket, server.options()))
        with offsetlog.open(url, **server.options()) as log:
            yield _Appends(log, floors, size, setting.pick(100, 3))
        http.close()


CASES = (
    Case("append_s3_requests", COUNTS, _count_rig),
    Case("append_s3", TIMES, _time_rig),
)
