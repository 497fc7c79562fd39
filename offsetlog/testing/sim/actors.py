"""Who acts in a history: each a loop of a user's or our own operations over the real code.

Invariants:

1. An actor reports to the oracle what it means to do and what it was told.
2. Errors that the history explains (a fault of the store, a deleted topic, a trimmed range)
   are part of life; every other one is a violation.
3. When the world is calm and its work is done, an actor ends.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from ...client import admin
from ...client.appender import Appender
from ...client.batches import Batch as ClientBatch
from ...client.handle import TopicHandle
from ...client.maintenance import Maintenance
from ...client.producer import KeyedLane
from ...errors import (
    InvalidRequestError,
    OffsetLogError,
    OffsetOutOfRangeError,
    StorageError,
    TopicExistsError,
    UnknownTopicError,
)
from ...log.entry import Create, Expire
from ...log.state import State
from .oracle import Batch, Oracle, Row, rows_of, token_of, value_of
from .store import SerialPool, SimStore
from .world import Lock, Process, Violation, World

TOPIC = "t"
CONFIG = (("producer.id.expiration.ms", "3000"), ("segment.bytes", "260"))


class Scene:
    """What all actors of a history share."""

    def __init__(self, world: World, is_local: bool, graces: tuple[int, ...]) -> None:
        self.world = world
        self.is_local = is_local
        self.graces = graces
        self.oracle = Oracle(world, TOPIC)

    def handle(self, process: Process) -> TopicHandle:
        store = SimStore(self.world, process, self.is_local)
        pool: Any = None if self.is_local else SerialPool(process)
        handle = TopicHandle(store, TOPIC, process.env(), pool)
        for holder in (handle, handle.chain, handle.stored):
            holder._lock = Lock(self.world)  # type: ignore[attr-defined]
        return handle

    def spawn(self, role: str, process: Process) -> list[Callable[[], None]]:
        """The fibers of a new process: its actor, and at times helpers in the same process."""
        kind = role.rstrip("0123456789")
        handle = self.handle(process)
        actors = [ACTORS[kind]]
        if kind == "producer":
            # Whether a process has more threads is the role's nature, not each life's.
            nature = sum(map(ord, f"{role}{self.world.seed}")) % 5
            actors += THREADS.get(nature, [])
        return [
            partial(actor, Actor(self, process, handle, role, i)) for i, actor in enumerate(actors)
        ]


class Actor:
    """One fiber of one process."""

    def __init__(
        self, scene: Scene, process: Process, handle: TopicHandle, role: str, index: int
    ) -> None:
        self.scene = scene
        self.world = scene.world
        self.oracle = scene.oracle
        self.process = process
        self.handle = handle
        self.rng = process.rng
        self.name = process.name if index == 0 else f"{process.name}+{index}"
        self.disk = self.world.disk.setdefault(role if index == 0 else f"{role}+{index}", {})

    def turns(self, most: int) -> Any:
        """Up to ``most`` rounds in all lives of this role."""
        while self.disk.get("turns", 0) < most:
            self.disk["turns"] = self.disk.get("turns", 0) + 1
            yield self.disk["turns"]
            self.world.pause(self.process)

    def say(self, text: str) -> None:
        self.world.tell("op", self.name, text)

    def do(self, what: str, call: Callable[[], Any]) -> Any:
        """Run an operation; None when the history explains its failure."""
        faults, calm = self.process.faults_seen, self.world.calm
        tip = self.handle.chain.state.tip
        ack = self.oracle.newest_ack
        self.say(what)
        try:
            result = call()
        except OffsetLogError as error:
            self.say(f"{what}: {type(error).__name__}: {error}")
            self.explain(error, faults, tip, calm)
            result = None
        state = self.handle.chain.state
        self.oracle.check_state(state, self.name)
        if what == "looks" and result is not None and result.tip <= ack:
            raise Violation(f"{self.name} looked after entry {ack} was acknowledged and missed it")
        return result

    def explain(self, error: OffsetLogError, faults: int, tip: int, calm: bool) -> None:
        """Raise unless what happened since ``tip`` explains the error."""
        since = self.oracle.states[tip:]
        deleted = not all(state.alive for state in since) or since[0].life != since[-1].life
        if not calm and self.process.faults_seen > faults and isinstance(error, StorageError):
            if isinstance(error.__cause__, Exception) and not _is_ours(error.__cause__):
                raise error
            return
        if isinstance(error, StorageError) and "grace period" in str(error):
            return
        if isinstance(error, UnknownTopicError) and (deleted or self._stale(tip)):
            return
        if "has no partition" in str(error) and deleted:
            return
        if isinstance(error, OffsetOutOfRangeError) and (
            deleted or since[0].parts != since[-1].parts
        ):
            return
        raise error

    def _stale(self, tip: int) -> bool:
        """A sender plans from the state at hand, which may be of an earlier topic."""
        return any(not state.alive for state in self.oracle.states[1:])

    def await_topic(self) -> None:
        """A topic is used once somebody has created it."""
        while not any(state.alive for state in self.oracle.states):
            self.world.sleep(self.process, 0.2)

    def look(self) -> State | None:
        state: State | None = self.do("looks", self.handle.state)
        return state


def _is_ours(error: BaseException) -> bool:
    return isinstance(error, OffsetLogError)


# --- senders -------------------------------------------------------------------------------


def _batch(actor: Actor, sender: str, number: int, attempt: int, partitions: int) -> Batch:
    rng = actor.rng
    size = rng.choice((0, 2, 20, 60))
    count = rng.choice((1, 1, 2, 3, 6))
    token = (sender, number, attempt)
    rows = []
    for i in range(count):
        value = value_of(token, i, size)
        headers = (("h", None), ("g", b"v")) if rng.random() < 0.1 else ()
        key = rng.choice((None, b"", b"k%d" % rng.randrange(5)))
        time = actor.world.now_ms + rng.randrange(-2000, 2000)
        rows.append((rng.randrange(partitions), Row(key, value, headers, time)))
    batch = Batch(sender, number, attempt, tuple(rows))
    actor.oracle.sends(batch)
    return batch


def _add(batch: Batch, to: ClientBatch) -> None:
    for partition, row in batch.rows:
        to.add(row.value, row.key, list(row.headers), partition, row.timestamp * 1_000_000, 64)


def producer(actor: Actor) -> None:
    """An idempotent producer with an id of its own for each life."""
    actor.await_topic()
    actor.look()
    appender = Appender(actor.handle)
    for turn in actor.turns(14):
        partitions = actor.handle.chain.state.partitions
        if not partitions or actor.rng.random() < 0.2:
            actor.look()
            continue
        batch = _batch(actor, actor.name, turn, 0, partitions)
        token = (actor.name, turn, 0)
        out = ClientBatch(TOPIC, appender, 0.0)
        _add(batch, out)

        def send(out: ClientBatch = out) -> ClientBatch:
            appender._waiting.append(out)
            appender.drive(out)
            out.wait(0)
            return out

        if actor.do(f"sends {token}", send) is not None:
            told = [out.metadata(i) for i in range(len(batch.rows))]
            actor.oracle.acknowledged(token, [(m.partition, m.offset) for m in told])
            actor.say(f"{token} is acknowledged")
        elif out.error is not None and not out.error.may_have_landed:
            actor.oracle.refused(token)


def query(actor: Actor) -> None:
    """A caller's key: its number moves on only when it was acknowledged; each life re-sends
    the last one, with other rows than before, as a re-run micro-batch may."""
    sender = actor.process.role
    failures = 0
    actor.await_topic()
    for _ in actor.turns(12):
        state = actor.look()
        if state is None:
            continue
        number = actor.disk.get("number", 0)
        attempt = actor.disk["attempt"] = actor.disk.get("attempt", 0) + 1
        batch = _batch(actor, sender, number, attempt, state.partitions)
        token = (sender, number, attempt)
        lane = KeyedLane(actor.handle, sender, number)
        lane._batch = out = ClientBatch(TOPIC, lane, 0.0)
        _add(batch, out)
        done = False
        for _ in range(6):
            open_before = lane._prepared is not None
            actor.do(f"flushes {token}", partial(lane.flush, None))
            if lane._batch is None:
                done = out.error is None
                break
            if not open_before and not lane._prepared:
                raise Violation("a flush failed and kept its batch without its rows")
        if done:
            actor.oracle.acknowledged(token, [])
            actor.disk["number"] = number + 1
            actor.say(f"{token} is acknowledged")
            continue
        if lane._batch is None:
            actor.oracle.refused(token)
        failures += 1
        if failures == 3:
            return
        # The program gives up, and its next run starts with an empty memory.
        actor.handle = actor.scene.handle(actor.process)


# --- readers -------------------------------------------------------------------------------


def reader(actor: Actor) -> None:
    positions: dict[int, int] = {}
    actor.await_topic()
    for _ in actor.turns(24):
        if actor.rng.random() < 0.4 and actor.handle.chain.state.alive:
            # Plans from what it knew some time ago.
            actor.world.sleep(actor.process, actor.rng.uniform(0, 4))
            state: State | None = actor.handle.chain.state
        else:
            state = actor.look()
        if state is None or not state.partitions:
            continue
        partition = actor.rng.randrange(state.partitions)
        start, end = state.start(partition), state.end(partition)
        how = actor.rng.choice(("tail", "range", "time", "stale"))
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


def _read(actor: Actor, partition: int, start: int, end: int) -> bool:
    def read() -> list[tuple[int, Row]]:
        out: list[tuple[int, Row]] = []
        for batch in actor.handle.reader.read(partition, start, end):
            out += zip(batch.table.column("offset").to_pylist(), rows_of(batch.table), strict=True)
        return out

    got = actor.do(f"reads {partition}: {start} to {end}", read)
    if got is None:
        return False
    actor.oracle.read(partition, start, end, got)
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

    def true(start: int, end: int) -> tuple[int, int] | None:
        found = enumerate(oracle.rows[partition][start:end], start)
        return next(((o, row.timestamp) for o, row in found if row.timestamp >= time), None)

    if partition >= len(oracle.rows):
        allowed = [None]
    else:
        allowed = [
            true(low.start(partition), high.end(partition))
            for low in (before, after)
            for high in (before, after)
        ]
    if got[0] not in allowed:
        raise Violation(f"{actor.name}: time {time} in {partition} is {got[0]}, not {allowed}")


def _stale_extents(actor: Actor, state: State, partition: int) -> None:
    """The extents of a state are those of the fold at its tip, whatever happened since."""
    start, end = state.start(partition), state.end(partition)
    actor.world.sleep(actor.process, actor.rng.choice((0.0, 0.5)))
    got = actor.do(
        f"lists the extents of {partition} at {state.tip}",
        lambda: list(actor.handle.reader.extents(state, partition, start, end)),
    )
    true = [e for e in actor.oracle.states[state.tip].parts[partition].tail if e.end > start]
    if got is not None and got != true:
        raise Violation(f"{actor.name}: the extents of {partition} at {state.tip} differ")


# --- upkeep --------------------------------------------------------------------------------


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
        if actor.do("looks", actor.handle.raw_state) is None or not actor.handle.chain.state.tip:
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
        round_ = Maintenance(actor.handle, grace_ms=0)
        round_._collect(actor.world.now_ms)
        round_._delete()

    for _ in actor.turns(14):
        actor.world.sleep(actor.process, actor.rng.uniform(0, 0.6))
        if actor.do("looks", actor.handle.raw_state) is not None:
            actor.do("collects and deletes", collect)


def compactor(actor: Actor) -> None:
    """A maintainer that only consolidates, again and again."""
    actor.await_topic()
    for _ in actor.turns(10):
        actor.world.sleep(actor.process, actor.rng.uniform(0, 0.6))
        if actor.do("looks", actor.handle.raw_state) is not None:
            round_ = Maintenance(actor.handle, grace_ms=0)
            actor.do("consolidates", round_._consolidate)


def forgetter(actor: Actor) -> None:
    """Producers' ids expire as soon as they may."""
    actor.await_topic()
    for _ in actor.turns(20):
        actor.world.sleep(actor.process, actor.rng.uniform(0, 0.5))
        state = actor.do("looks", actor.handle.raw_state)
        if state is not None:
            floor = max(0, state.tip - actor.rng.randrange(3))
            actor.do(f"forgets senders before {floor}", partial(_expire, actor, floor))


