"""One topic under an even load: eight writers, two Spark queries, and maintenance beside them.

Everything is looked at each second. What the last third of the time shows must be what the third
before it showed: memory, files, the time of an append, of a micro-batch, of a ``maintain``.

1. The first third is left out: caches fill, Spark compiles.
2. Both queries must have been given every record once, in order, at the end.
3. A process that ends by itself is a finding.
4. Times are judged against the machine's own: others may begin to use it at any moment. A fixed
   piece of work is timed at each look, and what takes that longer may take the rest longer too.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import median
from typing import NamedTuple

import offsetlog
from tests.servers.process import GUARD, ROOT
from tests.soak.load_process import PARTITIONS, TOPIC
from tests.spark_plugin.drivers import end

WRITERS = 8
RETENTION_MS = 60_000
STARTS_IN, ENDS_IN = 120.0, 120.0
LEAST_SEEN, SEEN_IN = 6, 300.0
"""On a busy machine a short run goes on, for so many seconds at most, until all was seen."""


class Limit(NamedTuple):
    """How much more the last third may show than the one before it."""

    times: float
    plus: float
    unit: str
    seconds: float = 0.0
    """It is judged of runs that are at least so long."""


SETTLED = 240.0
"""Upkeep lets go of leaves that nobody names when they are a minute old, so files grow until then;
and on a busy machine Spark goes on starting workers for as long."""
VACUUM = 3600.0
"""What the offsets table does not need any more is kept for an hour, for who still reads it."""
LIMITS = {
    "memory of a writer": Limit(1.1, 16, "MiB"),
    "memory of the maintainer": Limit(1.1, 24, "MiB"),
    "memory of the driver's Python": Limit(1.15, 24, "MiB", SETTLED),
    "heap of the driver": Limit(1.15, 24, "MiB"),
    "segments": Limit(1.25, 40, "files"),
    "snapshots and leaves": Limit(1.25, 60, "files", SETTLED),
    "files of the offsets table": Limit(1.25, 40, "files", 3 * VACUUM),
    "an append": Limit(1.5, 10, "ms"),
    "a micro-batch": Limit(1.5, 250, "ms"),
    "a maintain": Limit(1.5, 250, "ms"),
}
MACHINE = "the machine's own work"
WORK = bytes(4 << 20)
PLACES = {
    "/partition=": "segments",
    "/_snapshot": "snapshots and leaves",
    "/_index": "snapshots and leaves",
    "/__consumer_offsets": "files of the offsets table",
}
Series = Mapping[str, Sequence[float]]


class Outcome(NamedTuple):
    seconds: float
    appended: int
    series: dict[str, list[float]]
    violations: tuple[str, ...]


def thirds(values: Sequence[float]) -> tuple[float, float]:
    """The medians of the second third and of the last."""
    a, b = len(values) // 3, 2 * len(values) // 3
    return median(values[a:b]), median(values[b:])


def slowed(series: Series) -> float:
    """How much longer the machine's own work took in the last third, if it did."""
    values = series.get(MACHINE, ())
    if len(values) < LEAST_SEEN:
        return 1.0
    before, after = thirds(values)
    return max(1.0, after / before)


def scarce(series: Series, seconds: float) -> list[str]:
    """What a run of this length is judged by, and was not seen often enough for that yet."""
    judged = (name for name, limit in LIMITS.items() if seconds >= limit.seconds)
    return [name for name in judged if len(series.get(name, ())) < LEAST_SEEN]


def judge(series: Series, seconds: float) -> list[str]:
    """What did not stay as it was."""
    unseen, slower = scarce(series, seconds), slowed(series)
    out = [f"{name}: seen {len(series.get(name, ()))} times only" for name in unseen]
    for name, limit in LIMITS.items():
        if seconds < limit.seconds or name in unseen:
            continue
        before, after = thirds(series[name])
        expected = before * (slower if limit.unit == "ms" else 1.0)
        if after > limit.times * expected + limit.plus:
            out.append(f"{name} grew from {before:,.0f} to {after:,.0f} {limit.unit}".rstrip())
    return out


def table(outcome: Outcome) -> str:
    lines = [f"{'one topic under load':32}{'second third':>14}{'last third':>14}"]
    for name, unit in [(MACHINE, "ms"), *((name, limit.unit) for name, limit in LIMITS.items())]:
        values = outcome.series.get(name, ())
        if len(values) >= LEAST_SEEN:
            before, after = thirds(values)
            lines.append(f"{name:32}{before:14,.0f}{after:14,.0f} {unit}".rstrip())
    lines.append(
        f"{outcome.appended:,} records in {outcome.seconds:.0f} s, read by two queries; "
        f"violations: {len(outcome.violations)}"
    )
    return "\n".join([*lines, *(f"  {violation}" for violation in outcome.violations)])


# --- processes -----------------------------------------------------------------------------


class Child:
    def __init__(self, role: str, root: str, place: Path, name: str) -> None:
        self.name, self._notes, self._read = name, place / f"{name}.jsonl", 0
        own = place / name
        own.mkdir()
        self._said = place / f"{name}.out"
        command = [sys.executable, str(GUARD), sys.executable, "-m", "tests.soak.load_process"]
        env = {**os.environ, "PYTHONPATH": str(ROOT), "PYSPARK_PYTHON": sys.executable,
               "PYSPARK_DRIVER_PYTHON": sys.executable}  # fmt: skip
        with self._said.open("wb") as out:
            self.process = subprocess.Popen(
                [*command, role, root, str(place), name], stdin=subprocess.PIPE, stdout=out,
                stderr=subprocess.STDOUT, cwd=own, env=env, start_new_session=True,
            )  # fmt: skip

    def news(self) -> list[dict[str, object]]:
        """The notes since the last look."""
        if not self._notes.exists():
            return []
        lines = self._notes.read_text().split("\n")[:-1]
        fresh, self._read = lines[self._read :], len(lines)
        return [json.loads(line) for line in fresh]

    def ended(self) -> str:
        if self.process.poll() is None:
            return ""
        said = self._said.read_text(errors="replace").strip().splitlines()[-3:]
        return f"{self.name} ended by itself: {' / '.join(said)[:600]}"

    def end(self) -> None:
        end(self.process)


