"""The log: a root, and everything that a program does with it.

Invariants:

1. A root that is not there is an error for whoever wants to read it, never an empty result; and an
   open log is of one root: it neither makes nor uses another one (``engine.root``).
2. ``close`` frees all that is held, whatever fails on the way, and raises the first failure that
   nobody was told: what could not be written, and what a keyed producer never flushed.
3. In a process that was forked since, everything refuses by one error, and closing does nothing:
   the log is the parent's.
"""

from __future__ import annotations

import contextlib
import functools
import inspect
import threading
import warnings
import weakref
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Concatenate, ParamSpec, TypeVar

from offsetlog.arguments import (
    ANYTHING,
    CALLBACK,
    CONFIG,
    FLAG,
    GROUP,
    PLACE,
    TOPIC,
    WHOLE,
    checked,
    many,
)
from offsetlog.client import running_pages
from offsetlog.client.consumer import Consumer
from offsetlog.client.group import Group
from offsetlog.client.notebook_html import GroupList, GroupSummary
from offsetlog.client.overview import Overview, overview_of
from offsetlog.client.page_picture import PagePicture
from offsetlog.client.producer import Producer
from offsetlog.client.rules import MEMORY, MILLISECONDS, MINUTES
from offsetlog.client.topic import Topic, TopicInfo, TopicList, describe
from offsetlog.core.group.state import status
from offsetlog.core.topic.state import TopicState
from offsetlog.engine.append.group_commit import BUFFER_BYTES, GroupCommit
from offsetlog.engine.copy.copy import CopyReport, Source, copy_log
from offsetlog.engine.env import REAL, Env
from offsetlog.engine.group.heartbeats import Heartbeats
from offsetlog.engine.group.offsets_table import OffsetsTable
from offsetlog.engine.root import Root
from offsetlog.engine.topic import lifecycle
from offsetlog.engine.topic.folder import FolderContents, check_free
from offsetlog.engine.topic.open_topic import OpenTopic
from offsetlog.engine.topic.open_topics import OpenTopics, as_topic_error
from offsetlog.engine.topic.purge import PurgePlan, plan_purge, purge_topic
from offsetlog.engine.upkeep.findings import TopicReport
from offsetlog.engine.upkeep.maintenance import (
    GRACE_MS,
    MEMORY_BYTES,
    Maintained,
    Progress,
    ShareOut,
)
from offsetlog.engine.upkeep.offsets_maintenance import DEFAULT_RETENTION_MINUTES
from offsetlog.engine.upkeep.rounds import last_round_ms, maintain_all, maintain_topic, with_space
from offsetlog.engine.upkeep.turns import Turns
from offsetlog.engine.upkeep.verify import verify_log, verify_topics
from offsetlog.errors import InvalidRequestError, OffsetLogError, OffsetLogWarning
from offsetlog.format import names
from offsetlog.logs import get_logger
from offsetlog.storage import forks
from offsetlog.storage.offsets.open import open_offsets
from offsetlog.storage.open import open_store
from offsetlog.storage.pool import Pool
from offsetlog.storage.store import Store

if TYPE_CHECKING:
    import pyarrow as pa

POOL_THREADS = 16
logger = get_logger(__name__)
P = ParamSpec("P")
T = TypeVar("T")


def _makes(
    kind: Callable[Concatenate[Log, P], T],
) -> Callable[[Callable[[Log], None]], Callable[Concatenate[Log, P], T]]:
    """A method of an open log that makes one of ``kind``, by the same arguments: they are said
    once, and editors complete them."""

    def decorate(method: Callable[[Log], None]) -> Callable[Concatenate[Log, P], T]:
        @functools.wraps(method)
        def make(self: Log, /, *args: P.args, **settings: P.kwargs) -> T:
            self.check_open()
            self.root.begin()
            made = kind(self, *args, **settings)
            if isinstance(made, Consumer):
                self._consumers.add(made)
            return made

        host, *rest = inspect.signature(kind).parameters.values()
        signature = inspect.Signature([host.replace(name="self"), *rest], return_annotation=kind)
        make.__signature__ = signature  # type: ignore[attr-defined]
        make.__annotations__ = {"return": kind}
        rules = dict(kind.__init__.rules)  # type: ignore[attr-defined]
        del rules["host"]
        make.rules = rules  # type: ignore[attr-defined]
        return make

    return decorate


