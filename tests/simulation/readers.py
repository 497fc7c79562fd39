"""Actors that read: tails, ranges, times, and plans that have grown old."""

from __future__ import annotations

from offsetlog.core.topic.state import TopicState
from tests.simulation.oracle import Row, rows_of
from tests.simulation.scene import Actor
from tests.simulation.world import Violation


def reader(actor: Actor) -> None:
    positions: dict[int, int] = {}
    actor.await_topic()
    for _ in actor.turns(24):
        if actor.rng.random() < 0.4 and actor.handle.chain.state.alive:
            # Plans from what it knew some time ago.
            actor.world.sleep(actor.process, actor.rng.uniform(0, 4))
            state: TopicState | None = actor.handle.chain.state
        else:
            state = actor.look()
        if state is None or not state.partitions:
            continue
        partition = actor.rng.randrange(state.partitions)
        start, end = state.start(partition), state.end(partition)
        how = actor.rng.choice(("tail", "range", "time", "stale", "fresh"))
        if how == "tail":
            at = max(positions.get(partition, start), start)
            if at <= end and _read(actor, partition, at, end):
                positions[partition] = end
        elif how == "range" and start < end:
            low = actor.rng.randrange(start, end)
            _read(actor, partition, low, actor.rng.randrange(low, end) + 1)
        elif how == "time":
            _lookup(actor, partition)
        elif how == "stale":
            _stale_extents(actor, state, partition)
        elif how == "fresh":
            _read_later(actor, partition)


def _read_later(actor: Actor, partition: int) -> None:
    """A program that is started again knows of old entries by their index alone; when it reads
    them, they may have gone."""
    actor.handle = actor.scene.handle(actor.process)
    state = actor.look()
    actor.world.sleep(actor.process, actor.rng.uniform(0, 8))
    if state is not None and partition < state.partitions:
        _read(actor, partition, state.start(partition), state.end(partition))


def _read(actor: Actor, partition: int, start: int, end: int) -> bool:
    def read() -> list[tuple[int, Row]]:
        out: list[tuple[int, Row]] = []
        for batch in actor.handle.reader.read(partition, start, end):
            out += zip(batch.table.column("offset").to_pylist(), rows_of(batch.table), strict=True)
        return out

    tip = actor.handle.chain.state.tip
    got = actor.do(f"reads {partition}: {start} to {end}", read)
    if got is None:
        return False
    actor.oracle.read(partition, start, end, got, tip)
    return True


def _lookup(actor: Actor, partition: int) -> None:
    time = actor.world.now_ms - actor.rng.randrange(0, 5000)
    oracle = actor.oracle
    before = actor.handle.chain.state
    got = actor.do(
        f"looks up {time} in {partition}",
        lambda: (actor.handle.reader.offset_for_time(partition, time),),
    )
    if got is None:
        return
    after = actor.handle.chain.state

    def true(start: int, end: int, tip: int) -> tuple[int, int] | None:
        rows = oracle.rows[partition]
        left = (o for o in range(start, end) if o in at_tip[tip])
        return next(((o, rows[o].timestamp) for o in left if rows[o].timestamp >= time), None)

    at_tip = {
        state.tip: set(oracle.gone.left(partition, 0, after.end(partition), state.tip))
        for state in oracle.states[before.tip : after.tip + 1]
        if partition < len(after.parts)
    }

    if partition >= len(oracle.rows):
        allowed: list[tuple[int, int] | None] = [None]
    else:
        allowed = [
            true(low.start(partition), high.end(partition), tip)
            for low in (before, after)
            for high in (before, after)
            for tip in at_tip
        ]
    if got[0] not in allowed:
        raise Violation(f"{actor.name}: time {time} in {partition} is {got[0]}, not {allowed}")


def _stale_extents(actor: Actor, state: TopicState, partition: int) -> None:
    """The extents of a state are those of the fold at its tip, whatever happened since."""
    start = state.start(partition)
    actor.world.sleep(actor.process, actor.rng.choice((0.0, 0.5)))
    reader = actor.handle.reader
    got = actor.do(
        f"lists the extents of {partition} at {state.tip}",
        lambda: (reader.live(state, lambda leaf, span: list(span)), reader.sizes(state)[partition]),
    )
    if got is None:
        return
    true = [e for e in actor.oracle.states[state.tip].parts[partition].tail if e.end > start]
    live = sorted(e for e in got[0] if e.partition == partition)
    if live != true or list(zip(*got[1], strict=True)) != [
        (e.end, e.bytes, e.min_ts, e.max_ts) for e in true
    ]:
        raise Violation(f"{actor.name}: the extents of {partition} at {state.tip} differ")
