"""Power cuts and kills of a program that uses all of the public API on a local disk.

A disk that knows what was synced (``tests/storage/power_cut.py``) loses its power at random moments
of a random program: of what was not synced any part is left, names and bytes, in any order. The
program may be killed before, and started again on what its forerunner left unsynced.

1. What was acknowledged before the cut is there after it: records, under their offsets; commits;
   resets; deletions.
2. The log goes on by itself: every topic takes records, every group commits and is reset, upkeep
   runs, and ``verify`` finds nothing but caches broken. Nothing is repaired by hand.
3. What was under way at the cut happened or did not.
"""

from __future__ import annotations

import copy
import os
import random
import sys
import threading
from collections import Counter
from collections.abc import Callable
from contextlib import AbstractContextManager, ExitStack, suppress
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from offsetlog.client.log import Log
from offsetlog.engine.env import REAL
from offsetlog.engine.group import offsets_table
from offsetlog.errors import OffsetLogError, TopicExistsError, UnknownTopicError
from offsetlog.storage import open_store
from offsetlog.storage.delta import table as delta_table
from offsetlog.storage.local import disk as local_disk
from offsetlog.storage.local import files as local_files
from offsetlog.storage.local.disk import LocalStore
from tests.generators.registry import OPERATIONS, Bug
from tests.simulation.limits import TINY, tiny_format
from tests.simulation.planting import patched
from tests.storage.power_cut import Disk, Image, Killed

STEPS = 30
CUTS = 12
KILLS = 2
Tp = tuple[str, int]
STEP_KINDS = (
    ["send"] * 6 + ["large", "many", "keyed", "keyed", "table", "trim", "maintain", "maintain"]
    + ["commit"] * 4 + ["reset", "reset", "work", "delete_group", "partitions", "configure"]
    + ["create", "delete", "purge", "reopen"]
)  # fmt: skip


class Acknowledged(NamedTuple):
    """What the log has promised so far."""

    topics: dict[str, bool | None]
    """Whether each is there; None while that is open."""
    records: dict[Tp, dict[int, bytes]]
    starts: dict[Tp, int]
    """Before these, records may have been deleted."""
    positions: dict[str, dict[Tp, set[int]]]
    """Where each group stands: one offset, or several while a commit is open."""
    resets: dict[str, int]


class Cut(NamedTuple):
    image: Image
    promised: Acknowledged
    number: int
    """Of the disk's events."""


