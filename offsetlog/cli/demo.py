"""``offsetlog demo``: the log at work, with a crash in the middle."""

from __future__ import annotations

import shutil
import tempfile

import click

from .base import Command
from .failures import FAILED, say
from .output import print_json
from .params import Whole
from .session import Session, pass_session

SECONDS = 20.0


@click.command(
    "demo",
    cls=Command,
    examples="""
    $ offsetlog demo --seconds 4 --producers 2
    """,
)
@click.option(
    "--seconds", type=click.FloatRange(3, 3600), default=SECONDS, show_default=True,
    help="How long the producers send.",
)  # fmt: skip
@click.option("--producers", type=Whole(1, 16), default=3, show_default=True, help="How many.")
@click.option("--keep", is_flag=True, help="Leave the log there, to look at it.")
@pass_session
@click.pass_context
def command(
    ctx: click.Context, session: Session, seconds: float, producers: int, keep: bool
) -> None:
    """Produce from several processes, follow them live, kill one, and check every promise.

    Then two workers of a group share the records, one is killed, and the other takes over.

    It works in a temporary folder of the local disk, whatever the root is. In the end the whole
    log is read again: each acknowledged record must be there once, at its offset. The exit
    status is 1 if a promise was broken.
    """
    from .demo_group import Crew
    from .demo_screen import screen_for, show_findings, watch
    from .demo_story import TOPIC, Story

    folder = tempfile.mkdtemp(prefix="offsetlog-demo-")
    story = Story(f"{folder}/log", producers, seconds)
    crew: Crew | None = None
    try:
        with screen_for(story, session.json) as screen:
            story.begin()
            watch(story, screen, story.under_way)
            story.start_clock()
            watch(story, screen, lambda: story.elapsed > seconds * 0.4)
            story.crash()
            watch(story, screen, lambda: story.elapsed > seconds * 0.55)
            story.restart()
            watch(story, screen, lambda: story.elapsed > seconds)
            story.end()
            crew = Crew(story)
            crew.begin()
            watch(story, screen, crew.shared)
            crew.kill()
            watch(story, screen, crew.taken_over)
            watch(story, screen, crew.done)
            crew.end()
        findings = [*story.reckon(), *crew.findings()]
    except BaseException:
        if not keep:
            story.stop()
            if crew is not None:
                crew.stop()
            shutil.rmtree(folder, ignore_errors=True)
        raise
    finally:
        story.stop()
        if crew is not None:
            crew.stop()
    broken = [finding.promise for finding in findings if not finding.kept]
    if not keep and not broken:
        shutil.rmtree(folder, ignore_errors=True)
    if session.json:
        print_json([finding._asdict() for finding in findings])
    else:
        show_findings(findings)
        if keep:
            click.echo(f"\nLook at it: offsetlog --root {folder}/log topics describe {TOPIC}")
    if broken:
        say(f"a promise was broken: {broken[0]}. Report it, with the log that is in {folder}.")
        ctx.exit(FAILED)
