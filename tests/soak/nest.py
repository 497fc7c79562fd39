"""Where the campaign's processes come from: one that has imported everything, and forks.

A fresh interpreter takes a second or two to import what a worker needs, and most of a campaign
would be that. The nest has no threads, connections or open logs; each worker opens its own.

1. A process is held by a descriptor, never by its number: a signal can't reach another one.
2. The nest's end, which is the end of its standard input, is the end of all its workers.
"""

from __future__ import annotations

import json
import os
import select
import signal
import subprocess
import sys
import traceback
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]


class Hatched:
    """A running worker."""

    def __init__(self, pid: int) -> None:
        self._fd = os.pidfd_open(pid)

    @property
    def is_running(self) -> bool:
        return self._fd >= 0 and not select.select([self._fd], [], [], 0)[0]

    def send(self, number: signal.Signals) -> None:
        if self.is_running:
            signal.pidfd_send_signal(self._fd, number)

    def kill(self) -> None:
        if self._fd < 0:
            return
        self.send(signal.SIGKILL)
        select.select([self._fd], [], [], 30)
        os.close(self._fd)
        self._fd = -1


class Nest:
    def __enter__(self) -> Nest:
        self._child = subprocess.Popen(
            [sys.executable, "-m", "tests.soak.nest"], stdin=subprocess.PIPE,
            stdout=subprocess.PIPE, cwd=ROOT, env={**os.environ, "PYTHONPATH": str(ROOT)},
        )  # fmt: skip
        return self

    def hatch(self, orders: dict[str, Any]) -> Hatched:
        assert self._child.stdin is not None and self._child.stdout is not None
        # By a pipe: options hold credentials, and a command line is everybody's to read.
        self._child.stdin.write(json.dumps(orders).encode() + b"\n")
        self._child.stdin.flush()
        return Hatched(int(self._child.stdout.readline()))

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        assert self._child.stdin is not None and self._child.stdout is not None
        self._child.stdin.close()
        self._child.wait(30)
        self._child.stdout.close()


def _become(orders: dict[str, Any]) -> None:
    """In the forked process: nothing of the nest is left but what it imported."""
    from tests.soak import worker

    code = 1
    try:
        errors = os.open(orders["errors"], os.O_CREAT | os.O_WRONLY | os.O_APPEND, 0o644)
        null = os.open(os.devnull, os.O_RDONLY)
        os.dup2(null, 0)
        os.dup2(errors, 1)
        os.dup2(errors, 2)
        worker.live(orders)
        code = 0
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stderr.flush()
        os._exit(code)


def main() -> None:
    import deltalake  # noqa: F401
    import pyarrow.parquet  # noqa: F401

    import offsetlog.client.log  # noqa: F401
    import tests.simulation.mutations  # noqa: F401
    from tests.soak import worker  # noqa: F401

    pids: list[int] = []
    for line in sys.stdin.buffer:
        orders = json.loads(line)
        if not pids and orders["url"].startswith(("s3:", "gs:", "abfs:")):
            _warm(orders["url"])
        if not (pid := os.fork()):
            _become(orders)
        pids.append(pid)
        print(pid, flush=True)
        # Nobody else waits for them; until then a number can't be another process's.
        pids = [p for p in pids if p == pid or not os.waitpid(p, os.WNOHANG)[0]]
    for pid in pids:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)


def _warm(url: str) -> None:
    """Import the client library of a storage, without a loop or a thread."""
    if url.startswith("s3:"):
        import s3fs  # noqa: F401
    elif url.startswith("gs:"):
        import gcsfs  # noqa: F401
    else:
        import adlfs  # noqa: F401


if __name__ == "__main__":
    main()
