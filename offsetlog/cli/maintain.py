"""``offsetlog maintain``: keep a log small and quick to read."""

from __future__ import annotations

import click

from offsetlog.cli.base import Command
from offsetlog.cli.output import print_json, print_table, progress
from offsetlog.cli.params import TOPIC, Duration
from offsetlog.cli.session import CliSession, pass_session

DAY = "24h"


@click.command(
    "maintain",
    cls=Command,
    examples="""
    $ offsetlog maintain
    $ offsetlog maintain orders --grace 2h
    """,
)
@click.argument("topic", metavar="[TOPIC]", type=TOPIC, required=False)
@click.option(
    "--grace", type=Duration(), default=DAY, show_default=True, metavar="DURATION",
    help="How old what is deleted must be: a courtesy to slow writers and to running readers.",
)  # fmt: skip
@click.option(
    "--offsets-retention", type=Duration(), default="7d", show_default=True, metavar="DURATION",
    help="Positions go of a group that had no member and no commit for so long.",
)  # fmt: skip
@pass_session
def command(session: CliSession, topic: str | None, grace: int, offsets_retention: int) -> None:
    """Look after a topic, or all: retention, large files from small ones, freed space.

    Run it from time to time, from anywhere, also while others read and write; twice at once
    does no harm. A DURATION is 24h, 30m, 90s, PT10M, or milliseconds.
    """
    with session.open() as log, progress("Maintaining") as show:
        done = log.maintain(
            topic,
            offsets_retention_minutes=-(-offsets_retention // 60_000),
            grace_ms=grace,
            progress=show,
        )
    if session.json:
        print_json([one._asdict() for one in done])
        return
    print_table(
        ("TOPIC", "EXPIRED-RECORDS", "FILES-REWRITTEN", "NEW-SEGMENTS", "ENTRIES-EMPTIED",
         "FILES-DELETED", "BYTES-DELETED"),
        [
            (one.topic, one.expired_records, one.rewritten_files, one.new_segments, one.stubs,
             one.deleted_files, one.deleted_bytes)
            for one in done
        ],
    )  # fmt: skip
