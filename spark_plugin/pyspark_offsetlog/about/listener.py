"""The lag of running queries, with every progress.

Invariants:

1. What Spark calls only takes a note: measuring, and the user's callback, run in a thread of
   the listener's own. Of the notes of one query the newest wins.
2. Nothing that goes wrong here reaches the query; each kind of trouble is told once.
3. Where a query's own options can be seen (not on Spark Connect), they say which log it reads;
   that rests on parts of Spark that are not public, and without them the root must be named.
"""

from __future__ import annotations

import sys
import threading
from collections import deque
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, Protocol

from pyspark.sql import SparkSession
from pyspark.sql.streaming.listener import (
    QueryIdleEvent,
    QueryProgressEvent,
    QueryStartedEvent,
    QueryTerminatedEvent,
    StreamingQueryListener,
)

from offsetlog.core.group.lag import Lag
from offsetlog.engine import lag_of
from offsetlog.errors import OffsetLogError
from offsetlog.values import TopicPartition
from pyspark_offsetlog.about.about_frames import place_of
from pyspark_offsetlog.about.lag_report import LagReport
from pyspark_offsetlog.lines import jvm
from pyspark_offsetlog.lines.classes import progress_offset
from pyspark_offsetlog.options.check import source_options
from pyspark_offsetlog.options.spec import LogAddress
from pyspark_offsetlog.runtime.open_logs import open_log
from pyspark_offsetlog.runtime.user_errors import warn
from pyspark_offsetlog.source import offsets

__all__ = ["LagListener", "LagReport"]

MAX_WARNINGS = 20


class _Source(NamedTuple):
    """What a progress says of one of its sources."""

    description: str
    end: str
    latest: str | None


class _Note(NamedTuple):
    """A progress that waits to be measured."""

    run_id: str
    query: str
    batch_id: int
    at: str
    sources: tuple[_Source, ...]


class LagMetrics(Protocol):
    """Where the newest report of each running query is kept: ``offsetlog.metrics.Metrics``."""

    def report(self, report: LagReport) -> None: ...

    def forget(self, run_id: str) -> None: ...


