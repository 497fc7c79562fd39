"""``python -m bench.charts``: draw what was measured, from the results alone.

1. Ours has one colour everywhere; peers are grey.
2. A chart whose figures were not measured is not drawn.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from bench import cost
from bench.figure import Series
from bench.results import Row, load

HERE = Path(__file__).resolve().parent
FOLDER = HERE / "charts"
OURS, PEERS = "#0f766e", ("#475569", "#94a3b8", "#cbd5e1", "#e2e8f0")
CHARTS = {
    "throughput": "Rows a second through Spark, beside Parquet, Delta and Kafka",
    "latency": "One record from send to foreachBatch",
    "stored": "Bytes stored for a record",
    "growth": "What each operation costs as a log grows",
    "cost": "A month of a stated load",
}
Bar = tuple[str, float, bool]
"""A label, a value, and whether it is ours."""
ByName = Mapping[str, Row]


def _style() -> Any:
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    pyplot.rcParams.update(
        {
            "font.family": "DejaVu Sans",
            "font.size": 9,
            "axes.spines.top": False,
            "axes.spines.right": False,
            "axes.edgecolor": "#94a3b8",
            "axes.titlesize": 10,
            "axes.titleweight": "bold",
            "axes.titlelocation": "left",
            "xtick.color": "#475569",
            "ytick.color": "#1e293b",
            "figure.dpi": 150,
            "savefig.bbox": "tight",
        }
    )
    return pyplot


def _bars(axes: Any, title: str, bars: Sequence[Bar], show: Callable[[float], str]) -> None:
    """Horizontal bars, ours first, each with its value."""
    labels = [label for label, _, _ in bars]
    colours = [OURS if ours else PEERS[1] for _, _, ours in bars]
    values = [value for _, value, _ in bars]
    drawn = axes.barh(range(len(bars)), values, color=colours, height=0.66)
    axes.set_yticks(range(len(bars)), labels)
    axes.invert_yaxis()
    axes.set_title(title)
    axes.bar_label(drawn, [show(value) for value in values], padding=3, color="#1e293b")
    axes.set_xlim(0, max(values) * 1.18)
    axes.xaxis.set_visible(False)
    axes.spines["bottom"].set_visible(False)
    axes.tick_params(axis="y", length=0)


def _millions(value: float) -> str:
    return f"{value / 1e6:.2f} M" if value >= 1e5 else f"{value:,.0f}"


def _throughput(rows: ByName, series: Series, pyplot: Any) -> Any:
    panels = {
        "Source, seven columns": (
            ("offsetlog", "spark_source", True),
            ("Parquet scan", "spark_source", False),
            ("Kafka, large fetches", "spark_source_vs_kafka", False),
            ("Kafka, defaults", "spark_source_vs_kafka_defaults", False),
        ),
        "Stream, availableNow": (
            ("offsetlog", "spark_stream_vs_delta", True),
            ("Delta", "spark_stream_vs_delta", False),
        ),
        "Sink": (
            ("offsetlog", "spark_sink", True),
            ("Parquet, partitioned", "spark_sink", False),
            ("Delta, partitioned", "spark_sink_vs_delta", False),
            ("Kafka, fastest codec", "spark_sink_vs_kafka", False),
        ),
    }
    data = {"spark_": "10 M rows of 108 bytes", "spark_events_": "5 M JSON events of 200 bytes"}
    heights = [len(bars) for bars in panels.values()]
    figure, grid = pyplot.subplots(
        len(panels), 2, figsize=(10, 5), height_ratios=heights, squeeze=False
    )
    for column, (prefix, about) in enumerate(data.items()):
        for line, (title, bars) in enumerate(panels.items()):
            drawn = [
                (label, _side(rows[name.replace("spark_", prefix, 1)], ours), ours)
                for label, name, ours in bars
            ]
            _bars(grid[line][column], title if line else f"{about}\n{title}", drawn, _millions)
    figure.suptitle("Rows a second through Spark, two cores", x=0.01, ha="left", fontweight="bold")
    figure.tight_layout()
    return figure


def _side(row: Row, ours: bool) -> float:
    return row["ours"] if ours else row["peer"]


def _latency(rows: ByName, series: Series, pyplot: Any) -> Any:
    figure, grid = pyplot.subplots(1, 2, figsize=(10, 1.7))
    for axes, (part, title) in zip(grid, (("p50", "Median"), ("p95", "p95")), strict=True):
        name = f"spark_latency_{part}"
        bars = (
            ("offsetlog", rows[name]["ours"], True),
            ("Delta stream", rows[name]["peer"], False),
            ("Kafka source", rows[f"{name}_vs_kafka"]["peer"], False),
            ("the same, short waits", rows[f"{name}_vs_kafka_10ms"]["peer"], False),
        )
        _bars(axes, title, bars, lambda value: f"{value:.0f} ms")
    figure.suptitle(
        "One record, from send to foreachBatch", x=0.01, y=1.0, ha="left", fontweight="bold"
    )
    figure.tight_layout()
    return figure


def _stored(rows: ByName, series: Series, pyplot: Any) -> Any:
    figure, grid = pyplot.subplots(1, 2, figsize=(10, 1.7))
    titles = {"random": "108 random bytes", "events": "A JSON event of 200 bytes, and its key"}
    for axes, (name, title) in zip(grid, titles.items(), strict=True):
        bars = (
            ("offsetlog", rows[f"stored_{name}"]["ours"], True),
            ("Kafka, best codec", rows[f"stored_{name}"]["peer"], False),
            ("Delta", rows[f"stored_{name}_vs_delta"]["peer"], False),
        )
        _bars(axes, title, bars, lambda value: f"{value:.1f} bytes")
    figure.suptitle("Bytes stored for a record", x=0.01, y=1.0, ha="left", fontweight="bold")
    figure.tight_layout()
    return figure


def _growth(rows: ByName, series: Series, pyplot: Any) -> Any:
    points = series["growth"]
    units = {
        "append": "append, ms",
        "poll": "poll, ms",
        "plan": "plan 1 M records, ms",
        "commit": "commit, ms",
        "maintain": "upkeep, ms",
        "memory": "memory, MB",
    }
    sizes = [point["segments"] for point in points]
    figure, grid = pyplot.subplots(2, 3, figsize=(10, 4.2), sharex=True)
    for axes, (name, title) in zip(grid.flat, units.items(), strict=True):
        axes.plot(sizes, [point[name] for point in points], color=OURS, marker="o", markersize=3.5)
        axes.set_xscale("log")
        axes.set_title(title)
        if name == "maintain":
            axes.set_yscale("log")
            axes.yaxis.set_major_formatter(lambda value, place: f"{value:g}")
            axes.yaxis.set_minor_formatter(lambda value, place: "")
        else:
            axes.set_ylim(0, 1.3 * max(point[name] for point in points))
        axes.grid(axis="y", color="#e2e8f0")
        axes.set_axisbelow(True)
    for axes in grid[-1]:
        axes.set_xlabel("segments")
    figure.suptitle("As a log grows", x=0.01, ha="left", fontweight="bold")
    figure.tight_layout()
    return figure


def _cost(rows: ByName, series: Series, pyplot: Any) -> Any:
    [counted] = series["cost"]
    bills = {"offsetlog on S3": cost.ours(counted), "three Kafka brokers": cost.kafka(counted)}
    figure, axes = pyplot.subplots(figsize=(10, 1.9))
    shades = {"offsetlog on S3": ("#0f766e", "#14b8a6", "#5eead4", "#99f6e4", "#ccfbf1")}
    for place, (name, bill) in enumerate(bills.items()):
        left = 0.0
        for line, colour in zip(bill, shades.get(name, PEERS), strict=False):
            axes.barh(place, line.dollars, left=left, color=colour, edgecolor="white", height=0.6)
            if line.dollars > 0.06 * max(cost.total(one) for one in bills.values()):
                dark = colour in ("#0f766e", "#475569")
                axes.text(
                    left + line.dollars / 2,
                    place,
                    f"{line.what}\n{line.dollars:.0f}",
                    ha="center",
                    va="center",
                    fontsize=8,
                    color="white" if dark else "#1e293b",
                )
            left += line.dollars
        axes.text(left, place, f"  {left:.0f} $", va="center", fontweight="bold")
    axes.set_yticks(range(len(bills)), list(bills))
    axes.invert_yaxis()
    axes.xaxis.set_visible(False)
    axes.spines["bottom"].set_visible(False)
    axes.set_title("A month of 4,000 JSON events a second, list prices")
    figure.tight_layout()
    return figure


_DRAW = {
    "throughput": _throughput,
    "latency": _latency,
    "stored": _stored,
    "growth": _growth,
    "cost": _cost,
}


def draw(rows: Sequence[Row], series: Series, folder: Path) -> list[str]:
    """Draw every chart whose figures are there; their names."""
    pyplot = _style()
    named = {row["name"]: row for row in rows}
    folder.mkdir(exist_ok=True)
    drawn = []
    for name, chart in _DRAW.items():
        try:
            figure = chart(named, series, pyplot)
        except KeyError:
            continue  # something of it was not measured
        figure.savefig(folder / f"{name}.png", metadata={"Software": None})
        pyplot.close(figure)
        drawn.append(name)
    return drawn


def redraw(results: Path, folder: Path) -> list[str]:
    """The same from the files of a run."""
    series = results.with_stem(f"{results.stem}-series")
    return draw(load(results), json.loads(series.read_text()) if series.exists() else {}, folder)


if __name__ == "__main__":
    print(", ".join(redraw(HERE / "results.json", FOLDER)) or "nothing to draw")
