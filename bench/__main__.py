"""``python -m bench``: run the figures, write ``results.json``, print the table.

A full run also draws the charts, and writes the README's summary and ``docs/figures.md``.
"""

from __future__ import annotations

import argparse
import os
import sys
import traceback
from pathlib import Path

from rich.console import Console

from bench import charts, readme
from bench.figure import Setting
from bench.figures import cases, figure_names, select
from bench.results import Row, keep_series, load, merge, save
from bench.runner import run_case, work_folder
from bench.suite import SUITE
from bench.table import show

HERE = Path(__file__).resolve().parent
CACHE = HERE.parent / ".cache" / "bench"


def _arguments(argv: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench", description=__doc__)
    parser.add_argument("--only", action="append", metavar="NAME", help="a figure or a case")
    parser.add_argument("--short", action="store_true", help="small sizes: counts, not times")
    parser.add_argument("--rounds", type=int, help="rounds for each figure (default: at least 5)")
    parser.add_argument("--results", type=Path, help="where to write (default: bench/results.json)")
    parser.add_argument("--cache", type=Path, default=CACHE, help="jars and work folders")
    parser.add_argument("--list", action="store_true", help="name the figures and stop")
    return parser.parse_args(argv)


def main(argv: list[str] | None = None) -> int:
    """Run what was asked for; 1 when a case could not run, 2 when there is none of that name."""
    options = _arguments(argv)
    console = Console() if sys.stdout.isatty() else Console(width=130)
    if options.list:
        for case in cases():
            console.print(f"{case.name}: {', '.join(f.name for f in case.figures)}")
        return 0
    chosen = select(options.only)
    if not chosen:
        console.print(f"no figure is named {options.only}; --list names them all")
        return 2
    target = options.results or HERE / ("results-short.json" if options.short else "results.json")
    measured: list[Row] = []
    failed = []
    busiest = 0.0
    with work_folder(options.cache) as work, SUITE, console.status("starting") as status:
        for case in chosen:
            busiest = max(busiest, os.getloadavg()[0])
            folder = work / case.name
            folder.mkdir()
            setting = Setting(folder, options.cache, options.short)
            try:
                measured += run_case(case, setting, options.rounds, status.update)
            except Exception as error:  # noqa: BLE001 - one figure that cannot run must not cost the others
                failed.append(case.name)
                console.print(f"[red]{case.name} did not run:[/] {error}", soft_wrap=True)
                console.print(traceback.format_exc(limit=-4), style="dim", markup=False)
                continue
            save(target, merge(load(target), measured, figure_names()))
            if setting.series:
                keep_series(target.with_stem(f"{target.stem}-series"), setting.series)
    show(measured, console)
    if target == HERE / "results.json":
        charts.redraw(target, charts.FOLDER)
        readme.main([])
    if busiest > (os.cpu_count() or 1) + 1:
        console.print(
            f"[yellow]The load average reached {busiest:.1f}: others were at work, and times of "
            "this run are not to be believed. Counts are.[/]"
        )
    return 1 if failed else 0


if __name__ == "__main__":
    raise SystemExit(main())
