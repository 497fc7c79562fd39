"""``offsetlog demo``: the log at work, with a crash in the middle.

Invariants:

1. With Spark and Java the story has Spark in it; without, Python alone plays it, and says why.
2. Whatever happens, no process and no folder is left, but the folder of a demo that failed.
"""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import click

from offsetlog.cli.base import Command
from offsetlog.cli.failures import FAILED, say
from offsetlog.cli.output import print_json, print_table
from offsetlog.cli.params import Whole
from offsetlog.cli.session import CliSession, pass_session

if TYPE_CHECKING:
    from offsetlog.demo.reckoning import Finding

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
    help="How many processes send.",
)  # fmt: skip
@click.option("--keep", is_flag=True, help="Leave the log there, to look at it.")
@pass_session
@click.pass_context
def command(
    ctx: click.Context,
    session: CliSession,
    seconds: float,
    spark: bool | None,
    producers: int,
    keep: bool,
) -> None:
    """Stream records in and out, kill who sends and who reads, replay, and count everything.

    Processes in plain Python send orders into a topic; a group reads them and writes invoices. Its
    lag is shown live. One sender and the reader are killed with SIGKILL, and everything is counted.
    Then a bug is found, the group is reset while it reads, and everything is read again.

    With Spark, one query writes to the topic too, and another one is the reader; it is started
    again. Without Spark, two workers share the partitions, one is killed, and the other takes over.

    It works in a temporary folder of the local disk, whatever the root is. The exit status is 1
    if a promise was broken.
    """
    from offsetlog.demo.program import DemoFailed
    from offsetlog.demo.story import play
    from offsetlog.environment import spark_lacks

    lacking = "" if spark is False else spark_lacks()
    if lacking and spark:
        say(f"the demo with Spark can't run here: {lacking}.")
        ctx.exit(FAILED)
    if lacking:
        click.echo(f"This is the story without Spark, since {lacking}.", err=session.json)
    folder = Path(tempfile.mkdtemp(prefix="offsetlog-demo-"))
    keeping = keep
    try:
        findings = play(
            folder,
            shops=producers,
            with_spark=spark is not False and not lacking,
            seconds=seconds,
            as_json=session.json,
        )
        broken = [finding.promise for finding in findings if not finding.kept]
        keeping = keep or bool(broken)
    except DemoFailed as error:
        keeping = True
        for line in error.log:
            click.echo(f"  {line}", err=True)
        say(f"{error} All of it is in {folder}.")
        ctx.exit(FAILED)
    finally:
        if not keeping:
            shutil.rmtree(folder, ignore_errors=True)
    _show(session, findings, folder, keep)
    if broken:
        say(f"a promise was broken: {broken[0]}. Report it, with the log that is in {folder}.")
        ctx.exit(FAILED)


def _show(session: CliSession, findings: list[Finding], folder: Path, keep: bool) -> None:
    if session.json:
        print_json([finding._asdict() for finding in findings])
        return
    click.echo()
    print_table(
        ("PROMISE", "KEPT", "WHAT WAS FOUND"),
        [(one.promise, "yes" if one.kept else "NO", one.detail) for one in findings],
    )
    if keep:
        root = folder / "log"
        click.echo("\nLook at it:")
        for words in ("topics describe orders", "groups describe billing", "verify"):
            click.echo(f"  offsetlog --root {root} {words}")
        click.echo(f"  find {root} | head -30")
