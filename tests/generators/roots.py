"""The folder of a root that is renamed, unmounted (nothing is there, or an empty folder), exchanged
for another log, and brought back, between any two calls and in the midst of one, under two programs
that stay open and use all that a log has.

1. No acknowledged record is missing once the root is back, and none that was refused is there.
2. Nothing is written to the other log, and nothing is made where the root was.
3. No read gives what is another log's, and a root that is not there is never shown as empty.
4. Each failure is an error of ours that says what to do; everything goes on when the root is back.

The clock is the history's, so nobody waits.
"""

from __future__ import annotations

import hashlib
import random
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa

import offsetlog
from offsetlog.client.log import Log
from offsetlog.engine.env import REAL
from offsetlog.engine.root import Root
from offsetlog.errors import OffsetLogError
from offsetlog.storage.local.disk import LocalStore
from tests.generators.registry import OPERATIONS, Bug
from tests.simulation.planting import patched

STEPS = 30
THERE = "there"
OUTAGES = ("gone", "an empty folder", "another log")


class _Disk:
    """What lies at the address."""

    def __init__(self, chance: random.Random, folder: Path) -> None:
        self.chance = chance
        self.root, self._away, self._other = (folder / n for n in ("log", "away", "other"))
        self.state = THERE
        self.counts: Counter[str] = Counter()
        self._before: dict[str, str] = {}
        self._calls_left = -1
        self._main = threading.get_ident()
        self._lock = threading.RLock()
        self._skipped = 0.0

    def make_other(self) -> None:
        """Another log, with topics, records and a group of the same names."""
        with offsetlog.open(str(self._other)) as log:
            for name in ("t", "d"):
                log.create_topic(name, partitions=2)
                with log.producer() as producer:
                    for number in range(8):
                        producer.send(name, b"other-%d" % number, b"k")
            with log.consumer("g", ["t"], auto_offset_reset="earliest") as consumer:
                consumer.poll(0)

    def change(self, state: str) -> None:
        with self._lock:
            if state == self.state:
                return
            self._put_away()
            if state == THERE:
                self._away.rename(self.root)
            else:
                if self.root.exists():
                    self.root.rename(self._away)
                if state == "an empty folder":
                    self.root.mkdir()
                elif state == "another log":
                    self._before = contents(self._other)
                    self._other.rename(self.root)
            self.state = state
            self.counts[state] += 1

    def _put_away(self) -> None:
        """Take away what lies in the root's place, which nobody may have touched."""
        if self.state == "gone":
            assert not self.root.exists(), f"made: {sorted(contents(self.root))}"
        elif self.state == "an empty folder":
            assert not contents(self.root), f"made: {sorted(contents(self.root))}"
            self.root.rmdir()
        elif self.state == "another log":
            now = contents(self.root)
            changed = {name for name in now.keys() | self._before if now.get(name) !=
                       self._before.get(name)}  # fmt: skip
            assert not changed, f"changed in the other log: {sorted(changed)}"
            self.root.rename(self._other)

    # --- in the midst of a call --------------------------------------------------------------

    def changes_after(self, calls: int) -> None:
        """Let the root go when a folder was looked for so many times."""
        self._calls_left = calls

    def looked_for(self) -> None:
        if threading.get_ident() != self._main or self._calls_left < 0:
            return
        self._calls_left -= 1
        if self._calls_left < 0 and self.state == THERE:
            self.change(self.chance.choice(OUTAGES))
            self.counts["in the midst"] += 1

    def sleep(self, seconds: float) -> None:
        self._skipped += seconds
        if threading.get_ident() == self._main and self.chance.random() < 0.2:
            self.change(THERE)  # Who tries for long enough finds it again.
        elif threading.get_ident() != self._main:
            time.sleep(0.001)

    def now(self) -> float:
        return time.monotonic() + self._skipped


def contents(folder: Path) -> dict[str, str]:
    return {
        str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest()
        if path.is_file()
        else ""
        for path in folder.rglob("*")
    }


