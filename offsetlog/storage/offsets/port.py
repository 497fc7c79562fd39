"""What consumer groups ask of the place where their facts are kept.

Rules of this port:

1. A version is a number; facts are appended at exactly one, and whoever appends there first
   has it forever. ``append`` answers ``Committed``, ``Conflict`` (the version is taken, by
   whomever) or ``Unknown`` (no answer came: it may be there, or may come to be).
2. ``read(since)`` gives all facts after version ``since``, and the version up to which they
   are complete. It costs what is new, not what ever was.
3. ``checkpoint`` is a cache: an empty table when there is none, or none that reads whole.
4. Heartbeats are small files beside the table that are overwritten; they are not part of it.
5. Foreign exceptions do not pass: they become an error of ``offsetlog.errors``. What can't be
   stored is refused before anything is sent; only a put without an answer is ``Unknown``.
6. A table is one log's: it carries the id of the log that made it (or, where it is older than
   that, of the first that writes to it), and is refused to any other.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import NamedTuple

import pyarrow as pa

from offsetlog.core.group.facts import Fact
from offsetlog.core.group.state import EMPTY, GroupsState
from offsetlog.errors import InvalidRequestError, OffsetLogError, StorageError
from offsetlog.format import facts_arrow
from offsetlog.storage.offsets.check import Progress, TableCheck
from offsetlog.storage.store import PutResult, Store, Unknown

HEARTBEATS = "_heartbeats"
STATE_FILE = "_state/checkpoint.json"
CREATE_TRIES = 5
UNNAMED = "_state/unnamed.json"
"""A note of files that no version names (``DeltaOffsets``)."""
CLOCK_FILE = "_state/clock.json"
"""Touched to read the storage's clock."""
ROOT_KEY = "offsetlog.root"
RootId = Callable[[], str]
"""Gives the id of the log that asks; called when there is a table, or one is to be made."""


class TableNews(NamedTuple):
    """The facts after a version, complete up to ``version``; -1: there is no table."""

    version: int
    facts: tuple[Fact, ...]
    anew: bool = False
    """Whether these are all facts there are, as somebody changed older rows of the table: what was
    folded before is not its state any more."""


class TableRows(NamedTuple):
    """All facts up to a version, as Arrow tables of a bounded size, in any order."""

    version: int
    tables: Iterator[pa.Table]


class Upkeep(NamedTuple):
    """What one round of looking after the table did."""

    version: int
    files_compacted: int = 0
    files_written: int = 0
    files_deleted: int = 0


