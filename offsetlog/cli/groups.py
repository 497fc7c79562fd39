"""``offsetlog groups``: list, describe, delete, delete-offsets, reset.

Invariants:

1. Columns have Kafka's names; those that Kafka does not have come last.
2. A reset changes nothing without ``--execute``.
3. ``reset --export`` prints what ``--from-file`` reads, and nothing else on stdout.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from offsetlog.cli.base import Command, CommandGroup
from offsetlog.cli.output import (
    print_json,
    print_line,
    print_result,
    print_table,
    print_text,
    print_warning,
)
from offsetlog.cli.params import TopicPartitions
from offsetlog.cli.session import CliSession, pass_session
from offsetlog.errors import InvalidRequestError
from offsetlog.values import did_you_mean

if TYPE_CHECKING:
    from offsetlog.client.notebook_html import GroupInfo, ResetPlan


command = CommandGroup(
    "groups",
    help="List, describe, reset and delete consumer groups.",
    examples="""
    $ offsetlog groups list
    $ offsetlog groups describe billing
    $ offsetlog groups reset billing --topic orders --to-earliest --execute
    """,
)


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
        summaries = log.groups().infos
    print_result(
        session.json,
        [summary.to_dict() for summary in summaries],
        ("GROUP", "STATE", "#MEMBERS", "#PARTITIONS"),
        summaries,
    )


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
@click.option("--members", is_flag=True, help="Show the members and their partitions.")
@click.option("--state", "state", is_flag=True, help="Show the state of the group.")
@pass_session
def describe(session: CliSession, group: str, members: bool, state: bool) -> None:
    """Show how far a group has read, and how far behind it is.

    CURRENT-OFFSET is the next offset that the group reads, LAG counts records, and LAG-SECONDS is
    the age of the oldest record that is not committed. Where a member has committed nothing yet,
    CURRENT-OFFSET is '-' and LAG counts from where it begins; '-' if that is not known (latest).
    """
    if members and state:
        raise InvalidRequestError("--members and --state don't go together.", "Use one of them.")
    with session.open() as log:
        info = log.group(group).describe()
    if session.json:
        print_json(info.to_dict())
    elif members:
        _print_members(info)
    elif state:
        strategies = sorted({member.strategy for member in info.members})
        print_table(
            ("GROUP", "ASSIGNMENT-STRATEGY", "STATE", "#MEMBERS", "GENERATION", "RESETS"),
            [
                (
                    info.name, ",".join(strategies) or "-", info.state, len(info.members),
                    info.generation, info.resets,
                )
            ],
        )  # fmt: skip
    else:
        _print_lag(info)


def _print_lag(info: GroupInfo) -> None:
    by_name = {member.member: member for member in info.members}
    rows: list[tuple[Any, ...]] = []
    for line in info.partitions:
        member = by_name.get(line.member or "")
        rows.append(
            (
                info.name,
                line.topic,
                line.partition,
                "-" if line.committed is None else line.committed,
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


def _print_members(info: GroupInfo) -> None:
    rows = []
    for member in info.members:
        partitions_of: dict[str, list[int]] = {}
        for topic, partition in member.partitions:
            partitions_of.setdefault(topic, []).append(partition)
        assignment = " ".join(f"{t}({','.join(map(str, p))})" for t, p in partitions_of.items())
        rows.append(
            (info.name, member.member, member.host, member.client or "-", len(member.partitions),
             assignment or "-")
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
    """Delete a group that has no members, with all its offsets."""
    with session.open() as log:
        log.group(group).delete()
    if session.json:
        print_json({"deleted": group})
    else:
        print_line(f"Deleted group {group}.")


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
    metavar="TOPIC[:0,1]", help="The topic, or some partitions of it; repeatable.",
)  # fmt: skip
@pass_session
def delete_offsets(
    session: CliSession, group: str, topics: tuple[tuple[str, tuple[int, ...] | None], ...]
) -> None:
    """Delete a group's offsets in a topic that no member reads."""
    with session.open() as log:
        for topic, partitions in topics:
            log.group(group).delete_offsets(topic, partitions)
    if session.json:
        print_json({"group": group, "deleted": [topic for topic, _ in topics]})
    else:
        for topic, _ in topics:
            print_line(f"Deleted the offsets of group {group} in topic {topic}.")


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
    help="A topic, or some partitions of it; repeatable.",
)  # fmt: skip
@click.option("--all-topics", is_flag=True, help="All topics in which the group has offsets.")
@click.option("--to-earliest", is_flag=True, help="To the log start.")
@click.option("--to-latest", is_flag=True, help="To the log end.")
@click.option(
    "--to-current", is_flag=True, help="To the current offsets; with --export, to save them."
)
@click.option("--to-offset", metavar="N", help="To this offset.")
@click.option("--shift-by", metavar="N", help="By N records; back if negative.")
@click.option(
    "--to-datetime", metavar="TIME", help="To the first record at or after an ISO 8601 time."
)
@click.option(
    "--by-duration", metavar="DURATION", help="Back by an ISO 8601 duration, such as PT10M or P1D."
)
@click.option(
    "--from-file", metavar="CSV", help="To the offsets of a file: topic,partition,offset."
)
@click.option("--dry-run", is_flag=True, help="Only show the result (the default).")
@click.option("--execute", is_flag=True, help="Apply it.")
@click.option("--export", is_flag=True, help="Print the new offsets as CSV.")
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
    """Reset the offsets of a group; without --execute nothing is changed.

    Exactly one target is required. Running members follow within half a second, at a poll, Spark
    queries at their next micro-batch. A group that does not exist is created, as by Kafka's tool.
    Targets outside the log are clamped to it, with a warning.
    """
    from offsetlog.core.group.reset import choose_scenario

    if dry_run and execute:
        raise InvalidRequestError("--dry-run and --execute don't go together.", "Use one of them.")
    if all_topics and topics:
        raise InvalidRequestError("--topic and --all-topics don't go together.", "Use one of them.")
    path = scenarios["from_file"]
    if not topics and not all_topics and path is None:
        raise InvalidRequestError("No topic was named.", "Add --topic TOPIC or --all-topics.")
    if path is not None:
        from offsetlog.client.group import read_text

        scenarios["from_file"] = read_text(path)
    scenario = choose_scenario(group, scenarios)
    with session.open() as log:
        known = log.groups()
        plan = log.group(group).reset_topics(scenario, _merged(topics), dry_run=not execute)
    if group not in known:
        close = did_you_mean(group, known)
        print_warning(
            f"the group {group!r} is new. {close if close.startswith('Did') else ''}".rstrip()
        )
    for warning in plan.warnings:
        print_warning(warning)
    _print_plan(session, plan, export)


def _merged(
    topics: tuple[tuple[str, tuple[int, ...] | None], ...],
) -> list[tuple[str, tuple[int, ...] | None]]:
    """One entry for each topic; all of it, where it was once named without partitions."""
    merged: dict[str, tuple[int, ...] | None] = {}
    for topic, partitions in topics:
        previous = merged.get(topic, ())
        whole = partitions is None or previous is None
        merged[topic] = None if whole else (*(previous or ()), *(partitions or ()))
    return list(merged.items())


def _print_plan(session: CliSession, plan: ResetPlan, export: bool) -> None:
    if export:
        print_text(plan.to_csv())
        return
    print_result(
        session.json,
        plan.to_dict(),
        ("GROUP", "TOPIC", "PARTITION", "CURRENT-OFFSET", "NEW-OFFSET"),
        [
            (plan.group, m.topic, m.partition, "-" if m.before is None else m.before, m.after)
            for m in plan.moves
        ],
    )
    if not (session.json or plan.executed):
        print_line("Nothing was changed: this was a dry run. Add --execute to apply it.")
