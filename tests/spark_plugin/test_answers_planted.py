"""Bugs planted in what Spark starts, its JVM and its Pythons, are found by the generator
``answers``. Each has a session of its own."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.generators.answers import PLANTED

ROOT = Path(__file__).parents[2]
HISTORIES = 30
LOOK = """
import sys
import tempfile
from pathlib import Path

from tests.generators.answers import PLANTED, Differences, run, surroundings
from tests.generators.answers.world import World

with PLANTED[sys.argv[1]].plant(), surroundings(), tempfile.TemporaryDirectory() as folder:
    for seed in range(1, int(sys.argv[2]) + 1):
        try:
            run(World(seed, Path(folder) / str(seed)), {})
        except Differences as error:
            sys.exit(f"found after {seed}: {error}")
"""
"""Spark alone is asked."""


@pytest.mark.spark
@pytest.mark.parametrize("bug", [name for name, bug in PLANTED.items() if bug.beside])
def test_a_bug_planted_in_spark_is_found(bug: str) -> None:
    program = [sys.executable, "-c", LOOK, bug, str(HISTORIES)]
    done = subprocess.run(program, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 1 and "found after " in done.stderr, done.stdout + done.stderr
    assert ": Spark: " in done.stderr, "it was found, or failed, without Spark"
