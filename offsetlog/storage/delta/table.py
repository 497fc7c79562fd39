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
from collections.abc import Iterable, Sequence
from urllib.parse import unquote

import pyarrow as pa

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
from offsetlog.format import delta_log, facts_arrow, notes
from offsetlog.format.delta_log import LOG, MOST_LOG_BYTES, Action, DeltaState
from offsetlog.format.parquet import ParquetReader
from offsetlog.storage.delta.check import DeltaCheck
from offsetlog.storage.delta.compact import bins_of, counted, land, write
from offsetlog.storage.delta.copying import begin, read_rows
from offsetlog.storage.delta.log import MOST_NOTE_BYTES, REAL, DeltaLog, Surroundings
from offsetlog.storage.offsets.check import Progress, TableCheck
from offsetlog.storage.offsets.port import (
    HEARTBEATS,
    ROOT_KEY,
    UNNAMED,
    OffsetsPort,
    RootId,
    TableNews,
    TableRows,
    Upkeep,
)
from offsetlog.storage.paths import check_name
from offsetlog.storage.store import Committed, Conflict, PutResult, Store, Unknown

CHECK_SECONDS = 2.0
"""Who last looked longer ago than this checks that the log was not cleaned past it meanwhile."""
LOGS_KEPT = 400
"""Log files that stay below the newest checkpoint, for readers that are behind."""
TABLE_KEY = "offsetlog.table"
TRIES = 3
_ID = field("id", string())
_NOTE_TAGS = field("tags", nullable(plain))
COMPACT_TRIES = 20
Seen = dict[str, tuple[int, int]]
"""Files by their names: the version and the time at which they were seen first."""
_UNNAMED_FILES: Decoder[Seen] = field(
    "files", map_of(row(lambda version, ms: (version, ms), integer(), integer()), key=string())
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


class DeltaOffsets(OffsetsPort):
    """The offsets table on a filesystem that readers of Delta reach."""

    def __init__(
        self,
        store: Store,
        folder: str,
        address: str,
        root_id: RootId | None = None,
        surroundings: Surroundings = REAL,
    ) -> None:
        super().__init__(store, folder, root_id)
        self.delta_address = address
        self._surroundings = surroundings
        self._now_ms = surroundings.now_ms
        self._log = DeltaLog(store, folder, surroundings)
        self._held: DeltaState | None = None
        """The table as it was opened; only its protocol and metadata are up to date."""
        self._copied: DeltaState | None = None
        """As it was at the last version that was skipped."""
        self._is_free = False
        self._is_settled = not self.is_local
        self._unsettled = False
        self._doubt = True
        self._checked_at = (0.0, 0.0)

    # --- opening ---------------------------------------------------------------------------

    def _exists(self) -> bool:
        """Whether there is a table; notes whose it is, where that takes no opening."""
        if self._id:
            return True
        first = self._log.version(0)
        note = None if first is not None else self._log.note()
        if first is None and note is None:
            # Where the note was lost there is a checkpoint all the same.
            return not self._is_free and any(
                (found := delta_log.log_file(info.name)) is not None and found.parts
                for info in self.store.list(f"{self._prefix}{LOG}")
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

    def _check_place(self) -> None:
        if self._exists():
            self._open()
        else:
            self._check_free()

    def _check_free(self) -> None:
        """Whether a table may be made here; looked at once."""
        if self._is_free:
            return
        try:
            self._refuse_strangers("Delta table", {LOG, HEARTBEATS, "_state"}.__contains__)
        except InvalidRequestError:
            if self._exists():
                return  # Somebody made it between the two looks, and wrote to it.
            raise
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
                state = self._log.replayed()
                break
            except CorruptLogError:
                if again == TRIES - 1:
                    raise  # Else it was cleaned while it was read.
        self._check_ours(state)
        return state

    def _check_ours(self, state: DeltaState) -> None:
        state.check_readable(self.url)
        columns = {str(field.get("name")): field.get("type") for field in state.fields(self.url)}
        if any(columns.get(name) != kind for name, kind in COLUMNS.items()):
            raise InvalidRequestError(
                f"{self.url} is a Delta table of another shape: its columns are "
                f"{', '.join(list(columns)[:20])}.",
                f"An offsets table has {', '.join(facts_arrow.SCHEMA.names)}. Choose an empty "
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
            self.store.settle(f"{self._prefix}{LOG}")
        self._unsettled = False
        if not self._id and not self._exists():
            self._check_free()
            return TableNews(-1, ())
        self._check_root()
        if since < 0:
            return self._read_all(since)
        facts: list[Fact] = []
        version = since
        while (data := self._log.version(version + 1)) is not None:
            version += 1
            appended = self._added(data, version)
            if appended is None:
                return self._read_files(since)
            facts += appended
        if self._was_cleaned(since, version):
            return self._read_files(since)
        return TableNews(version, tuple(facts))

    def _read_files(self, since: int) -> TableNews:
        """What is new, from the files of the newest version; or all there is, where somebody
        changed older rows since."""
        news = self._read_all(since)
        listed = (delta_log.log_file(info.name) for info in self.store.list(f"{self._prefix}{LOG}"))
        for file in listed:
            if file is None or file.parts or not since < file.version <= news.version:
                continue
            data = self._log.version(file.version)
            where = self._log.name(file.version)
            if data is not None and delta_log.changes_rows(delta_log.actions_of(data, where)):
                return self._read_all(-1)._replace(anew=True)
        return news

    def _was_cleaned(self, since: int, version: int) -> bool:
        """Whether the log may seem to end at ``version`` only because it was cleaned past
        ``since``: then what was read of it may be a late put at a name that was free again."""
        if not self._doubt and self._passed() < CHECK_SECONDS:
            return False
        self._doubt, self._checked_at = False, self._clocks()
        checkpoint = self._log.newest_checkpoint()
        if checkpoint > version or checkpoint - LOGS_KEPT > since:
            return True
        # A process that paused before writing `_last_checkpoint` may have written an old one.
        return self.store.get(self._log.name(since), 0, 1) is None

    def _passed(self) -> float:
        """Seconds since it was known that the log was not cleaned past what was seen of it. The
        one clock stands still while a laptop sleeps, the other may be put back."""
        now = self._clocks()
        return max(abs(new - old) for new, old in zip(now, self._checked_at, strict=True))

    def _clocks(self) -> tuple[float, float]:
        return self._surroundings.monotonic(), self._now_ms() / 1000

    def _added(self, data: bytes, version: int) -> list[Fact] | None:
        """The facts of one version; None when a file of it is gone, since it was compacted."""
        where = self._log.name(version)
        adds: dict[str, Action] = {}
        rewrites = False
        actions = delta_log.actions_of(data, where)
        if delta_log.takes_rows_out(actions):
            return None
        for action in actions:
            rewrites = rewrites or "remove" in action
            if "protocol" in action or "metaData" in action:
                return None  # Whether it can be read at all is seen where it is opened.
            if (raw := action.get("add")) is not None:
                add = from_value(plain, raw, where)
                if add.get("deletionVector") is not None:
                    return None  # Refused where it is opened, unless it is gone by then.
                if add.get("dataChange", True):
                    adds[from_value(delta_log.PATH, add, where)] = add
        facts: list[Fact] = []
        for path, add in adds.items():
            name = self._inside(path)
            try:
                content = self._data_file(name, add)
                if content is None:
                    return None
                facts += self._facts(content, name)
            except CorruptLogError:
                return None  # The newest version says whether it is part of the table.
        if not rewrites and any(fact.version != version for fact in facts):
            return None  # Rows of somebody's, who may have put back older ones.
        return [fact for fact in facts if fact.version == version]

    def _inside(self, path: str) -> str:
        """The name of a data file, which must lie in the table."""
        plain = unquote(path)
        try:
            if "://" in plain or plain.startswith("/"):
                raise InvalidRequestError(plain)
            return f"{self._prefix}{check_name(plain)}"
        except InvalidRequestError:
            raise CorruptLogError(
                f"The log of {self.url} names a file outside the table: {plain[:200]!r}.",
                "Only offsetlog writes to this table; restore it from a backup.",
            ) from None

    def _data_file(self, name: str, add: Action) -> bytes | None:
        data = self.store.get(name, 0, facts_arrow.MOST_FILE_BYTES + 1)
        if data is not None and len(data) > facts_arrow.MOST_FILE_BYTES:
            raise CorruptLogError(f"{name} holds more than {facts_arrow.MOST_FILE_BYTES} bytes.")
        if data is not None:
            delta_log.check_file(add, data, name)
        return data

    def _facts(self, data: bytes, name: str, since: int = -1) -> list[Fact]:
        """The facts of a file after a version; one that holds none of them is not decoded."""
        file = facts_arrow.open_file(data, name)
        return [] if _newest(file) <= since else facts_arrow.facts_of(file, since)

    def _read_all(self, since: int) -> TableNews:
        """All files of the newest version; of their facts, those after ``since``."""
        for again in (True, True, False):
            state = self._open(again=True)
            facts: list[Fact] = []
            for path, add in state.adds.items():
                name = self._inside(path)
                data = self._data_file(name, add)
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
            # An OPTIMIZE of somebody's, beside ours, leaves equal rows twice.
            facts = list(dict.fromkeys(facts))
        if len({(fact.version, fact.place) for fact in facts}) < len(facts):
            raise CorruptLogError(
                f"{self.url} holds two facts at one place of a version.",
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
        self._check_free()
        settings = dict(SETTINGS)
        if self._root_id is not None:
            settings[ROOT_KEY] = self._root_id()
        text = delta_log.new_table(
            facts_arrow.SCHEMA, str(self._surroundings.new_uuid()), settings, self._now_ms()
        )
        self._put_once(self._log.name(0), text)
        self._open(again=True)

    # --- appending -------------------------------------------------------------------------

    def append(self, facts: Sequence[Fact], version: int) -> PutResult:
        data = facts_arrow.to_parquet(facts)
        state = self._open()
        state.check_writable(self.url, facts_arrow.SCHEMA.names)
        if not self._is_settled:
            self._settle_found()
        if self._was_cleaned(version - 1, version - 1):
            state = self._open(again=True)
            if state.version != version - 1:
                self._doubt = True
                return Conflict()
        now_ms = self._now_ms()
        path = f"part-00000-{self._surroundings.new_uuid()}-c000.snappy.parquet"
        actions = [delta_log.add_file(path, data, len(facts), now_ms, True)]
        if not self._root and self._root_id is not None:
            # The first append to a table that is older than the rule makes it this log's.
            settings = {**state.configuration, ROOT_KEY: self._root_id()}
            actions.insert(0, {"metaData": {**state.metadata, "configuration": settings}})
            self._held = None
        text = delta_log.encode_version("WRITE", now_ms, actions, mode="Append")
        name = self._log.name(version)
        # Nothing of this is an answer: before the put of the version nobody knows of the rest.
        self.store.put(f"{self._prefix}{path}", data, durable=not self.is_local)
        offer = self.store.offer(text, name)
        try:
            if self.is_local:
                # Cheaper than before its rename: the disk's journal is written once.
                self.store.sync(f"{self._prefix}{path}")
                self.store.settle(self.folder)
            result = offer.put(name)
        finally:
            offer.close()
        if isinstance(result, Committed) and self._passed() > DOUBT_SECONDS:
            result = Unknown("the append took long")
        if not isinstance(result, Committed):
            self._doubt, self._unsettled = True, isinstance(result, Unknown)
        return result

    def _settle_found(self) -> None:
        """Make durable, once, what this begins with: version 0, the newest checkpoint and the
        newest version may be of a library or an older version, which left that to chance."""
        log = f"{self._prefix}{LOG}"
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
        table = super().checkpoint()
        if table.version >= 0 and self.store.get(self._log.name(table.version), 0, 1) is None:
            # So far behind that its log is gone, or ahead of a table that was restored.
            return table if self._open().version >= table.version else EMPTY
        return table

    def _table_id(self) -> str:
        if not self._id and self._exists() and not self._id:
            self._open()
        return self._id

    def tidy(self) -> None:
        """Make few files of many, and a fresh checkpoint: a first look costs what both hold."""
        self._drop_logs(self._compact()[0].version)

    def _compact(self) -> tuple[DeltaState, tuple[int, int]]:
        """The state afterwards; how many files were replaced, and by how many."""
        done, plan = (0, 0), None
        state, opened = self._open_own(), self._surroundings.monotonic()
        for _ in range(COMPACT_TRIES):
            if self._surroundings.monotonic() - opened > CHECK_SECONDS:
                # The log may have been cleaned past what was seen.
                state, opened = self._open_own(), self._surroundings.monotonic()
            live = self._log.forward(state).files()
            if plan is None or not plan.fits(live):
                state.check_writable(self.url, facts_arrow.SCHEMA.names)
                bins = bins_of(counted(self.store, self._inside, live))
                if not bins:
                    break
                plan = write(self.store, self._inside, bins, state.adds, self._surroundings)
                continue
            if land(self.store, plan.text, self._log.name(state.version + 1)):
                done = len(plan.replaced), plan.files
                self._forget_unnamed(plan.replaced)
                break
        state = self._open_own()
        self._store_delta_checkpoint(state)
        return state, done

    def _store_delta_checkpoint(self, state: DeltaState) -> None:
        """What Delta's readers begin with: synced before the note that names it, and that before
        anything goes."""
        data, rows = state.checkpoint(self._now_ms())
        tags = {TABLE_KEY: self._id, ROOT_KEY: self._root}
        self._log.store_checkpoint(state.version, data, rows, len(state.adds), tags)

    def _drop_logs(self, version: int) -> None:
        """Delete what lies far below a version whose checkpoint is stored."""
        files = [info.name for info in self.store.list(f"{self._prefix}{LOG}")]
        self.store.delete(sorted(f for f in files if _number(f) < version - LOGS_KEPT))

    # --- copying ---------------------------------------------------------------------------

    def rows(self) -> TableRows | None:
        if not self._exists():
            return None
        state = self._open_own()
        return TableRows(state.version, read_rows(self.store, state, self._inside))

    def begin_at(self, version: int, tables: Iterable[pa.Table]) -> None:
        root = {ROOT_KEY: self._root_id()} if self._root_id is not None else {}
        begin(
            self.store,
            self._prefix,
            version,
            tables,
            {**SETTINGS, **root},
            lambda table_id: {TABLE_KEY: table_id, **root},
            self._now_ms(),
        )

    def skip(self, version: int) -> PutResult:
        """What would be an empty version compacts the table instead."""
        state = None if self._copied is None else self._log.forward(self._copied)
        if state is None or state.version != version - 1:
            state = self._open_own()
        if state.version != version - 1:
            return Conflict()
        self._copied = state
        bins = bins_of(counted(self.store, self._inside, state.files()))
        plan = (
            write(self.store, self._inside, bins, state.adds, self._surroundings) if bins else None
        )
        text = plan.text if plan else delta_log.encode_version("COPY", self._now_ms(), [])
        self._held = None
        return self._log.put(version, text)

    def refresh_checkpoint(self) -> None:
        self._store_delta_checkpoint(self._open_own())

    def verify(self, progress: Progress) -> TableCheck | None:
        check = DeltaCheck(
            self.store, self._prefix, self._inside, self._check_ours, SETTINGS, progress
        )
        return check.run()

    def maintain(self, table: GroupsState, grace_ms: int) -> Upkeep:
        if not self._exists():
            return Upkeep(-1)
        state, (removed, added) = self._compact()
        self._drop_logs(state.version)
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
        version, now_ms = state.version, self._now_ms()
        live = {self._inside(path).rpartition("/")[2] for path in state.adds}
        noted = self._unnamed()
        seen = {name: noted.get(name, (version, now_ms)) for name in sorted(there - live)}
        # A time in the future is none.
        seen = {name: (at, min(at_ms, now_ms)) for name, (at, at_ms) in seen.items()}
        gone = {
            name
            for name, (at, at_ms) in seen.items()
            if at < version and now_ms - at_ms >= courtesy_ms
        }
        self.store.delete([f"{self._prefix}{name}" for name in sorted(gone)])
        self._note_unnamed(noted, {name: seen[name] for name in seen.keys() - gone})
        return len(gone)

    def _forget_unnamed(self, replaced: frozenset[str]) -> None:
        """These were named until now, though they were seen before that: the time for which they
        are kept begins anew."""
        noted = self._unnamed()
        self._note_unnamed(noted, {name: noted[name] for name in noted.keys() - replaced})

    def _note_unnamed(self, noted: Seen, left: Seen) -> None:
        if left != noted:
            text = notes.encode({"files": dict(sorted(left.items()))})
            self.store.put(f"{self._prefix}{UNNAMED}", text, durable=False)

    def _unnamed(self) -> Seen:
        """Files that an earlier round saw, with the version and the time of it. A lost note
        costs time only."""
        what = f"{self._prefix}{UNNAMED}"
        data = self.store.get(what, 0, MOST_LOG_BYTES + 1)
        try:
            return notes.decode(_UNNAMED_FILES, data or b"", what, MOST_LOG_BYTES, needs_sum=True)
        except OffsetLogError:
            return {}


COLUMNS = delta_log.column_types(facts_arrow.SCHEMA)


def _newest(file: ParquetReader) -> int:
    """The newest version in a file, as its statistics have it; without them it may be any."""
    groups = range(file.metadata.num_row_groups)
    newest = [file.greatest(group, "version") for group in groups]
    return max([2**63 if version is None else version for version in newest], default=-1)


def _number(name: str) -> int:
    """The version in a log file's name; files without one are nobody's to delete."""
    digits = name.rpartition("/")[2].partition(".")[0]
    return int(digits) if digits.isascii() and digits.isdigit() and len(digits) == 20 else 2**62
