"""Files in the memory of this process: for tests and first steps.

1. All stores of one process share one set of files, found by their URLs.
2. One lock decides every race; a reader gets what was put, never a copy that changes.
3. A forked process starts with its parent's files and shares nothing after that.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from offsetlog.storage.paths import check_folder, check_range, join, split
from offsetlog.storage.store import Committed, Conflict, FileInfo, Offer, PutResult, Store


class _File(NamedTuple):
    data: bytes
    modified_ms: int


class _Files:
    """Every file of every root, by folder."""

    def __init__(self) -> None:
        self.lock = threading.RLock()
        self.folders: dict[str, dict[str, _File]] = {}

    def renew_lock(self) -> None:
        self.lock = threading.RLock()


_FILES = _Files()
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_FILES.renew_lock)


class _MemoryOffer(Offer):
    def __init__(self, store: MemoryStore, data: bytes) -> None:
        self._store = store
        self._data = data

    def put(self, name: str) -> PutResult:
        return self._store._create(name, self._data)

    def close(self) -> None:
        self._data = b""


class MemoryStore(Store):
    is_local = True
    has_stamps = True

    def __init__(self, root: str) -> None:
        self._root = root.strip("/")
        self.url = f"memory://{self._root}"

    def _at(self, folder: str) -> str:
        return "/".join(part for part in (self._root, folder) if part)

    def _create(self, name: str, data: bytes) -> PutResult:
        folder, last = split(name)
        with _FILES.lock:
            files = _FILES.folders.setdefault(self._at(folder), {})
            if last in files:
                return Conflict()
            files[last] = _now(data)
        return Committed()

    def offer(self, data: bytes, beside: str) -> _MemoryOffer:
        split(beside)
        return _MemoryOffer(self, bytes(data))

    def put(self, name: str, data: bytes, durable: bool = True) -> None:
        folder, last = split(name)
        with _FILES.lock:
            _FILES.folders.setdefault(self._at(folder), {})[last] = _now(bytes(data))

    def get(self, name: str, start: int | None = None, end: int | None = None) -> bytes | None:
        folder, last = split(name)
        check_range(start, end)
        found = _FILES.folders.get(self._at(folder), {}).get(last)
        if found is None:
            return None
        return found.data if start is None and end is None else found.data[start:end]

    def info(self, name: str) -> FileInfo | None:
        folder, last = split(name)
        found = _FILES.folders.get(self._at(folder), {}).get(last)
        return None if found is None else FileInfo(name, len(found.data), found.modified_ms)

    def stamp(self, name: str) -> object:
        folder, last = split(name)
        return _FILES.folders.get(self._at(folder), {}).get(last)

    def list(self, folder: str) -> Iterator[FileInfo]:
        with _FILES.lock:
            found = list(_FILES.folders.get(self._at(check_folder(folder)), {}).items())
        for last, file in found:
            yield FileInfo(join(folder, last), len(file.data), file.modified_ms)

    def folders(self, folder: str) -> Iterator[str]:
        at = self._at(check_folder(folder))
        start = len(at) + 1 if at else 0
        with _FILES.lock:
            below = {
                path[start:].split("/", 1)[0]
                for path, files in _FILES.folders.items()
                if files and path != at and path.startswith(f"{at}/" if at else "")
            }
        yield from sorted(below - {""})

    def delete(self, names: Iterable[str]) -> None:
        for name in names:
            folder, last = split(name)
            with _FILES.lock:
                _FILES.folders.get(self._at(folder), {}).pop(last, None)

    def delete_tree(self, folder: str) -> None:
        at = self._at(check_folder(folder))
        with _FILES.lock:
            for path in list(_FILES.folders):
                if path == at or path.startswith(f"{at}/" if at else ""):
                    del _FILES.folders[path]

    def remove_folder(self, folder: str) -> bool:
        """Whether nothing is in a folder: there are no empty ones here."""
        at = self._at(check_folder(folder))
        with _FILES.lock:
            return not any(
                files for path, files in _FILES.folders.items() if f"{path}/".startswith(f"{at}/")
            )

    def above(self) -> Iterator[tuple[MemoryStore, str]]:
        at = self._root
        while at:
            at, _, part = at.rpartition("/")
            yield MemoryStore(at), part

    def settle(self, folder: str) -> None:
        check_folder(folder)

    def close(self) -> None:
        """The files stay: other stores of this process may use them."""


def _now(data: bytes) -> _File:
    return _File(data, time.time_ns() // 1_000_000)
