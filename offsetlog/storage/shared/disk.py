"""Disks behind a server (sftp, smb): a file is written under a temporary name, then gets its own.

1. The server decides the race: giving a name that is taken fails, whoever asks.
2. A temporary's name begins with ``.tmp-``. It is kept for the next try after a conflict,
   and removed when the offer is closed; a killed writer's one stays until ``sweep``.
3. Overwriting is a rename over the old file: readers see the old bytes or the new ones.
4. An error before the name was asked for left nothing behind; a lost answer after that is
   unknown.
5. No symbolic link below the root is followed: each part of a folder's name is looked at once,
   again before the folder is listed or a file in it replaced, and each file before it is read.
6. A connection that failed is not used again: the next call makes a new one.
"""

from __future__ import annotations

import stat
from abc import abstractmethod
from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple, TypeVar

from offsetlog.errors import OffsetLogError
from offsetlog.storage import faults
from offsetlog.storage.faults import FaultKind
from offsetlog.storage.fsspec import _RAISE, FsspecStore
from offsetlog.storage.local.files import symlink_error
from offsetlog.storage.paths import (
    TEMPORARY,
    check_folder,
    check_name,
    check_range,
    join,
    split,
    temporary_name,
)
from offsetlog.storage.store import Committed, Conflict, FileInfo, Offer, PutResult, Unknown

T = TypeVar("T")

_FOLDERS_KNOWN = 4096


class DirectoryEntry(NamedTuple):
    """One member of a folder, or one file."""

    name: str
    mode: int
    size: int
    modified_ms: int


