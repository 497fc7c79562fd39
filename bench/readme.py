"""``python -m bench.readme``: put what was measured into the README, as tables and charts.

1. All of it is made from ``results.json`` and ``results-series.json``; what was not measured is
   not shown.
2. ``--check`` only tells, by its exit status, whether the README shows what was measured.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable
from pathlib import Path

from bench import cost
from bench.charts import CHARTS, FOLDER
from bench.figure import Series
from bench.figures import modules
from bench.figures.requests import OPERATIONS
from bench.results import Row

ROOT = Path(__file__).resolve().parent.parent
README = ROOT / "README.md"
RESULTS = ROOT / "bench" / "results.json"
SERIES = RESULTS.with_stem("results-series")
BEGIN, END = "<!-- figures -->", "<!-- /figures -->"
GROUPS = {
    "Spark": (
        "spark_source",
        "spark_sink",
        "spark_hand_over",
        "spark_latency",
        "spark_batches",
        "spark_plan",
    ),
    "Bytes stored": ("stored_bytes",),
    "Python": ("send", "arrow"),
    "A local disk": ("append_local", "contention_local", "group_commit"),
    "An object store": ("append_s3", "idle_poll", "index", "contention_s3", "requests"),
    "Groups": ("groups",),
    "As a log grows": ("growth",),
    "Cost": ("cost_month",),
}
SHOWN = 3
"""Groups that are open; the others unfold."""


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
            f"| {sign} {row['goal']:g} | {'yes' if row['met'] else 'no'} |"
        )
    return lines


def request_table(series: Series) -> list[str]:
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
        f"Requests of one operation on an object store, at {partitions} partitions (one number: "
        "the same at all of them):",
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


def cost_table(series: Series) -> list[str]:
    """Both bills, with the arithmetic."""
    if not series.get("cost"):
        return []
    [counted] = series["cost"]
    lines = [
        f"A month of this load: {cost.LOAD}. Requests were counted while it ran; prices are the "
        f"public list prices of {cost.PRICES_OF}: S3 Standard {cost.PUT * 1e3:g} $ for 1,000 PUT "
        f"or LIST, {cost.GET * 1e3:g} $ for 1,000 GET, {cost.S3_GB} $ a GB; m7g.large "
        f"{cost.MACHINE_HOUR} $ an hour, gp3 {cost.DISK_GB} $ a GB, {cost.ZONE_GB} $ a GB between "
        "zones. The machines of producers and readers are left out on both sides.",
        "",
        "| | | $ a month |",
        "|---|---|---|",
    ]
    bills = {"offsetlog on S3": cost.ours(counted), "three Kafka brokers": cost.kafka(counted)}
    for name, bill in bills.items():
        lines += [f"| {line.what} | {line.arithmetic} | {line.dollars:.2f} |" for line in bill]
        lines.append(f"| **{name}** | | **{cost.total(bill):.2f}** |")
    return lines


def pictures() -> list[str]:
    """The charts that are there."""
    return [
        f"![{about}]({FOLDER.relative_to(ROOT)}/{name}.png)"
        for name, about in CHARTS.items()
        if (FOLDER / f"{name}.png").exists()
    ]


def page(rows: list[Row], series: Series) -> str:
    """All that stands between the markers."""
    lines: list[str] = []
    for place, (title, names) in enumerate(GROUPS.items()):
        figures = {f.name for name in names for case in modules()[name] for f in case.figures}
        found = [row for row in rows if row["name"] in figures]
        if not found:
            continue
        met = sum(row["met"] for row in found)
        if place < SHOWN:
            lines += [f"**{title}**", "", *table(found), ""]
        else:
            head = f"<details><summary>{title}: {met} of {len(found)} goals met</summary>"
            lines += [head, "", *table(found), "", "</details>", ""]
    for part in (request_table(series), cost_table(series), pictures()):
        lines += [*part, ""] if part else []
    return "\n".join(lines).rstrip()


def with_page(text: str, rows: list[Row], series: Series) -> str:
    """The README with the page between its markers."""
    head, rest = text.split(BEGIN)
    _, tail = rest.split(END)
    return f"{head}{BEGIN}\n{page(rows, series)}\n{END}{tail}"


def main(argv: list[str]) -> int:
    text = README.read_text()
    series = json.loads(SERIES.read_text()) if SERIES.exists() else {}
    wanted = with_page(text, json.loads(RESULTS.read_text()), series)
    if "--check" in argv:
        return 0 if text == wanted else 1
    README.write_text(wanted)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
