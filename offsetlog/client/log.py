"""``offsetlog.open``: a root, and everything that a program does with it.

Invariants:

1. The root's own file is made once, by put-if-absent, with the first topic. A root of a newer
   format is refused by name.
2. One handle and one appender for each topic: all threads of the program share them.
3. A root that is not there is an error for whoever wants to read it, never an empty result.
4. A log that keeps to a root (``keep_to_root``) makes none, and creates nothing in another one
   that is met at its address: a disk may be unmounted, or not be mounted on every machine.
5. ``close`` frees all that is held, whatever fails on the way, and raises the first failure that
   nobody was told: what could not be written, and what a keyed producer never flushed.
6. In a process that was forked since, everything refuses by one error, and closing does nothing:
   the log is the parent's.
"""

from __future__ import annotations

import socket
import threading
import warnings
from collections.abc import Callable, Iterable, Mapping
from types import TracebackType
from typing import Any

from offsetlog.client.consumer import Consumer
from offsetlog.client.group import Group
from offsetlog.client.notebook_html import GroupList, GroupSummary
from offsetlog.client.producer import Producer
from offsetlog.client.topic import Topic, TopicInfo, TopicList, info
from offsetlog.core import strict_json
from offsetlog.core.group.state import status
from offsetlog.core.topic.state import EMPTY_STATE, TopicState
from offsetlog.engine.append.group_commit import BUFFER_BYTES, GroupCommit
from offsetlog.engine.env import REAL, Env
from offsetlog.engine.group.heartbeats import Heartbeats
from offsetlog.engine.group.offsets_table import OffsetsTable
from offsetlog.engine.pool import Pool
from offsetlog.engine.topic import lifecycle as admin
from offsetlog.engine.topic import purge
from offsetlog.engine.topic.open_topic import OpenTopic, unknown_topic
from offsetlog.engine.topic.purge import Contents, PurgePlan, check_free, check_surroundings
from offsetlog.engine.upkeep.maintenance import GRACE_MS, Maintained, Maintenance
from offsetlog.engine.upkeep.offsets_maintenance import (
    DEFAULT_RETENTION_MINUTES,
    OffsetsMaintained,
    check_retention,
    maintain_offsets,
)
from offsetlog.engine.upkeep.verify import TopicReport, verify_topic
from offsetlog.errors import (
    CorruptLogError,
    InvalidRequestError,
    OffsetLogError,
    OffsetLogWarning,
    StorageError,
    UnknownTopicError,
)
from offsetlog.format import FORMAT_VERSION, names
from offsetlog.storage import forks
from offsetlog.storage.offsets.open import FOLDER as OFFSETS_FOLDER
from offsetlog.storage.offsets.open import open_offsets
from offsetlog.storage.probe import probe_store
from offsetlog.storage.store import Committed, Conflict, Store
from offsetlog.values import check_name

POOL_THREADS = 16