class SharedDiskStore(FsspecStore):
    """A root on a server's disk; a backend says how its server is asked."""

    stays = True
    leaves_temporaries = True

    def __init__(self, protocol: str, root: str, url: str, options: dict[str, object]) -> None:
        # An instance of our own: fsspec would hand a broken connection to everybody.
        super().__init__(protocol, root, url, {**options, "skip_instance_cache": True})
        self._made_folders: set[str] = set()
        self._plain: set[str] = set()
        """Folders that were seen to be no links."""

    # -- what a backend provides; paths are whole

    @abstractmethod
    def _write_new(self, path: str, data: bytes, durable: bool) -> None: ...

    @abstractmethod
    def _give_name(self, temporary: str, path: str) -> bool:
        """Give a temporary its name; whether the temporary name is gone with that."""

    @abstractmethod
    def _replace(self, temporary: str, path: str) -> None: ...

    @abstractmethod
    def _read(self, path: str, start: int | None, end: int | None) -> bytes: ...

    @abstractmethod
    def _look(self, path: str) -> DirectoryEntry:
        """What is at a path, behind any links."""

    @abstractmethod
    def _look_at_itself(self, path: str) -> DirectoryEntry:
        """What is at a path; a link itself, and not where it leads."""

    @abstractmethod
    def _members(self, path: str) -> Iterable[DirectoryEntry]: ...

    @abstractmethod
    def _make_folder(self, path: str) -> None: ...

    @abstractmethod
    def _remove(self, path: str) -> None: ...

    @abstractmethod
    def _remove_folder(self, path: str) -> None: ...

    def _is_broken(self, error: BaseException) -> bool:
        """Whether the connection is of no more use."""
        return self._judge(error).kind is FaultKind.OPEN

    # -- the port

    def offer(self, data: bytes, beside: str) -> DiskOffer:
        return DiskOffer(self, data, beside)

    def put(self, name: str, data: bytes, durable: bool = True) -> None:
        folder, last = split(name)

        def write() -> None:
            if folder in self._plain:
                self._check_folder(folder, again=True)
            temporary = self._temporary(folder, data, durable)
            try:
                self._replace(temporary, self._path(join(folder, last)))
            except Exception:
                self._remove_quietly(temporary)
                raise

        self._do("write", name, write, _RAISE)

    def get(self, name: str, start: int | None = None, end: int | None = None) -> bytes | None:
        check_range(start, end)

        def read() -> bytes | None:
            found = self._look_at_file(name)
            if not stat.S_ISREG(found.mode):
                return None
            return self._read(self._path(name), start, end)

        return self._do("read", name, read, None)

    def info(self, name: str) -> FileInfo | None:
        found = self._do("look at", name, lambda: self._look_at_file(name), None)
        if found is None or not stat.S_ISREG(found.mode):
            return None
        return FileInfo(name, found.size, found.modified_ms)

    def list(self, folder: str) -> Iterator[FileInfo]:
        for found in self._of_folder(folder):
            if stat.S_ISREG(found.mode) and not found.name.startswith(TEMPORARY):
                yield FileInfo(join(folder, found.name), found.size, found.modified_ms)

    def folders(self, folder: str) -> Iterator[str]:
        for found in self._of_folder(folder):
            if stat.S_ISDIR(found.mode):
                yield found.name

    def delete(self, names: Iterable[str]) -> None:
        for name in names:
            folder, _ = split(name)

            def work(name: str = name, folder: str = folder) -> None:
                self._check_folder(folder)
                self._remove(self._path(name))

            self._do("delete", name, work, None)

    def delete_tree(self, folder: str) -> None:
        for found in list(self._of_folder(folder)):
            below = self._path(join(folder, found.name))
            if stat.S_ISDIR(found.mode):
                self.delete_tree(join(folder, found.name))
            else:
                self._do("delete", folder, lambda below=below: self._remove(below), None)  # type: ignore[misc]
        self._forget_folders()
        if folder:
            path = self._path(folder)
            self._do("delete", folder, lambda: self._remove_folder(path), None)

    def remove_folder(self, folder: str) -> bool:
        if any(True for _ in self._of_folder(folder)):
            return False
        path = self._path(check_name(folder))
        self._forget_folders()
        self._do("delete", folder, lambda: self._remove_folder(path), None)
        return True

    def _at_root(self, root: str) -> FsspecStore:
        other = super()._at_root(root)
        assert isinstance(other, SharedDiskStore)
        other._made_folders, other._plain = set(), set()
        return other

    def sweep(self, folder: str, before_ms: int) -> int:
        removed = 0
        for found in list(self._of_folder(folder)):
            if found.name.startswith(TEMPORARY) and found.modified_ms < before_ms:
                path = self._path(join(folder, found.name))
                self._do("delete", folder, lambda path=path: self._remove(path), None)  # type: ignore[misc]
                removed += 1
        return removed

    # -- inside

    def _do(self, doing: str, name: str, work: Callable[[], T], missing: T | None = None) -> T:
        return super()._do(doing, name, lambda: self._guard(work), missing)

    def _guard(self, work: Callable[[], T]) -> T:
        try:
            return work()
        except OffsetLogError:
            raise
        except Exception as error:
            if self._is_broken(error):
                self._made = None
            raise

    def _of_folder(self, folder: str) -> Iterable[DirectoryEntry]:
        check_folder(folder)
        nothing: list[DirectoryEntry] = []

        def members() -> list[DirectoryEntry]:
            self._check_folder(folder, again=True)
            return list(self._members(self._path(folder)))

        return self._do("list", folder, members, nothing)

    def _look_at_file(self, name: str) -> DirectoryEntry:
        """What is at a name, which is no link and behind none."""
        folder, _ = split(name)
        self._check_folder(folder)
        found = self._look_at_itself(self._path(name))
        if stat.S_ISLNK(found.mode):
            raise symlink_error(name)
        return found

    def _check_folder(self, folder: str, again: bool = False) -> None:
        """That no part of a folder's name is a link. Who is missing is as missing as its files."""
        if not folder or (folder in self._plain and not again):
            return
        done = ""
        for part in folder.split("/"):
            done = join(done, part)
            if again or done not in self._plain:
                if stat.S_ISLNK(self._look_at_itself(self._path(done)).mode):
                    self._forget_folders()
                    raise symlink_error(done)
                self._known_plain(done)

    def _known_plain(self, folder: str) -> None:
        if len(self._plain) >= _FOLDERS_KNOWN:
            self._plain.clear()
        self._plain.add(folder)

    def _forget_folders(self) -> None:
        self._made_folders.clear()
        self._plain.clear()

    def _temporary(self, folder: str, data: bytes, durable: bool) -> str:
        """A new file with these bytes in a folder that is there."""
        for again in (True, False):
            self._folder(folder)
            path = self._path(join(folder, temporary_name()))
            try:
                self._write_new(path, data, durable)
                return path
            except Exception as error:
                if again and self._judge(error).kind is FaultKind.MISSING:
                    self._forget_folders()  # Somebody removed the folder meanwhile.
                    continue
                self._remove_quietly(path)
                raise
        raise AssertionError

    def _folder(self, folder: str) -> None:
        if folder in self._made_folders:
            return
        root = self._path("")
        at = "/" if root.startswith("/") else ""
        for part in filter(None, root.split("/")):
            at = f"{at.rstrip('/')}/{part}" if at else part
            self._make_folder_if_absent(at, self._look)
        done = ""
        for part in folder.split("/") if folder else ():
            done = join(done, part)
            self._make_folder_if_absent(self._path(done), self._look_at_itself)
            self._known_plain(done)
        if len(self._made_folders) >= _FOLDERS_KNOWN:
            self._made_folders.clear()
        self._made_folders.add(folder)

    def _make_folder_if_absent(self, path: str, look: Callable[[str], DirectoryEntry]) -> None:
        try:
            mode = look(path).mode
            if stat.S_ISLNK(mode):
                raise symlink_error(path[len(self._path("")) :].strip("/"))
            if stat.S_ISDIR(mode):
                return
        except OffsetLogError:
            raise
        except Exception as error:
            if self._judge(error).kind is not FaultKind.MISSING:
                raise
        try:
            self._make_folder(path)
        except Exception:
            # Another writer may have been faster; servers say so in many ways.
            if not stat.S_ISDIR(look(path).mode):
                raise

    def _remove_quietly(self, path: str) -> None:
        try:
            self._remove(path)
        except Exception:  # noqa: BLE001
            return  # The next sweep finds it.


