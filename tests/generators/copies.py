"""Copies that are ended by SIGKILL at random moments, while their source is written to and
maintained without grace, and started again.

1. Whenever a run is done the copy is sound.
2. When the source rests, one more run makes the copy its equal: records with their offsets, groups
   with positions, generations and reset numbers.
3. A copy's Delta table never has fewer of the log's records than before, and exactly those once its
   source was maintained and copied; histories of this kind (every third) are not killed.
"""

from __future__ import annotations

import random
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from unittest import mock

import offsetlog
from offsetlog.core.topic.state import TopicState
from offsetlog.engine.topic.topic_table import TopicTable
from tests.engine.copy import tables
from tests.engine.copy.sameness import contents, is_sound, live
from tests.generators.registry import OPERATIONS, Bug

KILLS, TABLE_ROUNDS = 3, 8
REPOSITORY = Path(__file__).parents[2]
_planted: list[str] = []


def copy_until(source: str, target: str, seconds: float | None) -> bool:
    """One run, killed after so long; whether it was done before."""
    program = [sys.executable, "-m", "tests.engine.copy.killed", source, target, *_planted]
    child = subprocess.Popen(
        program, cwd=REPOSITORY, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    try:
        assert child.stdout is not None and child.stderr is not None
        assert child.stdout.readline() == "ready\n", child.stderr.read()
        try:
            child.wait(seconds)
        except subprocess.TimeoutExpired:
            return False
        assert child.returncode == 0, child.stderr.read()
        return True
    finally:
        child.kill()
        child.communicate()


def history(seed: int, folder: Path) -> Counter[str]:
    """One history; what is wrong is raised."""
    rng = random.Random(seed)
    if seed % 3 == 2:
        tables.history(rng, folder, TABLE_ROUNDS)
        return Counter({OPERATIONS: TABLE_ROUNDS})
    source, target = str(folder / "log"), str(folder / "copy")
    counts = Counter[str]()
    with offsetlog.open(source) as log:
        log.create_topic("a", partitions=2)
        with log.producer() as producer:
            for _ in range(rng.choice((3, 30))):
                producer.send("a", rng.randbytes(300_000)).result()
        live(log, rng, 8)
        ended = threading.Event()

        def use() -> None:
            while not ended.wait(0.05):
                live(log, rng, 1)

        user = threading.Thread(target=use)
        user.start()
        try:
            for _ in range(KILLS):
                counts[OPERATIONS] += 1
                if copy_until(source, target, random.Random(rng.random()).uniform(0, 1.0)):
                    is_sound(target)
                else:
                    counts["killed"] += 1
        finally:
            ended.set()
            user.join()
        counts[OPERATIONS] += 1
        assert copy_until(source, target, None)
    is_sound(target)
    assert contents(target) == contents(source), "the copy is not its source's equal"
    return counts


# --- planted bugs --------------------------------------------------------------------------


@contextmanager
def _entries_before_segments() -> Iterator[None]:
    """A copy that is not killed does not show it."""
    _planted.append("entries before segments")
    try:
        yield
    finally:
        _planted.clear()


@contextmanager
def _planned_from_nothing() -> Iterator[None]:
    """What blocks a step of a copy's table is replaced, whatever that takes away."""

    def reachable(self: TopicTable, old: TopicState, ends: Any, newest: TopicState) -> Any:
        return newest, self._replacement(old, ends, newest), True

    with mock.patch.object(TopicTable, "_reachable", reachable):
        yield


PLANTED = {
    "entries are copied before their segments": Bug(_entries_before_segments),
    "a copy's table is planned from nothing": Bug(_planned_from_nothing),
}
