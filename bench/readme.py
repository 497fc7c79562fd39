"""``python -m bench.readme``: put the table of ``results.json`` into the README.

``--check`` only tells, by its exit status, whether the README shows what was measured.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
README = ROOT / "README.md"
RESULTS = ROOT / "bench" / "results.json"
BEGIN, END = "<!-- figures -->", "<!-- /figures -->"


def number(value: float) -> str:
    """Three digits are as many as a shared machine gives."""
    if value and abs(value) < 100:
        return f"{value:.3g}"
    for size, letter in ((1e9, " G"), (1e6, " M"), (1e3, " k")):
        if abs(value) >= size:
            return f"{value / size:.3g}{letter}"
    return f"{value:.0f}"


def table(rows: list[dict[str, Any]]) -> str:
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
    return "\n".join(lines)


def with_table(text: str, rows: list[dict[str, Any]]) -> str:
    head, rest = text.split(BEGIN)
    _, tail = rest.split(END)
    return f"{head}{BEGIN}\n{table(rows)}\n{END}{tail}"


def main(argv: list[str]) -> int:
    text = README.read_text()
    wanted = with_table(text, json.loads(RESULTS.read_text()))
    if "--check" in argv:
        return 0 if text == wanted else 1
    README.write_text(wanted)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
