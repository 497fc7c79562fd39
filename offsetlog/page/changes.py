"""The log of what changed: what was changed by the page, and what differed from look to look.

Invariants:

1. Its size is bounded: the oldest lines go first.
2. What is only noticed costs nothing: two looks that were taken anyway are compared.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from typing import NamedTuple

from offsetlog.client.notebook_html import GroupInfo
from offsetlog.client.overview import Overview
from offsetlog.client.topic import TopicInfo

KEPT = 1000


class Change(NamedTuple):
    at: int
    """Milliseconds since 1970: when it was made here, or noticed."""
    kind: str
    """``topic``, ``group`` or ``upkeep``."""
    name: str
    text: str
    by_page: bool


class Changes:
    """The newest of them. One thread appends at a time; any may read."""

    def __init__(self) -> None:
        self._kept: deque[Change] = deque(maxlen=KEPT)

    def add(self, change: Change) -> None:
        self._kept.append(change)

    def notice(self, before: Overview, after: Overview, at: int) -> None:
        self._kept.extend(differences(before, after, at))

    def newest_first(self) -> list[Change]:
        return list(self._kept)[::-1]


def differences(before: Overview, after: Overview, at: int) -> Iterator[Change]:
    """What changed from one look to the next, other than by appends and commits."""
    topics = {topic.name: topic for topic in before.topics}
    for topic in after.topics:
        old = topics.pop(topic.name, None)
        for text in [f"created, with {_count(topic)}"] if old is None else _of_topic(old, topic):
            yield Change(at, "topic", topic.name, text, False)
    for name in topics:
        text = "can't be read" if after.unreadable else "deleted"
        yield Change(at, "topic", name, text, False)
    groups = {group.name: group for group in before.groups}
    for group in after.groups:
        mine = groups.pop(group.name, None)
        for text in ["created"] if mine is None else _of_group(mine, group):
            yield Change(at, "group", group.name, text, False)
    for name in groups:
        yield Change(at, "group", name, "deleted", False)


def _count(topic: TopicInfo) -> str:
    count = len(topic.partitions)
    return f"{count} partition{'' if count == 1 else 's'}"


def _of_topic(old: TopicInfo, new: TopicInfo) -> Iterator[str]:
    if len(old.partitions) != len(new.partitions):
        yield f"{len(old.partitions)} partitions became {len(new.partitions)}"
    for key in sorted(old.settings.keys() | new.settings.keys()):
        if old.settings.get(key) != new.settings.get(key):
            yield f"{key}: {old.settings.get(key)} became {new.settings.get(key)}"
    gone = sum(
        max(0, p.beginning_offset - q.beginning_offset)
        for q, p in zip(old.partitions, new.partitions, strict=False)
    )
    if gone:
        yield f"{gone} record{'' if gone == 1 else 's'} left the log at its beginning"


def _of_group(old: GroupInfo, new: GroupInfo) -> Iterator[str]:
    if new.resets > old.resets:
        yield f"reset (number {new.resets})"
    if len(new.members) != len(old.members):
        yield f"{len(old.members)} members became {len(new.members)}"
    if new.state != old.state:
        yield f"{old.state} became {new.state}"
