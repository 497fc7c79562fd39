"""Starting and ending the programs that figures are measured against."""

from __future__ import annotations

import os
import socket
import subprocess
import time
from collections.abc import Callable
from pathlib import Path


class PeerUnavailableError(RuntimeError):
    """A peer cannot be prepared on this machine; the text says what is missing."""


def free_ports(count: int) -> list[int]:
    """Ports of loopback that nobody listens on."""
    sockets = [socket.socket() for _ in range(count)]
    try:
        for item in sockets:
            item.bind(("127.0.0.1", 0))
        return [int(item.getsockname()[1]) for item in sockets]
    finally:
        for item in sockets:
            item.close()


def free_low_ports(count: int, apart: int) -> list[int]:
    """Free ports whose neighbours ``apart`` further on are free as well."""
    found: list[int] = []
    port = 20_000 + os.getpid() * 17 % 15_000
    while len(found) < count:
        port += 1
        if _is_free(port) and _is_free(port + apart):
            found.append(port)
    return found


def _is_free(port: int) -> bool:
    with socket.socket() as item:
        try:
            item.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True


def await_ready(
    process: subprocess.Popen[bytes], log: Path, ready: Callable[[], bool], seconds: float
) -> None:
    """Wait until a program is ready; end it if it never is."""
    deadline = time.monotonic() + seconds
    while not ready():
        if process.poll() is not None or time.monotonic() > deadline:
            end(process)
            raise PeerUnavailableError(f"{log.stem} did not start: {log.read_text()[-500:]}")
        time.sleep(0.1)


def end(process: subprocess.Popen[bytes]) -> None:
    """End a program that was started here, at first politely."""
    process.terminate()
    try:
        process.wait(20)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait(10)
