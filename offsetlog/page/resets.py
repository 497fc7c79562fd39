"""A reset as the page's request says it, and as the client does it.

Invariants:

1. An order goes exactly one way. What is not understood is refused, by name, before anything is
   looked up.
2. A dry run and the real one are the same call, but for one word.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from offsetlog.client.log import Log
from offsetlog.client.notebook_html import ResetPlan
from offsetlog.core.group.positions_csv import format_positions
from offsetlog.core.group.reset import choose_scenario
from offsetlog.errors import InvalidRequestError
from offsetlog.page.changes import Change
from offsetlog.text import quoted
from offsetlog.values import MAX_OFFSET, MAX_PARTITIONS, did_you_mean

WAYS = ("to", "shift_by", "to_datetime", "by_duration", "positions", "from_file")
FIELDS = ("topic", "partitions", *WAYS, "dry_run")
PLACES = ("earliest", "latest", "current")
SHOWN = 5
"""Partitions of a reset that the log of changes names."""


class ResetOrder(NamedTuple):
    """What is wanted, checked as far as it can be without a look."""

    topic: str | None
    partitions: tuple[int, ...] | None
    options: dict[str, object]
    """As ``choose_scenario`` takes them."""
    dry_run: bool


def parse(given: Mapping[str, Any]) -> ResetOrder:
    for name in given:
        if name not in FIELDS:
            raise InvalidRequestError(f"A reset has no {quoted(name)}.", did_you_mean(name, FIELDS))
    ways = [name for name in WAYS if given.get(name) is not None]
    if len(ways) != 1:
        what = f"A reset goes one way, not {' and '.join(ways)}." if ways else "Where to?"
        raise InvalidRequestError(what, f"Give exactly one of {', '.join(WAYS)}.")
    topic, dry_run = given.get("topic"), given.get("dry_run", True)
    if topic is not None and not isinstance(topic, str):
        raise _wrong("topic", topic, "the name of a topic")
    if not isinstance(dry_run, bool):
        raise _wrong("dry_run", dry_run, "true or false")
    partitions = _partitions(given.get("partitions"))
    if topic is None and partitions is not None:
        raise InvalidRequestError("Partitions were named without a topic.", "Name the topic.")
    [way] = ways
    return ResetOrder(topic, partitions, _options(way, given[way], topic), dry_run)


def _partitions(given: object) -> tuple[int, ...] | None:
    if given is None:
        return None
    if not isinstance(given, list) or not given or len(given) > MAX_PARTITIONS:
        raise _wrong("partitions", given, "a list of numbers")
    return tuple(dict.fromkeys(_whole("partitions", one) for one in given))


def _options(way: str, value: Any, topic: str | None) -> dict[str, object]:
    match way:
        case "to" if isinstance(value, str) and value in PLACES:
            return {f"to-{value}": True}
        case "to" if isinstance(value, int) and not isinstance(value, bool):
            return {"to-offset": value}
        case "to":
            raise _wrong("to", value, f"{', '.join(PLACES)} or an offset")
        case "shift_by":
            if isinstance(value, bool) or not isinstance(value, int):
                raise _wrong(way, value, "a whole number, below 0 to go back")
            return {"shift-by": value}
        case "positions":
            if topic is None:
                raise InvalidRequestError(
                    "Positions were given without a topic.", "Name the topic."
                )
            return {"from-file": format_positions(_positions(topic, value))}
    if not isinstance(value, str):
        raise _wrong(way, value, "text")
    return {way.replace("_", "-"): value}


def _positions(topic: str, given: object) -> dict[tuple[str, int], int]:
    if not isinstance(given, dict) or not given or len(given) > MAX_PARTITIONS:
        raise _wrong("positions", given, 'offsets by partition, such as {"0": 120}')
    out = {}
    for number, offset in given.items():
        if not (number.isascii() and number.isdecimal() and len(number) < 10):
            raise _wrong("a partition", number, "a number")
        out[topic, int(number)] = _whole("an offset", offset)
    return out


def _whole(name: str, value: object) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= MAX_OFFSET:
        raise _wrong(name, value, "whole numbers from 0")
    return value


def _wrong(name: str, value: object, allowed: str) -> InvalidRequestError:
    return InvalidRequestError(f"{name} is {quoted(value)}.", f"Allowed: {allowed}.")


def carry_out(log: Log, group: str, order: ResetOrder) -> ResetPlan:
    """Do it, or show what it would do."""
    handle = log.group(group)
    scenario = choose_scenario(group, order.options)
    topics = [] if order.topic is None else [(order.topic, order.partitions)]
    return handle.reset_topics(scenario, topics, dry_run=order.dry_run)


def as_change(plan: ResetPlan, order: ResetOrder, at: int) -> Change:
    """A line for the log of what changed."""
    [way] = order.options
    value = order.options[way]
    words = way if value is True or way == "from-file" else f"{way} {value}"
    moves = [
        f"{m.topic}-{m.partition}: {'-' if m.before is None else m.before} to {m.after}"
        for m in plan.moves[:SHOWN]
    ]
    more = len(plan.moves) - len(moves)
    rest = f" and {more} more" if more else ""
    return Change(at, "group", plan.group, f"reset {words}: {', '.join(moves)}{rest}", True)
