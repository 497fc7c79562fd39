"""Consumer groups on a local disk: what a commit costs beside a bare Delta append, many groups
in one append, eight processes, and the cost after 100,000 commits.

The table of many commits is laid down as upkeep leaves it: few data files with all the rows, a
checkpoint of the Delta log, the newest log files, and the stored state.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from time import perf_counter
from typing import Any

from bench.figure import Case, Figure, Rig, Setting, at_most
from bench.processes import run_writers
from bench.results import quantile

GROUPS = 32
PROCESSES = 8
WIDE = 64


def _log(url: str, partitions: int) -> Any:
    import offsetlog

    log = offsetlog.open(url)
    log.create_topic("orders", partitions=partitions)
    with log.producer() as producer:
        for partition in range(partitions):
            producer.send("orders", value=b"x", partition=partition)
    return log


def _requests(groups: int, partitions: int) -> list[Any]:
    from offsetlog.core.group.facts import OffsetAndMetadata
    from offsetlog.core.group.requests import CommitRequest

    said = {("orders", p): OffsetAndMetadata(1) for p in range(partitions)}
    return [CommitRequest(f"g{n}", None, 0, 0, said) for n in range(groups)]


def _median_ms(work: Any, times: int) -> float:
    waits = []
    for _ in range(times):
        begin = perf_counter()
        work()
        waits.append((perf_counter() - begin) * 1e3)
    return quantile(waits, 0.5)


class _Bare:
    """A Delta table of the same columns, appended to with one handle and nothing else."""

    def __init__(self, path: Path) -> None:
        from deltalake import DeltaTable

        from offsetlog.format.facts_arrow import SCHEMA

        self._path = path
        self._table = DeltaTable.create(str(path), SCHEMA)

    def append(self, rows: Any) -> None:
        from deltalake import write_deltalake

        write_deltalake(self._table, rows, mode="append")

    def tidy(self) -> None:
        """As ours is looked after, so that both are as old as each other."""
        self._table.optimize.compact()
        self._table.create_checkpoint()


class _Commits:
    def __init__(self, work: Path, times: int) -> None:
        from offsetlog.core.group.decide import decide
        from offsetlog.core.group.state import EMPTY
        from offsetlog.format.facts_arrow import to_arrow

        self._times = times
        self._log = _log(f"file://{work}/log", WIDE)
        self._table = self._log.offsets_table
        self._bare = _Bare(work / "bare")
        self._asked = {
            "group_commit_1": _requests(1, 1),
            "group_commit_64": _requests(1, WIDE),
            "group_commit_32_groups": _requests(GROUPS, 1),
        }
        self._rows = {
            name: to_arrow(decide(EMPTY, requests, 0, "0" * 32).facts)
            for name, requests in self._asked.items()
        }
        self._table.ask(*_requests(1, 1))

    def ours(self) -> dict[str, float]:
        out = {}
        for name, requests in self._asked.items():
            before = self._table.look().version
            out[name] = _median_ms(lambda asked=requests: self._table.ask(*asked), self._times)
            appends = self._table.look().version - before
            # Upkeep may add a version of its own now and then.
            out[f"{name}_appends"] = appends // self._times
        return {
            name: value
            for name, value in out.items()
            if name in self._asked or name == "group_commit_32_groups_appends"
        }

    def peer(self) -> dict[str, float]:
        out = {}
        for name, rows in self._rows.items():
            out[name] = _median_ms(lambda rows=rows: self._bare.append(rows), self._times)
            self._bare.tidy()
        return out

    def close(self) -> None:
        self._log.close()


@contextmanager
def _commits_rig(setting: Setting) -> Iterator[Rig]:
    rig = _Commits(setting.work, setting.pick(40, 5))
    try:
        yield rig
    finally:
        rig.close()


COMMITS = (
    Figure(
        "group_commit_1",
        "ms",
        "a bare deltalake append",
        3.0,
        "lower",
        about="ours is synced to the disk, the bare append is not",
    ),  # fmt: skip
    Figure("group_commit_64", "ms", "a bare deltalake append of 64 rows", 3.0, "lower"),
    Figure("group_commit_32_groups", "ms", "a bare deltalake append of 32 rows", 3.0, "lower"),
    at_most("group_commit_32_groups_appends", 1, "appends", "32 groups of one process"),
)


class _Processes:
    def __init__(self, url: str, seconds: float) -> None:
        self._url = url
        self._seconds = seconds

    def _commits(self, processes: int) -> float:
        done = run_writers("bench.writers.group_commits", processes, self._seconds, self._url)
        return sum(writer["commits"] for writer in done) / self._seconds

    def ours(self) -> dict[str, float]:
        return {"group_commits_8_processes": self._commits(PROCESSES)}

    def peer(self) -> dict[str, float]:
        return {"group_commits_8_processes": self._commits(1)}


@contextmanager
def _processes_rig(setting: Setting) -> Iterator[Rig]:
    url = f"file://{setting.work}/log"
    _log(url, PROCESSES).close()
    yield _Processes(url, setting.pick(5.0, 1.0))


EIGHT = (Figure("group_commits_8_processes", "commits/s", "one process", 0.3, "higher"),)


# --- after many commits --------------------------------------------------------------------


def build(root: Path, commits: int) -> None:
    """A table after ``commits`` commits, laid down as it lies after its upkeep."""
    import json

    import pyarrow.parquet as pq
    from deltalake import DeltaTable

    from offsetlog.core.group.facts import Fact
    from offsetlog.format import facts_arrow as fact_rows
    from offsetlog.storage import open_store
    from offsetlog.storage.delta import table as delta_offsets
    from offsetlog.storage.offsets.open import open_offsets

    port = open_offsets(open_store(str(root)))
    port.create()
    place = root / "__consumer_offsets"
    each = 25_000
    for first in range(1, commits + 1, each):
        last = min(first + each - 1, commits)
        facts = [
            Fact("g0", "orders", 0, n, "", n, 0, 0, None, "commit", f"{n:032x}", n, 0)
            for n in range(first, last + 1)
        ]
        file = place / f"part-{first:08d}.parquet"
        pq.write_table(fact_rows.to_arrow(facts), file, compression="zstd")
        info = json.dumps({"commitInfo": {"timestamp": 0, "operation": "WRITE"}})
        for version in range(first, last):
            (place / "_delta_log" / f"{version:020d}.json").write_text(info + "\n")
        add = {
            "path": file.name,
            "partitionValues": {},
            "size": file.stat().st_size,
            "modificationTime": 0,
            "dataChange": False,
        }
        (place / "_delta_log" / f"{last:020d}.json").write_text(
            info + "\n" + json.dumps({"add": add}) + "\n"
        )
        DeltaTable(str(place)).create_checkpoint()
        for version in range(first, last - delta_offsets.LOGS_KEPT):
            (place / "_delta_log" / f"{version:020d}.json").unlink()
    from offsetlog.core.group.fold import fold
    from offsetlog.core.group.state import EMPTY

    news = port.read(-1)
    port.store_checkpoint(fold(EMPTY, news.facts, news.version))


class _Aged:
    """The same three costs on a table of some age."""

    def __init__(self, root: Path, times: int) -> None:
        self._root = str(root)
        self._times = times

    def measure(self) -> dict[str, float]:
        import offsetlog

        def cold() -> None:
            with offsetlog.open(self._root) as log:
                log.offsets_table.look()

        with offsetlog.open(self._root) as log, offsetlog.open(self._root) as other:
            table, reader = log.offsets_table, other.offsets_table
            commit = _requests(1, 1)
            table.ask(*commit)
            reader.look()
            looks, commits = [], []
            for _ in range(self._times):
                begin = perf_counter()
                table.ask(*commit)
                middle = perf_counter()
                reader.look()
                commits.append((middle - begin) * 1e3)
                looks.append((perf_counter() - middle) * 1e3)
        return {
            "group_commit_100k": quantile(commits, 0.5),
            "group_look_100k": quantile(looks, 0.5),
            "group_cold_100k": _median_ms(cold, max(self._times // 4, 1)),
        }


class _Ages:
    def __init__(self, old: _Aged, young: _Aged) -> None:
        self._old, self._young = old, young

    def ours(self) -> dict[str, float]:
        return self._old.measure()

    def peer(self) -> dict[str, float]:
        return self._young.measure()


@contextmanager
def _ages_rig(setting: Setting) -> Iterator[Rig]:
    old, young = setting.work / "old", setting.work / "young"
    for root, commits in ((old, setting.pick(100_000, 2_000)), (young, 10)):
        _log(f"file://{root}", 1).close()
        build(root, commits)
    times = setting.pick(24, 4)
    try:
        yield _Ages(_Aged(old, times), _Aged(young, times))
    finally:
        shutil.rmtree(old)


AGES = (
    Figure("group_commit_100k", "ms", "the same after 10 commits", 1.5, "lower"),
    Figure("group_look_100k", "ms", "the same after 10 commits", 1.5, "lower"),
    Figure("group_cold_100k", "ms", "the same after 10 commits", 1.5, "lower"),
)

CASES = (
    Case("group_commits", COMMITS, _commits_rig),
    Case("group_commits_8_processes", EIGHT, _processes_rig),
    Case("group_ages", AGES, _ages_rig),
)
