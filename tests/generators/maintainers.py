"""Several maintainers that come again and again over one root: sound ones, others whose rounds
fail, that are killed in each and started again, that may write small files alone or delete
nothing, or that stand still in the middle of a round; and each wants another grace period.

1. While one of them is sound, what waits for upkeep is done within a few of its rounds, and what
   nobody needs is deleted some grace periods later, whatever the others do.
2. Over a topic to which nothing comes they end with rounds that put no entry, and no version of
   its table, by turns.
3. At any time what is read is what was sent, and the log is sound.

The clock is the history's, so grace periods take no time.
"""

from __future__ import annotations

import itertools
import random
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from unittest import mock

from offsetlog.client.log import Log
from offsetlog.core.topic.table import Changes
from offsetlog.engine.env import REAL, Limits
from offsetlog.engine.topic.topic_table import TopicTable, _Step
from offsetlog.engine.upkeep.maintenance import Maintenance, read_note
from offsetlog.engine.upkeep.turns import Turns
from offsetlog.errors import StorageError
from offsetlog.format import names, notes
from offsetlog.storage.faults import NoSpaceError
from offsetlog.storage.store import FileInfo, PutResult
from tests.engine.upkeep.clocked import BEGINNING, ClockedStore
from tests.engine.upkeep.test_compaction import read
from tests.generators.registry import OPERATIONS, Bug

HOUR = 3_600_000
GRACES = (0, HOUR, 24 * HOUR)
MIN_FILES = 4
PATIENCE = 3
"""Rounds of each sound maintainer in which what waits is done: one may be left to another."""
ROUNDS, IDLE = 12, 3
LIMIT = 200
"""Bytes of a file that a maintainer with a limit can still write: notes are smaller."""
_roots = itertools.count()


class Killed(BaseException):
    """As by SIGKILL: nothing of the maintainer runs after it."""


class _World:
    def __init__(self) -> None:
        self.root = f"maintainers-{next(_roots)}"
        self.now = BEGINNING
        self.times: dict[str, int] = {}


class _Store(ClockedStore):
    """One process's: what it asks may be refused, be its last, or take long."""

    def __init__(self, world: _World) -> None:
        super().__init__(world.root)
        self._world = world
        self._times = world.times
        self.before_call: Callable[[bool], None] = lambda writes: None
        self.largest: int | None = None
        self.may_delete = True

    def delete(self, names: Iterable[str]) -> None:
        given = list(names)
        if given and not self.may_delete:
            raise StorageError(f"Could not delete {given[0]!r}: permission denied.")
        super().delete(given)

    @property
    def now(self) -> int:
        return self._world.now

    @now.setter
    def now(self, value: int) -> None:
        pass

    def delta_address(self, folder: str) -> str:
        return f"memory://{self._world.root}/{folder}"

    def _write(self, name: str, data: bytes) -> None:
        self.before_call(True)
        if self.largest is not None and len(data) > self.largest:
            raise NoSpaceError(f"Could not write {name!r}: the disk quota is used up.")

    def _create(self, name: str, data: bytes) -> PutResult:
        self._write(name, data)
        return super()._create(name, data)

    def put(self, name: str, data: bytes, durable: bool = True) -> None:
        self._write(name, data)
        super().put(name, data, durable)

    def get(self, name: str, start: int | None = None, end: int | None = None) -> bytes | None:
        self.before_call(False)
        return super().get(name, start, end)

    def info(self, name: str) -> FileInfo | None:
        self.before_call(False)
        return super().info(name)


