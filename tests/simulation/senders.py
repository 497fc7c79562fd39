"""Actors that write: idempotent producers, callers with keys of their own, and strangers."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from functools import partial

import numpy as np
import pyarrow as pa

from offsetlog.client.producer import Producer
from offsetlog.core.topic.entry import Append, Entry
from offsetlog.core.topic.state import TopicState
from offsetlog.engine.append.group_commit import GroupCommit
from offsetlog.engine.append.record_batch import part_of, prepare
from offsetlog.engine.append.send_buffer import ArrowFuture, SendFuture
from offsetlog.engine.topic.open_topic import OpenTopic
from offsetlog.errors import InvalidRequestError
from offsetlog.format import entries as entry_format
from offsetlog.format import record_schema as rows
from offsetlog.format.names import EntryName
from offsetlog.storage.store import Committed, Conflict
from offsetlog.values import RecordMetadata, settings_of
from tests.simulation.oracle import Batch, Row, value_of
from tests.simulation.scene import TOPIC, Actor


def _batch(actor: Actor, sender: str, number: int, attempt: int, partitions: int) -> Batch:
    rng = actor.rng
    size = rng.choice((0, 2, 20, 60))
    count = rng.choice((1, 1, 2, 3, 6))
    token = (sender, number, attempt)
    made = []
    for i in range(count):
        value: bytes | None = value_of(token, i, size)
        headers = (("h", None), ("g", b"v")) if rng.random() < 0.1 else ()
        key = rng.choice((None, b"", b"k%d" % rng.randrange(5)))
        if actor.scene.compacts:
            key = key or b""
            # The last one tells whose they are.
            value = None if i < count - 1 and rng.random() < 0.4 else value
        time = actor.world.now_ms + rng.randrange(-2000, 2000)
        made.append((rng.randrange(partitions), Row(key, value, headers, time)))
    batch = Batch(sender, number, attempt, tuple(made))
    actor.oracle.sends(batch)
    return batch


class Host:
    """What a client's producer needs of a ``Log``: here, without threads of its own."""

    def __init__(self, handle: OpenTopic) -> None:
        self.env = handle.chain.env
        self._handle = handle
        self._appender: GroupCommit | None = None

    def open_topic(self, name: str) -> OpenTopic:
        return self._handle

    def group_commit(self, name: str) -> GroupCommit:
        if self._appender is None:
            self._appender = GroupCommit(self._handle)
            # Whoever waits for a result writes the batch: no thread is started.
            self._appender._thread = threading.current_thread()
        return self._appender


def _send(batch: Batch, to: Producer) -> list[SendFuture]:
    return [
        to.send(TOPIC, row.value, row.key, list(row.headers), partition, row.timestamp)
        for partition, row in batch.rows
    ]


def _send_table(batch: Batch, to: Producer) -> ArrowFuture:
    partitions, found = zip(*batch.rows, strict=True)
    table = _table(found).append_column("partition", pa.array(partitions, pa.int32()))
    return to.send_arrow(TOPIC, table)


def _table(found: Sequence[Row]) -> pa.Table:
    keys, values, headers, times = zip(*found, strict=True)
    return pa.table(
        {
            "key": pa.array(keys, pa.binary()),
            "value": pa.array(values, pa.binary()),
            "headers": pa.array([list(h) for h in headers], rows.HEADERS),
            "timestamp": pa.array(times, pa.int64()).cast(rows.TIMESTAMP),
        }
    )


def producer(actor: Actor) -> None:
    """An idempotent producer with an id of its own for each life."""
    actor.await_topic()
    actor.look()
    client = Producer(Host(actor.handle))
    for turn in actor.turns(14):
        partitions = actor.handle.chain.state.partitions
        if not partitions or actor.rng.random() < 0.2:
            actor.look()
            continue
        batch = _batch(actor, actor.name, turn, 0, partitions)
        token = (actor.name, turn, 0)
        whole = actor.rng.random() < 0.5

        def send(batch: Batch = batch, whole: bool = whole) -> list[RecordMetadata]:
            if whole:
                future = _send_table(batch, client)
                return [future.metadata(i) for i in range(len(batch.rows))]
            return [future.result() for future in _send(batch, client)]

        told = actor.do(f"sends {token}", send)
        if told is not None:
            actor.oracle.acknowledged(token, [(m.partition, m.offset) for m in told])
            actor.say(f"{token} is acknowledged")
        elif not actor.may_have_landed:
            actor.oracle.refused(token)


