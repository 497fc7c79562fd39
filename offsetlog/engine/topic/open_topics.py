"""The topics that a ``Log`` has open.

Invariants:

1. One ``OpenTopic`` and one ``GroupCommit`` for each name: all threads of the program share them.
   When another topic took the folder of one, who asks anew gets new ones; who holds the old ones
   is told so by them.
2. What is wrong with one topic does not hide the others.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import NamedTuple, TypeVar

from offsetlog.engine.append.group_commit import BUFFER_BYTES, GroupCommit, WritingThreads
from offsetlog.engine.append.writer import DELIVERY_SECONDS
from offsetlog.engine.env import Env
from offsetlog.engine.topic.folder import check_no_rest
from offsetlog.engine.topic.open_topic import OpenTopic, unknown_topic
from offsetlog.engine.topic.recent_entries import RecentEntries
from offsetlog.errors import InvalidRequestError, OffsetLogError, StorageError, UnknownTopicError
from offsetlog.format import names
from offsetlog.logs import get_logger
from offsetlog.storage.faults import SilenceError
from offsetlog.storage.pool import Pool
from offsetlog.storage.store import Store
from offsetlog.values import check_name

LOOKS_AT_ONCE = 16
T = TypeVar("T")
logger = get_logger(__name__)


class TopicsFound(NamedTuple):
    """Every topic that was ever created, deleted ones too, as it is now."""

    topics: list[OpenTopic]
    broken: dict[str, OffsetLogError]
    """What is wrong with those that can't be read, by folder."""


