"""The offsets table as a Delta table: facts appended by ``deltalake`` at exactly a version.

1. An append is tried at one version and never rebased by the library: either it is that
   version or it is a ``Conflict``, so a commit that is not legal any more never enters.
2. Old log files go by their number, far below the newest checkpoint. Who was away for so long
   in the middle of an append does not believe its answer, but looks.
3. What was acknowledged on a local disk is synced to it.
4. A data file that no version names goes only when the version after the one at which it was
   first seen is taken: then the append or compaction that wrote it can't land any more, however
   long it stood still. Clocks only keep it for longer, as a courtesy to running readers.
"""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from typing import Any

from ..errors import OffsetLogError
from ..format import fact_rows, strict_json
from ..group.facts import Fact
from ..group.state import EMPTY, Table
from .delta_compaction import bins_of, land, named, write
from .delta_reading import LOG, LOGS_KEPT, MOST_LOG_BYTES, DeltaReading, import_deltalake
from .offsets_port import STATE_FILE, Upkeep
from .ports import Committed, Conflict, PutResult, Unknown

TIDY_EVERY = 50
"""Versions from one checkpoint to the next."""
COMPACT_TRIES = 20
UNNAMED = "_state/unnamed.json"
Seen = dict[str, tuple[int, int]]
"""Files by their names: the version and the time at which they were seen first."""
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
        deltalake = import_deltalake()
        try:
            deltalake.DeltaTable.create(
                self._uri,
                fact_rows.SCHEMA,
                mode="error",
                configuration=SETTINGS,
                storage_options=self._options,
            )
        except Exception as error:  # noqa: BLE001 - somebody else may have made it meanwhile
            if not self._exists():
                self._fail("create", error)
        self._open(again=True)

    # --- appending -------------------------------------------------------------------------

    def append(self, facts: Sequence[Fact], version: int) -> PutResult:
        deltalake = import_deltalake()
        table = self._at(version - 1)
        if table is None:
            self._doubt = True
            return Conflict()
        began = time.monotonic(), time.time()
        try:
            deltalake.write_deltalake(
                table,
                fact_rows.to_arrow(facts),
                mode="append",
                commit_properties=deltalake.CommitProperties(max_commit_retries=0),
                post_commithook_properties=deltalake.PostCommitHookProperties(
                    create_checkpoint=False, cleanup_expired_logs=False
                ),
            )
        except Exception as error:  # noqa: BLE001
            return self._failed(error, version)
        took = max(time.monotonic() - began[0], time.time() - began[1])
        if int(table.version()) != version or took > DOUBT_SECONDS:
            self._held, self._doubt = None, True
            return Unknown(f"the append took {took:.0f} s")
        self._settle(version)
        return Committed()

    def _at(self, version: int) -> Any:
        """The handle at exactly this version; None when the table has moved on."""
        table = self._open()
        if int(table.version()) < version:
            try:
                table.update_incremental()
            except Exception:  # noqa: BLE001 - its own version may be cleaned: open anew
                table = self._open(again=True)
        if int(table.version()) < version:
            table = self._open(again=True)
            self._checked(int(table.version()), version, [])
        return table if int(table.version()) == version else None

    def _failed(self, error: Exception, version: int) -> PutResult:
        """Somebody else's version is there, or nobody knows."""
        self._doubt = True
        try:
            if self.store.get(self._log_name(version), 0, 1) is not None:
                return Conflict()
        except OffsetLogError:
            pass  # The storage does not answer at all: then this is not known either.
        self._held = None
        return Unknown(self._redact(error))

    def _settle(self, version: int) -> None:
        """Make an append survive a power cut, where the library leaves that to chance."""
        path = self._uri if self.store.is_local and os.path.isdir(self._uri) else ""
        if not path:
            return
        log = os.path.join(path, LOG, f"{version:020d}.json")
        data = self.store.get(self._log_name(version)) or b""
        actions = [strict_json.loads(line, log) for line in data.splitlines()]
        files = [self._inside(a["add"]["path"]) for a in actions if "add" in a]
        names = [os.path.basename(name) for name in files]
        for name in [*(os.path.join(path, n) for n in names), log, path, os.path.dirname(log)]:
            _sync(name)

    # --- upkeep ----------------------------------------------------------------------------

    def checkpoint(self) -> Table:
        name = self._name(STATE_FILE)
        data = self.store.get(name)
        found = None if data is None else fact_rows.decode_checkpoint(data, name)
        if found is None or not self._exists():
            return EMPTY
        if self.store.get(self._log_name(found[1].version), 0, 1) is None:
            # So far behind that its log is gone, or of another table: only that one can tell.
            table = self._open()
            ours = found[0] == self._id and int(table.version()) >= found[1].version
            return found[1] if ours else EMPTY
        return found[1]

    def _table_id(self) -> str:
        self._open()
        return self._id

    def store_checkpoint(self, table: Table) -> None:
        try:
            data = fact_rows.encode_checkpoint(table, self._table_id())
            self.store.put(self._name(STATE_FILE), data, durable=False)
        except OffsetLogError:
            return  # A cache: whoever comes next folds a little more.

    def tidy(self, version: int) -> None:
        """Few files and a fresh checkpoint: what an append costs grows with both."""
        table, _ = self._compact()
        self._drop_logs(range(version - LOGS_KEPT - 4 * TIDY_EVERY, version - LOGS_KEPT))
        del table

    def _compact(self) -> tuple[Any, tuple[int, int]]:
        """Few files of many, and a fresh checkpoint; by handles that no append moves on."""
        done, plan = (0, 0), None
        for _ in range(COMPACT_TRIES):
            table = self._open_own()
            live = named(table)
            if plan is None or not plan.fits(live):
                bins = bins_of(live)
                if not bins:
                    break
                plan = write(self.store, self._inside, bins)
            after = self._log_name(int(table.version()) + 1)
            if plan is not None and land(self.store, plan, after):
                done = len(plan.replaced), plan.files
                self._forget_unnamed(plan.replaced)
                break
        table = self._open_own()
        self._do("store a checkpoint", table.create_checkpoint)
        return table, done

    def _drop_logs(self, versions: range) -> None:
        names = [
            self._name(f"{LOG}/{version:020d}.{end}")
            for version in versions
            if version >= 0
            for end in ("json", "checkpoint.parquet")
        ]
        self.store.delete(names)

    def maintain(self, table: Table, grace_ms: int) -> Upkeep:
        if not self._exists():
            return Upkeep(-1)
        handle, (removed, added) = self._compact()
        floor = int(handle.version()) - LOGS_KEPT
        old = [info.name for info in self.store.list(self._name(LOG)) if _number(info.name) < floor]
        self.store.delete(sorted(old))
        gone = self._drop_unnamed(max(grace_ms, SHORTEST_VACUUM_MS))
        self.store_checkpoint(table)
        return Upkeep(int(handle.version()), removed, added, gone)

    def _drop_unnamed(self, courtesy_ms: int) -> int:
        """Delete data files that no version names, nor can ever name; how many."""
        files = (info.name.rpartition("/")[2] for info in self.store.list(self.folder))
        there = {name for name in files if name.endswith(".parquet") and name[:1] not in "._"}
        # Opened after the look: whoever wrote one of them did so for the version after this one
        # at the latest.
        table = self._open_own()
        version, now_ms = int(table.version()), int(time.time() * 1000)
        live = {self._inside(path).rpartition("/")[2] for path in named(table)}
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
            told = strict_json.fields(strict_json.loads(data or b"{}", what, MOST_LOG_BYTES), what)
            out = {}
            for name, seen in told.items():
                at, at_ms = strict_json.items(seen, what)
                out[name] = strict_json.integer(at, what), strict_json.integer(at_ms, what)
            return out
        except (OffsetLogError, ValueError):
            return {}

    def close(self) -> None:
        self._held = None


def _number(name: str) -> int:
    """The version in a log file's name; files without one are nobody's to delete."""
    digits = name.rpartition("/")[2].partition(".")[0]
    return int(digits) if digits.isascii() and digits.isdigit() and len(digits) == 20 else 2**62


def _sync(path: str) -> None:
    fd = os.open(path, os.O_RDONLY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)