def _expire(actor: Actor, floor: int) -> None:
    actor.handle.decide(Expire(floor))


def administrator(actor: Actor) -> None:
    handle, rng = actor.handle, actor.rng
    for turn in actor.turns(6):
        actor.world.sleep(actor.process, rng.uniform(0, 2) if turn > 1 else 0.0)
        state = actor.do("looks", handle.raw_state)
        if state is None:
            continue
        if not state.alive:
            _create(actor, rng.randrange(1, 4))
            continue
        what = rng.choice(("alter", "trim", "config", "recreate", "trim"))
        if what == "alter":
            count = state.partitions + 1
            actor.do(f"wants {count} partitions", partial(_alter, handle, partitions=count))
        elif what == "config":
            config = rng.choice(
                ({"retention.bytes": 300}, {"retention.bytes": -1}, {"retention.ms": 3_600_000})
            )
            actor.do(f"sets {config}", partial(_alter, handle, config=config))
        elif what == "trim":
            partition = rng.randrange(state.partitions)
            offset = rng.randint(0, state.end(partition))
            actor.do(f"trims {partition} to {offset}", partial(_trim, handle, partition, offset))
        else:
            actor.do("deletes the topic", lambda: admin.delete(handle) or True)
            _create(actor, rng.randrange(1, 4))


