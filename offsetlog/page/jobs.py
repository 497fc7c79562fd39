"""Upkeep and verification that somebody started from the page, and how far they are.

Invariants:

1. One runs at a time, in a thread of its own; the results of the last ones are kept.
2. One that is ended stops at its next step. What upkeep did until then stays done, as after
   Ctrl-C.
3. Closing the page ends what runs.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable

from offsetlog.client.log import Log
from offsetlog.errors import InvalidRequestError, OffsetLogError
from offsetlog.logs import get_logger
from offsetlog.page.changes import Change, Changes

KEPT = 20
MAX_FAULTS = 100
"""Of each report, how many are shown."""
KINDS = ("maintain", "verify")
logger = get_logger(__name__)


def unexpected(error: Exception) -> str:
    """A sentence for what is no error of ours: its words are a library's, and for the log alone."""
    text = f"An unexpected error: {type(error).__name__}."
    return str(OffsetLogError(text, "The program's log says more."))


class _Ended(BaseException):
    """Raised in a job's own thread, past everything that takes failures for those of a topic."""


class Job:
    """One piece of work. Its thread writes; any may read."""

    def __init__(self, number: int, kind: str, topic: str | None, started_at: int) -> None:
        self.number = number
        self.kind = kind
        self.topic = topic
        self.started_at = started_at
        self.ended_at: int | None = None
        self.state = "running"
        self.step = ""
        self.finished = self.total = 0
        self.result: list[dict[str, object]] = []
        self.error: str | None = None
        self.is_ended = False
        """Whether somebody wants it to stop."""

    def to_dict(self) -> dict[str, object]:
        return {
            "job": self.number,
            "kind": self.kind,
            "topic": self.topic,
            "state": self.state,
            "step": self.step,
            "finished": self.finished,
            "total": self.total,
            "started_at": self.started_at,
            "ended_at": self.ended_at,
            "result": self.result,
            "error": self.error,
        }


class Jobs:
    def __init__(self, log: Log, changes: Changes, on_end: Callable[[], None]) -> None:
        self._log = log
        self._changes = changes
        self._on_end = on_end
        self._lock = threading.Lock()
        self._jobs: deque[Job] = deque(maxlen=KEPT)
        self._thread: threading.Thread | None = None
        self._count = 0
        self._closed = False

    def start(self, kind: str, topic: str | None) -> Job:
        if topic is not None:
            self._log.topic(topic)  # One that is not there is an error of who asks.
        with self._lock:
            running = self._jobs[-1] if self._jobs else None
            if self._closed or (running is not None and running.state == "running"):
                raise BusyError(
                    "Upkeep or a verification is running already.", "Wait for its end, or end it."
                )
            self._count += 1
            job = Job(self._count, kind, topic, self._log.env.now_ms())
            self._jobs.append(job)
            self._thread = threading.Thread(
                target=self._run, args=(job,), name=f"offsetlog-page-{kind}", daemon=True
            )
            self._thread.start()
        return job

    def get(self, number: int) -> Job | None:
        return next((job for job in list(self._jobs) if job.number == number), None)

    def newest_first(self) -> list[Job]:
        return list(self._jobs)[::-1]

    def close(self, patience: float = 10.0) -> None:
        with self._lock:
            self._closed = True
        for job in list(self._jobs):
            job.is_ended = True
        if self._thread is not None:
            self._thread.join(patience)

    def _run(self, job: Job) -> None:
        def progress(step: str, finished: int, total: int) -> None:
            job.step, job.finished, job.total = step, finished, total
            if job.is_ended:
                raise _Ended

        try:
            job.result = self._work(job, progress)
            job.state = "done"
        except _Ended:
            job.state = "ended"
        except OffsetLogError as error:
            job.state, job.error = "failed", str(error)
        except Exception as error:  # noqa: BLE001 - the page goes on
            logger.exception("%s failed", job.kind)
            text = unexpected(error)
            job.state, job.error = "failed", text
        job.ended_at = self._log.env.now_ms()
        if job.kind == "maintain":
            name = job.topic or "all topics"
            self._changes.add(Change(job.ended_at, "upkeep", name, f"upkeep: {job.state}", True))
            logger.info("upkeep of %s from the page: %s", name, job.state)
        self._on_end()

    def _work(self, job: Job, progress: Callable[[str, int, int], None]) -> list[dict[str, object]]:
        if job.kind == "maintain":
            return [one._asdict() for one in self._log.maintain(job.topic, progress=progress)]
        documents = []
        for report in self._log.verify(job.topic, progress=progress):
            documents.append(
                {
                    **report._replace(
                        faults=report.faults[:MAX_FAULTS],
                        caches=report.caches[:MAX_FAULTS],
                        notes=report.notes[:MAX_FAULTS],
                    ).to_dict(),
                    "sound": report.sound,
                    "faults_in_all": len(report.faults),
                    "caches_in_all": len(report.caches),
                }
            )
        return documents


class BusyError(InvalidRequestError):
    """Another one runs."""