class Log:
    """An open root. Threads may share it; close it, or use it in a ``with`` block."""

    def __init__(
        self,
        store: Store,
        env: Env = REAL,
        buffer_bytes: int = BUFFER_BYTES,
        offsets_table: str | None = None,
    ) -> None:
        self.store = store
        self.env = env
        self._buffer_bytes = buffer_bytes
        self._handles: dict[str, OpenTopic] = {}
        self._appenders: dict[str, GroupCommit] = {}
        self._lock = threading.RLock()
        self._made_in = forks.process()
        self._pool = Pool(POOL_THREADS, thread_name_prefix="offsetlog")
        self._root_id: str | None = None
        self._kept_root: str | None = None
        self._root_was_seen = False
        self._root_seen: bytes | None = None
        """The root's file when it was last found to be this log's."""
        self._offsets_place = offsets_table
        self._offsets: OffsetsTable | None = None
        self._heartbeats: Heartbeats | None = None
        self._closed = False

    @property
    def url(self) -> str:
        return self.store.url

    # --- the root --------------------------------------------------------------------------

    @property
    def root_id(self) -> str:
        """The id that the root got when it was made."""
        forks.check(self._made_in)
        if self._root_id is None:
            self._root_id = self.find_root()
        return self._root_id

    def find_root(self) -> str:
        """The id of the root that is there now, whichever it is."""
        data = self.store.get(names.ROOT_FILE, 0, admin.ROOT_BYTES + 1)
        if data is None:
            raise InvalidRequestError(
                f"There is no log at {self.url}.",
                "Check the address, or make one by creating its first topic.",
            )
        return self._check_root(data)

    def keep_to_root(self, root_id: str) -> None:
        """This log is the one with that id, as this or another machine saw it: from now on no
        root is made, and on a disk nothing is created in another one. Asks nothing yet."""
        if self._kept_root == root_id:
            return
        if self._kept_root is not None:
            raise AssertionError("a log keeps to one root")
        self._root_id = self._kept_root = root_id
        self._root_seen = None
        keep_to = getattr(self.store, "keep_to", None)
        if keep_to is not None:
            keep_to(names.ROOT_FILE, self._check_kept)

    def see_root(self) -> None:
        """Raise unless this log's root is in sight. What an address on the network means does not
        change while the process lives, so there it is asked for once; a disk may go at any time,
        so there the root's file is read each time."""
        if self._root_was_seen and getattr(self.store, "stays", False):
            return
        if self._kept_root is None and self._root_id is None:
            self._root_id = self.find_root()
            return
        self._check_kept(self.store.get(names.ROOT_FILE, 0, admin.ROOT_BYTES + 1))
        self._root_was_seen = True

    def _check_kept(self, data: bytes | None) -> None:
        if data is not None and data == self._root_seen:
            return
        kept, host = self._kept_root or self._root_id, socket.gethostname()
        where = f"{self.url}, as the machine {host} sees it"
        if data is None:
            raise StorageError(
                f"The log {kept} is not at {where}: there is no {names.ROOT_FILE}.",
                "Nothing was written there. Mount its disk on that machine, or put the log where "
                "all machines reach it under one address.",
            )
        found = self._check_root(data)
        if found != kept:
            raise StorageError(
                f"Another log than {kept} is at {where}: {found}.",
                "Nothing was written there. All machines must reach the same log under this "
                "address: put it on an object store or a shared disk.",
            )
        self._root_seen = data

    def _check_root(self, data: bytes) -> str:
        what = f"{self.url}/{names.ROOT_FILE}"
        told = admin.describe_root(data, what)
        if told["format"] != FORMAT_VERSION:
            raise CorruptLogError(
                f"{what} is of format {told['format']}; this library knows {FORMAT_VERSION}.",
                "Upgrade offsetlog.",
            )
        return str(told["id"])

    def make_root(self) -> None:
        """Make the root's own file, if it is not there and this log may be anywhere."""
        if self._kept_root is not None:
            return
        if self.store.get(names.ROOT_FILE, 0, 1) is not None:
            return
        check_surroundings(self.store, OFFSETS_FOLDER)
        if not self.store.is_local:
            probe_store(self.store)
        data = strict_json.dumps({"format": FORMAT_VERSION, "id": self.env.new_id()})
        offer = self.store.offer(data, names.ROOT_FILE)
        error = ""
        try:
            for _ in range(5):
                result = offer.put(names.ROOT_FILE)
                if isinstance(result, Committed | Conflict):
                    return
                error = result.error
                self.env.sleep(0.2)
        finally:
            offer.close()
        raise StorageError(f"No answer came to the making of {self.url}: {error}")

    # --- topics ----------------------------------------------------------------------------

    def create_topic(
        self, name: str, partitions: int = 1, config: Mapping[str, object] | None = None
    ) -> Topic:
        forks.check(self._made_in)
        check_name(name)
        admin.check_partitions(partitions)
        admin.check_config(config)
        if self._kept_root is None and self.store.get(names.ROOT_FILE, 0, 1) is None:
            # Nothing is made where nothing can be.
            check_free(self.store, names.topic_folder(name))
            self.make_root()
        handle = self._fresh_handle(name)
        admin.create(handle, partitions, config)
        return Topic(handle)

    def delete_topic(self, name: str, *, purge: bool = False) -> Contents | None:
        """Delete a topic. Its chain stays, so that its offsets are never given twice; ``purge``
        removes its files too, which is safe only when nobody reads or writes the topic any more,
        and tells what was removed and what was left, since it is not the topic's."""
        if purge:
            return self._purge(name)
        admin.delete(self.topic_handle(name))
        return None

    def _purge(self, name: str) -> Contents:
        handle = self.topic_handle(name)
        folder = handle.chain.folder
        state = self._look_before_purge(handle)
        if state is not None and state.alive:
            admin.delete(handle)
        done = purge.remove(self.store, folder)
        with self._lock:
            for known in [h.name for h in self._handles.values() if h.chain.folder == folder]:
                self._handles.pop(known, None)
                self._appenders.pop(known, None)
        return done

    def purge_plan(self, name: str) -> PurgePlan:
        """What ``delete_topic(name, purge=True)`` would remove; nothing is changed."""
        handle = self.topic_handle(name)
        folder = handle.chain.folder
        state = self._look_before_purge(handle)
        records = None if state is None else sum(part.end - part.start for part in state.parts)
        found = purge.contents(self.store, folder)
        return PurgePlan(name, f"{self.url}/{folder}", records, found)

    def _look_before_purge(self, handle: OpenTopic) -> TopicState | None:
        """The topic's state; None if it can't be read: then nobody can use the topic, and its
        files may go all the same."""
        try:
            state = handle.raw_state()
        except CorruptLogError:
            return None
        except StorageError as error:
            if error.retryable:
                raise
            return None
        if state.topic == handle.name and not state.alive:
            return state
        if not state.tip and purge.contents(self.store, handle.chain.folder).files:
            return state  # What an earlier purge left, or a writer that did not know of it.
        return handle.state(fresh=False)

    def topics(self) -> TopicList:
        """The topics that exist, by name. One that can't be read is left out, with a warning that
        names it."""
        self.root_id  # noqa: B018 - a root that is not there is an error, not an empty list
        infos: list[TopicInfo] = []
        handles, broken = self._look_at_all()
        for handle in handles:
            state = handle.chain.state
            if state.alive:
                try:
                    infos.append(info(handle, state))
                except Exception as error:  # noqa: BLE001 - the others can be told of all the same
                    broken[handle.chain.folder] = _as_ours(handle.chain.folder, error)
        for folder, wrong in sorted(broken.items()):
            if wrong.retryable:
                raise wrong  # The storage fails, and not a topic: ask again.
            warnings.warn(
                f"The topic in {self.url}/{folder} can't be read, and is not listed: {wrong}",
                OffsetLogWarning,
                stacklevel=2,
            )
        return TopicList(sorted(infos, key=lambda told: told.name))

    def topic(self, name: str) -> Topic:
        handle = self.topic_handle(name)
        handle.state()
        return Topic(handle)

    def _look_at_all(self) -> tuple[list[OpenTopic], dict[str, OffsetLogError]]:
        """Of every topic that was ever created, deleted ones too; freshly looked at. And what is
        wrong with those that can't be read, by their folders: they must not hide the others."""
        found: list[OpenTopic] = []
        broken: dict[str, OffsetLogError] = {}
        for folder in sorted(filter(names.is_topic_folder, self.store.folders(""))):
            try:
                handle = self._look_at(folder)
            except Exception as error:  # noqa: BLE001 - whatever it is, it is this topic's
                broken[folder] = _as_ours(folder, error)
            else:
                if handle is not None:
                    found.append(handle)
        return found, broken

    def _look_at(self, folder: str) -> OpenTopic | None:
        with self._lock:
            known = next((h for h in self._handles.values() if h.chain.folder == folder), None)
        handle = known or OpenTopic(self.store, folder, self.env, self._pool)
        try:
            handle.chain.check_place()
        except UnknownTopicError:
            # Another chain took the folder since. Those who still hold the handle are told so.
            handle = OpenTopic(self.store, folder, self.env, self._pool)
            handle.name = handle.raw_state().topic or folder
        state = handle.raw_state()
        if not state.tip:
            return None
        if handle.name != state.topic:
            handle = self.topic_handle(state.topic)
            handle.raw_state()
        return handle

    def topic_handle(self, name: str) -> OpenTopic:
        """The one handle of a topic, which need not exist."""
        self._open()
        handle = self._handles.get(name) if isinstance(name, str) else None
        if handle is None:
            check_name(name)
            handle = self._fresh_handle(name)
        return handle

    def _fresh_handle(self, name: str) -> OpenTopic:
        with self._lock:
            handle = self._handles.get(name)
            if handle is None:
                handle = OpenTopic(self.store, name, self.env, self._pool)
                self._handles[name] = handle
            return handle

    def appender(self, name: str) -> GroupCommit:
        handle = self.topic_handle(name)
        with self._lock:
            appender = self._appenders.get(name)
            if appender is None:
                appender = GroupCommit(handle, self._buffer_bytes)
                self._appenders[name] = appender
            return appender

    # --- producing and consuming -----------------------------------------------------------

    def producer(
        self,
        *,
        linger_ms: float = 0,
        batch_bytes: int = 8 * 1024 * 1024,
        app_id: str | None = None,
        sequence: int | None = None,
    ) -> Producer:
        self._open()
        return Producer(
            self, linger_ms=linger_ms, batch_bytes=batch_bytes, app_id=app_id, sequence=sequence
        )

    def consumer(
        self,
        group: str | None = None,
        topics: Iterable[str] | str | None = None,
        **settings: Any,
    ) -> Consumer:
        self._open()
        return Consumer(self, group, topics, **settings)

    @property
    def offsets_table(self) -> OffsetsTable:
        """The one writer of this program to the table where all groups are."""
        self._open()
        with self._lock:
            if self._offsets is None:
                port = open_offsets(self.store, self._offsets_place, root_id=lambda: self.root_id)
                self._offsets = OffsetsTable(port, self.env, self._pool)
            return self._offsets

    @property
    def heartbeats(self) -> Heartbeats:
        with self._lock:
            if self._heartbeats is None:
                self._heartbeats = Heartbeats(self.offsets_table)
            return self._heartbeats

    def groups(self) -> GroupList:
        """The consumer groups that there are, by name."""
        self.root_id  # noqa: B018 - a root that is not there is an error, not an empty list
        found = self.offsets_table.look().groups
        return GroupList(
            [
                GroupSummary(name, status(group), len(group.members), len(group.positions))
                for name, group in sorted(found.items())
                if group.alive
            ]
        )

    def group(self, name: str) -> Group:
        """One consumer group, which need not exist yet."""
        return Group(self, name)

    def positions(self) -> Any:
        """The present positions of all groups, as an Arrow table: the offsets table's facts,
        folded. ``offset`` is the next one to read."""
        from offsetlog.format.facts_arrow import positions_to_arrow

        self.root_id  # noqa: B018
        return positions_to_arrow(self.offsets_table.look())

    # --- looking after it ------------------------------------------------------------------

    def maintain(
        self,
        topic: str | None = None,
        *,
        offsets_retention_minutes: int = DEFAULT_RETENTION_MINUTES,
        **settings: Any,
    ) -> list[Maintained]:
        """Snapshots, consolidation, retention and collection, of one topic or of all; with all
        of them the offsets table is looked after too, as the last of the list. What can't be
        looked after does not keep the rest from it: the first failure is raised at the end."""
        self.root_id  # noqa: B018
        check_retention(offsets_retention_minutes)
        broken: dict[str, OffsetLogError] = {}
        handles = [] if topic is None else [self._existing(topic)]
        if topic is None:
            handles, broken = self._look_at_all()
        done: list[Maintained] = []
        for handle in handles:
            try:
                done.append(Maintenance(handle, self._pool, **settings).run())
            except Exception as error:  # noqa: BLE001 - it must not keep the others from it
                broken[handle.name] = _as_ours(handle.name, error)
        if topic is None:
            grace = settings.get("grace_ms", GRACE_MS)
            try:
                offsets = maintain_offsets(self.offsets_table, offsets_retention_minutes, grace)
                if offsets is not None:
                    done.append(_as_maintained(offsets))
            except OffsetLogError as error:
                broken[OFFSETS_FOLDER] = error
        failed = list(broken.items())
        for name, wrong in failed[1:]:
            text = f"{name!r} was not looked after: {wrong}"
            warnings.warn(text, OffsetLogWarning, stacklevel=2)
        if failed:
            raise failed[0][1]
        return done

    def verify(self, topic: str | None = None, **settings: Any) -> list[TopicReport]:
        """Check every promise on what is stored; nothing is repaired."""
        self.root_id  # noqa: B018
        folders = sorted(filter(names.is_topic_folder, self.store.folders("")))
        if topic is not None:
            folder = names.topic_folder(check_name(topic))
            if folder not in folders:
                raise unknown_topic(topic, EMPTY_STATE)
            folders = [folder]
        return [verify_topic(self.store, folder, self.env, **settings) for folder in folders]

    def _existing(self, topic: str) -> OpenTopic:
        handle = self.topic_handle(topic)
        state = handle.raw_state()
        if not state.tip:
            raise unknown_topic(topic, state)
        return handle

    def _open(self) -> None:
        forks.check(self._made_in)
        if self._closed:
            raise InvalidRequestError("The log is closed.", "Open it again.")

    def close(self) -> None:
        """Write what is waiting, and free what is held; raises the first failure that nobody
        was told. What a keyed producer has not flushed is not written: nobody here knows
        whether it is whole."""
        self._close(None)

    def _close(self, ended_by: BaseException | None) -> None:
        if self._closed:
            return
        self._closed = True
        if forks.is_foreign(self._made_in):
            return
        errors: list[Exception] = []

        def attempt(call: Callable[[], object]) -> None:
            try:
                call()
            except Exception as error:  # noqa: BLE001 - the rest is closed first
                errors.append(error)

        if self._heartbeats is not None:
            attempt(self._heartbeats.close)
        unfinished = self._unfinished()
        for appender in list(self._appenders.values()):
            attempt(appender.close)
        attempt(lambda: self._pool.shutdown(wait=True))
        if self._offsets is not None:
            attempt(self._offsets.port.close)
        attempt(self.store.close)
        if ended_by is None:
            errors += unfinished
        if errors and ended_by is not None:
            ended_by.add_note(str(errors[0]))  # What ended the block comes first.
        elif errors:
            raise errors[0]

    def _unfinished(self) -> list[OffsetLogError]:
        """What became of the batches that keyed producers gathered and never flushed."""
        errors: list[OffsetLogError] = []
        for handle in list(self._handles.values()):
            for lane in list(handle.gathering):
                error = lane.abandon("The log was closed")
                if error is not None:
                    errors.append(error)
            errors += [
                InvalidRequestError(f"{text}.", "Call flush(), or use it in a with block.")
                for text in handle.dropped
            ]
        return errors

    def __enter__(self) -> Log:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._close(error)

    def __repr__(self) -> str:
        return f"Log({self.url!r})"


def _as_ours(topic: str, error: Exception) -> OffsetLogError:
    """What went wrong with one topic, as an error of ours."""
    if isinstance(error, OffsetLogError):
        return error
    failed = StorageError(f"Topic {topic!r} can't be looked after: {error!r}.", retryable=False)
    failed.__cause__ = error
    return failed


def _as_maintained(done: OffsetsMaintained) -> Maintained:
    """In the words of a topic: a position that expired is its record."""
    return Maintained(
        topic=OFFSETS_FOLDER,
        expired_records=done.expired_positions,
        rewritten_files=done.files_compacted,
        new_segments=done.files_written,
        stubs=0,
        deleted_files=done.files_deleted,
        deleted_bytes=0,
        horizon=0,
        entries=done.version + 1,
    )
