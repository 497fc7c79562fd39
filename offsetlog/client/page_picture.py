"""What ``log.page()`` is in a notebook: a picture of now, and where a page runs.

Invariants:

1. Values only: the picture is of the look that it was made from, and needs no server, script or
   network, since a notebook's kernel is often on another machine than its browser.
2. Text from outside is escaped. What is much is shown in part, and says so.
"""

from __future__ import annotations

import datetime as dt
from math import inf
from typing import NamedTuple

from offsetlog.client.name_list import bar, html_table
from offsetlog.client.notebook_html import GroupInfo
from offsetlog.client.overview import Overview
from offsetlog.text import as_html

SHOWN = 50


class PagePicture(NamedTuple):
    """A log as it was at one look: its topics and groups."""

    url: str
    at_ms: int
    overview: Overview
    addresses: tuple[str, ...]
    """Where ``offsetlog page`` shows this log, on this machine."""

    def __repr__(self) -> str:
        where = f", at {', '.join(self.addresses)}" if self.addresses else ""
        counts = f"{len(self.overview.topics)} topics, {len(self.overview.groups)} groups"
        return f"<page of {self.url!r}: {counts}{where}>"

    def _repr_html_(self) -> str:
        at = dt.datetime.fromtimestamp(self.at_ms / 1000, dt.UTC).isoformat(" ", "seconds")
        head = f"<b>{as_html(self.url)}</b> as it was at {as_html(at)}"
        return f"<div>{head}<br>{self._where()}{self._topics()}{self._groups()}</div>"

    def _where(self) -> str:
        if not self.addresses:
            return "No page of it runs on this machine: <code>offsetlog page</code> starts one."
        links = ", ".join(
            f'<a href="{as_html(one)}" target="_blank" rel="noopener">{as_html(one)}</a>'
            for one in self.addresses
        )
        return f"The page runs at {links}"

    def _topics(self) -> str:
        topics = self.overview.topics
        greatest = max((topic.records for topic in topics), default=0)
        rows = [
            (
                topic.name,
                len(topic.partitions),
                topic.records,
                sum(partition.bytes for partition in topic.partitions),
                bar(topic.records, greatest),
            )
            for topic in topics[:SHOWN]
        ]
        rest = _rest(len(topics), "topics")
        return html_table(("topic", "partitions", "records", "bytes", ""), rows) + rest

    def _groups(self) -> str:
        groups = sorted(self.overview.groups, key=lambda group: -_behind(group))
        if not groups:
            return ""
        greatest = max(group.total.records or 0 for group in groups)
        rows = [_group_row(group, greatest) for group in groups[:SHOWN]]
        names = ("group", "state", "members", "lag", "bytes", "seconds", "")
        return html_table(names, rows) + _rest(len(groups), "groups")


def _behind(group: GroupInfo) -> float:
    """What is not known comes first."""
    return inf if group.total.records is None else group.total.records


def _group_row(group: GroupInfo, greatest: int) -> tuple[object, ...]:
    total = group.total
    members = len(group.members)
    return (group.name, group.state, members, *total, bar(total.records or 0, greatest))


def _rest(count: int, what: str) -> str:
    return f"<p>and {count - SHOWN:,} more {what}</p>" if count > SHOWN else ""
