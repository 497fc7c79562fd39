"""Open folders, files without names, and steps that follow no link: the local disk's parts.

1. A folder is named by its open description; it is closed when the last user lets go of it.
2. No function here follows a symbolic link below the root.
3. Errors pass as they are: ``local`` makes them its own.
4. Files that the process runs out of are given back by whoever keeps folders, before it is told.
"""

from __future__ import annotations

import errno
import os
import stat
import time
import weakref
from collections.abc import Callable, Iterator
from typing import Any, TypeVar

from offsetlog.errors import StorageError
from offsetlog.storage.paths import check_name, temporary_name

FOLDER = getattr(os, "O_DIRECTORY", 0) | getattr(os, "O_CLOEXEC", 0) | os.O_RDONLY
NOFOLLOW = getattr(os, "O_NOFOLLOW", 0)
# O_NONBLOCK: a pipe that somebody left at a name must not hang the reader.
READ = os.O_RDONLY | NOFOLLOW | getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_NONBLOCK", 0)
WRITE = os.O_WRONLY | getattr(os, "O_CLOEXEC", 0)
TMPFILE = getattr(os, "O_TMPFILE", 0)
HAS_OPEN_FOLDERS = bool(getattr(os, "O_DIRECTORY", 0)) and os.open in os.supports_dir_fd
_CHUNK = 1 << 30
MARK_BYTES = 1 << 16
T = TypeVar("T")
NO_TMPFILE = {errno.EOPNOTSUPP, errno.ENOTSUP, errno.EISDIR, errno.EINVAL, errno.ENOSYS}
NO_LINKS = {errno.EPERM, errno.EOPNOTSUPP, errno.ENOTSUP, errno.ENOSYS}

_sync_data: Callable[[int], None] = getattr(os, "fdatasync", os.fsync)


def is_on_fuse(path: str, mounts: str = "/proc/self/mountinfo") -> bool:
    """Whether a path, or the nearest folder above it that is there, is on a disk that is a
    program's. False where the system does not tell."""
    while not os.path.exists(path) and os.path.dirname(path) != path:
        path = os.path.dirname(path)
    try:
        device = os.stat(path).st_dev
        with open(mounts, encoding="utf-8", errors="replace") as file:
            lines = [line.split() for line in file]
    except OSError:
        return False
    number = f"{os.major(device)}:{os.minor(device)}"
    # The type stands behind a lone dash, after fields of which some may be missing.
    kinds = (words[words.index("-", 6) + 1] for words in lines if words[2:3] == [number])
    return any(kind == "fuseblk" or kind.split(".")[0] == "fuse" for kind in kinds)


OUT_OF_FILES = (errno.EMFILE, errno.ENFILE)
PAUSES = (0.0, 0.005, 0.02, 0.05, 0.1, 0.2)
"""Seconds, between tries of a call that found no file left."""
keepers: weakref.WeakSet[Any] = weakref.WeakSet()
"""What keeps folders open that it can do without, with a method ``give_back``."""


def with_files(call: Callable[..., T], *given: object, **named: object) -> T:
    """A call that opens files. Where the process has no more of them, the folders that stores keep
    are given back, and it is tried again; other threads are done with theirs in a moment."""
    for pause in PAUSES:
        try:
            return call(*given, **named)
        except OSError as error:
            if error.errno not in OUT_OF_FILES:
                raise
        for keeper in list(keepers):
            keeper.give_back()
        time.sleep(pause)
    return call(*given, **named)


def open_fd(path: str, flags: int, mode: int = 0o777, *, dir_fd: int | None = None) -> int:
    return with_files(os.open, path, flags, mode, dir_fd=dir_fd)


class Folder:
    """An open folder. It is closed when the last user lets go of it."""

    __slots__ = ("durable", "fd", "identity")

    def __init__(self, fd: int) -> None:
        self.fd = fd
        status = os.fstat(fd)
        self.identity = (status.st_dev, status.st_ino)
        self.durable = False

    def __del__(self, close: Callable[[int], None] = os.close) -> None:
        # Bound here: when a program ends, the names of this module may be gone before a folder.
        close(self.fd)


class Temporary:
    """A written and synced file without a name. It is gone when the last user lets go of it."""

    __slots__ = ("fd",)
    name: str | None = None

    def __init__(self, fd: int, data: bytes | memoryview, durable: bool = True) -> None:
        self.fd = fd
        try:
            rest = memoryview(data)
            while len(rest):
                rest = rest[os.write(self.fd, rest[:_CHUNK]) :]
            if durable:
                _sync_data(self.fd)
        except BaseException:
            self.close()
            raise

    def link(self, folder: Folder, last: str) -> None:
        source = f"/proc/self/fd/{self.fd}"
        os.link(source, last, dst_dir_fd=folder.fd, follow_symlinks=True)

    def close(self) -> None:
        fd, self.fd = self.fd, -1
        if fd >= 0:
            os.close(fd)

    __del__ = close


class NamedTemporary(Temporary):
    """A written file with a name that nobody takes for an entry's."""

    __slots__ = ("folder", "name")

    def __init__(self, folder: Folder, data: bytes | memoryview, durable: bool = True) -> None:
        self.fd, self.name = -1, None
        name, flags = temporary_name(), WRITE | os.O_CREAT | os.O_EXCL | NOFOLLOW
        fd = open_fd(name, flags, 0o666, dir_fd=folder.fd)
        self.folder, self.name = folder, name
        super().__init__(fd, data, durable)

    def link(self, folder: Folder, last: str) -> None:
        assert self.name is not None
        here, there = self.folder.fd, folder.fd
        os.link(self.name, last, src_dir_fd=here, dst_dir_fd=there, follow_symlinks=False)

    def rename(self, last: str) -> None:
        """Give it this name in its folder, in place of what has it."""
        assert self.name is not None
        os.rename(self.name, last, src_dir_fd=self.folder.fd, dst_dir_fd=self.folder.fd)
        self.name = None

    def close(self) -> None:
        name, self.name = self.name, None
        try:
            if name is not None:
                remove(name, self.folder)
        finally:
            super().close()

    __del__ = close


