"""Eight processes append to one local topic, each waiting for its ack; and one process alone."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from bench.figure import Case, Figure, Rig, Setting, at_most
from bench.processes import run_writers
from bench.results import quantile

PROCESSES = 8
FIGURES = (
    Figure("contention_local_8", "acks/s", "one process", 0.7, "higher"),
    Figure("contention_local_8_fairness", "acks", "the fastest of the eight", 0.7, "higher"),
    at_most("contention_local_8_p99", 100.0, "ms"),
)


class _Writers:
    def __init__(self, url: str, seconds: float) -> None:
        self._url = url
        self._seconds = seconds
        self._fastest = 0.0

    def ours(self) -> dict[str, float]:
        done = run_writers("bench.writers.closed_loop", PROCESSES, self._seconds, self._url)
        counts = [len(writer["waits_ms"]) for writer in done]
        waits = [wait for writer in done for wait in writer["waits_ms"]]
        self._fastest = max(counts)
        return {
            "contention_local_8": sum(counts) / self._seconds,
            "contention_local_8_fairness": min(counts),
            "contention_local_8_p99": quantile(waits, 0.99),
        }

    def peer(self) -> dict[str, float]:
        done = run_writers("bench.writers.closed_loop", 1, self._seconds, self._url)
        return {
            "contention_local_8": len(done[0]["waits_ms"]) / self._seconds,
            "contention_local_8_fairness": self._fastest,
        }


@contextmanager
def _rig(setting: Setting) -> Iterator[Rig]:
    import offsetlog

    url = f"file://{setting.work}/log"
    with offsetlog.open(url) as log:
        log.create_topic("orders", partitions=1)
    yield _Writers(url, setting.pick(5.0, 0.5))


CASES = (Case("contention_local_8", FIGURES, _rig),)
