"""``offsetlog topics``: create, list, describe, alter, delete."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from offsetlog.cli.base import Command, CommandGroup
from offsetlog.cli.output import agree, counted, print_json, print_line, print_result, print_table
from offsetlog.cli.params import TOPIC, KeyValue, Whole
from offsetlog.cli.records import in_words, yes_option
from offsetlog.cli.session import CliSession, pass_session
from offsetlog.errors import InvalidRequestError, TopicExistsError, UnknownTopicError

if TYPE_CHECKING:
    from offsetlog.client.log import Log
    from offsetlog.client.topic import TopicInfo


command = CommandGroup(
    "topics",
    help="Create, list, describe, change and delete topics.",
    examples="""
    $ offsetlog topics create payments --partitions 3 --config retention.ms=86400000
    $ offsetlog topics list
    $ offsetlog topics describe payments
    """,
)


def _settings(pairs: tuple[tuple[str, str], ...]) -> dict[str, str]:
    settings: dict[str, str] = {}
    for key, value in pairs:
        if key in settings:
            raise InvalidRequestError(f"Duplicate config {key!r}.", "Set it once.")
        settings[key] = value
    return settings


@command.command(
    "create",
    cls=Command,
    examples="""
    $ offsetlog topics create payments --partitions 3
    $ offsetlog topics create clicks --config retention.ms=3600000 --config compression.type=lz4
    """,
)
@click.argument("topic", metavar="NAME")
@click.option(
    "--partitions", type=Whole(1), default=1, show_default=True, help="The number of partitions."
)
@click.option(
    "--config", "settings", type=KeyValue(), multiple=True, metavar="K=V",
    help="A setting, such as retention.ms=86400000; repeatable.",
)  # fmt: skip
@click.option("--if-not-exists", is_flag=True, help="Leave an existing topic as it is.")
@pass_session
def create(
    session: CliSession,
    topic: str,
    partitions: int,
    settings: tuple[tuple[str, str], ...],
    if_not_exists: bool,
) -> None:
    """Create a topic. The first one creates the root, too.

    Settings: retention.ms, retention.bytes, segment.bytes, compression.type, max.message.bytes,
    message.timestamp.type, cleanup.policy, min.compaction.lag.ms, max.compaction.lag.ms,
    delete.retention.ms, min.cleanable.dirty.ratio, table.format, producer.id.expiration.ms.
    """
    with session.open() as log:
        created = True
        try:
            info = log.create_topic(topic, partitions, _settings(settings)).describe()
        except TopicExistsError:
            if not if_not_exists:
                raise
            info, created = log.topic(topic).describe(), False
    if session.json:
        print_json(info.to_dict())
    elif created:
        print_line(f"Created topic {info.name} with {_partitions(info)}.")
    else:
        print_line(f"Topic {info.name} exists, with {_partitions(info)}.")


def _partitions(info: TopicInfo) -> str:
    return counted(len(info.partitions), "partition")


@command.command(
    "list",
    cls=Command,
    examples="""
    $ offsetlog topics list
    $ offsetlog topics list --json
    """,
)
@pass_session
def list_(session: CliSession) -> None:
    """List the topics of the root."""
    with session.open() as log:
        infos = log.topics().infos
    summaries = [_summary(info) for info in infos]
    rows = [list(summary.values()) for summary in summaries]
    print_result(session.json, summaries, ("TOPIC", "PARTITIONS", "RECORDS", "BYTES"), rows)


def _summary(info: TopicInfo) -> dict[str, Any]:
    return {
        "name": info.name,
        "partitions": len(info.partitions),
        "records": info.records,
        "bytes": sum(partition.bytes for partition in info.partitions),
    }


@command.command(
    "describe",
    cls=Command,
    examples="""
    $ offsetlog topics describe orders
    $ offsetlog topics describe orders --json
    """,
)
@click.argument("topics", metavar="[NAME]...", nargs=-1, type=TOPIC)
@pass_session
def describe(session: CliSession, topics: tuple[str, ...]) -> None:
    """Show the partitions and settings of topics; of all if none is named.

    BEGINNING is a partition's first offset, END its next one. BYTES is the approximate size of
    keys, values and headers before compression. A setting with a * was set for this topic; the
    others are defaults. With table.format=delta the Delta table is named; 'offsetlog maintain'
    brings it up to date.
    """
    with session.open() as log:
        if topics:
            infos = [log.topic(name).describe() for name in dict.fromkeys(topics)]
        else:
            infos = [
                log.topic(info.name).describe() if info.settings["table.format"] != "none" else info
                for info in log.topics().infos
            ]
    if session.json:
        print_json([info.to_dict() for info in infos])
        return
    for number, info in enumerate(infos):
        if number:
            print_line()
        _print_info(info)


def _print_info(info: TopicInfo) -> None:
    print_line(
        f"Topic: {info.name}  Partitions: {len(info.partitions)}  Records: {info.records}  "
        f"Entries: {info.entries}"
    )
    settings = " ".join(
        f"{key}={value}{'*' if key in info.config else ''}" for key, value in info.settings.items()
    )
    print_line(f"Settings: {settings}")
    if info.table is not None:
        ends = info.table.end_offsets
        behind = sum(max(0, p.end_offset - ends[p.partition]) for p in info.partitions)
        state = f"{behind} records behind" if behind else "up to date"
        print_line(f"Table: {info.table.path} (Delta, version {info.table.version}, {state})")
    rows = [
        (p.partition, p.beginning_offset, p.end_offset, p.end_offset - p.beginning_offset, p.bytes)
        for p in info.partitions
    ]
    print_table(("PARTITION", "BEGINNING", "END", "RECORDS", "BYTES"), rows)


@command.command(
    "alter",
    cls=Command,
    examples="""
    $ offsetlog topics alter orders --partitions 6
    $ offsetlog topics alter orders --config retention.ms=3600000
    $ offsetlog topics alter orders --unset retention.ms
    """,
)
@click.argument("topic", metavar="NAME", type=TOPIC)
@click.option("--partitions", type=Whole(1), help="The new number of partitions; it only grows.")
@click.option(
    "--config", "settings", type=KeyValue(), multiple=True, metavar="K=V",
    help="A setting to change; repeatable.",
)  # fmt: skip
@click.option(
    "--unset", multiple=True, metavar="K", help="A setting to return to its default; repeatable."
)
@pass_session
def alter(
    session: CliSession,
    topic: str,
    partitions: int | None,
    settings: tuple[tuple[str, str], ...],
    unset: tuple[str, ...],
) -> None:
    """Add partitions to a topic, or change its settings.

    With more partitions, the records of a key may go to another partition than before.
    """
    if partitions is None and not settings and not unset:
        raise click.UsageError("Nothing to change: add --partitions, --config or --unset.")
    changes = _settings(settings)
    both = sorted(set(changes) & set(unset))
    if both:
        raise click.UsageError(f"{both[0]!r} can't be set and unset at once.")
    with session.open() as log:
        info = log.topic(topic).alter(partitions, changes, unset)
    if session.json:
        print_json(info.to_dict())
    else:
        _print_info(info)


@command.command(
    "delete",
    cls=Command,
    examples="""
    $ offsetlog topics delete orders
    $ offsetlog topics delete orders --purge --yes
    """,
)
@click.argument("topic", metavar="NAME", type=TOPIC)
@click.option("--purge", is_flag=True, help="Remove its files and its history for good.")
@yes_option
@click.option("--if-exists", is_flag=True, help="Don't fail if the topic does not exist.")
@pass_session
def delete(session: CliSession, topic: str, purge: bool, yes: bool, if_exists: bool) -> None:
    """Delete a topic.

    Its history stays, so that offsets are never reused when a topic of that name is created
    again; 'offsetlog maintain' removes its records. --purge removes everything at once, also of
    a topic that was deleted before, and is safe only when nobody reads or writes it. Files in its
    folder that are not the topic's are kept and named. It says what will go, and asks at a
    terminal.
    """
    purged = None
    with session.open() as log:
        try:
            _agree(log, topic, purge, yes)
            purged = log.delete_topic(topic, purge=purge)
            deleted = True
        except UnknownTopicError:
            if not if_exists:
                raise
            deleted = False
    if session.json:
        result: dict[str, Any] = {"name": topic, "deleted": deleted, "purged": deleted and purge}
        if purged is not None:
            result |= {"files": purged.files, "bytes": purged.bytes, "left": purged.others}
            result |= {"left_more": purged.more}
        print_json(result)
    elif deleted:
        print_line(f"{'Purged' if purge else 'Deleted'} topic {topic}.")
    else:
        print_line(f"There is no topic {topic}.")
    if purged is not None and purged.others and not session.json:
        print_line(f"Kept what is not the topic's: {purged.others_in_words()}.", stderr=True)


def _agree(log: Log, topic: str, purge: bool, yes: bool) -> None:
    """Say what goes, and ask who sits at a terminal."""
    if not purge:
        found = log.topic(topic).removal()
        agree(f"{in_words(found)} will be deleted, with the topic.", "Delete it?", yes)
        return
    plan = log.purge_plan(topic)
    contents = plan.contents
    records = "an unknown number of records"
    if plan.records is not None:
        records = counted(plan.records, "record")
    text = (
        f"Topic {topic} will be removed for good, with all of its history: {records}, "
        f"{counted(contents.files, 'file')}, {counted(contents.bytes, 'byte')} at {plan.address}."
    )
    if contents.others:
        text = f"Kept, as it is not the topic's: {contents.others_in_words()}.\n{text}"
    agree(text, "Remove it?", yes)
