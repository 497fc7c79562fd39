"""Starting a server, waiting for it, ending it.

1. ``start`` returns when the server answers, or fails with the end of what it printed.
2. ``stop`` ends the process group and removes the folder; it may be called twice.
"""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
GUARD = Path(__file__).with_name("guard.py")


def free_port(below: int = 65000) -> int:
    """A port that nobody listens on. Some servers also take the one 10,000 above."""
    while True:
        with socket.socket() as one:
            one.bind(("127.0.0.1", 0))
            port: int = one.getsockname()[1]
        if port < below:
            return port


def program(name: str) -> str:
    """A program of the running environment, or of the one whose packages it has, as that of a
    line of Spark."""
    own, shared = Path(sys.executable).parent, Path(pytest.__file__).parents[4] / "bin"
    beside = [str(folder / name) for folder in (own, shared) if (folder / name).exists()]
    found = beside[0] if beside else shutil.which(name)
    if found is None:
        raise RuntimeError(f"{name} is not installed; the tests' requirements bring it.")
    return found


def listens(port: int) -> bool:
    with socket.socket() as one:
        one.settimeout(1)
        return one.connect_ex(("127.0.0.1", port)) == 0


def answers(url: str) -> bool:
    try:
        urllib.request.urlopen(url, timeout=2).close()
    except urllib.error.HTTPError:
        return True
    except OSError:
        return False
    return True


class Server:
    """A child process with a folder of its own."""

    def __init__(
        self,
        command: Callable[[Path], Sequence[str]],
        ready: Callable[[], bool],
        *,
        seconds: float = 60,
        env: Mapping[str, str] | None = None,
    ) -> None:
        self._command = command
        self._ready = ready
        self._seconds = seconds
        self._env = {**os.environ, "PYTHONPATH": str(ROOT), **(env or {})}
        self._child: subprocess.Popen[bytes] | None = None
        self.folder = Path()

    def start(self) -> Server:
        self.folder = Path(tempfile.mkdtemp(prefix="offsetlog-server-"))
        log = self.folder / "output.log"
        with log.open("wb") as output:
            self._child = subprocess.Popen(
                [sys.executable, str(GUARD), *self._command(self.folder)],
                stdin=subprocess.PIPE,
                stdout=output,
                stderr=subprocess.STDOUT,
                cwd=self.folder,
                env=self._env,
                start_new_session=True,
            )
        deadline = time.monotonic() + self._seconds
        while not self._ready():
            ended = self._child.poll() is not None
            if ended or time.monotonic() > deadline:
                said = log.read_text(errors="replace")[-2000:]
                self.stop()
                raise RuntimeError(f"The server did not start: {said}")
            time.sleep(0.1)
        return self

    @property
    def pid(self) -> int:
        assert self._child is not None
        return self._child.pid

    def stop(self) -> None:
        child, self._child = self._child, None
        if child is None:
            return
        assert child.stdin is not None
        with suppress(ProcessLookupError):
            os.killpg(child.pid, signal.SIGTERM)
        with suppress(subprocess.TimeoutExpired):
            child.wait(timeout=5)
        # A server that is still there is killed by the guard, which waits for its end: a signal to
        # the whole group would end the guard first, and the server's ports a moment later.
        child.stdin.close()
        with suppress(subprocess.TimeoutExpired):
            child.wait(timeout=5)
        with suppress(ProcessLookupError):
            os.killpg(child.pid, signal.SIGKILL)
        child.wait(timeout=5)
        shutil.rmtree(self.folder, ignore_errors=True)


class Place:
    """A root on a server: what ``open_store`` takes, and where its HTTP can be met."""

    def __init__(self, url: str, options: Mapping[str, object], http_port: int = 0) -> None:
        self.url = url
        self.options = dict(options)
        self.http_port = http_port

    def __iter__(self):  # type: ignore[no-untyped-def]
        """So that ``url, storage_options = place`` works."""
        return iter((self.url, self.options))
