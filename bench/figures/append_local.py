"""One record, acknowledged and fsynced, on the local disk.

The floor is a bare append to one open file with ``fdatasync``: no name, no order among writers,
no way to see half a write. What the chain pays beyond it is one file and its name, made durable:
``append_local_file`` is held against just that, since a disk takes 0.01 ms or 0.7 to make a file,
as what was deleted there of late will have it (see bench/README.md).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from time import perf_counter
from typing import Any

from bench.figure import Case, Figure, Rig, Setting
from bench.floors.disk import BareAppend, BareFile
from bench.results import quantile
from bench.workload import random_records

FIGURES = (
    Figure("append_local_p50", "ms", "bare append + fdatasync", 5.0, "lower"),
    Figure("append_local_file", "ms", "bare file, synced + linked", 2.0, "lower"),
    Figure("append_local_p99", "ms", "its own p50", 2.0, "lower"),
)


class _Appends:
    def __init__(self, producer: Any, floor: BareAppend, file: BareFile, count: int) -> None:
        self._producer = producer
        self._floor, self._file = floor, file
        self._keys, self._values = random_records(count)
        self._p50 = 0.0

    def _times(self, one: Callable[[bytes, bytes], object]) -> list[float]:
        times = []
        for key, value in zip(self._keys, self._values, strict=True):
            begin = perf_counter()
            one(key, value)
            times.append((perf_counter() - begin) * 1e3)
        return times

    def ours(self) -> dict[str, float]:
        send = self._producer.send
        times = self._times(lambda key, value: send("orders", value=value, key=key).result())
        self._p50 = quantile(times, 0.5)
        return {
            "append_local_p50": self._p50,
            "append_local_file": self._p50,
            "append_local_p99": quantile(times, 0.99),
        }

    def peer(self) -> dict[str, float]:
        times = self._times(lambda key, value: self._floor.append(key + value))
        files = self._times(lambda key, value: self._file.put(key + value))
        return {
            "append_local_p50": quantile(times, 0.5),
            "append_local_file": quantile(files, 0.5),
            "append_local_p99": self._p50,
        }


@contextmanager
def _rig(setting: Setting) -> Iterator[Rig]:
    import offsetlog

    with (
        offsetlog.open(f"file://{setting.work}/log") as log,
        BareAppend(setting.work / "bare") as floor,
    ):
        log.create_topic("orders", partitions=1)
        file = BareFile(setting.work / "files")
        with log.producer(linger_ms=0) as producer:
            yield _Appends(producer, floor, file, setting.pick(400, 30))
        file.close()


CASES = (Case("append_local", FIGURES, _rig, rounds=15),)