class OffsetsPort(ABC):
    """An offsets table in a folder of a store; the two kinds of table derive from it."""

    delta_address: str | None = None
    """Where other readers of Delta find the table: a path or a URL; None where it is a chain."""

    def __init__(self, store: Store, folder: str, root_id: RootId | None = None) -> None:
        self.store = store
        self.folder = folder
        self.is_local = store.is_local
        self.url = f"{store.url}/{folder}" if folder else store.url
        """Where the table is, fit to be shown."""
        self._prefix = f"{folder}/" if folder else ""
        self._id = ""
        """The table's own id, once it was seen."""
        self._root_id = root_id
        self._root = ""
        """The log that the table says it belongs to, as far as that was seen; may be none."""
        self._accepted_root = ""
        """The log that was found to be this one."""
        self._may_beat = False

    @abstractmethod
    def create(self) -> None:
        """Make the table, as version 0 without facts, if there is none."""

    @abstractmethod
    def read(self, since: int) -> TableNews:
        """What is new since a version."""

    @abstractmethod
    def append(self, facts: Sequence[Fact], version: int) -> PutResult:
        """Put facts at exactly this version, the one after the last that was read."""

    @abstractmethod
    def _check_place(self) -> None:
        """Refuse a place that holds what is somebody's: a table that is not ours, or no table and
        something else."""

    @abstractmethod
    def _table_id(self) -> str:
        """The table's own id; empty where there is no table."""

    # --- upkeep ----------------------------------------------------------------------------

    def checkpoint(self) -> GroupsState:
        """The newest stored state."""
        name = f"{self._prefix}{STATE_FILE}"
        data = self.store.get(name, 0, facts_arrow.MOST_CHECKPOINT_BYTES + 1)
        stored = None if data is None else facts_arrow.decode_checkpoint(data, name)
        if stored is None or not stored[0] or stored[0] != self._table_id():
            return EMPTY  # Where there is one, it is of another table, which lay here before.
        return stored[1]

    def store_checkpoint(self, table: GroupsState) -> None:
        """Store the state of a version; best effort."""
        try:
            data = facts_arrow.encode_checkpoint(table, self._table_id())
            if data is not None:
                self.store.put(f"{self._prefix}{STATE_FILE}", data, durable=False)
        except OffsetLogError:
            return  # A cache: the next reader folds a little more.

    def tidy(self) -> None:  # noqa: B027
        """A little upkeep, every so many versions, so that appends stay cheap."""

    @abstractmethod
    def maintain(self, table: GroupsState, grace_ms: int) -> Upkeep:
        """All the upkeep there is. What is deleted is older than the grace period."""

    @abstractmethod
    def verify(self, progress: Progress) -> TableCheck | None:
        """Look at all that is stored; None where there is no table. Nothing is repaired."""

    # --- copying ---------------------------------------------------------------------------

    @abstractmethod
    def rows(self) -> TableRows | None:
        """All facts there are; None where there is no table."""

    @abstractmethod
    def begin_at(self, version: int, tables: Iterable[pa.Table]) -> None:
        """Make the table as of a version, with the facts of another one, where nobody writes."""

    def skip(self, version: int) -> PutResult:
        """Put a version without facts."""
        return self.append((), version)

    def refresh_checkpoint(self) -> None:  # noqa: B027
        """Let a first look cost what is new, without a new version."""

    # --- making ----------------------------------------------------------------------------

    def _put_once(self, name: str, text: bytes) -> None:
        """The file is there afterwards, whoever was first."""
        offer = self.store.offer(text, name)
        error = ""
        try:
            for _ in range(CREATE_TRIES):
                result = offer.put(name)
                if not isinstance(result, Unknown):
                    return
                error = result.error
                if result.waited:
                    break
        finally:
            offer.close()
        raise StorageError(f"No answer came to the making of {self.url}: {error}")

    def _refuse_strangers(self, kind: str, is_ours: Callable[[str], bool]) -> None:
        """Refuse a folder that is no table and holds files, or folders that are not ours: they
        are somebody's."""
        strangers = [name for name in self.store.folders(self.folder) if not is_ours(name)]
        strangers += [info.name for info in self.store.list(self.folder)]
        if strangers:
            raise InvalidRequestError(
                f"{self.url} holds {strangers[0].rpartition('/')[2]!r} and is no {kind}.",
                "Choose an empty place for the offsets table with the setting offsets.table.",
            )

    def _check_root(self) -> None:
        """Refuse a table that is another log's."""
        if self._root in ("", self._accepted_root) or self._root_id is None:
            return
        ours = self._root_id()
        if self._root != ours:
            raise InvalidRequestError(
                f"The offsets table {self.url} belongs to the log with the id "
                f"{ascii(self._root)[1:-1][:64]}; this log has the id {ours}.",
                "Positions of two logs can't be kept in one table: give each log an offsets "
                "table of its own (offsets_table= of offsetlog.open).",
            )
        self._accepted_root = ours

    # --- heartbeats ------------------------------------------------------------------------

    def _beat_name(self, member: str) -> str:
        return f"{self._prefix}{HEARTBEATS}/{member}"

    def beat(self, member: str, text: str) -> None:
        """Overwrite a member's heartbeat."""
        if not self._may_beat:
            self._check_place()  # Nothing is left where no table of ours may be.
            self._may_beat = True
        self.store.put(self._beat_name(member), text.encode(), durable=False)

    def look_at_beat(self, member: str) -> str | None:
        """A member's heartbeat as it is now; None if there is none."""
        data = self.store.get(self._beat_name(member), 0, 256)
        return None if data is None else data.decode("utf-8", "replace")

    def list_beats(self) -> dict[str, str]:
        """What a listing shows of all members' heartbeats: for each a text that changes when it
        is overwritten, if not at once and not each time."""
        return {
            info.name.rpartition("/")[2]: f"{info.modified_ms} {info.size}"
            for info in self.store.list(f"{self._prefix}{HEARTBEATS}")
        }

    def forget_beat(self, member: str) -> None:
        """Delete a member's heartbeat."""
        self.store.delete([self._beat_name(member)])

    def beat_age_ms(self, member: str, now_ms: int) -> int | None:
        """How old it is by the storage's clock; None if there is none."""
        info = self.store.info(self._beat_name(member))
        return None if info is None else now_ms - info.modified_ms

    def storage_now(self) -> int | None:
        """The storage's own clock: the time that it gives to a file written now."""
        self.store.put(f"{self._prefix}{CLOCK_FILE}", b'{"touched":true}', durable=False)
        return self.touched_ms()

    def touched_ms(self) -> int | None:
        """What ``storage_now`` gave last, to whomever: only upkeep asks it. None: nobody did."""
        info = self.store.info(f"{self._prefix}{CLOCK_FILE}")
        return None if info is None else info.modified_ms
