"""What the demo with Spark does, apart from how it looks.

Invariants:

1. The driver is a real process, and the crash a real SIGKILL of it and its JVM, with no warning.
2. What was sent is known from the senders alone; the reckoning holds everything against that.
3. Whatever happens, no process is left behind.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import NamedTuple

import offsetlog

from ..client.group_views import ResetPlan
from ..errors import OffsetLogError
from .ledger import Count, Ledger
from .orders import FILES, GROUP, PARTITIONS, RIGHT, SHOP, TOPIC, WRONG, worth
from .senders import Files, Sender, Shop

PAUSE = {FILES: 1.5, SHOP: 0.4}
BACKLOG = 20_000
LOG4J = """rootLogger.level = error
rootLogger.appenderRef.stderr.ref = console
appender.console.type = Console
appender.console.name = console
appender.console.target = SYSTEM_ERR
appender.console.layout.type = PatternLayout
appender.console.layout.pattern = %d{HH:mm:ss} %p %c{1}: %m%n%ex{short}
"""
TRIES = 2
TAIL = 30
"""Lines of the driver's log that are shown when it fails."""


class DriverFailed(Exception):
    """The Spark program ended by itself."""


class Line(NamedTuple):
    """How the group stands in a partition."""

    partition: int
    end: int
    committed: int

    @property
    def lag(self) -> int:
        return self.end - self.committed


class Reading(NamedTuple):
    """Of a reading of the whole topic: what was billed, held against what was sent."""

    name: str
    billed: Count
    missing: int
    sent: int
    right: int
    """Cents, as they should be."""


