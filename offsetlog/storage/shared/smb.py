"""A Windows or Samba share, through fsspec's smb filesystem (smbprotocol).

1. The name is given by a hard link that must not replace. Samba turns it into link(2) and
   Windows decides it in NTFS; a rename would not do, since Samba looks first and renames then.
2. A share whose disk has no hard links is refused for writing.
3. Overwriting is a rename that replaces. While a reader has the file open the server may
   refuse that for a moment: a few tries, a bounded time.
4. Links and junctions are told by their reparse tags. A server that follows links by itself
   shows none: that is for its administrator to switch off (Samba: ``follow symlinks = no``).
5. Every wait is bounded, by a minute unless ``timeout`` is longer: Samba itself waits for the
   other end of a pipe that somebody left at a name.
"""

from __future__ import annotations

import errno
import os
import stat
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from functools import partial
from typing import Any, NamedTuple

from offsetlog.errors import UnsafeFilesystemError
from offsetlog.filesystems import SMB
from offsetlog.storage import faults
from offsetlog.storage.faults import Fault, FaultKind
from offsetlog.storage.shared.disk import DirectoryEntry, SharedDiskStore

_TRIES = 6
_CONNECT_TRIES = 3
_CONNECT_SECONDS = 15
_CONNECT_PAUSE = 0.5
_LOGIN_SECONDS = 20
_WAIT_SECONDS = 60
_FIRST_PAUSE = 0.01
_NO_LINKS = {0xC00000BB, 0xC0000003, 0xC0000002, 0xC0000010}
"""NT's words for: not supported, no such class, not implemented, no such request."""
_IS_FOLDER = 0x10
_IS_REPARSED = 0x400
_LINKS = {0xA000000C, 0xA0000003}
"""Tags of symbolic links and of junctions. Other reparse points are a disk's own business."""
_SHARING_VIOLATION = 0xC0000043


def judge(error: BaseException) -> Fault:
    """What an exception out of smbprotocol says."""
    name = type(error).__name__
    text = faults.words(error)
    if name in ("LogonFailure", "SMBAuthenticationError", "AccountRestriction"):
        return Fault(
            FaultKind.REFUSED, f"the server refused the login ({text})", SMB.credentials, False
        )
    if name == "BadNetworkName":
        return Fault(FaultKind.REFUSED, "the server has no such share", "Check the URL.", False)
    if getattr(error, "ntstatus", None) in (0xC000003A, 0xC000000F, 0xC0000034):
        return Fault(FaultKind.MISSING, "there is no such file or folder")
    if isinstance(error, ValueError):
        return Fault(FaultKind.REFUSED, text, "Check the host, the port and the credentials.")
    return faults.of_exception(error)


class _Connections(dict[str, Any]):
    """The client's cache of connections. It puts one here before it logs in, and that wait has no
    end of its own."""

    def __setitem__(self, host: str, connection: Any) -> None:
        super().__setitem__(host, connection)
        self.bound(_LOGIN_SECONDS)

    def bound(self, seconds: float) -> None:
        for connection in self.values():
            receive = type(connection).receive
            connection.receive = partial(receive, connection, timeout=seconds)

    def drop(self) -> None:
        """Forget connections on which nobody logged in."""
        for connection in self.values():
            with suppress(Exception):
                connection.disconnect(False)
        self.clear()


class _Session(NamedTuple):
    host: str
    port: int
    connections: _Connections


def _connect(asked: Any) -> _Session:
    import smbclient

    session = _Session(asked.host, asked._port, _Connections())
    for tries_left in reversed(range(_CONNECT_TRIES)):
        try:
            smbclient.register_session(
                session.host,
                username=asked.username,
                password=asked.password,
                port=session.port,
                encrypt=asked.encrypt,
                connection_timeout=min(asked.timeout, _CONNECT_SECONDS),
                connection_cache=session.connections,
            )
            break
        except Exception as error:
            session.connections.drop()
            if not tries_left or judge(error).kind is not FaultKind.OPEN:
                raise
            time.sleep(_CONNECT_PAUSE)
    session.connections.bound(max(_WAIT_SECONDS, asked.timeout))
    return session


