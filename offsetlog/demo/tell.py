"""The demo with Spark, chapter by chapter."""

from __future__ import annotations

import re
import shlex
from typing import NamedTuple

from ..cli.demo_story import Finding
from .orders import GROUP, PARTITIONS, RIGHT, TOPIC, WRONG
from .screen import Lines
from .story import Reading, Story

LIMIT = 420.0
"""Seconds that one step may take on a machine that is busy with other things."""
SMALL = 4000
"""A lag that a group at work has anyway."""


class Pace(NamedTuple):
    """How long the parts of the story take at least, in seconds."""

    stream: float
    outage: float

    @classmethod
    def of(cls, seconds: float) -> Pace:
        return cls(seconds * 0.4, seconds * 0.2)


def tell(story: Story, screen: Lines, pace: Pace) -> list[Finding]:
    """Everything, in order; what was found."""
    _stream(story, screen, pace)
    _crash(story, screen, pace)
    first = _count(story, screen)
    _replay(story, screen)
    second = story.replay()
    screen.chapter("6. The same count, of both readings")
    show_readings(screen, [first, second])
    story.end_driver()
    _where(story, screen)
    return findings(story, first, second)


def _stream(story: Story, screen: Lines, pace: Pace) -> None:
    screen.chapter("1. A topic, and orders that stream into it")
    screen.say(f"Topic {TOPIC!r} with {PARTITIONS} partitions: a folder. No broker runs.")
    screen.say("A shop in plain Python sends orders into it. Others lie in a folder as JSON files.")
    story.begin()
    screen.say(
        f"Spark starts (process {story.start_driver()}). One query streams the files into the "
        f"topic; another streams the topic to a ledger of invoices, as the group {GROUP!r}."
    )
    screen.watch("a first invoice", lambda: story.billed() > 0, LIMIT)
    screen.chapter("2. Spark reads; the lag of the group goes down")
    until = story.elapsed + pace.stream
    screen.watch(
        "a small lag", lambda: story.lag() < SMALL and story.elapsed > until, LIMIT + pace.stream
    )


def _crash(story: Story, screen: Lines, pace: Pace) -> None:
    screen.chapter("3. SIGKILL for Spark, driver and JVM, while both queries run")
    story.kill_driver()
    screen.say("The shop goes on; nobody reads, and the lag grows.")
    until = story.elapsed + pace.outage
    screen.watch("the outage", lambda: story.elapsed > until, LIMIT)
    screen.say(f"The same program is started again (process {story.start_driver()}).")
    screen.watch("an invoice after the crash", lambda: story.state == "running", LIMIT)
    story.end_senders()
    screen.say("It is back. The shop closes and no more files come; what is left is read.")
    screen.watch("a lag of 0", story.all_read, LIMIT)


def _count(story: Story, screen: Lines) -> Reading:
    screen.chapter("4. Was anything lost or doubled? Count")
    first = story.first_reading()
    show_readings(screen, [first])
    if first.billed.cents != first.right:
        screen.say("Nothing is lost, nothing is double. But the sum is wrong: a bug.")
    return first


def _replay(story: Story, screen: Lines) -> None:
    screen.chapter("5. The bug, and a replay while the query runs")
    wrong, right = (rule.splitlines() for rule in (WRONG, RIGHT))
    for line in wrong:
        screen.echo(f"  {line}" if line in right else f"- {line}")
    for line in right:
        if line not in wrong:
            screen.echo(f"+ {line}")
    story.fix()
    screen.say("It is fixed. The orders must be billed again, so the group is reset:")
    root = shlex.quote(story.root)
    screen.echo(f"  offsetlog --root {root} \\\n    groups reset {GROUP} --topic {TOPIC} "
                "--to-earliest --execute")  # fmt: skip
    for move in story.reset().moves:
        screen.echo(f"  {move.topic}-{move.partition}: {move.before} -> {move.after}")
    screen.say("The query was not stopped. At its next micro-batch it reads from the beginning.")
    screen.watch("the end of the replay", story.replayed, LIMIT)


def _where(story: Story, screen: Lines) -> None:
    screen.chapter("7. Where it all is: files, and nothing else")
    for path, what in story.places():
        screen.echo(f"{what}, such as\n  {shortened(path)}")
    screen.say("'offsetlog demo --keep' leaves them, to look at; 'offsetlog verify' checks them:")


def show_readings(screen: Lines, readings: list[Reading]) -> None:
    """A count, before the reader's eyes."""
    rows = [
        ("", [reading.name for reading in readings]),
        ("orders sent", [f"{reading.sent:,}" for reading in readings]),
        ("invoices", [f"{reading.billed.lines:,}" for reading in readings]),
        ("distinct (partition, offset)", [f"{reading.billed.places:,}" for reading in readings]),
        ("orders missing", [f"{reading.missing:,}" for reading in readings]),
        ("orders twice", [f"{reading.billed.twice:,}" for reading in readings]),
        ("the orders are worth", [money(reading.right) for reading in readings]),
        ("the invoices say", [money(reading.billed.cents) for reading in readings]),
    ]
    for name, values in rows:
        screen.echo(f"  {name:30}" + "".join(f"{value:>18}" for value in values))


def shortened(path: str) -> str:
    """Without the most of an id."""
    return re.sub(r"-([0-9a-f]{4})[0-9a-f]{28}", r"-\1...", path)


def money(cents: int) -> str:
    return f"{cents // 100:,}.{cents % 100:02}"


def findings(story: Story, first: Reading, second: Reading) -> list[Finding]:
    faults = story.faults()
    return [
        *(_whole(story, reading) for reading in (first, second)),
        Finding(
            "The first sums were wrong, and the replay's are right",
            first.billed.cents != first.right and second.billed.cents == second.right,
            f"{money(first.billed.cents)}, then {money(second.billed.cents)}",
        ),
        Finding("The group has read everything", story.lag() == 0, f"lag {story.lag()}"),
        Finding("verify finds no fault", not faults, "; ".join(faults[:3]) or "all files read"),
    ]


def _whole(story: Story, reading: Reading) -> Finding:
    count = reading.billed
    numbers = {reading.sent, story.stored(), count.lines, count.places, count.orders}
    return Finding(
        f"The {reading.name} lost and doubled nothing",
        len(numbers) == 1 and reading.sent > 0 and reading.missing == 0,
        f"{reading.sent:,} sent, {story.stored():,} stored, {count.lines:,} billed, "
        f"{reading.missing} missing, {count.twice} twice",
    )
