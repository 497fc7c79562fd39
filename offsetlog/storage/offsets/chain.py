"""The offsets table as a chain of put-if-absent entries, where Delta cannot reach.

1. Version n is the file named n; entry 0 is made with the table and holds no facts. Whoever
   puts a name first has that version, and names are never free again.
2. Reading on from a version asks for the next names until one is not there.
3. ``maintain`` deletes nothing but the heartbeats of the dead: the entries are the table.
"""

from __future__ import annotations

import uuid
from collections.abc import Sequence

from offsetlog.core import strict_json
from offsetlog.core.decode import default, field, from_json, from_value, integer, plain, string
from offsetlog.core.group.facts import Fact
from offsetlog.core.group.state import EMPTY, GroupsState
from offsetlog.errors import CorruptLogError, InvalidRequestError, OffsetLogError
from offsetlog.format import facts_arrow as fact_rows
from offsetlog.storage.offsets.port import (
    ROOT_KEY,
    STATE_FILE,
    HeartbeatFiles,
    RootId,
    TableNews,
    Upkeep,
)
from offsetlog.storage.store import PutResult, Store

FORMAT = 1
BUCKET = 10_000
OWNER = "_root.json"
"""Whose a table is whose entry 0 does not say it; made once, by put-if-absent."""


_FORMAT = field("format", integer())
_TABLE = field("table", string())
_ROOT = field(ROOT_KEY, string())
_ROOT_IF_NAMED = field(ROOT_KEY, default(string(), ""))


class ChainOffsets(HeartbeatFiles):
    def __init__(self, store: Store, folder: str, root_id: RootId | None = None) -> None:
        super().__init__(store, folder, root_id)
        self._id = ""

    def _entry(self, version: int) -> str:
        return self._name(f"_log/{version // BUCKET:016d}/{version:020d}.json")

    # --- the table itself ------------------------------------------------------------------

    def create(self) -> None:
        if self._table_id():
            return
        self._refuse_strangers()
        # The name of the entry is what decides: the id only tells tables apart.
        told: dict[str, object] = {"format": FORMAT, "table": uuid.uuid4().hex}
        if self._root_id is not None:
            told[ROOT_KEY] = self._root_id()
        self._put_once(self._entry(0), strict_json.dumps(told))

    def _refuse_strangers(self) -> None:
        strangers = [f for f in self.store.folders(self.folder) if f[:1] != "_"]
        files = [info.name for info in self.store.list(self.folder)]
        if self.folder and (strangers or files):
            what = (strangers or files)[0].rpartition("/")[2]
            raise InvalidRequestError(
                f"{self.url} holds {what!r} and is no offsets table.",
                "Choose an empty place for it with the setting offsets.table.",
            )

    def _table_id(self) -> str:
        if not self._id:
            name = self._entry(0)
            data = self.store.get(name, 0, 65_537)
            if data is None:
                return ""
            told = from_json(plain, data, name, 65_536)
            version = from_value(_FORMAT, told, name)
            if version > FORMAT:
                raise CorruptLogError(
                    f"{self.url} is of format {version}; this library knows {FORMAT}.",
                    "Upgrade offsetlog.",
                )
            self._root = from_value(_ROOT_IF_NAMED, told, name) or self._owner()
            self._check_root()
            self._id = from_value(_TABLE, told, name)
        return self._id

    def _owner(self) -> str:
        """The log that took a table which is older than the rule; none where nobody did yet."""
        name = self._name(OWNER)
        data = self.store.get(name, 0, 65_537)
        if data is None:
            return ""
        return from_json(_ROOT, data, name, 65_536)

    def _adopt(self) -> None:
        if self._root or self._root_id is None:
            return
        self._put_once(self._name(OWNER), strict_json.dumps({ROOT_KEY: self._root_id()}))
        self._root = self._owner()
        self._check_root()

    def read(self, since: int) -> TableNews:
        if not self._table_id():
            return TableNews(-1, ())
        facts: list[Fact] = []
        version = max(since, 0)
        while True:
            name = self._entry(version + 1)
            data = self.store.get(name, 0, strict_json.MAX_BYTES + 64)
            if data is None:
                return TableNews(version, tuple(facts))
            version += 1
            found = fact_rows.decode_facts(data, name)
            if any(fact.version != version for fact in found):
                raise CorruptLogError(f"{name} holds facts of another version.")
            facts += found

    def append(self, facts: Sequence[Fact], version: int) -> PutResult:
        data = fact_rows.encode_facts(facts)
        if self._table_id():
            self._adopt()
        name = self._entry(version)
        offer = self.store.offer(data, name)
        try:
            return offer.put(name)
        finally:
            offer.close()

    # --- upkeep ----------------------------------------------------------------------------

    def checkpoint(self) -> GroupsState:
        name = self._name(STATE_FILE)
        data = self.store.get(name, 0, fact_rows.MOST_CHECKPOINT_BYTES + 1)
        found = None if data is None else fact_rows.decode_checkpoint(data, name)
        if found is None or found[0] != self._table_id():
            return EMPTY
        return found[1]

    def store_checkpoint(self, table: GroupsState) -> None:
        try:
            data = fact_rows.encode_checkpoint(table, self._table_id())
            if data is not None:
                self.store.put(self._name(STATE_FILE), data, durable=False)
        except OffsetLogError:
            return  # A cache: whoever comes next folds a little more.

    def tidy(self, version: int) -> None:
        """Nothing piles up that costs an append anything."""

    def maintain(self, table: GroupsState, grace_ms: int) -> Upkeep:
        if table.version < 0:
            return Upkeep(-1)
        self.store_checkpoint(table)
        return Upkeep(table.version)

    def close(self) -> None:
        """The store belongs to the log."""
