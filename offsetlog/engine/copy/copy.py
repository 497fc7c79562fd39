"""``offsetlog copy``: from a log in use to a log of its own, and what is new of it later.

Invariants:

1. Positions are looked up first, then the topics, and the copy's root becomes a log's last: at any
   moment it is a sound log as the source was once, or none.
2. Ended in the middle and started again it goes on: what is there is not copied again.
3. A place that holds anything else is refused, and so is a copy that was written to.
4. What is wrong with one topic does not end the copy of the others: it is named in an error when
   they are done. A new copy leaves it out; in one that is there it stays as it was.
"""

from __future__ import annotations

from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import NamedTuple

from offsetlog.engine.copy.note import CopyNote, read_note, write_note
from offsetlog.engine.copy.offsets import OffsetsCopy
from offsetlog.engine.copy.topic import CopiedTopic, Progress, RecreatedTopicError, TopicCopy
from offsetlog.engine.copy.transfer import Transfer
from offsetlog.engine.env import Env
from offsetlog.engine.group.offsets_table import OffsetsTable
from offsetlog.engine.root import check_surroundings, see_conflict
from offsetlog.engine.topic.open_topic import OpenTopic
from offsetlog.engine.topic.open_topics import OpenTopics
from offsetlog.engine.upkeep.maintenance import Maintenance
from offsetlog.errors import (
    CorruptLogError,
    InvalidRequestError,
    OffsetLogError,
    StorageError,
)
from offsetlog.format import names, root_file
from offsetlog.logs import get_logger
from offsetlog.storage.offsets.open import open_offsets
from offsetlog.storage.probe import PROBE, probe_store
from offsetlog.storage.store import Store
from offsetlog.values import check_name

logger = get_logger(__name__)


class CopyReport(NamedTuple):
    """What a copy has, and what of it is new."""

    source_id: str
    id: str
    topics: tuple[CopiedTopic, ...]
    offsets_version: int
    """-1: the source has no groups."""


class IncompleteCopyError(OffsetLogError):
    """All that could be copied was, and it was not all."""

    def __init__(self, report: CopyReport, url: str, failures: dict[str, OffsetLogError]) -> None:
        named = "; ".join(f"{topic!r}: {error.message}" for topic, error in failures.items())
        super().__init__(
            f"The copy at {url} lacks what could not be copied: {named}",
            "The rest of it is complete. Mend what is named, and copy again.",
        )
        self.report = report


class Source(NamedTuple):
    """The log that is copied."""

    store: Store
    id: str
    topics: OpenTopics
    offsets_table: OffsetsTable


def copy_log(
    source: Source,
    target: Store,
    env: Env,
    pool: ThreadPoolExecutor | None,
    *,
    topics: Iterable[str] | None = None,
    groups: Iterable[str] | None = None,
    progress: Progress | None = None,
) -> CopyReport:
    """Copy a log, or what is new of it; ``topics`` and ``groups`` are all where they are None."""
    copy = _Copy(source, target, env, pool, progress or (lambda what, done, of: None))
    return copy.run(_sorted(topics), _sorted(groups))


def _sorted(chosen: Iterable[str] | None) -> tuple[str, ...] | None:
    return None if chosen is None else tuple(sorted({check_name(name) for name in chosen}))


