"""Requests of each operation on an object store, at 10^2, 10^4 and 10^6 segments and at 1, 64 and
1,000 partitions: the same everywhere.

They are counted at the HTTP level. What is reported is the most of the whole grid, against the
smallest log. The log is one that is in use: opened, looked at, committed to before.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import product
from typing import Any

from bench.counting import counted_store
from bench.figure import Case, Figure, Rig, Setting
from bench.floors.s3 import BareHttp
from bench.large_log import TOPIC, sketched
from tests.servers.relay import Proxy, Request

SEGMENTS = (100, 10_000, 1_000_000)
PARTITIONS = (1, 64, 1_000)
GROUP = "billing"
OPERATIONS = {
    "append": "send one record",
    "new_entry": "poll that brings a new record",
    "idle_poll": "poll that brings nothing",
    "cold_open": "open the log, end offsets",
    "commit": "commit all positions of a group",
    "lag": "lag of a group",
}
SMALLEST = "the same at 100 segments, 1 partition"
FIGURES = tuple(
    Figure(f"requests_{name}", "requests", SMALLEST, 1.0, "lower", about=about)
    for name, about in OPERATIONS.items()
)
Counts = dict[str, float]


def is_dear(asked: Request) -> bool:
    """Whether S3 bills a request as a PUT, as it does with lists; reads cost a twelfth."""
    return asked.method in ("PUT", "POST") or "list-type=" in asked.path


def segment_counts(setting: Setting) -> tuple[int, ...]:
    """The sizes of this run."""
    return setting.pick(SEGMENTS, (100, 2_000))


class _Requests:
    def __init__(self, setting: Setting, place: Any, proxy: Proxy) -> None:
        self._setting = setting
        self._proxy = proxy
        self._url = place.url
        self._direct: dict[str, Any] = dict(place.options)
        self._relayed = self._direct | {"endpoint_url": proxy.url}
        self._server = BareHttp(str(place.options["endpoint_url"]), place.url.removeprefix("s3://"))
        self._grid = list(product(segment_counts(setting), PARTITIONS))
        self._smallest: Counts = {}
        self._round = 0

    def ours(self) -> Counts:
        self._round += 1
        rows = [self._measure(segments, partitions) for segments, partitions in self._grid]
        self._setting.series["requests"] = [
            {"segments": segments, "partitions": partitions} | row
            for (segments, partitions), row in zip(self._grid, rows, strict=True)
        ]
        self._smallest = {f"requests_{name}": rows[0][name] for name in OPERATIONS}
        return {f"requests_{name}": max(row[name] for row in rows) for name in OPERATIONS}

    def peer(self) -> Counts:
        return self._smallest

    def close(self) -> None:
        """Let go of the server."""
        self._server.close()

    def _measure(self, segments: int, partitions: int) -> Counts:
        import offsetlog

        prefix = f"{self._round}-{segments}-{partitions}"
        sketched(self._setting, segments, partitions).mirror(self._server, prefix)
        root = f"{self._url}/{prefix}"
        counts: Counts = {}
        with offsetlog.open(root, **self._relayed) as log:
            self._count(counts, "cold_open", lambda: log.topic(TOPIC).end_offsets())
        with (
            offsetlog.open(root, **self._direct) as elsewhere,
            offsetlog.open(root, **self._relayed) as log,
            elsewhere.producer(linger_ms=0) as producer,
        ):
            self._send(counts, log)
            self._read(counts, log, producer, partitions)
            log.group(GROUP).lag()
            self._count(counts, "lag", lambda: log.group(GROUP).lag())
        return counts

    def _send(self, counts: Counts, log: Any) -> None:
        with log.producer(linger_ms=0) as producer:
            producer.send(TOPIC, value=b"the first opens the topic").result()
            self._count(counts, "append", lambda: producer.send(TOPIC, value=b"next").result())

    def _read(self, counts: Counts, log: Any, producer: Any, partitions: int) -> None:
        with log.consumer(group=GROUP, enable_auto_commit=False) as consumer:
            consumer.assign([(TOPIC, number) for number in range(partitions)])
            consumer.seek_to_end()
            consumer.poll(timeout=0)
            producer.send(TOPIC, value=b"before").result()
            while not consumer.poll(timeout=0.5):
                pass
            consumer.poll(timeout=0)  # idle again: who finds much asks for more at once
            consumer.commit()
            producer.send(TOPIC, value=b"new").result()
            self._count(counts, "new_entry", lambda: consumer.poll(timeout=0))
            consumer.poll(timeout=0)
            self._count(counts, "idle_poll", lambda: consumer.poll(timeout=0))
            self._count(counts, "commit", consumer.commit)

    def _count(self, counts: Counts, name: str, operation: Callable[[], Any]) -> None:
        with self._proxy.counted() as asked:
            operation()
        counts[name] = len(asked)
        counts[f"{name}_dear"] = sum(is_dear(one) for one in asked)


@contextmanager
def _rig(setting: Setting) -> Iterator[Rig]:
    with counted_store() as (place, proxy):
        rig = _Requests(setting, place, proxy)
        yield rig
        rig.close()


CASES = (Case("requests", FIGURES, _rig, warmups=0),)
