"""The results as a table on the terminal."""

from __future__ import annotations

from collections.abc import Iterable

from rich.console import Console
from rich.table import Table

from bench.results import Row


def number(value: float) -> str:
    """A number that fits a column: 4.1 M, 12.3 k, 0.61."""
    for limit, sign in ((1e9, " G"), (1e6, " M"), (1e4, " k")):
        if abs(value) >= limit:
            scaled = value / {" G": 1e9, " M": 1e6, " k": 1e3}[sign]
            return f"{scaled:.2f}{sign}"
    return f"{value:.4g}"


def show(rows: Iterable[Row], console: Console) -> None:
    """Print one line for each figure."""
    table = Table(title="offsetlog bench", title_justify="left")
    for name in ("figure", "ours", "peer", "unit", "peer is", "ratio", "goal", "spread", "met"):
        right = name in ("ours", "peer", "ratio", "goal", "spread")
        table.add_column(name, justify="right" if right else "left")
    for item in rows:
        sign = "≥" if item["better"] == "higher" else "≤"
        table.add_row(
            item["name"],
            number(item["ours"]),
            number(item["peer"]),
            item["unit"],
            item["peer_name"],
            f"{item['ratio']:.3g}",
            f"{sign} {item['goal']:g}",
            f"{item['spread']:.0%}",
            "[green]yes[/]" if item["met"] else "[red]no[/]",
        )
    console.print(table)
