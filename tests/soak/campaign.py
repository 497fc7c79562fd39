"""Real processes on one storage, killed, frozen and lied to; then all of it is read and judged.

1. Every process writes a history of its own; all are judged together, after a last reader has
   read every partition from its start to its end, and ``verify`` has looked at every file.
2. A process that ends by itself is a finding: nothing that storage does may end it.
3. Kills are counted when the signal was sent to a process that had begun its work.
"""

from __future__ import annotations

import random
import signal
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import Any, NamedTuple

import offsetlog
from offsetlog.testing import history
from tests.soak.nest import Nest
from tests.soak.places import SITES, Site
from tests.soak.worker import GROUP, PARTITIONS, TOPIC, committed, mark

ROLES = ("produce", "produce", "keyed", "read", "work", "work", "maintain", "watch")
STARTS_IN = 60.0


class Result(NamedTuple):
    storage: str
    operations: int
    kills: int
    freezes: int
    faults: Counter[str]
    """What was let go wrong beside kills and freezes."""
    violations: tuple[str, ...]
    story: str
    seconds: float


class Process:
    def __init__(
        self, nest: Nest, folder: Path, name: str, orders: dict[str, Any], least_seconds: float
    ) -> None:
        self.role, self.name = orders["role"], name
        self._ready = folder / f"{name}.ready"
        self._errors = folder / f"{name}.err"
        mine = {
            "history": str(folder / "history" / f"{name}.jsonl"), "ready": str(self._ready),
            "errors": str(self._errors), "note": str(folder / "keyed.note"),
        }  # fmt: skip
        self.child = nest.hatch({**orders, **mine})
        self._began = time.monotonic()
        self._least_seconds = least_seconds
        self._ready_at: float | None = None

    @property
    def is_ready(self) -> bool:
        if self._ready_at is None and self._ready.exists():
            self._ready_at = time.monotonic()
        return self._ready_at is not None

    @property
    def has_lived(self) -> bool:
        """Some are killed at once, most in the middle of their work."""
        return self.is_ready and time.monotonic() - (self._ready_at or 0) > self._least_seconds

    def ended(self) -> str:
        """What it said when it ended by itself; empty while it runs."""
        if self.child.is_running:
            late = not self.is_ready and time.monotonic() - self._began > STARTS_IN
            return f"{self.name} did not start" if late else ""
        said = self._errors.read_text(errors="replace").strip().splitlines()[-3:]
        return f"{self.name} ended by itself: {' / '.join(said)[:600]}"


class Campaign:
    def __init__(self, site: Site, folder: Path, nest: Nest, seed: int, planted: str) -> None:
        self.site, self.folder, self.nest, self.planted = site, folder, nest, planted
        self.rng = random.Random(seed)
        self.running: list[Process] = []
        self.started = self.kills = self.freezes = 0
        self.faults: Counter[str] = Counter()
        self.violations: list[str] = []

    def run(self, kills: int, seconds: float) -> None:
        """Until so many processes were killed, or the time is over."""
        (self.folder / "history").mkdir()
        with offsetlog.open(self.site.url, **self.site.options) as log:
            log.create_topic(TOPIC, PARTITIONS, {"retention.ms": -1})
        deadline = time.monotonic() + seconds
        try:
            for role in ROLES:
                self._start(role)
            while time.monotonic() < deadline and self.kills < kills and not self.violations:
                time.sleep(self.rng.uniform(0.02, 0.2))
                self._step()
        finally:
            for process in self.running:
                process.child.kill()

    def _start(self, role: str) -> None:
        self.started += 1
        orders = {
            "role": role, "url": self.site.url, "options": self.site.options,
            "seed": self.rng.randrange(10**9), "planted": self.planted,
            "session_ms": self.site.session_ms,
            "full_disk": self.site.name == "local" and self.started % 8 == 1,
        }  # fmt: skip
        name = f"{role}{self.started}"
        slow = self.site.session_ms / 1500
        least = self.rng.choice((0.0, 0.3, 1.0, 2.0)) * slow
        self.running.append(Process(self.nest, self.folder, name, orders, least))

    def _step(self) -> None:
        for process in self.running:
            if said := process.ended():
                self.violations.append(said)
                return
        lived = [process for process in self.running if process.has_lived]
        if not lived:
            return
        victim = self.rng.choice(lived)
        dice = self.rng.random()
        if dice < 0.8:
            victim.child.kill()
            self.kills += 1
            self.running.remove(victim)
            self._start(victim.role)
        elif dice < 0.88:
            # Longer than any grace period here (0), and often than the session's timeout.
            victim.child.send(signal.SIGSTOP)
            time.sleep(self.rng.choice((0.1, 0.5, self.site.session_ms / 1000 + 0.5)))
            victim.child.send(signal.SIGCONT)
            self.freezes += 1
        elif what := self.site.hurt():
            self.faults[what] += 1

    # --- afterwards ------------------------------------------------------------------------

    def judge(self) -> tuple[int, str]:
        """How many operations there were, and the story of what is wrong."""
        place = self.folder / "history"
        try:
            self._last_look(place)
        except offsetlog.OffsetLogError as error:
            self.violations.append(f"the last reader: {error}")
        faults = history.check(place)
        self.violations += [str(fault) for fault in faults]
        operations = sum(event.step in ("do", "did") for event in history.read_history(place))
        return operations, history.tell(place, faults) if faults else ""

    def _last_look(self, place: Path) -> None:
        everything = [(TOPIC, p) for p in range(PARTITIONS)]
        with (
            history.Recorder(place / "zlast.jsonl", mark=mark) as rec,
            offsetlog.open(self.site.url, **self.site.options) as log,
        ):
            with rec.ends() as asking:
                ends = log.topic(TOPIC).end_offsets()
                asking.ok({(TOPIC, p): end for p, end in ends.items()})
            with rec.committed(GROUP) as asking:
                asking.ok(committed(log))
            rec.assign(everything)
            with log.consumer(auto_offset_reset="earliest") as consumer:
                consumer.assign(everything)
                while True:
                    with rec.poll() as polling:
                        found = consumer.poll(0.5, max_records=2000)
                        polling.got(found)
                    at = {p: consumer.position((TOPIC, p)) for p in range(PARTITIONS)}
                    if not found and all(at[p] >= ends[p] for p in at):
                        break
            [report] = log.verify(TOPIC)
            self.violations += [f"verify: {fault}" for fault in report.faults]


def campaign(storage: str, kills: int, seconds: float, seed: int = 1, planted: str = "") -> Result:
    """One run. What it finds is in the result; nothing of it is raised."""
    began = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="offsetlog-soak-") as name:
        folder = Path(name)
        with SITES[storage](folder) as site, Nest() as nest:
            run = Campaign(site, folder, nest, seed, planted)
            run.run(kills, seconds)
            operations, story = run.judge()
        return Result(
            storage, operations, run.kills, run.freezes, run.faults, tuple(run.violations),
            story, time.monotonic() - began,
        )  # fmt: skip


def told(result: Result) -> dict[str, Any]:
    """For a person who wants to see it."""
    return {**result._asdict(), "violations": list(result.violations[:10])}
