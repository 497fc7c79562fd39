"""Runs some writers at once, each a fresh process, over the same stretch of time.

1. All begin at one moment, after each said that it is ready: start-up is no part of a figure.
2. They end by themselves; one that does not is ended by its process id.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent.parent
GRACE_SECONDS = 60.0


def run_writers(
    module: str, count: int, seconds: float, *arguments: object
) -> list[dict[str, Any]]:
    """What each of ``count`` processes of ``python -m module seconds arguments`` measured."""
    command = [sys.executable, "-m", module, str(seconds), *map(str, arguments)]
    writers = [
        subprocess.Popen(
            command,
            cwd=HERE,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for _ in range(count)
    ]
    try:
        for writer in writers:
            assert writer.stdout is not None
            if writer.stdout.readline().strip() != "ready":
                raise RuntimeError(f"{module} did not start:\n{writer.communicate()[1][-2000:]}")
        for writer in writers:
            assert writer.stdin is not None
            writer.stdin.write("go\n")
            writer.stdin.flush()
        return [_answer(module, writer, seconds) for writer in writers]
    finally:
        for writer in writers:
            if writer.poll() is None:
                writer.kill()
                writer.wait()


def _answer(module: str, writer: subprocess.Popen[str], seconds: float) -> dict[str, Any]:
    out, errors = writer.communicate(timeout=seconds + GRACE_SECONDS)
    if writer.returncode:
        raise RuntimeError(f"{module} failed:\n{errors[-2000:]}")
    answer: dict[str, Any] = json.loads(out.strip().splitlines()[-1])
    return answer


def wait_for_start() -> None:
    """In a writer: say that it is ready, and wait until all are."""
    sys.stdout.write("ready\n")
    sys.stdout.flush()
    sys.stdin.readline()


def tell(answer: dict[str, Any]) -> None:
    """In a writer: hand over what was measured."""
    sys.stdout.write(json.dumps(answer) + "\n")
    sys.stdout.flush()