class _Store(LocalStore):
    disk: _Disk

    def _folder(self, *given: Any, **named: Any) -> Any:
        found = super()._folder(*given, **named)
        self.disk.looked_for()
        return found


class _Program:
    """A log that stays open, with a producer and two consumers that are used all the time."""

    def __init__(self, disk: _Disk, number: int) -> None:
        store = _Store(str(disk.root))
        store.disk = disk
        env = REAL._replace(monotonic=disk.now, boottime=disk.now, sleep=disk.sleep)
        self.log = Log(store, env)
        self.log.keep_to_root()
        self.number = number
        self.producer = self.log.producer()
        self.consumer = self.log.consumer(topics=["t"], auto_offset_reset="earliest")
        self.member = self.log.consumer("g", ["t"], auto_offset_reset="earliest")
        self.read: list[tuple[int, int]] = []
        self.sequence = 0


class _History:
    def __init__(self, seed: int, folder: Path) -> None:
        self.chance = chance = random.Random(seed)
        self.folder = folder
        self.disk = _Disk(chance, folder)
        self.disk.make_other()
        with offsetlog.open(str(self.disk.root)) as log:
            log.create_topic("t", partitions=2)
        self.programs = [_Program(self.disk, number) for number in range(2)]
        self.acknowledged: set[bytes] = set()
        self.refused: set[bytes] = set()
        self.has_d: bool | None = False
        """Whether the topic d exists; None where nobody was told."""
        self.made: set[str] = set()
        self.sent = 0
        self.trace: list[str] = []

    def run(self) -> None:
        steps: dict[Callable[[_Program], None], int] = {
            self._send: 9, self._poll: 6, self._group: 6, self._look: 6, self._lifecycle: 5,
            self._maintain: 2, self._copy: 1,
        }  # fmt: skip
        try:
            for _ in range(STEPS):
                self._let_go_or_bring_back()
                [step] = self.chance.choices([*steps], [*steps.values()])
                self.disk.counts[OPERATIONS] += 1
                step(self.chance.choice(self.programs))
            self._end()
        except Exception as error:
            raise AssertionError(f"{error} after {self.trace[-12:]}") from error
        finally:
            self.disk._calls_left = -1
            with ExitStack() as stack:
                stack.callback(self.disk.change, THERE)
                for program in self.programs:
                    stack.callback(program.log.close)

    def _let_go_or_bring_back(self) -> None:
        disk = self.disk
        draw = self.chance.random()
        if disk.state != THERE:
            if draw < 0.45:
                disk.change(THERE)
            elif draw < 0.6:
                disk.change(self.chance.choice(OUTAGES))
        elif draw < 0.3:
            disk.change(self.chance.choice(OUTAGES))
        elif draw < 0.6:
            disk.changes_after(self.chance.choice((2, 5, 10, 20, 40)))

    def _try(self, what: str, call: Callable[[], Any], must_fail: bool = True) -> Any:
        """What it gives, or the error. While the root is away from its beginning to its end it
        fails; while it is there it does not."""
        before, counted = self.disk.state, self.disk.counts["in the midst"]
        outcome: Any
        try:
            outcome = call()
        except OffsetLogError as error:
            assert error.hint, f"{what}: no word of what to do: {error}"
            outcome = error
        after = self.disk.state
        self.disk.changes_after(-1)
        self.trace.append(f"{what} ({before}, {after}): {str(outcome)[:90]}")
        failed = isinstance(outcome, OffsetLogError)
        stayed = before == after and counted == self.disk.counts["in the midst"]
        if stayed and before == THERE:
            assert not failed, f"{what} failed: {outcome}"
        if stayed and before != THERE and must_fail:
            assert failed, f"{what} was answered while the root was away: {outcome}"
        self.disk.counts["failed" if failed else "done"] += 1
        return outcome

    # --- steps -------------------------------------------------------------------------------

    def _send(self, program: _Program) -> None:
        value, log = b"mine-%d" % self.sent, program.log
        self.sent += 1
        kind = self.chance.choice(["running", "new", "keyed", "table"])

        def send() -> Any:
            if kind == "keyed":
                program.sequence += 1
                app = f"app-{program.number}"
                with log.producer(app_id=app, sequence=program.sequence) as producer:
                    return producer.send("t", value, b"k").result()
            producer = program.producer if kind == "running" else log.producer()
            if kind == "table":
                return producer.send_arrow("t", pa.table({"value": [value]})).result()
            return producer.send("t", value).result()

        outcome = self._try(f"send {kind} {value!r}", send)
        if not isinstance(outcome, OffsetLogError):
            self.acknowledged.add(value)
        elif not outcome.may_have_landed:
            self.refused.add(value)

    def _poll(self, program: _Program) -> None:
        records = self._try("poll", lambda: program.consumer.poll(0), must_fail=False)
        if not isinstance(records, OffsetLogError):
            self._are_mine(records)
            program.read += [(record.partition, record.offset) for record in records]

    def _are_mine(self, records: Any) -> None:
        strange = [r.value for r in records if not r.value.startswith(b"mine-")]
        assert not strange, f"another log's: {strange[:3]}"

    def _group(self, program: _Program) -> None:
        log, kind = program.log, self.chance.choice(["poll", "poll", "commit", "reset", "lag"])
        if kind == "poll":
            records = self._try("poll g", lambda: program.member.poll(0), must_fail=False)
            if not isinstance(records, OffsetLogError):
                self._are_mine(records)
        elif kind == "commit":
            self._try("commit", program.member.commit, must_fail=False)
        elif kind == "reset":
            self._try(
                "reset", lambda: log.group("g").reset("t", to="earliest", dry_run=False)
            )  # fmt: skip
        else:
            self._try("lag", lambda: log.group("g").lag())

    def _look(self, program: _Program) -> None:
        log = program.log
        looks: dict[str, Callable[[], Any]] = {
            "topics": log.topics,
            "overview": lambda: [topic.name for topic in log.overview().topics],
            "groups": log.groups,
            "positions": log.positions,
            "end offsets": lambda: log.topic("t").end_offsets(),
            "verify": lambda: [report.faults for report in log.verify()],
            "a new consumer": lambda: self._all_of(log),
        }
        kind = self.chance.choice([*looks])
        found = self._try(kind, looks[kind])
        if isinstance(found, OffsetLogError):
            return
        if kind in ("topics", "overview"):
            assert "t" in found, f"{kind} shows {found}"
        elif kind == "verify":
            faults = [fault for faults in found for fault in faults]
            assert all("is not at" in f or "Another log" in f for f in faults), faults
        elif kind == "a new consumer":
            assert self.acknowledged <= found, f"missing: {sorted(self.acknowledged - found)[:3]}"

    def _all_of(self, log: Log) -> set[bytes]:
        """What a new consumer finds. One that waits for its root is a failure here."""
        consumer = log.consumer(topics=["t"], auto_offset_reset="earliest")
        found: set[bytes] = set()
        while records := consumer.poll(0):
            self._are_mine(records)
            found |= {record.value for record in records}
        log.topic("t").end_offsets()
        return found

    def _lifecycle(self, program: _Program) -> None:
        log, kind = program.log, self.chance.choice(["create", "alter", "d", "d"])
        if kind == "create":
            name = f"new-{len(self.made)}-{self.sent}"
            self.sent += 1
            outcome = self._try(f"create {name}", lambda: log.create_topic(name))
            if not isinstance(outcome, OffsetLogError):
                self.made.add(name)
        elif kind == "alter":
            size = str(1_000_000 + self.sent)
            self.sent += 1
            self._try("alter", lambda: log.topic("t").alter(config={"max.message.bytes": size}))
        else:
            if self.has_d is None and self.disk.state == THERE:
                self.has_d = "d" in log.topics()
            call = log.delete_topic if self.has_d else log.create_topic
            outcome = self._try(f"{call.__name__} d", lambda: call("d"))
            if isinstance(outcome, OffsetLogError):
                self.has_d = None if outcome.may_have_landed else self.has_d
            else:
                self.has_d = not self.has_d

    def _maintain(self, program: _Program) -> None:
        self._try("maintain", lambda: program.log.maintain(grace_ms=self.chance.choice((0, 10**6))))

    def _copy(self, program: _Program) -> None:
        self._try("copy", lambda: program.log.copy(str(self.folder / "copy")))

    # --- the end -----------------------------------------------------------------------------

    def _end(self) -> None:
        self.disk.change(THERE)
        for program in self.programs:
            for step in (self._send, self._maintain):
                step(program)
        with offsetlog.open(str(self.disk.root)) as log:
            there = self._read_all(log)
            values = [value for _, value in there]
            assert self.acknowledged <= set(values), (
                f"lost: {sorted(self.acknowledged - set(values))[:3]}"
            )
            assert not self.refused & set(values), f"there: {sorted(self.refused & set(values))}"
            assert len(values) == len(set(values)), "a record is there twice"
            assert self.made <= set(log.topics()), "a topic that was made is missing"
            faults = [fault for report in log.verify() for fault in report.faults]
            assert not faults, faults
        for program in self.programs:
            while records := program.consumer.poll(0):
                program.read += [(record.partition, record.offset) for record in records]
            assert sorted(program.read) == sorted(place for place, _ in there)
        strange = {path.name for path in self.folder.iterdir()} - {"log", "other", "copy"}
        assert not strange, f"made beside the root: {strange}"

    def _read_all(self, log: Log) -> list[tuple[tuple[int, int], bytes]]:
        consumer = log.consumer(topics=["t"], auto_offset_reset="earliest")
        found: list[tuple[tuple[int, int], bytes]] = []
        while records := consumer.poll(0):
            self._are_mine(records)
            found += [((r.partition, r.offset), r.value or b"") for r in records]
        return found


