"""``verify`` of a topic's Delta table: it is what the chain says at its newest version's point.

Invariants:

1. The table is read before the chain is folded, so the chain holds all that the table knows.
2. The whole log is read, as a reader of Delta reads it.
"""

from __future__ import annotations

from collections.abc import Iterator

from offsetlog.core.topic import table
from offsetlog.core.topic.extents import Extent
from offsetlog.core.topic.state import TopicState
from offsetlog.errors import CorruptLogError, OffsetLogError
from offsetlog.format import topic_table
from offsetlog.format.delta_log import LOG, DeltaState
from offsetlog.format.topic_table import Head
from offsetlog.storage.delta.log import IN_TURN, DeltaLog
from offsetlog.storage.store import Store
from offsetlog.values import settings_of

NAMED = 3
"""Files that a fault names."""


class TableCheck:
    """One look at one table, of which nothing but its place is known."""

    def __init__(self, store: Store, folder: str) -> None:
        self._store = store
        self._folder = folder
        self._where = f"{folder}/{LOG}"
        self._head: Head | None = None
        self._read: DeltaState | None = None
        self._state: TopicState | None = None
        """What the chain says at the table's point."""
        self._error = ""
        self._log = DeltaLog(store, folder, IN_TURN)
        try:
            self._look()
        except OffsetLogError as error:
            self._error = str(error)

    def _look(self) -> None:
        if not any(not file.parts for _, file in self._log.files()):
            return
        read = self._log.replayed()
        data = self._log.version(read.version)
        if data is None:
            raise CorruptLogError(f"{self._log.name(read.version)} is gone.")
        self._head = topic_table.head_of(read.version, data, self._log.name(read.version))
        self._read = read

    def folded(self, state: TopicState) -> None:
        """The chain's state after one more entry."""
        if self._head is not None and state.tip == self._head.point.tip:
            self._state = state

    def faults(self, newest: TopicState) -> Iterator[str]:
        if self._error:
            yield self._error
        if self._head is None or self._read is None:
            return
        what = f"version {self._head.version} of {self._where}"
        if self._state is None:
            yield f"{what} has the state at entry {self._head.point.tip}, which the chain has not"
            return
        wanted = self._state.alive and settings_of(self._state.config).has_table
        if wanted == self._head.closed:
            yield f"{what} is {'closed' if wanted else 'open'}, and the topic says otherwise"
        live = [e for part in self._state.parts for e in part.tail]
        meant = {topic_table.path_of(e): e for e in self._files(live)}
        there = self._read.adds
        if len(there) != self._head.files:
            yield f"{what} names {len(there)} files and says {self._head.files}"
        for doing, paths in (("lacks", meant.keys() - there), ("names", there.keys() - meant)):
            if paths:
                yield f"{what} {doing} {', '.join(sorted(paths)[:NAMED])}, unlike the chain"
        for path in sorted(there.keys() & meant.keys()):
            said = topic_table.add_of(meant[path], data_change=False)
            if any(there[path].get(key) != said[key] for key in ("size", "stats")):
                yield f"{what} says other things of {path} than the chain"
        yield from self._gone(what, newest)

    def _files(self, live: list[Extent]) -> Iterator[Extent]:
        if self._head is None or self._state is None or self._head.closed:
            return iter(())
        ends = self._head.point.ends
        return table.files(self._state, ends, (e for e in live if e.partition < len(ends)))

    def _gone(self, what: str, newest: TopicState) -> Iterator[str]:
        """Of files that the log needs no more, and the table does, those that are not there."""
        assert self._read is not None
        live = {e.segment.uid for part in newest.parts for e in part.tail if e.segment is not None}
        for path in sorted(self._read.adds):
            uid = path.rpartition("-")[2].removesuffix(".parquet")
            if uid not in live and self._store.info(f"{self._folder}/{path}") is None:
                yield f"{what} names {path}, which is gone"
