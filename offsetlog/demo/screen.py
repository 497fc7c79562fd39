"""What the demo shows: chapters, and a live table of the group's lag.

Invariants:

1. The story does not depend on the screen.
2. Where stdout is no terminal it prints plain lines, at most one in three seconds.
3. The tables fit into 80 columns; where there is room they are side by side.
"""

from __future__ import annotations

import sys
import textwrap
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import click
from rich import box
from rich.console import Console, Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

from offsetlog.demo.program import DemoFailed
from offsetlog.demo.stage import Stage, Status

WIDTH = 79
SIDE_BY_SIDE = 120
BAR = 14
STEP = 0.2
STYLES = {"running": "green", "starting": "yellow", "KILLED": "bold red"}
AWAY = ("starting", "KILLED")


class Lines:
    """For pipes and logs."""

    interval = 3.0

    def __init__(self, err: bool = False) -> None:
        self._err = err

    def echo(self, text: str = "") -> None:
        click.echo(text, err=self._err)

    def chapter(self, title: str) -> None:
        self.echo(f"\n== {title}")

    def say(self, text: str) -> None:
        """A few sentences."""
        self.echo(textwrap.fill(text, WIDTH))

    def watch(
        self, stage: Stage, event: str, reached: Callable[[Status], bool], limit: float
    ) -> None:
        """Show the status until a condition is reached."""
        ends_at = time.monotonic() + limit
        shown_at = float("-inf")
        with self._view() as show:
            while True:
                status = stage.status()
                ended = reached(status)
                if ended or time.monotonic() - shown_at >= self.interval:
                    show(status)
                    shown_at = time.monotonic()
                if ended:
                    return
                if time.monotonic() > ends_at:
                    log = [line for one in stage.readers.programs for line in one.log()]
                    raise DemoFailed(f"{event} did not happen within {limit:.0f} s.", log)
                time.sleep(STEP)

    @contextmanager
    def _view(self) -> Iterator[Callable[[Status], None]]:
        yield lambda status: self.echo(
            f"[{status.elapsed:5.1f} s] lag {status.lag:7,}, {status_line(status)}"
        )


class Screen(Lines):
    """For people."""

    interval = STEP

    def __init__(self) -> None:
        super().__init__()
        self._console = Console(highlight=False)
        self._highest = 1

    def chapter(self, title: str) -> None:
        self._console.print()
        self._console.print(Text(title, "bold cyan"))

    @contextmanager
    def _view(self) -> Iterator[Callable[[Status], None]]:
        with Live(console=self._console, refresh_per_second=8) as live:
            yield lambda status: live.update(self._picture(status))

    def _picture(self, status: Status) -> Group:
        partitions, programs = self._partitions(status), _programs(status)
        state = Text(f"{status.elapsed:.0f} s: {status_line(status)}")
        state.highlight_words(["KILLED"], STYLES["KILLED"])
        if self._console.width < SIDE_BY_SIDE:
            return Group(partitions, programs, state)
        beside = Table.grid(padding=(0, 3))
        beside.add_row(partitions, programs)
        return Group(beside, state)

    def _partitions(self, status: Status) -> Table:
        self._highest = max(self._highest, *(line.lag for line in status.partitions))
        table = Table("PARTITION", box=box.SIMPLE_HEAD, pad_edge=False)
        for name in ("END", "COMMITTED", "LAG"):
            table.add_column(name, justify="right", min_width=7)
        table.add_column("", min_width=BAR)
        table.add_column("READ BY", min_width=8, max_width=16, no_wrap=True)
        for line in status.partitions:
            bar = Text("━" * (BAR * line.lag // self._highest), "yellow")
            numbers = (f"{number:,}" for number in (line.end, line.committed, line.lag))
            table.add_row(str(line.number), *numbers, bar, line.reader or "-")
        table.add_row("all", f"{status.stored:,}", "", Text(f"{status.lag:,}", "bold"))
        return table


def _programs(status: Status) -> Table:
    table = Table("PROGRAM", "PID", box=box.SIMPLE_HEAD, pad_edge=False)
    table.add_column("STATE", min_width=11)
    table.add_column("SENT", min_width=7, justify="right")
    for program in status.programs:
        state = Text(program.state, STYLES.get(program.state, ""))
        sent = "" if program.sent is None else f"{program.sent:,}"
        table.add_row(program.name, str(program.pid or ""), state, sent)
    return table


def status_line(status: Status) -> str:
    counts = f"sent {status.sent:,}, stored {status.stored:,}, billed {status.billed:,}"
    if status.latency_ms is not None:
        counts += f", tail {status.latency_ms} ms"
    away = (f"{one.name} {one.state}" for one in status.programs if one.state in AWAY)
    return ", ".join([counts, *away])


def screen_for(as_json: bool) -> Lines:
    return Screen() if sys.stdout.isatty() and not as_json else Lines(err=as_json)
