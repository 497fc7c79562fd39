"""Where a reset puts a group's positions: Kafka's eight scenarios.

Rules of this module:

1. A plan is computed from values: the positions, each log's range, and the offsets found for
   a time. Nothing is looked up here, so a dry run and the real one are the same function.
2. What lies outside the log is clamped to it, with a warning.
3. ``current`` without a position goes to the latest, and ``shift-by`` without one is an
   error, both as in Kafka. A time after the last record goes to the latest.
4. A plan is whole or it is an error: there is no half of a reset.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from offsetlog.core.group.facts import Partition
from offsetlog.core.group.positions_csv import PositionRow, parse_positions
from offsetlog.core.group.state import Position
from offsetlog.core.times import parse_datetime, parse_duration
from offsetlog.errors import InvalidRequestError, UnknownTopicError


class OffsetSpan(NamedTuple):
    """What a partition's log holds: ``[start, end)``."""

    start: int
    end: int


class ToEarliest(NamedTuple):
    pass


class ToLatest(NamedTuple):
    pass


class ToCurrent(NamedTuple):
    pass


class ToOffset(NamedTuple):
    offset: int


class ShiftBy(NamedTuple):
    by: int


class ToDatetime(NamedTuple):
    ms: int


class ByDuration(NamedTuple):
    """To the records that were appended in the last so many milliseconds."""

    ms: int


class FromFile(NamedTuple):
    lines: tuple[PositionRow, ...]


Scenario = (
    ToEarliest | ToLatest | ToCurrent | ToOffset | ShiftBy | ToDatetime | ByDuration | FromFile
)


class Move(NamedTuple):
    """One partition's line of a plan. ``before`` is None where there is no position."""

    topic: str
    partition: int
    before: int | None
    after: int
    start: int
    end: int
    warning: str = ""


def target_time(scenario: Scenario, now_ms: int) -> int | None:
    """The time whose offsets have to be found before the plan can be made; None: none."""
    if isinstance(scenario, ToDatetime):
        return scenario.ms
    if isinstance(scenario, ByDuration):
        return now_ms - scenario.ms
    return None


def plan_reset(
    positions: Mapping[Partition, Position],
    scenario: Scenario,
    targets: Iterable[Partition],
    spans: Mapping[Partition, OffsetSpan],
    offsets_at_time: Mapping[Partition, int | None],
) -> tuple[Move, ...]:
    """Before and after of each target. ``offsets_at_time`` says, where the scenario has a time,
    which record is the first at or after it (None: there is none)."""
    lines: dict[Partition, PositionRow] = {}
    if isinstance(scenario, FromFile):
        targets = lines = {(line.topic, line.partition): line for line in scenario.lines}
    ordered = sorted(set(targets))
    if not ordered:
        raise InvalidRequestError(
            "The reset names no partition.", "Name a topic, or all topics of the group."
        )
    moves = []
    for target in ordered:
        span = spans.get(target)
        if span is None:
            raise _unknown(target, spans, lines.get(target))
        before = positions.get(target)
        offset = before.offset if before is not None else None
        goal = _goal(scenario, target, offset, span, offsets_at_time, lines)
        moves.append(_move(target, offset, goal, span))
    return tuple(moves)


def _goal(
    scenario: Scenario,
    target: Partition,
    before: int | None,
    span: OffsetSpan,
    offsets_at_time: Mapping[Partition, int | None],
    lines: Mapping[Partition, PositionRow],
) -> int:
    match scenario:
        case ToEarliest():
            return span.start
        case ToLatest():
            return span.end
        case ToCurrent():
            return span.end if before is None else before
        case ToOffset(offset):
            return offset
        case ShiftBy(by):
            if before is None:
                raise InvalidRequestError(
                    f"The group has no position in partition {target[1]} of topic "
                    f"{target[0]!r}, so it cannot be shifted by {by}.",
                    "Reset that partition to an offset or a time, or leave it out.",
                )
            return before + by
        case ToDatetime() | ByDuration():
            at_time = offsets_at_time.get(target)
            return span.end if at_time is None else at_time
        case FromFile():
            return lines[target].offset


def _move(target: Partition, before: int | None, goal: int, span: OffsetSpan) -> Move:
    topic, partition = target
    after = min(max(goal, span.start), span.end)
    warning = ""
    if after != goal:
        side = "before the earliest" if goal < span.start else "past the latest"
        warning = (
            f"Offset {goal} of partition {partition} of topic {topic!r} is {side} offset "
            f"{after}; {after} is taken instead."
        )
    return Move(topic, partition, before, after, span.start, span.end, warning)


def _unknown(
    target: Partition, spans: Mapping[Partition, OffsetSpan], line: PositionRow | None
) -> Exception:
    topic, partition = target
    where = f"Line {line.number} of the file: " if line is not None else ""
    count = sum(1 for name, _ in spans if name == topic)
    if count == 0:
        return UnknownTopicError(
            f"{where}there is no topic {topic!r}.".replace("there", "There", not where),
            "`topics list` shows those that exist.",
        )
    return UnknownTopicError(
        f"{where}topic {topic!r} has no partition {partition}; it has {count}.",
        f"Name partitions from 0 to {count - 1}.",
    )


# --- which scenario ------------------------------------------------------------------------

SCENARIOS = (
    "to-earliest",
    "to-latest",
    "to-current",
    "to-offset",
    "shift-by",
    "to-datetime",
    "by-duration",
    "from-file",
)


def choose_scenario(group: str, options: Mapping[str, object]) -> Scenario:
    """The one scenario among the options. An option that is ``False`` or ``None`` is not set;
    ``from-file`` takes the file's text, of which the lines of ``group`` count."""
    chosen = {
        name.replace("_", "-"): value
        for name, value in options.items()
        if value is not None and value is not False
    }
    unknown = sorted(set(chosen) - set(SCENARIOS))
    if unknown:
        raise InvalidRequestError(
            f"There is no reset {unknown[0]!r}.", f"Use one of {', '.join(SCENARIOS)}."
        )
    if len(chosen) != 1:
        what = " and ".join(name for name in SCENARIOS if name in chosen)
        raise InvalidRequestError(
            f"A reset goes one way, not {what}." if chosen else "A reset must say where to.",
            f"Give exactly one of {', '.join(SCENARIOS)}.",
        )
    name, value = next(iter(chosen.items()))
    match name:
        case "to-earliest":
            return ToEarliest()
        case "to-latest":
            return ToLatest()
        case "to-current":
            return ToCurrent()
        case "to-offset":
            return ToOffset(_integer(name, value))
        case "shift-by":
            return ShiftBy(_integer(name, value))
        case "to-datetime":
            return ToDatetime(parse_datetime(str(value)))
        case "by-duration":
            return _by_duration(str(value))
        case _:
            return FromFile(parse_positions(str(value), group))


def _by_duration(text: str) -> ByDuration:
    ms = parse_duration(text)
    if ms < 0:
        raise InvalidRequestError(
            f"The duration {text!r} is negative.", "Say how far back from now, such as PT10M."
        )
    return ByDuration(ms)


def _integer(name: str, value: object) -> int:
    text = str(value).strip()
    if isinstance(value, bool) or not re.fullmatch(r"[+-]?\d{1,19}", text, re.ASCII):
        raise InvalidRequestError(
            f"{name} takes a whole number, not {value!r}.", "Write it like 120 or -20."
        )
    return int(text)
