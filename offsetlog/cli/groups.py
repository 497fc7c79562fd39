"""``offsetlog groups``: list, describe, delete, delete-offsets, reset.

Invariants:

1. The columns have Kafka's names, and what Kafka does not have comes after them.
2. A reset changes nothing without ``--execute``.
3. What ``reset --export`` prints is what ``--from-file`` takes, and nothing else is on stdout.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from offsetlog.cli.base import Command, CommandGroup, need_command
from offsetlog.cli.failures import say
from offsetlog.cli.output import print_json, print_table
from offsetlog.cli.params import TopicPartitions
from offsetlog.cli.session import CliSession, pass_session
from offsetlog.errors import InvalidRequestError

if TYPE_CHECKING:
    from offsetlog.client.notebook_html import GroupInfo, ResetPlan


@click.group(
    "groups",
    cls=CommandGroup,
    examples="""
    $ offsetlog groups list
    $ offsetlog groups describe billing
    $ offsetlog groups reset billing --topic orders --to-earliest --execute
    """,
)
@click.pass_context
def command(ctx: click.Context) -> None:
    """Consumer groups: what they have read, how far behind they are, putting them back."""
    need_command(ctx)


@command.command(
    "list",
    cls=Command,
    examples="""
    $ offsetlog groups list
    $ offsetlog groups list --json
    """,
)
@pass_session
def list_(session: CliSession) -> None:
    """List the groups of the root."""
    with session.open() as log:
        infos = log.groups().infos
    if session.json:
        print_json([told.to_dict() for told in infos])
        return
    print_table(("GROUP", "STATE", "#MEMBERS", "#PARTITIONS"), [list(told) for told in infos])


@command.command(
    "describe",
    cls=Command,
    examples="""
    $ offsetlog groups describe billing
    $ offsetlog groups describe billing --members
    $ offsetlog groups describe billing --state
    """,
)
@click.argument("group", metavar="GROUP")
@click.option("--members", is_flag=True, help="Show the members and what each of them holds.")
@click.option("--state", "state", is_flag=True, help="Show the state of the group.")
@pass_session
def describe(session: CliSession, group: str, members: bool, state: bool) -> None:
    """Show how far a group has read, and how far behind it is.

    CURRENT-OFFSET is the next offset that the group reads. LAG is in records, LAG-SECONDS the age
    of the oldest record that was not committed. Partitions without a commit are left out.
    """
    if members and state:
        raise InvalidRequestError("--members and --state don't go together.", "Give one of them.")
    with session.open() as log:
        told = log.group(group).describe()
    if session.json:
        print_json(told.to_dict())
    elif members:
        _print_members(told)
    elif state:
        strategies = sorted({member.strategy for member in told.members})
        print_table(
            ("GROUP", "ASSIGNMENT-STRATEGY", "STATE", "#MEMBERS", "GENERATION", "RESETS"),
            [
                (
                    told.name, ",".join(strategies) or "-", told.state, len(told.members),
                    told.generation, told.resets,
                )
            ],
        )  # fmt: skip
    else:
        _print_lag(told)


def _print_lag(told: GroupInfo) -> None:
    by_name = {member.member: member for member in told.members}
    rows: list[tuple[Any, ...]] = []
    for line in told.partitions:
        member = by_name.get(line.member or "")
        rows.append(
            (
                told.name,
                line.topic,
                line.partition,
                line.committed,
                "-" if line.end is None else line.end,
                "-" if line.records is None else line.records,
                line.member or "-",
                member.host if member else "-",
                (member.client or "-") if member else "-",
                "-" if line.bytes is None else line.bytes,
                "-" if line.seconds is None else round(line.seconds, 1),
            )
        )
    print_table(
        ("GROUP", "TOPIC", "PARTITION", "CURRENT-OFFSET", "LOG-END-OFFSET", "LAG", "CONSUMER-ID",
         "HOST", "CLIENT-ID", "LAG-BYTES", "LAG-SECONDS"),
        rows,
    )  # fmt: skip


def _print_members(told: GroupInfo) -> None:
    rows = []
    for member in told.members:
        held: dict[str, list[int]] = {}
        for topic, partition in member.partitions:
            held.setdefault(topic, []).append(partition)
        shown = " ".join(f"{t}({','.join(map(str, p))})" for t, p in held.items())
        rows.append(
            (told.name, member.member, member.host, member.client or "-", len(member.partitions),
             shown or "-")
        )  # fmt: skip
    print_table(("GROUP", "CONSUMER-ID", "HOST", "CLIENT-ID", "#PARTITIONS", "ASSIGNMENT"), rows)


@command.command(
    "delete",
    cls=Command,
    examples="""
    $ offsetlog groups delete billing
    """,
)
@click.argument("group", metavar="GROUP")
@pass_session
def delete(session: CliSession, group: str) -> None:
    """Delete a group that has no members, with all its positions."""
    with session.open() as log:
        log.group(group).delete()
    if session.json:
        print_json({"deleted": group})
    else:
        click.echo(f"Deleted group {group}.")


@command.command(
    "delete-offsets",
    cls=Command,
    examples="""
    $ offsetlog groups delete-offsets billing --topic orders
    """,
)
@click.argument("group", metavar="GROUP")
@click.option(
    "--topic", "topics", type=TopicPartitions(), multiple=True, required=True,
    metavar="TOPIC[:0,1]", help="The topic, or some partitions of it; may be repeated.",
)  # fmt: skip
@pass_session
def delete_offsets(
    session: CliSession, group: str, topics: tuple[tuple[str, tuple[int, ...] | None], ...]
) -> None:
    """Delete a group's positions in a topic that no member of it reads."""
    with session.open() as log:
        for topic, partitions in topics:
            log.group(group).delete_offsets(topic, partitions)
    if session.json:
        print_json({"group": group, "deleted": [topic for topic, _ in topics]})
    else:
        for topic, _ in topics:
            click.echo(f"Deleted the offsets of group {group} in topic {topic}.")


