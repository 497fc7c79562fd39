"""The readers' work: the rule in ``pricing.py``, and the ledger, a table in SQLite.

Invariants:

1. The rule is read again for each batch, so a fix needs no restart. An invoice has the rule's
   version, which distinguishes the first reading of the topic from the replay.
2. A batch that starts at some offset of a partition replaces an earlier one that started there: a
   reader that died before its commit leaves no duplicates.
3. Nothing forbids two invoices for one record: the reckoning would see them.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterable
from contextlib import closing
from pathlib import Path
from typing import Any

WRONG = """VERSION = 1

def cents(order):
    return order["price"]
"""
RIGHT = """VERSION = 2

def cents(order):
    return order["price"] * order["pieces"]
"""
_TABLE = """
CREATE TABLE IF NOT EXISTS invoices (
    version INTEGER, partition INTEGER, first INTEGER, place INTEGER,
    sender TEXT, number INTEGER, cents INTEGER
);
CREATE INDEX IF NOT EXISTS batches ON invoices (version, partition, first);
"""


class Billing:
    """The rule and the ledger in a folder."""

    def __init__(self, folder: Path) -> None:
        self.rule = folder / "pricing.py"
        self._ledger = folder / "ledger.db"
        with closing(self._open()) as db, db:
            db.execute("PRAGMA journal_mode=WAL")
            db.executescript(_TABLE)

    def _open(self) -> sqlite3.Connection:
        return sqlite3.connect(self._ledger, timeout=30)

    def bill(self, records: Iterable[tuple[int, int, bytes]]) -> None:
        """Write an invoice for each (partition, offset, value), in one transaction."""
        rule: dict[str, Any] = {}
        exec(self.rule.read_text(), rule)
        version = rule["VERSION"]
        first: dict[int, int] = {}
        invoices = []
        for partition, offset, value in records:
            order = json.loads(value)
            first[partition] = min(offset, first.get(partition, offset))
            cents = rule["cents"](order)
            invoices.append((partition, offset, order["sender"], order["number"], cents))
        rows = ((version, p, first[p], *others) for p, *others in invoices)
        with closing(self._open()) as db, db:
            db.executemany(
                "DELETE FROM invoices WHERE version = ? AND partition = ? AND first = ?",
                [(version, *batch) for batch in first.items()],
            )
            db.executemany("INSERT INTO invoices VALUES (?, ?, ?, ?, ?, ?, ?)", rows)

    def invoices(self) -> dict[int, int]:
        """Their number, by version."""
        return dict(self._query("SELECT version, count(*) FROM invoices GROUP BY version"))

    def count(self, version: int) -> tuple[int, int, int, int]:
        """Invoices of a version, distinct (partition, offset), distinct (sender, number), cents."""
        rows: list[tuple[int, int, int, int]] = self._query(
            """
            SELECT count(*), count(DISTINCT partition || ':' || place),
                   count(DISTINCT sender || ':' || number), coalesce(sum(cents), 0)
            FROM invoices WHERE version = ?
            """,
            version,
        )
        return rows[0]

    def numbers(self, version: int, sender: str) -> set[int]:
        """The orders of a sender that were billed."""
        query = "SELECT DISTINCT number FROM invoices WHERE version = ? AND sender = ?"
        return {number for (number,) in self._query(query, version, sender)}

    def _query(self, query: str, *values: Any) -> list[Any]:
        with closing(self._open()) as db:
            return db.execute(query, values).fetchall()