def _alter(handle: TopicHandle, **change: Any) -> State | None:
    try:
        return admin.alter(handle, **change)
    except UnknownTopicError:
        raise
    except InvalidRequestError:
        return None  # somebody else was faster


def _trim(handle: TopicHandle, partition: int, offset: int) -> dict[int, int]:
    return admin.trim(handle, {partition: offset})


def _create(actor: Actor, partitions: int) -> None:
    """``admin.create``, with settings smaller than it would let a user set."""

    def create() -> State:
        for _ in range(admin.TRIES):
            state = actor.handle.raw_state()
            if state.alive:
                return state
            body = Create(TOPIC, partitions, CONFIG, state.head)
            if actor.handle.decide(body) is None:
                return actor.handle.chain.state
        raise TopicExistsError("Others created it each time.")

    actor.do(f"creates the topic with {partitions} partitions", create)


THREADS: dict[int, list[Callable[[Actor], None]]] = {
    0: [publisher],
    1: [producer, publisher],
    2: [maintainer, publisher],
}
"""What else runs in some producers' processes, upon the same handle."""
ACTORS: dict[str, Callable[[Actor], None]] = {
    "admin": administrator,
    "producer": producer,
    "query": query,
    "reader": reader,
    "publisher": publisher,
    "maintainer": maintainer,
    "collector": collector,
    "compactor": compactor,
    "forgetter": forgetter,
}
__all__ = ["ACTORS", "Actor", "Scene", "token_of"]
