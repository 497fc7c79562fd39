"""``docs/figures.md``: every figure that was measured, with its peer and its goal.

1. All of it is made from ``results.json`` and ``results-series.json``; what was not measured is
   not shown, and what was measured is shown once.
2. A family says in its title how many of its goals are met.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from bench import cost
from bench.figure import Series
from bench.figures import modules
from bench.figures.requests import OPERATIONS
from bench.results import Row

HEAD = """# All figures

Made by `python -m bench.readme` from [bench/results.json](../bench/results.json); don't edit. What
each figure measures, what its peer is and what stands between it and its goal:
[bench/README.md](../bench/README.md). `ratio` is ours / peer. The peer "bound" is a number that we
set ourselves."""
GROUPS = {
    "Spark": (
        "spark_source",
        "spark_s3",
        "spark_sink",
        "spark_hand_over",
        "spark_turns",
        "spark_memory",
        "spark_latency",
        "spark_batches",
        "spark_plan",
    ),
    "Bytes stored": ("stored_bytes",),
    "Python": ("send", "arrow"),
    "A topic as a table": ("table",),
    "A local disk": ("append_local", "contention_local", "group_commit"),
    "An object store": (
        "append_s3",
        "idle_poll",
        "scrape",
        "index",
        "contention_s3",
        "requests",
    ),
    "Groups": ("groups",),
    "As a log grows": ("growth", "sizes", "upkeep", "waiting", "compaction"),
    "Cost": ("cost_month",),
}


def number(value: float) -> str:
    """Three digits are as many as a shared machine gives."""
    if value and abs(value) < 100:
        return f"{value:.3g}"
    for size, letter in ((1e9, " G"), (1e6, " M"), (1e3, " k")):
        if abs(value) >= size:
            return f"{value / size:.3g}{letter}"
    return f"{value:.0f}"


def table(rows: Iterable[Row]) -> list[str]:
    """One line for each figure."""
    lines = [
        "| figure | ours | against | ratio | goal | met |",
        "|---|---|---|---|---|---|",
    ]
    for row in rows:
        sign = "at least" if row["better"] == "higher" else "at most"
        name = row["name"].replace("_", " ")
        peer = f"{row['peer_name']}: {number(row['peer'])}"
        lines.append(
            f"| {name} | {number(row['ours'])} {row['unit']} | {peer} | {row['ratio']:.2f} "
            f"| {sign} {row['goal']:g} | {'yes' if row['met'] else '**no**'} |"
        )
    return lines


def met(rows: Sequence[Row]) -> str:
    """``5 of 6``."""
    return f"{sum(row['met'] for row in rows)} of {len(rows)}"


def _family(names: Iterable[str], rows: Iterable[Row]) -> list[Row]:
    figures = {f.name for name in names for case in modules()[name] for f in case.figures}
    return [row for row in rows if row["name"] in figures]


def _requests(series: Series) -> list[str]:
    """Requests by operation and size; one number where all partition counts need the same."""
    grid = series.get("requests", [])
    if not grid:
        return []
    planned = {(row["segments"], row["partitions"]): row for row in series.get("spark_plan", [])}
    rows = [row | planned.get((row["segments"], row["partitions"]), {}) for row in grid]
    sizes = sorted({row["segments"] for row in rows})
    partitions = ", ".join(f"{p:,}" for p in sorted({row["partitions"] for row in rows}))
    names = OPERATIONS | ({"plan": "plan a batch query in Spark"} if planned else {})
    lines = [
        "## Requests of one operation on an object store",
        "",
        f"At {partitions} partitions; one number: the same at all of them.",
        "",
        "| | " + " | ".join(f"{size:,} segments" for size in sizes) + " |",
        "|---|" + "---|" * len(sizes),
    ]
    for name, about in names.items():
        cells = []
        for size in sizes:
            found = [f"{row[name]:g}" for row in rows if row["segments"] == size]
            cells.append(found[0] if len(set(found)) == 1 else ", ".join(found))
        lines.append(f"| {about} | " + " | ".join(cells) + " |")
    return lines


def _bills(series: Series) -> list[str]:
    """Both bills, with the arithmetic."""
    if not series.get("cost"):
        return []
    [counted] = series["cost"]
    lines = [
        "## A month of a stated load",
        "",
        f"{cost.LOAD[0].upper()}{cost.LOAD[1:]}. Requests were counted while it ran, here in the "
        "last round (`cost month` above is the median of all rounds); prices are the public list "
        f"prices of {cost.PRICES_OF}: S3 Standard {cost.PUT * 1e3:g} $ for 1,000 PUT or LIST, "
        f"{cost.GET * 1e3:g} $ for 1,000 GET, {cost.S3_GB} $ a GB; m7g.large {cost.MACHINE_HOUR} "
        f"$ an hour, gp3 {cost.DISK_GB} $ a GB, {cost.ZONE_GB} $ a GB between zones. The machines "
        "of producers and readers are left out on both sides.",
        "",
        "| | | $ a month |",
        "|---|---|---|",
    ]
    bills = {"offsetlog on S3": cost.ours(counted), "three Kafka brokers": cost.kafka(counted)}
    for name, bill in bills.items():
        lines += [f"| {line.what} | {line.arithmetic} | {line.dollars:.2f} |" for line in bill]
        lines.append(f"| **{name}** | | **{cost.total(bill):.2f}** |")
    return lines


def figures_page(rows: Sequence[Row], series: Series) -> str:
    """The whole page."""
    parts = [[f"{HEAD} {met(rows)} goals are met."]]
    for title, names in GROUPS.items():
        found = _family(names, rows)
        if found:
            parts.append([f"## {title}: {met(found)} goals met", "", *table(found)])
    parts += [_requests(series), _bills(series)]
    return "\n\n".join("\n".join(part) for part in parts if part) + "\n"