class LagListener(StreamingQueryListener):
    """Reports how far queries that read from offsetlog are behind; see ``watch_lag``.

    ``last`` has the last report of each query by its name (or id), ``history`` the newest
    reports of all of them, ``rows()`` the same as plain rows.
    """

    def __init__(
        self,
        spark: SparkSession,
        callback: Callable[[LagReport], object] | None = None,
        *,
        metrics: LagMetrics | None = None,
        root: str | None = None,
        queries: tuple[str, ...] | None = None,
        history: int = 1000,
        offsets_table: str | None = None,
        **storage_options: Any,
    ) -> None:
        self.last: dict[str, LagReport] = {}
        self.history: deque[LagReport] = deque(maxlen=history)
        self._spark = spark
        self._metrics = metrics
        without_one = _print if metrics is None else _keep
        self._callback = callback if callback is not None else without_one
        self._place = None if root is None else place_of(root, offsets_table, storage_options)
        self._names = None if queries is None else frozenset(queries)
        self._changed = threading.Condition()
        self._waiting: dict[str, _Note] = {}
        self._newest: dict[str, _Note] = {}
        self._running: dict[str, Any] = {}
        self._places: dict[str, dict[str, LogAddress]] = {}
        self._busy = False
        self._stopped = False
        self._thread: threading.Thread | None = None
        self._warned: set[str] = set()

    # --- its life --------------------------------------------------------------------------

    def start(self) -> None:
        """Listen to the session's queries; ``watch_lag`` has done so already."""
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name="offsetlog-lag", daemon=True)
            self._thread.start()
            self._spark.streams.addListener(self)

    def stop(self) -> None:
        """Stop listening. The reports so far stay."""
        with self._changed:
            if self._stopped:
                return
            self._stopped = True
            self._changed.notify_all()
        if self._thread is not None:
            self._spark.streams.removeListener(self)
            self._thread.join(timeout=5)
        if self._metrics is not None:
            for report in list(self.last.values()):
                self._metrics.forget(report.run_id)

    def wait(self, timeout: float = 10.0) -> bool:
        """Wait until the queries that have ended are reported up to their last batch; returns
        whether they are. A listener hears of that only a moment after ``awaitTermination``."""
        active = {str(query.runId) for query in self._spark.streams.active}
        with self._changed:
            return self._changed.wait_for(
                lambda: not self._busy and not self._waiting and self._running.keys() <= active,
                timeout,
            )

    # --- what Spark calls ------------------------------------------------------------------

    def onQueryStarted(self, event: QueryStartedEvent) -> None:
        run_id = str(event.runId)
        try:
            query = self._spark.streams.get(str(event.id))
        except Exception as error:  # noqa: BLE001 - it may not be Spark's to tell yet
            self._trouble(error)
            query = None
        with self._changed:
            self._running[run_id] = query

    def onQueryProgress(self, event: QueryProgressEvent) -> None:
        progress = event.progress
        if self._names is not None and progress.name not in self._names:
            return
        sources = tuple(
            _Source(s.description, s.endOffset, s.latestOffset)
            for s in progress.sources
            if jvm.PYTHON_STREAM in s.description
        )
        if sources:
            name = progress.name or str(progress.id)
            self._note(
                _Note(str(progress.runId), name, progress.batchId, progress.timestamp, sources)
            )

    def onQueryIdle(self, event: QueryIdleEvent) -> None:
        """Nothing is read, but there may be more to read than there was."""
        newest = self._newest.get(str(event.runId))
        if newest is not None:
            self._note(newest)

    def onQueryTerminated(self, event: QueryTerminatedEvent) -> None:
        run_id = str(event.runId)
        with self._changed:
            self._newest.pop(run_id, None)
            if run_id not in self._waiting and not self._busy:
                self._forget(run_id)
            else:
                self._waiting.setdefault(f"end of {run_id}", _Note(run_id, "", 0, "", ()))
            self._changed.notify_all()

    def _note(self, note: _Note) -> None:
        with self._changed:
            self._waiting[note.run_id] = self._newest[note.run_id] = note
            self._changed.notify_all()

    def _forget(self, run_id: str) -> None:
        self._running.pop(run_id, None)
        self._places.pop(run_id, None)
        if self._metrics is not None:
            self._metrics.forget(run_id)

    # --- measuring, in the listener's own thread -------------------------------------------

    def _run(self) -> None:
        while True:
            with self._changed:
                self._busy = False
                self._changed.notify_all()
                self._changed.wait_for(lambda: self._waiting or self._stopped)
                if self._stopped:
                    return
                note = self._waiting.pop(next(iter(self._waiting)))
                self._busy = True
            if not note.sources:
                with self._changed:
                    self._forget(note.run_id)
                continue
            try:
                self._measure(note)
            except Exception as error:  # noqa: BLE001 - the next progress is tried again
                self._trouble(error)

    def _measure(self, note: _Note) -> None:
        places = self._places_of(note.run_id)
        lines: list[Lag] = []
        groups: dict[str, None] = {}
        for source in note.sources:
            place = self._place
            if places is not None:
                place = places.get(source.description)
                if place is None:
                    continue
            lag = _lag_of(source, place)
            if lag is not None:
                group, source_lines = lag
                lines += source_lines
                groups.update({group: None} if group else {})
        if not lines:
            return
        report = LagReport(
            note.query, note.run_id, note.batch_id, note.at, tuple(groups), tuple(lines)
        )
        self.last[note.query] = report
        self.history.append(report)
        if self._metrics is not None:
            self._metrics.report(report)
        self._callback(report)

    def _places_of(self, run_id: str) -> dict[str, LogAddress] | None:
        """The logs that the query's sources read, by their descriptions; None: not known."""
        if run_id not in self._places:
            query = self._running.get(run_id)
            places = _places_in(query) if hasattr(query, "_jsq") else None
            if places is None:
                return None
            self._places[run_id] = places
        return self._places[run_id]

    def _trouble(self, error: Exception) -> None:
        lines = str(error).strip().splitlines()
        text = lines[0][:300] if lines else ""
        if not isinstance(error, OffsetLogError):
            text = f"{type(error).__name__}: {text}"
        if text not in self._warned and len(self._warned) < MAX_WARNINGS:
            self._warned.add(text)
            warn(f"The lag of a query was not reported: {text}")

    # --- showing ---------------------------------------------------------------------------

    def rows(self) -> list[dict[str, Any]]:
        """A row for each partition and report of ``history``, for pandas and for pictures."""
        return [row for report in list(self.history) for row in report.to_dicts()]

    def __repr__(self) -> str:
        return "\n".join(str(report) for report in self.last.values()) or "No progress yet."

    def _repr_html_(self) -> str:
        reports = list(self.last.values())
        return "".join(report._repr_html_() for report in reports) or "No progress yet."


def _lag_of(source: _Source, place: LogAddress | None) -> tuple[str | None, tuple[Lag, ...]] | None:
    """The group and the lag of one source; None when its offsets are not ours."""
    try:
        offset = offsets.parse(progress_offset(source.end))
    except (ValueError, TypeError, OffsetLogError):
        return None
    if place is not None:
        positions = {(topic, partition): at for (topic, partition), at in offset.at.items()}
        return offset.group, lag_of(open_log(place), positions)
    ends: Mapping[TopicPartition, int] = {}
    latest = progress_offset(source.latest) if source.latest else None
    if latest is not None:
        ends = offsets.parse(latest).at
    lines = (_counted(tp, at, ends.get(tp)) for tp, at in sorted(offset.at.items()))
    return offset.group, tuple(lines)


def _counted(tp: TopicPartition, at: int, end: int | None) -> Lag:
    """What the progress alone says."""
    records = None if end is None else max(0, end - at)
    return Lag(tp.topic, tp.partition, at, None, end, records, None, None, 0, False, None, "")


def _places_in(query: Any) -> dict[str, LogAddress] | None:
    of_sources = jvm.source_options(query, "offsetlog")
    if of_sources is None:
        return None
    return {name: source_options(given, True).place for name, given in of_sources.items()}


def _keep(report: LagReport) -> None:
    """Reports that go to metrics are not printed too."""


def _print(report: LagReport) -> None:
    sys.stdout.write(f"{report}\n")
    sys.stdout.flush()
