"""Actors that write as Spark's sink does: tasks stage rows, a driver appends them as one entry.

A driver's memory dies with it; what it has on disk is the number of the micro-batch that is to
be run. Each run of a batch has other tasks and other rows than the one before; tasks are run
twice at times, and what the other run wrote is never named. Now and then a driver that was
given up for dead commits the same batch all the same.
"""

from __future__ import annotations

from functools import partial

import numpy as np
import pyarrow as pa

from offsetlog.engine.append.distributed_append import TaskShare, TaskStage, append_shares, facts_of
from offsetlog.engine.append.writer import Receipt, Sender
from offsetlog.engine.topic.open_topic import OpenTopic
from offsetlog.format import record_schema as rows
from tests.simulation.oracle import Batch, Row, value_of
from tests.simulation.scene import Actor


def sink(actor: Actor) -> None:
    query = actor.process.role
    failures = 0
    actor.await_topic()
    for _ in actor.turns(10):
        if actor.look() is None:
            continue
        number = actor.disk.get("number", 0)
        runs = [_run_tasks(actor, query, number) for _ in range(actor.rng.choice((1, 1, 1, 2)))]
        done = False
        for batch, shares in (run for run in runs if run is not None):
            told = actor.do(
                f"commits {batch.sender, batch.number, batch.attempt}",
                partial(_commit, actor.handle, query, number, shares),
            )
            if told is not None:
                actor.oracle.acknowledged((query, number, batch.attempt), [])
                done = True
            elif not actor.may_have_landed:
                actor.oracle.refused((query, number, batch.attempt))
        if done:
            actor.disk["number"] = number + 1
            continue
        failures += 1
        if failures == 4:
            return
        # The query fails, and is started again with an empty memory.
        actor.handle = actor.scene.handle(actor.process)


def _run_tasks(actor: Actor, query: str, number: int) -> tuple[Batch, list[TaskShare]] | None:
    """The tasks of one run of a batch; None when they could not write what they had."""
    facts = actor.do("plans a batch", partial(facts_of, actor.handle))
    if facts is None:
        return None
    attempt = actor.disk["attempt"] = actor.disk.get("attempt", 0) + 1
    rng, shares = actor.rng, []
    spilled: list[tuple[int, Row]] = []
    handed: list[tuple[int, Row]] = []
    index = 0
    for task in range(rng.choice((1, 2, 3))):
        for life in range(rng.choice((1, 1, 1, 2))):
            stage = TaskStage(actor.handle.chain.store, facts, actor.handle.chain.env, task)
            mine: list[tuple[int, Row]] = []
            early: list[tuple[int, Row]] = []
            for _ in range(rng.choice((1, 1, 2))):
                token = (query, number, attempt if life == 0 else -attempt)
                some = []
                for _ in range(rng.choice((1, 2, 4))):
                    value = value_of(token, index, rng.choice((0, 5, 40)))
                    time = actor.world.now_ms + rng.randrange(-1000, 1000)
                    key = b"k%d" % (index % 5) if actor.scene.compacts else None
                    some.append((rng.randrange(facts.partitions), Row(key, value, (), time)))
                    index += 1
                stage.add(*_batch(some))
                mine += some
                if rng.random() < 0.4:
                    if actor.do("spills", lambda stage=stage: stage.spill() or True) is None:  # type: ignore[misc]
                        return None
                    early, mine = early + mine, []
            if life == 0:
                shares.append(stage.share())
                spilled += early
                handed += mine
    batch = Batch(query, number, attempt, (*spilled, *handed))
    actor.oracle.sends(batch)
    return batch, shares


def _batch(found: list[tuple[int, Row]]) -> tuple[pa.RecordBatch, np.ndarray]:
    partitions, given = zip(*found, strict=True)
    table = pa.RecordBatch.from_arrays(
        [
            pa.array([row.key for row in given], pa.binary()),
            pa.array([row.value for row in given], pa.binary()),
            pa.nulls(len(given), rows.HEADERS),
            pa.array([row.timestamp for row in given], pa.int64()).cast(rows.TIMESTAMP),
        ],
        schema=rows.ROWS,
    )
    return table, np.array(partitions, np.int32)


def _commit(handle: OpenTopic, query: str, number: int, shares: list[TaskShare]) -> Receipt | None:
    handle.refresh()
    return append_shares(handle, shares, Sender(query, number, False, True))
