"""A planner that is ended at any moment gives its group up, whether or not its line is cut.

No Spark runs here: each planner is a fork of one process that has loaded the reader, which calls
it as Spark's runner does."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

import pyspark_offsetlog

PLUGIN = Path(pyspark_offsetlog.__file__).parents[1]
PLANNERS = '''
import os, select, signal, sys, time
from types import SimpleNamespace
import offsetlog
from pyspark_offsetlog.datasource import OffsetLogDataSource
from pyspark_offsetlog.lines.classes import STARTS_ARE_GIVEN
from pyspark_offsetlog.runtime import termination

folder, rounds, cut = sys.argv[1], int(sys.argv[2]), sys.argv[3] == "cut"
sys.modules["__main__"].__spec__ = SimpleNamespace(name=termination.RUNNER)
termination.PATIENCE = 0.2

def plan(root, line):
    """As Spark's runner, until the line is cut."""
    options = {"path": root, "subscribe": "t", "startingOffsets": "earliest", "group.id": "g"}
    source = OffsetLogDataSource(options)
    reader = source.streamReader(source.schema())
    try:
        at = reader.initialOffset()
        while not select.select([line], [], [], 0)[0] or os.read(line, 1):
            end = reader.latestOffset(at, None) if STARTS_ARE_GIVEN else reader.latestOffset()
            if end != at:
                reader.partitions(at, end)
            at = end
        raise EOFError
    finally:
        reader.stop()

def lag(root):
    try:
        with offsetlog.open(root) as log:
            return log.group("g").lag()[("t", 0)]
    except (offsetlog.OffsetLogError, KeyError):
        return None

for number in range(rounds):
    root = f"{folder}/{number}"
    ours, line = os.pipe()
    planner = os.fork()
    if not planner:
        os.close(line)
        with offsetlog.open(root) as log, log.producer() as producer:
            log.create_topic("t", partitions=1)
            producer.send("t", b"v")
        try:
            plan(root, ours)
        finally:
            os._exit(1)
    os.close(ours)
    while lag(root) != 0:
        time.sleep(0.002)
    time.sleep(number % 4 * 0.003)
    os.kill(planner, signal.SIGTERM)
    if cut:
        os.kill(planner, signal.SIGTERM)
        os.close(line)
    status = os.waitstatus_to_exitcode(os.waitpid(planner, 0)[1])
    if not cut:
        os.close(line)
    with offsetlog.open(root) as log:
        print(status, len(log.group("g").describe().members), flush=True)
'''


@pytest.mark.every_line
@pytest.mark.parametrize("line", ["cut", "kept"])
def test_a_planner_that_is_terminated_gives_its_group_up(tmp_path: Path, line: str) -> None:
    rounds = 12 if line == "cut" else 4
    path = os.pathsep.join([str(PLUGIN), str(PLUGIN.parent)])
    run = subprocess.run(
        [sys.executable, "-c", PLANNERS, str(tmp_path), str(rounds), line],
        env={**os.environ, "PYTHONPATH": path},
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert run.stdout.splitlines() == ["0 0"] * rounds, run.stderr
