"""The demo's second part: two workers of one group, a kill, the takeover, and the lag.

Invariants:

1. Workers are real processes, and the kill is a real SIGKILL.
2. Nobody tells the survivor: it finds out by itself, from the missing heartbeats.
3. Time is measured here, from the kill to the survivor's own line about what it holds.
"""

from __future__ import annotations

import subprocess
import sys
import threading
import time

import offsetlog

from .demo_story import PARTITIONS, Finding, Place, Story
from .demo_worker import GROUP, SESSION_MS

PAUSE = 0.15
ROUNDS = 20
"""In how many polls a worker would read its half of the records: the kill falls in between."""
LIMIT = 20.0


class Worker:
    def __init__(self, root: str, name: str, batch: int) -> None:
        self.name = name
        self.holds: tuple[int, ...] = ()
        self.given: list[Place] = []
        self.process = subprocess.Popen(
            [sys.executable, "-m", "offsetlog.cli.demo_worker", root, name, str(batch), str(PAUSE)],
            stdout=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        self._listener = threading.Thread(target=self._listen, daemon=True)
        self._listener.start()

    def _listen(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            holds, bar, given = line.rstrip("\n").partition("|")
            if not bar or not line.endswith("\n"):
                return
            places = (text.split(":") for text in given.split())
            self.given += [(int(partition), int(offset)) for partition, offset in places]
            self.holds = tuple(int(number) for number in holds.split(",") if number)

    def end(self, kill: bool = False) -> None:
        if self.process.poll() is None:
            self.process.kill() if kill else self.process.terminate()
            try:
                self.process.wait(10)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()
        self._listener.join(10)
        if self.process.stdout is not None and not self.process.stdout.closed:
            self.process.stdout.close()


class Crew:
    """The group at work."""

    def __init__(self, story: Story) -> None:
        self._story = story
        self._log = offsetlog.open(story.root)
        self.records = sum(self._log.topic("orders").end_offsets().values())
        self.workers: list[Worker] = []
        self.took: float | None = None
        self._killed_at = 0.0
        self._began = time.monotonic()

    def begin(self) -> None:
        batch = max(1, self.records // 2 // ROUNDS)
        for name in ("worker-1", "worker-2"):
            self.workers.append(Worker(self._story.root, name, batch))
        self._story.tell(f"Two workers read as the group {GROUP!r}; nothing coordinates them.")

    def lag(self) -> int:
        """What is not committed yet, of all records."""
        group = self._log.offsets_table.look().group(GROUP)
        lag = self.records - sum(position.offset for position in group.positions.values())
        share = " ".join(
            f"{w.name}={','.join(map(str, w.holds)) or '-'}"
            for w in self.workers
            if w.process.poll() is None
        )
        self._story.group = f"group {GROUP}: lag {lag}, partitions of {share or 'nobody'}"
        return lag

    @property
    def late(self) -> bool:
        return time.monotonic() - self._began > LIMIT

    def shared(self) -> bool:
        """Both hold some, and a part of the work is done."""
        held = sorted(partition for worker in self.workers for partition in worker.holds)
        half = held == list(range(PARTITIONS)) and all(worker.holds for worker in self.workers)
        return (self.lag() < self.records and half) or self.late

    def kill(self) -> None:
        victim, survivor = self.workers
        held = len(victim.holds)
        victim.end(kill=True)
        self._killed_at = time.monotonic()
        self._story.tell(
            f"SIGKILL hit {victim.name}, which held {held} partitions like {survivor.name}; "
            f"lag {self.lag()} records."
        )

    def taken_over(self) -> bool:
        self.lag()
        if self.took is None and len(self.workers[1].holds) == PARTITIONS:
            self.took = time.monotonic() - self._killed_at
            self._story.tell(
                f"{self.workers[1].name} took over {self.took:.1f} s after the kill (session "
                f"timeout {SESSION_MS / 1000:.0f} s); lag {self.lag()} records."
            )
        return self.took is not None or self.late

    def done(self) -> bool:
        return self.lag() == 0 or self.late

    def end(self) -> None:
        for worker in self.workers:
            worker.end()
        self._story.tell(f"The group has read everything: lag {self.lag()} records.")

    def stop(self) -> None:
        for worker in self.workers:
            worker.end(kill=True)
        self._log.close()

    def findings(self) -> list[Finding]:
        limit = SESSION_MS / 1000 + 1
        given = {place for worker in self.workers for place in worker.given}
        lag = self.lag()
        took = "never" if self.took is None else f"after {self.took:.1f} s, at most {limit:.0f} s"
        return [
            Finding(
                "The group went on after a worker was killed",
                self.took is not None and self.took <= limit,
                f"taken over {took}",
            ),
            Finding(
                "Each record was given to a worker, and committed",
                lag == 0 and len(given) == self.records,
                f"{len(given)} of {self.records} given, lag {lag}",
            ),
        ]
