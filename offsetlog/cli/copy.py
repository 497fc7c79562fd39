"""``offsetlog copy``: a sound copy of a log in use, or what is new of it."""

from __future__ import annotations

from typing import Any

import click

from offsetlog.cli.base import Command, StorageOption
from offsetlog.cli.output import print_line, print_result, progress
from offsetlog.cli.session import CliSession, pass_session


def _names(text: str | None) -> list[str] | None:
    if text is None:
        return None
    return [name.strip() for name in text.split(",") if name.strip()]


@click.command(
    "copy",
    cls=Command,
    examples="""
    $ offsetlog copy /tmp/log /tmp/backup
    $ offsetlog copy /tmp/log /tmp/part-of-it --topics orders --groups billing
    """,
)
@click.argument("source", metavar="SRC")
@click.argument("target", metavar="DST")
@click.option("--topics", metavar="A,B", help="Copy these topics only.")
@click.option("--groups", metavar="G,H", help="Copy these groups only.")
@click.option(
    "--to-storage", type=StorageOption(), multiple=True, metavar="K=V",
    help="An option of DST's filesystem; repeatable. --storage is for SRC.",
)  # fmt: skip
@pass_session
def command(
    session: CliSession,
    source: str,
    target: str,
    topics: str | None,
    groups: str | None,
    to_storage: tuple[tuple[str, Any], ...],
) -> None:
    """Copy the log at SRC, also while it is in use, to DST, for example
    s3://backups/log: from any filesystem to any.

    The copy is a log of its own, with the same records at the same offsets and the same groups,
    positions and reset numbers, so Spark checkpoints go on with it. DST is empty, or holds what an
    earlier run of the same command copied: it goes on where it was ended, and copies what is new.
    A DST that holds another log, or to which somebody wrote since, is refused.

    A topic that is broken in SRC is named, and the others are copied; the exit status is then 1.
    Until the first run is complete, DST is not a log, and nothing opens it.
    """
    from offsetlog.engine.copy.copy import IncompleteCopyError

    session.root = source
    failure: IncompleteCopyError | None = None
    with session.open() as log, progress("Copying") as show:
        try:
            report = log.copy(
                target,
                topics=_names(topics),
                groups=_names(groups),
                progress=show,
                **dict(to_storage),
            )
        except IncompleteCopyError as error:
            failure, report = error, error.report
    print_result(
        session.json,
        {
            "source_id": report.source_id,
            "id": report.id,
            "offsets_version": report.offsets_version,
            "topics": [one._asdict() for one in report.topics],
        },
        ("TOPIC", "ENTRIES", "NEW-ENTRIES", "SEGMENTS", "BYTES"),
        [(t.topic, t.entries, t.new_entries, t.segments, t.bytes) for t in report.topics],
    )
    if failure is not None:
        raise failure
    if not session.json:
        print_line(f"The copy is complete; its id is {report.id}.")