class History:
    def __init__(self, seed: int, folder: Path, disk: Disk) -> None:
        self.chance = random.Random(seed)
        self.disk, self.folder = disk, folder
        self.root = disk.place / "log"
        self.promised = Acknowledged({}, {}, {}, {}, {})
        self.counts = Counter[str]()
        self.trace: list[str] = []
        self.cuts: list[Cut] = []
        self.events = 0
        self.cut_at: set[int] = set()
        self.kill_at: set[int] = set()
        self.sent = self.sequence = 0
        self.keyed: list[bytes] = []
        """The batch that was sent last under a number."""
        self.log: Log | None = None
        self.thread = threading.current_thread()

    def run(self) -> None:
        self._plan_events()
        self.disk.at_each_event = self._event
        for step in range(STEPS):
            what = "create" if step < 2 else self.chance.choice(STEP_KINDS)
            self.trace.append(what)
            self.counts[OPERATIONS] += 1
            try:
                if self.log is None:
                    self.log = opened(self.root)
                getattr(self, f"_{what}")(self.log)
            except (Killed, OffsetLogError):
                if not self.disk.is_killed:
                    raise
                self.disk.restart()
                self.counts["killed"] += 1
                self.trace.append("killed")
                self.log = None
        self.disk.at_each_event = lambda: None
        if self.log is not None:
            self.log.close()
        for cut in self.cuts:
            self._check(cut)

    def _plan_events(self) -> None:
        """A step is some twenty events."""
        events = range(STEPS * 25)
        self.cut_at = set(self.chance.sample(events, CUTS))
        self.kill_at = set(self.chance.sample(events, self.chance.randrange(KILLS + 1)))

    def _event(self) -> None:
        self.events += 1
        if self.events in self.cut_at:
            image = self.disk.image(chance=random.Random(self.chance.random()))
            self.cuts.append(Cut(image, copy.deepcopy(self.promised), self.events))
            self.trace.append(f"cut {len(self.cuts)}")
        if self.events in self.kill_at:
            if threading.current_thread() is not self.thread:
                self.kill_at.add(self.events + 1)  # That is not where the program is.
                return
            self.disk.kill()

    # --- what the program does ---------------------------------------------------------------

    def _alive(self) -> str | None:
        names = sorted(name for name, there in self.promised.topics.items() if there)
        return self.chance.choice(names) if names else None

    def _value(self, size: int = 8) -> bytes:
        self.sent += 1
        return b"%d" % self.sent + bytes(self.chance.randrange(size))

    def _kept(self, topic: str, partition: int, offset: int, value: bytes) -> None:
        self.promised.records.setdefault((topic, partition), {})[offset] = value

    def _send(self, log: Log, size: int = 8, count: int = 1) -> None:
        topic = self._alive()
        if topic is None:
            return
        values = [self._value(size) for _ in range(count)]
        with log.producer() as producer:
            futures = [producer.send(topic, value) for value in values]
            for future, value in zip(futures, values, strict=True):
                at = future.result()
                self._kept(topic, at.partition, at.offset, value)

    def _large(self, log: Log) -> None:
        self._send(log, size=400, count=3)

    def _many(self, log: Log) -> None:
        for _ in range(7):
            self._send(log)

    def _table(self, log: Log) -> None:
        import pyarrow as pa

        topic = self._alive()
        if topic is None:
            return
        values = [self._value(200) for _ in range(4)]
        with log.producer() as producer:
            future = producer.send_arrow(topic, pa.table({"value": pa.array(values, pa.binary())}))
            for index, value in enumerate(values):
                at = future.metadata(index)
                self._kept(topic, at.partition, at.offset, value)

    def _keyed(self, log: Log) -> None:
        """A batch under a number; one that a killed program left open is sent again."""
        if self.promised.topics.get("a") is not True:
            return
        if not self.keyed or self.chance.random() < 0.5:
            self.sequence += 1
            self.keyed = [self._value() for _ in range(2)]
        with log.producer(app_id="loader", sequence=self.sequence) as producer:
            futures = [producer.send("a", value) for value in self.keyed]
            for future, value in zip(futures, self.keyed, strict=True):
                at = future.result()
                self._kept("a", at.partition, at.offset, value)

    def _create(self, log: Log) -> None:
        name = self.chance.choice("abc")
        if self.promised.topics.get(name):
            return
        self.promised.topics[name] = None
        try:
            log.create_topic(
                name, self.chance.randrange(1, 3), {"retention.ms": -1, "segment.bytes": 260}
            )
        except TopicExistsError:
            # A program that was killed created it, and promised nothing. A record does.
            with log.producer() as producer:
                producer.send(name, self._value()).result()
        self.promised.topics[name] = True

    def _forget(self, name: str) -> None:
        if name == "a":
            self.keyed = []  # A number that was used is never used again.
        for tp in [tp for tp in self.promised.records if tp[0] == name]:
            del self.promised.records[tp]
        for positions in self.promised.positions.values():
            for tp in [tp for tp in positions if tp[0] == name]:
                del positions[tp]

    def _delete(self, log: Log, purge: bool = False) -> None:
        name = self._alive()
        if name is None or self.chance.random() < 0.5:
            return
        self.promised.topics[name] = None
        self._forget(name)
        log.delete_topic(name, purge=purge)
        self.promised.topics[name] = False
        if purge:  # Its offsets begin anew.
            for tp in [tp for tp in self.promised.starts if tp[0] == name]:
                del self.promised.starts[tp]

    def _purge(self, log: Log) -> None:
        self._delete(log, purge=True)

    def _partitions(self, log: Log) -> None:
        name = self._alive()
        if name is not None and (count := log.topic(name).partitions) < 3:
            log.topic(name).alter(partitions=count + 1)

    def _configure(self, log: Log) -> None:
        name = self._alive()
        if name is not None:
            log.topic(name).alter(config={"segment.bytes": self.chance.choice((200, 260, 400))})

    def _trim(self, log: Log) -> None:
        name = self._alive()
        if name is None:
            return
        topic = log.topic(name)
        low, high = topic.beginning_offsets()[0], topic.end_offsets()[0]
        to = self.chance.randrange(low, high + 1)
        before = self.promised.starts.get((name, 0), 0)
        self.promised.starts[name, 0] = max(before, to)
        topic.delete_records({0: to})

    def _maintain(self, log: Log) -> None:
        # A topic that a killed program was about to purge is broken until that is done again.
        with suppress(OffsetLogError):
            log.maintain(grace_ms=0)

    def _reopen(self, log: Log) -> None:
        log.close()
        self.log = None

    # --- groups ----------------------------------------------------------------------------

    def _commit(self, log: Log) -> None:
        name = self._alive()
        if name is None:
            return
        group, tp = self.chance.choice("gh"), (name, 0)
        offset = self.chance.randrange(log.topic(name).end_offsets()[0] + 1)
        with log.consumer(group, enable_auto_commit=False) as consumer:
            consumer.assign([tp])
            self._moves(group, {tp: offset}, lambda: consumer.commit({tp: offset}))

    def _moves(self, group: str, to: dict[Tp, int], call: Callable[[], object]) -> None:
        positions = self.promised.positions.setdefault(group, {})
        for tp, offset in to.items():
            positions[tp] = {*positions.get(tp, {-1}), offset}
        call()
        for tp, offset in to.items():
            positions[tp] = {offset}

    def _reset(self, log: Log) -> None:
        name = self._alive()
        if name is None:
            return
        group = self.chance.choice("gh")
        high = log.topic(name).end_offsets()[0]
        low = log.topic(name).beginning_offsets()[0]
        to = self.chance.randrange(low, high + 1)
        before = log.offsets_table.look().group(group).resets

        def reset() -> None:
            log.group(group).reset(name, to=to, partitions=[0], dry_run=False)

        self._moves(group, {(name, 0): to}, reset)
        self.promised.resets[group] = before + 1

    def _delete_group(self, log: Log) -> None:
        group = self.chance.choice("gh")
        if group not in log.groups() or log.group(group).members():
            return
        positions = self.promised.positions.setdefault(group, {})
        for tp in positions:
            positions[tp] |= {-1}
        log.group(group).delete()
        positions.clear()

    def _work(self, log: Log) -> None:
        """A member joins, is given records, commits them and leaves."""
        name = self._alive()
        if name is None:
            return
        with log.consumer(
            "w", [name], auto_offset_reset="earliest", enable_auto_commit=False
        ) as consumer:
            consumer.poll(0.0)
            held = {tuple(tp): consumer.position(tp) for tp in consumer.assignment()}
            self._moves("w", held, consumer.commit)

    # --- after the cut -----------------------------------------------------------------------

    def _check(self, cut: Cut) -> None:
        place = cut.image.write_to(self.folder / f"after-{cut.number}")
        self.counts["power cut"] += 1
        try:
            After(place / "log", cut.promised).check()
        except Exception as error:
            at = self.trace.index(f"cut {self.cuts.index(cut) + 1}")
            raise AssertionError(
                f"after cut {cut.number} at {place}: {self.trace[: at + 3]}"
            ) from error


