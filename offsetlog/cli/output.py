"""What is printed: tables, JSON and progress.

Invariants:

1. Colour, boxes and moving bars go to terminals only; elsewhere it is plain aligned text.
2. With ``--json`` stdout holds JSON and nothing else: one document, or one object a line where
   records stream.
3. Text from outside is printed as it is, never read as markup.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import click

Progress = Callable[[str, int, int], None]
"""(what is done, how much of it is done, how much there is)."""


def print_json(value: Any) -> None:
    import json

    click.echo(json.dumps(value, indent=2, ensure_ascii=False))


def print_table(titles: Sequence[str], rows: Sequence[Sequence[Any]]) -> None:
    """A table with its numbers to the right."""
    cells = [["" if cell is None else str(cell) for cell in row] for row in rows]
    right = [
        bool(rows) and all(isinstance(row[i], int | float | None) for row in rows)
        for i in range(len(titles))
    ]
    if sys.stdout.isatty():
        _rich_table(titles, cells, right)
        return
    widths = [max(len(title), *(len(row[i]) for row in cells), 0) for i, title in enumerate(titles)]
    for line in [list(titles), *cells]:
        padded = [
            cell.rjust(width) if to_right else cell.ljust(width)
            for cell, width, to_right in zip(line, widths, right, strict=True)
        ]
        click.echo("  ".join(padded).rstrip())


def _rich_table(
    titles: Sequence[str], cells: Sequence[Sequence[str]], right: Sequence[bool]
) -> None:
    from rich import box
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(box=box.SIMPLE_HEAD, header_style="bold cyan", pad_edge=False)
    for title, to_right in zip(titles, right, strict=True):
        table.add_column(title, justify="right" if to_right else "left", overflow="fold")
    for row in cells:
        table.add_row(*(Text(cell) for cell in row))
    Console().print(table)


@contextmanager
def progress(what: str) -> Iterator[Progress]:
    """A bar on stderr while long work goes on; nothing where nobody looks."""
    if not sys.stderr.isatty():
        yield lambda doing, done, of: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeElapsedColumn
    from rich.progress import Progress as Bar

    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn())
    with Bar(*columns, TimeElapsedColumn(), console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(what, total=None)

        def show(doing: str, done: int, of: int) -> None:
            bar.update(task, description=f"{what}: {doing}", completed=done, total=of)

        yield show
