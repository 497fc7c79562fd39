"""The offsets table as a Delta table: facts appended by ``deltalake`` at exactly a version.

1. An append is tried at one version and never rebased by the library: either it is that
   version or it is a ``Conflict``, so a commit that is not legal any more never enters.
2. Old log files go by their number, far below the newest checkpoint. Who was away for so long
   in the middle of an append does not believe its answer, but looks.
3. What was acknowledged on a local disk is synced to it.
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
from .delta_reading import LOG, LOGS_KEPT, TIDY_EVERY, DeltaReading, import_deltalake
from .offsets_port import STATE_FILE, Upkeep
from .ports import Committed, Conflict, PutResult, Unknown

COMPACT_TO = 4 * 1024 * 1024
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
        deltalake = import_deltalake()
        hooks = deltalake.PostCommitHookProperties(
            create_checkpoint=False, cleanup_expired_logs=False
        )

        def work() -> tuple[Any, tuple[int, int]]:
            table = deltalake.DeltaTable(self._uri, storage_options=self._options)
            done = table.optimize.compact(target_size=COMPACT_TO, post_commithook_properties=hooks)
            table.create_checkpoint()
            return table, (int(done["numFilesRemoved"]), int(done["numFilesAdded"]))

        return self._do("compact", work)

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
        hours = -(-max(grace_ms, SHORTEST_VACUUM_MS) // 3_600_000)
        gone = self._do(
            "vacuum",
            lambda: handle.vacuum(
                retention_hours=hours, dry_run=False, enforce_retention_duration=False, full=True
            ),
        )
        self.store_checkpoint(table)
        return Upkeep(int(handle.version()), removed, added, len(gone))

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
