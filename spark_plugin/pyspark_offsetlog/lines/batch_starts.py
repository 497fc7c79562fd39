"""Where the next micro-batch of a stream starts, for a Spark before 4.2, which asks
``latestOffset()`` and does not say.

It follows from what Spark asks besides, since a reader lives as long as a run of its query:

1. A run of a new query begins at the initial offset.
2. A run that goes on from a checkpoint first asks for ``partitions(o, o)``, with the newest
   offset that was logged.
3. Each batch that is planned ends at our last answer, and the next one starts there. Spark asks
   again only when that batch is done.

With the jar all this is not needed: the class in the JVM is asked as on 4.2, and says what it was
asked in an offset that it commits, ``{"@ask": ...}``, right before ``latestOffset()``.

With ``spark.sql.streaming.triggerAvailableNowWrapper.enabled`` Spark asks where a batch ends
before the second, and never again. Then nobody can say what was reset since, so it is refused.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from offsetlog.errors import InvalidRequestError

Offset = dict[str, Any]
ASK = "@ask"
LATEST, AVAILABLE_NOW = "latest", "availableNow"
"""Where the log ends; all that is there now is read, and nothing more. Else it is ``start`` and
``limited``: where the batch that begins there ends."""


class BatchStarts:
    def __init__(self) -> None:
        self._next: Offset | None = None
        self.answers = 0
        """How often Spark has asked."""
        self.batches = 0
        """How often it has planned a batch, one that is run again among them."""

    def next(self, initial: Callable[[], Offset]) -> Offset:
        if self._next is None:
            self._next = initial()
        return self._next

    def answered(self, end: Offset) -> None:
        """The next batch ends there, if that is not where it starts."""
        self._next = end
        self.answers += 1

    def planned(self, start: Offset, end: Offset, initial: Callable[[], Offset]) -> None:
        """Spark asks for the partitions of a batch."""
        if start != end:
            self.batches += 1
            return
        if self._next is None:
            self._next = end
        elif self.answers and end != self._next and end != initial():
            raise InvalidRequestError(
                "spark.sql.streaming.triggerAvailableNowWrapper.enabled is set, and Spark asked "
                "where the query ends before it said where it starts.",
                "Unset it: Spark before 4.2 makes a single batch of availableNow without it, too.",
            )
