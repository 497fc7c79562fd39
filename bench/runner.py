"""Runs a case: warm-up, then ours and the peer in turn.

1. Rounds are interleaved, so that a machine that slows down slows both sides.
2. Nothing is deleted while figures run: ext4 without a journal looks at every inode that was
   deleted in the last half minute before it gives out a new one, a millisecond at a time.
"""

from __future__ import annotations

import gc
import shutil
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from bench.figure import Case, Figure, Setting
from bench.results import Row, row


def _value(figure: Figure, measured: Mapping[str, float], bound: float | None = None) -> float:
    if bound is not None:
        return bound
    if figure.name not in measured:
        raise LookupError(f"the rig of {figure.name} did not measure it")
    return float(measured[figure.name])


def run_case(
    case: Case,
    setting: Setting,
    rounds: int | None = None,
    note: Callable[[str], None] = lambda text: None,
) -> list[Row]:
    """Measure all figures of a case."""
    count = rounds or (2 if setting.short else max(5, case.rounds))
    ours: dict[str, list[float]] = {figure.name: [] for figure in case.figures}
    peer: dict[str, list[float]] = {figure.name: [] for figure in case.figures}
    with case.rig(setting) as rig:
        for number in range(-case.warmups, count):
            note(f"{case.name}: round {number + 1} of {count}" if number >= 0 else "warm-up")
            gc.collect()
            mine = rig.ours()
            gc.collect()
            theirs = rig.peer()
            if number < 0:
                continue
            for figure in case.figures:
                ours[figure.name].append(_value(figure, mine))
                peer[figure.name].append(_value(figure, theirs, figure.bound))
    return [row(figure, ours[figure.name], peer[figure.name]) for figure in case.figures]


@contextmanager
def work_folder(cache: Path) -> Iterator[Path]:
    """A folder for a whole run, on the checkout's own disk."""
    cache.mkdir(parents=True, exist_ok=True)
    work = Path(tempfile.mkdtemp(prefix="work-", dir=cache))
    try:
        yield work
    finally:
        shutil.rmtree(work, ignore_errors=True)
