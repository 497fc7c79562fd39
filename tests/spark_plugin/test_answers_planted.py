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


@pytest.mark.spark
@pytest.mark.parametrize("bug", [name for name, bug in PLANTED.items() if bug.beside])
def test_a_bug_planted_in_spark_is_found(bug: str) -> None:
    words = ["answers", "--planted", bug, "--seeds", f"1:{HISTORIES}", "--failures", "1"]
    program = [sys.executable, "-m", "tests.generators", *words]
    done = subprocess.run(program, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 1 and "violations: 1" in done.stdout, done.stdout + done.stderr
    assert "Differences: Spark: " in done.stdout, "it was found, or failed, without Spark"
