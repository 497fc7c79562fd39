"""``offsetlog demo``: the log at work, with a crash in the middle.

Invariants:

1. With Spark and Java it is the story of Spark; without, that of Python alone, and it says why.
2. Whatever happens, no process and no folder is left, but the folder of a demo that failed.
"""

from __future__ import annotations

import shutil
import tempfile
from typing import TYPE_CHECKING

import click

from .base import Command
from .failures import FAILED, say
from .output import print_json
from .params import Whole
from .session import Session, pass_session

if TYPE_CHECKING:
    from .demo_story import Finding

SECONDS = 20.0


@click.command(
    "demo",
    cls=Command,
    examples="""
    $ offsetlog demo
    $ offsetlog demo --no-spark --seconds 4 --producers 2
    """,
)
@click.option(
    "--seconds", type=click.FloatRange(3, 3600), default=SECONDS, show_default=True,
    help="How long records are sent, about.",
)  # fmt: skip
@click.option(
    "--spark/--no-spark", default=None,
    help="With Spark, or Python alone. Default: with Spark where it and Java are installed.",
)  # fmt: skip
@click.option(
    "--producers", type=Whole(1, 16), default=3, show_default=True,
    help="How many processes send, without Spark.",
)  # fmt: skip
@click.option("--keep", is_flag=True, help="Leave the log there, to look at it.")
@pass_session
@click.pass_context
def command(
    ctx: click.Context,
    session: Session,
    seconds: float,
    spark: bool | None,
    producers: int,
    keep: bool,
) -> None:
    """Stream records in and out, kill the reader, replay, and check every promise.

    With Spark: one query writes a topic, another reads it as a group. Its lag is shown live, both
    are killed with SIGKILL and started again, and everything is counted. Then a bug is found, the
    group is reset while the query runs, and it reads everything again.

    Without Spark: several processes produce, one is killed; two workers of a group share the
    records, one is killed, and the other takes over.

    It works in a temporary folder of the local disk, whatever the root is. The exit status is 1
    if a promise was broken.
    """
    from .demo_spark import DemoFailed, spark_lacks

    lacking = "" if spark is False else spark_lacks()
    if lacking and spark:
        say(f"the demo with Spark can't run here: {lacking}.")
        ctx.exit(FAILED)
    if lacking:
        click.echo(f"This is the story of Python alone, since {lacking}.\n", err=session.json)
    folder = tempfile.mkdtemp(prefix="offsetlog-demo-")
    keeping = keep
    try:
        if spark is False or lacking:
            from .demo_python import run

            findings = run(folder, producers, seconds, session.json)
        else:
            from .demo_spark import run as run_spark

            findings = run_spark(folder, seconds, session.json)
        broken = [one.promise for one in findings if not one.kept]
        keeping = keep or bool(broken)
    except DemoFailed as error:
        keeping = True
        say(f"{error} All of it is in {folder}.")
        ctx.exit(FAILED)
    finally:
        if not keeping:
            shutil.rmtree(folder, ignore_errors=True)
    _show(session, findings, folder, keep)
    if broken:
        say(f"a promise was broken: {broken[0]}. Report it, with the log that is in {folder}.")
        ctx.exit(FAILED)


def _show(session: Session, findings: list[Finding], folder: str, keep: bool) -> None:
    if session.json:
        print_json([finding._asdict() for finding in findings])
        return
    from .demo_screen import show_findings

    click.echo()
    show_findings(findings)
    if keep:
        root = f"{folder}/log"
        click.echo(
            f"\nLook at it:\n  offsetlog --root {root} topics describe orders\n"
            f"  offsetlog --root {root} groups describe billing\n"
            f"  offsetlog --root {root} verify\n  find {root} | head -30"
        )
