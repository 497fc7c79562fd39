"""What ``log.topic(...)`` and ``log.topics()`` show.

Invariants:

1. Every number comes from a fresh look, so it holds all that was acknowledged before the call.
2. A view can be shown: as text, and as a table in a notebook.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from offsetlog.arguments import (
    CALLBACK,
    CONFIG,
    OFFSET,
    PARTITION,
    TEXT,
    TIME_MS,
    WHOLE,
    checked,
    many,
    mapping,
    short_text,
)
from offsetlog.client.name_list import NameList, bar, html_table
from offsetlog.client.rules import BYTES
from offsetlog.core.topic.plan import estimate_bytes, estimate_records
from offsetlog.core.topic.state import TopicState
from offsetlog.engine.topic import lifecycle
from offsetlog.engine.topic.open_topic import OpenTopic
from offsetlog.engine.topic.purge import Removal, plan_trim
from offsetlog.engine.upkeep.erasure import Erased, Progress, erase
from offsetlog.engine.upkeep.rounds import with_space
from offsetlog.text import as_html
from offsetlog.values import CONFIG_KEYS, parse_config


class PartitionInfo(NamedTuple):
    partition: int
    beginning_offset: int
    end_offset: int
    bytes: int
    """About as many: keys, values and headers, before compression."""

    records: int
    """Exactly, but where the log start, or a rewrite, cut a file with gaps or a part of the index
    that names one: there about as many, and not 0 while there are any."""


class TableInfo(NamedTuple):
    """The Delta table that a topic is."""

    path: str
    """Where readers of Delta find it: a path or a URL."""
    version: int
    """The newest one."""
    end_offsets: dict[int, int]
    """For each partition the offset up to which the table has everything."""


class TopicInfo(NamedTuple):
    name: str
    partitions: tuple[PartitionInfo, ...]
    config: dict[str, str]
    """What was set; ``settings`` has the defaults too."""
    settings: dict[str, str]
    entries: int
    table: TableInfo | None = None
    """Where it is a Delta table too."""

    def to_dict(self) -> dict[str, object]:
        return {
            "name": self.name,
            "partitions": [part._asdict() for part in self.partitions],
            "config": self.config,
            "settings": self.settings,
            "entries": self.entries,
            "table": None if self.table is None else self.table._asdict(),
        }

    @property
    def records(self) -> int:
        return sum(p.records for p in self.partitions)

    def _repr_html_(self) -> str:
        greatest = max((p.records for p in self.partitions), default=0)
        names = ("partition", "beginning", "end", "records", "bytes", "")
        rows = [
            (
                p.partition,
                p.beginning_offset,
                p.end_offset,
                p.records,
                p.bytes,
                bar(p.records, greatest),
            )
            for p in self.partitions
        ]
        where = "" if self.table is None else f"<br>Delta table: {as_html(self.table.path)}"
        return f"<b>{as_html(self.name)}</b>{where}{html_table(names, rows)}"


class Topic:
    """One topic of a log."""

    def __init__(self, topic: OpenTopic, check_open: Callable[[], None]) -> None:
        self._opened = topic
        self._check_open = check_open

    @property
    def _topic(self) -> OpenTopic:
        """For each use of it: the log may be closed."""
        self._check_open()
        return self._opened

    @property
    def name(self) -> str:
        """The name of the topic."""
        return self._opened.name

    @property
    def partitions(self) -> int:
        """The number of partitions."""
        return self._topic.state().partitions

    def beginning_offsets(self) -> dict[int, int]:
        """The first offset that each partition still has."""
        state = self._topic.state()
        return {p: state.start(p) for p in range(state.partitions)}

    def end_offsets(self) -> dict[int, int]:
        """The next offset of each partition."""
        state = self._topic.state()
        return {p: state.end(p) for p in range(state.partitions)}

    @checked(times=mapping(PARTITION, TIME_MS))
    def offsets_for_times(self, times: Mapping[int, int]) -> dict[int, int | None]:
        """The first offset at or after a time (in milliseconds) for each partition, or None."""
        self._topic.state()
        return {p: self._topic.offset_for_time(p, time) for p, time in times.items()}

    def describe(self) -> TopicInfo:
        """Partitions, offsets, sizes and settings, and its table."""
        info = describe(self._topic.state())
        return info._replace(table=self.table()) if self._topic.config.has_table else info

    def table(self) -> TableInfo | None:
        """Where the topic's Delta table is, and how far it goes; None where it has none."""
        return table_of(self._topic)

    @checked(partitions=WHOLE, config=CONFIG, unset=many(TEXT))
    def alter(
        self,
        partitions: int | None = None,
        config: Mapping[str, object] | None = None,
        unset: Sequence[str] = (),
    ) -> TopicInfo:
        """Add partitions, change settings, or set settings back to their defaults."""
        return describe(lifecycle.alter(self._topic, partitions, config, tuple(unset)))

    @checked(before=mapping(PARTITION, OFFSET))
    def delete_records(self, before: Mapping[int, int]) -> dict[int, int]:
        """Delete the records before an offset (-1: all) of each partition. Returns the new log
        starts. No read that begins five seconds later, in whatever process, has one of them."""
        topic = self._topic
        return with_space(topic, lambda: lifecycle.trim(topic, before))

    @checked(before=mapping(PARTITION, OFFSET))
    def removal(self, before: Mapping[int, int] | None = None) -> Removal:
        """What ``delete_records(before)`` would remove; without offsets, all that there is.
        Nothing is changed."""
        return plan_trim(self._topic, before)

    @checked(keys=many(BYTES), progress=CALLBACK, agree=CALLBACK)
    def erase(
        self,
        keys: Sequence[bytes],
        *,
        progress: Progress | None = None,
        agree: Callable[[Removal], None] | None = None,
    ) -> Erased:
        """Remove all records of these keys for good. No read that begins five seconds after this
        returned, or later, has one of them, whatever process reads; ``maintain`` deletes the files
        that held them once the grace period is over. Offsets stay. Costs a look at every key of
        the topic. Later records of a key are new ones. ``agree`` is called with what was found,
        before anything is removed; nothing is if it raises."""
        topic = self._topic
        return with_space(topic, lambda: erase(topic, keys, progress, agree))

    @checked(app_ids=short_text())
    def forget_app_ids(self, *app_ids: str) -> None:
        """Forget these writers for good: a late retry of one of their batches would be written
        again."""
        lifecycle.forget(self._topic, app_ids)

    def __repr__(self) -> str:
        return f"Topic({self.name!r})"

    def _repr_html_(self) -> str:
        return self.describe()._repr_html_()


class TopicList(NameList[TopicInfo]):
    """The names of a log's topics, with what a notebook shows of them."""

    def _repr_html_(self) -> str:
        greatest = max((topic.records for topic in self.infos), default=0)
        rows = [
            (topic.name, len(topic.partitions), topic.records, bar(topic.records, greatest))
            for topic in self.infos
        ]
        return html_table(("topic", "partitions", "records", ""), rows)


def table_of(topic: OpenTopic) -> TableInfo | None:
    state = topic.state()
    path = topic.table.path
    head = topic.table.head() if path is not None and topic.table.is_wanted else None
    if path is None or head is None or head.closed:
        return None
    known = dict(enumerate(head.point.ends))
    ends = {p: known.get(p, state.start(p)) for p in range(state.partitions)}
    return TableInfo(path, head.version, ends)


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
                estimate_records(state, p, state.start(p), state.end(p)),
            )
            for p in range(state.partitions)
        ),
        config,
        {key: str(getattr(settings, field)) for key, field in CONFIG_KEYS.items()},
        state.tip,
    )
