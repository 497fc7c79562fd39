"""The offsets table of a copy: the same facts at the same versions, in a table of its own.

Invariants:

1. Facts are never changed: positions, generations and reset numbers of the copy are the fold of
   the same facts. Groups are taken whole or not at all.
2. A complete copy gets what is new version by version, each put if absent: a version of somebody
   else's ends it. A version of which no fact is taken is an empty one, or upkeep of the copy.
3. The version is looked up before the topics are, and what is new is put after them: no position
   is beyond what the copy has of its topic.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import groupby
from operator import attrgetter

import pyarrow as pa
import pyarrow.compute as pc

from offsetlog.core.group.facts import Fact
from offsetlog.core.group.fold import fold
from offsetlog.engine.copy.topic import written_to
from offsetlog.engine.env import Env
from offsetlog.errors import CorruptLogError, InvalidRequestError, OffsetLogError, StorageError
from offsetlog.storage.offsets.port import OffsetsPort
from offsetlog.storage.store import Conflict, Unknown

_order = attrgetter("version", "place")
_version = attrgetter("version")
TRIES = 6


class OffsetsCopy:
    def __init__(
        self, source: OffsetsPort, target: OffsetsPort, groups: tuple[str, ...] | None, env: Env
    ) -> None:
        self._source = source
        self._target = target
        self._groups = groups
        self._env = env

    def begin(self) -> int:
        """Make the copy's table, of which nothing is there yet; its version, or -1 where the
        source has none."""
        for attempt in range(TRIES):
            rows = self._source.rows()
            if rows is None:
                return -1
            self._target.store.delete_tree(self._target.folder)
            try:
                self._target.begin_at(rows.version, self._filtered(rows.tables))
            except (CorruptLogError, StorageError):
                # Its files may have been compacted and deleted meanwhile.
                if attempt == TRIES - 1:
                    raise
                self._env.sleep(0.1 * 2**attempt)
                continue
            self._store_state(rows.version)
            return rows.version
        raise AssertionError

    def news(self, since: int) -> tuple[int, list[Fact]]:
        """The source's version, and what is to be in the copy after ``since``."""
        news = self._source.read(since)
        if news.anew and since >= 0:
            raise InvalidRequestError(
                f"Somebody changed rows of {self._source.url} since it was copied (RESTORE, DELETE "
                "or the like), so the copy can't be brought up to date.",
                "Copy to another place.",
            )
        return news.version, sorted(filter(self._is_taken, news.facts), key=_order)

    def bring_up(
        self, since: int, version: int, facts: list[Fact], progress: Callable[[int], None]
    ) -> int:
        """Append what is new up to a version of the source; the copy was its equal at ``since``."""
        there = self._target.read(since)
        if there.version < 0 <= version:
            self._target.create()
            there = self._target.read(since)
        known = sorted((fact for fact in there.facts if fact.version > since), key=_order)
        if (
            there.anew
            or there.version > version
            or known != [f for f in facts if f.version <= there.version]
        ):
            raise written_to(self._target.url, f"version {there.version}")
        fresh = {v: list(of) for v, of in groupby(facts, _version) if v > there.version}
        for at in range(there.version + 1, version + 1):
            self._append(at, fresh.get(at, []))
            progress(at)
        if version > since:
            self._target.refresh_checkpoint()
            self._store_state(version)
        return version

    def _append(self, version: int, facts: list[Fact]) -> None:
        for attempt in range(TRIES):
            result = self._target.append(facts, version) if facts else self._target.skip(version)
            if isinstance(result, Unknown):
                if result.waited:
                    break
                self._env.sleep(0.1 * 2**attempt)
                continue
            if isinstance(result, Conflict):
                news = self._target.read(version - 1).facts
                if [fact for fact in news if fact.version == version] != facts:
                    raise written_to(self._target.url, f"version {version}")
            return
        raise StorageError(f"No answer came to version {version} of {self._target.url}.")

    def _filtered(self, tables: Iterator[pa.Table]) -> Iterator[pa.Table]:
        for table in tables:
            if self._groups is None:
                yield table
            else:
                taken = pa.array(self._groups, pa.string())
                yield table.filter(pc.is_in(table.column("group"), taken))

    def _is_taken(self, fact: Fact) -> bool:
        return self._groups is None or fact.group in self._groups

    def _store_state(self, version: int) -> None:
        """The state at a version, from the source's stored one where that is not newer. It is a
        cache, and best effort."""
        try:
            state = self._source.checkpoint()
            if state.version <= version:
                facts = (f for f in self._source.read(state.version).facts if f.version <= version)
                state = fold(state, facts, version)
                groups = {
                    name: group
                    for name, group in state.groups.items()
                    if self._groups is None or name in self._groups
                }
                self._target.store_checkpoint(state._replace(groups=groups))
        except OffsetLogError:
            return
