"""``offsetlog records``: delete records from the start of partitions, or those of a key."""

from __future__ import annotations

from typing import TYPE_CHECKING, BinaryIO

import click

from offsetlog.cli.base import Command, CommandGroup
from offsetlog.cli.output import agree, counted, print_result, progress
from offsetlog.cli.params import TOPIC, PartitionOffsets
from offsetlog.cli.session import CliSession, pass_session

if TYPE_CHECKING:
    from offsetlog.engine.topic.purge import Removal

yes_option = click.option("--yes", is_flag=True, help="Don't ask at a terminal.")

command = CommandGroup(
    "records",
    help="Delete records from the start of partitions, or erase those of a key.",
    examples="""
    $ offsetlog records delete orders --before 0:120,1:80
    $ offsetlog records erase orders --key ann
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
@yes_option
@pass_session
def delete(session: CliSession, topic: str, before: dict[int, int], yes: bool) -> None:
    """Delete the records of partitions before an offset.

    No read that begins five seconds after it returned, or later, has one of them, whatever process
    reads; 'offsetlog maintain' frees their space. Prints where each partition begins now. An
    offset before the present beginning changes nothing. It says what will go, and asks at a
    terminal.
    """
    with session.open() as log:
        handle = log.topic(topic)
        agree(f"{in_words(handle.removal(before))} will be deleted.", "Delete them?", yes)
        starts = handle.delete_records(before)
    print_result(
        session.json,
        [{"topic": topic, "partition": p, "beginning_offset": o} for p, o in starts.items()],
        ("PARTITION", "BEGINNING"),
        list(starts.items()),
    )


@command.command(
    "erase",
    cls=Command,
    examples="""
    $ offsetlog records erase orders --key ann --key bob
    $ offsetlog records erase orders --keys-from keys.txt
    """,
)
@click.argument("topic", metavar="TOPIC", type=TOPIC)
@click.option("--key", "keys", multiple=True, metavar="KEY", help="A key, as text; repeatable.")
@click.option(
    "--keys-from", type=click.File("rb"), metavar="FILE",
    help="A file with a key on each line; - reads stdin.",
)  # fmt: skip
@yes_option
@pass_session
def erase(
    session: CliSession,
    topic: str,
    keys: tuple[str, ...],
    keys_from: BinaryIO | None,
    yes: bool,
) -> None:
    """Remove all records of some keys for good.

    No read that begins five seconds after it returned, or later, has one of them, whatever process
    reads; 'offsetlog maintain' deletes the files that held them once its grace period is over.
    Offsets stay, and so do the positions of groups. It
    reads the keys of the whole topic, and writes again the files that hold one of these. A record
    that is sent later is a new one. All programs that use the topic must know compaction and
    erasure: older libraries stop at it from then on. It says what will go, and asks at a terminal.
    """
    lines = keys_from.read().splitlines() if keys_from is not None else []
    wanted = [key.encode("utf-8", "surrogateescape") for key in keys] + [k for k in lines if k]
    of_keys = f"Of {counted(len(set(wanted)), 'key')}"

    def ask(found: Removal) -> None:
        agree(f"{of_keys} {in_words(found)} will be erased for good.", "Erase them?", yes)

    with session.open() as log, progress("Erasing") as show:
        erased = log.topic(topic).erase(wanted, progress=show, agree=ask)
    print_result(
        session.json,
        erased._asdict(),
        ("KEYS", "RECORDS-ERASED", "FILES-REWRITTEN", "NEW-SEGMENTS", "BYTES-SCANNED"),
        [
            (erased.keys, erased.records, erased.files, erased.new_segments, erased.scanned_bytes),
        ],
    )


def in_words(removal: Removal) -> str:
    """How much goes, and from where."""
    return (
        f"{counted(removal.records, 'record')} (about {counted(removal.bytes, 'byte')}) in "
        f"{counted(removal.partitions, 'partition')} of {removal.topic} at {removal.address}"
    )
