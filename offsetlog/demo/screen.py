"""How the demo with Spark looks: chapters, and a live table of the group's lag.

Invariants:

1. It only looks: nothing of the story depends on who watches.
2. Where stdout is no terminal there are plain lines, one in three seconds at most.
3. Nothing is wider than 80 columns.
"""

from __future__ import annotations

import sys
import textwrap
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import click

from .story import Line, Story

if TYPE_CHECKING:
    from rich.console import Group as Rows

WIDTH = 79
BAR = 30
STEP = 0.2
QUIET = 3.0


class Late(Exception):
    """What was waited for did not come in its time."""


class Lines:
    """For pipes and logs."""

    def __init__(self, story: Story, err: bool = False) -> None:
        self.story = story
        self._err = err

    def echo(self, text: str = "") -> None:
        click.echo(text, err=self._err)

    def chapter(self, title: str) -> None:
        self.echo(f"\n== {title}")

    def say(self, text: str) -> None:
        """A few sentences."""
        self.echo(textwrap.fill(text, WIDTH))

    def watch(self, what: str, until: Callable[[], bool], limit: float) -> None:
        """Show how the group stands until something is so."""
        ends_at = time.monotonic() + limit
        shown_at = float("-inf")
        self._begin()
        try:
            while True:
                self.story.check()
                done = until()
                if done or time.monotonic() - shown_at >= self._pause():
                    self._show()
                    shown_at = time.monotonic()
                if done:
                    return
                if time.monotonic() > ends_at:
                    raise Late(f"{what} did not happen within {limit:.0f} s")
                time.sleep(STEP)
        finally:
            self._end()

    def _pause(self) -> float:
        return QUIET

    def _begin(self) -> None:
        pass

    def _end(self) -> None:
        pass

    def _show(self) -> None:
        lines = self.story.lines()
        lag = sum(line.lag for line in lines)
        self.echo(f"[{self.story.elapsed:5.1f} s] lag {lag:7,}, {status(self.story)}")


class Screen(Lines):
    """For people."""

    def __init__(self, story: Story) -> None:
        super().__init__(story)
        self._live: Any = None
        self._most = 1

    def chapter(self, title: str) -> None:
        from rich.console import Console
        from rich.text import Text

        console = Console()
        console.print()
        console.print(Text(title, "bold cyan"))

    def _pause(self) -> float:
        return STEP

    def _begin(self) -> None:
        from rich.live import Live

        self._live = Live(self._picture(), refresh_per_second=8)
        self._live.start()

    def _end(self) -> None:
        self._live.stop()

    def _show(self) -> None:
        self._live.update(self._picture())

    def _picture(self) -> Rows:
        from rich import box
        from rich.console import Group
        from rich.table import Table
        from rich.text import Text

        lines = self.story.lines()
        self._most = max(self._most, *(line.lag for line in lines))
        table = Table("PARTITION", box=box.SIMPLE_HEAD, pad_edge=False)
        for name in ("END", "COMMITTED", "LAG"):
            table.add_column(name, justify="right", min_width=9)
        table.add_column("", min_width=BAR)
        for line in lines:
            table.add_row(*cells(line), Text(bar(line.lag, self._most), "yellow"))
        total = f"{sum(line.lag for line in lines):,}"
        table.add_row("all", "", "", Text(total, "bold"), "")
        state = Text(f"  {self.story.elapsed:.0f} s: {status(self.story)}")
        state.highlight_words(["KILLED"], "bold red")
        return Group(table, state)


def cells(line: Line) -> tuple[str, str, str, str]:
    return str(line.partition), f"{line.end:,}", f"{line.committed:,}", f"{line.lag:,}"


def bar(value: int, most: int) -> str:
    return "━" * (BAR * value // most)


def status(story: Story) -> str:
    counts = f"sent {story.sent():,}, stored {story.stored():,}, billed {story.billed():,}"
    return f"{counts}, Spark {story.state}"


def screen_for(story: Story, as_json: bool) -> Lines:
    if sys.stdout.isatty() and not as_json:
        return Screen(story)
    return Lines(story, err=as_json)
