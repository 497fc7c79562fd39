"""``offsetlog verify``: check every promise against what is stored."""

from __future__ import annotations

import click

from offsetlog.cli.base import Command
from offsetlog.cli.failures import FAILED
from offsetlog.cli.output import print_line, print_message, print_result, progress
from offsetlog.cli.params import TOPIC
from offsetlog.cli.session import CliSession, pass_session


@click.command(
    "verify",
    cls=Command,
    examples="""
    $ offsetlog verify
    $ offsetlog verify orders --json
    """,
)
@click.argument("topic", metavar="[TOPIC]", type=TOPIC, required=False)
@pass_session
@click.pass_context
def command(ctx: click.Context, session: CliSession, topic: str | None) -> None:
    """Check everything stored of a topic, or of all.

    Every file is read: the chain has no hole, offsets have no gap or overlap, each file has its
    checksum and its number of records, and snapshots equal the chain. Each fault is named with
    its place, and the exit status is 1 if there is any. Nothing is repaired or changed.
    """
    with session.open() as log, progress("Verifying") as show:
        reports = log.verify(topic, progress=show)
    faults = sum(len(report.faults) for report in reports)
    print_result(
        session.json,
        [{**report._asdict(), "sound": report.sound} for report in reports],
        ("TOPIC", "ENTRIES", "RECORDS", "FILES", "BYTES", "FAULTS"),
        [
            (r.topic, r.entries, r.records, r.files, r.bytes, len(r.faults) or "none")
            for r in reports
        ],
    )
    for report in reports if not session.json else ():
        for fault in report.faults:
            print_line(f"{report.topic}: {fault}")
    if faults:
        print_message(
            f"verify found {faults} fault{'' if faults == 1 else 's'}. "
            "Restore these files from a backup; nothing was changed."
        )
        ctx.exit(FAILED)
