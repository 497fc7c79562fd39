"""One round of upkeep over topics and the offsets table: one that fails does not stop the rest."""

from __future__ import annotations

import logging
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple

from offsetlog.engine.group.offsets_table import OffsetsTable
from offsetlog.engine.topic.open_topics import OpenTopics, as_topic_error
from offsetlog.engine.upkeep.maintenance import Maintained, Maintenance, Progress
from offsetlog.engine.upkeep.offsets_maintenance import OffsetsMaintained, maintain_offsets
from offsetlog.errors import OffsetLogError
from offsetlog.storage.offsets.open import FOLDER as OFFSETS_FOLDER

logger = logging.getLogger(__name__)


class RoundResult(NamedTuple):
    maintained: list[Maintained]
    failures: dict[str, OffsetLogError]


def maintain_topic(
    topics: OpenTopics,
    name: str,
    pool: ThreadPoolExecutor | None,
    *,
    grace_ms: int,
    progress: Progress | None,
) -> Maintained:
    topic = topics.ever_created(name)
    return Maintenance(topic, pool, grace_ms=grace_ms, progress=progress).run()


def maintain_all(
    topics: OpenTopics,
    offsets_table: Callable[[], OffsetsTable],
    pool: ThreadPoolExecutor | None,
    *,
    offsets_retention_minutes: int,
    grace_ms: int,
    progress: Progress | None,
) -> RoundResult:
    """Every topic, and the offsets table as the last."""
    found = topics.find_all()
    result = RoundResult([], dict(found.broken))
    for topic in found.topics:
        try:
            maintenance = Maintenance(topic, pool, grace_ms=grace_ms, progress=progress)
            result.maintained.append(maintenance.run())
        except Exception as error:  # noqa: BLE001 - it must not keep the others from it
            logger.info("upkeep of topic %s failed: %s", topic.name, str(error))
            result.failures[topic.name] = as_topic_error(topic.name, error)
    try:
        offsets = maintain_offsets(offsets_table(), offsets_retention_minutes, grace_ms)
        if offsets is not None:
            result.maintained.append(_in_a_topics_words(offsets))
    except OffsetLogError as error:
        logger.info("upkeep of the offsets table failed: %s", str(error))
        result.failures[OFFSETS_FOLDER] = error
    return result


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
