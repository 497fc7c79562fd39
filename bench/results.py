"""``results.json``: a list of rows of one fixed shape, kept from run to run.

1. A run replaces the rows that it measured and leaves the others as they were.
2. The file is replaced in one step: a run that dies leaves the old one.
3. Curves lie in a file beside it, whose name ends in ``-series``.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Sequence
from pathlib import Path
from statistics import median
from typing import TypedDict

from bench.figure import Figure, Series


class Row(TypedDict):
    """One figure. ``ratio`` is ``ours / peer``; ``spread`` is the range of the middle half of
    the rounds' ratios, as a part of their median."""

    name: str
    ours: float
    peer: float
    peer_name: str
    unit: str
    ratio: float
    better: str
    spread: float
    goal: float
    met: bool


def quantile(values: Sequence[float], part: float) -> float:
    """A quantile, with a straight line between neighbours."""
    ordered = sorted(values)
    place = part * (len(ordered) - 1)
    low = int(place)
    high = min(low + 1, len(ordered) - 1)
    return ordered[low] + (ordered[high] - ordered[low]) * (place - low)


def _round(value: float) -> float:
    """Four significant digits: more would claim more than was measured."""
    return float(f"{value:.4g}")


def row(figure: Figure, ours: Sequence[float], peer: Sequence[float]) -> Row:
    """The row of one figure from its rounds."""
    ratios = [a / b if b else float(a != b) for a, b in zip(ours, peer, strict=True)]
    middle = median(ratios)
    mid_ours, mid_peer = median(ours), median(peer)
    ratio = mid_ours / mid_peer if mid_peer else middle
    spread = (quantile(ratios, 0.75) - quantile(ratios, 0.25)) / middle if middle else 0.0
    return {
        "name": figure.name,
        "ours": _round(mid_ours),
        "peer": _round(mid_peer),
        "peer_name": figure.peer_name,
        "unit": figure.unit,
        "ratio": _round(ratio),
        "better": figure.better,
        "spread": _round(spread),
        "goal": figure.goal,
        "met": figure.met(ratio),
    }


def load(path: Path) -> list[Row]:
    """The rows of earlier runs; none when there is no file."""
    if not path.exists():
        return []
    rows: list[Row] = json.loads(path.read_text())
    return rows


def merge(old: Iterable[Row], new: Iterable[Row], order: Sequence[str]) -> list[Row]:
    """New rows over old ones, in the registry's order; rows of figures that are gone are not
    kept."""
    rows = {item["name"]: item for item in old} | {item["name"]: item for item in new}
    return [rows[name] for name in order if name in rows]


def keep_series(path: Path, new: Series) -> None:
    """Put tables into the file beside the results, over those of the same name."""
    old: Series = json.loads(path.read_text()) if path.exists() else {}
    tables = (
        f" {json.dumps(name)}: [\n" + ",\n".join("  " + json.dumps(row) for row in rows) + "\n ]"
        for name, rows in sorted({**old, **new}.items())
    )
    _replace(path, "{\n" + ",\n".join(tables) + "\n}\n")


def save(path: Path, rows: Iterable[Row]) -> None:
    """Replace the file, one row a line so that a diff reads well."""
    lines = ",\n".join(" " + json.dumps(item) for item in rows)
    _replace(path, f"[\n{lines}\n]\n")


def _replace(path: Path, text: str) -> None:
    temporary = path.with_suffix(".new")
    temporary.write_text(text)
    os.replace(temporary, path)
