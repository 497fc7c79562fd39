"""Real processes on a local disk, killed at any moment: what was acknowledged is there, once.

``OFFSETLOG_KILLS`` sets how many processes are killed (40)."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

import offsetlog

KILLS = int(os.environ.get("OFFSETLOG_KILLS", "40"))
WORKER = Path(__file__).with_name("kill_worker.py")
REPO = Path(__file__).resolve().parents[2]


class Worker:
    """A process, and what it said was acknowledged, written down as it came."""

    def __init__(self, role: str, root: Path, name: str) -> None:
        env = {**os.environ, "PYTHONPATH": str(REPO)}
        self.name = name
        self.lines: list[str] = []
        self.process = subprocess.Popen(
            [sys.executable, "-P", str(WORKER), role, str(root), name],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=env,
        )
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        for line in self.process.stdout:
            if line.endswith(b"\n"):
                self.lines.append(line.decode().strip())

    def await_lines(self, count: int, seconds: float = 60) -> None:
        deadline = time.monotonic() + seconds
        while len(self.lines) < count and time.monotonic() < deadline:
            if self.process.poll() is not None:
                raise AssertionError(self.process.stderr.read().decode())
            time.sleep(0.002)
        assert len(self.lines) >= count, f"{self.name} said nothing for {seconds} s"

    def kill(self) -> None:
        assert self.process.poll() is None, self.process.stderr.read().decode()
        self.process.send_signal(signal.SIGKILL)
        self.end()

    def end(self) -> None:
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait(30)
        self._reader.join(30)
        self.process.stdout.close()
        self.process.stderr.close()


@pytest.fixture(autouse=True)
def topic(root):
    with offsetlog.open(str(root)) as log:
        log.create_topic("t", partitions=3, config={"retention.ms": -1})


def stored(root: Path) -> tuple[dict[tuple[int, int], str], list[str]]:
    """Every record's mark by its place; and the marks as a list."""
    places = {}
    with offsetlog.open(str(root)) as log:
        with log.consumer(auto_offset_reset="earliest") as consumer:
            consumer.assign([("t", p) for p in range(3)])
            while found := consumer.poll(timeout=0, max_records=100_000):
                for record in found:
                    mark = record.value.rsplit(b"/", 1)[0].decode() + "/"
                    places[record.partition, record.offset] = mark
        [report] = log.verify("t")
        assert report.faults == ()
    return places, list(places.values())


def check(root: Path, workers: list[Worker]) -> None:
    places, marks = stored(root)
    assert len(marks) == len(set(marks)), "a record is there twice"
    acknowledged: dict[str, tuple[int, int]] = {}
    for worker in workers:
        for line in worker.lines:
            if line == "round":
                continue
            mark, partition, offset = line.split()
            at = (int(partition), int(offset))
            assert acknowledged.setdefault(mark, at) == at, "one batch was given two places"
    assert acknowledged
    for mark, at in acknowledged.items():
        assert places.get(at) == mark, f"{mark} was acknowledged at {at}"
    keyed: dict[str, int] = {}
    for mark in marks:
        if mark.startswith("keyed"):
            batch = mark.rsplit("/", 2)[0]
            keyed[batch] = keyed.get(batch, 0) + 1
    assert set(keyed.values()) <= {4}, "a part of a batch is there"
    for partition in range(3):
        order: dict[str, int] = {}
        for at in sorted(at for at in places if at[0] == partition):
            name, number, *_ = places[at].split("/")
            assert order.get(name, -1) <= int(number), "out of its sender's order"
            order[name] = int(number)


def test_what_was_acknowledged_survives_every_kill(root):
    chance = random.Random(5)
    everyone: list[Worker] = []
    killed = 0

    def start(role: str) -> Worker:
        name = "keyed" if role == "keyed" else f"{role}{len(everyone)}"
        everyone.append(Worker(role, root, name))
        return everyone[-1]

    roles = ["produce", "produce", "keyed", "maintain"]
    running = [start(role) for role in roles]
    try:
        while killed < KILLS:
            for i, worker in enumerate(running):
                worker.await_lines(1)
                time.sleep(chance.random() * 0.15)
                worker.kill()
                killed += 1
                running[i] = start(roles[i])
        for worker in running:
            worker.await_lines(1)
    finally:
        for worker in running:
            worker.end()
    check(root, everyone)
    leftovers = [p for p in root.rglob("*") if p.is_file() and p.name.startswith(".tmp")]
    assert len(leftovers) <= killed


def test_a_writer_that_stood_still_across_a_collection_without_grace(root):
    """SIGSTOP at any moment, a whole round of maintenance meanwhile, SIGCONT."""
    chance = random.Random(7)
    worker = Worker("produce", root, "produce")
    try:
        worker.await_lines(6)
        for _ in range(8):
            time.sleep(chance.random() * 0.05)
            worker.process.send_signal(signal.SIGSTOP)
            with offsetlog.open(str(root)) as log:
                log.maintain("t", grace_ms=0)
                log.maintain("t", grace_ms=0)
            before = len(worker.lines)
            worker.process.send_signal(signal.SIGCONT)
            worker.await_lines(before + 6)
    finally:
        worker.process.send_signal(signal.SIGCONT)
        worker.end()
    check(root, [worker])
