"""``offsetlog records``: delete records from the start of partitions."""

from __future__ import annotations

import click

from offsetlog.cli.base import Command, CommandGroup
from offsetlog.cli.output import print_result
from offsetlog.cli.params import TOPIC, PartitionOffsets
from offsetlog.cli.session import CliSession, pass_session

command = CommandGroup(
    "records",
    help="Delete records from the start of partitions.",
    examples="""
    $ offsetlog records delete orders --before 0:120,1:80
    """,
)


@command.command(
    "delete",
    cls=Command,
    examples="""
    $ offsetlog records delete orders --before 0:120,1:80
    $ offsetlog records delete orders --before 2:-1
    """,
)
@click.argument("topic", metavar="TOPIC", type=TOPIC)
@click.option(
    "--before", type=PartitionOffsets(), required=True, metavar="PARTITION:OFFSET,...",
    help="The first offset to keep in each partition; -1 deletes all of its records.",
)  # fmt: skip
@pass_session
def delete(session: CliSession, topic: str, before: dict[int, int]) -> None:
    """Delete the records of partitions before an offset.

    Readers no longer see them at once; 'offsetlog maintain' frees their space. Prints where each
    partition begins now. An offset before the present beginning changes nothing.
    """
    with session.open() as log:
        starts = log.topic(topic).delete_records(before)
    print_result(
        session.json,
        [{"topic": topic, "partition": p, "beginning_offset": o} for p, o in starts.items()],
        ("PARTITION", "BEGINNING"),
        list(starts.items()),
    )
