"""Sizes: many partitions, topics, app ids, groups or workers, with bounds on what is asked for.

A history takes one of these to a random size and does with it what users do. Requests must grow
with what is stored, and never with partitions times entries; threads and memory have bounds.
Seeds above 1,000 are of full size: 10,000 partitions, 1,000 topics, 500,000 app ids, 10,000 groups,
a group of 200 workers. Those take minutes:

    python -m tests.generators sizes --seeds 1001:1005
"""

from __future__ import annotations

import random
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from bench.counting_store import CountingStore
from offsetlog.client.log import Log
from offsetlog.core.topic.senders import SenderState, SenderTable
from offsetlog.engine.append import group_commit
from offsetlog.engine.append.group_commit import WritingThreads
from offsetlog.engine.topic.recent_entries import RecentOfChain
from offsetlog.storage.open import open_store
from tests.generators.registry import OPERATIONS, Bug
from tests.simulation.planting import patched

FULL_FROM = 1001
BY_THE_CLOCK = {"offsetlog-heartbeats", "offsetlog-watch"}
"""Threads of a group's members. What they ask grows with the time that the machine takes."""


def resident() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4096


class AskedStore(CountingStore):
    """Counts what is asked for, and not what is asked by the clock."""

    def _count(self, kind: str, up: int = 0, down: int = 0, calls: int = 1) -> None:
        if threading.current_thread().name not in BY_THE_CLOCK:
            super()._count(kind, up, down, calls)


