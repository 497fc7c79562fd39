"""Compaction by key: records a second of one core, and the memory that it takes at 10 M keys.

Each round compacts a copy of the same topic in a fresh process: a record for each key, and newer
ones for a fifth of them, so that nearly every file is read twice and some are written again.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from bench.compacting import fill
from bench.figure import Case, Rig, Setting, at_least, at_most
from bench.memory import in_fresh_process

FIGURES = (
    at_least("compaction", 1e6, "records/s a core"),
    at_most("compaction_memory", 512, "MB at 10 M keys"),
)


class _Compactions:
    def __init__(self, work: Path, keys: int) -> None:
        self._work = work
        self._keys = keys
        self._round = 0

    def ours(self) -> dict[str, float]:
        copy = self._work / f"copy-{self._round}"
        self._round += 1
        shutil.copytree(self._work / "log", copy)
        found = in_fresh_process("bench.compacting", f"file://{copy}")
        shutil.rmtree(copy)
        if found["dropped"] != self._keys // 5:
            raise RuntimeError(f"{found['dropped']} records were dropped")
        return {
            "compaction": found["records_per_core_second"],
            "compaction_memory": found["high_water_mb"],
        }

    def peer(self) -> dict[str, float]:
        return {}


@contextmanager
def _rig(setting: Setting) -> Iterator[Rig]:
    import offsetlog

    work = setting.work.resolve()
    keys = setting.pick(10_000_000, 50_000)
    with offsetlog.open(f"file://{work}/log") as log:
        fill(log, keys, keys + keys // 5)
    yield _Compactions(work, keys)


CASES = (Case("compaction", FIGURES, _rig, warmups=0),)
