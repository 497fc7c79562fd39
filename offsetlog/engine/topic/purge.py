"""The removal of a topic with its files, and what is said before that and other deletions."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from offsetlog.core.topic.plan import estimate_bytes, estimate_records
from offsetlog.core.topic.state import TopicState
from offsetlog.engine.topic import lifecycle
from offsetlog.engine.topic.folder import FolderContents, read_contents, remove_files
from offsetlog.engine.topic.open_topic import OpenTopic
from offsetlog.errors import CorruptLogError, StorageError
from offsetlog.logs import get_logger

logger = get_logger(__name__)


class PurgePlan(NamedTuple):
    """What a purge of a topic would remove."""

    topic: str
    address: str
    records: int | None
    """None: the topic can't be read."""
    contents: FolderContents


class Removal(NamedTuple):
    """What a deletion of records would remove."""

    topic: str
    address: str
    partitions: int
    """In which there are any."""
    records: int
    bytes: int
    """About, before compression."""


def plan_trim(topic: OpenTopic, before: Mapping[int, int] | None) -> Removal:
    """What ``lifecycle.trim`` would remove; None: all that there is. Changes nothing."""
    state = topic.state()
    if before is None:
        before = dict.fromkeys(range(state.partitions), -1)
    partitions = records = size = 0
    for partition, target in lifecycle.trim_targets(state, before):
        start = state.start(partition)
        if start < target:
            partitions += 1
            records += estimate_records(state, partition, start, target)
            size += estimate_bytes(state, partition, start, target)
    return Removal(topic.name, address_of(topic), partitions, records, size)


def address_of(topic: OpenTopic) -> str:
    """Where the topic's files lie."""
    return f"{topic.chain.store.url}/{topic.chain.folder}"


def plan_purge(topic: OpenTopic) -> PurgePlan:
    """Changes nothing."""
    chain = topic.chain
    state = _state_to_purge(topic)
    records = None
    if state is not None:
        ranges = [(p, part.start, part.end) for p, part in enumerate(state.parts)]
        records = sum(estimate_records(state, *one) for one in ranges)
    contents = read_contents(chain.store, chain.folder)
    return PurgePlan(topic.name, address_of(topic), records, contents)


def purge_topic(topic: OpenTopic) -> FolderContents:
    """Delete the topic and remove its files; what was removed, and what was left."""
    state = _state_to_purge(topic)
    if state is not None and state.alive:
        lifecycle.delete(topic)
    removed = remove_files(topic.chain.store, topic.chain.folder)
    logger.info("topic %s purged: %d files removed", topic.name, removed.files)
    return removed


def _state_to_purge(topic: OpenTopic) -> TopicState | None:
    """The topic's state; None if it can't be read: then nobody can use the topic, and its files
    may go all the same."""
    try:
        state = topic.refresh()
    except CorruptLogError:
        return None
    except StorageError as error:
        if error.retryable:
            raise
        return None
    if state.topic == topic.name and not state.alive:
        return state
    if not state.tip and read_contents(topic.chain.store, topic.chain.folder).files:
        return state  # What an earlier purge left, or a writer that did not know of it.
    return topic.known_state()
