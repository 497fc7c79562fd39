"""One round of upkeep over topics and the offsets table: one that fails does not stop the rest."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple, TypeVar

from offsetlog.engine.group.offsets_table import OffsetsTable
from offsetlog.engine.topic.open_topic import OpenTopic
from offsetlog.engine.topic.open_topics import OpenTopics, as_topic_error
from offsetlog.engine.upkeep.maintenance import (
    MEMORY_BYTES,
    Maintained,
    Maintenance,
    Progress,
    ShareOut,
    read_note,
)
from offsetlog.engine.upkeep.offsets_maintenance import OffsetsMaintained, maintain_offsets
from offsetlog.engine.upkeep.turns import Turns
from offsetlog.errors import OffsetLogError
from offsetlog.logs import get_logger
from offsetlog.storage.faults import NoSpaceError
from offsetlog.storage.offsets.open import FOLDER as OFFSETS_FOLDER

logger = get_logger(__name__)
T = TypeVar("T")


class RoundResult(NamedTuple):
    maintained: list[Maintained]
    failures: dict[str, OffsetLogError]


def maintain_topic(
    topics: OpenTopics,
    name: str,
    pool: ThreadPoolExecutor | None,
    *,
    grace_ms: int,
    memory_bytes: int = MEMORY_BYTES,
    progress: Progress | None,
    share_out: ShareOut | None = None,
    turns: Turns | None = None,
) -> Maintained | None:
    """None where it was another maintainer's turn."""
    topic = topics.ever_created(name)
    return _maintain(topic, pool, grace_ms, memory_bytes, progress, share_out, turns)


def _maintain(
    topic: OpenTopic,
    pool: ThreadPoolExecutor | None,
    grace_ms: int,
    memory_bytes: int,
    progress: Progress | None,
    share_out: ShareOut | None,
    turns: Turns | None,
) -> Maintained | None:
    maintenance = Maintenance(
        topic,
        pool,
        grace_ms=grace_ms,
        memory_bytes=memory_bytes,
        progress=progress,
        share_out=share_out,
    )
    if turns is None:
        return maintenance.run()
    if not turns.is_ours(topic):
        logger.debug("%s: another maintainer looked after it", topic.name)
        return None
    maintained = maintenance.run()
    turns.look(topic)
    return maintained


def maintain_all(
    topics: OpenTopics,
    offsets_table: Callable[[], OffsetsTable],
    pool: ThreadPoolExecutor | None,
    *,
    offsets_retention_minutes: int,
    grace_ms: int,
    memory_bytes: int = MEMORY_BYTES,
    progress: Progress | None,
    share_out: ShareOut | None = None,
    turns: Turns | None = None,
) -> RoundResult:
    """Every topic, and the offsets table as the last."""
    found = topics.find_all()
    result = RoundResult([], dict(found.broken))

    def maintain(topic: OpenTopic) -> None:
        result.failures.pop(topic.name, None)
        try:
            maintained = _maintain(topic, pool, grace_ms, memory_bytes, progress, share_out, turns)
            if maintained is not None:
                result.maintained.append(maintained)
        except Exception as error:  # noqa: BLE001 - it must not keep the others from it
            logger.info("upkeep of topic %s failed: %s", topic.name, str(error))
            result.failures[topic.name] = as_topic_error(topic.name, error)

    for topic in found.topics:
        maintain(topic)
    for topic in found.topics:
        # Those that came after it may have freed what it needed.
        has_no_space = isinstance(result.failures.get(topic.name), NoSpaceError)
        if has_no_space and any(one.deleted_files for one in result.maintained):
            maintain(topic)
    try:
        offsets = maintain_offsets(offsets_table(), offsets_retention_minutes, grace_ms)
        if offsets is not None:
            result.maintained.append(_in_a_topics_words(offsets))
    except OffsetLogError as error:
        logger.info("upkeep of the offsets table failed: %s", str(error))
        result.failures[OFFSETS_FOLDER] = error
    return result


def with_space(topic: OpenTopic, free: Callable[[], T]) -> T:
    """A call that lets something of a topic go, which takes some space itself: on a full disk what
    the topic let go already is deleted first."""
    try:
        return free()
    except NoSpaceError:
        if not Maintenance(topic).free_space().files:
            raise
    return free()


def last_round_ms(topics: OpenTopics, offsets_table: OffsetsTable) -> int | None:
    """When a round over everything last came to the last of it, by the storage's clock: to the
    offsets table, or to the last topic, while that has not been looked after. It is one request
    (two without groups); None: no round left anything."""
    came = offsets_table.port.touched_ms()
    last = topics.last_known()
    if came is None and last is not None:
        came = read_note(last.chain).ended_ms or None
    return came


def _in_a_topics_words(offsets: OffsetsMaintained) -> Maintained:
    """A position that expired is a record of the offsets table."""
    return Maintained(
        topic=OFFSETS_FOLDER,
        expired_records=offsets.expired_positions,
        rewritten_files=offsets.files_compacted,
        new_segments=offsets.files_written,
        stubs=0,
        deleted_files=offsets.files_deleted,
        deleted_bytes=0,
        horizon=0,
        entries=offsets.version + 1,
    )
