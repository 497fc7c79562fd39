"""``verify`` of a topic's Delta table: its log is what the chain says, all of it.

Invariants:

1. The table is read before the chain is folded, so the chain holds all that the table knows.
2. The whole log is read, as a reader of Delta reads it: each version is compared with what a
   publisher writes, each checkpoint with the versions, and the newest version's files with the
   chain at its point. What a reader can do without is a cache.
3. Of the files that versions name only what was said of them is kept, as digests, until the chain
   was folded and says the same.
4. What somebody else wrote is judged as long as it is in force.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import zip_longest
from typing import NamedTuple

import xxhash

from offsetlog.core import strict_json
from offsetlog.core.topic import table
from offsetlog.core.topic.entry import Compact, Entry, Erase, Replace
from offsetlog.core.topic.extents import Extent
from offsetlog.core.topic.fold import extents_of_run
from offsetlog.core.topic.state import TopicState
from offsetlog.errors import InvalidRequestError, OffsetLogError
from offsetlog.format import names, topic_table
from offsetlog.format.delta_log import LOG, Action, DeltaState, actions_of
from offsetlog.format.topic_table import Head
from offsetlog.storage.delta.check_log import TRIES, GoneError, LogCheck
from offsetlog.storage.offsets.check import CacheFault
from offsetlog.storage.store import Store
from offsetlog.values import settings_of

NAMED = 3
"""Files that a fault names."""


class _Said(NamedTuple):
    """What a version says of a file, without what only its own moment knows."""

    of: str
    """The action."""
    digest: int


class TableCheck:
    """One look at one table, of which nothing but its place is known."""

    def __init__(self, store: Store, folder: str) -> None:
        self._store = store
        self._folder = folder
        self._where = f"{folder}/{LOG}"
        self._state: TopicState | None = None
        """What the chain says at the table's point."""
        self._is_partial = False
        """Whether some of the chain is not known."""
        self._extents: dict[str, Extent] = {}
        """What the chain says of the files that versions name."""
        for again in range(TRIES):
            self._reset()
            try:
                self._look()
                break
            except GoneError as error:
                if again == TRIES - 1:
                    self._faults.append(str(error))
            except OffsetLogError as error:
                self._faults.append(str(error))
                break
        self._uids = {_uid(path) for path in self._said}

    def _reset(self) -> None:
        self._faults: list[str] = []
        self.caches: list[CacheFault] = []
        self._said: dict[str, dict[_Said, str]] = {}
        """By path: what was said, and the version that said so first."""
        self._head: Head | None = None
        """What the newest version says that was looked at; None where it is somebody else's."""
        self._read: DeltaState | None = None
        self._live: set[str] = set()
        self._ends: tuple[int, ...] = ()
        """The greatest ends of the table since it was opened."""
        self._foreign = ""
        """What is wrong with the newest version that was looked at, if it is somebody else's."""

    # --- the log ---------------------------------------------------------------------------

    def _look(self) -> None:
        log = LogCheck(self._store, f"{self._folder}/", self._begun, self._applied)
        try:
            self._read = log.run()
        finally:
            self._faults += log.faults
        self.caches += log.caches
        if self._foreign:
            self._faults.append(self._foreign)

    def _begun(self, state: DeltaState, data: bytes | None, name: str) -> None:
        """A checkpoint is believed: the log before it was cleaned."""
        self._live = set(state.adds)
        for path, add in state.adds.items():
            self._note_said("add", path, add, name)
        if data is not None:
            self._take_head(state.version, data, name)
            self._check_state(state, name)

    def _take_head(self, version: int, data: bytes, name: str) -> None:
        self._head, self._foreign = None, ""
        try:
            head = topic_table.head_of(version, data, name)
        except InvalidRequestError as error:
            self._foreign = str(error)
            return
        self._head = head
        if head.closed:
            self._ends = ()
        else:
            both = zip_longest(self._ends, head.point.ends, fillvalue=0)
            self._ends = tuple(map(max, both))

    def _applied(
        self, state: DeltaState, data: bytes, actions: Sequence[Action], name: str
    ) -> None:
        before, was_foreign = self._head, bool(self._foreign)
        self._take_head(state.version, data, name)
        head = self._head
        if head is None:
            self._live = set(state.adds)
            return
        if was_foreign:
            # It was closed by who knew no more of it than its id.
            before = topic_table.unknown(state.version - 1, head.table_id)
        if before is not None and before.point.tip > head.point.tip:
            self._faults.append(f"{name} goes back to an older state of the topic")
        now_ms = _time_of(actions)
        header = [action for action in actions if not action.keys() & {"add", "remove"}]
        topic = str(state.metadata.get("name"))
        self._check_header(head, before, header, topic, now_ms, name)
        self._check_state(state, name)
        for action in actions:
            self._check_file_action(head, action, now_ms, name)
        if len(self._live) != head.files:
            self._faults.append(f"{name} leaves {len(self._live)} files and says {head.files}")

    def _check_header(
        self,
        head: Head,
        before: Head | None,
        header: Sequence[Action],
        topic: str,
        now_ms: int,
        name: str,
    ) -> None:
        """All but the files of a version follows from what it says of itself."""
        if before is None and head.version > 0:
            # The log before it was cleaned, so what it changed is what it says that it changed.
            kinds = {kind for action in header for kind in action}
            before = head._replace(closed=head.closed != ("protocol" in kinds))
            if "metaData" in kinds:
                before = before._replace(retention_ms=head.retention_ms + 1)
        text = topic_table.version_text(head, topic, now_ms, before=before)
        if header != actions_of(text, name):
            self._faults.append(f"{name} says other things than a publisher writes")

    def _check_state(self, state: DeltaState, name: str) -> None:
        head = self._head
        if head is None:
            return
        topic = str(state.metadata.get("name"))
        is_ours = names.topic_folder(topic) == self._folder
        metadata = topic_table.metadata(topic, head.table_id, head.retention_ms)
        if _plain(state.protocol) != _plain(topic_table.protocol(head.closed)) or not (
            head.closed or (is_ours and _plain(state.metadata) == _plain(metadata))
        ):
            self._faults.append(f"{name}: the protocol or the metadata of the table is another")

    def _check_file_action(self, head: Head, action: Action, now_ms: int, name: str) -> None:
        [(kind, body), *others] = action.items()
        if kind not in ("add", "remove") or body is None:
            return
        path = body.get("path")
        is_added = kind == "add"
        fits = not others and type(body.get("dataChange")) is bool
        fits = fits and (path in self._live) is not is_added
        if is_added:
            self._live.add(path)
        else:
            self._live.discard(path)
            fits = fits and body.get("deletionTimestamp") == now_ms
        if not fits:
            self._faults.append(f"{name} says other things of {path} than a publisher writes")
        # Who closes a table of which it knows the paths alone says nothing else of them.
        if is_added or not (head.closed and body.keys() == _CLOSED):
            self._note_said(kind, path, body, name)

    def _note_said(self, kind: str, path: str, body: Action, name: str) -> None:
        said = _Said(kind, _digest(body))
        self._said.setdefault(path, {}).setdefault(said, name)

    # --- the chain -------------------------------------------------------------------------

    def folded(self, state: TopicState, entry: Entry) -> None:
        """The chain's state after one more entry."""
        if self._head is None:
            return
        if state.tip == self._head.point.tip:
            self._state = state
        if isinstance(entry.body, Replace | Compact | Erase):
            for run in entry.body.runs:
                self._know(extents_of_run(run, state.tip - 1))

    def resumed(self, state: TopicState) -> None:
        """The chain's state where entries before it are missing or broken."""
        self._is_partial = True
        for part in state.parts:
            self._know(part.tail)

    def _know(self, extents: Iterable[Extent]) -> None:
        for extent in extents:
            if extent.segment is not None and extent.rewritten and extent.segment.uid in self._uids:
                self._extents[topic_table.path_of(extent)] = extent

    def faults(self, newest: TopicState) -> Iterator[str]:
        yield from self._faults
        if self._head is None or self._read is None:
            return
        what = f"version {self._head.version} of {self._where}"
        yield from self._unlike_chain()
        if self._state is None:
            if not self._is_partial:
                yield (
                    f"{what} has the state at entry {self._head.point.tip}, which the chain has not"
                )
            return
        wanted = self._state.alive and settings_of(self._state.config).has_table
        if wanted == self._head.closed:
            yield f"{what} is {'closed' if wanted else 'open'}, and the topic says otherwise"
        live = [e for part in self._state.parts for e in part.tail]
        meant = {topic_table.path_of(e) for e in self._files(live)}
        there = self._read.adds.keys()
        for doing, paths in (("lacks", meant - there), ("names", there - meant)):
            if paths:
                yield f"{what} {doing} {', '.join(sorted(paths)[:NAMED])}, unlike the chain"
        yield from self._short_of(what, live)
        yield from self._gone(what, newest)

    def _unlike_chain(self) -> Iterator[str]:
        """What versions say of files, held against what the chain says."""
        unknown: dict[str, list[str]] = {}
        for path, said in sorted(self._said.items()):
            extent = self._extents.get(path)
            if extent is None:
                for name in {} if self._is_partial else dict.fromkeys(said.values()):
                    unknown.setdefault(name, []).append(path)
                continue
            add = topic_table.add_of(extent, data_change=False)
            removal = topic_table.removal_of(extent, 0, data_change=False)
            meant = {"add": _digest(add), "remove": _digest(removal)}
            for (of, digest), name in said.items():
                if digest != meant[of]:
                    yield f"{name} says other things of {path} than the chain"
        for name, paths in sorted(unknown.items()):
            yield f"{name} names {', '.join(paths[:NAMED])}, which the chain has not"

    def _files(self, live: list[Extent]) -> Iterator[Extent]:
        if self._head is None or self._state is None or self._head.closed:
            return iter(())
        ends = self._head.point.ends
        return table.files(self._state, ends, (e for e in live if e.partition < len(ends)))

    def _short_of(self, what: str, live: list[Extent]) -> Iterator[str]:
        """Records below the table's ends that no file of it can hold; and ends that went back."""
        assert self._head is not None and self._state is not None
        if self._head.closed:
            return
        ends = self._head.point.ends
        held = set(self._files(live))
        for extent in live:
            end = ends[extent.partition] if extent.partition < len(ends) else 0
            begin = max(extent.base, self._state.start(extent.partition))
            if begin < end and extent.records and extent not in held:
                yield (
                    f"{what} has not all records of partition {extent.partition} below offset "
                    f"{end}: offsets {extent.base} to {extent.end} lie in no file of it"
                )
        for partition, (end, greatest) in enumerate(zip(ends, self._ends, strict=False)):
            if end < greatest:
                yield (
                    f"{what} ends at offset {end} of partition {partition}, though the table had "
                    f"the records up to {greatest}: the next version that maintain, or copy, can "
                    "make has them again"
                )

    def _gone(self, what: str, newest: TopicState) -> Iterator[str]:
        """Of files that the log needs no more, and the table does, those that are not there."""
        assert self._read is not None
        live = {e.segment.uid for part in newest.parts for e in part.tail if e.segment is not None}
        for path in sorted(self._read.adds):
            if _uid(path) not in live and self._store.info(f"{self._folder}/{path}") is None:
                yield f"{what} names {path}, which is gone"


_CLOSED = {"path", "deletionTimestamp", "dataChange"}


def _uid(path: str) -> str:
    return path.rpartition("-")[2].removesuffix(".parquet")


def _time_of(actions: Sequence[Action]) -> int:
    """When a version was made, in its author's words."""
    info = actions[0].get("commitInfo") if actions else None
    time = info.get("timestamp") if isinstance(info, dict) else None
    return time if type(time) is int else -1


def _plain(body: Mapping[str, object]) -> dict[str, object]:
    """A checkpoint leaves out what is null."""
    return {key: value for key, value in body.items() if value is not None}


def _digest(body: Action) -> int:
    """Of what is said of a file, but for when, and whether data changed."""
    kept = {k: v for k, v in body.items() if k not in ("dataChange", "deletionTimestamp")}
    return xxhash.xxh3_64_intdigest(strict_json.dumps(sorted(kept.items())))
