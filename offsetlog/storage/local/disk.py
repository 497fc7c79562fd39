"""The local disk: put-if-absent by a hard link, durable when it returns.

1. A file gets its name only when its bytes are on the disk: write, fdatasync, link, fsync of
   the folder. A kill at any point leaves a complete file or none.
2. Temporaries have no name at all (O_TMPFILE) where the disk can do that; else their name
   begins with ``.tmp-``, and goes right after the link, since it is the same file as the entry.
3. Names are resolved from open folders, part by part, and no symbolic link is followed:
   nothing outside the root is read or written.
4. Open folders are kept, a bounded number of them, until the process runs out of files. Before
   one is believed it is compared with what its path names now, so that a folder which was removed
   and made again is noticed.
5. Before the first write of this process into a folder, the names of it and of the folders
   above it are made durable, whoever made them.
6. A fork is harmless: nothing here is a lock or a position in a file.
7. A store that keeps to a root (``keep_to``) reads, lists, creates and deletes nothing anywhere
   else: not below a mount point whose disk is gone, nor in another folder that was put in the
   root's place. The root is known by its mark before anything in it is opened; whether the mark
   is still that file is seen, by one ``stat``, before an open folder is used.
"""

from __future__ import annotations

import errno
import os
import shutil
import stat
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

from offsetlog.errors import (
    InvalidRequestError,
    OffsetLogError,
    StorageError,
    UnsafeFilesystemError,
)
from offsetlog.redact import Redactor
from offsetlog.storage import faults
from offsetlog.storage.local.files import (
    FOLDER,
    HAS_OPEN_FOLDERS,
    NO_LINKS,
    NO_TMPFILE,
    READ,
    TMPFILE,
    WRITE,
    Folder,
    NamedTemporary,
    Temporary,
    check_is_file,
    entries,
    is_on_fuse,
    keepers,
    make_root,
    mark_stamp,
    open_fd,
    read_mark,
    read_range,
    read_view,
    remove,
    stamp_of,
    step,
    symlink_error,
    sync_folder,
    with_files,
)
from offsetlog.storage.paths import (
    TEMPORARY,
    check_folder,
    check_range,
    join,
    split,
)
from offsetlog.storage.store import Committed, Conflict, FileInfo, Offer, PutResult, Store, Unknown

_KEPT_FOLDERS = 64
_KEPT_PART = 8
"""Of the files that the process may have open: so many times what is kept, at least."""


