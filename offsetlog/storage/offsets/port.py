"""What consumer groups ask of the place where their facts are kept.

Rules of this port:

1. A version is a number; facts are appended at exactly one, and whoever appends there first
   has it for ever. ``append`` answers ``Committed``, ``Conflict`` (the version is taken, by
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

from collections.abc import Callable, Sequence
from typing import NamedTuple, Protocol

from offsetlog.core.group.facts import Fact
from offsetlog.core.group.state import GroupsState
from offsetlog.errors import InvalidRequestError, StorageError
from offsetlog.storage.store import PutResult, Store, Unknown

HEARTBEATS = "_heartbeats"
STATE_FILE = "_state/checkpoint.json"
CREATE_TRIES = 5
CLOCK_FILE = "_state/clock.json"
"""Touched to read the storage's clock."""
ROOT_KEY = "offsetlog.root"
RootId = Callable[[], str]
"""Tells the id of the log that asks; called when there is a table, or one is to be made."""


class TableNews(NamedTuple):
    """The facts after a version, complete up to ``version``; -1: there is no table."""

    version: int
    facts: tuple[Fact, ...]


class Upkeep(NamedTuple):
    """What one round of looking after the table did."""

    version: int
    files_compacted: int = 0
    files_written: int = 0
    files_deleted: int = 0


class OffsetsPort(Protocol):
    url: str
    """Where the table is, fit to be shown."""

    is_local: bool

    delta_address: str | None
    """Where other readers of Delta find the table: a path or a URL; None where it is a chain."""

    def create(self) -> None:
        """Make the table, as version 0 without facts, if there is none."""

    def read(self, since: int) -> TableNews:
        """What is new since a version."""

    def append(self, facts: Sequence[Fact], version: int) -> PutResult:
        """Put facts at exactly this version, the one after the last that was read."""

    def checkpoint(self) -> GroupsState:
        """The newest stored state."""

    def store_checkpoint(self, table: GroupsState) -> None:
        """Store the state of a version; best effort."""

    def tidy(self, version: int) -> None:
        """A little upkeep, every so many versions, so that appends stay cheap."""

    def maintain(self, table: GroupsState, grace_ms: int) -> Upkeep:
        """All the upkeep there is. What is deleted is older than the grace period."""

    def beat(self, member: str, text: str) -> None:
        """Overwrite a member's heartbeat."""

    def look_at_beat(self, member: str) -> str | None:
        """A member's heartbeat as it is now; None if there is none."""

    def list_beats(self) -> dict[str, str]:
        """What a listing shows of all members' heartbeats: for each a text that changes when it
        is overwritten, if not at once and not each time."""

    def forget_beat(self, member: str) -> None:
        """Delete a member's heartbeat."""

    def beat_age_ms(self, member: str, now_ms: int) -> int | None:
        """How old it is by the storage's clock; None if there is none."""

    def storage_now(self) -> int | None:
        """The storage's own clock: the time that it gives to a file written now."""

    def close(self) -> None:
        """Free what the port holds."""


class HeartbeatFiles:
    """Heartbeats on a store, and whose table it is: the same for both tables."""

    delta_address: str | None = None

    def __init__(self, store: Store, folder: str, root_id: RootId | None = None) -> None:
        self.store = store
        self.folder = folder
        self._root_id = root_id
        self._root = ""
        """The log that the table says it belongs to, as far as that was seen; may be none."""
        self.is_local = store.is_local
        self.url = f"{store.url}/{folder}" if folder else store.url

    def _name(self, name: str) -> str:
        return f"{self.folder}/{name}" if self.folder else name

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
        finally:
            offer.close()
        raise StorageError(f"No answer came to the making of {self.url}: {error}")

    def _check_root(self) -> None:
        """Refuse a table that is another log's."""
        if not self._root or self._root_id is None:
            return
        ours = self._root_id()
        if self._root != ours:
            raise InvalidRequestError(
                f"The offsets table {self.url} belongs to the log with the id "
                f"{ascii(self._root)[1:-1][:64]}; this log has the id {ours}.",
                "Positions of two logs can't be kept in one table: give each log an offsets "
                "table of its own (offsets_table= of offsetlog.open).",
            )

    def _beat_name(self, member: str) -> str:
        return self._name(f"{HEARTBEATS}/{member}")

    def beat(self, member: str, text: str) -> None:
        self.store.put(self._beat_name(member), text.encode(), durable=False)

    def look_at_beat(self, member: str) -> str | None:
        data = self.store.get(self._beat_name(member), 0, 256)
        return None if data is None else data.decode("utf-8", "replace")

    def list_beats(self) -> dict[str, str]:
        return {
            info.name.rpartition("/")[2]: f"{info.modified_ms} {info.size}"
            for info in self.store.list(self._name(HEARTBEATS))
        }

    def forget_beat(self, member: str) -> None:
        self.store.delete([self._beat_name(member)])

    def beat_age_ms(self, member: str, now_ms: int) -> int | None:
        info = self.store.info(self._beat_name(member))
        return None if info is None else now_ms - info.modified_ms

    def storage_now(self) -> int | None:
        name = self._name(CLOCK_FILE)
        self.store.put(name, b'{"touched":true}', durable=False)
        info = self.store.info(name)
        return None if info is None else info.modified_ms