class History:
    def __init__(self, seed: int, folder: Path) -> None:
        self.chance = random.Random(seed)
        self.is_full = seed >= FULL_FROM
        self.store = AskedStore(open_store(str(folder)))
        self.log = Log(self.store)
        self.counts = Counter[str]()
        self.memory = resident()

    def run(self, seed: int) -> None:
        kinds = (self.partitions, self.topics, self.app_ids, self.groups, self.workers)
        try:
            kinds[(seed - 1) % len(kinds)]()
        finally:
            self.log.close()

    def size(self, small: int, full: int) -> int:
        return full if self.is_full else self.chance.randint(small // 2, small)

    @contextmanager
    def at_most(self, requests: float, what: str) -> Iterator[None]:
        """The calls of the storage port meanwhile are no more than that."""
        self.store.reset()
        began = time.monotonic()
        yield
        requests += time.monotonic() - began  # Polls look at the table now and then.
        calls = dict(self.store.calls)
        self.counts[OPERATIONS] += 1
        self.counts["requests counted"] += self.store.total
        assert self.store.total <= requests, (
            f"{what}: {calls}, and at most {requests} were expected"
        )

    def check_memory(self, megabytes: int) -> None:
        grown = (resident() - self.memory) // 1_000_000
        assert not self.is_full or grown <= megabytes, f"{grown} MB more than at the start"

    # --- each kind -------------------------------------------------------------------------

    def partitions(self) -> None:
        partitions, entries = self.size(120, 10_000), self.size(60, 60)
        self.counts["partitions"] += partitions
        self.log.create_topic("orders", partitions, {"retention.bytes": 10**12})
        number = np.arange(2 * partitions)
        table = pa.table(
            {
                "partition": pa.array((number % partitions).astype(np.int32)),
                "value": pa.array([b"%d" % i for i in number], pa.binary()),
            }
        )
        with self.at_most(2.3 * entries + 30, "sending"), self.log.producer() as producer:
            for _ in range(entries):
                producer.send_arrow("orders", table).result()
        expected = table.num_rows * entries
        with (
            self.at_most(2.3 * entries + 60, "reading all of it"),
            Log(self.store) as log,
            log.consumer(
                group="billing",
                topics=["orders"],
                auto_offset_reset="earliest",
                enable_auto_commit=False,
            ) as consumer,
        ):
            while expected > 0:
                expected -= sum(map(len, consumer.poll_arrow(timeout=30.0).values()))
            consumer.commit()
        with self.at_most(30, "the lag of a group"):
            assert sum(self.log.group("billing").lag().values()) == 0
        rewritten = partitions if entries >= 8 else 0
        with self.at_most(2.2 * entries + rewritten + 4 * partitions + 60, "maintaining"):
            self.log.maintain("orders", grace_ms=0)
        with self.at_most(2.2 * entries + 3 * partitions + 90, "verifying"):
            assert not [fault for report in self.log.verify() for fault in report.faults]
        self.check_memory(900)

    def topics(self) -> None:
        topics = self.size(90, 1_000)
        self.counts["topics"] += topics
        names = [f"topic-{i}" for i in range(topics)]
        for name in names:
            self.log.create_topic(name, partitions=1)
        with self.at_most(7 * topics + 60, "a record to each"), self.log.producer() as producer:
            futures = [producer.send(name, b"value") for name in names]
            for future in futures:
                future.result()
            writing = [t for t in threading.enumerate() if t.name.startswith("offsetlog-topic-")]
        assert len(writing) <= group_commit.MOST_THREADS, f"{len(writing)} threads write"
        with (
            Log(self.store) as log,
            log.consumer(topics=names, auto_offset_reset="earliest") as consumer,
        ):
            records = 0
            with self.at_most(14 * topics + 60, "reading them"):
                while records < topics:
                    records += len(consumer.poll(timeout=30.0))
                consumer.poll(timeout=0)
            with self.at_most(topics + 5, "an idle look"):
                assert not consumer.poll(timeout=0)
        with self.at_most(8 * topics + 60, "listing them"):
            assert len(self.log.topics()) == topics
        self.check_memory(400)

    def app_ids(self) -> None:
        """Nobody sends 500,000 records here: they are put into the state, which is stored."""
        count = self.size(4_000, 500_000)
        self.counts["app ids"] += count
        self.log.create_topic("orders", partitions=1)
        with self.log.producer(app_id="first", sequence=0) as producer:
            producer.send("orders", b"value")
        topic = self.log.open_topic("orders")
        state = topic.chain.state
        senders = SenderTable.of(
            (f"loader-{i}", SenderState(i % 7, state.tip - 1, 0, "0" * 16)) for i in range(count)
        )
        topic.chain.state = state._replace(callers=senders)
        topic.stored.publish()
        began = time.process_time()
        # Fourteen of them are the look beyond the end, which is names on a disk.
        with self.at_most(26, "opening"), Log(self.store) as log:
            known = log.open_topic("orders").state().callers.get(f"loader-{count - 1}")
        assert known is not None and known.seq == (count - 1) % 7
        assert time.process_time() - began < 1 + 8e-6 * count, "opening takes too long"
        self.check_memory(1_200)

    def groups(self) -> None:
        groups = self.size(150, 10_000)
        self.counts["groups"] += groups
        self.log.create_topic("orders", partitions=1)
        with self.at_most(11 * groups + 100, "a commit of each"):
            for i in range(groups):
                with self.log.consumer(group=f"group-{i}", enable_auto_commit=False) as consumer:
                    consumer.assign([("orders", 0)])
                    consumer.commit({("orders", 0): 0})
        self.log.close()  # With it ends what it tidies beside its commits.
        with self.at_most(130, "listing them"), Log(self.store) as log:
            assert len(log.groups()) == groups
        with self.at_most(130, "describing one"), Log(self.store) as log:
            log.group("group-1").describe()
        self.check_memory(400)

    def workers(self) -> None:
        workers = self.size(16, 200)
        partitions = 3 * workers
        self.counts["workers"] += workers
        self.log.create_topic("orders", partitions)
        members: list[Any] = []
        for _ in range(workers):
            member = self.log.consumer(
                group="billing",
                topics=["orders"],
                session_timeout_ms=300_000,
                partition_assignment_strategy="sticky",
            )
            member.poll(timeout=0)
            members.append(member)
        rounds = 0
        while True:
            rounds += 1
            with self.at_most(8 * workers * workers + 400, "a round of polls"):
                for member in members:
                    member.poll(timeout=0)
            held = sorted(len(member.assignment()) for member in members)
            if held == [3] * workers:
                break
            assert rounds < 20, f"after {rounds} rounds they have {held}"
        with self.at_most(8 * workers + 60, "a quiet round of polls"):
            for member in members:
                member.poll(timeout=0)
        for member in members:
            member.close()
        self.check_memory(400)


def history(seed: int, folder: Path) -> Counter[str]:
    made = History(seed, folder)
    made.run(seed)
    return made.counts


# --- planted bugs --------------------------------------------------------------------------


def _nothing_kept() -> AbstractContextManager[None]:
    """Each partition asks for each entry itself."""
    return patched([(RecentOfChain, "get", lambda self, number: None)])


def _a_thread_each() -> AbstractContextManager[None]:
    """Each topic has a thread that writes."""
    return patched([(WritingThreads, "is_full", property(lambda self: False))])


PLANTED = {
    "an entry is asked for once for each partition": Bug(_nothing_kept),
    "a writing thread for each topic": Bug(_a_thread_each),
}
