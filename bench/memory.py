"""Memory of a piece of work, measured where nothing else lives: in a fresh process.

The figure is VmHWM. ``ru_maxrss`` would not do: a child inherits its parent's.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent.parent


def high_water_mb(pid: int | str = "self") -> float:
    """The most memory that this process, or another, has held."""
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) / 1024
    raise RuntimeError("this kernel shows no VmHWM")


def in_fresh_process(module: str, *arguments: object, timeout: float = 600) -> Any:
    """Run ``python -m module arguments`` and return the JSON that its last line holds."""
    done = subprocess.run(
        [sys.executable, "-m", module, *map(str, arguments)],
        cwd=HERE,
        capture_output=True,
        text=True,
        timeout=timeout,
        check=False,
    )
    if done.returncode:
        raise RuntimeError(f"{module} failed:\n{done.stderr[-2000:]}")
    return json.loads(done.stdout.strip().splitlines()[-1])