def stranger(actor: Actor) -> None:
    """Another implementation, which puts what it likes without a look at its own state: appends
    to partitions that are not there (yet). Only the fold stands between them and the topic."""
    actor.await_topic()
    for turn in actor.turns(4):
        actor.world.sleep(actor.process, actor.rng.uniform(0, 1))
        state = actor.look()
        if state is None:
            continue
        missing = state.partitions + actor.rng.randrange(2)
        value = value_of((actor.name, turn, 0), 0, 5)
        row = Row(None, value, (), actor.world.now_ms)
        batch = Batch(actor.name, turn, 0, ((missing, row),))
        actor.oracle.sends(batch)
        actor.do(f"puts what is meant for partition {missing}", partial(_put, actor, batch, state))


def _put(actor: Actor, batch: Batch, state: TopicState) -> bool:
    chain = actor.handle.chain
    [(partition, row)] = batch.rows
    load = prepare(_table([row]), np.array([partition], np.int32))
    parts = tuple(
        part_of(partition, load.ends, load.times, 0, 1, None) for partition, _, _ in load.runs
    )
    body = Append(
        batch.sender,
        batch.number,
        True,
        state.tip,
        state.created_at_entry,
        partition,
        load.digest,
        0,
        parts,
    )
    entry = Entry(chain.env.new_id(), chain.env.now_ms(), body)
    stored = entry_format.encode(entry, load.inline(), settings_of(state.config).compression)
    offer = chain.store.offer(stored.data, "")
    number = state.tip
    for _ in range(12):
        answer = offer.put(str(EntryName(chain.folder, number)))
        if isinstance(answer, Committed):
            break
        number += isinstance(answer, Conflict)
    return True


def query(actor: Actor) -> None:
    """A caller's key: its number moves on only when it was acknowledged, and that was noted. Else
    the last one is sent again: the same rows, or others, which are refused once those are there."""
    sender = actor.process.role
    failures = 0
    actor.await_topic()
    for _ in actor.turns(12):
        state = actor.look()
        if state is None:
            continue
        number = actor.disk.get("number", 0)
        batch = _rows_of_number(actor, sender, number, state.partitions)
        token = (sender, number, batch.attempt)
        client = Producer(Host(actor.handle), app_id=sender, sequence=number)
        sent = actor.do(f"gathers {token}", partial(_send, batch, client))
        if sent is None:
            continue
        for _ in range(6):
            told = actor.do(f"flushes {token}", partial(_flush, client, sent))
            if told is not None or not actor.may_have_landed:
                break
        if told == OTHERS:
            actor.oracle.refused(token)
            actor.disk["batches"].remove(batch)
            actor.say(f"{token} is refused: other rows are there")
            continue
        if told is not None:
            actor.oracle.acknowledged(token, [(m.partition, m.offset) for m in told])
            actor.say(f"{token} is acknowledged")
            actor.disk.setdefault("may be there", set()).add(token)
            if actor.rng.random() < 0.7:
                # Else it dies before it has noted that.
                actor.disk["number"] = number + 1
                actor.disk["batches"] = []
            continue
        tries = actor.disk.setdefault("may be there", set())
        if actor.may_have_landed:
            tries.add(token)
        elif token not in tries:
            actor.oracle.refused(token)
            actor.disk["batches"].remove(batch)
        failures += 1
        if failures == 3:
            return
        # The program gives up, and its next run starts with an empty memory.
        actor.handle = actor.scene.handle(actor.process)


OTHERS = "other rows are there"


def _rows_of_number(actor: Actor, sender: str, number: int, partitions: int) -> Batch:
    """A batch that was tried under the number already, or another one."""
    tried: list[Batch] = actor.disk.setdefault("batches", [])
    if tried and actor.rng.random() < 0.6:
        return actor.rng.choice(tried)
    actor.disk["attempt"] = actor.disk.get("attempt", 0) + 1
    tried.append(_batch(actor, sender, number, actor.disk["attempt"], partitions))
    return tried[-1]


def _flush(client: Producer, sent: list[SendFuture]) -> list[RecordMetadata] | str:
    try:
        client.flush()
    except InvalidRequestError as error:
        if "was used for other records" not in error.message:
            raise
        return OTHERS
    return [future.result() for future in sent]
