"""The log: a root, and everything that a program does with it.

Invariants:

1. A root that is not there is an error for whoever wants to read it, never an empty result.
2. ``close`` frees all that is held, whatever fails on the way, and raises the first failure that
   nobody was told: what could not be written, and what a keyed producer never flushed.
3. In a process that was forked since, everything refuses by one error, and closing does nothing:
   the log is the parent's.
"""

from __future__ import annotations

import threading
import warnings
from collections.abc import Callable, Iterable, Mapping
from types import TracebackType
from typing import TYPE_CHECKING

from offsetlog.client.consumer import Consumer
from offsetlog.client.group import Group
from offsetlog.client.notebook_html import GroupList, GroupSummary
from offsetlog.client.producer import Producer
from offsetlog.client.topic import Topic, TopicInfo, TopicList, describe
from offsetlog.core.group.state import status
from offsetlog.engine.append.group_commit import BUFFER_BYTES, GroupCommit
from offsetlog.engine.env import REAL, Env
from offsetlog.engine.group.group_member import RebalanceCallback
from offsetlog.engine.group.heartbeats import Heartbeats
from offsetlog.engine.group.offsets_table import OffsetsTable
from offsetlog.engine.pool import Pool
from offsetlog.engine.root import Root
from offsetlog.engine.topic import lifecycle
from offsetlog.engine.topic.folder import FolderContents, check_free
from offsetlog.engine.topic.open_topic import OpenTopic
from offsetlog.engine.topic.open_topics import OpenTopics, as_topic_error
from offsetlog.engine.topic.purge import PurgePlan, plan_purge, purge_topic
from offsetlog.engine.upkeep.maintenance import GRACE_MS, Maintained, Progress, check_grace
from offsetlog.engine.upkeep.offsets_maintenance import DEFAULT_RETENTION_MINUTES, check_retention
from offsetlog.engine.upkeep.rounds import maintain_all, maintain_topic
from offsetlog.engine.upkeep.verify import TopicReport, verify_topics
from offsetlog.errors import InvalidRequestError, OffsetLogWarning
from offsetlog.format import names
from offsetlog.storage import forks
from offsetlog.storage.offsets.open import open_offsets
from offsetlog.storage.store import Store
from offsetlog.values import check_name