class After:
    """A program that finds what a power cut left."""

    def __init__(self, root: Path, promised: Acknowledged) -> None:
        self.root = root
        self.promised = promised

    def check(self) -> None:
        with opened(self.root) as log:
            if not any(there is not None for there in self.promised.topics.values()):
                log.create_topic("first")  # Nothing was promised: there need be no log yet.
            self._look(log)
            self._goes_on(log)
        with opened(self.root) as log:
            self._look(log)
            self._verify(log)

    def _look(self, log: Log) -> None:
        for name, there in self.promised.topics.items():
            if there is not None:
                assert (name in log.topics()) == there, (name, there)
        for (name, partition), records in self.promised.records.items():
            first = self.promised.starts.get((name, partition), 0)
            expected = {at: value for at, value in records.items() if at >= first}
            if not expected:
                continue
            with log.consumer() as consumer:
                consumer.assign([(name, partition)])
                consumer.seek((name, partition), min(expected))
                end = log.topic(name).end_offsets()[partition]
                got: dict[int, bytes | None] = {}
                while consumer.position((name, partition)) < end:
                    got.update((r.offset, r.value) for r in consumer.poll(0.0))
            lost = {at: value for at, value in expected.items() if got.get(at) != value}
            assert not lost, f"of {name}-{partition} are lost: {lost}"
        for group, positions in self.promised.positions.items():
            state = log.offsets_table.look().group(group)
            for tp, allowed in positions.items():
                position = state.positions.get(tp)
                stands = -1 if position is None else position.offset
                assert stands in allowed, f"{group} stands at {stands} of {tp}, not {allowed}"
        for group, resets in self.promised.resets.items():
            assert log.offsets_table.look().group(group).resets >= resets, "a reset is lost"

    def _goes_on(self, log: Log) -> None:
        for name, there in self.promised.topics.items():
            if there is None:
                self._settle(log, name)
            elif there:
                with log.producer() as producer:
                    at = producer.send(name, b"after").result()
                kept = self.promised.records.setdefault((name, at.partition), {})
                assert at.offset not in kept, f"offset {at.offset} of {name} is given twice"
                kept[at.offset] = b"after"
        alive = [name for name, there in self.promised.topics.items() if there]
        for group in ("g", "h") if alive else ():
            tp = (alive[0], 0)
            low, high = log.topic(tp[0]).beginning_offsets()[0], log.topic(tp[0]).end_offsets()[0]
            with log.consumer(group) as consumer:
                consumer.assign([tp])
                consumer.commit({tp: high})
            log.group(group).reset(tp[0], to=low, partitions=[0], dry_run=False)
            self.promised.positions.setdefault(group, {})[tp] = {low}
        log.maintain(grace_ms=0)

    def _settle(self, log: Log, name: str) -> None:
        """What was being created or deleted is created or deleted by whoever does it again."""
        with suppress(UnknownTopicError):
            log.delete_topic(name, purge=True)
        log.create_topic(name)
        self.promised.topics[name] = True
        for tp in [tp for tp in self.promised.starts if tp[0] == name]:
            del self.promised.starts[tp]

    def _verify(self, log: Log) -> None:
        for report in log.verify():
            faults = [f for f in report.faults if "/_snapshot/" not in f and "/_index/" not in f]
            assert not faults, faults


