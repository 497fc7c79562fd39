"""Topics: create, change, delete, trim. Each is one entry of the topic's chain.

Invariants:

1. A change is decided by the fold. When somebody else's came first, it is looked at again and
   proposed again, or refused with what is now true.
2. A topic that is created again goes on in the same chain, with the same offsets.
3. A topic that was never there is made only in a folder that holds nothing else.
"""

from __future__ import annotations

from collections.abc import Mapping

from offsetlog.core.topic import plan as fetch
from offsetlog.core.topic.entry import Configure, Create, Delete, Expire, Trim, Void
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
from offsetlog.values import MAX_PARTITIONS, check_name, normalise_config

TRIES = 20
COMPACTION = "Compaction by key is not there yet; 'delete' is the policy that works."


def check_partitions(count: object) -> int:
    if isinstance(count, bool) or not isinstance(count, int) or not 1 <= count <= MAX_PARTITIONS:
        raise InvalidRequestError(
            f"A topic cannot have {count!r} partitions.", f"Allowed: 1 to {MAX_PARTITIONS}."
        )
    return count


def check_config(config: Mapping[str, object] | None) -> dict[str, str]:
    known = normalise_config(config)
    if "compact" in known.get("cleanup.policy", ""):
        raise InvalidRequestError("cleanup.policy=compact cannot be set.", COMPACTION)
    return known


def create(handle: OpenTopic, partitions: int, config: Mapping[str, object] | None) -> TopicState:
    name = check_name(handle.name)
    count = check_partitions(partitions)
    stored = tuple(sorted(check_config(config).items()))
    for _ in range(TRIES):
        state = handle.refresh()
        if state.alive:
            raise _exists(name, state)
        if not state.tip:
            check_free(handle.chain.store, handle.chain.folder)
        if handle.decide(Create(name, count, stored, state.head)) is None:
            return handle.chain.state
    raise _contended(name)


def _exists(name: str, state: TopicState) -> TopicExistsError:
    if state.topic == name:
        return TopicExistsError(f"Topic {name!r} exists already.", "Use it, or choose a new name.")
    return TopicExistsError(
        f"Topic {name!r} cannot exist beside {state.topic!r}.",
        "Names that differ only by case or by '.' and '_' are taken for the same.",
    )


def alter(
    handle: OpenTopic,
    partitions: int | None = None,
    config: Mapping[str, object] | None = None,
    unset: tuple[str, ...] = (),
) -> TopicState:
    """More partitions, other settings, or settings back to their defaults."""
    known = check_config(config)
    drop = set(normalise_config_keys(unset))
    for _ in range(TRIES):
        state = handle.state()
        count = state.partitions if partitions is None else check_partitions(partitions)
        if count < state.partitions:
            raise InvalidRequestError(
                f"Topic {handle.name!r} has {state.partitions} partitions; they cannot become "
                f"{count}.",
                "Partitions can only be added.",
            )
        merged = {k: v for k, v in state.config if k not in drop} | known
        wanted = tuple(sorted(merged.items()))
        if (count, wanted) == (state.partitions, state.config):
            return state
        if handle.decide(Configure(count, wanted, state.head)) is None:
            return handle.chain.state
    raise _contended(handle.name)


def normalise_config_keys(keys: tuple[str, ...]) -> list[str]:
    from offsetlog.values import CONFIG_KEYS

    for key in keys:
        if key not in CONFIG_KEYS:
            raise InvalidRequestError(
                f"There is no topic config {key!r}.", f"Known: {', '.join(sorted(CONFIG_KEYS))}."
            )
    return list(keys)


def delete(handle: OpenTopic) -> None:
    for _ in range(TRIES):
        state = handle.state()
        if handle.decide(Delete(state.head)) is None:
            return
    raise _contended(handle.name)


def trim(handle: OpenTopic, before: Mapping[int, int]) -> dict[int, int]:
    """Move log start offsets up to ``before``; -1 stands for the log end offset."""
    state = handle.state()
    starts = []
    for partition, offset in sorted(before.items()):
        fetch.check_partition(state, partition)
        part = state.parts[partition]
        target = part.end if offset == -1 else offset
        if not 0 <= target <= part.end:
            raise OffsetOutOfRangeError(
                f"Offset {offset} of {handle.name}-{partition} is not there.",
                f"It holds {part.start} to {part.end}.",
            )
        starts.append((partition, target))
    if starts:
        void: Void | None = handle.decide(Trim(tuple(starts)))
        if void is not None:
            raise UnknownTopicError(f"Nothing was deleted: {void.detail}.")
    after = handle.chain.state
    return {partition: after.start(partition) for partition, _ in starts}


def forget(handle: OpenTopic, app_ids: tuple[str, ...]) -> None:
    """Forget callers' keys for good. A late copy of one of their batches would count again."""
    state = handle.state()
    unknown = [app for app in app_ids if state.callers.get(app) is None]
    if unknown:
        raise InvalidRequestError(f"Topic {handle.name!r} knows no app_id {unknown[0]!r}.")
    handle.decide(Expire(state.floor, app_ids))


def _contended(name: str) -> StorageError:
    return StorageError(
        f"Topic {name!r} was changed by others each time this was tried.", "Try again."
    )
