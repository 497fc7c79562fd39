"""Opening, end offsets, planning and a lookup by time, on a topic of 10^6 segments.

Requests and bytes are counted at the HTTP level and from cold, the opening of the log included.
Times are on the local disk, on a log that is open. Memory is that of a fresh process that does
all four, beyond one that does them on 10^2 segments.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from statistics import median
from time import perf_counter
from typing import Any

from bench import large_log, operations
from bench.counting import counted_store
from bench.figure import Case, Figure, Rig, Setting, at_most
from bench.floors.s3 import BareHttp
from bench.memory import in_fresh_process
from tests.servers.relay import Proxy, Requests

MANY, FEW = 1_000_000, 100
REQUESTS, BYTES, WARM_MS, EXTRA_MB = 6, 1_000_000, 10.0, 15.0
BEHIND = 32
"""Entries since the last snapshot, half of what a writer lets gather."""
NAMES = tuple(operations.ALL)
FIGURES = (
    *(at_most(f"{name}_requests", REQUESTS, "requests") for name in NAMES),
    *(at_most(f"{name}_bytes", BYTES, "bytes") for name in NAMES),
    *(at_most(f"{name}_ms", WARM_MS, "ms") for name in NAMES),
    at_most("cold_open_behind_requests", REQUESTS, "requests", "32 entries after a snapshot"),
    at_most("extra_memory", EXTRA_MB, "MB"),
)


class _Index:
    def __init__(
        self,
        many: large_log.Built,
        few: large_log.Built,
        proxy: Proxy,
        roots: tuple[str, str],
        options: dict[str, Any],
    ) -> None:
        self._many, self._few = many, few
        self._proxy = proxy
        self._flat, self._behind = roots
        self._options = options

    def ours(self) -> dict[str, float]:
        found: dict[str, float] = {}
        for name in NAMES:
            asked = self._cold(self._flat, name)
            found[f"{name}_requests"] = len(asked)
            found[f"{name}_bytes"] = asked.bytes
        found |= self._warm()
        found["cold_open_behind_requests"] = len(self._cold(self._behind, "cold_open"))
        found["extra_memory"] = max(0.0, self._memory(self._many) - self._memory(self._few))
        return found

    def _cold(self, root: str, name: str) -> Requests:
        import offsetlog

        with (
            self._proxy.counted() as asked,
            offsetlog.open(root, **self._options) as log,
        ):
            operations.ALL[name](log, self._many.planned, self._many.wanted)
        return asked

    def _warm(self) -> dict[str, float]:
        import offsetlog

        many = self._many
        out = {"cold_open_ms": _median_ms(lambda: self._open(many))}
        with offsetlog.open(many.url) as log:
            for name in NAMES[1:]:

                def run(operation: operations.Operation = operations.ALL[name]) -> None:
                    operation(log, many.planned, many.wanted)

                out[f"{name}_ms"] = _median_ms(run)
        return out

    @staticmethod
    def _open(built: large_log.Built) -> None:
        import offsetlog

        with offsetlog.open(built.url) as log:
            operations.cold_open(log, built.planned, built.wanted)

    @staticmethod
    def _memory(built: large_log.Built) -> float:
        done = in_fresh_process("bench.operations", built.url, *built.planned, *built.wanted)
        return float(done["high_water_mb"])

    def peer(self) -> dict[str, float]:
        return {}


def _median_ms(one: Callable[[], object], count: int = 20) -> float:
    times = []
    one()
    for _ in range(count):
        begin = perf_counter()
        one()
        times.append((perf_counter() - begin) * 1e3)
    return median(times)


def _mirror(built: large_log.Built, to: BareHttp, prefix: str) -> None:
    for name in built.parts:
        to.put(f"{prefix}/{name}", (built.folder / name).read_bytes())


@contextmanager
def _rig(setting: Setting) -> Iterator[Rig]:
    many = _many(setting)
    few = large_log.build(_folder(setting, "few"), FEW)
    with counted_store() as (place, proxy):
        bucket = place.url.removeprefix("s3://")
        server = BareHttp(str(place.options["endpoint_url"]), bucket)
        roots = (f"{place.url}/flat", f"{place.url}/behind")
        for prefix in ("flat", "behind"):
            _mirror(many, server, prefix)
        large_log.extend(roots[1], BEHIND, **place.options)
        server.close()
        options: dict[str, Any] = {**place.options, "endpoint_url": proxy.url}
        yield _Index(many, few, proxy, roots, options)


def _many(setting: Setting) -> large_log.Built:
    """The large log. A full run builds it once; its last user may append to it."""
    if setting.short:
        return large_log.build(_folder(setting, "many"), 20_000)
    return _built_once(setting.work.parent / "large")


@cache
def _built_once(folder: Path) -> large_log.Built:
    folder.mkdir()
    return large_log.build(folder, MANY)


def _folder(setting: Setting, name: str) -> Path:
    folder = setting.work / name
    folder.mkdir()
    return folder


class _Publishing:
    """A writer that stores a snapshot after every so many entries, at both sizes."""

    def __init__(self, many: large_log.Built, few: large_log.Built, times: int) -> None:
        self._sides = (large_log.Author(many.url, 11), large_log.Author(few.url, 11))
        self._times = times

    def _cost(self, author: large_log.Author) -> dict[str, float]:
        spent, files, size = 0.0, 0, 0
        for _ in range(self._times):
            for _ in range(large_log.PUBLISH_EVERY):
                author.append(1)
            before = author.written()
            begin = perf_counter()
            author.publish()
            spent += perf_counter() - begin
            after = author.written()
            files += after.files - before.files
            size += after.bytes - before.bytes
        return {
            "snapshot_publish_ms": spent * 1e3 / self._times,
            "snapshot_publish_requests": files / self._times,
            "snapshot_publish_bytes": size / self._times,
        }

    def ours(self) -> dict[str, float]:
        return self._cost(self._sides[0])

    def peer(self) -> dict[str, float]:
        return self._cost(self._sides[1])


PUBLISH = (
    Figure("snapshot_publish_ms", "ms", "the same at 100 segments", 2.0, "lower"),
    Figure("snapshot_publish_requests", "requests", "the same at 100 segments", 1.5, "lower"),
    Figure("snapshot_publish_bytes", "bytes", "the same at 100 segments", 2.0, "lower"),
)


@contextmanager
def _publish_rig(setting: Setting) -> Iterator[Rig]:
    many = _many(setting)
    few = large_log.build(_folder(setting, "few"), FEW)
    yield _Publishing(many, few, setting.pick(8, 2))


CASES = (
    Case("index", FIGURES, _rig, warmups=0),
    Case("snapshot_publish", PUBLISH, _publish_rig),
)