def opened(root: Path) -> Log:
    return Log(open_store(str(root)), REAL._replace(limits=TINY))


def small() -> AbstractContextManager[None]:
    """Whatever happens now and then happens in a short program."""
    return patched(
        [
            (delta_table, "LOGS_KEPT", 3),
            (offsets_table, "TIDY_EVERY", 5),
            (offsets_table, "CHECKPOINT_EVERY", 7),
        ]
    )


def history(seed: int, folder: Path) -> Counter[str]:
    with ExitStack() as stack:
        stack.enter_context(tiny_format())
        stack.enter_context(small())
        disk = Disk(folder / "disk", stack.enter_context(pytest.MonkeyPatch.context()))
        stack.callback(disk.close)
        made = History(seed, folder, disk)
        made.run()
    return made.counts


# --- planted bugs --------------------------------------------------------------------------


class _System:
    """``os``, whose ``fsync`` does nothing for one function."""

    def __init__(self, caller: str) -> None:
        self._caller = caller

    def __getattr__(self, name: str) -> Any:
        return getattr(os, name)

    def fsync(self, fd: int) -> None:
        if sys._getframe(1).f_code.co_qualname != self._caller:
            os.fsync(fd)


def _unsynced(module: Any, caller: str) -> Callable[[], AbstractContextManager[None]]:
    return lambda: patched([(module, "os", _System(caller))])


def _nothing(*_: Any) -> None:
    """What a bug does in place of a sync."""


PLANTED = {
    "an entry is acknowledged before its name is synced": Bug(
        _unsynced(local_disk, "_LocalOffer.put")
    ),
    "a folder is used before its name is synced": Bug(_unsynced(local_files, "step")),
    "a version of facts comes before its data": Bug(
        lambda: patched([(LocalStore, "sync", _nothing)])
    ),
    "nothing is settled": Bug(lambda: patched([(LocalStore, "settle", _nothing)])),
}
