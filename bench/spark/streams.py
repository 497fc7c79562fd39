"""Running streams and looking at them: what a trigger takes, when a record came, what an idle
query costs."""

from __future__ import annotations

import queue
import random
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from time import perf_counter
from typing import Any

PATIENCE = 120.0
SKIPPED = 5
"""Triggers at the start of a query that are not looked at."""


def triggers(writer: Any, checkpoint: Path, count: int) -> list[float]:
    """Milliseconds of ``count`` triggers of a query that always has something to do, from Spark's
    own progress; the query is ended."""
    query = writer.option("checkpointLocation", str(checkpoint)).start()
    try:
        deadline = time.monotonic() + PATIENCE
        while (last := query.lastProgress) is None or last["batchId"] < count + SKIPPED:
            _check(query, deadline)
            time.sleep(0.05)
        seen = {p["batchId"]: p["durationMs"]["triggerExecution"] for p in query.recentProgress}
    finally:
        query.stop()
    return [float(seen[number]) for number in range(SKIPPED, count + SKIPPED)]


def _check(query: Any, deadline: float) -> None:
    if not query.isActive:
        raise RuntimeError(f"the query ended: {query.exception()}")
    if time.monotonic() > deadline:
        raise RuntimeError("the query does not get on")


class Arrivals:
    """A query that hands each record's value over, with the time at which it came."""

    def __init__(self, stream: Any, checkpoint: Path) -> None:
        self._seen: queue.Queue[tuple[bytes, float]] = queue.Queue()
        writer = stream.select("value").writeStream.foreachBatch(self._take)
        self.query = writer.option("checkpointLocation", str(checkpoint)).start()

    def _take(self, frame: Any, batch: int) -> None:
        rows = frame.collect()
        now = perf_counter()
        for row in rows:
            self._seen.put((bytes(row.value), now))

    def wait_for(self, value: bytes) -> float:
        """The time at which a record came; those before it are passed over."""
        deadline = time.monotonic() + PATIENCE
        while True:
            try:
                seen, at = self._seen.get(timeout=0.5)
            except queue.Empty:
                _check(self.query, deadline)
                continue
            if seen == value:
                return at


@contextmanager
def arrivals(stream: Any, checkpoint: Path) -> Iterator[Arrivals]:
    """Such a query for the length of a block."""
    running = Arrivals(stream, checkpoint)
    try:
        yield running
    finally:
        running.query.stop()


def latencies(running: Arrivals, send: Callable[[bytes], object], count: int) -> list[float]:
    """Milliseconds from the call of ``send`` until ``foreachBatch`` has the record, one by one,
    at moments that have nothing to do with the query's own rhythm."""
    chance = random.Random(count)
    times = []
    for number in range(-SKIPPED, count):
        time.sleep(0.02 + 0.1 * chance.random())
        value = b"record %d" % number
        begin = perf_counter()
        send(value)
        times.append((running.wait_for(value) - begin) * 1e3)
    return times[SKIPPED:]
