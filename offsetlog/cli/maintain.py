"""``offsetlog maintain``: retention, compaction of files, and freed space."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from offsetlog.cli.base import Command
from offsetlog.cli.output import print_json_line, print_result, progress
from offsetlog.cli.params import TOPIC, Duration, Size
from offsetlog.cli.rounds import every_option, repeat
from offsetlog.cli.session import CliSession, pass_session

if TYPE_CHECKING:
    from offsetlog.engine.upkeep.maintenance import Maintained

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
    "--memory", type=Size(1024 * 1024), default="1GB", show_default=True, metavar="SIZE",
    help="What the records that are rewritten may take, beside the program itself.",
)  # fmt: skip
@click.option(
    "--offsets-retention", type=Duration(), default="7d", show_default=True, metavar="DURATION",
    help="Drop offsets of groups with no member and no commit for this long.",
)  # fmt: skip
@every_option("Do it again and again, this long after each beginning, until Ctrl-C.")
@pass_session
def command(
    session: CliSession,
    topic: str | None,
    grace: int,
    memory: int,
    offsets_retention: int,
    every: int | None,
) -> None:
    """Maintain a topic, or all: apply retention, merge small files, delete unused ones.

    Run it regularly, from anywhere, also while others read and write; running it twice at once
    does no harm. With --every it goes on until it is ended: a round that fails is a warning, and
    what a round did is shown if it did anything. A DURATION is 24h, 30m, 90s, PT10M, or
    milliseconds.
    """
    with session.open() as log:

        def one_round() -> None:
            with progress("Maintaining") as show:
                reports = log.maintain(
                    topic,
                    offsets_retention_minutes=-(-offsets_retention // 60_000),
                    grace_ms=grace,
                    memory_bytes=memory,
                    progress=show,
                    take_turns=every is not None,
                )
            if every is None:
                _show(session.json, reports)
            elif session.json:
                print_json_line([report._asdict() for report in reports])
            elif busy := [report for report in reports if report.did_something]:
                _show(False, busy)

        repeat(one_round, every)


def _show(as_json: bool, reports: list[Maintained]) -> None:
    print_result(
        as_json,
        [report._asdict() for report in reports],
        ("TOPIC", "EXPIRED-RECORDS", "FILES-REWRITTEN", "NEW-SEGMENTS", "ENTRIES-EMPTIED",
         "FILES-DELETED", "BYTES-DELETED"),
        [
            (r.topic, r.expired_records, r.rewritten_files, r.new_segments, r.stubs,
             r.deleted_files, r.deleted_bytes)
            for r in reports
        ],
    )  # fmt: skip
