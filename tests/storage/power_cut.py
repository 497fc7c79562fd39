"""A disk that knows what was synced to it, so that a test can cut its power.

1. What a power cut leaves of a file are the bytes that it had when it was last synced (none, if
   it never was), under the names that its folder had when that was last synced.
2. A disk may have written more than it was told to: ``there`` leaves every name that is there at
   that moment, as a journal does that was written for somebody else, and still no bytes that
   nobody synced.
3. Only Python's own calls are seen: what a library writes by itself counts as never synced until
   somebody syncs it.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import pytest

from offsetlog.storage.local import files as local_files

Names = dict[str, int]


class Image(NamedTuple):
    """What a disk holds at one moment: bytes by file, names by folder."""

    root: int
    data: dict[int, bytes]
    folders: dict[int, Names]
    kinds: dict[int, bool]
    """Whether a number is a folder."""

    def write_to(self, place: Path) -> Path:
        place.mkdir(parents=True)
        self._write(self.root, place)
        return place

    def _write(self, folder: int, place: Path) -> None:
        for name, number in self.folders.get(folder, {}).items():
            if self.kinds[number]:
                (place / name).mkdir()
                self._write(number, place / name)
            else:
                (place / name).write_bytes(self.data.get(number, b""))


class Disk:
    """Everything below ``place``, which is there and stays."""

    def __init__(self, place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        place.mkdir(parents=True)
        self.place = place
        self.at_each_sync: Callable[[], None] = lambda: None
        self._data: dict[int, bytes] = {}
        self._folders: dict[int, Names] = {}
        self._kinds: dict[int, bool] = {}
        self._kept: list[int] = []
        self._root = os.stat(place).st_ino
        for module, name in ((os, "fsync"), (os, "fdatasync"), (local_files, "_sync_data")):
            monkeypatch.setattr(module, name, self._synced)

    def _synced(self, fd: int) -> None:
        self._note(fd)
        self.at_each_sync()

    def _note(self, fd: int) -> None:
        number = os.fstat(fd).st_ino
        if number not in self._kinds:
            self._kept.append(os.dup(fd))  # Its number is nobody else's while it is held.
        self._kinds[number] = stat.S_ISDIR(os.fstat(fd).st_mode)
        if self._kinds[number]:
            self._folders[number] = self._listed(Path(f"/proc/self/fd/{fd}"))
        else:
            self._data[number] = Path(f"/proc/self/fd/{fd}").read_bytes()

    def _listed(self, folder: Path) -> Names:
        found: Names = {}
        for name in os.listdir(folder):
            try:
                status = os.stat(folder / name, follow_symlinks=False)
            except FileNotFoundError:
                continue
            found[name] = status.st_ino
            self._kinds.setdefault(status.st_ino, stat.S_ISDIR(status.st_mode))
        return found

    def settle(self) -> None:
        """As time does: all that is there is written by now."""
        for at, _, files in os.walk(self.place):
            for path in (Path(at), *(Path(at) / name for name in files)):
                fd = os.open(path, os.O_RDONLY)
                self._note(fd)
                os.close(fd)

    def image(self, there: bool = False) -> Image:
        """What a power cut would leave now."""
        folders = dict(self._folders)
        if there:
            for at, _, _ in os.walk(self.place):
                number = os.stat(at).st_ino
                folders[number] = {**folders.get(number, {}), **self._listed(Path(at))}
        return Image(self._root, dict(self._data), folders, dict(self._kinds))

    def close(self) -> None:
        for fd in self._kept:
            os.close(fd)