class _Maintainer:
    def __init__(self, history: _History, kind: str, grace: int) -> None:
        self._history = history
        self.kind, self.grace = kind, grace
        self._store = _Store(history.world)
        self._log = history.open(self._store)

    def round(self) -> None:
        """One of ``maintain --every``."""
        rng, counts = self._history.rng, self._history.counts
        if self.kind == "is killed":
            self._log = self._history.open(self._store)
        self._store.may_delete = self.kind != "deletes nothing"
        if self.kind == "has a limit":
            self._store.largest = LIMIT
        elif self.kind == "stands still":
            self._store.before_call = self._stands_still(rng.randint(1, 60))
        elif self.kind in ("fails", "is killed"):
            self._store.before_call = self._ends(rng.choice((1, 2, 2, 2, 3)))
        try:
            self._log.maintain("t", grace_ms=self.grace, take_turns=True)
        except (StorageError, Killed):
            counts[f"{self.kind}: rounds that failed"] += 1
        finally:
            self._store.before_call, self._store.largest = (lambda writes: None), None

    def _ends(self, write: int) -> Callable[[bool], None]:
        """The first write is that by which a round reads the storage's clock."""
        left = itertools.count(write - 1, -1)

        def call(writes: bool) -> None:
            if writes and next(left) <= 0:
                raise Killed if self.kind == "is killed" else StorageError("Could not reach it.")

        return call

    def _stands_still(self, calls: int) -> Callable[[bool], None]:
        left = itertools.count(calls - 1, -1)

        def call(writes: bool) -> None:
            if not next(left):
                self._history.meanwhile(self)

        return call

    def close(self) -> None:
        self._log.close()


ILL = ("fails", "is killed", "has a limit", "deletes nothing", "stands still")


