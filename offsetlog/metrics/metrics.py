"""Metrics that may be asked for again and again: of a log, and of Spark queries that report here.

Invariants:

1. Each call looks afresh at the log. Queries are as their listener last reported them; those that
   have ended are gone.
2. Threads may share it: a listener reports while a scrape reads.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

from offsetlog.metrics.exposition import to_text
from offsetlog.metrics.families import Samples, of_log, of_queries

if TYPE_CHECKING:
    from offsetlog.client.log import Log
    from pyspark_offsetlog.about.lag_report import LagReport


class Metrics:
    """What a scrape of this program shows: a log (if one is given), and the queries whose
    listener was started with ``watch_lag(spark, metrics=...)``."""

    def __init__(self, log: Log | None = None) -> None:
        self._log = log
        self._reports: dict[str, LagReport] = {}
        self._lock = threading.Lock()

    @property
    def reports(self) -> dict[str, LagReport]:
        """The newest report of each running query, by its name (or id)."""
        with self._lock:
            return dict(sorted(self._reports.items()))

    def report(self, report: LagReport) -> None:
        """Take a query's newest report."""
        with self._lock:
            self._reports[report.query] = report

    def forget(self, run_id: str) -> None:
        """Drop the report of a query whose run has ended."""
        with self._lock:
            for query in [q for q, r in self._reports.items() if r.run_id == run_id]:
                del self._reports[query]

    def samples(self) -> Samples:
        """All samples, by their families."""
        log = self._log
        of_the_log = {} if log is None else of_log(log.overview(), log.last_maintained_ms())
        reports = self.reports
        return {**of_the_log, **(of_queries(reports.values()) if reports else {})}

    def text(self) -> str:
        """Prometheus' text, for a scrape."""
        return to_text(self.samples())