def _kept_folders() -> int:
    import resource  # Other systems have none, and are refused by name.

    allowed, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return _KEPT_FOLDERS if allowed < 0 else max(1, min(_KEPT_FOLDERS, allowed // _KEPT_PART))


class _LocalOffer(Offer):
    """Bytes that the first put writes to a temporary, which is linked to one name after another."""

    calls_check = True

    def __init__(self, store: LocalStore, data: bytes) -> None:
        self._store = store
        self._data = data
        self._temporary: Temporary | None = None

    def put(self, name: str) -> PutResult:
        folder_name, last = split(name)
        store = self._store
        try:
            for again in (False, True):
                temporary = self._temporary
                if temporary is None:
                    temporary = store._temporary(folder_name, self._data, self.check)
                    self._temporary = temporary
                # Writing took its time: only now is it asked where the name leads.
                folder = store._folder(folder_name, True, self.check)
                assert folder is not None
                if self.check is not None:
                    # What is true of the name now is true of the folder that is open, and the
                    # link goes there: once that folder is removed nothing can be linked into it.
                    self.check()
                try:
                    temporary.link(folder, last)
                    break
                except FileExistsError:
                    check_is_file(folder, last, name)
                    return Conflict()
                except OSError as error:
                    if again or error.errno not in (errno.ENOENT, errno.EXDEV):
                        raise store._no_link(error, name) from None
                    # The folder was removed under us, or is another disk: write there.
                    store._forget(folder_name)
                    self.close()
        except OSError as error:
            raise store._error(error, "create", name) from None
        assert folder is not None
        try:
            if isinstance(temporary, NamedTemporary):
                # Before anybody opens the entry: they are one file.
                self._temporary = None
                temporary.close()
            os.fsync(folder.fd)
        except OSError as error:
            fault = faults.of_exception(error)
            return Unknown(f"{name!r} has its name, but its folder was not synced: {fault.text}.")
        return Committed()

    def close(self) -> None:
        if self._temporary is not None:
            self._temporary.close()
            self._temporary = None


class LocalStore(Store):
    """A root on a local disk. It may not exist yet: the first write makes it, unless the store
    was told which root it keeps to."""

    is_local = True
    takes_buffers = True
    has_stamps = True
    leaves_temporaries = True

    def __init__(self, root: str, *, unnamed_temporaries: bool = True) -> None:
        if not HAS_OPEN_FOLDERS:
            raise InvalidRequestError(
                "This system can't resolve names from open folders.",
                "A log on a local disk needs Linux, macOS or another POSIX system.",
            )
        self._root = os.path.abspath(root)
        self.url = f"file://{self._root}"
        self._known: dict[str, Folder] = {}
        self._most_known = _kept_folders()
        keepers.add(self)
        self._unnamed = unnamed_temporaries and bool(TMPFILE) and os.path.isdir("/proc/self/fd")
        self._redact = Redactor()
        self._mark: tuple[str, Callable[[bytes | None], None]] | None = None
        self._proven: Folder | None = None
        self._proven_stamp: object = None
        """Of the mark, when the root was proven by it."""
        self._is_root_durable = False

    @property
    def needs_probe(self) -> bool:
        """A disk that is a program's (FUSE) may promise less than the kernel's own."""
        return is_on_fuse(self._root)

    def keep_to(self, name: str, check: Callable[[bytes | None], None]) -> None:
        """The root itself is not made any more."""
        self._mark, self._proven = (name, check), None
        self._known.clear()

    # -- writing

    def offer(self, data: bytes, beside: str) -> _LocalOffer:
        return _LocalOffer(self, data)

    def put(self, name: str, data: bytes | memoryview, durable: bool = True) -> None:
        folder_name, last = split(name)
        with self._errors("write", name):
            folder = self._folder(folder_name, create=True)
            assert folder is not None
            temporary = NamedTemporary(folder, data, durable)
            try:
                temporary.rename(last)
                if durable:
                    os.fsync(folder.fd)
            finally:
                temporary.close()

    def delete(self, names: Iterable[str]) -> None:
        for name in names:
            folder_name, last = split(name)
            with self._errors("delete", name):
                folder = self._folder(folder_name)
                if folder is not None:
                    remove(last, folder)

    def delete_tree(self, folder: str) -> None:
        if not folder:
            for name in list(self.folders("")):
                self.delete_tree(name)
            self.delete([info.name for info in self.list("")])
            return
        parent_name, last = split(folder)
        with self._errors("delete", folder):
            parent = self._folder(parent_name)
            if parent is None or self._folder(folder) is None:
                return
            for again in (True, True, False):
                try:
                    with_files(shutil.rmtree, last, dir_fd=parent.fd)
                    break
                except FileNotFoundError:
                    break
                except OSError as error:
                    # Somebody may have created a file meanwhile.
                    if error.errno != errno.ENOTEMPTY or not again:
                        raise
            os.fsync(parent.fd)
        self._forget(folder)

    def remove_folder(self, folder: str) -> bool:
        parent_name, last = split(folder)
        with self._errors("delete", folder):
            parent = self._folder(parent_name)
            if parent is None:
                return True
            try:
                os.rmdir(last, dir_fd=parent.fd)
            except FileNotFoundError:
                return True
            except OSError as error:
                if error.errno not in (errno.ENOTEMPTY, errno.EEXIST, errno.ENOTDIR, errno.EBUSY):
                    raise
                return False
            os.fsync(parent.fd)
        self._forget(folder)
        return True

    def above(self) -> Iterator[tuple[LocalStore, str]]:
        path = os.path.realpath(self._root)
        while os.path.dirname(path) != path:
            path, part = os.path.split(path)
            yield LocalStore(path), part

    def delta_address(self, folder: str) -> str | None:
        return os.path.join(self._root, folder) if folder else self._root

    def settle(self, folder: str) -> None:
        with self._errors("sync", check_folder(folder)):
            opened = self._folder(folder)
            if opened is not None:
                os.fsync(opened.fd)

    def sync(self, name: str) -> None:
        folder_name, last = split(name)
        with self._errors("sync", name), suppress(FileNotFoundError):
            folder = self._folder(folder_name)
            if folder is None:
                return
            fd = open_fd(last, READ, dir_fd=folder.fd)
            try:
                os.fsync(fd)
            finally:
                os.close(fd)

    def sweep(self, folder: str, before_ms: int) -> int:
        removed = 0
        with self._errors("delete", check_folder(folder)):
            opened = self._folder(folder)
            for last, status in entries(opened) if opened else ():
                old = status.st_mtime_ns // 1_000_000 < before_ms
                if last.startswith(TEMPORARY) and stat.S_ISREG(status.st_mode) and old and opened:
                    removed += remove(last, opened)
        return removed

    # -- reading

    def get(
        self,
        name: str,
        start: int | None = None,
        end: int | None = None,
        read: Callable[[int, int, int], Any] = read_range,
    ) -> Any:
        folder_name, last = split(name)
        check_range(start, end)
        try:
            folder = self._folder(folder_name)
            if folder is None:
                return None
            fd = open_fd(last, READ, dir_fd=folder.fd)
            try:
                status = os.fstat(fd)
                if not stat.S_ISREG(status.st_mode):
                    return None
                size = status.st_size
                first = 0 if start is None else start if start >= 0 else max(0, size + start)
                return read(fd, first, size if end is None else min(end, size))
            finally:
                os.close(fd)
        except FileNotFoundError:
            return None
        except OSError as error:
            raise self._error(error, "read", name) from None

    def view(
        self, name: str, start: int | None = None, end: int | None = None
    ) -> memoryview | None:
        return self.get(name, start, end, read_view)  # type: ignore[no-any-return]

    def info(self, name: str) -> FileInfo | None:
        folder_name, last = split(name)
        with self._errors("look at", name):
            folder = self._folder(folder_name)
            if folder is None:
                return None
            try:
                status = os.stat(last, dir_fd=folder.fd, follow_symlinks=False)
            except FileNotFoundError:
                return None
            if stat.S_ISLNK(status.st_mode):
                raise symlink_error(name)
            if not stat.S_ISREG(status.st_mode):
                return None
            return FileInfo(name, status.st_size, status.st_mtime_ns // 1_000_000)

    def stamp(self, name: str) -> object:
        try:
            status = os.stat(f"{self._root}/{name}", follow_symlinks=False)
        except OSError:
            return None
        return stamp_of(status)

    def list(self, folder: str) -> Iterator[FileInfo]:
        with self._errors("list", check_folder(folder)):
            opened = self._folder(folder)
            for last, status in entries(opened) if opened else ():
                if stat.S_ISREG(status.st_mode) and not last.startswith(TEMPORARY):
                    modified = status.st_mtime_ns // 1_000_000
                    yield FileInfo(join(folder, last), status.st_size, modified)

    def folders(self, folder: str) -> Iterator[str]:
        with self._errors("list", check_folder(folder)):
            opened = self._folder(folder)
            for last, status in entries(opened) if opened else ():
                if stat.S_ISDIR(status.st_mode):
                    yield last

    def close(self) -> None:
        self._known.clear()
        self._proven = None

    # -- folders

    def give_back(self) -> None:
        """Close the folders that are kept, but for those that a thread is using."""
        self._known.clear()

    def _folder(
        self, folder: str, create: bool = False, check: Callable[[], None] | None = None
    ) -> Folder | None:
        """The folder as it is now, open; None if there is none. ``create``: it is made where it is
        not there, with its name and those above it durable, unless ``check`` objects."""
        if self._mark is not None:
            stamp = self.stamp(self._mark[0])
            if stamp is None or stamp != self._proven_stamp:
                self._known.clear()
                self._proven = None
        known = self._known.get(folder)
        if known is not None:
            path = self._root
            try:
                now = os.stat(path)
                for part in folder.split("/") if folder else ():
                    path = f"{path}/{part}"
                    now = os.lstat(path)
                    if stat.S_ISLNK(now.st_mode):
                        break
                else:
                    is_same = known.identity == (now.st_dev, now.st_ino)
                    if is_same and (known.durable or not create):
                        return known
            except OSError:
                pass
            self._forget(folder)
        if create and check is not None:
            check()
        return self._walk(folder, create)

    def _walk(self, folder: str, create: bool) -> Folder | None:
        if create and self._mark is None:
            make_root(self._root)
        try:
            current = Folder(open_fd(self._root, FOLDER))
        except FileNotFoundError:
            self._prove(None, create)
            return None
        self._prove(current, create)
        path = ""
        for part in folder.split("/") if folder else ():
            path = join(path, part)
            below = step(current, part, path, create)
            if below is None:
                return None
            current = below
        current.durable = create
        for old in list(self._known)[: max(0, len(self._known) - self._most_known + 1)]:
            self._known.pop(old, None)
        self._known[folder] = current
        return current

    def _prove(self, root: Folder | None, create: bool) -> None:
        """That this folder is the root which is kept to. It stays open, so that nothing else can
        be taken for it: neither its number nor its disk's is given again meanwhile."""
        if self._mark is None:
            return
        proven = self._proven
        if root is None or proven is None or proven.identity != root.identity:
            name, check = self._mark
            stamp = None if root is None else mark_stamp(root, name)
            check(None if root is None else read_mark(root, name))
            if root is None:
                raise StorageError(f"{self.url} is not there any more.", "Mount its disk again.")
            self._proven, self._proven_stamp, self._is_root_durable = root, stamp, False
        if create and not self._is_root_durable:
            sync_folder(os.path.dirname(self._root))
            self._is_root_durable = True

    def _forget(self, folder: str) -> None:
        for known in list(self._known):
            if known == folder or not folder or known.startswith(f"{folder}/"):
                self._known.pop(known, None)

    # -- temporaries

    def _temporary(
        self, folder_name: str, data: bytes, check: Callable[[], None] | None
    ) -> Temporary:
        """A file with these bytes, durable, in this folder. One without a name may lie in any
        folder that is open: whether that is still the right one is seen before it is linked."""
        folder = self._known.get(folder_name)
        for again in (True, False):
            if not self._unnamed:
                break
            folder = folder or self._folder(folder_name, True, check)
            assert folder is not None
            try:
                return Temporary(open_fd(".", TMPFILE | WRITE, 0o666, dir_fd=folder.fd), data)
            except OSError as error:
                if error.errno in NO_TMPFILE:
                    self._unnamed = False
                elif not again or self._folder(folder_name) is folder:
                    raise
            folder = None  # It was removed.
        folder = self._folder(folder_name, True, check)
        assert folder is not None
        return NamedTemporary(folder, data)

    # -- errors

    @contextmanager
    def _errors(self, doing: str, name: str) -> Iterator[None]:
        """Lets only errors of ours out of a ``with`` block."""
        try:
            yield
        except OSError as error:
            raise self._error(error, doing, name) from None

    def _error(self, error: OSError, doing: str, name: str) -> OffsetLogError:
        if doing in ("read", "sync") and error.errno in (errno.ELOOP, errno.EMLINK):
            return symlink_error(name)
        return faults.storage_error(faults.of_exception(error), doing, name, self.url, self._redact)

    def _no_link(self, error: OSError, name: str) -> Exception:
        if error.errno not in NO_LINKS:
            return error
        return UnsafeFilesystemError(
            f"The disk under {self.url} has no hard links ({os.strerror(error.errno or 0)}), "
            f"so {name!r} could not be created safely.",
            "Put the log on a disk that has them (ext4, xfs, btrfs, zfs, apfs, nfs).",
        )
