"""Four processes append to one topic of an object store that takes 20 ms for a put.

Fairness and waits are those of synchronous appends. Records a second are those acknowledged of
a thousand offered by each process; the peer is the usual loop over put-if-absent, where a loser
reads before it tries again.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from bench.figure import Case, Figure, Rig, Setting, at_most
from bench.processes import run_writers

PROCESSES = 4
PUT_MS, GET_MS = 20.0, 12.0
OFFERED = 1_000
FIGURES = (
    Figure("contention_s3_4_fairness", "acks", "the fastest of the four", 0.5, "higher"),
    at_most("contention_s3_4_longest_wait", 1.0, "s"),
    Figure("contention_s3_4", "records/s", "a loser that reads first", 3.0, "higher"),
)


class _Writers:
    def __init__(self, url: str, options: dict[str, Any], bucket: str, seconds: float) -> None:
        self._url = url
        self._options = json.dumps(options)
        self._bare = (options["endpoint_url"], bucket)
        self._seconds = seconds
        self._fastest = 0.0
        self._round = 0

    def ours(self) -> dict[str, float]:
        one_by_one = run_writers(
            "bench.writers.closed_loop", PROCESSES, self._seconds, self._url, self._options
        )
        counts = [len(writer["waits_ms"]) for writer in one_by_one]
        self._fastest = max(counts)
        offered = run_writers(
            "bench.writers.offered", PROCESSES, self._seconds, OFFERED, self._url, self._options
        )
        return {
            "contention_s3_4_fairness": min(counts),
            "contention_s3_4_longest_wait": max(max(w["waits_ms"]) for w in one_by_one) / 1e3,
            "contention_s3_4": sum(writer["records"] for writer in offered) / self._seconds,
        }

    def peer(self) -> dict[str, float]:
        self._round += 1
        done = run_writers(
            "bench.writers.reads_first",
            PROCESSES,
            self._seconds,
            OFFERED,
            *self._bare,
            f"bare/{self._round}",
        )
        return {
            "contention_s3_4_fairness": self._fastest,
            "contention_s3_4": sum(writer["records"] for writer in done) / self._seconds,
        }


@contextmanager
def _rig(setting: Setting) -> Iterator[Rig]:
    import offsetlog
    from tests.servers import latency_s3

    with latency_s3.running(PUT_MS, GET_MS) as place:
        url = f"{place.url}/log"
        options: dict[str, Any] = dict(place.options)
        with offsetlog.open(url, **options) as log:
            log.create_topic("orders", partitions=1)
        bucket = place.url.removeprefix("s3://")
        yield _Writers(url, options, bucket, setting.pick(10.0, 1.0))


CASES = (Case("contention_s3_4", FIGURES, _rig, warmups=0),)
