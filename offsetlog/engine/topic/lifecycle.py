"""Topics: create, change, delete, trim. Each is one entry of the topic's chain.

Invariants:

1. A change is decided by the fold. When somebody else's came first, it is read and the change is
   proposed again, or refused with what is now true.
2. A topic that is created again goes on in the same chain, with the same offsets.
3. A topic that was never there is made only in a folder that holds nothing else.
"""

from __future__ import annotations

from collections.abc import Mapping

from offsetlog.core.topic.entry import Configure, Create, Delete, Expire, Trim, Void
from offsetlog.core.topic.plan import check_partition
from offsetlog.core.topic.state import TopicState
from offsetlog.engine.topic.folder import check_free
from offsetlog.engine.topic.open_topic import OpenTopic
from offsetlog.errors import (
    InvalidRequestError,
    OffsetOutOfRangeError,
    StorageError,
    TopicExistsError,
    UnknownTopicError,
)
from offsetlog.logs import get_logger
from offsetlog.storage.store import Store
from offsetlog.values import CONFIG_KEYS, MAX_PARTITIONS, check_name, held_offsets, normalise_config

TRIES = 20

logger = get_logger(__name__)


def check_partitions(count: object) -> int:
    if isinstance(count, bool) or not isinstance(count, int) or not 1 <= count <= MAX_PARTITIONS:
        raise InvalidRequestError(
            f"A topic cannot have {count!r} partitions.", f"Allowed: 1 to {MAX_PARTITIONS}."
        )
    return count


def check_config(store: Store, config: Mapping[str, object] | None) -> dict[str, str]:
    stored = normalise_config(config)
    if stored.get("table.format") == "delta" and store.delta_address("") is None:
        raise InvalidRequestError(
            f"table.format=delta cannot be set: no reader of Delta reaches {store.url}.",
            "A table needs a local disk, S3, Google Cloud Storage or Azure.",
        )
    return stored


def create(topic: OpenTopic, partitions: int, config: Mapping[str, object] | None) -> TopicState:
    name = check_name(topic.name)
    count = check_partitions(partitions)
    stored = tuple(sorted(check_config(topic.chain.store, config).items()))
    for _ in range(TRIES):
        state = topic.refresh()
        if state.alive:
            raise _exists(name, state)
        if not state.tip:
            check_free(topic.chain.store, topic.chain.folder)
        if topic.decide(Create(name, count, stored, state.head)) is None:
            logger.info("topic %s created with %d partitions", name, count)
            return topic.chain.state
    raise _contended(name)


def _exists(name: str, state: TopicState) -> TopicExistsError:
    if state.topic == name:
        return TopicExistsError(f"Topic {name!r} exists already.", "Use it, or choose a new name.")
    return TopicExistsError(
        f"Topic {name!r} cannot exist beside {state.topic!r}.",
        "Names that differ only by case or by '.' and '_' are taken for the same.",
    )


def alter(
    topic: OpenTopic,
    partitions: int | None = None,
    config: Mapping[str, object] | None = None,
    unset: tuple[str, ...] = (),
) -> TopicState:
    """More partitions, other settings, or settings back to their defaults."""
    changes = check_config(topic.chain.store, config)
    drop = set(check_config_keys(unset))
    for _ in range(TRIES):
        state = topic.state()
        count = state.partitions if partitions is None else check_partitions(partitions)
        if count < state.partitions:
            raise InvalidRequestError(
                f"Topic {topic.name!r} has {state.partitions} partitions; they cannot become "
                f"{count}.",
                "Partitions can only be added.",
            )
        merged = {k: v for k, v in state.config if k not in drop} | changes
        stored = tuple(sorted(merged.items()))
        if (count, stored) == (state.partitions, state.config):
            return state
        if topic.decide(Configure(count, stored, state.head)) is None:
            return topic.chain.state
    raise _contended(topic.name)


def check_config_keys(keys: tuple[str, ...]) -> tuple[str, ...]:
    for key in keys:
        if key not in CONFIG_KEYS:
            raise InvalidRequestError(
                f"There is no topic config {key!r}.", f"Known: {', '.join(sorted(CONFIG_KEYS))}."
            )
    return keys


def delete(topic: OpenTopic) -> None:
    for _ in range(TRIES):
        state = topic.state()
        if topic.decide(Delete(state.head)) is None:
            logger.info("topic %s deleted", topic.name)
            return
    raise _contended(topic.name)


def trim(topic: OpenTopic, before: Mapping[int, int]) -> dict[int, int]:
    """Move log start offsets up to ``before``; -1 stands for the log end offset."""
    starts = trim_targets(topic.state(), before)
    if starts:
        void: Void | None = topic.decide(Trim(starts))
        if void is not None:
            raise UnknownTopicError(f"Nothing was deleted: {void.detail}.")
    after = topic.chain.state
    return {partition: after.start(partition) for partition, _ in starts}


def trim_targets(state: TopicState, before: Mapping[int, int]) -> tuple[tuple[int, int], ...]:
    """(partition, first offset to keep) as ``trim`` takes them, each checked."""
    starts = []
    for partition, offset in sorted(before.items()):
        check_partition(state, partition)
        part = state.parts[partition]
        target = part.end if offset == -1 else offset
        if not 0 <= target <= part.end:
            raise OffsetOutOfRangeError(
                f"Offset {offset} of {state.topic}-{partition} is not there.",
                held_offsets(part.start, part.end),
            )
        starts.append((partition, target))
    return tuple(starts)


def forget(topic: OpenTopic, app_ids: tuple[str, ...]) -> None:
    """Forget callers' keys for good. A late copy of one of their batches would count again."""
    state = topic.state()
    unknown = [app for app in app_ids if state.callers.get(app) is None]
    if unknown:
        raise InvalidRequestError(f"Topic {topic.name!r} knows no app_id {unknown[0]!r}.")
    topic.decide(Expire(state.floor, app_ids))


def _contended(name: str) -> StorageError:
    return StorageError(
        f"Topic {name!r} was changed by others each time this was tried.", "Try again."
    )