class _History:
    def __init__(self, seed: int) -> None:
        self.rng = rng = random.Random(seed)
        self.counts: Counter[str] = Counter()
        self.world = _World()
        self.log = self.open(_Store(self.world))
        config = {"compression.type": "none", "retention.ms": "-1"}
        if rng.random() < 0.5:
            config["table.format"] = "delta"
        self.log.create_topic("t", config=config)
        self.sent: list[bytes] = []
        kinds = ["sound", *rng.choices(ILL, k=rng.choice((1, 1, 2)))]
        if rng.random() < 0.3:
            kinds.append("sound")
        rng.shuffle(kinds)
        self.maintainers = [_Maintainer(self, kind, rng.choice(GRACES)) for kind in kinds]
        self._deep = 0

    def open(self, store: _Store) -> Log:
        limits = Limits(min_files=MIN_FILES)
        now = lambda: self.world.now  # noqa: E731
        return Log(store, REAL._replace(now_ms=now, now_ns=None, limits=limits))

    def send(self, count: int) -> None:
        with self.log.producer(linger_ms=0) as producer:
            for _ in range(count):
                value = b"value-%06d" % len(self.sent)
                producer.send("t", value).result()
                self.sent.append(value)

    def wait(self) -> None:
        self.world.now += self.rng.choice((1, 60_000, HOUR, 25 * HOUR))

    def rounds(self, but: _Maintainer | None = None) -> None:
        """One of each, in any order."""
        for maintainer in self.rng.sample(self.maintainers, len(self.maintainers)):
            if maintainer is but:
                continue
            # Some come more often than others, or fail at once and are started again.
            for _ in range(1 if maintainer.kind == "sound" else self.rng.choice((1, 2, 3))):
                self.wait()
                maintainer.round()
                self.counts[OPERATIONS] += 1

    def meanwhile(self, standing: _Maintainer) -> None:
        """What happens while one stands still in the middle of its round."""
        if self._deep:
            return
        self._deep += 1
        self.counts["stood still"] += 1
        self.wait()
        self.send(self.rng.choice((0, 3)))
        for _ in range(self.rng.choice((1, 3))):
            self.rounds(but=standing)
        self._deep -= 1

    def state(self) -> Any:
        return self.log.open_topic("t").state()

    def waiting(self) -> int:
        """Entries that upkeep has not merged."""
        reader = self.log.open_topic("t").reader
        live = reader.live(self.state(), lambda leaf, span: list(span))
        return sum(extent.inline for extent in live)

    def unused(self) -> set[str]:
        """Segments that no reader of the log needs."""
        reader = self.log.open_topic("t").reader
        live = reader.live(self.state(), lambda leaf, span: list(span))
        needed = {extent.segment.uid for extent in live if extent.segment is not None}
        there = [info.name for info in self.log.store.list("t/partition=0")]
        parsed = {name: names.parse_segment(name) for name in there}
        return {name for name, one in parsed.items() if one is not None and one.uid not in needed}

    def run(self) -> None:
        for _ in range(self.rng.randint(1, 3)):
            self.send(2 * MIN_FILES)
            begun = len(self.sent)
            for _ in range(PATIENCE):
                self.rounds()
            # Those that came while one stood still may wait on.
            late = len(self.sent) - begun
            left = self.waiting()
            assert left < 2 * MIN_FILES + late, f"{left} entries wait, {self._kinds()}"
        tips = []
        for _ in range(ROUNDS + IDLE):
            self.world.now += max(GRACES)
            self.rounds()
            head = self.log.open_topic("t").table.head()
            tips.append((self.state().tip, -1 if head is None else head.version))
        if not any(one.kind == "stands still" for one in self.maintainers):
            assert tips[-1] == tips[-1 - IDLE], f"idle rounds put {tips}, {self._kinds()}"
            unused = self.unused()
            assert not unused, f"{len(unused)} files that nobody needs stay, {self._kinds()}"
        there = [row[2] for row in read(self.log).get(0, [])]
        assert there == self.sent, f"{len(there)} of {len(self.sent)} are read"
        # A leaf of the index that one stored whose round then failed goes, and it may be named
        # later: that is a cache, which costs time.
        faults = [fault for report in self.log.verify() for fault in report.faults]
        assert not faults, faults[:3]

    def _kinds(self) -> list[tuple[str, int]]:
        return [(one.kind, one.grace // HOUR) for one in self.maintainers]


def history(seed: int, folder: Path) -> Counter[str]:
    """One history; what is wrong is raised. It needs no folder: its files lie in memory."""
    made = _History(seed)
    try:
        made.run()
    finally:
        for maintainer in made.maintainers:
            maintainer.close()
        made.log.close()
    return made.counts


# --- planted bugs --------------------------------------------------------------------------


@contextmanager
def _beginnings_count() -> Iterator[None]:
    """A round counts as soon as it has asked for the time."""

    def look(self: Turns, topic: Any) -> None:
        info = topic.chain.store.info(names.clock_name(topic.chain.folder))
        self._seen[topic.chain.folder] = 0 if info is None else info.modified_ms

    with mock.patch.object(Turns, "look", look):
        yield


@contextmanager
def _failed_rounds_count() -> Iterator[None]:
    """A round says that it came to its end, however it ends."""
    true = Maintenance.run

    def run(self: Maintenance) -> Any:
        try:
            return true(self)
        except StorageError:
            note = read_note(self._chain)._replace(ended_ms=self._chain.env.now_ms())
            name = names.stubs_name(self._chain.folder)
            ClockedStore.put(self._store, name, notes.encode(note._asdict()))
            raise

    with mock.patch.object(Maintenance, "run", run):
        yield


@contextmanager
def _grace_is_a_version() -> Iterator[None]:
    """Another grace period than that of the newest version is worth one."""
    true = TopicTable._step

    def step(self: TopicTable, before: Any, state: Any, retention_ms: int, *how: bool) -> Any:
        found = true(self, before, state, retention_ms, *how)
        if found is None and before.retention_ms != retention_ms:
            ends = before.point.ends
            head = before._replace(version=before.version + 1, retention_ms=retention_ms)
            return _Step(state, head, Changes((), (), (), ends, ends), (), True)
        return found

    with mock.patch.object(TopicTable, "_step", step):
        yield


PLANTED = {
    "a round counts as it begins": Bug(_beginnings_count),
    "a round that failed counts": Bug(_failed_rounds_count),
    "another grace period is a version": Bug(_grace_is_a_version),
}
