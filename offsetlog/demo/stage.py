"""All programs of the story, and their status.

Invariants:

1. What was sent is known from the senders alone; the reckoning compares everything with it.
2. Whatever happens, ``stop`` leaves no process behind.
"""

from __future__ import annotations

import re
import time
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

import offsetlog
from offsetlog.demo.billing import WRONG, Billing
from offsetlog.demo.orders import GROUP, PARTITIONS, TOPIC
from offsetlog.demo.readers import Readers, SparkQueries, Workers
from offsetlog.demo.senders import Files, Sender, Shop
from offsetlog.demo.tail import Tail

BACKLOG = 20_000
"""Orders that may wait to be billed while more are sent."""


class PartitionStatus(NamedTuple):
    """The group's position in a partition."""

    number: int
    end: int
    committed: int
    lag: int
    reader: str
    """The member that holds it; empty if none does."""


class ProgramStatus(NamedTuple):
    """A program that sends or reads."""

    name: str
    pid: int
    """0: it is a thread of the demo itself."""
    state: str
    sent: int | None = None


class Status(NamedTuple):
    """The numbers of one moment."""

    elapsed: float
    sent: int
    partitions: tuple[PartitionStatus, ...]
    invoices: dict[int, int]
    """By version of the rule."""
    programs: tuple[ProgramStatus, ...]
    latency_ms: int | None

    @property
    def lag(self) -> int:
        return sum(partition.lag for partition in self.partitions)

    @property
    def stored(self) -> int:
        return sum(partition.end for partition in self.partitions)

    @property
    def billed(self) -> int:
        return sum(self.invoices.values())

    @property
    def all_read(self) -> bool:
        """Everything that was sent is in the topic, and the group has read it."""
        return self.stored >= self.sent and self.lag == 0


class Stage:
    def __init__(self, folder: Path, shops: int, with_spark: bool) -> None:
        self.root = str(folder / "log")
        self.log = offsetlog.open(self.root)
        self.log.create_topic(TOPIC, partitions=PARTITIONS)
        self.billing = Billing(folder)
        self.billing.rule.write_text(WRONG)
        self.shops = [Shop(folder, f"shop-{n + 1}", self._busy) for n in range(shops)]
        self.senders: list[Sender] = [*self.shops]
        self.readers: Readers = SparkQueries(folder) if with_spark else Workers(folder)
        if with_spark:
            self.senders.append(Files(folder, self._busy))
        self.tail = Tail(self.root)
        self._billed = 0
        self._began = time.monotonic()

    @property
    def elapsed(self) -> float:
        return time.monotonic() - self._began

    @property
    def sent(self) -> int:
        return sum(sender.sent for sender in self.senders)

    def _busy(self) -> bool:
        return self.sent - self._billed > BACKLOG

    def status(self) -> Status:
        """The present numbers; an error if a program is not running that should be."""
        for sender in self.senders:
            if sender.failure is not None:
                raise sender.failure
        sent, partitions, invoices = self.sent, self._partitions(), self.billing.invoices()
        self._billed = sum(invoices.values())
        self.readers.observe({partition.reader for partition in partitions}, self._billed)
        programs = []
        for sender in self.senders:
            process = sender.program or sender
            programs.append(ProgramStatus(sender.name, process.pid, process.state, sender.sent))
        programs += [ProgramStatus(one.name, one.pid, one.state) for one in self.readers.programs]
        latency = self.tail.latency_ms()
        return Status(self.elapsed, sent, partitions, invoices, tuple(programs), latency)

    def _partitions(self) -> tuple[PartitionStatus, ...]:
        lines = {}
        with suppress(offsetlog.InvalidRequestError):  # before the group is there
            lines = {line.partition: line for line in self.log.group(GROUP).describe().partitions}
        partitions = []
        for number, end in sorted(self.log.topic(TOPIC).end_offsets().items()):
            line = lines.get(number)
            committed = (line and line.committed) or 0
            # A member's name begins with its client's; user, host and an id follow.
            reader = re.sub(r"-([^-]*@.*|[0-9a-f]{8,})$", "", (line and line.member) or "")
            partitions.append(PartitionStatus(number, end, committed, end - committed, reader))
        return tuple(partitions)

    def start(self) -> None:
        self._began = time.monotonic()
        self.tail.start()
        for sender in self.senders:
            sender.start()

    def end(self) -> None:
        """Let all programs finish."""
        for program in self.readers.programs:
            program.end()
        self.tail.end()

    def stop(self) -> None:
        """End everything at once, whatever happened."""
        for program in self.readers.programs:
            program.kill()
        for sender in self.senders:
            sender.end(at_once=True)
        self.tail.end()
        self.log.close()
