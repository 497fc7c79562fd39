"""The offsets table as a Delta table: facts appended at exactly a version.

1. An append is tried at one version and never rebased: either it is that version or it is a
   ``Conflict``, so a commit that is not legal any more never enters.
2. Versions, data files and checkpoints are written by the log's own store, put-if-absent for a
   version and synced before they count: what was acknowledged survives a power cut, and so
   does the table itself. No library is given a path to write to.
3. A read takes the table's own log, file by file, and of the data only the files that are new: a
   read that finds nothing is one request.
4. Old log files are deleted by their number, far below the newest checkpoint, and only when that
   is synced. Then a name is free again: what lies there may be a put that came too late, by
   whomever, and is never believed. So a reader that was behind reads the table anew.
5. A data file that no version names is deleted only when the version after the one at which it was
   first seen is taken: then the append or compaction that wrote it can't land any more, however
   long it paused. Clocks only keep it for longer, as a courtesy to running readers.
6. The table is opened by what lies in its log: the newest checkpoint that reads whole, and the
   versions after it. ``_last_checkpoint`` is not needed for that, so it may be wrong or missing.
7. Everything is read through the log's own store: no link below its root is followed, and nothing
   is read without a limit. A path in the log that leaves the table is refused, and so is a table
   of another log.
"""

from __future__ import annotations

import contextlib
import time
import uuid
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.parquet as pq

from offsetlog.core import strict_json
from offsetlog.core.decode import (
    Decoder,
    field,
    from_json,
    from_value,
    integer,
    map_of,
    nullable,
    plain,
    row,
    string,
)
from offsetlog.core.group.facts import Fact
from offsetlog.core.group.state import EMPTY, GroupsState
from offsetlog.errors import CorruptLogError, InvalidRequestError, OffsetLogError
from offsetlog.format import delta_log
from offsetlog.format import facts_arrow as fact_rows
from offsetlog.format.delta_log import LAST_CHECKPOINT, LOG, MOST_LOG_BYTES, Action, DeltaState
from offsetlog.storage.delta.compact import bins_of, counted, land, write
from offsetlog.storage.offsets.port import (
    ROOT_KEY,
    STATE_FILE,
    HeartbeatFiles,
    RootId,
    TableNews,
    Upkeep,
)
from offsetlog.storage.paths import check_name
from offsetlog.storage.store import Committed, Conflict, PutResult, Store, Unknown

CHECK_SECONDS = 2.0
"""Who last looked longer ago than this checks that the log was not cleaned past it meanwhile."""
LOGS_KEPT = 400
"""Log files that stay below the newest checkpoint, for readers that are behind."""
MOST_NOTE_BYTES = 1024 * 1024
READERS = 8
TABLE_KEY = "offsetlog.table"
TRIES = 3
_ID = field("id", string())
_NOTE_TAGS = field("tags", nullable(plain))
_NOTE_VERSION = field("version", integer())
TIDY_EVERY = 50
"""Versions from one checkpoint to the next."""
COMPACT_TRIES = 20
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


