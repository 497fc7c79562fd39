"""The offsets table as a chain of put-if-absent entries, where Delta cannot reach.

1. Version n is the file named n; entry 0 is made with the table and holds no facts. Whoever
   puts a name first has that version, and names are never free again.
2. Reading on from a version asks for the next names until one is not there.
3. ``maintain`` deletes nothing but the heartbeats of the dead: the entries are the table.
"""

from __future__ import annotations

import uuid
from collections import defaultdict
from collections.abc import Iterable, Sequence

import pyarrow as pa

from offsetlog.core import strict_json
from offsetlog.core.decode import default, field, from_json, from_value, integer, plain, string
from offsetlog.core.group.facts import Fact
from offsetlog.core.group.state import GroupsState
from offsetlog.errors import CorruptLogError, InvalidRequestError
from offsetlog.format import facts_arrow
from offsetlog.storage.offsets.check import Progress, TableCheck
from offsetlog.storage.offsets.check_chain import check_chain
from offsetlog.storage.offsets.port import ROOT_KEY, OffsetsPort, TableNews, TableRows, Upkeep
from offsetlog.storage.store import PutResult

FORMAT = 1
BUCKET = 10_000
OWNER = "_root.json"
"""Whose a table is whose entry 0 does not say it; made once, by put-if-absent."""

DELTA_LOG = "_delta_log"

_FORMAT = field("format", integer())
_TABLE = field("table", string())
_ROOT = field(ROOT_KEY, string())
_ROOT_IF_NAMED = field(ROOT_KEY, default(string(), ""))


class ChainOffsets(OffsetsPort):
    def _entry(self, version: int) -> str:
        return f"{self._prefix}_log/{version // BUCKET:016d}/{version:020d}.json"

    def create(self) -> None:
        if self._table_id():
            return
        self._check_place()
        # The name of the entry is what decides: the id only tells tables apart.
        first: dict[str, object] = {"format": FORMAT, "table": uuid.uuid4().hex}
        if self._root_id is not None:
            first[ROOT_KEY] = self._root_id()
        self._put_once(self._entry(0), strict_json.dumps(first))

    def _check_place(self) -> None:
        if self.folder and not self._table_id():
            self._refuse_strangers("offsets table", lambda name: name[:1] == "_")

    def _table_id(self) -> str:
        if not self._id:
            name = self._entry(0)
            data = self.store.get(name, 0, 65_537)
            if data is None:
                self._refuse_delta()
                return ""
            first = from_json(plain, data, name, 65_536)
            version = from_value(_FORMAT, first, name)
            if version > FORMAT:
                raise CorruptLogError(
                    f"{self.url} is of format {version}; this library knows {FORMAT}.",
                    "Upgrade offsetlog.",
                )
            self._root = from_value(_ROOT_IF_NAMED, first, name) or self._owner()
            self._check_root()
            self._id = from_value(_TABLE, first, name)
        return self._id

    def _refuse_delta(self) -> None:
        """A table that a program made where readers of Delta reach it is never shown as empty."""
        if any(name == DELTA_LOG for name in self.store.folders(self.folder)):
            raise InvalidRequestError(
                f"{self.url} holds the groups as a Delta table, which can't be read by this "
                "address.",
                "Open the log by the address it was made with, on a machine that has it as a "
                "local path or reaches it as s3://, gs:// or az://; topics can be read here.",
            )

    def _owner(self) -> str:
        """The log that took a table which is older than the rule; none where nobody did yet."""
        name = f"{self._prefix}{OWNER}"
        data = self.store.get(name, 0, 65_537)
        return "" if data is None else from_json(_ROOT, data, name, 65_536)

    def _adopt(self) -> None:
        if self._root or self._root_id is None:
            return
        self._put_once(f"{self._prefix}{OWNER}", strict_json.dumps({ROOT_KEY: self._root_id()}))
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
            appended = facts_arrow.decode_facts(data, name)
            if any(fact.version != version for fact in appended):
                raise CorruptLogError(f"{name} holds facts of another version.")
            facts += appended

    def append(self, facts: Sequence[Fact], version: int) -> PutResult:
        data = facts_arrow.encode_facts(facts)
        if self._table_id():
            self._adopt()
        name = self._entry(version)
        offer = self.store.offer(data, name)
        try:
            return offer.put(name)
        finally:
            offer.close()

    def verify(self, progress: Progress) -> TableCheck | None:
        return check_chain(self.store, self._prefix, self._entry, self._table_id, progress)

    def rows(self) -> TableRows | None:
        news = self.read(-1)
        if news.version < 0:
            return None
        return TableRows(news.version, iter([facts_arrow.to_arrow(news.facts)]))

    def begin_at(self, version: int, tables: Iterable[pa.Table]) -> None:
        facts: defaultdict[int, list[Fact]] = defaultdict(list)
        for table in tables:
            for fact in facts_arrow.from_arrow(table, self.url):
                facts[fact.version].append(fact)
        self.create()
        for at in range(1, version + 1):
            together = sorted(set(facts[at]), key=lambda fact: fact.place)
            self._put_once(self._entry(at), facts_arrow.encode_facts(together))

    def maintain(self, table: GroupsState, grace_ms: int) -> Upkeep:
        if table.version < 0:
            return Upkeep(-1)
        self.store_checkpoint(table)
        return Upkeep(table.version)
