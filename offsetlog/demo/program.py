"""A process of the demo.

Invariants:

1. Each has a process group of its own: Ctrl-C reaches the demo, which then ends its processes.
2. It ends when its stdin does, so that it does not outlive a demo that was killed.
3. Its log goes to a file; only a failure shows the end of it.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path

LOG_LINES = 30
"""Lines of a log that a failure shows."""


class DemoFailed(Exception):
    """The story could not be played to its end. ``log``: the last lines of the program at fault."""

    def __init__(self, text: str, log: Sequence[str] = ()) -> None:
        super().__init__(text)
        self.log = log


class Program:
    """``python -m offsetlog.demo.<module> FOLDER NAME``; it can be restarted."""

    def __init__(self, module: str, name: str, folder: Path) -> None:
        self.name = name
        self.state = "not started"
        self.pid = 0
        self._log = folder / f"{name}.log"
        self._command = [sys.executable, "-m", f"offsetlog.demo.{module}", str(folder), name]
        self._process: subprocess.Popen[str] | None = None

    def start(self, state: str = "running", answers: bool = False, **environment: str) -> None:
        """Start it, or restart it."""
        self.kill()
        with open(self._log, "ab") as log:
            self._process = subprocess.Popen(
                self._command, stdin=subprocess.PIPE, stdout=subprocess.PIPE if answers else log,
                stderr=log, text=True, start_new_session=True, env={**os.environ, **environment},
            )  # fmt: skip
        self.state, self.pid = state, self._process.pid

    def request(self, line: str) -> None:
        assert self._process is not None and self._process.stdin is not None
        with suppress(BrokenPipeError):
            self._process.stdin.write(f"{line}\n")
            self._process.stdin.flush()

    def answer(self) -> str:
        """A line of its stdout; empty if it died before the line was complete."""
        assert self._process is not None and self._process.stdout is not None
        line = self._process.stdout.readline()
        return line if line.endswith("\n") else ""

    def kill(self, state: str = "KILLED") -> None:
        """SIGKILL it with everything that it started."""
        process, self._process, self.state = self._process, None, state
        if process is not None:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
            for pipe in (process.stdin, process.stdout):
                with suppress(OSError):
                    pipe and pipe.close()

    def end(self) -> None:
        """Close its stdin, and give it time to finish."""
        if self._process is None:
            return
        process, self.state = self._process, "ended"
        with suppress(OSError, subprocess.TimeoutExpired):
            process.stdin and process.stdin.close()
            process.wait(20)
        status = process.poll()
        self.kill(f"failed ({status})" if status != 0 else "ended")

    def check(self) -> None:
        """An error if it ended by itself."""
        status = self._process.poll() if self._process is not None else None
        if status is not None and self.state in ("starting", "running"):
            raise DemoFailed(f"{self.name} ended with status {status}.", self.log())

    def log(self) -> list[str]:
        """The last lines that it wrote."""
        if not self._log.exists():
            return []
        return self._log.read_text(errors="replace").splitlines()[-LOG_LINES:]


def when_stdin_ends(callback: Callable[[], object]) -> None:
    """Called by the programs themselves."""

    def wait() -> None:
        sys.stdin.read()
        callback()

    threading.Thread(target=wait, daemon=True).start()
