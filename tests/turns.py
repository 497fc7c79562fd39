"""Turns of tests that run in several processes: who is alone has the machine to itself.

Invariants:

1. While a test that is alone runs, no other test of the run does.
2. Nobody starves: whoever comes later queues behind a test that waits to be alone.
3. A lock ends with its process and is not inherited, so a killed worker blocks nobody.
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

_QUEUE, _ROOM = 0, 1
"""The bytes of the file that are locked."""


@contextmanager
def _locked(file: int, byte: int, exclusive: bool = True) -> Iterator[None]:
    fcntl.lockf(file, fcntl.LOCK_EX if exclusive else fcntl.LOCK_SH, 1, byte)
    try:
        yield
    finally:
        fcntl.lockf(file, fcntl.LOCK_UN, 1, byte)


class Turns:
    """The turns of one run, kept in a file that its processes share."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)

    @contextmanager
    def turn(self, alone: bool) -> Iterator[None]:
        with _locked(self._file, _QUEUE):
            room = _locked(self._file, _ROOM, exclusive=alone)
            room.__enter__()
        try:
            yield
        finally:
            room.__exit__(None, None, None)

    def forget(self) -> None:
        """The run is over; who still has a turn keeps it."""
        self._path.unlink(missing_ok=True)
