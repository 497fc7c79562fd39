"""``offsetlog topics``: create, list, describe, alter, delete."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from offsetlog.cli.base import Command, CommandGroup, need_command
from offsetlog.cli.output import print_json, print_table
from offsetlog.cli.params import TOPIC, KeyValue, Whole
from offsetlog.cli.session import CliSession, pass_session
from offsetlog.errors import InvalidRequestError, TopicExistsError, UnknownTopicError

if TYPE_CHECKING:
    from offsetlog.client.log import Log
    from offsetlog.client.topic import TopicInfo


@click.group(
    "topics",
    cls=CommandGroup,
    examples="""
    $ offsetlog topics create payments --partitions 3 --config retention.ms=86400000
    $ offsetlog topics list
    $ offsetlog topics describe payments
    """,
)
@click.pass_context
def command(ctx: click.Context) -> None:
    """Create, list, describe, change and delete topics."""
    need_command(ctx)


def _settings(pairs: tuple[tuple[str, str], ...]) -> dict[str, str]:
    out: dict[str, str] = {}
    for key, value in pairs:
        if key in out:
            raise InvalidRequestError(f"The config {key!r} is given twice.", "Give it once.")
        out[key] = value
    return out


@command.command(
    "create",
    cls=Command,
    examples="""
    $ offsetlog topics create payments --partitions 3
    $ offsetlog topics create clicks --config retention.ms=3600000 --config compression.type=lz4
    """,
)
@click.argument("topic", metavar="NAME")
@click.option("--partitions", type=Whole(1), default=1, show_default=True, help="How many.")
@click.option(
    "--config", "settings", type=KeyValue(), multiple=True, metavar="K=V",
    help="A setting, such as retention.ms=86400000; may be repeated.",
)  # fmt: skip
@click.option("--if-not-exists", is_flag=True, help="Leave a topic of that name as it is.")
@pass_session
def create(
    session: CliSession,
    topic: str,
    partitions: int,
    settings: tuple[tuple[str, str], ...],
    if_not_exists: bool,
) -> None:
    """Create a topic. The first one makes the root, too.

    Settings: retention.ms, retention.bytes, segment.bytes, compression.type, max.message.bytes,
    message.timestamp.type, cleanup.policy, producer.id.expiration.ms.
    """
    with session.open() as log:
        made = True
        try:
            found = log.create_topic(topic, partitions, _settings(settings))
        except TopicExistsError:
            if not if_not_exists:
                raise
            found, made = log.topic(topic), False
        told = found.describe()
    if session.json:
        print_json(told.to_dict())
    elif made:
        click.echo(f"Created topic {told.name} with {_partitions(told)}.")
    else:
        click.echo(f"Topic {told.name} exists, with {_partitions(told)}.")


def _partitions(told: TopicInfo) -> str:
    count = len(told.partitions)
    return f"{count} partition{'' if count == 1 else 's'}"


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
    if session.json:
        print_json([_summary(told) for told in infos])
        return
    rows = [list(_summary(told).values()) for told in infos]
    print_table(("TOPIC", "PARTITIONS", "RECORDS", "BYTES"), rows)


def _summary(told: TopicInfo) -> dict[str, Any]:
    return {
        "name": told.name,
        "partitions": len(told.partitions),
        "records": told.records,
        "bytes": sum(part.bytes for part in told.partitions),
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

    BEGINNING is the first offset that a partition holds, END the next one it will give. BYTES
    are those of keys, values and headers before compression, about. A setting with a * was set
    for this topic; the others are defaults.
    """
    with session.open() as log:
        if topics:
            infos = [log.topic(name).describe() for name in dict.fromkeys(topics)]
        else:
            infos = list(log.topics().infos)
    if session.json:
        print_json([told.to_dict() for told in infos])
        return
    for number, told in enumerate(infos):
        if number:
            click.echo()
        _describe(told)


