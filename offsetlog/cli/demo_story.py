"""What the demo does, apart from how it looks: producers, a crash, a tail, and the reckoning.

Invariants:

1. Producers are real processes, and the crash is a real SIGKILL, with no warning.
2. A record counts as acknowledged when the producer's own line about it arrived here.
3. The reckoning reads the log afresh; it believes nothing that the story remembers but the
   acknowledgements.
"""

from __future__ import annotations

import contextlib
import subprocess
import sys
import threading
import time
from collections import Counter, deque
from typing import NamedTuple

import offsetlog

from .demo_producer import BATCH, values

TOPIC = "orders"
PARTITIONS = 4
PAUSE = 0.03
Place = tuple[int, int]
"""(partition, offset)"""


class Producer:
    """One producer process, and what it said."""

    def __init__(self, root: str, name: str) -> None:
        self.name = name
        self.acknowledged: dict[Place, bytes] = {}
        self.sequence = 0
        self.state = "waiting"
        self.pid = 0
        self._root = root
        self._process: subprocess.Popen[str] | None = None
        self._listener: threading.Thread | None = None

    def start(self, seconds: float) -> None:
        """Start it, or start it again behind the last batch that was acknowledged."""
        command = [
            sys.executable, "-m", "offsetlog.cli.demo_producer", self._root, TOPIC, self.name,
            str(self.sequence), str(seconds), str(PAUSE),
        ]  # fmt: skip
        # In a group of its own: Ctrl-C is for the demo, which then ends its producers.
        self._process = subprocess.Popen(
            command, stdout=subprocess.PIPE, text=True, start_new_session=True
        )
        self.pid = self._process.pid
        self.state = "running"
        self._listener = threading.Thread(target=self._listen, args=(self._process,), daemon=True)
        self._listener.start()

    def _listen(self, process: subprocess.Popen[str]) -> None:
        assert process.stdout is not None
        for line in process.stdout:
            number, *places = line.split()
            if not line.endswith("\n") or len(places) != BATCH:
                return  # Killed while it spoke: this batch is not acknowledged.
            for place, (_, value) in zip(places, values(self.name, int(number)), strict=True):
                partition, offset = place.split(":")
                self.acknowledged[int(partition), int(offset)] = value
            self.sequence = int(number) + 1

    def kill(self) -> None:
        """No goodbye: SIGKILL."""
        assert self._process is not None
        self._process.kill()
        self._end()
        self.state = "KILLED"

    def wait(self, seconds: float) -> None:
        assert self._process is not None
        try:
            status = self._process.wait(seconds)
        except subprocess.TimeoutExpired:
            self._process.kill()
            status = -9
        self._end()
        self.state = "done" if status == 0 else f"failed ({status})"

    def _end(self) -> None:
        assert self._process is not None and self._listener is not None
        self._process.wait()
        self._listener.join(10)
        if self._process.stdout is not None:
            self._process.stdout.close()

    @property
    def ended(self) -> bool:
        return self._process is not None and self._process.poll() is not None

    def stop(self) -> None:
        """Leave no process behind, whatever happened."""
        if self._process is not None and self._process.poll() is None:
            self._process.kill()
            self._process.wait()


