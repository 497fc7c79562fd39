"""How the demo looks: chapters, and a live table of the group's lag.

Invariants:

1. It only looks: nothing of the story depends on who watches.
2. Where stdout is no terminal there are plain lines, one in three seconds at most.
3. The tables fit into 80 columns; where there is room they stand side by side.
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
from offsetlog.demo.stage import Look, Stage

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
        self, stage: Stage, event: str, reached: Callable[[Look], bool], limit: float
    ) -> None:
        """Show how things stand until something is so."""
        ends_at = time.monotonic() + limit
        shown_at = float("-inf")
        with self._view() as show:
            while True:
                look = stage.look()
                over = reached(look)
                if over or time.monotonic() - shown_at >= self.interval:
                    show(look)
                    shown_at = time.monotonic()
                if over:
                    return
                if time.monotonic() > ends_at:
                    log = [line for one in stage.readers.programs for line in one.log()]
                    raise DemoFailed(f"{event} did not happen within {limit:.0f} s.", log)
                time.sleep(STEP)

    @contextmanager
    def _view(self) -> Iterator[Callable[[Look], None]]:
        yield lambda look: self.echo(f"[{look.elapsed:5.1f} s] lag {look.lag:7,}, {status(look)}")


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
    def _view(self) -> Iterator[Callable[[Look], None]]:
        with Live(console=self._console, refresh_per_second=8) as live:
            yield lambda look: live.update(self._picture(look))

    def _picture(self, look: Look) -> Group:
        partitions, players = self._partitions(look), _players(look)
        state = Text(f"{look.elapsed:.0f} s: {status(look)}")
        state.highlight_words(["KILLED"], STYLES["KILLED"])
        if self._console.width < SIDE_BY_SIDE:
            return Group(partitions, players, state)
        beside = Table.grid(padding=(0, 3))
        beside.add_row(partitions, players)
        return Group(beside, state)

    def _partitions(self, look: Look) -> Table:
        self._highest = max(self._highest, *(line.lag for line in look.partitions))
        table = Table("PARTITION", box=box.SIMPLE_HEAD, pad_edge=False)
        for name in ("END", "COMMITTED", "LAG"):
            table.add_column(name, justify="right", min_width=7)
        table.add_column("", min_width=BAR)
        table.add_column("READ BY", min_width=8, max_width=16, no_wrap=True)
        for line in look.partitions:
            bar = Text("━" * (BAR * line.lag // self._highest), "yellow")
            numbers = (f"{number:,}" for number in (line.end, line.committed, line.lag))
            table.add_row(str(line.number), *numbers, bar, line.reader or "-")
        table.add_row("all", f"{look.stored:,}", "", Text(f"{look.lag:,}", "bold"))
        return table


def _players(look: Look) -> Table:
    table = Table("PROGRAM", "PID", box=box.SIMPLE_HEAD, pad_edge=False)
    table.add_column("STATE", min_width=11)
    table.add_column("SENT", min_width=7, justify="right")
    for player in look.players:
        state = Text(player.state, STYLES.get(player.state, ""))
        sent = "" if player.sent is None else f"{player.sent:,}"
        table.add_row(player.name, str(player.pid or ""), state, sent)
    return table


def status(look: Look) -> str:
    counts = f"sent {look.sent:,}, stored {look.stored:,}, billed {look.billed:,}"
    if look.latency_ms is not None:
        counts += f", tail {look.latency_ms} ms"
    away = (f"{one.name} {one.state}" for one in look.players if one.state in AWAY)
    return ", ".join([counts, *away])


def screen_for(as_json: bool) -> Lines:
    return Screen() if sys.stdout.isatty() and not as_json else Lines(err=as_json)
