"""Where the demo's query writes its results: a table of SQLite, as simple as can be.

Invariants:

1. A batch is written in one transaction, and takes the place of what the same batch wrote when
   it was run before. That is all that ``foreachBatch`` asks of a sink.
2. Nothing forbids two lines for one record: the reckoning would see them.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable
from contextlib import closing
from typing import NamedTuple

_TABLE = """
CREATE TABLE IF NOT EXISTS invoices (
    batch INTEGER, partition INTEGER, place INTEGER, source TEXT, n INTEGER, cents INTEGER
)
"""
Line = tuple[int, int, str, int, int]
"""Partition, offset, source, number of the order, cents."""


class Count(NamedTuple):
    """What the ledger says of some batches."""

    lines: int
    places: int
    """Distinct (partition, offset)."""
    orders: int
    """Distinct (source, number)."""
    cents: int

    @property
    def twice(self) -> int:
        return self.lines - min(self.places, self.orders)


class Ledger:
    def __init__(self, path: str) -> None:
        self._path = path
        with closing(self._open()) as db, db:
            db.execute("PRAGMA journal_mode=WAL")
            db.execute(_TABLE)

    def _open(self) -> sqlite3.Connection:
        return sqlite3.connect(self._path, timeout=30)

    def write(self, batch: int, lines: Iterable[Line]) -> None:
        with closing(self._open()) as db, db:
            db.execute("DELETE FROM invoices WHERE batch = ?", (batch,))
            rows = ((batch, *line) for line in lines)
            db.executemany("INSERT INTO invoices VALUES (?, ?, ?, ?, ?, ?)", rows)

    def size(self) -> tuple[int, int]:
        """Lines, and the last batch (-1: none)."""
        with closing(self._open()) as db:
            query = "SELECT count(*), coalesce(max(batch), -1) FROM invoices"
            lines, batch = db.execute(query).fetchone()
        return lines, batch

    def count(self, first: int, last: int) -> Count:
        """Of the batches ``first`` to ``last``."""
        query = """
            SELECT count(*), count(DISTINCT partition || ':' || place),
                   count(DISTINCT source || ':' || n), coalesce(sum(cents), 0)
            FROM invoices WHERE batch BETWEEN ? AND ?
        """
        with closing(self._open()) as db:
            return Count(*db.execute(query, (first, last)).fetchone())

    def numbers(self, source: str, first: int, last: int) -> set[int]:
        """The orders of a source that were billed."""
        query = "SELECT DISTINCT n FROM invoices WHERE source = ? AND batch BETWEEN ? AND ?"
        with closing(self._open()) as db:
            return {n for (n,) in db.execute(query, (source, first, last))}
