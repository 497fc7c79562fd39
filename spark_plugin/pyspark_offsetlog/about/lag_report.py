"""How far a query was behind after one of its batches: a value that shows itself.

Invariants:

1. Values only: nothing here looks anything up.
2. None stands for what cannot be known, and is shown as ``-``.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from offsetlog.client.notebook_html import LagTable
from offsetlog.core.group.lag import Lag, total
from offsetlog.text import as_html, printable

SHOWN = 20
HEAD = ("TOPIC", "PARTITION", "POSITION", "LOG-END", "RECORDS", "BYTES", "SECONDS")


class LagReport(NamedTuple):
    """How far a query was behind after a micro-batch, a line for each partition."""

    query: str
    """Its name, or its id where it has none."""
    run_id: str
    batch_id: int
    at: str
    """When the batch began, as Spark says it (ISO 8601)."""
    groups: tuple[str, ...]
    lines: tuple[Lag, ...]
    """One for each partition; ``committed`` is where the batch ended."""

    @property
    def lag(self) -> LagTable:
        """Records behind by partition, as ``{("orders", 0): 12}``; with ``lines`` and
        ``total``."""
        return LagTable(self.lines, total(self.lines))

    def to_dicts(self) -> list[dict[str, Any]]:
        """A row for each partition, for pandas and for pictures."""
        return [
            {
                "query": self.query,
                "batch": self.batch_id,
                "at": self.at,
                "topic": line.topic,
                "partition": line.partition,
                "position": line.committed,
                "log_end": line.end,
                "records": line.records,
                "bytes": line.bytes,
                "seconds": line.seconds,
            }
            for line in self.lines
        ]

    def __str__(self) -> str:
        rows = [
            (line.topic, line.partition, line.committed, line.end, line.records, line.bytes,
             line.seconds)
            for line in self.lines[:SHOWN]
        ]  # fmt: skip
        cells = [HEAD, *(tuple(_cell(value) for value in row) for row in rows)]
        widths = [max(len(row[column]) for row in cells) for column in range(len(HEAD))]
        out = [self._head()]
        for row in cells:
            first, *others = (text.rjust(width) for text, width in zip(row, widths, strict=True))
            out.append("  " + "  ".join((first.strip().ljust(widths[0]), *others)))
        if len(self.lines) > SHOWN:
            out.append(f"  and {len(self.lines) - SHOWN} more partitions")
        return "\n".join(out)

    def _head(self) -> str:
        behind = self.lag.total
        size, age = _cell(behind.bytes), _cell(behind.seconds)
        group = f" (group {', '.join(self.groups)})" if self.groups else ""
        return printable(
            f"{self.query}{group}, batch {self.batch_id}: "
            f"{_cell(behind.records)} records, {size} bytes, {age} s behind"
        )

    def _repr_html_(self) -> str:
        return f"<b>{as_html(self._head())}</b>{self.lag._repr_html_()}"


def _cell(value: object) -> str:
    if value is None:
        return "-"
    if isinstance(value, float):
        return f"{value:,.1f}"
    return f"{value:,}" if isinstance(value, int) else printable(value)
