"""A log on a disk, programs that have it open, and the model of what is in it."""

from __future__ import annotations

import random
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, NamedTuple

from offsetlog.client.log import Log
from offsetlog.core.topic.index import visible
from offsetlog.core.topic.publish import IndexLimits
from offsetlog.engine.env import REAL, Env, Limits
from offsetlog.storage.local.disk import LocalStore
from tests.generators.answers.model import Rec, Topic

WRITES = ("offer", "put", "delete", "delete_tree", "settle")
READS = ("get", "view", "info", "stamp", "list", "folders")
LARGE = 600_000
"""Bytes of a record whose segment no round merges with others: half of the least target."""


TRAITS = {
    "a new program": "it opens the log to ask",
    "opened while": "the program opened it as it was made, and has seen all",
    "opened before": "the program has not seen what happened last",
    "entries": "small appends, whose rows lie in the chain",
    "segments": "appends whose rows lie in files of their own",
    "by turns": "the two by turns",
    "large files": "files that no round merges",
    "headers": "records with headers",
    "no headers": "records without",
    "nulls": "keys or values that are null",
    "times before 1900": "from 1677 on",
    "times to come": "up to 2262",
    "snapshots": "states stored by writers",
    "maintained": "a round of upkeep",
    "young files before stored ones": "what the index knows lies behind what it does not",
    "young rewrites behind stored files": "and the other way round",
    "more than eight leaves": "of the index, for one partition",
    "a killed round": "upkeep ended after any of its writes",
    "erased": "records of some keys",
    "a killed erasure": "the same, ended after any of its writes",
    "compacted": "by key, with tombstones",
    "policy changed": "compacted, then not, or the other way round",
    "trimmed": "records deleted before an offset",
    "retained": "retention by time",
    "gaps": "fewer records than offsets",
    "grown": "partitions added",
    "a table": "it is a Delta table",
    "table changed": "it became one, or ceased to be",
    "groups": "with commits",
    "a group's reset": "by any target",
    "joined without a commit": "a group with members and no position",
    "copied": "as a whole, or once more",
}
"""What may be special about a log, or about what a program knows of it."""


class Killed(BaseException):
    """The process is gone, in the midst of a call."""


class MortalDisk(LocalStore):
    """A disk whose process may be killed at one of its writes: nothing is asked of it after that,
    by no thread."""

    def __init__(self, root: str) -> None:
        super().__init__(root)
        self.writes_left: int | None = None

    def _live(self, is_write: bool) -> None:
        if self.writes_left is None:
            return
        if self.writes_left <= 0:
            raise Killed
        self.writes_left -= is_write


def _mortal(name: str) -> Any:
    true = getattr(LocalStore, name)

    def call(self: MortalDisk, *given: Any, **named: Any) -> Any:
        self._live(name in WRITES)
        return true(self, *given, **named)

    return call


for _name in (*WRITES, *READS):
    setattr(MortalDisk, _name, _mortal(_name))


class Opened:
    """A program that has the log open."""

    def __init__(self, log: Log) -> None:
        self.log = log
        self.seen = dict[str, int]()
        """How many changes each topic had when this program looked at it for the last time."""

    def close(self) -> None:
        self.log.close()


class Running(NamedTuple):
    """A consumer that has polled before."""

    opened: Opened
    topic: str
    consumer: Any
    got: list[Rec]


class Asked(NamedTuple):
    """What a way to ask gets: a program, a topic and what the model says of it."""

    world: World
    rng: random.Random
    opened: Opened
    topic: Topic

    @property
    def log(self) -> Log:
        return self.opened.log

    @property
    def name(self) -> str:
        return self.topic.name

    @property
    def handle(self) -> Any:
        return self.log.topic(self.name)


LEAVES, EARLY, LATE, JOINS = LEANS = ("leaves", "early rewrites", "late rewrites", "joins")
"""What some histories lean on, since few others meet it."""