class Story:
    def __init__(self, folder: str) -> None:
        self.folder = Path(folder)
        self.root = str(self.folder / "log")
        (self.folder / "tmp").mkdir()
        (self.folder / "log4j2.properties").write_text(LOG4J)
        (self.folder / "pricing.py").write_text(WRONG)
        self.log = offsetlog.open(self.root)
        self.log.create_topic(TOPIC, partitions=PARTITIONS)
        self.ledger = Ledger(str(self.folder / "ledger.db"))
        self.files = Files(self.folder / "incoming", PAUSE[FILES], self._backlog)
        self.shop = Shop(self.root, PAUSE[SHOP], self._backlog)
        self.state = "not started"
        self.last_batch = -1
        """Of the first reading: what came after it is the replay."""
        self._driver: subprocess.Popen[bytes] | None = None
        self._billed_before = 0
        self._tries = TRIES
        self._began = time.monotonic()

    @property
    def senders(self) -> tuple[Sender, Sender]:
        return self.files, self.shop

    @property
    def elapsed(self) -> float:
        return time.monotonic() - self._began

    # --- the driver ------------------------------------------------------------------------

    def start_driver(self) -> int:
        """Start the Spark program, for the first time or again; its process id."""
        with open(self.folder / "driver.log", "ab") as log:
            self._driver = subprocess.Popen(
                [sys.executable, "-m", "offsetlog.demo.driver", str(self.folder)],
                stdin=subprocess.PIPE, stdout=log, stderr=log, start_new_session=True,
                env={**os.environ, "PYSPARK_PYTHON": sys.executable, "SPARK_LOCAL_IP": "127.0.0.1"},
            )  # fmt: skip
        self.state = "starting"
        self._billed_before = self.ledger.size()[0]
        return self._driver.pid

    def kill_driver(self) -> None:
        """No goodbye, neither for the program nor for its JVM."""
        assert self._driver is not None
        os.killpg(self._driver.pid, signal.SIGKILL)
        self._driver.wait()
        self.state = "KILLED"

    def end_driver(self) -> None:
        assert self._driver is not None and self._driver.stdin is not None
        self._driver.stdin.close()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._driver.wait(20)
        self._stop_driver()
        self.state = "ended"

    def _stop_driver(self) -> None:
        if self._driver is None:
            return
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._driver.pid, signal.SIGKILL)
        self._driver.wait()
        if self._driver.stdin is not None:
            with contextlib.suppress(OSError):
                self._driver.stdin.close()

    def check(self) -> None:
        """An error if somebody who should be at work is not."""
        for sender in self.senders:
            if sender.failed is not None:
                raise sender.failed
        if self.state not in ("starting", "running") or self._driver is None:
            return
        status = self._driver.poll()
        if status is None:
            return
        if self.state == "running" or not self._tries:
            raise DriverFailed(f"The Spark program ended with status {status}.")
        # Spark gives a Python worker ten seconds to start, which a busy machine may not keep.
        self._tries -= 1
        self._stop_driver()
        self.start_driver()

    def driver_log(self) -> list[str]:
        """The end of what the driver and Spark wrote."""
        try:
            text = (self.folder / "driver.log").read_text(errors="replace")
        except OSError:
            return []
        return text.splitlines()[-TAIL:]

    # --- how things stand ------------------------------------------------------------------

    def lines(self) -> list[Line]:
        ends = self.log.topic(TOPIC).end_offsets()
        positions = self.log.offsets_table.look().group(GROUP).positions
        committed = {partition: at.offset for (_, partition), at in positions.items()}
        return [Line(p, end, committed.get(p, 0)) for p, end in sorted(ends.items())]

    def lag(self) -> int:
        return sum(line.lag for line in self.lines())

    def billed(self) -> int:
        """Lines in the ledger."""
        lines, _ = self.ledger.size()
        if lines > self._billed_before and self.state == "starting":
            self.state = "running"
        return lines

    def _backlog(self) -> bool:
        return self.sent() - self.ledger.size()[0] > BACKLOG

    def sent(self) -> int:
        return sum(sender.sent for sender in self.senders)

    def stored(self) -> int:
        return sum(self.log.topic(TOPIC).end_offsets().values())

    # --- steps -----------------------------------------------------------------------------

    def begin(self) -> None:
        for sender in self.senders:
            sender.start()

    def end_senders(self) -> None:
        for sender in self.senders:
            sender.end()

    def all_read(self) -> bool:
        """Everything that was sent is in the topic, and the group has read it."""
        return self.stored() >= self.sent() and self.lag() == 0

    def fix(self) -> None:
        self.last_batch = self.ledger.size()[1]
        (self.folder / "pricing.py").write_text(RIGHT)

    def reset(self) -> ResetPlan:
        return self.log.group(GROUP).reset(TOPIC, to="earliest", dry_run=False)

    def replayed(self) -> bool:
        count = self.ledger.count(self.last_batch + 1, sys.maxsize)
        return count.lines >= self.stored() and self.lag() == 0

    def stop(self) -> None:
        self._stop_driver()
        with contextlib.suppress(OffsetLogError):
            self.end_senders()
        self.log.close()

    # --- the reckoning ---------------------------------------------------------------------

    def reading(self, name: str, first: int, last: int) -> Reading:
        """What the batches ``first`` to ``last`` billed."""
        missing = 0
        right = 0
        for sender in self.senders:
            billed = self.ledger.numbers(sender.source, first, last)
            missing += len(set(range(sender.sent)) - billed)
            right += worth(sender.source, sender.sent)
        return Reading(name, self.ledger.count(first, last), missing, self.sent(), right)

    def first_reading(self) -> Reading:
        last = self.ledger.size()[1] if self.last_batch < 0 else self.last_batch
        return self.reading("first reading", 0, last)

    def replay(self) -> Reading:
        return self.reading("replay", self.last_batch + 1, sys.maxsize)

    def places(self) -> list[tuple[str, str]]:
        """Files of the log, one of each kind, and what they are."""
        root = Path(self.root)
        kinds = (
            (f"{TOPIC}/_log/*/*.parquet", "the chain: {} entries"),
            (f"{TOPIC}/_snapshot/*.parquet", "stored states, so that opening is quick: {}"),
            (f"{TOPIC}/partition=*/*.parquet", "segments of larger batches: {}"),
            ("__consumer_offsets/_delta_log/*.json", "the groups' Delta table: {} versions"),
        )
        out = []
        for pattern, what in kinds:
            found = sorted(root.glob(pattern))
            if found:
                out.append((str(found[-1].relative_to(root)), what.format(len(found))))
        return out

    def faults(self) -> list[str]:
        """What ``verify`` finds."""
        return [str(fault) for report in self.log.verify(TOPIC) for fault in report.faults]
