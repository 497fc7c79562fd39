"""The tests' own servers: they end with all they started, and leave nothing."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pytest

from offsetlog.storage import open_store
from tests.servers import latency_s3, seaweedfs
from tests.servers.process import ROOT, Server, free_port, listens
from tests.waiting import until


def _alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except FileNotFoundError:
        return False


def test_a_stopped_server_leaves_nothing() -> None:
    port = free_port()
    command = [sys.executable, "-m", "http.server", str(port), "--bind", "127.0.0.1"]
    server = Server(lambda _: command, lambda: listens(port)).start()
    pid, folder = server.pid, server.folder
    assert folder.exists()
    server.stop()
    server.stop()
    until(lambda: not _alive(pid), 10)
    assert not listens(port)
    assert not folder.exists()


STUBBORN = """
import signal, socket, sys
signal.signal(signal.SIGTERM, signal.SIG_IGN)
held = bytearray(300_000_000)  # much to give back, which takes the kernel a while
held[::4096] = bytes(len(held[::4096])).replace(b"\\0", b"x")
door = socket.create_server(("127.0.0.1", int(sys.argv[1])))
while True:
    door.accept()[0].close()
"""


def test_the_port_of_a_server_that_must_be_killed_is_free_at_once() -> None:
    port = free_port()
    command = [sys.executable, "-c", STUBBORN, str(port)]
    Server(lambda _: command, lambda: listens(port)).start().stop()
    assert not listens(port)


def test_a_real_server_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    with seaweedfs.running() as place:
        assert len(list(tmp_path.iterdir())) == 1
        open_store(f"{place.url}/x", **place.options).put("a", b"x" * 100_000)
    assert list(tmp_path.iterdir()) == []
    assert not listens(place.http_port)


def test_a_server_that_does_not_start_says_why() -> None:
    command = [sys.executable, "-c", "raise SystemExit('no such luck')"]
    with pytest.raises(RuntimeError, match="no such luck"):
        Server(lambda _: command, lambda: False, seconds=10).start()


def test_a_server_ends_with_the_tests_that_were_killed(tmp_path: Path) -> None:
    code = (
        "import sys, time; from tests.servers import latency_s3\n"
        "with latency_s3.running(0, 0) as place:\n"
        "    print(place.http_port, flush=True); time.sleep(60)"
    )
    owner = subprocess.Popen(
        [sys.executable, "-c", code],
        stdout=subprocess.PIPE,
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT), "TMPDIR": str(tmp_path)},
        text=True,
    )
    assert owner.stdout is not None
    port = int(owner.stdout.readline())
    assert listens(port)
    assert len(list(tmp_path.iterdir())) == 1
    owner.send_signal(signal.SIGKILL)
    owner.communicate()
    until(lambda: not listens(port) and not list(tmp_path.iterdir()), 10)


@pytest.mark.alone
def test_the_latency_is_what_was_asked_for() -> None:
    with latency_s3.running(put_ms=40, get_ms=20) as place:
        store = open_store(f"{place.url}/x", **place.options)
        store.put("a", b"x")
        began = time.monotonic()
        store.put("a", b"x")
        put = time.monotonic() - began
        store.get("a")
        get = time.monotonic() - began - put
        assert 0.040 <= put < 0.4
        assert 0.020 <= get < 0.4