class DeltaOffsets(HeartbeatFiles):
    """The offsets table on a filesystem that readers of Delta reach."""

    def __init__(
        self, store: Store, folder: str, address: str, root_id: RootId | None = None
    ) -> None:
        super().__init__(store, folder, root_id)
        self.delta_address = address
        self._held: DeltaState | None = None
        self._is_free = False
        self._is_settled = False
        self._unsettled = False
        self._id = ""
        self._doubt = True
        self._checked_at = (0.0, 0.0)

    # --- opening ---------------------------------------------------------------------------

    def _log_name(self, version: int) -> str:
        return self._name(f"{LOG}/{version:020d}.json")

    def _log_entry(self, version: int) -> bytes | None:
        return self.store.get(self._log_name(version), 0, MOST_LOG_BYTES + 1)

    def _exists(self) -> bool:
        """Whether there is a table; notes whose it is, where that takes no opening."""
        if self._id:
            return True
        first = self._log_entry(0)
        note = None if first is not None else self._note()
        if first is None and note is None:
            # Where the note was lost there is a checkpoint all the same.
            return not self._is_free and any(
                (found := delta_log.log_file(info.name)) is not None and found.parts
                for info in self.store.list(self._name(LOG))
            )
        with contextlib.suppress(OffsetLogError):  # Whoever opens it says what is wrong.
            self._whose(first, note or b"{}")
        return True

    def _whose(self, first: bytes | None, note: bytes) -> None:
        if first is None:
            tags = from_json(_NOTE_TAGS, note, self.url, MOST_NOTE_BYTES) or {}
            table_id, root = tags.get(TABLE_KEY), tags.get(ROOT_KEY)
        else:
            made = DeltaState()
            made.apply(delta_log.actions_of(first, self.url), self.url)
            table_id, root = made.metadata.get("id"), made.configuration.get(ROOT_KEY)
        if isinstance(table_id, str):
            self._id = table_id
        if isinstance(root, str):
            self._root = root

    def _note(self) -> bytes | None:
        return self.store.get(self._name(f"{LOG}/{LAST_CHECKPOINT}"), 0, MOST_NOTE_BYTES)

    def _refuse_strangers(self) -> None:
        """What lies there without being a table is somebody's; looked at once."""
        if self._is_free:
            return
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
        self._is_free = True

    def _open(self, again: bool = False) -> DeltaState:
        """The table, which must be there and be ours, as it was when it was opened."""
        if self._held is None or again:
            self._held = self._open_own()
        return self._held

    def _open_own(self) -> DeltaState:
        """The table as it is now, for the caller alone."""
        for again in range(TRIES):
            try:
                state = self._replayed()
                break
            except CorruptLogError:
                if again == TRIES - 1:
                    raise  # Else it was cleaned while it was read.
        self._check_ours(state)
        return state

    def _replayed(self) -> DeltaState:
        """The newest checkpoint that reads whole, and the versions after it."""
        versions: set[int] = set()
        checkpoints: dict[tuple[int, int], dict[int, str]] = {}
        for info in self.store.list(self._name(LOG)):
            found = delta_log.log_file(info.name)
            if found is None:
                continue
            if not found.parts:
                versions.add(found.version)
            elif info.size:
                checkpoints.setdefault((found.version, found.parts), {})[found.part] = info.name
        whole = [key for key, parts in checkpoints.items() if len(parts) == key[1]]
        broken: CorruptLogError | None = None
        for version, count in sorted(whole, reverse=True):
            try:
                names = [name for _, name in sorted(checkpoints[version, count].items())]
                return self._since(self._read_checkpoint(version, names), versions)
            except CorruptLogError as error:
                broken = broken or error
        if 0 in versions or broken is None:
            return self._since(DeltaState(), versions)
        raise broken

    def _read_checkpoint(self, version: int, names: Sequence[str]) -> DeltaState:
        parts = []
        for name in names:
            data = self.store.get(name, 0, delta_log.MOST_CHECKPOINT_BYTES + 1)
            if data is None or len(data) > delta_log.MOST_CHECKPOINT_BYTES:
                raise CorruptLogError(f"{name} is gone, or of more bytes than a checkpoint has.")
            parts.append(data)
        return delta_log.read_checkpoint(parts, version, names[0])

    def _since(self, state: DeltaState, versions: set[int]) -> DeltaState:
        """A state moved on to the newest version."""
        after = state.version + 1
        end = next(v for v in range(after, after + len(versions) + 1) if v not in versions)
        with ThreadPoolExecutor(READERS) as pool:
            for version, data in zip(
                range(after, end), pool.map(self._log_entry, range(after, end)), strict=True
            ):
                if data is None:
                    raise CorruptLogError(f"{self._log_name(version)} is gone.")
                self._step(state, data)
        self._forward(state)
        beyond = min((v for v in versions if v > state.version), default=None)
        if beyond is not None or state.version < 0:
            missing = self._log_name(state.version + 1)
            raise CorruptLogError(
                f"{missing} is missing"
                + (f", though version {beyond} is there." if beyond is not None else "."),
                "A power cut or a partial copy does that: restore the table from a backup.",
            )
        return state

    def _forward(self, state: DeltaState) -> DeltaState:
        """Apply what came since."""
        while (data := self._log_entry(state.version + 1)) is not None:
            self._step(state, data)
        return state

    def _step(self, state: DeltaState, data: bytes) -> None:
        where = self._log_name(state.version + 1)
        state.apply(delta_log.actions_of(data, where), where)

    def _check_ours(self, state: DeltaState) -> None:
        state.check_readable(self.url)
        found = {str(field.get("name")): field.get("type") for field in state.fields(self.url)}
        if any(found.get(name) != kind for name, kind in COLUMNS.items()):
            raise InvalidRequestError(
                f"{self.url} is a Delta table of another shape: its columns are "
                f"{', '.join(list(found)[:20])}.",
                f"An offsets table has {', '.join(fact_rows.SCHEMA.names)}. Choose an empty "
                "place with the setting offsets.table.",
            )
        if state.metadata.get("partitionColumns"):
            raise InvalidRequestError(
                f"{self.url} is a partitioned Delta table, which an offsets table is not.",
                "Choose an empty place with the setting offsets.table.",
            )
        self._id = from_value(_ID, state.metadata, self.url)
        self._root = state.configuration.get(ROOT_KEY, "")
        self._check_root()

    # --- looking ---------------------------------------------------------------------------

    def read(self, since: int) -> TableNews:
        if self._unsettled and self.is_local:
            # What is seen of an append without an answer is durable before it is believed.
            self.store.settle(self._name(LOG))
        self._unsettled = False
        if not self._exists():
            self._refuse_strangers()
            return TableNews(-1, ())
        self._check_root()
        if since < 0:
            return self._read_all(since)
        facts: list[Fact] = []
        version = since
        while (data := self._log_entry(version + 1)) is not None:
            version += 1
            found = self._added(data, version)
            if found is None:
                return self._read_all(since)
            facts += found
        if self._was_cleaned(since, version):
            return self._read_all(since)
        return TableNews(version, tuple(facts))

    def _was_cleaned(self, since: int, version: int) -> bool:
        """Whether the log may seem to end at ``version`` only because it was cleaned past
        ``since``: then what was read of it may be a late put at a name that was free again."""
        if not self._doubt and self._passed() < CHECK_SECONDS:
            return False
        self._doubt, self._checked_at = False, (time.monotonic(), time.time())
        checkpoint = self._newest_checkpoint()
        if checkpoint > version or checkpoint - LOGS_KEPT > since:
            return True
        # Who stood still while it told of a checkpoint may have told of an old one.
        return self.store.get(self._log_name(since), 0, 1) is None

    def _passed(self) -> float:
        """Seconds since it was known that the log was not cleaned past what was seen of it. The
        one clock stands still while a laptop sleeps, the other may be put back."""
        now = time.monotonic(), time.time()
        return max(abs(new - old) for new, old in zip(now, self._checked_at, strict=True))

    def _newest_checkpoint(self) -> int:
        """The version that Delta's own note names; -1 when there is none that can be read. It is
        written before anything below it is cleaned."""
        data = self._note()
        if data is None:
            return -1
        try:
            return from_json(_NOTE_VERSION, data, self.url, MOST_NOTE_BYTES)
        except OffsetLogError:
            return -1

    def _added(self, data: bytes, version: int) -> list[Fact] | None:
        """The facts of one version; None when a file of it is gone, since it was compacted."""
        where = self._log_name(version)
        paths: list[str] = []
        rewrites = False
        for action in delta_log.actions_of(data, where):
            rewrites = rewrites or "remove" in action
            if "protocol" in action or "metaData" in action:
                return None  # Whether it can be read at all is seen where it is opened.
            if (raw := action.get("add")) is not None:
                add = from_value(plain, raw, where)
                if add.get("dataChange", True):
                    paths.append(from_value(delta_log.PATH, add, where))
        facts: list[Fact] = []
        for path in paths:
            name = self._inside(path)
            found = self._data_file(name)
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

    def _data_file(self, name: str) -> bytes | None:
        data = self.store.get(name, 0, fact_rows.MOST_FILE_BYTES + 1)
        if data is not None and len(data) > fact_rows.MOST_FILE_BYTES:
            raise CorruptLogError(f"{name} holds more than {fact_rows.MOST_FILE_BYTES} bytes.")
        return data

    def _facts(self, data: bytes, name: str, since: int = -1) -> list[Fact]:
        """The facts of a file after a version; one that holds none of them is not decoded."""
        try:
            file = pq.ParquetFile(pa.BufferReader(data))
            if _newest(file.metadata) <= since:
                return []
            fact_rows.check_size(file.metadata, name)
            return fact_rows.facts_of(file, name, since)
        except (pa.ArrowException, OSError, ValueError) as error:
            raise CorruptLogError(f"{name} does not read: {str(error)[:200]}.") from None

    def _read_all(self, since: int) -> TableNews:
        """All files of the newest version; of their facts, those after ``since``."""
        for again in (True, True, False):
            state = self._open(again=True)
            facts: list[Fact] = []
            for path in state.adds:
                name = self._inside(path)
                data = self._data_file(name)
                if data is None:
                    break
                facts += self._facts(data, name, since)
            else:
                return self._checked(state.version, since, facts)
            if not again:
                raise CorruptLogError(
                    f"{name} is gone, but version {state.version} of {self.url} names it.",
                    "Restore the table from a backup.",
                )
        raise AssertionError

    def _checked(self, version: int, since: int, facts: list[Fact]) -> TableNews:
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
        return TableNews(version, tuple(facts))

    # --- making ----------------------------------------------------------------------------

    def create(self) -> None:
        if self._exists():
            self._open()
            return
        self._refuse_strangers()
        settings = dict(SETTINGS)
        if self._root_id is not None:
            settings[ROOT_KEY] = self._root_id()
        text = delta_log.new_table(fact_rows.SCHEMA, str(uuid.uuid4()), settings, _now_ms())
        self._put_once(self._log_name(0), text)
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


COLUMNS = delta_log.column_types(fact_rows.SCHEMA)


def _newest(footer: Any) -> int:
    """The newest version in a file, as its statistics have it; without them it may be any."""
    newest = -1
    for group in range(footer.num_row_groups):
        row_group = footer.row_group(group)
        for column in range(row_group.num_columns):
            about = row_group.column(column)
            if about.path_in_schema == "version":
                known = about.statistics is not None and about.statistics.has_min_max
                newest = max(newest, about.statistics.max if known else 2**63)
    return newest


def _number(name: str) -> int:
    """The version in a log file's name; files without one are nobody's to delete."""
    digits = name.rpartition("/")[2].partition(".")[0]
    return int(digits) if digits.isascii() and digits.isdigit() and len(digits) == 20 else 2**62


def _now_ms() -> int:
    return int(time.time() * 1000)
