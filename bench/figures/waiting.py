"""The memory of a round of upkeep over many small appends that wait: a process of its own.

100,000 entries of one record each, as a producer leaves them in a day and four hours by one append
a second while nobody maintains the log.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from bench.figure import Case, Rig, Setting, at_most
from bench.memory import in_fresh_process
from bench.waiting import fill

FIGURES = (at_most("upkeep_memory", 300, "MB", "a round over 100,000 entries of one record"),)


class _Waiting:
    def __init__(self, work: Path, appends: int) -> None:
        self._work = work
        self._appends = appends
        self._round = 0

    def ours(self) -> dict[str, float]:
        copy = self._work / f"copy-{self._round}"
        self._round += 1
        shutil.copytree(self._work / "log", copy)
        found = in_fresh_process("bench.waiting", f"file://{copy}")
        if found["files"] != self._appends:
            raise RuntimeError(f"{found['files']} files were rewritten")
        return {"upkeep_memory": found["high_water_mb"]}

    def peer(self) -> dict[str, float]:
        return {}


@contextmanager
def _rig(setting: Setting) -> Iterator[Rig]:
    work, appends = setting.work.resolve(), setting.pick(100_000, 2_000)
    fill(f"file://{work}/log", appends)
    yield _Waiting(work, appends)


CASES = (Case("waiting", FIGURES, _rig, warmups=0),)
