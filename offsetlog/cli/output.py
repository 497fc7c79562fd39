"""The only place where the commands write to a terminal, a pipe or a file.

Invariants:

1. No other module of the command line writes to stdout or stderr.
2. Colour, boxes and moving bars go to terminals only; elsewhere the output is plain aligned text.
3. With ``--json`` stdout holds JSON and nothing else: one document, or one object a line where
   records stream.
4. Stored text is never read as markup, and moves no cursor: what is not printable is shown as its
   escape. The bytes of records are so on a terminal alone; elsewhere they are what was stored.
5. A message is one line on stderr, whatever the text holds, and shows no secret; so does a
   traceback.
"""

from __future__ import annotations

import io
import json
import os
import select
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import click

from offsetlog.logs import clean, clean_trace
from offsetlog.redact import hide
from offsetlog.text import printable, printable_json, shortened

Progress = Callable[[str, int, int], None]
"""(current step, units finished, units in total)."""


def prepare() -> None:
    """Let no character that the terminal has no code for end a command."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")


def print_line(text: str = "", *, stderr: bool = False) -> None:
    click.echo(printable(text), err=stderr)


def print_text(text: str) -> None:
    """Text that ends its own lines, at once."""
    sys.stdout.write(printable(text, keep="\n\t") if sys.stdout.isatty() else text)
    sys.stdout.flush()


def print_bytes(lines: Sequence[bytes]) -> None:
    """The bytes of records, a line each, at once."""
    data = b"\n".join(lines) + b"\n"
    if sys.stdout.isatty():
        print_text(data.decode("utf-8", "surrogateescape"))
        return
    sys.stdout.buffer.write(data)
    sys.stdout.buffer.flush()


def print_message(text: str) -> None:
    """``offsetlog: text`` as one line on stderr."""
    line = shortened(printable(hide(" ".join(text.split()))))
    try:
        sys.stderr.write(f"offsetlog: {line}\n")
        sys.stderr.flush()
    except (OSError, ValueError):
        pass  # Nobody reads stderr; the exit status still tells.


def print_warning(text: object) -> None:
    print_message(f"warning: {text}")


def print_traceback() -> None:
    """Where the current exception came from, for ``--debug``."""
    import traceback

    sys.stderr.write(clean_trace(traceback.format_exc()))


def show_logs(wanted: bool) -> None:
    """What libraries log for want of another place: on stderr with ``--debug``, else nowhere."""
    import logging

    logging.lastResort = logging.StreamHandler() if wanted else logging.NullHandler()
    logging.lastResort.setLevel(logging.WARNING)
    logging.lastResort.addFilter(clean)


def print_json(value: Any) -> None:
    click.echo(printable_json(json.dumps(value, indent=2, ensure_ascii=False)))


def print_json_line(value: Any) -> None:
    """One document of several, on a line of its own, at once."""
    print_bytes([to_json_line(value)])


def to_json_line(value: Any) -> bytes:
    return printable_json(json.dumps(value, ensure_ascii=False)).encode()


def print_result(
    as_json: bool, document: Any, titles: Sequence[str], rows: Sequence[Sequence[Any]]
) -> None:
    """The result of a command: a document with ``--json``, else a table."""
    if as_json:
        print_json(document)
    else:
        print_table(titles, rows)


def print_table(titles: Sequence[str], rows: Sequence[Sequence[Any]]) -> None:
    """A table, with columns of numbers aligned to the right."""
    cells = [["" if cell is None else printable(cell) for cell in row] for row in rows]
    numeric = [
        bool(rows) and all(isinstance(row[i], int | float | None) for row in rows)
        for i in range(len(titles))
    ]
    if sys.stdout.isatty():
        _print_rich_table(titles, cells, numeric)
        return
    widths = [max(len(title), *(len(row[i]) for row in cells), 0) for i, title in enumerate(titles)]
    for row in [list(titles), *cells]:
        padded = [
            cell.rjust(width) if is_number else cell.ljust(width)
            for cell, width, is_number in zip(row, widths, numeric, strict=True)
        ]
        print_line("  ".join(padded).rstrip())


def _print_rich_table(
    titles: Sequence[str], cells: Sequence[Sequence[str]], numeric: Sequence[bool]
) -> None:
    from rich import box
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(box=box.SIMPLE_HEAD, header_style="bold cyan", pad_edge=False)
    for title, is_number in zip(titles, numeric, strict=True):
        table.add_column(title, justify="right" if is_number else "left", overflow="fold")
    for row in cells:
        table.add_row(*(Text(cell) for cell in row))
    Console().print(table)


@contextmanager
def progress(what: str) -> Iterator[Progress]:
    """A bar on stderr during long work; nothing where stderr is no terminal."""
    if not sys.stderr.isatty():
        yield lambda step, finished, total: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeElapsedColumn
    from rich.progress import Progress as Bar

    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn())
    with Bar(*columns, TimeElapsedColumn(), console=Console(stderr=True), transient=True) as bar:
        _bars.append(bar)
        task = bar.add_task(what, total=None)

        def show(step: str, finished: int, total: int) -> None:
            bar.update(
                task, description=f"{what}: {printable(step)}", completed=finished, total=total
            )

        try:
            yield show
        finally:
            _bars.remove(bar)


_bars: list[Any] = []
"""Those that move now."""


def confirm(question: str) -> None:
    """Abort the command unless the user answers yes."""
    if not click.confirm(printable(question), default=False, err=True):
        raise click.Abort


def agree(what: str, question: str, yes: bool) -> None:
    """Say what can't be undone, and ask at a terminal whether to; a script is not asked."""
    for bar in _bars:
        bar.stop()
    print_line(what, stderr=True)
    if not yes and sys.stdin.isatty():
        confirm(question)
    for bar in _bars:
        bar.start()


def counted(number: int, what: str) -> str:
    """``1 record``, ``2 records``."""
    return f"{number} {what}{'' if number == 1 else 's'}"


def at_a_terminal() -> bool:
    """Whether somebody reads what is printed, and can answer."""
    return sys.stdin.isatty() and sys.stdout.isatty()


def wait_for_enter(text: str) -> None:
    """Print the text, and wait for a line or the end of what is typed."""
    print_line(text)
    sys.stdout.flush()
    sys.stdin.readline()


def reader_left() -> bool:
    """Whether stdout is a pipe that nobody reads any more."""
    try:
        poll = select.poll()
        poll.register(sys.stdout.fileno(), 0)
        return any(event & select.POLLERR for _, event in poll.poll(0))
    except (OSError, ValueError, AttributeError):
        return False


def flush() -> None:
    """Raise what stdout could not take, while it can still change the exit status."""
    sys.stdout.flush()


def discard_stdout() -> None:
    """After the reader left: let the interpreter's last flush go nowhere."""
    try:
        null = os.open(os.devnull, os.O_WRONLY)
        os.dup2(null, sys.stdout.fileno())
        os.close(null)
    except (OSError, ValueError):
        pass  # It is not a file: there is nothing to flush to.