def history(seed: int, folder: Path) -> Counter[str]:
    made = _History(seed, folder)
    made.run()
    return made.disk.counts


# --- planted bugs --------------------------------------------------------------------------


def _nothing(*given: Any) -> None:
    return None


@contextmanager
def _store_takes_any_root() -> Iterator[None]:
    """The disk does not look which root it is at; what begins still does."""
    with patched([(LocalStore, "keep_to", _nothing)]):
        yield


@contextmanager
def _create_makes_a_root() -> Iterator[None]:
    """A log creates a root where it finds none, whichever it was opened with."""

    def learn(self: Root) -> bool:
        data = self._read()
        if data is not None:
            self._id = self._id_in(data)
        return data is not None

    with patched([(Root, "learn", learn), (Root, "begin", _nothing), (Root, "check", _nothing)]):
        yield


@contextmanager
def _reads_ask_nothing() -> Iterator[None]:
    """Only what is created is put nowhere else; what begins looks, too."""
    true = LocalStore._prove

    def prove(self: LocalStore, root: Any, create: bool) -> None:
        if create:
            true(self, root, create)

    with patched([(LocalStore, "_prove", prove)]):
        yield


@contextmanager
def _gone_is_empty() -> Iterator[None]:
    """A root that is not in sight is one without files; another one is refused."""
    true = LocalStore._prove

    def prove(self: LocalStore, root: Any, create: bool) -> None:
        if root is not None or create:
            true(self, root, create)

    with patched([(LocalStore, "_prove", prove), (Root, "begin", _nothing)]):
        yield


PLANTED = {
    "a disk takes any root for its own": Bug(_store_takes_any_root),
    "create makes a root": Bug(_create_makes_a_root),
    "what is read is not asked whose it is": Bug(_reads_ask_nothing),
    "a root that is gone is empty": Bug(_gone_is_empty),
}
