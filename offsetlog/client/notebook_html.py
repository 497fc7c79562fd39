"""What is shown of groups: values with a table and a small picture of their own.

Invariants:

1. Values only: nothing here looks anything up.
2. Text from outside is escaped before a notebook gets it.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from offsetlog.arguments import PATH, checked
from offsetlog.client.name_list import NameList, Picture, bar, html_table
from offsetlog.core.group.lag import Lag, Total
from offsetlog.core.group.positions_csv import format_positions
from offsetlog.core.group.reset import Move
from offsetlog.errors import InvalidRequestError
from offsetlog.text import as_html, printable, quoted
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


class LagTable(dict[TopicPartition, int | None]):
    """Records behind, by partition; None: there is no commit yet, and where reading begins is not
    known. ``lines`` has more, ``total`` the sums."""

    def __init__(self, lines: Sequence[Lag], total: Total) -> None:
        super().__init__(
            {
                TopicPartition(line.topic, line.partition): line.records
                for line in lines
                if line.end is not None
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
        head = f"<b>{as_html(self.name)}</b> {as_html(self.state)}, {workers}"
        return head + _lag_html(self.partitions, self.total)


def _lag_html(lines: Sequence[Lag], total: Total) -> str:
    most = max((line.records or 0 for line in lines), default=0)
    names = ("topic", "partition", "committed", "end", "lag", "bytes", "seconds", "member", "")
    rows = [
        (line.topic, line.partition, line.committed, line.end, line.records, line.bytes,
         line.seconds, line.member or "", bar(line.records or 0, most))
        for line in lines
    ]  # fmt: skip
    return html_table(names, rows, ("total", "", "", "", *total, "", ""))


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
        return html_table(("group", "state", "members", "partitions"), self.infos)


class ResetPlan(NamedTuple):
    """Before and after of a reset, for each partition."""

    group: str
    moves: tuple[Move, ...]
    executed: bool

    @property
    def warnings(self) -> tuple[str, ...]:
        """Of what lay outside the log, and was clamped to it."""
        return tuple(move.warning for move in self.moves if move.warning)

    @property
    def offsets(self) -> dict[TopicPartition, int]:
        """Where each partition is to be, or is."""
        return {TopicPartition(move.topic, move.partition): move.after for move in self.moves}

    @checked(path=PATH)
    def to_csv(self, path: str | Path | None = None) -> str:
        """The lines that ``from_file`` takes; written to ``path`` if it is given."""
        csv = format_positions(self.offsets)
        if path is not None:
            try:
                Path(path).write_text(csv, encoding="utf-8")
            except (OSError, ValueError) as error:
                why = getattr(error, "strerror", None) or error
                raise InvalidRequestError(f"{quoted(str(path))} can't be written: {why}.") from None
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
        return f"<reset of {self.group!r}, {mode}: {printable(moves)}>"

    def _repr_html_(self) -> str:
        names = ("topic", "partition", "before", "", "after", "", "")
        rows = [
            (m.topic, m.partition, m.before, _picture(m, m.before), m.after, _picture(m, m.after),
             m.warning)
            for m in self.moves
        ]  # fmt: skip
        what = "was reset" if self.executed else "dry run: nothing was changed"
        return f"<b>{as_html(self.group)}</b> {what}{html_table(names, rows)}"


def _picture(move: Move, position: int | None) -> Picture:
    """How much of the partition lies before a position."""
    inside = 0 if position is None else min(max(position, move.start), move.end) - move.start
    return bar(inside, move.end - move.start)