@command.command(
    "reset",
    cls=Command,
    examples="""
    $ offsetlog groups reset billing --topic orders --to-earliest
    $ offsetlog groups reset billing --topic orders:0 --to-offset 1 --execute
    $ offsetlog groups reset billing --all-topics --to-current --export > positions.csv
    $ offsetlog groups reset billing --from-file positions.csv --execute
    """,
)
@click.argument("group", metavar="GROUP")
@click.option(
    "--topic", "topics", type=TopicPartitions(), multiple=True, metavar="TOPIC[:0,1]",
    help="A topic, or some partitions of it; may be repeated.",
)  # fmt: skip
@click.option("--all-topics", is_flag=True, help="All topics that the group has positions in.")
@click.option("--to-earliest", is_flag=True, help="To the first offset that is there.")
@click.option("--to-latest", is_flag=True, help="To the end.")
@click.option("--to-current", is_flag=True, help="To where it is; with --export, to keep it.")
@click.option("--to-offset", metavar="N", help="To this offset.")
@click.option("--shift-by", metavar="N", help="By so many records, back if negative.")
@click.option("--to-datetime", metavar="TIME", help="To the first record since, in ISO 8601.")
@click.option("--by-duration", metavar="DURATION", help="Back by PT10M, P1D and their like.")
@click.option("--from-file", metavar="CSV", help="To what the file says: topic,partition,offset.")
@click.option("--dry-run", is_flag=True, help="Only show what would be done (the default).")
@click.option("--execute", is_flag=True, help="Do it.")
@click.option("--export", is_flag=True, help="Print the new positions as CSV.")
@pass_session
def reset(
    session: CliSession,
    /,
    group: str,
    topics: tuple[tuple[str, tuple[int, ...] | None], ...],
    all_topics: bool,
    dry_run: bool,
    execute: bool,
    export: bool,
    **scenarios: Any,
) -> None:
    """Put a group's positions elsewhere; without --execute nothing is changed.

    Exactly one of the ways must be given. Running Python workers follow at their next poll. A group
    that is not there yet is made, as by Kafka's tool.
    Targets outside of what a partition holds are clamped to it, with a warning.
    """
    from offsetlog.core.group.reset import choose_scenario

    if dry_run and execute:
        raise InvalidRequestError("--dry-run and --execute don't go together.", "Give one of them.")
    if all_topics and topics:
        raise InvalidRequestError("--topic and --all-topics don't go together.", "Give one.")
    path = scenarios["from_file"]
    if not topics and not all_topics and path is None:
        raise InvalidRequestError("No topic was named.", "Give --topic TOPIC, or --all-topics.")
    if path is not None:
        from offsetlog.client.group import read_text

        scenarios["from_file"] = read_text(path)
    scenario = choose_scenario(group, scenarios)
    with session.open() as log:
        plan = log.group(group).plan_many(scenario, _merged(topics), dry_run=not execute)
    for warning in plan.warnings:
        say(f"warning: {warning}")
    _show(session, plan, export)


def _merged(
    topics: tuple[tuple[str, tuple[int, ...] | None], ...],
) -> list[tuple[str, tuple[int, ...] | None]]:
    """One entry for a topic: all of it, if it was once given without partitions."""
    out: dict[str, tuple[int, ...] | None] = {}
    for topic, partitions in topics:
        known = out.get(topic, ())
        whole = partitions is None or (topic in out and known is None)
        out[topic] = None if whole else (*(known or ()), *(partitions or ()))
    return list(out.items())


def _show(session: CliSession, plan: ResetPlan, export: bool) -> None:
    if export:
        click.echo(plan.to_csv(), nl=False)
        return
    if session.json:
        print_json(plan.to_dict())
        return
    print_table(
        ("GROUP", "TOPIC", "PARTITION", "CURRENT-OFFSET", "NEW-OFFSET"),
        [
            (plan.group, m.topic, m.partition, "-" if m.before is None else m.before, m.after)
            for m in plan.moves
        ],
    )
    if not plan.executed:
        click.echo("Nothing was changed: this was a dry run. Add --execute to do it.")
