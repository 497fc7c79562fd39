"""Actors that look after the topic: publishers, maintainers of every kind, an administrator."""

from __future__ import annotations

from functools import partial
from typing import Any

from offsetlog.core.topic.entry import Create, Expire
from offsetlog.core.topic.state import TopicState
from offsetlog.engine.topic import lifecycle as admin
from offsetlog.engine.topic.open_topic import OpenTopic
from offsetlog.engine.upkeep.compaction import KeyCompaction
from offsetlog.engine.upkeep.erasure import erase
from offsetlog.engine.upkeep.maintenance import Maintenance
from offsetlog.errors import InvalidRequestError, TopicExistsError, UnknownTopicError
from tests.simulation.gone import KEYS
from tests.simulation.scene import TOPIC, Actor


def publisher(actor: Actor) -> None:
    """Stores what it knows, fresh or not: a writer's process does so after each of its entries."""
    actor.await_topic()
    due = partial(actor.handle.stored.publish_if_due, every=3, min_seconds=0.0)
    for turn in actor.turns(14):
        actor.world.sleep(actor.process, actor.rng.uniform(0, 0.5))
        if (turn == 1 or actor.rng.random() < 0.5) and actor.look() is None:
            continue
        if actor.rng.random() < 0.4:
            actor.do("publishes", actor.handle.stored.publish)
        else:
            actor.do("publishes if it is due", due)


def maintainer(actor: Actor) -> None:
    actor.await_topic()
    for _ in actor.turns(5):
        actor.world.sleep(actor.process, actor.rng.uniform(0, 2))
        if actor.do("looks", actor.handle.refresh) is None or not actor.handle.chain.state.tip:
            continue
        grace = actor.rng.choice(actor.scene.graces)
        actor.do(
            f"maintains with a grace of {grace} ms",
            Maintenance(actor.handle, grace_ms=grace).run,
        )


def collector(actor: Actor) -> None:
    """A maintainer in a hurry: no grace, and only collection."""
    actor.await_topic()

    def collect() -> None:
        round_ = Maintenance(actor.handle, grace_ms=actor.scene.hurried_grace)
        round_._collect(actor.world.now_ms, round_._note(), waits=True)
        head = round_._publish(actor.world.now_ms)
        round_._delete(actor.world.now_ms, round_._kept(head, actor.world.now_ms))

    for _ in actor.turns(14):
        actor.world.sleep(actor.process, actor.rng.uniform(0, 0.6))
        if actor.do("looks", actor.handle.refresh) is not None:
            actor.do("collects and deletes", collect)


def compactor(actor: Actor) -> None:
    """A maintainer that only consolidates, again and again."""
    actor.await_topic()
    for _ in actor.turns(10):
        actor.world.sleep(actor.process, actor.rng.uniform(0, 0.6))
        if actor.do("looks", actor.handle.refresh) is not None:
            round_ = Maintenance(actor.handle, grace_ms=0)
            actor.do("consolidates", round_._consolidate)


def keycompactor(actor: Actor) -> None:
    """A maintainer that only compacts by key, by the storage's clock."""
    actor.await_topic()

    def compact() -> None:
        round_ = Maintenance(actor.handle)
        KeyCompaction(actor.handle).run(round_._storage_now(), round_._storage_now)

    for _ in actor.turns(10):
        actor.world.sleep(actor.process, actor.rng.uniform(0, 1.2))
        if actor.do("looks", actor.handle.refresh) is not None:
            actor.do("compacts by key", compact)


def eraser(actor: Actor) -> None:
    actor.await_topic()
    for _ in actor.turns(4):
        actor.world.sleep(actor.process, actor.rng.uniform(0, 4))
        keys = actor.rng.sample(KEYS, actor.rng.randint(1, 2))
        if actor.look() is not None:
            erased = actor.do(f"erases {keys}", partial(erase, actor.handle, keys))
            if erased is not None:
                oracle = actor.oracle
                oracle.gone.erased(keys, erased.end_offsets, oracle.truth, oracle.rows)


def forgetter(actor: Actor) -> None:
    """Producers' ids expire as soon as they may."""
    actor.await_topic()
    for _ in actor.turns(20):
        actor.world.sleep(actor.process, actor.rng.uniform(0, 0.5))
        state = actor.do("looks", actor.handle.refresh)
        if state is not None:
            floor = max(0, state.tip - actor.rng.randrange(3))
            actor.do(f"forgets senders before {floor}", partial(_expire, actor, floor))


def _expire(actor: Actor, floor: int) -> None:
    actor.handle.decide(Expire(floor))


def administrator(actor: Actor) -> None:
    handle, rng = actor.handle, actor.rng
    for turn in actor.turns(6):
        actor.world.sleep(actor.process, rng.uniform(0, 2) if turn > 1 else 0.0)
        state = actor.do("looks", handle.refresh)
        if state is None:
            continue
        if not state.alive:
            _create(actor, rng.randint(1, actor.scene.most_partitions))
            continue
        what = rng.choice(("alter", "trim", "config", "recreate", "trim"))
        if what == "alter":
            count = state.partitions + 1
            actor.do(f"wants {count} partitions", partial(_alter, handle, partitions=count))
        elif what == "config":
            config = rng.choice(
                ({"retention.bytes": 300}, {"retention.bytes": -1}, {"retention.ms": 3_600_000})
            )
            if dict(actor.scene.config).get("table.format") and rng.random() < 0.4:
                config = {"table.format": rng.choice(("none", "delta", "delta"))}
            actor.do(f"sets {config}", partial(_alter, handle, config=config))
        elif what == "trim":
            partition = rng.randrange(state.partitions)
            offset = rng.randint(0, state.end(partition))
            actor.do(f"trims {partition} to {offset}", partial(_trim, handle, partition, offset))
        else:
            actor.do("deletes the topic", partial(_delete, handle))
            _create(actor, rng.randint(1, actor.scene.most_partitions))
    create_at_last(actor)


def create_at_last(actor: Actor) -> None:
    """The others wait for a topic, however often its creation was refused."""
    while not any(state.alive for state in actor.oracle.states):
        actor.world.sleep(actor.process, 0.2)
        _create(actor, 1)


def _alter(handle: OpenTopic, **change: Any) -> TopicState | None:
    try:
        return admin.alter(handle, **change)
    except UnknownTopicError:
        raise
    except InvalidRequestError:
        return None  # somebody else was faster


def _trim(handle: OpenTopic, partition: int, offset: int) -> dict[int, int]:
    return admin.trim(handle, {partition: offset})


def _delete(handle: OpenTopic) -> bool:
    admin.delete(handle)
    return True


def _create(actor: Actor, partitions: int) -> None:
    """``admin.create``, with settings smaller than it would let a user set."""

    def create() -> TopicState:
        for _ in range(admin.TRIES):
            state = actor.handle.refresh()
            if state.alive:
                return state
            body = Create(TOPIC, partitions, actor.scene.config, state.head)
            if actor.handle.decide(body) is None:
                return actor.handle.chain.state
        raise TopicExistsError("Others created it each time.")

    actor.do(f"creates the topic with {partitions} partitions", create)
