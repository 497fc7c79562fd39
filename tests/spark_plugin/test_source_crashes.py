"""The driver is killed at random moments, again and again, and every record is counted.

``OFFSETLOG_SPARK_CRASH_SECONDS`` says for how long (40 by default)."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from collections import defaultdict
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq

from tests.spark_plugin.live import fill, lags, opened
from tests.waiting import until

SECONDS = float(os.environ.get("OFFSETLOG_SPARK_CRASH_SECONDS", "40"))
SEED = int(os.environ.get("OFFSETLOG_SEED", str(random.randrange(10**6))))
DRIVER = Path(__file__).with_name("crash_driver.py")
REPOSITORY = Path(__file__).resolve().parents[2]


class Driver:
    """The driver's process with all that it starts."""

    def __init__(self, place: Path, ends: str = "no") -> None:
        self._ready = place / "ready"
        self._ready.unlink(missing_ok=True)
        arguments = [str(place / name) for name in ("log", "out", "checkpoint")]
        path = os.pathsep.join([str(REPOSITORY), os.environ.get("PYTHONPATH", "")])
        with (place / "driver.err").open("ab") as errors:
            self.process = subprocess.Popen(
                [sys.executable, str(DRIVER), *arguments, ends],
                env={**os.environ, "PYTHONPATH": path},
                stdout=subprocess.DEVNULL,
                stderr=errors,
                start_new_session=True,
            )

    def ready(self) -> None:
        until(lambda: self._ready.exists() or self.process.poll() is not None, 120)
        assert self.process.poll() is None

    def kill(self) -> None:
        os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()


def _finished(place: Path) -> int:
    return len(list(place.glob("out/*/_SUCCESS")))


def _attempts(out: Path) -> dict[int, list[list[tuple[int, int, bytes]]]]:
    """The rows of every attempt at each batch that came to its end."""
    found: dict[int, list[list[tuple[int, int, bytes]]]] = defaultdict(list)
    for folder in sorted(out.glob("*-*")):
        if not (folder / "_SUCCESS").exists():
            continue
        rows: list[tuple[int, int, bytes]] = []
        for file in folder.glob("*.parquet"):
            rows += [tuple(row.values()) for row in pq.read_table(file).to_pylist()]
        found[int(folder.name.split("-")[0])].append(sorted(rows))
    return found


def test_every_record_is_read_once_whatever_was_killed(tmp_path: Path) -> None:
    print(f"OFFSETLOG_SEED={SEED}")
    chance = random.Random(SEED)
    (tmp_path / "out").mkdir()
    (tmp_path / "checkpoint").mkdir()
    with opened(tmp_path) as log:
        log.create_topic("orders", partitions=2)
        fill(log, "orders", {0: 3})
        end = time.monotonic() + SECONDS
        kills = 0
        while kills < 2 or time.monotonic() < end:
            driver = Driver(tmp_path)
            try:
                driver.ready()
                if kills == 0:
                    # The query starts at "latest": it must have looked before anything comes.
                    until(lambda: "g" in log.groups(), 120)
                    time.sleep(0.5)
                wanted = _finished(tmp_path) + chance.randrange(3)
                stop = time.monotonic() + 60
                working = False
                while time.monotonic() < stop:
                    fill(log, "orders", {chance.randrange(2): chance.randrange(1, 40)})
                    if not working and _finished(tmp_path) > wanted:
                        # It is at work now: from here on any moment is as good as another.
                        working, stop = True, time.monotonic() + chance.uniform(0.0, 1.5)
                    if chance.random() < 0.05:
                        log.maintain(grace_ms=0)
                    time.sleep(chance.uniform(0.0, 0.2))
            finally:
                driver.kill()
            kills += 1
        fill(log, "orders", {0: 5, 1: 5})
        driver = Driver(tmp_path, ends="yes")
        try:
            assert driver.process.wait(180) == 0, (tmp_path / "driver.err").read_text()[-4000:]
        finally:
            if driver.process.poll() is None:
                driver.kill()
        attempts = _attempts(tmp_path / "out")
        again = sum(len(each) > 1 for each in attempts.values())
        print(f"{kills} kills, {len(attempts)} batches, {again} of them run again")
        _check(attempts, log)


def _check(attempts: dict[int, list[list[tuple[int, int, bytes]]]], log: Any) -> None:
    assert sorted(attempts) == [*range(len(attempts))], "a batch left no trace"
    at: dict[int, int] = {}
    for batch in sorted(attempts):
        first, *again = attempts[batch]
        assert all(rows == first for rows in again), f"batch {batch} read other rows when re-run"
        for partition, offset, value in first:
            assert offset == at.get(partition, 3 if partition == 0 else 0), batch
            assert value == b"orders-%d-%d" % (partition, offset)
            at[partition] = offset + 1
    assert at == log.topic("orders").end_offsets()
    assert lags(log) == {("orders", 0): 0, ("orders", 1): 0}
