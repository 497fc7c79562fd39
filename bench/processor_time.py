"""This process and all that it started, and their processor time, from ``/proc``."""

from __future__ import annotations

import os
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import NamedTuple


class _Process(NamedTuple):
    parent: int
    ticks: int


def _all() -> dict[int, _Process]:
    found = {}
    for place in Path("/proc").iterdir():
        if not place.name.isdigit():
            continue
        try:
            fields = (place / "stat").read_text().rpartition(")")[2].split()
        except OSError:
            continue  # it has ended
        # After the name: state, parent, ...; user and system time are the 12th and 13th.
        found[int(place.name)] = _Process(int(fields[1]), int(fields[11]) + int(fields[12]))
    return found


def tree(root: int | None = None, without: Collection[int] = ()) -> list[int]:
    """A process, this one by default, and its descendants that live, but for some and theirs."""
    return [pid for pid, _ in _tree(root or os.getpid(), without)]


def of_the_tree(without: Collection[int] = ()) -> float:
    """Seconds of this process and its descendants that live, but for some and theirs."""
    ticks = sum(process.ticks for _, process in _tree(os.getpid(), without))
    return ticks / os.sysconf("SC_CLK_TCK")


def _tree(root: int, without: Collection[int]) -> Iterator[tuple[int, _Process]]:
    processes = _all()
    children: dict[int, list[int]] = {}
    for pid, process in processes.items():
        children.setdefault(process.parent, []).append(pid)
    waiting = [root]
    while waiting:
        pid = waiting.pop()
        if pid in without or pid not in processes:
            continue
        yield pid, processes[pid]
        waiting += children.get(pid, [])
