"""A driver that is killed at any moment, many times: every record is there once.

``OFFSETLOG_SINK_KILLS`` sets how many drivers are killed (3), ``OFFSETLOG_SINK_SECONDS`` for how
long at most the test begins another one (45)."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import offsetlog
from tests.spark_plugin.sink_driver import ROWS
from tests.spark_plugin.written import records
from tests.waiting import until

KILLS = int(os.environ.get("OFFSETLOG_SINK_KILLS", "3"))
SECONDS = float(os.environ.get("OFFSETLOG_SINK_SECONDS", "45"))
DRIVER = Path(__file__).with_name("sink_driver.py")
REPO = DRIVER.parents[2]


def start(root: Path, checkpoint: Path, seed: int) -> subprocess.Popen[bytes]:
    env = {**os.environ, "PYTHONPATH": str(REPO), "PYSPARK_PYTHON": sys.executable}
    return subprocess.Popen(
        [sys.executable, str(DRIVER), str(root), str(checkpoint), str(seed)],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        env=env,
        start_new_session=True,
    )


def kill(driver: subprocess.Popen[bytes]) -> None:
    """The driver, its JVM and its workers, at once."""
    os.killpg(driver.pid, signal.SIGKILL)
    driver.wait(30)
    assert driver.stdout is not None
    driver.stdout.close()


def batches_in(checkpoint: Path, folder: str) -> int:
    """How many batches Spark has planned, or finished."""
    return sum(path.name.isdigit() for path in (checkpoint / folder).glob("*"))


def test_every_record_is_there_once_however_often_the_driver_dies(tmp_path: Path) -> None:
    root, checkpoint = tmp_path / "log", tmp_path / "checkpoint"
    with offsetlog.open(str(root)) as log:
        for topic in ("even", "odd"):
            log.create_topic(topic, partitions=2, config={"retention.ms": -1})
    chance = random.Random(11)
    end = time.monotonic() + SECONDS
    killed = 0
    while killed < KILLS and (killed == 0 or time.monotonic() < end):
        before = batches_in(checkpoint, "commits")
        driver = start(root, checkpoint, killed)
        try:
            until(
                lambda: driver.poll() is not None or batches_in(checkpoint, "commits") > before,
                240,
            )
            assert driver.poll() is None, "the query ended by itself"
            time.sleep(chance.random() * 1.5)
        finally:
            kill(driver)
        killed += 1
    _check(root, checkpoint)


def _check(root: Path, checkpoint: Path) -> None:
    done, planned = batches_in(checkpoint, "commits"), batches_in(checkpoint, "offsets")
    assert 0 < done <= planned <= done + 1
    for topic, odd in (("even", 0), ("odd", 1)):
        found = records(root, topic)
        numbers = [int(record.value.rstrip(b"-")) for record in found]
        assert len(numbers) == len(set(numbers)), "a record is there twice"
        assert all(record.key == b"%d" % n for record, n in zip(found, numbers, strict=True))
        by_batch = [_batch(i, odd) for i in range(planned)]
        finished = set().union(*by_batch[:done])
        # The batch that was on its way is there as a whole, or not at all.
        assert set(numbers) - finished in (set(), set().union(*by_batch[done:]))
        assert finished <= set(numbers), "a record is lost"


def _batch(number: int, odd: int) -> set[int]:
    """What the driver sends of one micro-batch to one topic."""
    count = ROWS if number % 3 == 0 else 60
    return {n for n in range(number * ROWS, number * ROWS + count) if n % 2 == odd}
