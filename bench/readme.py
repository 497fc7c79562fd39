"""``python -m bench.readme``: put what was measured into the README and ``docs/figures.md``.

1. All of it is made from ``results.json`` and ``results-series.json``; what was not measured is
   not shown.
2. The README shows a few figures beside all of their peers, also where a peer is ahead, and the
   charts; everything else is in ``docs/figures.md``.
3. ``--check`` only tells, by its exit status, whether both show what was measured.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from bench.charts import CHARTS, FOLDER
from bench.figure import Series
from bench.figures_page import figures_page, met, number
from bench.results import Row

ROOT = Path(__file__).resolve().parent.parent
README = ROOT / "README.md"
FIGURES = ROOT / "docs" / "figures.md"
RESULTS = ROOT / "bench" / "results.json"
SERIES = RESULTS.with_stem("results-series")
BEGIN, END = "<!-- figures -->", "<!-- /figures -->"
COLUMNS = ("Kafka", "Delta", "Parquet, or bare files")


class Headline(NamedTuple):
    """A line of the README's table: our side of ``figure``, and the peers of figures that
    measure the same. A peer's text says how it was run; ``{}`` is its number."""

    what: str
    figure: str
    unit: str
    kafka: tuple[tuple[str, str], ...] = ()
    delta: tuple[tuple[str, str], ...] = ()
    bare: tuple[tuple[str, str], ...] = ()


HEADLINES = (
    Headline(
        "Spark reads a batch, seven columns", "spark_source", "rows/s",
        kafka=(("spark_source_vs_kafka", "{} with large fetches"),
               ("spark_source_vs_kafka_defaults", "{} by default")),
        bare=(("spark_source", "{}"),),
    ),
    Headline(
        "the same batch, `value` alone", "spark_source_value", "rows/s",
        bare=(("spark_source_value_vs_scan", "{}"),),
    ),
    Headline(
        "the same batch, read by Python", "spark_source_python", "rows/s",
        bare=(("spark_source_python", "{}"),),
    ),
    Headline(
        "the same batch, JSON events", "spark_events_source", "rows/s",
        kafka=(("spark_events_source_vs_kafka", "{} with large fetches"),
               ("spark_events_source_vs_kafka_defaults", "{} by default")),
        bare=(("spark_events_source", "{}"),),
    ),
    Headline(
        "Spark reads a stream, `availableNow`", "spark_stream_vs_delta", "rows/s",
        delta=(("spark_stream_vs_delta", "{}"),),
    ),
    Headline(
        "the same stream, read by Python", "spark_stream_python", "rows/s",
        delta=(("spark_stream_python", "{}"),),
    ),
    Headline(
        "the same stream, JSON events", "spark_events_stream_vs_delta", "rows/s",
        delta=(("spark_events_stream_vs_delta", "{}"),),
    ),
    Headline(
        "Spark writes a batch", "spark_sink", "rows/s",
        kafka=(("spark_sink_vs_kafka", "{}"),),
        delta=(("spark_sink_vs_delta", "{}"),),
        bare=(("spark_sink", "{}"),),
    ),
    Headline(
        "the same batch, written by Python", "spark_sink_python", "rows/s",
        bare=(("spark_sink_python", "{}"),),
    ),
    Headline(
        "one record, from `send` to `foreachBatch`, median", "spark_latency_p50", "ms",
        kafka=(("spark_latency_p50_vs_kafka", "{} by default"),
               ("spark_latency_p50_vs_kafka_10ms", "{} with short waits")),
        delta=(("spark_latency_p50", "{}"),),
    ),
    Headline(
        "a micro-batch of 100 rows into the sink", "spark_sink_100_rows", "ms",
        bare=(("spark_sink_100_rows", "{}"),),
    ),
    Headline(
        "Python `send`, a future for each record", "send_futures", "records/s",
        kafka=(("send_futures_alike", "{} with a future each"),
               ("send_futures", "{} with a callback")),
    ),
    Headline(
        "Python `poll`", "poll_vs_consume", "records/s", kafka=(("poll_vs_consume", "{}"),)
    ),
    Headline(
        "one record, synced to a local disk, median", "append_local_p50", "ms",
        bare=(("append_local_p50", "{}"),),
    ),
    Headline(
        "a batch over 64 partitions, on an object store", "append_s3", "ms",
        bare=(("append_s3", "{}"),),
    ),
    Headline(
        "stored, a JSON event of 200 bytes and its key", "stored_events", "bytes",
        kafka=(("stored_events", "{} with its best codec"),),
        delta=(("stored_events_vs_delta", "{}"),),
    ),
    Headline(
        "a month of 4,000 such events a second", "cost_month", "$",
        kafka=(("cost_month", "{}, three machines"),),
    ),
)  # fmt: skip


def _peers(rows: Mapping[str, Row], peers: Sequence[tuple[str, str]]) -> str:
    """One cell: the numbers of the peers that were measured."""
    return "; ".join(
        text.format(number(rows[name]["peer"])) for name, text in peers if name in rows
    )


def headlines(rows: Mapping[str, Row]) -> list[str]:
    """The README's table."""
    lines = [f"| | offsetlog | {' | '.join(COLUMNS)} |", "|---|---|" + "---|" * len(COLUMNS)]
    for line in HEADLINES:
        if line.figure in rows:
            ours = f"**{number(rows[line.figure]['ours'])}** {line.unit}"
            peers = [_peers(rows, peers) for peers in (line.kafka, line.delta, line.bare)]
            lines.append(f"| {line.what} | {ours} | {' | '.join(peers)} |")
    return lines


def pictures() -> list[str]:
    """The charts that are there."""
    return [
        f"![{about}]({FOLDER.relative_to(ROOT)}/{name}.png)"
        for name, about in CHARTS.items()
        if (FOLDER / f"{name}.png").exists()
    ]


def page(rows: Sequence[Row]) -> str:
    """All that stands between the README's markers."""
    more = (
        f"{met(rows)} goals that we set ourselves are met. All figures, and which goals are not: "
        "[docs/figures.md](docs/figures.md)."
    )
    parts = [headlines({row["name"]: row for row in rows}), [more], pictures()]
    return "\n\n".join("\n".join(part) for part in parts if part)


def with_page(text: str, rows: Sequence[Row]) -> str:
    """The README with the page between its markers."""
    head, rest = text.split(BEGIN)
    _, tail = rest.split(END)
    return f"{head}{BEGIN}\n{page(rows)}\n{END}{tail}"


def wanted() -> dict[Path, str]:
    """Both files as they should be."""
    rows: list[Row] = json.loads(RESULTS.read_text())
    series: Series = json.loads(SERIES.read_text()) if SERIES.exists() else {}
    return {README: with_page(README.read_text(), rows), FIGURES: figures_page(rows, series)}


def main(argv: list[str]) -> int:
    files = wanted()
    if "--check" in argv:
        return int(any(not p.exists() or p.read_text() != text for p, text in files.items()))
    for path, text in files.items():
        path.write_text(text)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
