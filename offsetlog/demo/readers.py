"""The readers, with Spark and without. Both read as the group ``billing``.

Invariants:

1. Readers are real processes, and the kill is a real SIGKILL, without warning.
2. Workers: the survivor learns of the kill by itself, from missing heartbeats.
3. Spark: the same program is restarted, and continues from its checkpoints.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path

from offsetlog.demo.orders import GROUP
from offsetlog.demo.program import DemoFailed, Program
from offsetlog.demo.worker import SESSION_MS

TRIES = 2
"""How often Spark may fail to start: a busy machine may need more than the ten seconds that Spark
gives a Python worker."""


class Readers:
    victim: str
    """What is killed, in words."""
    outage: str
    """What follows, in words."""

    def __init__(self, *programs: Program) -> None:
        self.programs = programs
        self.at_work = False
        """Whether every program that is alive reads, so that every partition is read."""
        self.seconds = 0.0
        """From the kill until ``at_work`` was true again; 0 if it never was."""
        self._killed_at = 0.0

    def start(self) -> str:
        """Begin to read; the text to show."""
        raise NotImplementedError

    def kill(self) -> None:
        self.programs[0].kill()
        self._killed_at = time.monotonic()

    def restart(self) -> str:
        """Restart what does not recover by itself; the text to show."""
        return ""

    def observe(self, holders: set[str], billed: int) -> None:
        """Note the holders of partitions and the number of invoices; an error if a program is not
        running that should be."""
        for program in self.programs:
            program.check()
        self.at_work = self.all_read(holders)
        if self.at_work and self._killed_at and not self.seconds:
            self.seconds = time.monotonic() - self._killed_at

    def all_read(self, holders: set[str]) -> bool:
        raise NotImplementedError

    def recovery(self) -> tuple[bool, str]:
        """Whether the group recovered from the kill, and how."""
        raise NotImplementedError


class Workers(Readers):
    """Without Spark: two processes in plain Python share the partitions."""

    victim = "a worker"
    outage = "The other worker notices the missing heartbeats, and takes over."

    def __init__(self, folder: Path) -> None:
        super().__init__(*(Program("worker", f"worker-{n}", folder) for n in (1, 2)))

    def start(self) -> str:
        for program in self.programs:
            program.start()
        return (
            "Two workers in plain Python start. They share the partitions as the group "
            f"{GROUP!r}, and write an invoice for each order."
        )

    def all_read(self, holders: set[str]) -> bool:
        return holders == {one.name for one in self.programs if one.state == "running"}

    def recovery(self) -> tuple[bool, str]:
        limit = 2 * SESSION_MS / 1000
        text = f"worker-2 took over {self.seconds:.1f} s after the kill (at most {limit:.0f} s)"
        return 0 < self.seconds <= limit, text if self.seconds else "nobody took over"


class SparkQueries(Readers):
    """With Spark: a driver with two queries, one that writes and one that reads."""

    victim = "Spark, driver and JVM"
    outage = "Nobody reads, and the lag grows."

    def __init__(self, folder: Path) -> None:
        self._driver = Program("spark_queries", "Spark", folder)
        super().__init__(self._driver)
        self._tries = TRIES
        self._billed = self._billed_before = 0

    def start(self) -> str:
        return (
            f"Spark starts (process {self._start()}). One query streams JSON files into the topic; "
            f"another streams the topic to a ledger of invoices, as the group {GROUP!r}."
        )

    def restart(self) -> str:
        return f"The same Spark program is restarted (process {self._start()})."

    def _start(self) -> int:
        self._billed_before = self._billed
        self._driver.start("starting", PYSPARK_PYTHON=sys.executable, SPARK_LOCAL_IP="127.0.0.1")
        return self._driver.pid

    def observe(self, holders: set[str], billed: int) -> None:
        self._billed = billed
        if self._driver.state == "starting" and billed > self._billed_before:
            self._driver.state = "running"
        try:
            super().observe(holders, billed)
        except DemoFailed:
            if self._driver.state != "starting" or not self._tries:
                raise
            self._tries -= 1
            self._start()

    def all_read(self, holders: set[str]) -> bool:
        return self._driver.state == "running"

    def recovery(self) -> tuple[bool, str]:
        text = f"Spark continued from its checkpoints {self.seconds:.1f} s after the kill"
        return self.seconds > 0, text if self.seconds else "Spark did not come back"
