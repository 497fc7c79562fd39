"""A disk that knows what was synced to it, so that a test can cut its power.

1. What a power cut leaves of a file are the bytes that it had when it was last synced, under the
   names that its folder had when that was last synced.
2. A disk may have written more than it was told to. By chance (``image(chance)``) each name that
   was given or taken since its folder was synced is there or not, in any order and as at any time
   since; and a file that was never synced is whole, empty, cut off, or holds other bytes.
3. Without chance no byte is there that nobody synced. ``there`` leaves every name that is there at
   that moment, as a journal does that was written for somebody else.
4. A program may be killed at any event: then neither it nor a thread of its does anything more to
   the disk, and the next one finds what was written, synced or not.
5. Only Python's own calls are seen: what a library writes by itself counts as never synced until
   somebody syncs it.
"""

from __future__ import annotations

import os
import random
import stat
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from offsetlog.storage.local import files as local_files

Names = dict[str, int]
_SYNCS = ("fsync", "fdatasync")
_NAMING = {"open": 0, "link": 1, "rename": 1, "replace": 1, "unlink": 0, "mkdir": 0, "rmdir": 0}
"""Calls that give or take names, and which of their arguments is the name."""


class Killed(BaseException):
    """The program is gone. Not an ``Exception``: no handler of the code under test sees it."""


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
        self.at_each_event: Callable[[], None] = lambda: None
        """Before a name is given or taken, and after; and after each sync."""
        self._data: dict[int, bytes] = {}
        self._folders: dict[int, Names] = {}
        self._unsynced: dict[int, dict[str, list[int | None]]] = {}
        """By folder: what its names have named since it was synced."""
        self._kinds: dict[int, bool] = {}
        self._kept: dict[int, int] = {}
        """Descriptors by number: it is nobody else's while it is held."""
        self._dead: set[threading.Thread] = set()
        self._lock = threading.RLock()
        self._root = os.stat(place).st_ino
        self._real = {name: getattr(os, name) for name in _NAMING}
        for module, name in (*((os, name) for name in _SYNCS), (local_files, "_sync_data")):
            monkeypatch.setattr(module, name, self._synced)
        for name, argument in _NAMING.items():
            monkeypatch.setattr(os, name, self._watched(name, argument))
        for supported in (os.supports_dir_fd, os.supports_follow_symlinks):
            for name in _NAMING:  # ``shutil.rmtree`` asks whether they are.
                if self._real[name] in supported:
                    supported.add(getattr(os, name))

    # --- what programs do ------------------------------------------------------------------

    def _synced(self, fd: int) -> None:
        self._check_alive()
        with self._lock:
            self._note(fd)
        self.at_each_sync()
        self._event()

    def _watched(self, name: str, argument: int) -> Callable[..., Any]:
        real = self._real[name]

        def call(*given: Any, **named: Any) -> Any:
            flags = given[1] if name == "open" and len(given) > 1 else named.get("flags", 0)
            if name == "open" and not flags & os.O_CREAT:
                return real(*given, **named)
            places = [(given[argument], named.get("dst_dir_fd", named.get("dir_fd")))]
            if name in ("rename", "replace"):
                places.append((given[0], named.get("src_dir_fd")))
            below = [found for found in (self._below(*place) for place in places) if found]
            if not below:
                return real(*given, **named)
            self._check_alive()
            self._event()
            with self._lock:
                try:
                    return real(*given, **named)
                finally:
                    for folder, last in below:
                        self._note_name(folder, last)
                    if name != "open":
                        self._event()

        return call

    def _below(self, path: Any, dir_fd: int | None) -> tuple[str, str] | None:
        """The folder and the name, if they lie on this disk."""
        folder = f"/proc/self/fd/{dir_fd}" if dir_fd is not None else os.path.dirname(str(path))
        try:
            real = os.path.realpath(folder)
        except OSError:
            return None
        if not (real == str(self.place) or real.startswith(f"{self.place}/")):
            return None
        return folder, os.path.basename(str(path))

    def _note_name(self, folder: str, last: str) -> None:
        number = os.stat(folder).st_ino
        now: int | None = None
        try:
            status = os.stat(f"{folder}/{last}", follow_symlinks=False)
        except FileNotFoundError:
            pass
        else:
            now = status.st_ino
            self._kinds[now] = stat.S_ISDIR(status.st_mode)
            if now not in self._kept:
                self._kept[now] = self._real["open"](f"{folder}/{last}", os.O_RDONLY)
        self._unsynced.setdefault(number, {}).setdefault(last, []).append(now)

    def _event(self) -> None:
        if not self.is_killed:
            self.at_each_event()

    # --- killing ---------------------------------------------------------------------------

    def kill(self) -> None:
        """The program dies here: raises, and lets its other threads touch nothing."""
        main = threading.current_thread()
        self._dead |= {thread for thread in threading.enumerate() if thread is not main}
        self._dead.add(main)
        raise Killed

    @property
    def is_killed(self) -> bool:
        """Whether the program of this thread is gone, and ``Killed`` was not heard: it was raised
        where Python ignores errors."""
        return threading.current_thread() in self._dead

    def restart(self) -> None:
        """In the killed thread: what comes now is another program."""
        self._dead.discard(threading.current_thread())

    def _check_alive(self) -> None:
        if self.is_killed:
            raise Killed

    # --- what is durable -------------------------------------------------------------------

    def _note(self, fd: int) -> None:
        status = os.fstat(fd)
        number = status.st_ino
        if number not in self._kept:
            self._kept[number] = os.dup(fd)
        self._kinds[number] = stat.S_ISDIR(status.st_mode)
        if self._kinds[number]:
            self._folders[number] = self._listed(Path(f"/proc/self/fd/{fd}"))
            self._unsynced.pop(number, None)
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
                fd = self._real["open"](path, os.O_RDONLY)
                self._note(fd)
                os.close(fd)

    def image(self, there: bool = False, chance: random.Random | None = None) -> Image:
        """What a power cut would leave now."""
        with self._lock:
            folders, data = dict(self._folders), dict(self._data)
            if chance is not None:
                self._roll(chance, folders, data)
            if there:
                for at, _, _ in os.walk(self.place):
                    number = os.stat(at).st_ino
                    folders[number] = {**folders.get(number, {}), **self._listed(Path(at))}
            return Image(self._root, data, folders, dict(self._kinds))

    def _roll(
        self, chance: random.Random, folders: dict[int, Names], data: dict[int, bytes]
    ) -> None:
        rate = chance.choice((0.0, 0.2, 0.5, 0.8, 1.0))
        for folder, changes in sorted(self._unsynced.items()):
            names: dict[str, int | None] = dict(folders.get(folder, {}))
            for name, numbers in sorted(changes.items()):
                if chance.random() < rate:
                    newest = chance.random() < 0.7
                    names[name] = numbers[-1] if newest else chance.choice(numbers)
            folders[folder] = {name: number for name, number in names.items() if number is not None}
        way = chance.choice(("whole", "empty", "any"))
        for number in sorted(self._kept.keys() - data.keys()):
            if not self._kinds[number]:
                data[number] = _torn(self._kept[number], way, chance)

    def close(self) -> None:
        for fd in self._kept.values():
            os.close(fd)


def _torn(fd: int, way: str, chance: random.Random) -> bytes:
    """What is there of a file that nobody synced."""
    whole = os.pread(fd, os.fstat(fd).st_size, 0)
    if way == "any":
        way = chance.choice(("whole", "empty", "cut", "zeros", "other"))
    if way == "whole" or not whole:
        return whole
    at = chance.randrange(len(whole))
    if way == "cut":
        return whole[:at]
    if way == "zeros":
        return whole[:at] + bytes(len(whole) - at)
    return b"" if way == "empty" else whole[:at] + chance.randbytes(len(whole) - at)
