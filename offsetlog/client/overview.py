"""All topics and groups of a log at one look, as values.

Invariants:

1. Values in, values out: nothing here asks the storage or reads a record, so what a look costs
   does not depend on partitions and groups.
2. Positions are older than the ends that they are compared with, so no lag is missed.
3. What is wrong with one topic does not hide the others.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from offsetlog.client.group import group_info
from offsetlog.client.notebook_html import GroupInfo
from offsetlog.client.topic import TopicInfo
from offsetlog.core.group.facts import Partition
from offsetlog.core.group.lag import group_lag, reading_from
from offsetlog.core.group.reset import OffsetSpan
from offsetlog.core.group.state import GroupsState, GroupState
from offsetlog.core.topic.state import TopicState
from offsetlog.engine.group.lag import estimated_backlog, spans_of
from offsetlog.errors import OffsetLogError


class Overview(NamedTuple):
    topics: tuple[TopicInfo, ...]
    groups: tuple[GroupInfo, ...]
    unreadable: Mapping[str, OffsetLogError]
    """What is wrong with the topics that can't be read, by folder."""


def overview_of(
    topics: Sequence[tuple[TopicState, TopicInfo]],
    groups: GroupsState,
    unreadable: Mapping[str, OffsetLogError],
    now_ms: int,
) -> Overview:
    """``groups`` must have been looked at before the topics."""
    states = {state.topic: state for state, _ in topics}
    spans = spans_of(states)
    return Overview(
        tuple(info for _, info in topics),
        tuple(
            _describe(group, states, spans, now_ms)
            for _, group in sorted(groups.groups.items())
            if group.alive
        ),
        unreadable,
    )


def _describe(
    group: GroupState,
    states: Mapping[str, TopicState],
    spans: Mapping[Partition, OffsetSpan],
    now_ms: int,
) -> GroupInfo:
    backlogs = {
        (topic, number): estimated_backlog(states[topic], number, offset)
        for (topic, number), offset in reading_from(group, spans).items()
    }
    return group_info(group, group_lag(group, spans, backlogs, now_ms))
