"""What it costs that a topic has many partitions: nothing but their bytes.

Each figure is of requests for each entry of a topic whose entries hold rows of every partition.
A request for each partition of each entry would be 64 (in the short form 16) times as many. They
are counted at our own storage port: each call is a request.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import pyarrow as pa

from bench.counting_store import CountingStore
from bench.figure import Case, Figure, Rig, Setting, at_most

BOUNDS = {
    "catch_up": (1.3, "to read all of it"),
    "maintain": (3.4, "to rewrite all of it, and to take the rows out of the entries"),
    "retention": (0.6, "to find that no partition is larger than retention.bytes"),
    "verify": (2.1, "to verify all of it, rewritten and not"),
    "copy": (3.4, "to copy all of it, with the requests to the copy"),
    "topics": (1.1, "to list the topics"),
}
FIGURES: tuple[Figure, ...] = tuple(
    at_most(f"sizes_{name}_requests", bound, "requests", f"for each entry, {about}")
    for name, (bound, about) in BOUNDS.items()
)


class _Sizes:
    def __init__(self, setting: Setting) -> None:
        self._url = str(setting.work.resolve() / "sizes")
        self._entries = setting.pick(500, 100)
        self._partitions = setting.pick(64, 16)
        self._round = 0

    def ours(self) -> dict[str, float]:
        self._round += 1
        url = f"{self._url}-{self._round}"
        self._fill(url)
        counts = {name: self._count(url, getattr(self, f"_{name}")) for name in BOUNDS}
        return {f"sizes_{name}_requests": total / self._entries for name, total in counts.items()}

    def peer(self) -> dict[str, float]:
        return {}

    def _fill(self, url: str) -> None:
        import offsetlog

        number = np.arange(4 * self._partitions)
        table = pa.table(
            {
                "partition": pa.array((number % self._partitions).astype(np.int32)),
                "value": pa.array([b"value %d" % i for i in number], pa.binary()),
            }
        )
        with offsetlog.open(url) as log:
            log.create_topic("orders", self._partitions, {"retention.bytes": 10**12})
            with log.producer() as producer:
                for _ in range(self._entries):
                    producer.send_arrow("orders", table).result()

    def _count(self, url: str, operation: Callable[[Any], None]) -> float:
        from offsetlog.client.log import Log
        from offsetlog.storage.open import open_store

        store = CountingStore(open_store(url))
        log = Log(store)
        log.topic("orders").end_offsets()
        store.reset()
        operation(log)
        total = store.total
        log.close()
        return total

    def _catch_up(self, log: Any) -> None:
        with log.consumer(topics=["orders"], auto_offset_reset="earliest") as consumer:
            expected = 4 * self._partitions * self._entries
            while expected > 0:
                expected -= sum(map(len, consumer.poll_arrow(timeout=10.0).values()))

    def _maintain(self, log: Any) -> None:
        log.maintain("orders", grace_ms=0)

    def _retention(self, log: Any) -> None:
        log.maintain("orders")

    def _verify(self, log: Any) -> None:
        faults = [fault for report in log.verify() for fault in report.faults]
        if faults:
            raise RuntimeError(faults[0])

    def _copy(self, log: Any) -> None:
        from offsetlog.engine.copy.copy import Source, copy_log
        from offsetlog.engine.env import REAL
        from offsetlog.engine.topic.open_topics import OpenTopics
        from offsetlog.storage.open import open_store

        target = CountingStore(open_store(f"{self._url}-{self._round}-copy"))
        topics = OpenTopics(log.store, REAL, None)
        copy_log(Source(log.store, log.root_id, topics, log.offsets_table), target, REAL, None)
        log.store.calls.update(target.calls)

    def _topics(self, log: Any) -> None:
        log.topics()


@contextmanager
def _rig(setting: Setting) -> Iterator[Rig]:
    yield _Sizes(setting)


CASES = (Case("sizes", FIGURES, _rig, warmups=0),)
