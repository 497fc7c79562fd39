"""What ``log.topic(...)`` and ``log.topics()`` show.

Invariants:

1. Every number comes from a fresh look, so it holds all that was acknowledged before the call.
2. A view can be shown: as text, and as a table in a notebook.
"""

from __future__ import annotations

import html
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from offsetlog.core.topic import plan as fetch
from offsetlog.core.topic.state import TopicState
from offsetlog.engine.topic import lifecycle as admin
from offsetlog.engine.topic.open_topic import OpenTopic
from offsetlog.values import CONFIG_KEYS, parse_config


class PartitionInfo(NamedTuple):
    partition: int
    beginning_offset: int
    end_offset: int
    bytes: int
    """About as many: keys, values and headers, before compression."""


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
        return sum(p.end_offset - p.beginning_offset for p in self.partitions)

    def _repr_html_(self) -> str:
        most = max((p.end_offset - p.beginning_offset for p in self.partitions), default=0)
        body = "".join(
            f"<tr><td>{p.partition}</td><td>{p.beginning_offset:,}</td><td>{p.end_offset:,}</td>"
            f"<td>{p.end_offset - p.beginning_offset:,}</td><td>{p.bytes:,}</td>"
            f"<td>{bar(p.end_offset - p.beginning_offset, most)}</td></tr>"
            for p in self.partitions
        )
        head = table_head("partition", "beginning", "end", "records", "bytes", "")
        return f"<b>{html.escape(self.name)}</b><table>{head}{body}</table>"


def bar(value: int, most: int, width: int = 120) -> str:
    """A small picture of a number beside the greatest one."""
    filled = 0 if most <= 0 else max(1 if value > 0 else 0, width * value // most)
    return (
        f'<div style="background:#e5e7eb;width:{width}px;height:10px">'
        f'<div style="background:#2563eb;width:{filled}px;height:10px"></div></div>'
    )


def table_head(*names: str) -> str:
    return "<tr>" + "".join(f"<th>{html.escape(name)}</th>" for name in names) + "</tr>"


class Topic:
    """One topic of a log."""

    def __init__(self, handle: OpenTopic) -> None:
        self._handle = handle

    @property
    def name(self) -> str:
        return self._handle.name

    @property
    def partitions(self) -> int:
        return self._handle.state().partitions

    def beginning_offsets(self) -> dict[int, int]:
        """The first offset that each partition still holds."""
        state = self._handle.state()
        return {p: state.start(p) for p in range(state.partitions)}

    def end_offsets(self) -> dict[int, int]:
        """The next offset of each partition."""
        state = self._handle.state()
        return {p: state.end(p) for p in range(state.partitions)}

    def offsets_for_times(self, times: Mapping[int, int]) -> dict[int, int | None]:
        """The first offset at or after a time (milliseconds) for each partition; None: none."""
        self._handle.state()
        return {p: self._handle.offset_for_time(p, time) for p, time in times.items()}

    def describe(self) -> TopicInfo:
        state = self._handle.state()
        return info(self._handle, state)

    def alter(
        self,
        partitions: int | None = None,
        config: Mapping[str, object] | None = None,
        unset: Sequence[str] = (),
    ) -> TopicInfo:
        """More partitions, other settings, or settings back to their defaults."""
        return info(self._handle, admin.alter(self._handle, partitions, config, tuple(unset)))

    def delete_records(self, before: Mapping[int, int]) -> dict[int, int]:
        """Delete what lies below an offset (-1: all) of each partition; the new log starts."""
        return admin.trim(self._handle, before)

    def forget_app_ids(self, *app_ids: str) -> None:
        """Forget callers' keys for good: a late copy of their batches would count again."""
        admin.forget(self._handle, app_ids)

    def __repr__(self) -> str:
        return f"Topic({self.name!r})"

    def _repr_html_(self) -> str:
        return self.describe()._repr_html_()


class TopicList(Sequence[str]):
    """The names of a log's topics, with what a notebook shows of them."""

    def __init__(self, infos: Sequence[TopicInfo]) -> None:
        self.infos = tuple(infos)

    def __getitem__(self, i):  # type: ignore[no-untyped-def]
        names = [told.name for told in self.infos]
        return names[i]

    def __len__(self) -> int:
        return len(self.infos)

    def __iter__(self) -> Iterator[str]:
        return (told.name for told in self.infos)

    def __eq__(self, other: object) -> bool:
        return list(self) == (list(other) if isinstance(other, TopicList) else other)

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return repr(list(self))

    def _repr_html_(self) -> str:
        most = max((told.records for told in self.infos), default=0)
        body = "".join(
            f"<tr><td>{html.escape(told.name)}</td><td>{len(told.partitions)}</td>"
            f"<td>{told.records:,}</td><td>{bar(told.records, most)}</td></tr>"
            for told in self.infos
        )
        return f"<table>{table_head('topic', 'partitions', 'records', '')}{body}</table>"


def info(handle: OpenTopic, state: TopicState) -> TopicInfo:
    config = dict(state.config)
    settings = parse_config(config)
    return TopicInfo(
        state.topic,
        tuple(
            PartitionInfo(
                p,
                state.start(p),
                state.end(p),
                fetch.estimate_bytes(state, p, state.start(p), state.end(p)),
            )
            for p in range(state.partitions)
        ),
        config,
        {key: str(getattr(settings, field)) for key, field in CONFIG_KEYS.items()},
        state.tip,
    )
