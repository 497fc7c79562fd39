"""What is shown of groups: values with a table and a small picture of their own.

Invariants:

1. Values only: nothing here looks anything up.
2. Text from outside is escaped before a notebook gets it.
"""

from __future__ import annotations

import html
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from offsetlog.client.name_list import NameList, bar, table_head
from offsetlog.core.group.lag import Lag, Total
from offsetlog.core.group.positions_csv import format_positions
from offsetlog.core.group.reset import Move, PlannedReset
from offsetlog.values import TopicPartition


class MemberInfo(NamedTuple):
    member: str
    client: str
    host: str
    topics: tuple[str, ...]
    strategy: str
    session_timeout_ms: int
    partitions: tuple[TopicPartition, ...]

    def to_dict(self) -> dict[str, Any]:
        return {**self._asdict(), "partitions": [list(p) for p in self.partitions]}


class LagTable(dict[TopicPartition, int]):
    """Records behind, by partition. ``lines`` has more, ``total`` the sums."""

    def __init__(self, lines: Sequence[Lag], total: Total) -> None:
        super().__init__(
            {
                TopicPartition(line.topic, line.partition): line.records
                for line in lines
                if line.records is not None
            }
        )
        self.lines = tuple(lines)
        self.total = total

    def _repr_html_(self) -> str:
        return _lag_html(self.lines, self.total)


class GroupInfo(NamedTuple):
    name: str
    state: str
    generation: int
    resets: int
    members: tuple[MemberInfo, ...]
    partitions: tuple[Lag, ...]
    total: Total

    @property
    def lag(self) -> LagTable:
        return LagTable(self.partitions, self.total)

    def to_dict(self) -> dict[str, Any]:
        return {
            "group": self.name,
            "state": self.state,
            "generation": self.generation,
            "resets": self.resets,
            "members": [member.to_dict() for member in self.members],
            "partitions": [line._asdict() for line in self.partitions],
            "total": self.total._asdict(),
        }

    def _repr_html_(self) -> str:
        count = len(self.members)
        workers = f"{count} member{'' if count == 1 else 's'}"
        head = f"<b>{html.escape(self.name)}</b> {html.escape(self.state)}, {workers}"
        return head + _lag_html(self.partitions, self.total)


def _lag_html(lines: Sequence[Lag], total: Total) -> str:
    most = max((line.records or 0 for line in lines), default=0)
    body = "".join(
        "<tr>"
        + "".join(f"<td>{html.escape(_cell(value))}</td>" for value in _lag_cells(line))
        + f"<td>{bar(line.records or 0, most)}</td></tr>"
        for line in lines
    )
    names = ("topic", "partition", "committed", "end", "lag", "bytes", "seconds", "member", "")
    last = (
        f"<tr><th colspan=4>total</th><th>{total.records:,}</th><th>{_cell(total.bytes)}</th>"
        f"<th>{_cell(total.seconds)}</th><th></th><th></th></tr>"
    )
    return f"<table>{table_head(*names)}{body}{last}</table>"


def _lag_cells(line: Lag) -> tuple[Any, ...]:
    return (
        line.topic, line.partition, line.committed, line.end, line.records, line.bytes,
        line.seconds, line.member or "",
    )  # fmt: skip


def _cell(value: object) -> str:
    if value is None:
        return "-"
    if isinstance(value, float):
        return f"{value:,.1f}"
    return f"{value:,}" if isinstance(value, int) else str(value)


class GroupSummary(NamedTuple):
    name: str
    state: str
    members: int
    partitions: int

    def to_dict(self) -> dict[str, Any]:
        return self._asdict()


class GroupList(NameList[GroupSummary]):
    """The names of a log's groups, with what a notebook shows of them."""

    def _repr_html_(self) -> str:
        body = "".join(
            f"<tr><td>{html.escape(s.name)}</td><td>{s.state}</td><td>{s.members}</td>"
            f"<td>{s.partitions}</td></tr>"
            for s in self.infos
        )
        return f"<table>{table_head('group', 'state', 'members', 'partitions')}{body}</table>"


class ResetPlan:
    """Before and after of a reset, for each partition."""

    def __init__(self, group: str, plan: PlannedReset, *, executed: bool) -> None:
        self.group = group
        self.moves: tuple[Move, ...] = plan.moves
        self.warnings = plan.warnings
        self.executed = executed

    @property
    def offsets(self) -> dict[TopicPartition, int]:
        """Where each partition is to be, or is."""
        return {TopicPartition(move.topic, move.partition): move.after for move in self.moves}

    def to_csv(self, path: str | Path | None = None) -> str:
        """The lines that ``from_file`` takes; written to ``path`` if it is given."""
        csv = format_positions(self.offsets)
        if path is not None:
            Path(path).write_text(csv, encoding="utf-8")
        return csv

    def to_dict(self) -> dict[str, Any]:
        return {
            "group": self.group,
            "executed": self.executed,
            "partitions": [move._asdict() for move in self.moves],
        }

    def __repr__(self) -> str:
        mode = "done" if self.executed else "dry run"
        moves = ", ".join(
            f"{m.topic}-{m.partition}: {'-' if m.before is None else m.before} -> {m.after}"
            for m in self.moves
        )
        return f"<reset of {self.group!r}, {mode}: {moves}>"

    def _repr_html_(self) -> str:
        body = "".join(
            f"<tr><td>{html.escape(m.topic)}</td><td>{m.partition}</td>"
            f"<td>{_cell(m.before)}</td><td>{_picture(m, m.before)}</td>"
            f"<td>{m.after:,}</td><td>{_picture(m, m.after)}</td>"
            f"<td>{html.escape(m.warning)}</td></tr>"
            for m in self.moves
        )
        names = ("topic", "partition", "before", "", "after", "", "")
        what = "was reset" if self.executed else "dry run: nothing was changed"
        title = f"<b>{html.escape(self.group)}</b> {what}"
        return f"{title}<table>{table_head(*names)}{body}</table>"


def _picture(move: Move, at: int | None) -> str:
    """How much of the partition lies before a position."""
    inside = 0 if at is None else min(max(at, move.start), move.end) - move.start
    return bar(inside, move.end - move.start)
