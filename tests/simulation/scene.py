"""The scene of a history, and what every actor can do.

Invariants:

1. An actor reports to the oracle what it means to do and what it was told.
2. Errors that the history explains (a fault of the store, a deleted topic, a trimmed range)
   are part of life; every other one is a violation.
3. When the world is calm and its work is done, an actor ends.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from offsetlog.core.topic.state import TopicState
from offsetlog.engine.topic.open_topic import OpenTopic
from offsetlog.errors import OffsetLogError, OffsetOutOfRangeError, StorageError, UnknownTopicError
from tests.simulation.oracle import Oracle
from tests.simulation.store import SerialPool, SimStore
from tests.simulation.tables import TableTruth
from tests.simulation.world import Process, Violation, World

TOPIC = "t"
CONFIG = (("producer.id.expiration.ms", "3000"), ("segment.bytes", "260"))
COMPACTION = {"cleanup.policy": "compact,delete", "min.cleanable.dirty.ratio": "0.0"}

CALM_TURNS = 1
"""Rounds of each role without faults: they bring to light what went wrong before."""

Role = Callable[["Actor"], None]


class Scene:
    """What all actors of a history share."""

    def __init__(
        self,
        world: World,
        is_local: bool,
        graces: tuple[int, ...],
        actors: Mapping[str, Role],
        threads: Mapping[int, list[Role]],
    ) -> None:
        self.world = world
        self._actors = actors
        self._threads = threads
        self.is_local = is_local
        self.graces = graces
        self.config = CONFIG
        """Of the topic when it is created."""
        self.most_partitions = 3
        self.oracle = Oracle(world, TOPIC)
        self.oracle.table = TableTruth(world, self.oracle, TOPIC, min(graces))
        self.extra: dict[Any, Any] = {}
        """What the roles of some histories share besides."""

    @property
    def compacts(self) -> bool:
        return COMPACTION.items() <= dict(self.config).items()

    @property
    def hurried_grace(self) -> int:
        """Of a collector in a hurry: readers of a table need the one that they were promised."""
        return min(self.graces) if dict(self.config).get("table.format") else 0

    def handle(self, process: Process) -> OpenTopic:
        store = SimStore(self.world, process, self.is_local)
        pool: Any = None if self.is_local else SerialPool(process)
        return OpenTopic(store, TOPIC, process.env(), pool)

    def spawn(self, role: str, process: Process) -> list[Callable[[], None]]:
        """The fibers of a new process: its actor, and at times helpers in the same process."""
        kind = role.rstrip("0123456789")
        handle = self.handle(process)
        actors = [self._actors[kind]]
        if kind == "producer":
            # Whether a process has more threads is the role's nature, not each life's.
            nature = sum(map(ord, f"{role}{self.world.seed}")) % 5
            actors += self._threads.get(nature, [])
        return [
            partial(actor, Actor(self, process, handle, role, i)) for i, actor in enumerate(actors)
        ]


class Actor:
    """One fiber of one process."""

    def __init__(
        self, scene: Scene, process: Process, handle: OpenTopic, role: str, index: int
    ) -> None:
        self.scene = scene
        self.world = scene.world
        self.oracle = scene.oracle
        self.process = process
        self.handle = handle
        self.rng = process.rng
        self.may_have_landed = False
        """What the last operation that failed said of itself."""
        self.name = process.name if index == 0 else f"{process.name}+{index}"
        self.disk = self.world.disk.setdefault(role if index == 0 else f"{role}+{index}", {})

    def turns(self, most: int) -> Any:
        """Up to ``most`` rounds in all lives of this role; few of them once the faults stopped."""
        while self.disk.get("turns", 0) < most and self.disk.get("calm turns", 0) < CALM_TURNS:
            self.disk["turns"] = self.disk.get("turns", 0) + 1
            if self.world.calm:
                self.disk["calm turns"] = self.disk.get("calm turns", 0) + 1
            yield self.disk["turns"]
            self.world.pause(self.process)

    def say(self, text: str) -> None:
        self.world.tell("op", self.name, text)

    def do(self, what: str, call: Callable[[], Any], reads_ahead: bool = False) -> Any:
        """Run an operation; None when the history explains its failure. What reads ahead may
        meet a fault later than it happened."""
        faults, calm = self.process.faults_seen, self.world.calm
        if reads_ahead:
            faults, calm = -1, False
        tip = self.handle.chain.state.tip
        ack = self.oracle.newest_ack
        self.may_have_landed = False
        self.say(what)
        try:
            result = call()
        except OffsetLogError as error:
            self.say(f"{what}: {type(error).__name__}: {error}")
            self.may_have_landed = error.may_have_landed
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
        deleted = (
            not all(state.alive for state in since)
            or since[0].created_at_entry != since[-1].created_at_entry
        )
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

    def look(self) -> TopicState | None:
        state: TopicState | None = self.do("looks", self.handle.state)
        return state


def _is_ours(error: BaseException) -> bool:
    return isinstance(error, OffsetLogError)