class OpenTopics:
    def __init__(
        self,
        store: Store,
        env: Env,
        pool: ThreadPoolExecutor | None,
        buffer_bytes: int = BUFFER_BYTES,
    ) -> None:
        self._store = store
        self._env = env
        self._pool = pool
        self._buffer_bytes = buffer_bytes
        self._threads = WritingThreads()
        self._recent = RecentEntries(env.limits.recent_bytes)
        self._topics: dict[str, OpenTopic] = {}
        self._group_commits: dict[str, GroupCommit] = {}
        self._set_aside: list[tuple[OpenTopic, GroupCommit | None]] = []
        """Those whose folders went while they were used, to be closed with the log."""
        self.lock = threading.RLock()
        """Guards all of them."""

    def get(self, name: str) -> OpenTopic:
        """The topic of that name, which need not exist."""
        topic = self._topics.get(name) if isinstance(name, str) else None
        if topic is not None and not topic.chain.keeps_place():
            with self.lock:
                if self._topics.get(name) is topic:
                    self._drop(name)
            topic = None
        if topic is None:
            check_name(name)
            with self.lock:
                topic = self._topics.get(name)
                if topic is None:
                    topic = self._topics[name] = self._open(name)
        return topic

    def group_commit(self, name: str) -> GroupCommit:
        topic = self.get(name)
        with self.lock:
            group_commit = self._group_commits.get(name)
            if group_commit is None:
                group_commit = self._group_commits[name] = GroupCommit(
                    topic, self._buffer_bytes, self._threads
                )
            return group_commit

    def ever_created(self, name: str) -> OpenTopic:
        """The topic of that name, refreshed; it may have been deleted."""
        topic = self.get(name)
        state = topic.refresh()
        if not state.tip:
            raise unknown_topic(name, state)
        return topic

    def last_known(self) -> OpenTopic | None:
        """Of those that this program has looked at, the one that upkeep comes to last."""
        with self.lock:
            return max(self._topics.values(), key=lambda topic: topic.chain.folder, default=None)

    def find_all(self, *, keep: bool = False) -> TopicsFound:
        """Every topic, refreshed; several at a time where the storage makes one wait. Those that
        the program does not use are not kept, unless it is going to look again: then ``keep``
        makes the next look at each of them one request."""
        folders = sorted(filter(names.is_topic_folder, self._store.folders("")))
        with self.lock:
            known = {topic.chain.folder: topic for topic in self._topics.values()}

        silences: list[SilenceError] = []

        def look(folder: str) -> OpenTopic | OffsetLogError | None:
            if silences:
                return silences[0]  # To ask for each of many topics would take for ever.
            try:
                topic = self._in_folder(folder, known.get(folder))
            except SilenceError as error:
                silences.append(error)
                return error
            except Exception as error:  # noqa: BLE001 - whatever it is, it is this topic's
                logger.info("%s can't be read: %s", folder, str(error))
                return as_topic_error(folder, error)
            if topic is not None and keep:
                with self.lock:
                    self._topics.setdefault(topic.name, topic)
            return topic

        found = TopicsFound([], {})
        for folder, outcome in zip(folders, self._several(look, folders), strict=True):
            if isinstance(outcome, OffsetLogError):
                found.broken[folder] = outcome
            elif outcome is not None:
                found.topics.append(outcome)
        return found

    def _several(self, look: Callable[[str], T], folders: list[str]) -> list[T]:
        if self._pool is None or self._store.is_local or len(folders) < 2:
            return [look(folder) for folder in folders]
        # Threads of their own: each look may wait for what it asks of the shared ones.
        with Pool(min(LOOKS_AT_ONCE, len(folders)), "offsetlog-topics") as pool:
            return list(pool.map(look, folders))

    def _in_folder(self, folder: str, topic: OpenTopic | None) -> OpenTopic | None:
        """The topic whose chain lies in a folder, refreshed; None if there is no chain. ``topic``
        is the one that is open for the folder, if one is."""
        if topic is not None:
            try:
                topic.chain.check_place()
            except UnknownTopicError:
                topic = None  # Another chain took the folder. Those who hold the old one are told.
        is_new = topic is None
        topic = topic or self._open(folder)
        state = topic.refresh()
        if not state.tip:
            check_no_rest(self._store, folder)
            return None
        if topic.name != state.topic and is_new:
            topic.name = state.topic
        elif topic.name != state.topic:
            topic = self.get(state.topic)
            topic.refresh()
        return topic

    def _open(self, name: str) -> OpenTopic:
        return OpenTopic(self._store, name, self._env, self._pool, self._recent)

    def release(self, folder: str) -> None:
        """Open the topics of a folder anew when they are next asked for."""
        with self.lock:
            for name in [n for n, t in self._topics.items() if t.chain.folder == folder]:
                self._drop(name)

    def _drop(self, name: str) -> None:
        """Held: the lock."""
        topic, group_commit = self._topics.pop(name), self._group_commits.pop(name, None)
        if group_commit is not None or topic.gathering or topic.dropped:
            self._set_aside.append((topic, group_commit))

    def abandon_unflushed(self) -> list[OffsetLogError]:
        """What became of the batches that keyed producers gathered and never flushed."""
        errors: list[OffsetLogError] = []
        for topic in [*self._topics.values(), *(topic for topic, _ in self._set_aside)]:
            for lane in list(topic.gathering):
                error = lane.abandon("The log was closed")
                if error is not None:
                    errors.append(error)
            errors += [
                InvalidRequestError(f"{text}.", "Call flush(), or use it in a with block.")
                for (app_id, sequence), text in topic.dropped.items()
                if topic.acknowledged.get(app_id, -1) < sequence
            ]
        return errors

    def closers(self) -> list[Callable[[], None]]:
        """Write what waits, topic by topic and with one deadline; each raises the first failure
        that nobody was told."""
        with self.lock:
            aside = [commit for _, commit in self._set_aside if commit is not None]
            commits = [*self._group_commits.values(), *aside]
        until = self._env.monotonic() + DELIVERY_SECONDS
        return [partial(group_commit.close, until) for group_commit in commits]


def as_topic_error(topic: str, error: Exception) -> OffsetLogError:
    """What went wrong with one topic, as an error of ours."""
    if isinstance(error, OffsetLogError):
        return error
    wrapped = StorageError(f"Something failed in topic {topic!r}: {error!r}.", retryable=False)
    wrapped.__cause__ = error
    return wrapped
