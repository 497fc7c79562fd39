"""Processor time of this process and of all that it started, from ``/proc``."""

from __future__ import annotations

import os
from collections.abc import Collection
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


def of_the_tree(without: Collection[int] = ()) -> float:
    """Seconds of this process and its descendants that live, but for some and theirs."""
    processes = _all()
    children: dict[int, list[int]] = {}
    for pid, process in processes.items():
        children.setdefault(process.parent, []).append(pid)
    ticks, waiting = 0, [os.getpid()]
    while waiting:
        pid = waiting.pop()
        if pid in without or pid not in processes:
            continue
        ticks += processes[pid].ticks
        waiting += children.get(pid, [])
    return ticks / os.sysconf("SC_CLK_TCK")
