"""Actors of consumer groups: workers that share a topic, and people who reset their group.

The code is the client's own; what it does in threads of its own (heartbeats, the watch over
peers) is done here between two polls, so that the seed decides when.
"""

from __future__ import annotations

import contextlib
from functools import partial
from typing import Any

from offsetlog.client.consumer import Consumer
from offsetlog.client.group import Group
from offsetlog.engine.env import Env
from offsetlog.engine.group.heartbeats import Heartbeat, Heartbeats
from offsetlog.engine.group.offsets_table import OffsetsTable
from offsetlog.engine.topic.open_topic import OpenTopic
from offsetlog.errors import FencedError, InvalidRequestError
from offsetlog.storage.delta.log import Surroundings
from offsetlog.storage.delta.table import DeltaOffsets
from offsetlog.storage.offsets.chain import ChainOffsets
from offsetlog.storage.offsets.port import OffsetsPort
from offsetlog.values import Record
from tests.simulation.ledger import FOLDER, Ledger
from tests.simulation.oracle import Row
from tests.simulation.scene import TOPIC, Actor
from tests.simulation.store import SerialPool, SimStore
from tests.simulation.world import Process, Violation

GROUP = "g"
SESSION_MS = 3_000


class HandHeartbeats(Heartbeats):
    """Hearts that beat when their owner says so."""

    def add(self, heart: Heartbeat) -> None:
        heart.owner = object  # When Python collects a consumer is in no seed.
        self._hearts[heart.member] = heart


class RootInSight:
    def check(self) -> None:
        """The simulated root is always in sight."""


def offsets_port(store: SimStore, process: Process, is_delta: bool) -> OffsetsPort:
    """The table of all groups, as a chain or with Delta's rules."""
    if not is_delta:
        return ChainOffsets(store, FOLDER)
    env = process.env()
    outside = Surroundings(
        env.now_ms,
        env.monotonic,
        env.new_id,
        lambda: contextlib.nullcontext(SerialPool(process)),
    )
    return DeltaOffsets(store, FOLDER, f"sim://{FOLDER}", surroundings=outside)


class HandLog:
    """What a consumer, a group and a query need of a ``Log``, without threads."""

    root_id = "simulated"

    def __init__(self, actor: Actor) -> None:
        self.env: Env = actor.handle.chain.env
        self.store = SimStore(actor.world, actor.process, actor.scene.is_local)
        self.root = RootInSight()
        self._handle = actor.handle
        is_delta = ledger_of(actor).is_delta
        port = offsets_port(self.store, actor.process, is_delta)
        self.offsets_table = OffsetsTable(port, self.env, None)
        self.heartbeats = HandHeartbeats(self.offsets_table)

    def open_topic(self, name: str) -> OpenTopic:
        return self._handle

    def check_open(self) -> None:
        """Nobody closes it."""


def ledger_of(actor: Actor) -> Ledger:
    ledger: Ledger = actor.scene.extra["ledger"]
    return ledger


def worker(actor: Actor) -> None:
    """Polls, commits now and then, leaves at times and joins anew."""
    actor.await_topic()
    log = HandLog(actor)
    ledger = ledger_of(actor)
    consumer: Consumer | None = None
    for _ in actor.turns(30):
        actor.world.sleep(actor.process, actor.rng.choice((0.0, 0.05, 0.4)))
        if consumer is None:
            consumer = actor.do("joins", partial(_join, log))
            continue
        log.heartbeats.send_due()
        log.heartbeats.watch_due()
        poll = partial(_poll, log, ledger, consumer, actor.rng.choice((1, 3, 50)))
        got = actor.do("polls", poll, reads_ahead=True)
        if got is None:
            continue
        if actor.rng.random() < 0.5:
            actor.do("commits", partial(_commit, ledger, consumer))
        if actor.rng.random() < 0.06:
            actor.do("leaves", consumer.close)
            consumer = None
    if consumer is not None:
        actor.do("leaves for good", consumer.close)


def _join(log: HandLog) -> Consumer | None:
    try:
        return Consumer(
            log,
            GROUP,
            [TOPIC],
            auto_offset_reset="earliest",
            enable_auto_commit=False,
            session_timeout_ms=SESSION_MS,
            heartbeat_interval_ms=SESSION_MS // 3,
        )
    except FencedError:
        return None  # a query owns the group


def _poll(log: HandLog, ledger: Ledger, consumer: Consumer, most: int) -> bool:
    try:
        found = consumer.poll(0.0, most)
    except FencedError:
        return True  # it was put out, and could not join again yet
    member = consumer.member or ""
    runs: dict[int, list[Record]] = {}
    for record in found:
        runs.setdefault(record.partition, []).append(record)
    for partition, records in runs.items():
        offsets = [record.offset for record in records]
        if offsets != list(range(offsets[0], offsets[0] + len(offsets))):
            raise Violation(f"{member} was given {offsets} of {partition} in one poll")
        ledger.give(member, partition, offsets[0], [_row(record) for record in records])
    for tp, position in consumer._cursor.positions.items():
        if position is not None:
            ledger.stands(member, tp.partition, position)
    return True


def _row(record: Record) -> Row:
    return Row(record.key, record.value, tuple(record.headers), record.timestamp)


def _commit(ledger: Ledger, consumer: Consumer) -> bool:
    member, held = consumer.member or "", [(tp.topic, tp.partition) for tp in consumer.assignment()]
    since = len(ledger.tables) - 1
    try:
        consumer.commit()
    except FencedError:  # put out meanwhile: the next poll joins anew
        ledger.fenced(member, held, since)
    return True


def resetter(actor: Actor) -> None:
    """Somebody who puts the group elsewhere, whatever it is doing."""
    actor.await_topic()
    log = HandLog(actor)
    for _ in actor.turns(4):
        actor.world.sleep(actor.process, actor.rng.uniform(0.2, 3))
        rng = actor.rng
        to: Any = rng.choice(("earliest", "latest", rng.randrange(6)))
        partitions = [0] if rng.random() < 0.5 else None
        actor.do(f"resets the group to {to}", partial(_reset, log, to, partitions))


def _reset(log: HandLog, to: Any, partitions: list[int] | None) -> bool:
    with contextlib.suppress(InvalidRequestError):  # there is no such group yet
        Group(log, GROUP).reset(TOPIC, to, partitions=partitions, dry_run=False)
    return True


def tidier(actor: Actor) -> None:
    """Upkeep of the table: few files of many, checkpoints, and what nobody names goes."""
    actor.await_topic()
    log = HandLog(actor)
    for _ in actor.turns(12):
        actor.world.sleep(actor.process, actor.rng.uniform(0.1, 2))
        table = log.offsets_table
        if actor.rng.random() < 0.7:
            actor.do("tidies the table", partial(_tidy, table))
        else:
            actor.do("maintains the table", partial(_maintain, table))


def _tidy(table: OffsetsTable) -> bool:
    if table.look().version >= 0:
        table.port.tidy()
    return True


def _maintain(table: OffsetsTable) -> bool:
    table.port.maintain(table.look(), 0)
    return True