def _end(consumer: Consumer, *, commit: bool) -> None:
    """Close a consumer with its log. What its callbacks raise is nothing that the log failed in."""
    try:
        consumer.close(commit=commit)
    except OffsetLogError:
        raise
    except Exception:
        logger.exception("A callback of a consumer raised an error as the log was closed.")


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
        self._consumers: weakref.WeakSet[Consumer] = weakref.WeakSet()
        self._turns = Turns()
        self._lock = threading.RLock()
        self._made_in = forks.process()
        self._closed = False

    def keep_to_root(self) -> None:
        """Take note of the root that is there, where that is no request; what is wrong with it
        is said to who uses it."""
        if not self.root.is_fixed:
            with contextlib.suppress(OffsetLogError):
                self.root.learn()

    @property
    def url(self) -> str:
        return self.store.url

    @property
    def root_id(self) -> str:
        """The id that the root got when it was created."""
        forks.check(self._made_in)
        return self.root.id

    # --- topics ----------------------------------------------------------------------------

    @checked(name=TOPIC, partitions=WHOLE, config=CONFIG)
    def create_topic(
        self, name: str, partitions: int = 1, config: Mapping[str, object] | None = None
    ) -> Topic:
        """Create a topic, and the root with the first one."""
        self.check_open()
        lifecycle.check_partitions(partitions)
        lifecycle.check_config(self.store, config)
        if not self.root.learn():
            # No root is made where the topic can't be.
            check_free(self.store, names.topic_folder(name))
            self.root.create()
        self.root.begin()
        topic = self._topics.get(name)
        lifecycle.create(topic, partitions, config)
        return Topic(topic, self.check_open)

    @checked(name=TOPIC, purge=FLAG)
    def delete_topic(self, name: str, *, purge: bool = False) -> FolderContents | None:
        """Delete a topic. Its chain stays, so that its offsets are never reused. ``purge`` removes
        its files too: do that only when nobody reads or writes the topic any more. It returns
        what was removed, and what was kept because it is not the topic's."""
        topic = self._topic_of_a_log(name)
        if not purge:
            with_space(topic, lambda: lifecycle.delete(topic))
            return None
        removed = purge_topic(topic)
        self._topics.release(topic.chain.folder)
        return removed

    @checked(name=TOPIC)
    def purge_plan(self, name: str) -> PurgePlan:
        """What ``delete_topic(name, purge=True)`` would remove; nothing is changed."""
        return plan_purge(self._topic_of_a_log(name))

    def _topic_of_a_log(self, name: str) -> OpenTopic:
        """For what deletes: a folder of that name is no topic where there is no log."""
        topic = self.open_topic(name)
        self.root.require()
        return topic

    def topics(self) -> TopicList:
        """The names of the topics that exist. One that can't be read is left out, with a warning
        that names it."""
        self._check_root()
        topics, broken = self._readable_topics()
        for folder, failure in sorted(broken.items()):
            text = f"The topic in {self.url}/{folder} can't be read, and is not listed: {failure}"
            warnings.warn(text, OffsetLogWarning, stacklevel=2)
        return TopicList([info for _, info in topics])

    def overview(self) -> Overview:
        """All topics and all groups at one look, for who looks again and again: the requests grow
        with the topics, and not with partitions, groups or records. Bytes and seconds of a lag
        are estimates, which read no record (``group(name).describe()`` reads one for each
        partition that is behind)."""
        self.check_open()
        self.root.check()
        groups = self.offsets_table.look()
        topics, broken = self._readable_topics(keep=True)
        if not topics and not groups.groups:
            self.root.begin()  # On a server what is gone looks so.
        return overview_of(topics, groups, broken, self.env.now_ms())

    def last_maintained_ms(self) -> int | None:
        """When upkeep of the whole log (``maintain`` without a topic) last came to its end, by the
        storage's clock: one request, after a look at the topics. None: never."""
        self._check_root()
        return last_round_ms(self._topics, self.offsets_table)

    def page(self) -> PagePicture:
        """A picture of the log for a notebook: its topics and its groups' lag as they are now, and
        the address where ``offsetlog page`` shows it, if that runs on this machine."""
        seen = self.overview()
        addresses = tuple(running_pages.addresses(self.root_id))
        return PagePicture(self.url, self.env.now_ms(), seen, addresses)

    def _readable_topics(
        self, *, keep: bool = False
    ) -> tuple[list[tuple[TopicState, TopicInfo]], dict[str, OffsetLogError]]:
        """The topics that exist, in order, and what is wrong with those that can't be read, by
        folder."""
        found = self._topics.find_all(keep=keep)
        topics = []
        for topic in found.topics:
            state = topic.chain.state
            if state.alive:
                try:
                    topics.append((state, describe(state)))
                except Exception as error:  # noqa: BLE001 - it must not hide the others
                    folder = topic.chain.folder
                    found.broken[folder] = as_topic_error(folder, error)
        for _, failure in sorted(found.broken.items()):
            if failure.retryable:
                raise failure  # The storage fails, and not a topic: ask again.
        return sorted(topics, key=lambda topic: topic[1].name), found.broken

    @checked(name=TOPIC)
    def topic(self, name: str) -> Topic:
        """A topic, which must exist."""
        topic = self.open_topic(name)
        topic.state()
        return Topic(topic, self.check_open)

    def open_topic(self, name: str) -> OpenTopic:
        """The one open topic of a name, which need not exist."""
        self.check_open()
        if not self.root.is_fixed:
            self.root.begin()
        return self._topics.get(name)

    def group_commit(self, name: str) -> GroupCommit:
        """The one writer of this program to a topic."""
        self.check_open()
        return self._topics.group_commit(name)

    # --- producing and consuming -----------------------------------------------------------

    @_makes(Producer)
    def producer(self) -> None:
        """A producer. With ``app_id`` and ``sequence``, what it sends to a topic is one batch that
        is never written twice. ``linger_ms`` and ``batch_bytes`` limit how long and how large a
        batch grows."""

    @_makes(Consumer)
    def consumer(self) -> None:
        """A consumer, subscribed to ``topics`` if they are named. With ``group`` it shares their
        partitions with the other members and commits; without one it never commits."""

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
        """The names of the consumer groups."""
        self._check_root()
        groups = self.offsets_table.look().groups
        return GroupList(
            [
                GroupSummary(name, status(group), len(group.members), len(group.positions))
                for name, group in sorted(groups.items())
                if group.alive
            ]
        )

    @checked(name=GROUP)
    def group(self, name: str) -> Group:
        """A consumer group, which need not exist yet."""
        self.check_open()
        self.root.begin()
        return Group(self, name)

    def positions(self) -> pa.Table:
        """The present positions of all groups, as an Arrow table: the offsets table's facts,
        folded. ``offset`` is the next one to read."""
        from offsetlog.format.facts_arrow import positions_to_arrow

        self._check_root()
        return positions_to_arrow(self.offsets_table.look())

    # --- upkeep ----------------------------------------------------------------------------

    @checked(
        topic=TOPIC,
        offsets_retention_minutes=MINUTES,
        grace_ms=MILLISECONDS,
        memory_bytes=MEMORY,
        progress=CALLBACK,
        share_out=CALLBACK,
        take_turns=FLAG,
    )
    def maintain(
        self,
        topic: str | None = None,
        *,
        offsets_retention_minutes: int = DEFAULT_RETENTION_MINUTES,
        grace_ms: int = GRACE_MS,
        memory_bytes: int = MEMORY_BYTES,
        progress: Progress | None = None,
        share_out: ShareOut | None = None,
        take_turns: bool = False,
    ) -> list[Maintained]:
        """Snapshots, consolidation, retention and collection, of one topic or of all. With all
        of them the offsets table is maintained too, and is the last of the list. If something
        can't be maintained, the rest still is, and the first failure is raised at the end.
        ``memory_bytes`` bounds what the records take that are rewritten, however many wait, beside
        what the process takes anyway.
        ``share_out`` has the rewriting done elsewhere: ``offsetlog.spark.maintain``.
        With ``take_turns``, for who calls this again and again, topics are left out that another
        maintainer looked after since the last call."""
        self._check_root()
        turns = self._turns if take_turns else None
        if topic is not None:
            maintained = maintain_topic(
                self._topics,
                topic,
                self._pool,
                grace_ms=grace_ms,
                memory_bytes=memory_bytes,
                progress=progress,
                share_out=share_out,
                turns=turns,
            )
            return [] if maintained is None else [maintained]
        result = maintain_all(
            self._topics,
            lambda: self.offsets_table,
            self._pool,
            offsets_retention_minutes=offsets_retention_minutes,
            grace_ms=grace_ms,
            memory_bytes=memory_bytes,
            progress=progress,
            share_out=share_out,
            turns=turns,
        )
        failures = list(result.failures.items())
        for name, error in failures[1:]:
            warnings.warn(f"{name!r} was not maintained: {error}", OffsetLogWarning, stacklevel=3)
        if failures:
            raise failures[0][1]
        return result.maintained

    @checked(topic=TOPIC, progress=CALLBACK)
    def verify(
        self, topic: str | None = None, *, progress: Progress | None = None
    ) -> list[TopicReport]:
        """Check every promise on what is stored, of one topic, or of all with the offsets table
        and the root's file; nothing is repaired. ``faults`` of a report break a promise,
        ``caches`` are files that may be deleted."""
        self.check_open()
        if topic is not None:
            self._check_root()
            reports = verify_topics(self.store, topic, pool=self._pool, progress=progress)
        else:
            if not self.root.is_there():
                self.root.check(0.0)
            reports = verify_log(self.store, lambda: self.offsets_table.port, self._pool, progress)
        if self.root.is_kept:
            self.root.check()  # What was out of sight meanwhile is no fault of the log.
        return reports

    @checked(
        to=PLACE,
        topics=many(TOPIC),
        groups=many(GROUP),
        progress=CALLBACK,
        storage_options=ANYTHING,
    )
    def copy(
        self,
        to: str,
        *,
        topics: Iterable[str] | None = None,
        groups: Iterable[str] | None = None,
        progress: Progress | None = None,
        **storage_options: object,
    ) -> CopyReport:
        """Copy this log, which may be in use, to another place: a log of its own, with the same
        offsets and groups. Where a copy of it is there already, what is new is copied.
        ``topics`` and ``groups`` choose what is copied; without them it is all. A topic that is
        broken here does not end the copy of the others: the error at the end names it."""
        self._check_root()
        options = storage_options or self.store.options_for(to)
        target = open_store(to, **options)
        try:
            return copy_log(
                Source(self.store, self.root_id, self._topics, self.offsets_table),
                target,
                self.env,
                self._pool,
                topics=topics,
                groups=groups,
                progress=progress,
            )
        finally:
            target.close()

    # --- the end ---------------------------------------------------------------------------

    def check_open(self) -> None:
        """Raise if this program can't use the log any more."""
        forks.check(self._made_in)
        if self._closed:
            raise InvalidRequestError("The log is closed.", "Open it again.")

    def _check_root(self) -> None:
        self.check_open()
        self.root.require()
        self.root.begin()

    def close(self) -> None:
        """Write what is waiting, let consumers leave their groups, and free what is held. Raises
        the first failure that was not raised before. Consumers commit as by their own ``close``;
        of one that another thread is using nothing is committed. What a producer with a
        ``sequence`` has not flushed is not written, since only its program knows whether it is
        complete: that is an error."""
        self._close(None)

    def _close(self, block_error: BaseException | None) -> None:
        if forks.is_foreign(self._made_in):
            return
        errors: list[Exception] = []

        def attempt(call: Callable[[], object]) -> None:
            try:
                call()
            except Exception as error:  # noqa: BLE001 - the rest is closed first
                errors.append(error)

        if not self._closed:
            for consumer in list(self._consumers):
                if not consumer._users:  # Else a thread is in a call of it.
                    attempt(partial(_end, consumer, commit=block_error is None))
        with self._lock:
            if self._closed:
                return
            self._closed = True
        if self._heartbeats is not None:
            attempt(self._heartbeats.close)
            self._heartbeats.leave_all()
        unflushed = self._topics.abandon_unflushed()
        for write_the_rest in self._topics.closers():
            attempt(write_the_rest)
        attempt(lambda: self._pool.shutdown(wait=True))
        attempt(self.store.close)
        if block_error is None:
            errors += unflushed
        if errors and block_error is not None:
            block_error.add_note(str(errors[0]))  # What ended the block comes first.
        elif errors:
            raise errors[0]

    def __enter__(self) -> Log:
        return self

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        self._close(error)

    def __repr__(self) -> str:
        return f"Log({self.url!r})"
