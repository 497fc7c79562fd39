"""A disk behind an SSH server, through fsspec's sftp filesystem (paramiko).

1. The name is given by SFTP's own rename, which must not replace: OpenSSH links and unlinks,
   so the disk under it decides. fsspec's ``mv`` is the POSIX rename, and is used to overwrite.
2. SFTP says only "failure" when a name is taken: a look tells whether a file is there.
3. paramiko's client answers one thread at a time; a lock holds the others back.
4. Every wait is bounded, by a minute unless ``timeout`` is given.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Iterable
from contextlib import AbstractContextManager
from typing import Any

from offsetlog.filesystems import SFTP
from offsetlog.storage import faults
from offsetlog.storage.faults import Fault, FaultKind
from offsetlog.storage.shared.disk import DirectoryEntry, SharedDiskStore

_CONNECT_SECONDS = 15
_WAIT_SECONDS = 60
_PIPELINE_ABOVE = 32 << 10
_PIECE = 1 << 20
"""paramiko's time for one piece grows with the square of its size."""


class _Failure(Exception):
    """The server said no to a rename, and nothing is at the name."""


def judge(error: BaseException) -> Fault:
    """What an exception out of paramiko says."""
    name = type(error).__name__
    text = faults.words(error)
    if name in ("AuthenticationException", "PasswordRequiredException", "BadAuthenticationType"):
        return Fault(
            FaultKind.REFUSED, f"the server refused the login ({text})", SFTP.credentials, False
        )
    if name == "BadHostKeyException":
        return Fault(FaultKind.REFUSED, text, "Check the server's key in known_hosts.", False)
    if isinstance(error, _Failure):
        return Fault(FaultKind.REFUSED, f"the server refused to give the name ({error})")
    if text.endswith("Socket is closed"):
        return Fault(FaultKind.OPEN, text)
    if isinstance(error, OSError) and error.errno is None and type(error) is OSError:
        # A status of the server, in words alone: the connection is sound.
        return Fault(FaultKind.REFUSED, f"the server said: {error}")
    return faults.of_exception(error)


class SftpStore(SharedDiskStore):
    judge = staticmethod(judge)

    def __init__(self, protocol: str, root: str, url: str, options: dict[str, Any]) -> None:
        waits = {
            "timeout": _CONNECT_SECONDS,
            "banner_timeout": _CONNECT_SECONDS,
            "auth_timeout": _CONNECT_SECONDS,
        }
        super().__init__("sftp", root, url, {**waits, **options})
        self._lock = threading.RLock()
        self._lock_pid = os.getpid()

    def _make(self) -> Any:
        # By name: with sshfs installed, fsspec's registry gives that one instead.
        from fsspec.implementations.sftp import SFTPFileSystem

        try:
            fs = SFTPFileSystem(**self._options)
        except Exception as error:  # noqa: BLE001
            self._raise(error, "open", "")
        fs.ftp.get_channel().settimeout(max(_WAIT_SECONDS, self._options["timeout"]))
        return fs

    def _locked(self) -> AbstractContextManager[Any]:
        if self._lock_pid != os.getpid():
            self._lock, self._lock_pid = threading.RLock(), os.getpid()
        return self._lock

    def _write_new(self, path: str, data: bytes, durable: bool) -> None:
        with self._locked():
            with self.fs.ftp.open(path, "wx") as file:
                file.set_pipelined(len(data) > _PIPELINE_ABOVE)
                file.write(data)
                file.flush()
                if durable:
                    _fsync(file)
            if len(data) > _PIPELINE_ABOVE:
                size = self.fs.ftp.stat(path).st_size
                if size != len(data):
                    raise OSError(f"{size} of {len(data)} bytes were stored")

    def _give_name(self, temporary: str, path: str) -> bool:
        with self._locked():
            try:
                self.fs.ftp.rename(temporary, path)
            except OSError as error:
                if error.errno is not None or type(error) is not OSError:
                    raise
                try:
                    self.fs.ftp.stat(path)
                except FileNotFoundError:
                    raise _Failure(str(error)) from None
                raise FileExistsError(path) from None
        return True

    def _replace(self, temporary: str, path: str) -> None:
        with self._locked():
            self.fs.ftp.posix_rename(temporary, path)

    def _read(self, path: str, start: int | None, end: int | None) -> bytes:
        with self._locked(), self.fs.ftp.open(path, "rb") as file:
            size = file.stat().st_size
            first = 0 if start is None else start if start >= 0 else max(0, size + start)
            length = max(0, (size if end is None else min(size, end)) - first)
            pieces = [(first + at, min(_PIECE, length - at)) for at in range(0, length, _PIECE)]
            return b"".join(file.readv(pieces)) if pieces else b""

    def _look(self, path: str) -> DirectoryEntry:
        with self._locked():
            return _found("", self.fs.ftp.stat(path))

    def _look_at_itself(self, path: str) -> DirectoryEntry:
        with self._locked():
            return _found("", self.fs.ftp.lstat(path))

    def _members(self, path: str) -> Iterable[DirectoryEntry]:
        with self._locked():
            return [_found(one.filename, one) for one in self.fs.ftp.listdir_attr(path)]

    def _make_folder(self, path: str) -> None:
        with self._locked():
            self.fs.ftp.mkdir(path)

    def _remove(self, path: str) -> None:
        with self._locked():
            self.fs.ftp.remove(path)

    def _remove_folder(self, path: str) -> None:
        with self._locked():
            self.fs.ftp.rmdir(path)

    def close(self) -> None:
        made, self._made = self._made, None
        if made is not None and made[0] == os.getpid():
            made[1].client.close()


def _fsync(file: Any) -> None:
    """OpenSSH's extension; a server without it stores as it stores everything."""
    from paramiko.sftp import CMD_EXTENDED

    try:
        file.sftp._request(CMD_EXTENDED, "fsync@openssh.com", file.handle)
    except OSError as error:
        if type(error) is not OSError or error.errno is not None:
            raise


def _found(name: str, status: Any) -> DirectoryEntry:
    return DirectoryEntry(
        name, status.st_mode or 0, status.st_size or 0, int(status.st_mtime or 0) * 1000
    )
