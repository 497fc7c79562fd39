"""Planners as forks of one process: what Spark sees of them; no Spark runs here."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import pyspark
import pytest

import pyspark_offsetlog
from pyspark_offsetlog.runtime.termination import RUNNER

LAUNCH = Path(pyspark_offsetlog.__file__).parent / "runtime" / "planner_launch.py"
ROOT = LAUNCH.parents[3]
LIB = Path(pyspark.__file__).parent / "python" / "lib"
PATH = os.pathsep.join([*map(str, sorted(LIB.glob("*.zip"))), str(ROOT), str(LAUNCH.parents[2])])
ENVIRONMENT = {**os.environ, "PYTHONPATH": PATH, "OPENBLAS_NUM_THREADS": "1"}


@pytest.fixture
def place() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        yield Path(folder) / "planners"


def started(place: Path, *arguments: str, **environment: str) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [sys.executable, str(LAUNCH), str(place), *arguments],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env={**ENVIRONMENT, **environment},
    )


@pytest.fixture
def server(place: Path) -> Iterator[subprocess.Popen[bytes]]:
    server = started(place, "--serve")
    yield server
    end(server)


def end(process: subprocess.Popen[bytes]) -> None:
    process.kill()
    process.wait()
    for stream in (process.stdin, process.stdout, process.stderr):
        stream.close()


class Jvm:
    """What Spark listens with for the Python that it has started."""

    def __init__(self) -> None:
        self._planners: list[socket.socket] = []
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._listener.settimeout(60)
        self.environment = {
            "PYTHON_WORKER_FACTORY_PORT": str(self._listener.getsockname()[1]),
            "PYTHON_WORKER_FACTORY_SECRET": "s3cret",
            "SPARK_AUTH_SOCKET_TIMEOUT": "60",
            "SPARK_BUFFER_SIZE": "65536",
        }

    def meet(self) -> tuple[socket.socket, int]:
        """The connection of a planner that knows the secret, and its process id."""
        connection, _ = self._listener.accept()
        self._planners.append(connection)
        connection.settimeout(60)
        size = int.from_bytes(connection.recv(4, socket.MSG_WAITALL), "big")
        assert connection.recv(size, socket.MSG_WAITALL) == b"s3cret"
        connection.sendall((2).to_bytes(4, "big") + b"ok")
        return connection, int.from_bytes(connection.recv(4, socket.MSG_WAITALL), "big")

    def end(self) -> None:
        for each in (*self._planners, self._listener):
            each.close()


@pytest.fixture
def jvm() -> Iterator[Jvm]:
    jvm = Jvm()
    yield jvm
    jvm.end()


def parent_of(process: int) -> int:
    return int(Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[1])


def is_gone(process: int) -> bool:
    for _ in range(600):
        try:
            state = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0]
        except (FileNotFoundError, ProcessLookupError):
            return True
        if state == "Z":
            return True
        time.sleep(0.1)
    return False


def test_the_server_is_last_and_removes_its_folder(
    place: Path, server: subprocess.Popen[bytes]
) -> None:
    script = place.with_name("python")
    script.write_text("#!/bin/sh\n")
    while not place.exists():
        time.sleep(0.01)
    server.stdin.close()  # As the JVM's end does, however it ends.
    assert server.wait(60) == 0
    assert not place.parent.exists()


def test_a_planner_is_a_fork(place: Path, jvm: Jvm, server: subprocess.Popen[bytes]) -> None:
    launcher = started(place, "-m", RUNNER, **jvm.environment)
    connection, planner = jvm.meet()
    assert parent_of(planner) == server.pid
    for name in ("cwd", "fd/0", "fd/1", "fd/2"):
        assert os.readlink(f"/proc/{planner}/{name}") == os.readlink(f"/proc/{launcher.pid}/{name}")
    connection.close()
    launcher.communicate(timeout=60)
    assert launcher.returncode == 255, "as the planner's, which met the end of its input"
    assert is_gone(planner) and server.poll() is None


def test_a_planner_goes_with_who_asked_for_it(
    place: Path, jvm: Jvm, server: subprocess.Popen[bytes]
) -> None:
    launcher = started(place, "-m", RUNNER, **jvm.environment)
    _, planner = jvm.meet()
    launcher.send_signal(signal.SIGTERM)
    launcher.communicate(timeout=60)
    assert is_gone(planner) and server.poll() is None


def test_all_planners_go_with_the_jvm(
    place: Path, jvm: Jvm, server: subprocess.Popen[bytes]
) -> None:
    launchers = [started(place, "-m", RUNNER, **jvm.environment) for _ in range(2)]
    planners = [jvm.meet()[1] for _ in launchers]
    assert os.stat(place).st_mode & 0o777 == 0o600
    server.stdin.close()
    assert server.wait(60) == 0 and not place.exists()
    assert all(is_gone(planner) for planner in planners)
    for launcher in launchers:
        launcher.communicate(timeout=60)


@pytest.mark.parametrize("why", ["no server", "another path"])
def test_without_a_server_it_starts_by_itself(place: Path, jvm: Jvm, why: str) -> None:
    """From the installed PySpark, not from Spark's archive."""
    environment = dict(jvm.environment)
    server = None
    if why == "another path":
        server = started(place, "--serve")
        environment["PYTHONPATH"] = f"{PATH}{os.pathsep}{place.parent}"
    launcher = started(place, "-m", RUNNER, **environment)
    connection, planner = jvm.meet()
    assert planner == launcher.pid
    files = {os.readlink(path) for path in Path(f"/proc/{planner}/fd").iterdir()}
    assert not any(name.endswith("pyspark.zip") for name in files)
    connection.close()
    launcher.communicate(timeout=60)
    if server is not None:
        end(server)