def _describe(told: TopicInfo) -> None:
    click.echo(
        f"Topic: {told.name}  Partitions: {len(told.partitions)}  Records: {told.records}  "
        f"Entries: {told.entries}"
    )
    settings = " ".join(
        f"{key}={value}{'*' if key in told.config else ''}" for key, value in told.settings.items()
    )
    click.echo(f"Settings: {settings}")
    rows = [
        (p.partition, p.beginning_offset, p.end_offset, p.end_offset - p.beginning_offset, p.bytes)
        for p in told.partitions
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
@click.option("--partitions", type=Whole(1), help="The new count; it only grows.")
@click.option(
    "--config", "settings", type=KeyValue(), multiple=True, metavar="K=V",
    help="A setting to change; may be repeated.",
)  # fmt: skip
@click.option("--unset", multiple=True, metavar="K", help="A setting to put back to its default.")
@pass_session
def alter(
    session: CliSession,
    topic: str,
    partitions: int | None,
    settings: tuple[tuple[str, str], ...],
    unset: tuple[str, ...],
) -> None:
    """Add partitions to a topic, or change its settings.

    With more partitions, records of a key may go to another partition than before.
    """
    if partitions is None and not settings and not unset:
        raise click.UsageError("Nothing to change: give --partitions, --config or --unset.")
    wanted = _settings(settings)
    both = sorted(set(wanted) & set(unset))
    if both:
        raise click.UsageError(f"{both[0]!r} can't be set and unset at once.")
    with session.open() as log:
        told = log.topic(topic).alter(partitions, wanted, unset)
    if session.json:
        print_json(told.to_dict())
    else:
        _describe(told)


@command.command(
    "delete",
    cls=Command,
    examples="""
    $ offsetlog topics delete orders
    $ offsetlog topics delete orders --purge --yes
    """,
)
@click.argument("topic", metavar="NAME", type=TOPIC)
@click.option("--purge", is_flag=True, help="Remove its folder, with its history, for good.")
@click.option("--yes", is_flag=True, help="Don't ask before a purge.")
@click.option("--if-exists", is_flag=True, help="It is no error if there is no such topic.")
@pass_session
def delete(session: CliSession, topic: str, purge: bool, yes: bool, if_exists: bool) -> None:
    """Delete a topic.

    Its history stays, so that a topic that is created again under its name goes on with new
    offsets and nothing old is taken for new; its records are removed by 'offsetlog maintain'.
    --purge removes everything at once, also of a topic that was deleted before, and is safe only
    when nobody reads or writes it. What lies in its folder and is not the topic's stays, and is
    named.
    """
    purged = None
    with session.open() as log:
        try:
            if purge and not yes:
                _ask(log, topic)
            purged = log.delete_topic(topic, purge=purge)
            done = True
        except UnknownTopicError:
            if not if_exists:
                raise
            done = False
    if session.json:
        told: dict[str, Any] = {"name": topic, "deleted": done, "purged": done and purge}
        if purged is not None:
            told |= {"files": purged.files, "bytes": purged.bytes, "left": purged.others}
            told |= {"left_more": purged.more}
        print_json(told)
    elif done:
        click.echo(f"{'Purged' if purge else 'Deleted'} topic {topic}.")
    else:
        click.echo(f"There is no topic {topic}.")
    if purged is not None and purged.others and not session.json:
        click.echo(f"Left what is not the topic's: {purged.others_told()}.", err=True)


def _ask(log: Log, topic: str) -> None:
    """Let somebody who is there say yes; nobody's silence is one."""
    import sys

    if not sys.stdin.isatty():
        raise InvalidRequestError(
            f"A purge of topic {topic!r} removes it for good, and nobody is here to be asked.",
            "Add --yes if that is meant.",
        )
    plan = log.purge_plan(topic)
    records = "records that can't be counted" if plan.records is None else f"{plan.records} records"
    text = (
        f"Remove {topic}, with all of its history, for good: {records}, "
        f"{plan.contents.files} files, {plan.contents.bytes} bytes at {plan.address}?"
    )
    if plan.contents.others:
        text = f"What is not the topic's stays: {plan.contents.others_told()}.\n{text}"
    if not click.confirm(text, default=False, err=True):
        raise click.Abort
