"""The offsets table as a Delta table: facts appended by ``deltalake`` at exactly a version.

1. An append is tried at one version and never rebased by the library: either it is that
   version or it is a ``Conflict``, so a commit that is not legal any more never enters.
2. A look reads the table's own log, file by file, and of the data only the files that are new:
   an idle look is one request. A hole in the log (it was cleaned) means reading anew.
3. A path in the log that leaves the table is refused.
4. Old log files go by their number, far below the newest checkpoint. Who was away for so long
   in the middle of an append does not believe its answer, but looks.
5. ``DeltaTable.to_pyarrow_table`` is never used: it may abort the process at its exit.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NoReturn, TypeVar
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.parquet as pq

from ..errors import CorruptLogError, InvalidRequestError, OffsetLogError, StorageError
from ..format import fact_rows, strict_json
from ..group.facts import Fact
from ..group.state import EMPTY, Table
from .offsets_port import STATE_FILE, Beats, News, Upkeep
from .paths import check_name
from .ports import Committed, Conflict, PutResult, Store, Unknown
from .redact import Redactor

T = TypeVar("T")

LOG = "_delta_log"
LOGS_KEPT = 1000
"""Log files that stay below the newest checkpoint, for readers that are behind."""
TIDY_EVERY = 50
COMPACT_TO = 4 * 1024 * 1024
DOUBT_SECONDS = 5.0
"""An append that took longer is not believed: the log may have been cleaned meanwhile."""
CHECK_EVERY = 64
"""Idle looks between two checks that the log was not cleaned past us."""
SHORTEST_VACUUM_MS = 3_600_000
MOST_LOG_BYTES = 64 * 1024 * 1024
SETTINGS = {
    "delta.dataSkippingNumIndexedCols": "0",
    "delta.deletedFileRetentionDuration": "interval 1 hours",
    "delta.logRetentionDuration": "interval 1 days",
    "delta.enableExpiredLogCleanup": "false",
}


def import_deltalake() -> Any:
    try:
        import deltalake
    except ImportError:
        raise InvalidRequestError(
            "Consumer groups on this filesystem need the package deltalake, which is not "
            "installed.",
            'Install it with: pip install "deltalake>=1.6,<2"',
        ) from None
    return deltalake


class DeltaOffsets(Beats):
    def __init__(
        self,
        store: Store,
        folder: str,
        uri: str,
        options: Mapping[str, str],
        redact: Redactor,
    ) -> None:
        super().__init__(store, folder)
        self._uri = uri
        self._options = dict(options)
        self._redact = redact
        self._held: Any = None
        self._id = ""
        self._doubt = True
        self._idle = 0

    # --- opening ---------------------------------------------------------------------------

    def _log_name(self, version: int) -> str:
        return self._name(f"{LOG}/{version:020d}.json")

    def _exists(self) -> bool:
        if self._id:
            return True
        if self.store.get(self._log_name(0), 0, 1) is not None:
            return True
        return self.store.get(self._name(f"{LOG}/_last_checkpoint")) is not None

    def _refuse_strangers(self) -> None:
        strangers = [f for f in self.store.folders(self.folder) if not f.startswith("_")]
        files = [info.name for info in self.store.list(self.folder)]
        ours = {LOG, *(f"_{name}" for name in ("heartbeats", "state"))}
        strangers += [f for f in self.store.folders(self.folder) if f[:1] == "_" and f not in ours]
        if strangers or files:
            what = (strangers or files)[0].rpartition("/")[2]
            raise InvalidRequestError(
                f"{self.url} holds {what!r} and is no Delta table.",
                "Choose an empty place for the offsets table with the setting offsets.table.",
            )

    def _open(self, again: bool = False) -> Any:
        """A handle of the table, which must be there and be ours."""
        if self._held is None or again:
            deltalake = import_deltalake()
            table = self._do(
                "open", lambda: deltalake.DeltaTable(self._uri, storage_options=self._options)
            )
            self._check_ours(table)
            self._held = table
        return self._held

    def _check_ours(self, table: Any) -> None:
        found = pa.schema(table.schema().to_arrow())
        if not fact_rows.same_schema(found):
            raise InvalidRequestError(
                f"{self.url} is a Delta table of another shape: its columns are "
                f"{', '.join(found.names[:20])}.",
                f"An offsets table has {', '.join(fact_rows.SCHEMA.names)}. Choose an empty "
                "place with the setting offsets.table.",
            )
        if table.metadata().partition_columns:
            raise InvalidRequestError(
                f"{self.url} is a partitioned Delta table, which an offsets table is not.",
                "Choose an empty place with the setting offsets.table.",
            )
        self._id = str(table.metadata().id)

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

    # --- looking ---------------------------------------------------------------------------

    def read(self, since: int) -> News:
        if not self._exists():
            self._refuse_strangers()
            return News(-1, ())
        if since < 0:
            return self._read_all(since)
        facts: list[Fact] = []
        version = since
        while (data := self.store.get(self._log_name(version + 1))) is not None:
            version += 1
            found = self._added(data, version)
            if found is None:
                return self._read_all(since)
            facts += found
        if version == since and self._was_cleaned(since):
            return self._read_all(since)
        return News(version, tuple(facts))

    def _was_cleaned(self, version: int) -> bool:
        """Whether the log may end here only because it was cleaned past this version."""
        self._idle += 1
        if not self._doubt and self._idle % CHECK_EVERY:
            return False
        self._doubt = False
        return self.store.get(self._log_name(version), 0, 1) is None

    def _added(self, data: bytes, version: int) -> list[Fact] | None:
        """The facts of one version; None when a file of it is gone, since it was compacted."""
        where = self._log_name(version)
        if len(data) > MOST_LOG_BYTES:
            raise CorruptLogError(f"{where} holds {len(data)} bytes, which no append writes.")
        paths: list[str] = []
        rewrites = False
        for line in data.splitlines():
            action = strict_json.fields(strict_json.loads(line, where, MOST_LOG_BYTES), where)
            rewrites = rewrites or "remove" in action
            add = action.get("add")
            if isinstance(add, dict) and add.get("dataChange", True):
                paths.append(strict_json.string(add.get("path"), where, 8192))
        facts: list[Fact] = []
        for path in paths:
            name = self._inside(path)
            found = self.store.get(name)
            if found is None:
                return None
            facts += self._facts(found, name)
        strange = next((f for f in facts if f.version != version), None)
        if strange is not None and not rewrites:
            raise CorruptLogError(
                f"Version {version} of {self.url} holds a fact that says it is of version "
                f"{strange.version}.",
                "Rows of this table are written by offsetlog only: delete those that are not.",
            )
        return [fact for fact in facts if fact.version == version]

    def _inside(self, path: str) -> str:
        """The name of a data file, which must lie in the table."""
        plain = unquote(path)
        try:
            if "://" in plain or plain.startswith("/"):
                raise InvalidRequestError(plain)
            return self._name(check_name(plain))
        except InvalidRequestError:
            raise CorruptLogError(
                f"The log of {self.url} names a file outside the table: {plain[:200]!r}.",
                "Only offsetlog writes to this table; restore it from a backup.",
            ) from None

    def _facts(self, data: bytes, name: str) -> list[Fact]:
        try:
            table = pq.read_table(pa.BufferReader(data))
        except (pa.ArrowException, OSError, ValueError) as error:
            raise CorruptLogError(f"{name} does not read: {error}.") from None
        return fact_rows.from_arrow(table, name)

    def _read_all(self, since: int) -> News:
        """All files of the newest version; of their facts, those after ``since``."""
        for again in (True, True, False):
            table = self._open(again=True)
            version = int(table.version())
            paths = pa.table(table.get_add_actions()).column("path").to_pylist()
            facts: list[Fact] = []
            for path in paths:
                name = self._inside(str(path))
                data = self.store.get(name)
                if data is None:
                    break
                facts += [fact for fact in self._facts(data, name) if fact.version > since]
            else:
                return self._checked(version, since, facts)
            if not again:
                raise CorruptLogError(
                    f"{name} is gone, but version {version} of {self.url} names it.",
                    "Restore the table from a backup.",
                )
        raise AssertionError

    def _checked(self, version: int, since: int, facts: list[Fact]) -> News:
        if len({(fact.version, fact.place) for fact in facts}) < len(facts):
            raise CorruptLogError(
                f"{self.url} holds a fact twice.",
                "Rows of this table are written by offsetlog only: delete those that are not.",
            )
        if version < since:
            raise CorruptLogError(
                f"{self.url} is at version {version}, but was at {since} before.",
                "It was replaced under this program: open the log again.",
            )
        return News(version, tuple(facts))

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
            # So far behind that its log is gone: only the files themselves can tell.
            return found[1] if found[0] == self._table_id() else EMPTY
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

    # --- errors ----------------------------------------------------------------------------

    def _do(self, doing: str, work: Callable[[], T]) -> T:
        try:
            return work()
        except OffsetLogError:
            raise
        except Exception as error:  # noqa: BLE001
            self._fail(doing, error)

    def _fail(self, doing: str, error: Exception) -> NoReturn:
        raise StorageError(
            f"The offsets table {self.url} did not {doing}: {self._redact(error)}.",
            "Try again; check the place and the credentials if it stays so.",
        ) from None


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
