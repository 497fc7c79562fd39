"""``offsetlog demo``: a log at work, with a crash in the middle.

Invariants:

1. With Spark and Java the story includes Spark; otherwise Python alone plays it, and says why.
2. No process and no folder is left behind, except the folder of a demo that failed.
3. At a terminal it ends with the page of its log, which waits for Enter.
"""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import click

from offsetlog.cli.base import Command
from offsetlog.cli.failures import FAILED
from offsetlog.cli.output import (
    at_a_terminal,
    print_json,
    print_line,
    print_message,
    print_table,
    wait_for_enter,
)
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
    help="For about how long records are sent.",
)  # fmt: skip
@click.option(
    "--spark/--no-spark", default=None,
    help="With Spark, or Python alone. Default: with Spark if it and Java are installed.",
)  # fmt: skip
@click.option(
    "--producers", type=Whole(1, 16), default=3, show_default=True,
    help="Processes that send.",
)  # fmt: skip
@click.option("--keep", is_flag=True, help="Keep the log, to look at it.")
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
    """Stream records in and out, kill a sender and a reader, replay, and count everything.

    Processes in plain Python send orders to a topic; a group reads them and writes invoices, and
    its lag is shown live. A sender and a reader are killed with SIGKILL, and every record is
    counted. Then a bug is found, the group is reset while it reads, and everything is read again.
    At last the topic becomes a Delta table, with a query over it if deltalake is installed.

    With Spark, one query writes to the topic too and another one is the reader, which is
    restarted. Without Spark, two workers share the partitions: one is killed, the other takes over.

    It runs in a temporary folder on the local disk, whatever the root is. At a terminal its log is
    shown in a browser at the end, until Enter. The exit status is 1 if a promise was broken.
    """
    from offsetlog.demo.program import DemoFailed
    from offsetlog.demo.story import play
    from offsetlog.environment import spark_lacks

    why_not = "" if spark is False else spark_lacks()
    if why_not and spark:
        print_message(f"the demo can't run with Spark here: {why_not}.")
        ctx.exit(FAILED)
    if why_not:
        print_line(f"This is the story without Spark, since {why_not}.", stderr=session.json)
    folder = Path(tempfile.mkdtemp(prefix="offsetlog-demo-"))
    keep_folder = keep
    try:
        findings = play(
            folder,
            shops=producers,
            with_spark=spark is not False and not why_not,
            seconds=seconds,
            as_json=session.json,
        )
        broken = [finding.promise for finding in findings if not finding.kept]
        keep_folder = keep or bool(broken)
        _print_findings(session, findings, folder, keep)
        if at_a_terminal() and not session.json:
            _show_page(str(folder / "log"))
    except DemoFailed as error:
        keep_folder = True
        for line in error.log:
            print_line(f"  {line}", stderr=True)
        print_message(f"{error} Everything is in {folder}.")
        ctx.exit(FAILED)
    finally:
        if not keep_folder:
            shutil.rmtree(folder, ignore_errors=True)
    if broken:
        print_message(f"a promise was broken: {broken[0]}. Report it, with the log in {folder}.")
        ctx.exit(FAILED)


def _print_findings(session: CliSession, findings: list[Finding], folder: Path, keep: bool) -> None:
    if session.json:
        print_json([finding._asdict() for finding in findings])
        return
    print_line()
    print_table(
        ("PROMISE", "KEPT", "DETAIL"),
        [
            (finding.promise, "yes" if finding.kept else "NO", finding.detail)
            for finding in findings
        ],
    )
    if keep:
        root = folder / "log"
        print_line()
        print_line("To look at it:")
        for words in ("topics describe orders", "groups describe billing", "verify"):
            print_line(f"  offsetlog --root {root} {words}")
        print_line(f"  find {root} | head -30")


def _show_page(root: str) -> None:
    """The log in a browser, until Enter."""
    try:
        from offsetlog.page.server import DEFAULT_PORT, PageServer
    except ModuleNotFoundError:
        return  # Without the extra the story ends here.
    import offsetlog
    from offsetlog.errors import OffsetLogError

    with offsetlog.open(root) as log:
        try:
            server = PageServer(log, port=DEFAULT_PORT, allow_changes=True)
        except OffsetLogError:
            server = PageServer(log, port=0, allow_changes=True)  # Another page has that port.
        with server:
            print_line()
            print_line(f"This log in a browser: {server.sign_in_url}")
            wait_for_enter("Press Enter to end it.")