if TYPE_CHECKING:
    import pyarrow as pa

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
        self.root = Root(store, env)
        self._pool = Pool(POOL_THREADS, thread_name_prefix="offsetlog")
        self._topics = OpenTopics(store, env, self._pool, buffer_bytes)
        self._offsets_place = offsets_table
        self._offsets: OffsetsTable | None = None
        self._heartbeats: Heartbeats | None = None
        self._lock = threading.RLock()
        self._made_in = forks.process()
        self._closed = False

    @property
    def url(self) -> str:
        return self.store.url

    @property
    def root_id(self) -> str:
        """The id that the root got when it was created."""
        forks.check(self._made_in)
        return self.root.id

    # --- topics ----------------------------------------------------------------------------

    def create_topic(
        self, name: str, partitions: int = 1, config: Mapping[str, object] | None = None
    ) -> Topic:
        """Create a topic, and the root with the first one."""
        self.check_open()
        check_name(name)
        lifecycle.check_partitions(partitions)
        lifecycle.check_config(config)
        if self.root.may_be_created():
            # No root is made where the topic can't be.
            check_free(self.store, names.topic_folder(name))
            self.root.create()
        topic = self._topics.get(name)
        lifecycle.create(topic, partitions, config)
        return Topic(topic)

    def delete_topic(self, name: str, *, purge: bool = False) -> FolderContents | None:
        """Delete a topic. Its chain stays, so that its offsets are never given twice; ``purge``
        removes its files too, which is safe only when nobody reads or writes the topic any more,
        and tells what was removed and what was left, since it is not the topic's."""
        topic = self.topic_handle(name)
        if not purge:
            lifecycle.delete(topic)
            return None
        removed = purge_topic(topic)
        self._topics.release(topic.chain.folder)
        return removed

    def purge_plan(self, name: str) -> PurgePlan:
        """What ``delete_topic(name, purge=True)`` would remove; nothing is changed."""
        return plan_purge(self.topic_handle(name))

    def topics(self) -> TopicList:
        """The topics that exist, by name. One that can't be read is left out, with a warning that
        names it."""
        self._check_root()
        infos: list[TopicInfo] = []
        found = self._topics.find_all()
        for topic in found.topics:
            state = topic.chain.state
            if state.alive:
                try:
                    infos.append(describe(state))
                except Exception as error:  # noqa: BLE001 - it must not hide the others
                    folder = topic.chain.folder
                    found.broken[folder] = as_topic_error(folder, error)
        for folder, failure in sorted(found.broken.items()):
            if failure.retryable:
                raise failure  # The storage fails, and not a topic: ask again.
            text = f"The topic in {self.url}/{folder} can't be read, and is not listed: {failure}"
            warnings.warn(text, OffsetLogWarning, stacklevel=2)
        return TopicList(sorted(infos, key=lambda topic: topic.name))

    def topic(self, name: str) -> Topic:
        """One topic, which must exist."""
        topic = self.topic_handle(name)
        topic.state()
        return Topic(topic)

    def topic_handle(self, name: str) -> OpenTopic:
        """The one open topic of a name, which need not exist."""
        self.check_open()
        return self._topics.get(name)

    def appender(self, name: str) -> GroupCommit:
        """The one writer of this program to a topic."""
        self.check_open()
        return self._topics.group_commit(name)

    # --- producing and consuming -----------------------------------------------------------

    def producer(
        self,
        *,
        linger_ms: float = 0,
        batch_bytes: int = 8 * 1024 * 1024,
        app_id: str | None = None,
        sequence: int | None = None,
    ) -> Producer:
        """A producer. With ``app_id`` and ``sequence`` what it sends to a topic is one batch that
        is never written twice. ``linger_ms`` and ``batch_bytes`` say how long batches gather."""
        self.check_open()
        return Producer(
            self, linger_ms=linger_ms, batch_bytes=batch_bytes, app_id=app_id, sequence=sequence
        )

    def consumer(
        self,
        group: str | None = None,
        topics: Iterable[str] | str | None = None,
        *,
        auto_offset_reset: str = "latest",
        enable_auto_commit: bool = True,
        auto_commit_interval_ms: float = 5000,
        session_timeout_ms: int = 45_000,
        heartbeat_interval_ms: int | None = None,
        max_poll_interval_ms: int = 300_000,
        partition_assignment_strategy: str = "sticky",
        client_id: str = "",
        on_assign: RebalanceCallback | None = None,
        on_revoke: RebalanceCallback | None = None,
        on_lost: RebalanceCallback | None = None,
        max_poll_records: int = 500,
        poll_interval_ms: float | None = None,
    ) -> Consumer:
        """A consumer, subscribed to ``topics`` if they are named. With ``group`` it shares their
        partitions with the other members and commits; without one it never commits."""
        self.check_open()
        return Consumer(
            self,
            group,
            topics,
            auto_offset_reset=auto_offset_reset,
            enable_auto_commit=enable_auto_commit,
            auto_commit_interval_ms=auto_commit_interval_ms,
            session_timeout_ms=session_timeout_ms,
            heartbeat_interval_ms=heartbeat_interval_ms,
            max_poll_interval_ms=max_poll_interval_ms,
            partition_assignment_strategy=partition_assignment_strategy,
            client_id=client_id,
            on_assign=on_assign,
            on_revoke=on_revoke,
            on_lost=on_lost,
            max_poll_records=max_poll_records,
            poll_interval_ms=poll_interval_ms,
        )

    # --- groups ----------------------------------------------------------------------------

    @property
    def offsets_table(self) -> OffsetsTable:
        """The one writer of this program to the table where all groups are."""
        self.check_open()
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
        self._check_root()
        groups = self.offsets_table.look().groups
        return GroupList(
            [
                GroupSummary(name, status(group), len(group.members), len(group.positions))
                for name, group in sorted(groups.items())
                if group.alive
            ]
        )

    def group(self, name: str) -> Group:
        """One consumer group, which need not exist yet."""
        return Group(self, name)

    def positions(self) -> pa.Table:
        """The present positions of all groups, as an Arrow table: the offsets table's facts,
        folded. ``offset`` is the next one to read."""
        from offsetlog.format.facts_arrow import positions_to_arrow

        self._check_root()
        return positions_to_arrow(self.offsets_table.look())

    # --- upkeep ----------------------------------------------------------------------------

    def maintain(
        self,
        topic: str | None = None,
        *,
        offsets_retention_minutes: int = DEFAULT_RETENTION_MINUTES,
        grace_ms: int = GRACE_MS,
        progress: Progress | None = None,
    ) -> list[Maintained]:
        """Snapshots, consolidation, retention and collection, of one topic or of all; with all
        of them the offsets table is maintained too, as the last of the list. What can't be
        maintained does not keep the rest from it: the first failure is raised at the end."""
        self._check_root()
        check_retention(offsets_retention_minutes)
        check_grace(grace_ms)
        if topic is not None:
            return [
                maintain_topic(
                    self._topics, topic, self._pool, grace_ms=grace_ms, progress=progress
                )
            ]
        result = maintain_all(
            self._topics,
            lambda: self.offsets_table,
            self._pool,
            offsets_retention_minutes=offsets_retention_minutes,
            grace_ms=grace_ms,
            progress=progress,
        )
        failures = list(result.failures.items())
        for name, error in failures[1:]:
            warnings.warn(f"{name!r} was not maintained: {error}", OffsetLogWarning, stacklevel=2)
        if failures:
            raise failures[0][1]
        return result.maintained

    def verify(
        self, topic: str | None = None, *, progress: Progress | None = None
    ) -> list[TopicReport]:
        """Check every promise on what is stored; nothing is repaired."""
        self._check_root()
        return verify_topics(self.store, topic, progress=progress)

    # --- the end ---------------------------------------------------------------------------

    def check_open(self) -> None:
        """Raise if this program can't use the log any more."""
        forks.check(self._made_in)
        if self._closed:
            raise InvalidRequestError("The log is closed.", "Open it again.")

    def _check_root(self) -> None:
        self.check_open()
        self.root.require()

    def close(self) -> None:
        """Write what is waiting, and free what is held; raises the first failure that nobody
        was told. What a keyed producer has not flushed is not written: nobody here knows
        whether it is whole."""
        self._close(None)

    def _close(self, block_error: BaseException | None) -> None:
        if forks.is_foreign(self._made_in):
            return
        with self._lock:
            if self._closed:
                return
            self._closed = True
        errors: list[Exception] = []

        def attempt(call: Callable[[], object]) -> None:
            try:
                call()
            except Exception as error:  # noqa: BLE001 - the rest is closed first
                errors.append(error)

        if self._heartbeats is not None:
            attempt(self._heartbeats.close)
        unflushed = self._topics.abandon_unflushed()
        for write_the_rest in self._topics.closers():
            attempt(write_the_rest)
        attempt(lambda: self._pool.shutdown(wait=True))
        if self._offsets is not None:
            attempt(self._offsets.port.close)
        attempt(self.store.close)
        if block_error is None:
            errors += unflushed
        if errors and block_error is not None:
            block_error.add_note(str(errors[0]))  # What ended the block comes first.
        elif errors:
            raise errors[0]

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
