"""``offsetlog verify``: check every promise against what is stored."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from offsetlog.cli.base import Command
from offsetlog.cli.output import print_line, print_message, print_result, progress
from offsetlog.cli.params import TOPIC
from offsetlog.cli.session import CliSession, pass_session

if TYPE_CHECKING:
    from offsetlog.engine.upkeep.findings import TopicReport


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
    """Check everything stored of a topic, or of the whole log.

    Every file is read: the chain has no hole, offsets have no gap or overlap, each file has its
    checksum and its number of records, and snapshots equal the chain. Without TOPIC the offsets
    table and the root's own file are checked too.

    Every fault is named with its place, and a note says what could not be told because of it. The
    exit status is 0 if there is none, 1 if a promise is broken, and 3 if only caches are, which
    cost time: 'offsetlog doctor --repair-caches' deletes them. Nothing is repaired or changed.
    """
    with session.open() as log, progress("Verifying") as show:
        reports = log.verify(topic, progress=show)
    ctx.exit(report_faults(session.json, reports))


def report_faults(as_json: bool, reports: list[TopicReport]) -> int:
    """Print what was found; the exit status."""
    from offsetlog.engine.upkeep.findings import status_of

    print_result(
        as_json,
        [report.to_dict() for report in reports],
        ("TOPIC", "ENTRIES", "RECORDS", "FILES", "BYTES", "FAULTS", "CACHES"),
        [
            (r.topic, r.entries, r.records, r.files, r.bytes, len(r.faults) or "none",
             len(r.caches) or "sound")
            for r in reports
        ],
    )  # fmt: skip
    for report in reports if not as_json else ():
        for fault in report.faults:
            print_line(f"{report.topic}: {fault}")
        for cache in report.caches:
            print_line(f"{report.topic}: cache: {cache.text}")
        for note in report.notes:
            print_line(f"{report.topic}: note: {note}.")
    faults = sum(len(report.faults) for report in reports)
    caches = sum(len(report.caches) for report in reports)
    if faults:
        print_message(
            f"verify found {_counted(faults, 'fault')}. "
            "Restore what is named from a backup; nothing was changed."
        )
    elif caches:
        print_message(
            f"verify found {_counted(caches, 'broken cache')}, and every promise is kept. Delete "
            "them with 'offsetlog doctor --repair-caches'; nothing was changed."
        )
    return status_of(reports)


def _counted(count: int, what: str) -> str:
    return f"{count} {what}{'' if count == 1 else 's'}"
