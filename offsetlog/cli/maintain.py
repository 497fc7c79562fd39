"""``offsetlog maintain``: retention, compaction of files, and freed space."""

from __future__ import annotations

import click

from offsetlog.cli.base import Command
from offsetlog.cli.output import print_result, progress
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
    help="Keep unused files for this long, for slow writers and running readers.",
)  # fmt: skip
@click.option(
    "--offsets-retention", type=Duration(), default="7d", show_default=True, metavar="DURATION",
    help="Drop offsets of groups with no member and no commit for this long.",
)  # fmt: skip
@pass_session
def command(session: CliSession, topic: str | None, grace: int, offsets_retention: int) -> None:
    """Maintain a topic, or all: apply retention, merge small files, delete unused ones.

    Run it regularly, from anywhere, also while others read and write; running it twice at once
    does no harm. A DURATION is 24h, 30m, 90s, PT10M, or milliseconds.
    """
    with session.open() as log, progress("Maintaining") as show:
        reports = log.maintain(
            topic,
            offsets_retention_minutes=-(-offsets_retention // 60_000),
            grace_ms=grace,
            progress=show,
        )
    print_result(
        session.json,
        [report._asdict() for report in reports],
        ("TOPIC", "EXPIRED-RECORDS", "FILES-REWRITTEN", "NEW-SEGMENTS", "ENTRIES-EMPTIED",
         "FILES-DELETED", "BYTES-DELETED"),
        [
            (r.topic, r.expired_records, r.rewritten_files, r.new_segments, r.stubs,
             r.deleted_files, r.deleted_bytes)
            for r in reports
        ],
    )  # fmt: skip