class Tail(threading.Thread):
    """A consumer that follows the topic while it grows."""

    def __init__(self, root: str) -> None:
        super().__init__(name="tail", daemon=True)
        self.seen: dict[Place, bytes | None] = {}
        self.last = dict.fromkeys(range(PARTITIONS), -1)
        self.latencies: deque[int] = deque(maxlen=2000)
        self.faults: list[str] = []
        self._root = root
        self._end = threading.Event()

    def run(self) -> None:
        try:
            self._follow()
        except offsetlog.OffsetLogError as error:
            self.faults.append(f"the tail failed: {error}")

    def _follow(self) -> None:
        with (
            offsetlog.open(self._root) as log,
            log.consumer(topics=TOPIC, auto_offset_reset="earliest") as consumer,
        ):
            while True:
                ending = self._end.is_set()
                records = consumer.poll(timeout=0.2)
                now = time.time_ns() // 1_000_000
                for record in records:
                    if record.offset != self.last[record.partition] + 1:
                        self.faults.append(
                            f"partition {record.partition}: offset {record.offset} came behind "
                            f"{self.last[record.partition]}"
                        )
                    self.last[record.partition] = record.offset
                    self.seen[record.partition, record.offset] = record.value
                    self.latencies.append(now - record.timestamp)
                if ending and not records:
                    return

    def latency_ms(self) -> int | None:
        """The median from send to here."""
        recent = sorted(self.latencies)
        return recent[len(recent) // 2] if recent else None

    def end(self) -> None:
        """Read what is left, then stop."""
        self._end.set()
        self.join(30)


class Finding(NamedTuple):
    """One promise, and whether it was kept."""

    promise: str
    kept: bool
    detail: str


class Story:
    """The whole demo, as steps that a screen can show."""

    def __init__(self, root: str, producers: int, seconds: float) -> None:
        self.root = root
        self.seconds = seconds
        self.producers = [Producer(root, f"shop-{n + 1}") for n in range(producers)]
        self.tail = Tail(root)
        self.events: list[str] = []
        self.group = ""
        """How the group stands, while there is one."""
        self.killed_with = 0
        """How many records of the producer that was killed were acknowledged by then."""
        self._began: float | None = None

    def tell(self, text: str) -> None:
        self.events.append(text)

    def begin(self) -> None:
        with offsetlog.open(self.root) as log:
            log.create_topic(TOPIC, partitions=PARTITIONS)
        self.tell(f"Topic {TOPIC} with {PARTITIONS} partitions: a folder. No broker runs.")
        self.tail.start()
        for producer in self.producers:
            producer.start(self.seconds)
        self.tell(f"{len(self.producers)} producer processes send batches of {BATCH} records.")

    def under_way(self) -> bool:
        """Whether everybody is sending; the clock starts then. Python starts slowly."""
        return all(producer.acknowledged or producer.ended for producer in self.producers)

    def start_clock(self) -> None:
        self._began = time.monotonic()

    @property
    def elapsed(self) -> float:
        return 0.0 if self._began is None else time.monotonic() - self._began

    def crash(self) -> None:
        victim = self.producers[-1]
        victim.kill()
        self.killed_with = len(victim.acknowledged)
        self.tell(
            f"SIGKILL hit {victim.name} (pid {victim.pid}) with "
            f"{self.killed_with} records acknowledged."
        )

    def restart(self) -> None:
        victim = self.producers[-1]
        victim.start(max(1.0, self.seconds - self.elapsed))
        self.tell(
            f"{victim.name} is back (pid {victim.pid}) at batch {victim.sequence}; if that had "
            "landed already, it won't count twice."
        )

    def end(self) -> None:
        for producer in self.producers:
            producer.wait(self.seconds + 30)
        self.tail.end()
        self.tell("The producers are done.")

    def stop(self) -> None:
        with contextlib.suppress(OSError):
            for producer in self.producers:
                producer.stop()

    # --- the reckoning -------------------------------------------------------------------------

    def reckon(self) -> list[Finding]:
        """Read everything afresh, and hold it against what was acknowledged."""
        stored: dict[Place, bytes | None] = {}
        with offsetlog.open(self.root) as log:
            with log.consumer(topics=TOPIC, auto_offset_reset="earliest") as consumer:
                while records := consumer.poll(0.0, 10_000):
                    stored.update({(r.partition, r.offset): r.value for r in records})
            reports = log.verify(TOPIC)
        faults = [fault for report in reports for fault in report.faults]
        return [
            self._producers_ended(),
            self._acknowledged(stored),
            self._once(stored),
            self._tailed(stored),
            Finding("verify finds no fault", not faults, "; ".join(faults[:3]) or "all files read"),
        ]

    def _producers_ended(self) -> Finding:
        states = [f"{p.name} {p.state}" for p in self.producers if p.state != "done"]
        what = "A crash in the middle, and everybody finished"
        detail = ", ".join(states) or f"killed after {self.killed_with} records, then went on"
        return Finding(what, not states and self.killed_with > 0, detail)

    def _acknowledged(self, stored: dict[Place, bytes | None]) -> Finding:
        wrong = total = 0
        for producer in self.producers:
            for place, value in producer.acknowledged.items():
                total += 1
                wrong += stored.get(place) != value
        return Finding(
            "Each acknowledged record is at its offset",
            wrong == 0 and total > 0,
            f"{total} acknowledged, {wrong} lost or elsewhere",
        )

    def _once(self, stored: dict[Place, bytes | None]) -> Finding:
        expected = Counter(
            value
            for producer in self.producers
            for sequence in range(producer.sequence)
            for _, value in values(producer.name, sequence)
        )
        found = Counter(value for value in stored.values() if value is not None)
        twice = (found - expected).total()
        missing = (expected - found).total()
        return Finding(
            "Each record was written once, crash or not",
            twice == 0 and missing == 0 and len(stored) == expected.total(),
            f"{len(stored)} records, {twice} twice, {missing} missing",
        )

    def _tailed(self, stored: dict[Place, bytes | None]) -> Finding:
        tail = self.tail
        same = tail.seen == stored and not tail.faults
        detail = "; ".join(tail.faults[:3]) or f"{len(tail.seen)} records, median latency "
        if not tail.faults:
            detail += f"{tail.latency_ms()} ms"
        return Finding("The live tail saw all of them, in order", same, detail)
