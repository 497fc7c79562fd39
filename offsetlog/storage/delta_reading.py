"""Looking at the offsets table that is a Delta table.

1. A look reads the table's own log, file by file, and of the data only the files that are new:
   an idle look is one request. Log files far below the newest checkpoint go (it was cleaned),
   and then a name is free again: what stands there may be a put that came too late, by
   whomever, and is believed by nobody. So a look that was behind is read anew.
2. A path in the log that leaves the table is refused.
3. ``DeltaTable.to_pyarrow_table`` is never used: it may abort the process at its exit.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Any, NoReturn, TypeVar
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.parquet as pq

from ..errors import CorruptLogError, InvalidRequestError, OffsetLogError, StorageError
from ..format import fact_rows, strict_json
from ..group.facts import Fact
from .offsets_port import Beats, News
from .paths import check_name
from .ports import Store
from .redact import Redactor

T = TypeVar("T")

LOG = "_delta_log"
CHECK_SECONDS = 2.0
"""Who last looked longer ago than this checks that the log was not cleaned past it meanwhile."""
MOST_LOG_BYTES = 64 * 1024 * 1024
LOGS_KEPT = 400
"""Log files that stay below the newest checkpoint, for readers that are behind."""
LAST_CHECKPOINT = "_last_checkpoint"
MOST_NOTE_BYTES = 1024 * 1024


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


class DeltaReading(Beats):
    """The part of the offsets table that opens and looks."""

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
        self._is_free = False
        self._id = ""
        self._doubt = True
        self._checked_at = (0.0, 0.0)

    # --- opening ---------------------------------------------------------------------------

    def _log_name(self, version: int) -> str:
        return self._name(f"{LOG}/{version:020d}.json")

    def _log_entry(self, version: int) -> bytes | None:
        return self.store.get(self._log_name(version), 0, MOST_LOG_BYTES + 1)

    def _exists(self) -> bool:
        if self._id:
            return True
        if self.store.get(self._log_name(0), 0, 1) is not None:
            return True
        return self.store.get(self._name(f"{LOG}/{LAST_CHECKPOINT}")) is not None

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

    def _open(self, again: bool = False) -> Any:
        """A handle of the table, which must be there and be ours."""
        if self._held is None or again:
            self._held = self._open_own()
        return self._held

    def _open_own(self) -> Any:
        """The same, that no other thread moves on."""
        deltalake = import_deltalake()
        table = self._do(
            "open", lambda: deltalake.DeltaTable(self._uri, storage_options=self._options)
        )
        self._check_ours(table)
        return table

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

    # --- looking ---------------------------------------------------------------------------

    def read(self, since: int) -> News:
        if not self._exists():
            self._refuse_strangers()
            return News(-1, ())
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
        return News(version, tuple(facts))

    def _was_cleaned(self, since: int, version: int) -> bool:
        """Whether the log may seem to end at ``version`` only because it was cleaned past
        ``since``: then what was read of it may be a late put at a name that was free again."""
        now = time.monotonic(), time.time()
        # The one stands still while a laptop sleeps, the other may be put back.
        passed = max(abs(new - old) for new, old in zip(now, self._checked_at, strict=True))
        if not self._doubt and passed < CHECK_SECONDS:
            return False
        self._doubt, self._checked_at = False, now
        checkpoint = self._newest_checkpoint()
        if checkpoint > version or checkpoint - LOGS_KEPT > since:
            return True
        # Who stood still while it told of a checkpoint may have told of an old one.
        return self.store.get(self._log_name(since), 0, 1) is None

    def _newest_checkpoint(self) -> int:
        """The version that Delta's own note names; -1 when there is none that can be read. It is
        written before anything below it is cleaned."""
        name = self._name(f"{LOG}/{LAST_CHECKPOINT}")
        data = self.store.get(name, 0, MOST_NOTE_BYTES)
        if data is None:
            return -1
        try:
            told = strict_json.fields(strict_json.loads(data, name, MOST_NOTE_BYTES), name)
            return strict_json.integer(told.get("version"), name)
        except OffsetLogError:
            return -1

    def _added(self, data: bytes, version: int) -> list[Fact] | None:
        """The facts of one version; None when a file of it is gone, since it was compacted."""
        where = self._log_name(version)
        if len(data) > MOST_LOG_BYTES:
            raise CorruptLogError(f"{where} holds more than {MOST_LOG_BYTES} bytes.")
        paths: list[str] = []
        rewrites = False
        for line in data.splitlines():
            action = strict_json.fields(strict_json.loads(line, where, MOST_LOG_BYTES), where)
            rewrites = rewrites or "remove" in action
            if "protocol" in action or "metaData" in action:
                return None  # Whether it can be read at all is seen where it is opened.
            add = action.get("add")
            if add is not None and not isinstance(add, dict):
                raise CorruptLogError(f"{where}: an object was expected.")
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

    def _facts(self, data: bytes, name: str, since: int = -1) -> list[Fact]:
        """The facts of a file after a version; one that holds none of them is not decoded."""
        try:
            file = pq.ParquetFile(pa.BufferReader(data))
            if _newest(file.metadata) <= since:
                return []
            fact_rows.check_size(file.metadata, name)
            table = file.read()
        except (pa.ArrowException, OSError, ValueError) as error:
            raise CorruptLogError(f"{name} does not read: {str(error)[:200]}.") from None
        found = fact_rows.from_arrow(table, name)
        return [fact for fact in found if fact.version > since]

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
                facts += self._facts(data, name, since)
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