class DiskOffer(Offer):
    """A temporary file that waits for a name."""

    def __init__(self, store: SharedDiskStore, data: bytes, beside: str) -> None:
        self._store = store
        self._data = data
        self._folder = split(beside)[0]
        self._temporary = ""

    def put(self, name: str) -> PutResult:
        store = self._store
        store.prove()
        folder, _ = split(name)
        if not self._temporary:
            self._temporary = store._do(
                "create", name, lambda: store._temporary(folder, self._data, True), _RAISE
            )
        store._do("create", name, lambda: store._folder(folder), _RAISE)
        try:
            gone = store._guard(lambda: store._give_name(self._temporary, store._path(name)))
        except OffsetLogError:
            raise
        except Exception as error:  # noqa: BLE001
            return self._fate(name, error)
        if not gone:
            store._remove_quietly(self._temporary)
        self._temporary = ""
        return Committed()

    def _fate(self, name: str, error: BaseException) -> PutResult:
        store = self._store
        fault = store._judge(error)
        if fault.kind is FaultKind.EXISTS:
            return Conflict()
        if fault.kind is FaultKind.OPEN:
            self._temporary = ""  # It may be the entry by now: write another.
            text = store._redact(f"No answer for {name!r}: {fault.text}.")
            return Unknown(text, isinstance(error, TimeoutError))
        self.close()
        raise faults.storage_error(fault, "create", name, store.url, store._redact) from None

    def close(self) -> None:
        if self._temporary:
            self._store._remove_quietly(self._temporary)
            self._temporary = ""
