"""``log.groups()`` and ``log.group(name)``: what a group is, how far behind it is, putting it back.

Invariants:

1. Every number comes from a fresh look at the table and at the topics.
2. A reset is planned from values (``group.reset``); the dry run and the real one are the same
   function, and the real one is computed anew against the positions that it replaces.
3. A group that is not there is an error for whoever asks about it, never an empty answer. A
   reset that names topics makes it, as Kafka's tool does.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from offsetlog.client.notebook_html import GroupInfo, LagTable, MemberInfo, ResetPlan
from offsetlog.core.group.decide import Refused, decide
from offsetlog.core.group.facts import OffsetAndMetadata, Partition, TopicView
from offsetlog.core.group.lag import group_lag, reading_from, total
from offsetlog.core.group.positions_csv import format_plan_file
from offsetlog.core.group.refusal import unknown_group
from offsetlog.core.group.requests import (
    DeleteGroupRequest,
    DeleteOffsetsRequest,
    ExpelRequest,
    ResetRequest,
)
from offsetlog.core.group.reset import (
    FromFile,
    OffsetSpan,
    PlannedReset,
    Scenario,
    choose_scenario,
    target_time,
)
from offsetlog.core.group.state import GroupState as GroupState
from offsetlog.core.group.state import status
from offsetlog.core.topic import plan as fetch
from offsetlog.engine.group.group_member import GroupHost
from offsetlog.engine.group.lag import behind, spans_of
from offsetlog.errors import InvalidRequestError
from offsetlog.values import TopicPartition, check_name


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
        """Its workers, and what each of them holds."""
        return _members(self._state())

    def committed(self) -> dict[TopicPartition, OffsetAndMetadata]:
        """The next offset to read of each partition, with the text that was committed."""
        return {
            TopicPartition(*p): OffsetAndMetadata(said.offset, said.metadata)
            for p, said in sorted(self._state().positions.items())
        }

    def lag(self) -> LagTable:
        """Records that are there and not committed yet, by partition."""
        return self.describe().lag

    def describe(self) -> GroupInfo:
        """State, members, and for each partition its position and lag in records, bytes and
        seconds (the age of the oldest record that is not committed)."""
        group = self._state()
        spans = spans_of(self._host, {topic for topic, _ in group.positions})
        found = {p: behind(self._host, p, at) for p, at in reading_from(group, spans).items()}
        lines = group_lag(group, spans, found, self._host.env.now_ms())
        return GroupInfo(
            self.name,
            status(group),
            group.generation,
            group.resets,
            _members(group),
            lines,
            total(lines),
        )

    # --- putting it back -------------------------------------------------------------------

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
        """Put the group's positions elsewhere; ``dry_run=False`` does it.

        ``to`` is ``"earliest"``, ``"latest"``, ``"current"``, an offset, or a ``datetime``;
        or give one of ``shift_by`` (such as -100), ``to_datetime`` (ISO 8601), ``by_duration``
        (``"PT10M"``: ten minutes back) or ``from_file`` (what a plan's ``to_csv`` wrote).
        Without a topic all topics of the group are reset. Running workers follow at their next
        poll. What lies outside the log is clamped to it, with a warning. A group that is not
        there yet is made by it.
        """
        given: dict[str, object] = {
            "shift-by": shift_by,
            "to-datetime": _iso(to_datetime),
            "by-duration": _iso(by_duration),
            "from-file": None if from_file is None else read_text(from_file),
        }
        for name, value in _target(to).items():
            if given.get(name) is not None:
                raise InvalidRequestError("The reset says twice where to.", "Say it once.")
            given[name] = value
        scenario = choose_scenario(self.name, given)
        return self.plan(scenario, topic, partitions, dry_run=dry_run)

    def plan(
        self,
        scenario: Scenario,
        topic: str | None = None,
        partitions: Iterable[int] | None = None,
        *,
        dry_run: bool = True,
    ) -> ResetPlan:
        """As ``reset``, for a scenario that was parsed already."""
        if topic is None:
            which: list[tuple[str, Iterable[int] | None]] = []
            if partitions is not None:
                raise InvalidRequestError(
                    "Partitions were named without a topic.", "Name the topic, too."
                )
        else:
            which = [(topic, partitions)]
        return self.plan_many(scenario, which, dry_run=dry_run)

    def plan_many(
        self,
        scenario: Scenario,
        which: Sequence[tuple[str, Iterable[int] | None]] = (),
        *,
        dry_run: bool = True,
    ) -> ResetPlan:
        """As ``plan``, for several topics, each with its partitions (None: all)."""
        table = self._host.offsets_table.look()
        group = table.group(self.name)
        scenario = _only(scenario, which)
        targets, spans = self._targets(group, scenario, which)
        found: dict[Partition, int | None] = {}
        time_ms = target_time(scenario, self._host.env.now_ms())
        if time_ms is not None:
            for name, number in targets:
                handle = self._host.topic_handle(name)
                found[name, number] = handle.offset_for_time(number, time_ms)
        views = {} if group.alive else self._views(spans)
        request = ResetRequest(self.name, scenario, targets, spans, found, True, views)
        if dry_run:
            [outcome] = decide(table, [request], self._host.env.now_ms(), "").outcomes
            if isinstance(outcome, Refused):
                raise outcome.error
        else:
            [outcome] = self._host.offsets_table.accept(request)
        assert outcome.plan is not None
        return ResetPlan(self.name, outcome.plan, executed=not dry_run, csv=_csv(outcome.plan))

    def _views(self, spans: Iterable[Partition]) -> dict[str, TopicView]:
        """What a group that is made knows of its topics: partitions that are there already were
        not added to it."""
        views = {}
        for topic in sorted({topic for topic, _ in spans}):
            state = self._host.topic_handle(topic).state(fresh=False)
            views[topic] = TopicView(state.partitions, state.tip)
        return views

    def _targets(
        self,
        group: GroupState,
        scenario: Scenario,
        which: Sequence[tuple[str, Iterable[int] | None]],
    ) -> tuple[tuple[Partition, ...], dict[Partition, OffsetSpan]]:
        if isinstance(scenario, FromFile):
            named = {line.topic for line in scenario.lines}
            return (), spans_of(self._host, named)
        if not which:
            topics = {topic for topic, _ in group.positions}
            if not group.alive:
                raise unknown_group(self.name)
            if not topics:
                raise InvalidRequestError(
                    f"The group {self.name!r} has no positions to reset.", "Name a topic."
                )
            spans = spans_of(self._host, topics)
            # A topic that is gone cannot be reset; the others can.
            return tuple(spans), spans
        targets: list[Partition] = []
        for topic, numbers in which:
            state = self._host.topic_handle(check_name(topic)).state()
            chosen = range(state.partitions) if numbers is None else list(numbers)
            for number in chosen:
                fetch.check_partition(state, number)
                targets.append((topic, number))
        return tuple(targets), spans_of(self._host, {topic for topic, _ in which})

    # --- taking away -----------------------------------------------------------------------

    def delete(self) -> None:
        """Drop the group with all its positions. It must have no members."""
        self._host.offsets_table.look()
        self._host.offsets_table.accept(DeleteGroupRequest(self.name))

    def delete_offsets(self, topic: str, partitions: Iterable[int] | None = None) -> None:
        """Drop its positions in a topic that no member of it reads."""
        self._host.offsets_table.look()
        which = None if partitions is None else tuple(partitions)
        self._host.offsets_table.accept(DeleteOffsetsRequest(self.name, check_name(topic), which))

    def remove_members(self, *names: str) -> None:
        """Put members out: those that were killed and have no peer that would notice."""
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


def _target(to: object) -> dict[str, Any]:
    if to is None:
        return {}
    if isinstance(to, str) and to in ("earliest", "latest", "current"):
        return {f"to-{to}": True}
    if isinstance(to, int) and not isinstance(to, bool):
        return {"to-offset": to}
    if isinstance(to, dt.datetime):
        return {"to-datetime": to.isoformat()}
    raise InvalidRequestError(
        f"There is no reset to {to!r}.",
        'Use "earliest", "latest", "current", an offset or a datetime; or one of shift_by, '
        "to_datetime, by_duration, from_file.",
    )


def _iso(given: object) -> object:
    if isinstance(given, dt.datetime):
        return given.isoformat()
    if isinstance(given, dt.timedelta):
        return f"PT{given.total_seconds():.3f}S"
    return given


def read_text(path: str | Path) -> str:
    try:
        return Path(path).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise InvalidRequestError(f"The file {str(path)!r} does not read: {error}.") from None


def _only(scenario: Scenario, which: Sequence[tuple[str, Iterable[int] | None]]) -> Scenario:
    """Of a file, the lines of the topics and partitions that were named."""
    if not isinstance(scenario, FromFile) or not which:
        return scenario
    chosen = {topic: None if numbers is None else set(numbers) for topic, numbers in which}
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


def _csv(plan: PlannedReset) -> str:
    return format_plan_file(plan.offsets)
