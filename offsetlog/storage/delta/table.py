"""The offsets table as a Delta table: facts appended at exactly a version.

1. An append is tried at one version and never rebased: either it is that version or it is a
   ``Conflict``, so a commit that is not legal any more never enters.
2. Versions, data files and checkpoints are written by the log's own store, put-if-absent for a
   version and synced before they count: what was acknowledged survives a power cut, and so
   does the table itself. No library is given a path to write to.
3. Old log files go by their number, far below the newest checkpoint, and only when that is
   synced. Who was away for so long does not believe what stands in the log, but looks.
4. A data file that no version names goes only when the version after the one at which it was
   first seen is taken: then the append or compaction that wrote it can't land any more, however
   long it stood still. Clocks only keep it for longer, as a courtesy to running readers.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Sequence

from offsetlog.core import strict_json
from offsetlog.core.decode import Decoder, from_json, integer, map_of, row, string
from offsetlog.core.group.facts import Fact
from offsetlog.core.group.state import EMPTY, GroupsState
from offsetlog.errors import OffsetLogError, StorageError
from offsetlog.format import delta_log
from offsetlog.format import facts_arrow as fact_rows
from offsetlog.format.delta_log import LAST_CHECKPOINT, LOG, MOST_LOG_BYTES, Action, DeltaState
from offsetlog.storage.delta.compact import bins_of, counted, land, write
from offsetlog.storage.delta.read import CHECK_SECONDS, LOGS_KEPT, TABLE_KEY, DeltaReading
from offsetlog.storage.offsets.port import ROOT_KEY, STATE_FILE, Upkeep
from offsetlog.storage.store import Committed, Conflict, PutResult, Unknown

TIDY_EVERY = 50
"""Versions from one checkpoint to the next."""
COMPACT_TRIES = 20
CREATE_TRIES = 5
UNNAMED = "_state/unnamed.json"
Seen = dict[str, tuple[int, int]]
"""Files by their names: the version and the time at which they were seen first."""
_UNNAMED_FILES: Decoder[Seen] = map_of(
    row(lambda version, ms: (version, ms), integer(), integer()), key=string()
)
DOUBT_SECONDS = 5.0
"""An append that took longer is not believed: the log may have been cleaned meanwhile."""
SHORTEST_VACUUM_MS = 3_600_000
SETTINGS = {
    "delta.dataSkippingNumIndexedCols": "0",
    "delta.deletedFileRetentionDuration": "interval 1 hours",
    "delta.logRetentionDuration": "interval 1 days",
    "delta.enableExpiredLogCleanup": "false",
}


class DeltaOffsets(DeltaReading):
    def create(self) -> None:
        if self._exists():
            self._open()
            return
        self._refuse_strangers()
        settings = dict(SETTINGS)
        if self._root_id is not None:
            settings[ROOT_KEY] = self._root_id()
        text = delta_log.new_table(fact_rows.SCHEMA, str(uuid.uuid4()), settings, _now_ms())
        name = self._log_name(0)
        offer = self.store.offer(text, name)
        error = ""
        try:
            for _ in range(CREATE_TRIES):
                result = offer.put(name)
                if not isinstance(result, Unknown):
                    break
                error = result.error
            else:
                raise StorageError(f"No answer came to the making of {self.url}: {error}")
        finally:
            offer.close()
        self._open(again=True)

    # --- appending -------------------------------------------------------------------------

    def append(self, facts: Sequence[Fact], version: int) -> PutResult:
        data = fact_rows.to_parquet(facts)
        state = self._open()
        state.check_writable(self.url, fact_rows.SCHEMA.names)
        self._settle_found()
        if self._was_cleaned(version - 1, version - 1):
            state = self._open(again=True)
            if state.version != version - 1:
                self._doubt = True
                return Conflict()
        now_ms = _now_ms()
        actions = [delta_log.commit_info("WRITE", now_ms, mode="Append"), *self._adopted(state)]
        path = f"part-00000-{uuid.uuid4()}-c000.snappy.parquet"
        actions.append(delta_log.add_file(path, len(data), len(facts), now_ms, True))
        name = self._log_name(version)
        # Nothing of this is an answer: before the put of the version nobody knows of the rest.
        self.store.put(self._name(path), data, durable=not self.is_local)
        offer = self.store.offer(delta_log.written(actions), name)
        try:
            if self.is_local:
                # Cheaper than before its rename: the disk's journal is written once.
                self.store.sync(self._name(path))
                self.store.settle(self.folder)
            result = offer.put(name)
        finally:
            offer.close()
        if isinstance(result, Committed) and self._passed() > DOUBT_SECONDS:
            result = Unknown("the append took long")
        if isinstance(result, Committed):
            self._held = state if len(actions) == 2 else None
        else:
            self._doubt, self._unsettled = True, isinstance(result, Unknown)
        return result

    def _adopted(self, state: DeltaState) -> list[Action]:
        """With the first append to a table that is older than the rule, it becomes this log's."""
        if self._root_id is None or self._root:
            return []
        settings = {**state.configuration, ROOT_KEY: self._root_id()}
        return [{"metaData": {**state.metadata, "configuration": settings}}]

    def _settle_found(self) -> None:
        """Make durable, once, what this begins with: version 0, the newest checkpoint and the
        newest version may be of a library or an older version, which left that to chance."""
        if self._is_settled or not self.is_local:
            return
        log = self._name(LOG)
        files = {info.name: delta_log.log_file(info.name) for info in self.store.list(log)}
        base = max((f.version for f in files.values() if f and f.parts), default=0)
        tip = max((f.version for f in files.values() if f and not f.parts), default=0)
        for name, file in files.items():
            if file is not None and file.version in ((base, 0) if file.parts else (0, tip)):
                self.store.sync(name)
        self.store.settle(log)
        self.store.settle(self.folder)
        self._is_settled = True

    # --- upkeep ----------------------------------------------------------------------------

    def checkpoint(self) -> GroupsState:
        name = self._name(STATE_FILE)
        data = self.store.get(name, 0, fact_rows.MOST_CHECKPOINT_BYTES + 1)
        found = None if data is None else fact_rows.decode_checkpoint(data, name)
        if found is None or not self._exists():
            return EMPTY
        if found[0] != self._table_id():
            return EMPTY  # Of another table, which lay here before.
        if self.store.get(self._log_name(found[1].version), 0, 1) is None:
            # So far behind that its log is gone, or ahead of a table that was restored.
            return found[1] if self._open().version >= found[1].version else EMPTY
        return found[1]

    def _table_id(self) -> str:
        if not self._id:
            self._open()
        return self._id

    def store_checkpoint(self, table: GroupsState) -> None:
        try:
            data = fact_rows.encode_checkpoint(table, self._table_id())
            if data is not None:
                self.store.put(self._name(STATE_FILE), data, durable=False)
        except OffsetLogError:
            return  # A cache: whoever comes next folds a little more.

    def tidy(self, version: int) -> None:
        """Few files and a fresh checkpoint: what a first look costs grows with both."""
        self._compact()
        self._drop_logs(range(version - LOGS_KEPT - 4 * TIDY_EVERY, version - LOGS_KEPT))

    def _compact(self) -> tuple[DeltaState, tuple[int, int]]:
        """Few files of many, and a fresh checkpoint."""
        done, plan = (0, 0), None
        state, opened = self._open_own(), time.monotonic()
        for _ in range(COMPACT_TRIES):
            if time.monotonic() - opened > CHECK_SECONDS:
                # The log may have been cleaned past what was seen.
                state, opened = self._open_own(), time.monotonic()
            live = self._forward(state).files()
            if plan is None or not plan.fits(live):
                state.check_writable(self.url, fact_rows.SCHEMA.names)
                bins = bins_of(counted(self.store, self._inside, live))
                if not bins:
                    break
                plan = write(self.store, self._inside, bins, _now_ms())
                continue
            if land(self.store, plan.text, self._log_name(state.version + 1)):
                done = len(plan.replaced), plan.files
                self._forget_unnamed(plan.replaced)
                break
        state = self._open_own()
        self._store_delta_checkpoint(state)
        return state, done

    def _store_delta_checkpoint(self, state: DeltaState) -> None:
        """What Delta's readers begin with: synced before the note that names it, and that before
        anything goes."""
        data, rows = state.checkpoint(_now_ms())
        log, newest = self._name(LOG), self._newest_checkpoint()
        if newest > state.version and self.store.info(self._log_name(newest)) is not None:
            return  # Somebody was faster.
        self.store.put(f"{log}/{state.version:020d}.checkpoint.parquet", data)
        tags = {TABLE_KEY: self._id, ROOT_KEY: self._root}
        note = {
            "version": state.version,
            "size": rows,
            "sizeInBytes": len(data),
            "numOfAddFiles": len(state.adds),
            "tags": {key: value for key, value in tags.items() if value},
        }
        self.store.put(f"{log}/{LAST_CHECKPOINT}", strict_json.dumps(note))

    def _drop_logs(self, versions: range) -> None:
        names = [
            self._name(f"{LOG}/{version:020d}.{end}")
            for version in versions
            if version >= 0
            for end in ("json", "checkpoint.parquet")
        ]
        self.store.delete(names)

    def maintain(self, table: GroupsState, grace_ms: int) -> Upkeep:
        if not self._exists():
            return Upkeep(-1)
        state, (removed, added) = self._compact()
        floor = state.version - LOGS_KEPT
        old = [info.name for info in self.store.list(self._name(LOG)) if _number(info.name) < floor]
        self.store.delete(sorted(old))
        gone = self._drop_unnamed(max(grace_ms, SHORTEST_VACUUM_MS))
        self.store_checkpoint(table)
        return Upkeep(state.version, removed, added, gone)

    def _drop_unnamed(self, courtesy_ms: int) -> int:
        """Delete data files that no version names, nor can ever name; how many."""
        files = (info.name.rpartition("/")[2] for info in self.store.list(self.folder))
        there = {name for name in files if name.endswith(".parquet") and name[:1] not in "._"}
        # Opened after the look: whoever wrote one of them did so for the version after this one
        # at the latest.
        state = self._open_own()
        version, now_ms = state.version, _now_ms()
        live = {self._inside(path).rpartition("/")[2] for path in state.adds}
        noted = self._unnamed()
        seen = {name: noted.get(name, (version, now_ms)) for name in sorted(there - live)}
        gone = {
            name
            for name, (at, at_ms) in seen.items()
            if at < version and now_ms - at_ms >= courtesy_ms
        }
        self.store.delete([self._name(name) for name in sorted(gone)])
        self._note_unnamed(noted, {name: seen[name] for name in seen.keys() - gone})
        return len(gone)

    def _forget_unnamed(self, replaced: frozenset[str]) -> None:
        """These were named until now, though they were seen before that: the time for which they
        are kept begins anew."""
        noted = self._unnamed()
        self._note_unnamed(noted, {name: noted[name] for name in noted.keys() - replaced})

    def _note_unnamed(self, noted: Seen, left: Seen) -> None:
        if left != noted:
            text = strict_json.dumps(dict(sorted(left.items())))
            self.store.put(self._name(UNNAMED), text, durable=False)

    def _unnamed(self) -> Seen:
        """Files that an earlier round saw, with the version and the time of it. A lost note
        costs time only."""
        what = self._name(UNNAMED)
        data = self.store.get(what, 0, MOST_LOG_BYTES + 1)
        try:
            return from_json(_UNNAMED_FILES, data or b"{}", what, MOST_LOG_BYTES)
        except OffsetLogError:
            return {}

    def close(self) -> None:
        self._held = None


def _number(name: str) -> int:
    """The version in a log file's name; files without one are nobody's to delete."""
    digits = name.rpartition("/")[2].partition(".")[0]
    return int(digits) if digits.isascii() and digits.isdigit() and len(digits) == 20 else 2**62


def _now_ms() -> int:
    return int(time.time() * 1000)
