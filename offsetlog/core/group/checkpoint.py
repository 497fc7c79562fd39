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
from typing import Any, NamedTuple, TypeVar

from offsetlog.core.group.facts import (
    RULES_VERSION,
    Partition,
    TopicView,
    check_rules,
    decode_subscription,
    encode_subscription,
    whole,
)
from offsetlog.core.group.state import Departure, GroupsState, GroupState, Held, Member, Position
from offsetlog.errors import CorruptLogError

Plain = dict[str, Any]
T = TypeVar("T")


def to_plain(table: GroupsState) -> Plain:
    return {
        "rules": RULES_VERSION,
        "version": table.version,
        "groups": {name: _group(table.groups[name]) for name in sorted(table.groups)},
    }


def from_plain(data: object) -> GroupsState:
    try:
        outer = _Reader(data)
        check_rules(outer.raw("rules"))
        if outer.number("rules") != RULES_VERSION:
            raise _Wrong("its rules are of an older version")
        groups = {n: _read_group(n, _Reader(g)) for n, g in outer.items("groups")}
        return GroupsState(outer.number("version", low=-1), groups)
    except _Wrong as error:
        raise CorruptLogError(
            f"The checkpoint of the offsets table does not read: {error}.",
            "It is a cache: delete it, and it is made again from the table.",
        ) from error


class _Wrong(Exception):
    pass


def _group(group: GroupState) -> Plain:
    return {
        "alive": group.alive,
        "generation": group.generation,
        "resets": group.resets,
        "active_at": group.active_at,
        "members": {
            name: [encode_subscription(m.said), m.joined, m.version]
            for name, m in sorted(group.members.items())
        },
        "topics": {topic: list(view) for topic, view in sorted(group.topics.items())},
        "added": _numbers_by_topic(group.added),
        "targets": _by_topic(group.targets, lambda target: target),
        "holders": _by_topic(group.holders, list),
        "positions": _by_topic(group.positions, list),
        "marks": _by_topic(group.marks, lambda mark: mark),
        "reset_to": _by_topic(group.reset_to, lambda offset: offset),
        "gone": [list(departure) for departure in group.gone],
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


def _read_group(name: str, data: _Reader) -> GroupState:
    group = GroupState(
        name=name,
        alive=data.boolean("alive"),
        generation=data.number("generation"),
        resets=data.number("resets"),
        members={n: _read_member(n, m) for n, m in data.items("members")},
        topics={t: _tuple(TopicView, v, "ii") for t, v in data.items("topics")},
        added=data.numbers_by_topic("added") if data.has("added") else frozenset(),
        targets=data.partitions("targets", lambda v: _value(v, "s")),
        holders=data.partitions("holders", lambda v: _tuple(Held, v, "si")),
        positions=data.partitions("positions", lambda v: _tuple(Position, v, "isi?isi")),
        marks=data.partitions("marks", lambda v: _value(v, "i")),
        reset_to=data.partitions("reset_to", lambda v: _value(v, "i"))
        if data.has("reset_to")
        else {},
        gone=tuple(_tuple(Departure, v, "sissi") for v in data.rows("gone")),
        active_at=data.number("active_at", low=None),
    )
    if group.topics and not data.has("added"):
        raise _Wrong("'added' is missing")
    if group.reset_to.keys() != group.marks.keys():
        raise _Wrong("'reset_to' does not say where each reset of 'marks' went")
    return group


def _read_member(name: str, data: object) -> Member:
    text, joined, version = _tuple(_MemberRow, data, "sii")
    said = decode_subscription(text)
    if said is None:
        raise _Wrong(f"{text[:100]!r} is not a subscription")
    return Member(name, said, joined, version)


class _MemberRow(NamedTuple):
    said: str
    joined: int
    version: int


def _value(value: object, sort: str) -> Any:
    """``i`` a whole number, ``s`` a string, ``?`` a string or None."""
    right = whole(value) if sort == "i" else isinstance(value, str)
    if not right and not (sort == "?" and value is None):
        raise _Wrong(f"{str(value)[:100]!r} is out of place")
    return value


def _tuple(into: Callable[..., T], data: object, sorts: str) -> T:
    if not isinstance(data, list) or len(data) != len(sorts):
        raise _Wrong(f"{str(data)[:100]!r} is out of place")
    return into(*(_value(value, sort) for value, sort in zip(data, sorts, strict=True)))


class _Reader:
    """A dictionary read with care."""

    def __init__(self, data: object) -> None:
        if not isinstance(data, dict) or not all(isinstance(key, str) for key in data):
            raise _Wrong(f"{str(data)[:100]!r} is not an object")
        self._data: Plain = data

    def has(self, name: str) -> bool:
        return name in self._data

    def raw(self, name: str) -> object:
        if name not in self._data:
            raise _Wrong(f"{name!r} is missing")
        return self._data[name]

    def number(self, name: str, low: int | None = 0) -> int:
        value = self.raw(name)
        if not whole(value) or (low is not None and value < low):
            raise _Wrong(f"{name!r} is not a number that it can be")
        return value

    def boolean(self, name: str) -> bool:
        value = self.raw(name)
        if not isinstance(value, bool):
            raise _Wrong(f"{name!r} is not a boolean")
        return value

    def rows(self, name: str) -> list[object]:
        value = self.raw(name)
        if not isinstance(value, list):
            raise _Wrong(f"{name!r} is not a list")
        return value

    def items(self, name: str) -> list[tuple[str, object]]:
        return sorted(_Reader(self.raw(name))._data.items())

    def numbers_by_topic(self, name: str) -> frozenset[Partition]:
        out: set[Partition] = set()
        for topic, numbers in self.items(name):
            if not isinstance(numbers, list):
                raise _Wrong(f"{name!r} of {topic!r} is not a list")
            out.update((topic, _value(number, "i")) for number in numbers)
        return frozenset(out)

    def partitions(self, name: str, read: Callable[[object], T]) -> dict[Partition, T]:
        out: dict[Partition, T] = {}
        for topic, inner in self.items(name):
            for partition, value in _Reader(inner)._data.items():
                if not partition.isascii() or not partition.isdigit():
                    raise _Wrong(f"{partition[:100]!r} is not a partition")
                out[topic, int(partition)] = read(value)
        return out
