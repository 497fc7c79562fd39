"""Threads of one process share an entry: eight threads against one, each waiting for its ack."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from threading import Thread
from time import perf_counter
from typing import Any

from bench.figure import Case, Figure, Rig, Setting

NAME = "group_commit_8_threads"
THREADS = 8


class _Threads:
    def __init__(self, producer: Any, seconds: float) -> None:
        self._producer = producer
        self._seconds = seconds

    def _acks_a_second(self, threads: int) -> float:
        counts = [0] * threads
        deadline = perf_counter() + self._seconds

        def work(number: int) -> None:
            while perf_counter() < deadline:
                self._producer.send("orders", value=b"v" * 100).result()
                counts[number] += 1

        workers = [Thread(target=work, args=(number,)) for number in range(threads)]
        begin = perf_counter()
        for worker in workers:
            worker.start()
        for worker in workers:
            worker.join()
        return sum(counts) / (perf_counter() - begin)

    def ours(self) -> dict[str, float]:
        return {NAME: self._acks_a_second(THREADS)}

    def peer(self) -> dict[str, float]:
        return {NAME: self._acks_a_second(1)}


@contextmanager
def _rig(setting: Setting) -> Iterator[Rig]:
    import offsetlog

    with offsetlog.open(f"file://{setting.work}/log") as log:
        log.create_topic("orders", partitions=1)
        with log.producer(linger_ms=0) as producer:
            yield _Threads(producer, setting.pick(3.0, 0.2))


CASES = (Case(NAME, (Figure(NAME, "acks/s", "one thread", 4.0, "higher"),), _rig),)
