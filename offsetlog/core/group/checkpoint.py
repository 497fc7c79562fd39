"""The state as a plain dictionary, so that finding positions never scans history.

Rules of this module:

1. ``from_plain(to_plain(table)) == table``, and equal tables give equal dictionaries: whoever
   stores the checkpoint of a version stores the same.
2. Strings, whole numbers, booleans, None, lists and dictionaries with string keys only.
3. A checkpoint is a cache of the facts up to its version. One that does not read whole is
   ``CorruptLogError``, and the facts are folded without it. So is one of an earlier version
   that does not say where resets put the group (``reset_to``), unless there were none, or which
   partitions were added (``added``), unless it knows of no topic.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from math import inf
from typing import Any, TypeVar

from offsetlog.core.decode import (
    Decoder,
    Malformed,
    boolean,
    checked,
    default,
    fields,
    from_value,
    integer,
    list_of,
    map_of,
    nullable,
    plain,
    record,
    row,
    string,
)
from offsetlog.core.group.facts import (
    RULES_VERSION,
    Partition,
    TopicView,
    check_rules,
    decode_subscription,
    encode_subscription,
)
from offsetlog.core.group.state import Departure, GroupsState, GroupState, Held, Member, Position

Plain = dict[str, Any]
T = TypeVar("T")


def to_plain(table: GroupsState) -> Plain:
    return {
        "rules": RULES_VERSION,
        "version": table.version,
        "groups": {name: _group(table.groups[name]) for name in sorted(table.groups)},
    }


def from_plain(data: object) -> GroupsState:
    where = "The checkpoint of the offsets table"
    check_rules(from_value(plain, data, where).get("rules"))
    return from_value(_STATE, data, where)


def _group(group: GroupState) -> Plain:
    return {
        "alive": group.alive,
        "generation": group.generation,
        "resets": group.resets,
        "active_at": group.active_at,
        "members": {
            name: [encode_subscription(m.subscription), m.joined, m.version]
            for name, m in sorted(group.members.items())
        },
        "topics": {topic: list(view) for topic, view in sorted(group.topics.items())},
        "added": _numbers_by_topic(group.added),
        "targets": _by_topic(group.targets, lambda target: target),
        "holders": _by_topic(group.holders, list),
        "positions": _by_topic(group.positions, list),
        "marks": _by_topic(group.last_reset, lambda mark: mark),
        "reset_to": _by_topic(group.reset_to, lambda offset: offset),
        "gone": [list(departure) for departure in group.departures],
    }


def _by_topic(values: Mapping[Partition, T], plain: Callable[[T], Any]) -> Plain:
    out: Plain = {}
    for (topic, partition), value in sorted(values.items(), key=lambda item: item[0]):
        out.setdefault(topic, {})[str(partition)] = plain(value)
    return out


def _numbers_by_topic(partitions: Iterable[Partition]) -> Plain:
    out: Plain = {}
    for topic, partition in sorted(partitions):
        out.setdefault(topic, []).append(partition)
    return out


# --- and back ------------------------------------------------------------------------------


def _state(rules: int, version: int, groups: dict[str, GroupState]) -> GroupsState:
    if rules != RULES_VERSION:
        raise Malformed("its rules are of an older version")
    named = {name: group._replace(name=name) for name, group in sorted(groups.items())}
    return GroupsState(version, named)


def _read_group(values: dict[str, Any]) -> GroupState:
    members = {name: m._replace(name=name) for name, m in sorted(values["members"].items())}
    added, last_reset, departures = (values.pop(name) for name in ("added", "marks", "gone"))
    if added is None and values["topics"]:
        raise Malformed("'added' is missing")
    if values["reset_to"].keys() != last_reset.keys():
        raise Malformed("'reset_to' does not say where each reset of 'marks' went")
    values |= {"members": members, "added": added or frozenset()}
    return GroupState(name="", last_reset=last_reset, departures=departures, **values)


def _member(text: str, joined: int, version: int) -> Member:
    subscription = decode_subscription(text)
    if subscription is None:
        raise Malformed(f"{text[:100]!r} is not a subscription")
    return Member("", subscription, joined, version)


def _partition(text: str) -> int:
    if not text.isascii() or not text.isdigit():
        raise Malformed("it is not a partition")
    return int(text)


def _by_partition(decoder: Decoder[T]) -> Decoder[dict[Partition, T]]:
    nested = map_of(map_of(decoder, key=checked(_TEXT, _partition)), key=_TEXT)
    return lambda value: {
        (topic, partition): item
        for topic, inner in nested(value).items()
        for partition, item in inner.items()
    }


_TEXT = string(inf)
_INT = integer(-inf, inf)
_NUMBERS = map_of(list_of(_INT), key=_TEXT)


def _added(value: object) -> frozenset[Partition]:
    return frozenset((topic, n) for topic, numbers in _NUMBERS(value).items() for n in numbers)


_GROUP = fields(
    alive=boolean,
    generation=integer(high=inf),
    resets=integer(high=inf),
    members=map_of(row(_member, _TEXT, _INT, _INT), key=_TEXT),
    topics=map_of(row(TopicView, _INT, _INT), key=_TEXT),
    added=default(_added, None),
    targets=_by_partition(_TEXT),
    holders=_by_partition(row(Held, _TEXT, _INT)),
    positions=_by_partition(row(Position, _INT, _TEXT, _INT, nullable(_TEXT), _INT, _TEXT, _INT)),
    marks=_by_partition(_INT),
    reset_to=default(_by_partition(_INT), {}),
    gone=list_of(row(Departure, _TEXT, _INT, _TEXT, _TEXT, _INT)),
    active_at=_INT,
)
_STATE = record(
    _state,
    rules=_INT,
    version=integer(-1, inf),
    groups=map_of(lambda value: _read_group(_GROUP(value)), key=_TEXT),
)