class SmbStore(SharedDiskStore):
    judge = staticmethod(judge)

    def _make(self) -> _Session:
        from fsspec.implementations.smb import SMBFileSystem

        try:
            # fsspec understands the options; the session is our own, since the client keeps
            # one cache of connections for a process, which a fork would share.
            asked = SMBFileSystem(**{**self._options, "register_session_retries": -1})
            return _connect(asked)
        except Exception as error:  # noqa: BLE001
            self._raise(error, "open", "")

    def _path(self, name: str) -> str:
        return f"{self._root}/{name}".strip("/") if name else self._root.strip("/")

    def _unc(self, path: str) -> str:
        return f"\\\\{self.fs.host}\\{path.replace('/', chr(92))}"

    def _ask(self, call: str, *args: Any, **options: Any) -> Any:
        import smbclient

        session = self.fs
        return getattr(smbclient, call)(
            *args, port=session.port, connection_cache=session.connections, **options
        )

    def _write_new(self, path: str, data: bytes, durable: bool) -> None:
        with self._ask("open_file", self._unc(path), mode="xb", buffering=0) as file:
            rest = memoryview(data)
            while len(rest):
                rest = rest[file.write(rest) :]
            if durable:
                file.flush()

    def _give_name(self, temporary: str, path: str) -> bool:
        try:
            self._ask("link", self._unc(temporary), self._unc(path))
        except Exception as error:
            if getattr(error, "ntstatus", None) in _NO_LINKS:
                raise UnsafeFilesystemError(
                    f"The share under {self.url} has no hard links, so {path!r} could not be "
                    "created safely.",
                    "Use a share on NTFS, or Samba on a disk with hard links.",
                ) from None
            raise
        return False

    def _replace(self, temporary: str, path: str) -> None:
        self._patiently(lambda: self._ask("replace", self._unc(temporary), self._unc(path)))

    def _read(self, path: str, start: int | None, end: int | None) -> bytes:
        with self._ask(
            "open_file", self._unc(path), mode="rb", buffering=0, share_access="rwd"
        ) as file:
            if start is not None:
                size = file.seek(0, 2)
                file.seek(start if start >= 0 else max(0, size + start))
            if end is None:
                return bytes(file.readall())
            pieces, missing = [], end - (start or 0)
            while missing > 0 and (piece := file.read(missing)):
                pieces.append(piece)
                missing -= len(piece)
            return b"".join(pieces)

    def _look(self, path: str) -> DirectoryEntry:
        status = self._ask("stat", self._unc(path))
        return DirectoryEntry("", status.st_mode, status.st_size, int(status.st_mtime * 1000))

    def _look_at_itself(self, path: str) -> DirectoryEntry:
        status = self._ask("lstat", self._unc(path))
        mode = stat.S_IFLNK if status.st_reparse_tag in _LINKS else status.st_mode
        return DirectoryEntry("", mode, status.st_size, int(status.st_mtime * 1000))

    def _members(self, path: str) -> Iterable[DirectoryEntry]:
        found = []
        for entry in self._ask("scandir", self._unc(path)):
            about = entry.smb_info
            kind = stat.S_IFDIR if about.file_attributes & _IS_FOLDER else stat.S_IFREG
            # The tag of a reparse point stands where else the size of its attributes does.
            if about.file_attributes & _IS_REPARSED and about.ea_size in _LINKS:
                kind = stat.S_IFLNK
            modified = int(about.last_write_time.timestamp() * 1000)
            found.append(DirectoryEntry(entry.name, kind, about.end_of_file, modified))
        return found

    def _make_folder_if_absent(self, path: str, look: Callable[[str], DirectoryEntry]) -> None:
        if "/" in path:  # The first part is the share itself.
            super()._make_folder_if_absent(path, look)

    def _make_folder(self, path: str) -> None:
        self._ask("mkdir", self._unc(path))

    def _remove(self, path: str) -> None:
        self._patiently(lambda: self._ask("remove", self._unc(path)))

    def _remove_folder(self, path: str) -> None:
        self._ask("rmdir", self._unc(path))

    def _patiently(self, work: Callable[[], Any]) -> None:
        for tries_left in reversed(range(_TRIES)):
            try:
                work()
                return
            except OSError as error:
                busy = getattr(error, "ntstatus", None) == _SHARING_VIOLATION
                if not tries_left or not (busy or error.errno == errno.EBUSY):
                    raise
                time.sleep(_FIRST_PAUSE * 2 ** (_TRIES - tries_left))

    def close(self) -> None:
        made, self._made = self._made, None
        if made is not None and made[0] == os.getpid():
            import smbclient

            smbclient.reset_connection_cache(
                fail_on_error=False, connection_cache=made[1].connections
            )
