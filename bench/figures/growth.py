"""What each operation costs as a log grows from 10^2 to 10^6 segments, on the local disk.

Each point is the median of some calls on an open log that is in use; upkeep is a round that finds
nothing to join, expire or delete. Memory is that of a fresh process that appends, polls, plans
and commits once. The figures hold the largest log against the smallest; the curves between are
in the table beside the results, and drawn from there.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from statistics import median
from typing import Any

from bench.figure import Case, Figure, Rig, Setting
from bench.growing import InUse, milliseconds
from bench.large_log import sketched
from bench.memory import in_fresh_process

SEGMENTS = (100, 1_000, 10_000, 100_000, 1_000_000)
GOALS = {"append": 1.5, "poll": 1.5, "plan": 4.0, "commit": 1.5}
SMALLEST = "the same at 100 segments"
FIGURES = (
    *(Figure(f"growth_{name}", "ms", SMALLEST, goal, "lower") for name, goal in GOALS.items()),
    Figure("growth_memory", "MB", SMALLEST, 1.25, "lower"),
    Figure(
        "growth_maintain",
        "ms for 1,000 segments",
        "the same at 10,000 segments",
        1.5,
        "lower",
        about="upkeep looks at every segment, so it is held against its own size",
    ),
)
STRAIGHT_FROM = 10_000
"""Below it a round of upkeep is its fixed costs."""
UPKEEP_AGAIN = 100_000


class _Growth:
    def __init__(self, setting: Setting, logs: dict[int, Any]) -> None:
        self._setting = setting
        self._used = {segments: InUse(log) for segments, log in logs.items()}
        self._calls = setting.pick(20, 2)
        self._points: dict[int, list[dict[str, float]]] = {segments: [] for segments in logs}

    def ours(self) -> dict[str, float]:
        for segments, used in self._used.items():
            found = self._measure(used)
            found["maintain"] = self._upkeep(segments, used)
            self._points[segments].append(found)
        self._keep()
        return self._named(max(self._used), max(self._used))

    def peer(self) -> dict[str, float]:
        low = min(self._used)
        return self._named(low, max(low, self._setting.pick(STRAIGHT_FROM, 1_000)))

    def _named(self, segments: int, maintained: int) -> dict[str, float]:
        last = self._points[segments][-1]
        upkeep = self._points[maintained][-1]["maintain"] * 1e3 / maintained
        names = (*GOALS, "memory")
        return {f"growth_{name}": last[name] for name in names} | {"growth_maintain": upkeep}

    def _measure(self, used: InUse) -> dict[str, float]:
        found = {
            name: median(milliseconds(getattr(used, name)) for _ in range(self._calls))
            for name in GOALS
        }
        done = in_fresh_process("bench.growing", used.log.url)
        return found | {"memory": float(done["high_water_mb"])}

    def _upkeep(self, segments: int, used: InUse) -> float:
        """Of a very large log it is measured in the warm-up and once after it."""
        before = self._points[segments]
        if segments > UPKEEP_AGAIN and len(before) > 1:
            return before[-1]["maintain"]
        return milliseconds(used.maintain)

    def _keep(self) -> None:
        """The medians of all rounds, the warm-up left out where there are others."""
        self._setting.series["growth"] = [
            {"segments": segments}
            | {name: median(point[name] for point in points[1:] or points) for name in points[0]}
            for segments, points in self._points.items()
        ]

    def close(self) -> None:
        for used in self._used.values():
            used.close()


@contextmanager
def _rig(setting: Setting) -> Iterator[Rig]:
    import offsetlog

    sizes = setting.pick(SEGMENTS, (100, 1_000, 2_000))
    with ExitStack() as stack:
        logs = {}
        for segments in sizes:
            copy = Path(setting.work.resolve() / str(segments))
            shutil.copytree(sketched(setting, segments).folder, copy)
            logs[segments] = stack.enter_context(offsetlog.open(f"file://{copy}"))
        rig = _Growth(setting, logs)
        stack.callback(rig.close)
        yield rig


CASES = (Case("growth", FIGURES, _rig),)
