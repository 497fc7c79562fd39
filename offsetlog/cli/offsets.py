"""``offsetlog offsets``: where partitions begin and end, in the form of Kafka's GetOffsetShell."""

from __future__ import annotations

import click

from offsetlog.cli.base import Command
from offsetlog.cli.output import print_json, print_line
from offsetlog.cli.params import TOPIC, ConsumeFrom, Time
from offsetlog.cli.session import CliSession, pass_session


@click.command(
    "offsets",
    cls=Command,
    examples="""
    $ offsetlog offsets orders
    $ offsetlog offsets orders --time earliest
    $ offsetlog offsets orders --time 2026-03-01T12:30:00Z
    """,
)
@click.argument("topic", metavar="TOPIC", type=TOPIC)
@click.option(
    "--time", "when", type=Time(), default="latest", show_default=True,
    metavar="earliest|latest|TIMESTAMP", help="Milliseconds since 1970, or ISO 8601.",
)  # fmt: skip
@pass_session
def command(session: CliSession, topic: str, when: ConsumeFrom) -> None:
    """Print TOPIC:PARTITION:OFFSET for each partition.

    'latest' is the next offset of a partition, 'earliest' its first one. For a TIMESTAMP it is the
    offset of the first record at or after it; where there is none, the line ends with the colon
    (null in JSON).
    """
    with session.open() as log:
        handle = log.topic(topic)
        offsets: dict[int, int | None]
        if when.kind == "earliest":
            offsets = dict(handle.beginning_offsets())
        elif when.kind == "latest":
            offsets = dict(handle.end_offsets())
        else:
            offsets = handle.offsets_for_times(dict.fromkeys(range(handle.partitions), when.number))
    if session.json:
        print_json([{"topic": topic, "partition": p, "offset": o} for p, o in offsets.items()])
        return
    for partition, offset in offsets.items():
        print_line(f"{topic}:{partition}:{'' if offset is None else offset}")