def memory(leader: int) -> float:
    """MiB of all Python processes of a session: what they have of their own."""
    kib = 0
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            # The name is in parentheses, and may hold anything.
            name, _, rest = stat.read_text().partition("(")[2].rpartition(")")
            if int(rest.split()[3]) == leader and name.startswith("python"):
                rollup = stat.with_name("smaps_rollup").read_text()
                kib += int(rollup.partition("\nPss:")[2].split()[0])
    return kib / 1024


def files(root: str) -> dict[str, int]:
    """What must not pile up. Entries stay for ever, small once their rows are taken out."""
    found = dict.fromkeys(PLACES.values(), 0)
    for folder, _, names in os.walk(root):
        for part, name in PLACES.items():
            if part in folder:
                found[name] += len(names)
    return found


def own_work(place: Path) -> float:
    """Milliseconds of a fixed piece of work: some for the processor, some for the disk."""
    began = time.perf_counter()
    for _ in range(2):
        hashlib.blake2b(WORK).digest()
    with (place / "work").open("wb") as file:
        file.write(WORK[: 64 << 10])
        file.flush()
        os.fsync(file.fileno())
    return (time.perf_counter() - began) * 1000


# --- the load ------------------------------------------------------------------------------


class _Load:
    def __init__(self, place: Path) -> None:
        self.place = place
        self.root = str(place / "log")
        self.series: dict[str, list[float]] = {name: [] for name in (MACHINE, *LIMITS)}
        self.rows = [0]
        self.sent: dict[str, int] = {}
        self.violations: list[str] = []
        self.children: list[Child] = []

    def run(self, seconds: float) -> None:
        with offsetlog.open(self.root) as log:
            log.create_topic(TOPIC, PARTITIONS, {"retention.ms": RETENTION_MS})
        try:
            self._start()
            end = time.monotonic() + seconds
            while not self.violations and (
                time.monotonic() < end
                or (scarce(self.series, seconds) and time.monotonic() < end + SEEN_IN)
            ):
                time.sleep(1)
                self._look()
            self._finish()
        finally:
            for child in self.children:
                child.end()

    def _start(self) -> None:
        """The driver first, and the load when it is there."""
        self._add("driver", "driver")
        deadline = time.monotonic() + STARTS_IN
        while not self.children[0].news() and not self.violations:
            time.sleep(0.2)
            self.violations += filter(None, [self.children[0].ended()])
            if time.monotonic() > deadline:
                self.violations.append("the driver did not start")
        for i in range(WRITERS):
            self._add("writer", f"writer{i}")
        self._add("maintainer", "maintainer")

    def _add(self, role: str, name: str) -> None:
        self.children.append(Child(role, self.root, self.place, name))

    def _look(self) -> None:
        driver, *writers, maintainer = self.children
        self.violations += filter(None, (child.ended() for child in self.children))
        appends = []
        for writer in writers:
            for note in writer.news():
                self.sent[writer.name] = int(str(note["sent"]))
                appends.append(float(str(note["milliseconds"])))
        if appends:
            self._note("an append", median(appends))
        self._notes_of(maintainer, "a maintain")
        self._notes_of(driver, "a micro-batch")
        most = max(memory(writer.process.pid) for writer in writers)
        self._note("memory of a writer", most)
        self._note("memory of the maintainer", memory(maintainer.process.pid))
        self._note("memory of the driver's Python", memory(driver.process.pid))
        for name, count in files(self.root).items():
            self._note(name, count)
        self._note(MACHINE, own_work(self.place))

    def _notes_of(self, child: Child, name: str) -> None:
        for note in child.news():
            if "milliseconds" in note:
                self._note(name, float(str(note["milliseconds"])))
            if "heap" in note:
                self._note("heap of the driver", float(str(note["heap"])))
            if "rows" in note:
                rows, faults = note["rows"], note["faults"]
                assert isinstance(rows, list) and isinstance(faults, list)
                self.rows = rows
                self.violations += [fault for fault in faults if fault not in self.violations]

    def _note(self, name: str, value: float) -> None:
        self.series[name].append(value)

    def _finish(self) -> None:
        """Writers end, then the queries at the log's end; then everything is counted."""
        if self.violations:
            return
        (self.place / "stop").touch()
        driver, *writers, maintainer = self.children
        deadline = time.monotonic() + ENDS_IN
        for child in (*writers, maintainer, driver):
            with contextlib.suppress(subprocess.TimeoutExpired):
                child.process.wait(max(1.0, deadline - time.monotonic()))
            if child.process.returncode:
                self.violations.append(child.ended() or f"{child.name} did not end")
        for writer in writers:
            for note in writer.news():
                self.sent[writer.name] = int(str(note["sent"]))
        self._notes_of(driver, "a micro-batch")
        sent = sum(self.sent.values())
        for rows in self.rows:
            if rows != sent:
                self.violations.append(f"{sent:,} records were sent; a query was given {rows:,}")


def load(seconds: float) -> Outcome:
    """Run it for so long, and say what did not stay as it was."""
    began = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="offsetlog-load-") as name:
        run = _Load(Path(name))
        run.run(seconds)
    violations = run.violations or judge(run.series, seconds)
    spent = time.monotonic() - began
    return Outcome(spent, sum(run.sent.values()), run.series, tuple(violations))