class _Copy:
    def __init__(
        self,
        source: Source,
        target: Store,
        env: Env,
        pool: ThreadPoolExecutor | None,
        progress: Progress,
    ) -> None:
        self._source = source
        self._target = target
        self._env = env
        self._pool = pool
        self._progress = progress
        self._transfer = Transfer(source.store, target, env, pool)
        self._failures: dict[str, OffsetLogError] = {}

    def run(self, topics: tuple[str, ...] | None, groups: tuple[str, ...] | None) -> CopyReport:
        note, is_new = self._place(topics, groups)
        logger.info("copying %s to %s", self._source.store.url, self._target.url)
        offsets = OffsetsCopy(
            self._source.offsets_table.port,
            open_offsets(self._target, root_id=lambda: note.id),
            note.groups,
            self._env,
        )
        if is_new and note.offsets < 0:
            # What lies there is of a copy that was ended before its table was complete.
            note = self._noted(note._replace(offsets=offsets.begin()))
        version, facts = offsets.news(note.offsets)
        copies = [
            copy
            for copy in (TopicCopy(topic, self._transfer) for topic in self._chosen(note.topics))
            if self._is_copied(copy)
        ]
        if self._failures and not copies:
            raise next(iter(self._failures.values()))
        if version >= 0:
            offsets.bring_up(
                note.offsets,
                version,
                facts,
                lambda at: self._progress("groups", at, version),
            )
            note = self._noted(note._replace(offsets=version))
        copied = tuple(copy.finish() for copy in copies)
        there = OpenTopics(self._target, self._env, self._pool)
        for copy, one in zip(copies, copied, strict=True):
            if copy.may_have_table or not is_new:
                has_news = copy.may_have_table or one.new_entries > 0
                Maintenance(there.get(one.topic), self._pool).free(has_news=has_news)
        if is_new:
            self._transfer.put(names.ROOT_FILE, root_file.encode(note.id))
        report = CopyReport(note.copy_of, note.id, copied, note.offsets)
        if self._failures:
            raise IncompleteCopyError(report, self._target.url, self._failures)
        return report

    # --- the place -------------------------------------------------------------------------

    def _place(
        self, topics: tuple[str, ...] | None, groups: tuple[str, ...] | None
    ) -> tuple[CopyNote, bool]:
        """What the copy is to hold, and whether it is not complete yet."""
        root = self._root_there()
        if root is None:
            self._check_choice(topics, groups)
            self._make_root()
            root = self._root_there()
            assert root is not None
        note = read_note(self._target)
        if root.copy_of not in (None, self._source.id) or (root.copy_of is None and note is None):
            other = f"a copy of the log {root.copy_of}" if root.copy_of else f"the log {root.id}"
            raise InvalidRequestError(
                f"{self._target.url} holds {other}, so {self._source.store.url} can't be copied "
                "there.",
                "Nothing was changed. Choose an empty place.",
            )
        if note is None:
            note = self._noted(CopyNote(self._source.id, root.id, topics, groups, -1))
        if (note.copy_of, note.id) != (self._source.id, root.id):
            raise InvalidRequestError(
                f"{self._target.url} holds a copy of the log {note.copy_of}, and "
                f"{self._source.store.url} is {self._source.id}.",
                "Nothing was changed. Choose an empty place.",
            )
        if (note.topics, note.groups) != (topics, groups):
            raise InvalidRequestError(
                f"The copy at {self._target.url} was begun with {_choice(note)}.",
                "Name the same, or copy to another place.",
            )
        return note, root.copy_of is not None

    def _root_there(self) -> root_file.RootFile | None:
        target = self._target
        data = self._transfer.again(lambda: target.get(names.ROOT_FILE, 0, root_file.MAX_BYTES + 1))
        where = f"{target.url}/{names.ROOT_FILE}"
        if data is None:
            return None
        root = root_file.read(data, where)
        target.before_creating(partial(self._see_conflict, data))
        return root

    def _see_conflict(self, data: bytes) -> bool:
        see_conflict(self._target, names.ROOT_FILE, data, self._env)
        return True

    def _make_root(self) -> None:
        target = self._target
        strangers = [f"{name}/" for name in target.folders("")]
        strangers += [info.name for info in target.list("")]
        strangers = [name for name in strangers if not name.startswith(PROBE)]
        if strangers:
            raise InvalidRequestError(
                f"{target.url} is not empty: it holds {sorted(strangers)[0]!r}.",
                "Nothing was changed. Choose an empty place.",
            )
        check_surroundings(target)
        for higher, _ in target.above():
            data = higher.get(names.ROOT_FILE, 0, root_file.MAX_BYTES + 1)
            if data is not None:
                raise InvalidRequestError(
                    f"{target.url} lies in the log at {higher.url}.",
                    "Choose a place outside of other logs.",
                )
        if target.needs_probe:
            probe_store(target)
        marked = root_file.encode(self._env.new_id(), self._source.id)
        self._transfer.create(names.ROOT_FILE, marked)

    def _check_choice(self, topics: tuple[str, ...] | None, groups: tuple[str, ...] | None) -> None:
        for name in topics or ():
            self._source.topics.get(name).state()
        known = self._source.offsets_table.look().groups if groups else {}
        for name in groups or ():
            if name not in known:
                raise InvalidRequestError(
                    f"There is no group {name!r}.",
                    "'offsetlog groups list' names those that exist.",
                )

    def _noted(self, note: CopyNote) -> CopyNote:
        self._transfer.again(lambda: write_note(self._target, note))
        return note

    # --- topics ----------------------------------------------------------------------------

    def _chosen(self, chosen: tuple[str, ...] | None) -> list[OpenTopic]:
        """The topics to be copied, deleted ones too: their offsets are never given again."""
        if chosen is not None:
            topics: list[OpenTopic] = []
            for name in chosen:
                try:
                    topics.append(self._source.topics.ever_created(name))
                except CorruptLogError as error:
                    self._failures[name] = error
            return topics
        found = self._source.topics.find_all()
        for folder, why in found.broken.items():
            if isinstance(why, StorageError):
                raise why
            self._failures[folder] = why
        return found.topics

    def _is_copied(self, copy: TopicCopy) -> bool:
        """Copy a topic; what is wrong with it is told at the end."""
        try:
            copy.run(self._progress)
        except (CorruptLogError, RecreatedTopicError) as error:
            logger.warning("%s was not copied: %s", copy.topic, error.message)
            self._failures[copy.topic] = error
            copy.discard()
            return False
        return True


def _choice(note: CopyNote) -> str:
    topics = "all topics" if note.topics is None else f"the topics {', '.join(note.topics)}"
    groups = "all groups" if note.groups is None else f"the groups {', '.join(note.groups)}"
    return f"{topics} and {groups}"