def read_range(fd: int, start: int, end: int) -> bytes:
    first = os.pread(fd, min(_CHUNK, max(0, end - start)), start)
    if start + len(first) >= end or not first:
        return first
    pieces, position = [first], start + len(first)
    while position < end:
        piece = os.pread(fd, min(_CHUNK, end - position), position)
        if not piece:
            break
        pieces.append(piece)
        position += len(piece)
    return b"".join(pieces)


def read_view(fd: int, start: int, end: int) -> memoryview:
    """The bytes in Arrow's memory, which is kept for the next file: fresh memory for each costs
    as much as the reading."""
    import pyarrow as pa

    size = max(0, end - start)
    memory = memoryview(pa.allocate_buffer(size)).cast("B")
    position = 0
    while position < size:
        count = os.preadv(fd, [memory[position : position + _CHUNK]], start + position)
        if not count:
            break
        position += count
    return memory[:position]


def entries(folder: Folder) -> Iterator[tuple[str, os.stat_result]]:
    # A description of its own: the position of a listing must not be shared.
    fd = open_fd(".", FOLDER, dir_fd=folder.fd)
    try:
        with with_files(os.scandir, fd) as listing:
            for entry in listing:
                try:
                    yield entry.name, entry.stat(follow_symlinks=False)
                except FileNotFoundError:
                    continue
    finally:
        os.close(fd)


def remove(last: str, folder: Folder) -> bool:
    try:
        os.unlink(last, dir_fd=folder.fd)
    except FileNotFoundError:
        return False
    return True


def make_root(root: str) -> None:
    missing = []
    above = root
    while not os.path.isdir(above):
        missing.append(above)
        above = os.path.dirname(above)
    for folder in reversed(missing):
        try:
            os.mkdir(folder)
        except FileExistsError:
            if not os.path.isdir(folder):
                raise NotADirectoryError(errno.ENOTDIR, "not a folder", folder) from None
    for folder in {os.path.dirname(root), *map(os.path.dirname, missing)}:
        sync_folder(folder)


def sync_folder(folder: str) -> None:
    """Make the names in a folder durable, whoever made them."""
    try:
        above = Folder(open_fd(folder, FOLDER))
    except PermissionError:
        return  # A folder that we can't read was not made by us.
    os.fsync(above.fd)


def stamp_of(status: os.stat_result) -> object:
    """What changes when a file is replaced; None for what is no file."""
    if not stat.S_ISREG(status.st_mode):
        return None
    return status.st_dev, status.st_ino, status.st_ctime_ns, status.st_size


def mark_stamp(root: Folder, name: str) -> object:
    try:
        return stamp_of(os.stat(name, dir_fd=root.fd, follow_symlinks=False))
    except FileNotFoundError:
        return None


def read_mark(root: Folder, name: str) -> bytes | None:
    """The small file that tells one root from another; None if there is none."""
    try:
        fd = open_fd(name, READ, dir_fd=root.fd)
    except FileNotFoundError:
        return None
    try:
        return read_range(fd, 0, MARK_BYTES)
    finally:
        os.close(fd)


def step(parent: Folder, part: str, name: str, create: bool) -> Folder | None:
    """The folder ``part`` in ``parent``, open; made, and its name made durable, if so asked."""
    try:
        if create:
            try:
                os.mkdir(part, dir_fd=parent.fd)
            except FileExistsError:
                pass
            except OSError:
                # On a read-only disk the folder may be there all the same.
                if not _is_folder(parent, part):
                    raise
        child = Folder(open_fd(part, FOLDER | NOFOLLOW, dir_fd=parent.fd))
    except FileNotFoundError:
        return None
    except OSError as error:
        if error.errno not in (errno.ENOTDIR, errno.ELOOP, errno.EMLINK):
            raise
        if stat.S_ISLNK(os.stat(part, dir_fd=parent.fd, follow_symlinks=False).st_mode):
            raise symlink_error(name) from None
        if create:
            raise
        return None
    if create:
        os.fsync(parent.fd)
    return child


def _is_folder(parent: Folder, part: str) -> bool:
    try:
        return stat.S_ISDIR(os.stat(part, dir_fd=parent.fd, follow_symlinks=False).st_mode)
    except OSError:
        return False


def check_is_file(folder: Folder, last: str, name: str) -> None:
    """A name that is taken by something else than a file would look free and taken forever."""
    try:
        mode = os.stat(last, dir_fd=folder.fd, follow_symlinks=False).st_mode
    except FileNotFoundError:
        return
    # A link is reported by name when it is read.
    if not stat.S_ISREG(mode) and not stat.S_ISLNK(mode):
        raise StorageError(
            f"{check_name(name)!r} is taken by something that is no file.",
            "Nothing but offsetlog writes under its root: remove it.",
            retryable=False,
        )


def symlink_error(name: str) -> StorageError:
    return StorageError(
        f"{check_name(name)!r} is a symbolic link, and none is followed under the root.",
        "Put the root itself where the files are to lie, and remove the link.",
        retryable=False,
    )
