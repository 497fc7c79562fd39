"""``log.group(name)``: what a group is, its lag, its resets and its deletion.

Invariants:

1. Every number comes from a fresh look at the table and at the topics.
2. A reset is planned from values (``core.group.reset``); the dry run and the real one are the same
   function, and the real one is computed against the very positions that it replaces.
3. A group that does not exist is an error, never an empty answer. A reset that names topics
   creates it, as Kafka's tool does.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterable, Sequence
from pathlib import Path

from offsetlog.arguments import FLAG, PARTITION, TEXT, checked, many
from offsetlog.client.notebook_html import GroupInfo, LagTable, MemberInfo, ResetPlan
from offsetlog.client.rules import RESET, SCENARIO, TOPIC_AND_PARTITIONS
from offsetlog.core.group.decide import Refused, decide
from offsetlog.core.group.facts import OffsetAndMetadata, Partition, TopicView
from offsetlog.core.group.lag import Lag, group_lag, reading_from, topics_of, total
from offsetlog.core.group.refusal import unknown_group
from offsetlog.core.group.requests import (
    DeleteGroupRequest,
    DeleteOffsetsRequest,
    ExpelRequest,
    ResetRequest,
)
from offsetlog.core.group.reset import (
    FromFile,
    Scenario,
    choose_scenario,
    target_time,
)
from offsetlog.core.group.state import GroupState as GroupState
from offsetlog.core.group.state import status
from offsetlog.core.topic.plan import check_partition
from offsetlog.engine.group.group_member import GroupHost
from offsetlog.engine.group.lag import backlog, spans_of, states_of
from offsetlog.errors import InvalidRequestError
from offsetlog.text import quoted
from offsetlog.values import TopicPartition, check_name

MAX_FILE_BYTES = 256 * 1024 * 1024
"""Of positions: every partition of a thousand topics of the largest kind is less."""


class Group:
    """One consumer group of a log."""

    def __init__(self, host: GroupHost, name: str) -> None:
        self._host = host
        self.name = check_name(name, "group")

    def _state(self) -> GroupState:
        group = self._host.offsets_table.look().group(self.name)
        if not group.alive:
            raise unknown_group(self.name)
        return group

    # --- what it is ------------------------------------------------------------------------

    def state(self) -> str:
        """``Stable``, ``PreparingRebalance``, ``Empty`` or ``Dead``, as in Kafka."""
        return status(self._host.offsets_table.look().group(self.name))

    def members(self) -> tuple[MemberInfo, ...]:
        """Its members, and the partitions of each."""
        return _members(self._state())

    def committed(self) -> dict[TopicPartition, OffsetAndMetadata]:
        """The committed offset of each partition, with its metadata."""
        return {
            TopicPartition(*p): OffsetAndMetadata(position.offset, position.metadata)
            for p, position in sorted(self._state().positions.items())
        }

    def lag(self) -> LagTable:
        """The records of each partition that are not committed yet: of those in which the group
        has a position, and of all that its members read. None: there is no commit yet, and it is
        not known where reading begins (``auto_offset_reset="latest"``)."""
        return self.describe().lag

    def describe(self) -> GroupInfo:
        """State, members, and for each partition its position and lag in records, bytes and
        seconds (the age of the oldest record that is not committed)."""
        group = self._state()
        spans = spans_of(states_of(self._host, topics_of(group)))
        backlogs = {p: backlog(self._host, p, at) for p, at in reading_from(group, spans).items()}
        return group_info(group, group_lag(group, spans, backlogs, self._host.env.now_ms()))

    # --- resets ----------------------------------------------------------------------------

    @checked(**RESET)
    def reset(
        self,
        topic: str | None = None,
        to: object = None,
        *,
        partitions: Iterable[int] | None = None,
        shift_by: int | None = None,
        to_datetime: object = None,
        by_duration: object = None,
        from_file: str | Path | None = None,
        dry_run: bool = True,
    ) -> ResetPlan:
        """Move the group's positions; without ``dry_run=False`` it only shows what would move.

        ``to`` is ``"earliest"``, ``"latest"``, ``"current"``, an offset, or a ``datetime``;
        or give one of ``shift_by`` (such as -100), ``to_datetime`` (ISO 8601), ``by_duration``
        (``"PT10M"``: ten minutes back) or ``from_file`` (what a plan's ``to_csv`` wrote).
        Without a topic all topics of the group are reset. Running members follow within half
        a second, at a poll. What lies outside the log is clamped to it, with a warning. A group
        that does not exist is created.
        """
        options: dict[str, object] = {
            "shift-by": shift_by,
            "to-datetime": to_datetime,
            "by-duration": by_duration,
            "from-file": None if from_file is None else read_text(from_file),
        }
        for name, value in _options_of(to).items():
            if options.get(name) is not None:
                raise InvalidRequestError("The reset says twice where to.", "Say it once.")
            options[name] = value
        scenario = choose_scenario(self.name, options)
        if topic is None and partitions is not None:
            raise InvalidRequestError("Partitions were named without a topic.", "Name the topic.")
        topics = [] if topic is None else [(topic, partitions)]
        return self._reset(scenario, topics, dry_run)

    @checked(scenario=SCENARIO, topics=many(TOPIC_AND_PARTITIONS), dry_run=FLAG)
    def reset_topics(
        self,
        scenario: Scenario,
        topics: Sequence[tuple[str, Iterable[int] | None]] = (),
        *,
        dry_run: bool = True,
    ) -> ResetPlan:
        """Like ``reset``, for several topics, each with its partitions (None: all)."""
        return self._reset(scenario, topics, dry_run)

    def _reset(
        self,
        scenario: Scenario,
        topics: Sequence[tuple[str, Iterable[int] | None]],
        dry_run: bool,
    ) -> ResetPlan:
        targets: list[Partition] = []
        if isinstance(scenario, FromFile):
            scenario = _chosen_lines(scenario, topics) if topics else scenario
            states = states_of(self._host, {line.topic for line in scenario.lines})
        elif topics:
            states = {topic: self._host.open_topic(topic).state() for topic, _ in topics}
            for topic, numbers in topics:
                for number in range(states[topic].partitions) if numbers is None else numbers:
                    check_partition(states[topic], number)
                    targets.append((topic, number))
        else:
            # A topic that is gone cannot be reset; the others can.
            states = states_of(self._host, self._topics_with_positions())
            targets = [*spans_of(states)]
        time_ms = target_time(scenario, self._host.env.now_ms())
        request = ResetRequest(
            self.name,
            scenario,
            tuple(targets),
            spans_of(states),
            {} if time_ms is None else self._offsets_at(targets, time_ms),
            create=True,
            views={topic: TopicView(s.partitions, s.tip) for topic, s in states.items()},
        )
        table = self._host.offsets_table
        if dry_run:
            [outcome] = decide(table.look(), [request], self._host.env.now_ms(), "").outcomes
            if isinstance(outcome, Refused):
                raise outcome.error
        else:
            [outcome] = table.accept(request)
        return ResetPlan(self.name, outcome.plan, executed=not dry_run)

    def _topics_with_positions(self) -> set[str]:
        topics = {topic for topic, _ in self._state().positions}
        if not topics:
            raise InvalidRequestError(
                f"The group {self.name!r} has no positions to reset.", "Name a topic."
            )
        return topics

    def _offsets_at(
        self, targets: Iterable[Partition], time_ms: int
    ) -> dict[Partition, int | None]:
        return {
            (topic, number): self._host.open_topic(topic).offset_for_time(number, time_ms)
            for topic, number in targets
        }

    # --- deleting --------------------------------------------------------------------------

    def delete(self) -> None:
        """Delete the group with all its positions. It must have no members."""
        self._host.offsets_table.look()
        self._host.offsets_table.accept(DeleteGroupRequest(self.name))

    @checked(topic=TEXT, partitions=many(PARTITION))
    def delete_offsets(self, topic: str, partitions: Iterable[int] | None = None) -> None:
        """Delete its positions in a topic that none of its members reads."""
        table = self._host.offsets_table
        table.look()
        # A name that is none may be there all the same, and must be removable.
        if topic not in {name for name, _ in table.table.group(self.name).positions}:
            check_name(topic)
        which = None if partitions is None else tuple(partitions)
        table.accept(DeleteOffsetsRequest(self.name, topic, which))

    @checked(names=TEXT)
    def remove_members(self, *names: str) -> None:
        """Expel members, such as one that was killed and has no peer that would notice."""
        group = self._state()
        unknown = [name for name in names if name not in group.members]
        if unknown:
            raise InvalidRequestError(
                f"The group {self.name!r} has no member {unknown[0]!r}.",
                f"Its members: {', '.join(sorted(group.members)) or 'none'}.",
            )
        table = self._host.offsets_table
        table.accept(
            *(
                ExpelRequest(
                    self.name, name, group.members[name].joined, "an administrator", "asked for"
                )
                for name in names or sorted(group.members)
            )
        )

    def __repr__(self) -> str:
        return f"Group({self.name!r})"

    def _repr_html_(self) -> str:
        return self.describe()._repr_html_()


def group_info(group: GroupState, lines: tuple[Lag, ...]) -> GroupInfo:
    """What a group is, with these lines of its lag."""
    return GroupInfo(
        group.name,
        status(group),
        group.generation,
        group.resets,
        _members(group),
        lines,
        total(lines),
    )


def _members(group: GroupState) -> tuple[MemberInfo, ...]:
    held: dict[str, list[TopicPartition]] = {name: [] for name in group.members}
    for partition, holder in sorted(group.holders.items()):
        held[holder.member].append(TopicPartition(*partition))
    return tuple(
        MemberInfo(
            name,
            member.subscription.client,
            member.subscription.host,
            member.subscription.topics,
            member.subscription.strategy,
            member.subscription.session_ms,
            tuple(held[name]),
        )
        for name, member in sorted(group.members.items())
    )


def _options_of(to: object) -> dict[str, object]:
    """``to`` as the option of the command line that says the same."""
    match to:
        case None:
            return {}
        case "earliest" | "latest" | "current":
            return {f"to-{to}": True}
        case int() if not isinstance(to, bool):
            return {"to-offset": to}
        case dt.datetime():
            return {"to-datetime": to.isoformat()}
    raise InvalidRequestError(
        f"There is no reset to {to!r}.",
        'Use "earliest", "latest", "current", an offset or a datetime; or one of shift_by, '
        "to_datetime, by_duration, from_file.",
    )


def read_text(path: str | Path) -> str:
    """A file of positions, which is not waited for and not larger than one can be."""
    try:
        if not Path(path).is_file():
            raise OSError("it is not a file")
        with Path(path).open("rb") as file:
            data = file.read(MAX_FILE_BYTES + 1)
        if len(data) > MAX_FILE_BYTES:
            raise OSError(f"it is larger than {MAX_FILE_BYTES} bytes")
        return data.decode()
    except (OSError, ValueError) as error:
        why = getattr(error, "strerror", None) or error
        raise InvalidRequestError(f"The file {quoted(str(path))} can't be read: {why}.") from None


def _chosen_lines(
    scenario: FromFile, topics: Sequence[tuple[str, Iterable[int] | None]]
) -> FromFile:
    """Of a file, the lines of these topics and partitions."""
    chosen = {topic: None if numbers is None else set(numbers) for topic, numbers in topics}
    lines = tuple(
        line
        for line in scenario.lines
        if line.topic in chosen
        and ((numbers := chosen[line.topic]) is None or line.partition in numbers)
    )
    if not lines:
        raise InvalidRequestError(
            "The file has no line for the partitions that were named.", "Name none, or others."
        )
    return FromFile(lines)
