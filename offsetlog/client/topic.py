"""What ``log.topic(...)`` and ``log.topics()`` show.

Invariants:

1. Every number comes from a fresh look, so it holds all that was acknowledged before the call.
2. A view can be shown: as text, and as a table in a notebook.
"""

from __future__ import annotations

import html
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from offsetlog.client.name_list import NameList, bar, table_head
from offsetlog.core.topic.plan import estimate_bytes
from offsetlog.core.topic.state import TopicState
from offsetlog.engine.topic import lifecycle
from offsetlog.engine.topic.open_topic import OpenTopic
from offsetlog.values import CONFIG_KEYS, parse_config


class PartitionInfo(NamedTuple):
    partition: int
    beginning_offset: int
    end_offset: int
    bytes: int
    """About as many: keys, values and headers, before compression."""

    @property
    def records(self) -> int:
        return self.end_offset - self.beginning_offset


class TopicInfo(NamedTuple):
    name: str
    partitions: tuple[PartitionInfo, ...]
    config: dict[str, str]
    """What was set; ``settings`` has the defaults too."""
    settings: dict[str, str]
    entries: int

    def to_dict(self) -> dict[str, object]:
        return {
            "name": self.name,
            "partitions": [part._asdict() for part in self.partitions],
            "config": self.config,
            "settings": self.settings,
            "entries": self.entries,
        }

    @property
    def records(self) -> int:
        return sum(p.records for p in self.partitions)

    def _repr_html_(self) -> str:
        greatest = max((p.records for p in self.partitions), default=0)
        body = "".join(
            f"<tr><td>{p.partition}</td><td>{p.beginning_offset:,}</td><td>{p.end_offset:,}</td>"
            f"<td>{p.records:,}</td><td>{p.bytes:,}</td><td>{bar(p.records, greatest)}</td></tr>"
            for p in self.partitions
        )
        head = table_head("partition", "beginning", "end", "records", "bytes", "")
        return f"<b>{html.escape(self.name)}</b><table>{head}{body}</table>"


class Topic:
    """One topic of a log."""

    def __init__(self, topic: OpenTopic) -> None:
        self._topic = topic

    @property
    def name(self) -> str:
        """The name of the topic."""
        return self._topic.name

    @property
    def partitions(self) -> int:
        """The number of partitions."""
        return self._topic.state().partitions

    def beginning_offsets(self) -> dict[int, int]:
        """The first offset that each partition still holds."""
        state = self._topic.state()
        return {p: state.start(p) for p in range(state.partitions)}

    def end_offsets(self) -> dict[int, int]:
        """The next offset of each partition."""
        state = self._topic.state()
        return {p: state.end(p) for p in range(state.partitions)}

    def offsets_for_times(self, times: Mapping[int, int]) -> dict[int, int | None]:
        """The first offset at or after a time (milliseconds) for each partition; None: none."""
        self._topic.state()
        return {p: self._topic.offset_for_time(p, time) for p, time in times.items()}

    def describe(self) -> TopicInfo:
        """Partitions, offsets, sizes and settings."""
        return describe(self._topic.state())

    def alter(
        self,
        partitions: int | None = None,
        config: Mapping[str, object] | None = None,
        unset: Sequence[str] = (),
    ) -> TopicInfo:
        """More partitions, other settings, or settings back to their defaults."""
        return describe(lifecycle.alter(self._topic, partitions, config, tuple(unset)))

    def delete_records(self, before: Mapping[int, int]) -> dict[int, int]:
        """Delete what lies below an offset (-1: all) of each partition; the new log starts."""
        return lifecycle.trim(self._topic, before)

    def forget_app_ids(self, *app_ids: str) -> None:
        """Forget callers' keys for good: a late copy of their batches would count again."""
        lifecycle.forget(self._topic, app_ids)

    def __repr__(self) -> str:
        return f"Topic({self.name!r})"

    def _repr_html_(self) -> str:
        return self.describe()._repr_html_()


class TopicList(NameList[TopicInfo]):
    """The names of a log's topics, with what a notebook shows of them."""

    def _repr_html_(self) -> str:
        greatest = max((topic.records for topic in self.infos), default=0)
        body = "".join(
            f"<tr><td>{html.escape(topic.name)}</td><td>{len(topic.partitions)}</td>"
            f"<td>{topic.records:,}</td><td>{bar(topic.records, greatest)}</td></tr>"
            for topic in self.infos
        )
        return f"<table>{table_head('topic', 'partitions', 'records', '')}{body}</table>"


def describe(state: TopicState) -> TopicInfo:
    config = dict(state.config)
    settings = parse_config(config)
    return TopicInfo(
        state.topic,
        tuple(
            PartitionInfo(
                p,
                state.start(p),
                state.end(p),
                estimate_bytes(state, p, state.start(p), state.end(p)),
            )
            for p in range(state.partitions)
        ),
        config,
        {key: str(getattr(settings, field)) for key, field in CONFIG_KEYS.items()},
        state.tip,
    )
