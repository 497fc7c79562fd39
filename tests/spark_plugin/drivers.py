"""Starting a Spark driver of its own, and hearing what it has to tell."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tests.servers.process import GUARD, ROOT
from tests.spark_plugin.story import told_by

IVY = ROOT / ".cache" / "ivy"


def drive(
    program: str, place: Path, *arguments: object, seconds: float = 500, chosen: bool = True
) -> dict[str, Any]:
    """Run a program of ``tests/spark_plugin/programs`` to its end, with the test's own at
    the latest; what it reported. Spark's Python is this one, or not chosen."""
    env = {
        **os.environ,
        "PYTHONPATH": str(ROOT),
        "PYSPARK_PYTHON": sys.executable,
        "PYSPARK_DRIVER_PYTHON": sys.executable,
        "STARTED_IN": str(place),
    }
    if not chosen:
        del env["PYSPARK_PYTHON"], env["PYSPARK_DRIVER_PYTHON"]
    given = [json.dumps(a) if isinstance(a, Mapping) else str(a) for a in arguments]
    output = place / "output.log"
    with output.open("wb") as out:
        child = subprocess.Popen(
            [sys.executable, str(GUARD), sys.executable, "-m",
             f"tests.spark_plugin.programs.{program}",
             *given, str(place)],
            stdout=out,
            stderr=subprocess.STDOUT,
            stdin=subprocess.PIPE,
            cwd=place,
            env=env,
            start_new_session=True,
        )  # fmt: skip
        try:
            status = child.wait(timeout=seconds)
        finally:
            end(child)
    said = output.read_text(errors="replace")
    assert status == 0, said[-4000:]
    return told_by(said)


def end(child: subprocess.Popen[bytes]) -> None:
    """The driver, and the JVM that it started."""
    import contextlib
    import signal

    with contextlib.suppress(ProcessLookupError):
        os.killpg(child.pid, signal.SIGKILL)
    child.wait(timeout=10)
    if child.stdin is not None:
        child.stdin.close()
