"""What ``verify`` finds, of a topic, of the offsets table and of the root's file.

Invariants:

1. A fault breaks a promise, and nothing here mends it. A fault of a cache costs time only, and
   names the one file that may be deleted for it.
2. Each is a sentence that names the place.
"""

from __future__ import annotations

from typing import NamedTuple

from offsetlog.storage.offsets.check import CacheFault
from offsetlog.storage.store import Store

SOUND = 0
BROKEN = 1
CACHES = 3


class TopicReport(NamedTuple):
    """Of one topic; of ``__consumer_offsets`` and ``_offsetlog.json`` in the same words."""

    topic: str
    entries: int
    records: int
    files: int
    bytes: int
    faults: tuple[str, ...]
    """What breaks a promise."""
    caches: tuple[CacheFault, ...] = ()
    """What is wrong with files that may be deleted at any time."""
    notes: tuple[str, ...] = ()
    """What is no fault: a folder that no topic is in, and what could not be told, and why."""

    @property
    def sound(self) -> bool:
        return not self.faults and not self.caches

    def to_dict(self) -> dict[str, object]:
        caches = [{"file": cache.file, "fault": cache.text} for cache in self.caches]
        return {**self._asdict(), "caches": caches, "sound": self.sound}


def status_of(reports: list[TopicReport]) -> int:
    """0: all is sound, 1: a promise is broken, 3: only caches are."""
    if any(report.faults for report in reports):
        return BROKEN
    return CACHES if any(report.caches for report in reports) else SOUND


def delete_caches(store: Store, report: TopicReport) -> list[str]:
    """Delete the caches that a report of this store names, and nothing else; their names."""
    files = sorted({fault.file for fault in report.caches})
    store.delete(files)
    return files
