"""How the demo looks: live tables on a terminal, lines elsewhere.

Invariants:

1. It only looks: nothing of the story depends on who watches.
2. Where stdout is no terminal there are plain lines, one a second at most.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import click

from .demo_story import PARTITIONS, Finding, Story

if TYPE_CHECKING:
    from rich.console import Group as Rows
    from rich.table import Table

BAR = 16
STEP = 0.1


class Lines:
    """For pipes and logs."""

    def __init__(self, story: Story, err: bool) -> None:
        self._story = story
        self._told = 0
        self._last = 0.0
        self._err = err

    def __enter__(self) -> Lines:
        return self

    def __exit__(self, *about: object) -> None:
        self.show(final=True)

    def show(self, final: bool = False) -> None:
        story = self._story
        for event in story.events[self._told :]:
            click.echo(f"[{story.elapsed:5.1f} s] {event}", err=self._err)
        self._told = len(story.events)
        if final or story.elapsed - self._last < 1:
            return
        self._last = story.elapsed
        if story.group:
            click.echo(f"[{story.elapsed:5.1f} s] {story.group}", err=self._err)
            return
        acked = " ".join(f"{p.name}={len(p.acknowledged)}" for p in story.producers)
        click.echo(
            f"[{story.elapsed:5.1f} s] acknowledged {acked} tailed={len(story.tail.seen)}",
            err=self._err,
        )


class Screen:
    """For people."""

    def __init__(self, story: Story) -> None:
        from rich.live import Live

        self._story = story
        self._live = Live(self._picture(), refresh_per_second=10)

    def __enter__(self) -> Screen:
        self._live.__enter__()
        return self

    def __exit__(self, *about: Any) -> None:
        self._live.update(self._picture())
        self._live.__exit__(*about)

    def show(self) -> None:
        self._live.update(self._picture())

    def _picture(self) -> Rows:
        from rich.console import Group
        from rich.table import Table
        from rich.text import Text

        events = Text()
        for event in self._story.events[-6:]:
            style = "bold red" if event.startswith("SIGKILL") else ""
            events.append(f"  {event}\n", style)
        if self._story.group:
            events.append(f"  {self._story.group}\n", "cyan")
        tables = Table.grid(padding=(0, 2))
        tables.add_row(self._producers(), self._partitions())
        return Group(tables, events)

    def _producers(self) -> Table:
        from rich import box
        from rich.table import Table
        from rich.text import Text

        table = Table("PRODUCER", "PID", "STATE", title="produce", box=box.SIMPLE_HEAD)
        table.add_column("ACKNOWLEDGED", justify="right")
        styles = {"running": "green", "done": "green", "waiting": "dim"}
        for producer in self._story.producers:
            state = Text(producer.state, styles.get(producer.state, "bold red"))
            table.add_row(
                producer.name, str(producer.pid), state, f"{len(producer.acknowledged):,}"
            )
        return table

    def _partitions(self) -> Table:
        from rich import box
        from rich.table import Table
        from rich.text import Text

        tail = self._story.tail
        latency = tail.latency_ms()
        title = "tail" if latency is None else f"tail, {latency} ms behind"
        table = Table("PARTITION", title=title, box=box.SIMPLE_HEAD)
        table.add_column("OFFSET", justify="right")
        table.add_column("")
        most = max(1, *tail.last.values())
        for partition in range(PARTITIONS):
            offset = tail.last[partition]
            shown = f"{offset:,}" if offset >= 0 else "-"
            bar = "━" * (BAR * max(0, offset) // most)
            table.add_row(str(partition), shown, Text(bar, "cyan"))
        return table


def watch(story: Story, screen: Screen | Lines, until: Callable[[], bool]) -> None:
    """Show the story until something is so."""
    while not until():
        screen.show()
        time.sleep(STEP)
    screen.show()


def screen_for(story: Story, as_json: bool) -> Screen | Lines:
    if sys.stdout.isatty() and not as_json:
        return Screen(story)
    return Lines(story, err=as_json)


def show_findings(findings: list[Finding]) -> None:
    from .output import print_table

    print_table(
        ("PROMISE", "KEPT", "WHAT WAS FOUND"),
        [(one.promise, "yes" if one.kept else "NO", one.detail) for one in findings],
    )
