"""What Spark's driver asks of an object store to plan a batch query, in a process of its own."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
MOST = {"requests_spark_plan": 10}
"""One of them looks whether the chain reaches its newest snapshot; one reads the root's id, which
the tasks compare with what they see, and which a process that plans again has."""


@pytest.mark.spark
def test_requests_of_a_plan_do_not_grow(tmp_path: Path) -> None:
    results = tmp_path / "results.json"
    command = [sys.executable, "-m", "bench", "--short", "--rounds", "1"]
    command += ["--only", "spark_plan_requests", "--results", str(results)]
    done = subprocess.run(
        command, cwd=ROOT, capture_output=True, text=True, timeout=600, check=False
    )
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-2000:]
    rows = {row["name"]: row["ours"] for row in json.loads(results.read_text())}
    grown = {name: (rows[name], most) for name, most in MOST.items() if rows[name] > most}
    assert not grown, f"figure: (now, the most that it may be): {grown}"