class World:
    def __init__(self, seed: int, folder: Path) -> None:
        self.rng = rng = random.Random(seed)
        self.lean = rng.choice((None, None, *LEANS))
        self.folder = folder
        self.root = str(folder / "log")
        self.counts: Counter[str] = Counter()
        self.story: list[str] = []
        self.shift = 0.0
        """Seconds by which the clocks of all programs were put forward."""
        self.limits = Limits(
            inline_bytes=rng.choice((300, 2000)),
            row_group_records=5,
            window=4,
            leaves_kept=rng.choice((2, 8)),
            many_senders=3,
            plan_records=rng.choice((9, 1_000_000)),
            min_files=rng.choice((2, 3, 8)),
            runs_per_entry=rng.choice((1, 64)),
            snapshots_kept=rng.choice((1, 3)),
            commit_retry_seconds=0.0,
            publishing=IndexLimits(
                leaf_extents=1 if self.lean == LEAVES else rng.choice((1, 2, 8)),
                full_leaf=1 if self.lean == LEAVES else rng.choice((1, 5)),
                sorted_at_once=2,
                few_partitions=1,
            ),
        )
        self.topics: dict[str, Topic] = {}
        self.groups: dict[str, dict[tuple[str, int], int]] = {}
        """The committed positions of each group."""
        self.joined: dict[str, tuple[str, str]] = {}
        """Groups that have members and no position: their topic and policy."""
        self.running: list[Running] = []
        self.copy: dict[str, Topic] | None = None
        """The topics as they were when the log was last copied."""
        self.copied_ends: dict[str, dict[int, int]] = {}
        """Up to where the copy's tables then were."""
        self.programs = [self.open()]
        self.keep: list[Any] = []
        """What must stay open to the end."""
        for name in ("t", "u")[: 1 if self.lean else rng.choice((1, 1, 2))]:
            self._create(name)

    # --- programs --------------------------------------------------------------------------

    @property
    def env(self) -> Env:
        def now() -> float:
            return time.monotonic() + self.shift

        return REAL._replace(monotonic=now, boottime=now, limits=self.limits)

    def open(self) -> Opened:
        return Opened(Log(MortalDisk(self.root), self.env))

    @contextmanager
    def mortal(self, writes: int) -> Iterator[Opened]:
        """A program that dies after so many writes, or at the end of the block."""
        opened = self.open()
        for topic in self.topics:
            opened.log.topic(topic)
        store = opened.log.store
        assert isinstance(store, MortalDisk)
        store.writes_left = writes
        try:
            with suppress(Killed):
                yield opened
        finally:
            store.writes_left = 0
            with suppress(BaseException):
                opened.log.close()

    def anybody(self, rng: random.Random) -> Opened:
        """One of the programs that are there, or a new one."""
        if rng.random() < 0.4:
            if len(self.programs) > 3:
                self._end(self.programs.pop(rng.randrange(1, len(self.programs))))
            self.programs.append(self.open())
            return self.programs[-1]
        return rng.choice(self.programs)

    def _end(self, opened: Opened) -> None:
        for one in [one for one in self.running if one.opened is opened]:
            one.consumer.close()
            self.running.remove(one)
        opened.log.close()

    def close(self) -> None:
        for one in self.keep:
            with suppress(Exception):
                one.close()
        for opened in self.programs:
            with suppress(Exception):
                opened.log.close()

    # --- topics ----------------------------------------------------------------------------

    def _create(self, name: str) -> None:
        rng = self.rng
        topic = Topic(name, 1 if self.lean == LEAVES else rng.choice((1, 2, 3)))
        topic.compacts = topic.keyed = rng.random() < 0.25
        topic.tombstones_go = rng.random() < 0.5
        topic.has_table = rng.random() < 0.45
        config = {
            "retention.ms": "-1",
            "segment.bytes": str(2**20),
            "min.cleanable.dirty.ratio": "0",
            "delete.retention.ms": "0" if topic.tombstones_go else "1000000000",
            "cleanup.policy": "compact" if topic.compacts else "delete",
            "table.format": "delta" if topic.has_table else "none",
            "compression.type": rng.choice(("none", "zstd")),
        }
        self.programs[0].log.create_topic(name, partitions=len(topic.parts), config=config)
        self.topics[name] = topic
        self.tell(f"create {name}: {len(topic.parts)} partitions, {config}")

    def a_topic(self) -> Topic:
        return self.rng.choice(list(self.topics.values()))

    def tell(self, what: str) -> None:
        self.story.append(what)

    def settle(self, topic: Topic) -> None:
        """Where the model leaves something open, take what a new program finds."""
        if topic.is_sure:
            return
        opened = self.open()
        try:
            starts = opened.log.topic(topic.name).beginning_offsets()
            topic.settle(starts, consumed(opened.log, topic.name, len(topic.parts)))
        finally:
            opened.log.close()

    def traits(self, opened: Opened, topic: Topic) -> set[str]:
        """What is special about a topic, and about what this program knows of it."""
        out = {*topic.traits, self._age(opened, topic)}
        if topic.has_table:
            out.add("a table")
        if any(len(part.live) < part.end - part.start for part in topic.parts):
            out.add("gaps")
        state = opened.log.open_topic(topic.name).chain.state
        for number, part in enumerate(state.parts):
            young = part.tail.overlapping(part.start, part.end)
            stored = visible(state.index.fences(number, part.start, part.end), part.start, young)
            if not stored:
                continue
            if any(extent.base < stored[-1].base for extent in young):
                out.add("young files before stored ones")
            if any(extent.rewritten and extent.base >= stored[-1].end for extent in young):
                out.add("young rewrites behind stored files")
            if len({fence.leaf for fence in stored}) > 8:
                out.add("more than eight leaves")
        assert out <= TRAITS.keys(), out - TRAITS.keys()
        return out

    def _age(self, opened: Opened, topic: Topic) -> str:
        seen = opened.seen.get(topic.name)
        if seen is None:
            return "a new program"
        return "opened before" if seen < topic.changes else "opened while"


def record_of(polled: Any) -> Rec:
    headers = tuple((name, value) for name, value in polled.headers)
    return Rec(polled.partition, polled.offset, polled.key, polled.value, headers, polled.timestamp)


def consumed(log: Log, topic: str, partitions: int) -> dict[int, list[Rec]]:
    """All that a new consumer gets."""
    out: dict[int, list[Rec]] = {}
    with log.consumer(auto_offset_reset="earliest", enable_auto_commit=False) as consumer:
        consumer.assign([(topic, p) for p in range(partitions)])
        while polled := consumer.poll(0):
            for one in polled:
                out.setdefault(one.partition, []).append(record_of(one))
    return out
