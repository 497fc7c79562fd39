"""What stores over an fsspec filesystem have in common, and the ones that are only read.

1. The filesystem object is made when it is first used, and made anew in a forked process:
   no connection and no event loop is shared with the parent.
2. Listings and file infos are asked for anew each time; fsspec's caches of them are emptied.
3. ``ReadOnlyStore`` refuses every write with the reason. ``LookThenWriteStore`` is for roots
   that have one writer: it looks and then writes, and two writers would lose records.
4. A chain of filesystems that ends on a local disk follows no link below the root, and opens
   nothing but files, like the local disk itself. Of others fsspec does not show what is a link.
5. Of a web server no more is taken than was asked for, also where it passes over the range.
6. Before the first file is created the store has itself proven (``Store.before_creating``).
7. A call of an async client ends in its time, whatever the client tries (``_wait``); after ten
   seconds without an answer a line in the log names the server.
8. Where the filesystem renames, a file is written under a temporary name and moved, so that a
   writer who is killed leaves no half of one. Whether it does is tried, once for a store; where
   it does not, a file is written in its place, and ``replaces_at_once`` is false.
"""

from __future__ import annotations

import asyncio
import contextlib
import copy
import hashlib
import os
import re
import threading
import time
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import wait
from contextvars import ContextVar
from datetime import datetime
from typing import Any, NamedTuple, NoReturn, TypeVar
from urllib.parse import urljoin

from offsetlog.errors import InvalidRequestError, OffsetLogError, UnsafeFilesystemError
from offsetlog.filesystems import OF_PROTOCOL, of_unproven, what_works
from offsetlog.logs import get_logger
from offsetlog.redact import Redactor, safe_url
from offsetlog.storage import faults
from offsetlog.storage.faults import Fault, FaultKind, Silence
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
from offsetlog.storage.store import Committed, Conflict, FileInfo, Offer, PutResult, Store, Unknown

T = TypeVar("T")
CALL_SECONDS = 60.0
"""The time that one call of a store has, with all that a client library tries in it; bodies get
more, by their size."""
LEAST_SPEED = 256 << 10
"""Bytes a second: a body that is slower is given up."""
SILENT_SECONDS = 10.0
"""After so long without an answer the log names the server."""
logger = get_logger(__name__)


class FsspecStore(Store):
    """A root on an fsspec filesystem: the object, the paths and the errors."""

    is_local = False
    may_stall = True
    judge: Callable[[BaseException], Fault] = staticmethod(faults.of_exception)
    """What an exception of this filesystem's client says."""

    def __init__(self, protocol: str, root: str, url: str, options: Mapping[str, Any]) -> None:
        self._protocol = protocol
        self._root = root.rstrip("/")
        self._is_rooted = bool(root)
        self._options = dict(options)
        self._redact = Redactor(url, options)
        self.url = safe_url(url).rstrip("/")
        self._made: tuple[int, Any] | None = None
        self._making: dict[int, threading.Lock] = {}
        """By process: a lock that another thread held at a fork is never released in the child."""
        self._see: Callable[[], bool] | None = None
        """Proves that a create here conflicts with a file that is there; None once it did."""
        self._sees = threading.RLock()
        self._is_seeing = False
        self._told_at = float("-inf")

    def before_creating(self, see: Callable[[], bool]) -> None:
        self._see = None if self._identity() in _PROVEN else see

    def prove(self) -> None:
        """Raise unless the storage was seen to keep put-if-absent, where that is to be seen."""
        if self._see is None:
            return
        with self._sees:
            see = self._see
            if see is None or self._is_seeing:
                return
            self._is_seeing = True
            try:
                if see():
                    self._see = None
                    _PROVEN.add(self._identity())
            finally:
                self._is_seeing = False

    def _identity(self) -> bytes:
        """Of the storage; options are part of it, since they may name another server."""
        text = repr((self._protocol, self._root, sorted(self._options.items(), key=str)))
        return hashlib.blake2b(text.encode("utf-8", "surrogatepass")).digest()

    @property
    def fs(self) -> Any:
        made = self._made
        if made is None or made[0] != os.getpid():
            with self._making.setdefault(os.getpid(), threading.Lock()):
                made = self._made
                if made is None or made[0] != os.getpid():
                    made = self._made = (os.getpid(), self._make())
        return made[1]

    def _make(self) -> Any:
        import fsspec

        try:
            return fsspec.filesystem(self._protocol, **self._options)
        except OffsetLogError:
            raise
        except Exception as error:  # noqa: BLE001
            self._raise(error, "open", "")

    def _wait(self, ask: Callable[..., Awaitable[T]], *args: Any, size: int = 0) -> T:
        """What a coroutine of the client gives, in the time that a call has, whatever the client
        tries in it; ``Silence`` after that. ``size`` is of what is sent."""
        budget = _Budget(CALL_SECONDS + size / LEAST_SPEED)
        loop = self.fs.loop  # First of all: a client that can't be made is an error of its own.
        done = asyncio.run_coroutine_threadsafe(_within(budget, ask, args), loop)
        began = time.monotonic()
        told = SILENT_SECONDS
        while not wait([done], max(0.0, min(budget.until, began + told) - time.monotonic())).done:
            waited = time.monotonic() - began
            if time.monotonic() >= budget.until:
                if not done.cancel():
                    break
                raise Silence(f"{self._server()} did not answer within {waited:.0f} seconds")
            told += SILENT_SECONDS
            self._tell_silence(waited)
        return done.result()

    def _tell_silence(self, waited: float) -> None:
        now = time.monotonic()
        if now - self._told_at >= SILENT_SECONDS:  # One line, however many wait.
            self._told_at = now
            logger.warning("%s has not answered for %.0f seconds.", self._server(), waited)

    def _server(self) -> str:
        """The root, and the server that is asked for it, where that is said apart."""
        more = self._options.get("client_kwargs")
        given = self._options.get("endpoint_url") or self._options.get("account_host")
        if not given and isinstance(more, Mapping):
            given = more.get("endpoint_url")
        return self._redact(f"{self.url} at {safe_url(str(given))}") if given else self.url

    def _path(self, name: str) -> str:
        if not name:
            return self._root
        return f"{self._root}/{name}" if self._is_rooted else name

    def _raise(self, error: BaseException, doing: str, name: str) -> NoReturn:
        if isinstance(error, OffsetLogError):
            raise error
        fault = self._judge(error)
        raise faults.storage_error(fault, doing, name, self.url, self._redact) from None

    def _judge(self, error: BaseException) -> Fault:
        return type(self).judge(error)

    def _do(self, doing: str, name: str, work: Callable[[], T], missing: T | None = None) -> T:
        """What ``work`` gives; ``missing`` if there is no such file; else an error of ours."""
        try:
            return work()
        except Exception as error:
            fault = self._judge(error)
            if fault.kind is FaultKind.MISSING and missing is not _RAISE:
                return missing  # type: ignore[return-value]
            if isinstance(error, OffsetLogError):
                raise
            failed = faults.storage_error(fault, doing, name, self.url, self._redact)
        raise failed

    def _create(self, name: str, data: bytes) -> PutResult:
        """Put-if-absent, with a refusal raised and anything else as one of the answers."""
        try:
            return self._put_if_absent(name, data)
        except OffsetLogError:
            raise
        except Exception as error:  # noqa: BLE001
            fault = self._judge(error)
            if fault.kind is FaultKind.EXISTS:
                return Conflict()
            if fault.kind is FaultKind.OPEN:
                text = self._redact(f"No answer for {name!r}: {fault.text}.")
                return Unknown(text, fault.is_silence)
            failed = faults.storage_error(fault, "create", name, self.url, self._redact)
        raise failed

    def _put_if_absent(self, name: str, data: bytes) -> PutResult:
        raise InvalidRequestError(f"{self.url} has no way to create {name!r}.")

    def offer(self, data: bytes, beside: str) -> Offer:
        return FsspecOffer(self, data, beside)

    def settle(self, folder: str) -> None:
        """A server that has answered has stored it."""
        check_folder(folder)

    def above(self) -> Iterator[tuple[FsspecStore, str]]:
        at = self._root
        while "/" in at.strip("/"):
            at, _, part = at.rpartition("/")
            if part:
                yield self._at_root(at), part

    def _at_root(self, root: str) -> FsspecStore:
        self.fs  # noqa: B018 - made once, for all of them
        other = copy.copy(self)
        other._root = root.rstrip("/")
        depth = self._root.count("/") - other._root.count("/")
        other.url = self.url.rsplit("/", depth)[0]
        return other

    def delta_address(self, folder: str) -> str | None:
        known = OF_PROTOCOL.get(self._protocol)
        delta = "" if known is None else known.delta
        return f"{delta}://{self._path(folder)}".rstrip("/") if delta else None

    def options_for(self, url: str) -> Mapping[str, Any]:
        return dict(self._options) if url.partition("://")[0] == self._protocol else {}

    def close(self) -> None:
        self._made = None


class _Budget:
    """Until when a call may take."""

    def __init__(self, seconds: float) -> None:
        self.until = time.monotonic() + seconds


_BUDGET: ContextVar[_Budget | None] = ContextVar("offsetlog_budget", default=None)


async def _within(budget: _Budget, ask: Callable[..., Awaitable[T]], args: Sequence[Any]) -> T:
    _BUDGET.set(budget)
    return await ask(*args)


def expect(size: int) -> None:
    """In a coroutine of ``_wait``: so many bytes are on their way, and take their time."""
    budget = _BUDGET.get()
    if budget is not None:
        budget.until += size / LEAST_SPEED


_PROVEN: set[bytes] = set()
"""The storages that were seen to keep put-if-absent, in this process."""


class _Raise:
    """Marks that a missing file is an error here."""


_RAISE: Any = _Raise()


class FsspecOffer(Offer):
    """Bytes that are sent whole at each try."""

    def __init__(self, store: FsspecStore, data: bytes, beside: str) -> None:
        check_name(beside)
        self._store = store
        self._data = data

    def put(self, name: str) -> PutResult:
        self._store.prove()
        return self._store._create(check_name(name), self._data)

    def close(self) -> None:
        self._data = b""


class ReadOnlyStore(FsspecStore):
    """Any filesystem that fsspec reaches, for reading."""

    def __init__(
        self, protocol: str, root: str, url: str, options: Mapping[str, Any], reason: str = ""
    ) -> None:
        super().__init__(protocol, root, url, options)
        self._reason = reason
        self.stays = of_unproven(protocol).is_remote

    def get(self, name: str, start: int | None = None, end: int | None = None) -> bytes | None:
        path = self._path(check_name(name))
        check_range(start, end)

        def read() -> bytes | None:
            if self._is_web:
                return self._wait(_web_range, self.fs, path, start, end)
            if self._has_links and self._kind(name) != "file":
                return None
            return bytes(self.fs.cat_file(path, start=start, end=end))

        return self._do("read", name, read, None)

    @property
    def _is_web(self) -> bool:
        return self._protocol in ("http", "https")

    @property
    def _has_links(self) -> bool:
        """Whether this is a local disk behind other filesystems, or one of fsspec's."""
        innermost = self.fs
        while getattr(innermost, "fs", None) is not None:
            innermost = innermost.fs
        return "file" in (innermost.protocol, *innermost.protocol)

    def _kind(self, name: str) -> str:
        """What is at a name, which is no link and behind none."""
        kind, path = "directory", ""
        for part in name.split("/") if name else ():
            path = join(path, part)
            whole = self._path(path)
            found = self._found(whole)
            if found.get("islink"):
                raise symlink_error(path)
            kind = str(found.get("type"))
        return kind

    def _found(self, whole: str) -> dict[str, Any]:
        """A link that leads nowhere is no file to fsspec, and yet there, at each of two looks; a
        file that came between them is one at the second."""
        for _ in range(2):
            with contextlib.suppress(FileNotFoundError):
                return dict(self.fs.info(whole))
            if not self.fs.lexists(whole):
                raise FileNotFoundError(whole)
        return {"islink": True}

    def _check_folder(self, folder: str) -> None:
        """That no part of a folder's name is a link; who is missing is none."""
        if self._has_links:
            with contextlib.suppress(FileNotFoundError):
                self._kind(folder)

    def info(self, name: str) -> FileInfo | None:
        path = self._path(check_name(name))

        def look() -> FileInfo | None:
            self.fs.invalidate_cache(path.rpartition("/")[0])
            if self._has_links:
                self._kind(name)
            found = self._wait(self.fs._info, path) if self._is_web else self.fs.info(path)
            return _file_info(name, found) if found.get("type", "file") == "file" else None

        return self._do("look at", name, look, None)

    def list(self, folder: str) -> Iterator[FileInfo]:
        for last, found in self._listing(folder):
            is_file = found.get("type") == "file" and not found.get("islink")
            if is_file and not last.startswith(TEMPORARY):
                yield _file_info(join(folder, last), found)

    def folders(self, folder: str) -> Iterator[str]:
        for last, found in self._listing(folder):
            if found.get("type") == "directory" and not found.get("islink"):
                yield last

    def _listing(self, folder: str) -> Iterator[tuple[str, dict[str, Any]]]:
        path = self._path(check_folder(folder))

        def ask() -> list[dict[str, Any]]:
            if self._is_web:
                return self._wait(_web_listing, self.fs, path)
            self.fs.invalidate_cache(path)
            self._check_folder(folder)
            return list(self.fs.ls(path, detail=True))

        nothing: list[dict[str, Any]] = []
        for found in self._do("list", folder, ask, nothing):
            last = str(found["name"]).rstrip("/").rpartition("/")[2]
            # Some filesystems list a folder as a member of itself, or a file as its own folder.
            if (
                last
                and last not in (".", "..")
                and str(found["name"]).strip("/") != path.strip("/")
            ):
                yield last, found

    def offer(self, data: bytes, beside: str) -> Offer:
        check_name(beside)
        self._refuse(beside)

    def put(self, name: str, data: bytes, durable: bool = True) -> None:
        self._refuse(check_name(name))

    def delete(self, names: Iterable[str]) -> None:
        for name in names:
            self._refuse(check_name(name))

    def delete_tree(self, folder: str) -> None:
        self._refuse(check_folder(folder))

    def _refuse(self, name: str) -> NoReturn:
        raise UnsafeFilesystemError(
            f"Nothing is written to {name!r} under {self.url}: {self._reason}",
            f"Fit for writing: {what_works()}. If one process alone ever writes there, "
            "single_writer=True (--single-writer) accepts the risk.",
        )


class LookThenWriteStore(ReadOnlyStore):
    """For a root with one writer: a second one would make both lose records unseen."""

    leaves_temporaries = True
    _renaming: _Renaming | None = None

    needs_probe = False
    """The user vouches that nobody races."""

    def before_creating(self, see: Callable[[], bool]) -> None:
        """For the same reason nothing is looked at."""

    def offer(self, data: bytes, beside: str) -> Offer:
        return FsspecOffer(self, data, beside)

    def _put_if_absent(self, name: str, data: bytes) -> PutResult:
        path = self._path(name)
        self.fs.invalidate_cache(path.rpartition("/")[0])
        if self.fs.exists(path):
            return Conflict()
        self._write(name, data, is_new=True)
        return Committed()

    def put(self, name: str, data: bytes, durable: bool = True) -> None:
        check_name(name)
        self._do("write", name, lambda: self._write(name, data, is_new=False), _RAISE)

    @property
    def replaces_at_once(self) -> bool:
        return bool(self._do("write", "", lambda: self._tried("").replaces, _RAISE))

    def _write(self, name: str, data: bytes, is_new: bool) -> None:
        folder, path = split(name)[0], self._path(name)
        self._check_folder(folder)
        self.fs.makedirs(path.rpartition("/")[0], exist_ok=True)
        ways = self._tried(folder)
        if not (ways.renames if is_new else ways.replaces):
            self.fs.pipe_file(path, data)
            return
        temporary = self._path(join(folder, temporary_name()))
        try:
            self.fs.pipe_file(temporary, data)
            self.fs.mv(temporary, path)
        except BaseException:
            self._remove_quietly(temporary)
            raise
        self.fs.invalidate_cache(path.rpartition("/")[0])

    def _tried(self, folder: str) -> _Renaming:
        """What renaming does here: tried with files of our own, in a folder that is there."""
        known = self._renaming
        if known is None:
            renames = replaces = False
            if _has_a_rename(self.fs):
                self.fs.makedirs(self._path(folder), exist_ok=True)
                renames = self._try_rename(folder, replace=False)
                replaces = renames and self._try_rename(folder, replace=True)
            known = self._renaming = _Renaming(renames, replaces)
        return known

    def _try_rename(self, folder: str, replace: bool) -> bool:
        old, new = (self._path(join(folder, temporary_name())) for _ in range(2))
        try:
            self.fs.pipe_file(old, b"moved")
            if replace:
                self.fs.pipe_file(new, b"replaced")
            with contextlib.suppress(Exception):  # What came of it is looked at.
                self.fs.mv(old, new)
            self.fs.invalidate_cache(new.rpartition("/")[0])
            return bool(self.fs.exists(new) and self.fs.cat_file(new) == b"moved")
        finally:
            self._remove_quietly(old)
            self._remove_quietly(new)

    def _remove_quietly(self, path: str) -> None:
        try:
            self.fs.rm_file(path)
        except Exception:  # noqa: BLE001
            return  # It is not there, or the next sweep finds it.

    def sweep(self, folder: str, before_ms: int) -> int:
        removed = 0
        for last, found in list(self._listing(folder)):
            if last.startswith(TEMPORARY) and 0 < _modified_ms(found) < before_ms:
                self._remove_quietly(self._path(join(folder, last)))
                removed += 1
        return removed

    def delete(self, names: Iterable[str]) -> None:
        for name in names:
            path = self._path(check_name(name))

            def remove(path: str = path, folder: str = split(name)[0]) -> None:
                self._check_folder(folder)
                self.fs.rm_file(path)

            self._do("delete", name, remove, None)

    def remove_folder(self, folder: str) -> bool:
        path = self._path(check_name(folder))
        # Looked at first: some filesystems remove a folder with all that is in it.
        if any(True for _ in self._listing(folder)):
            return False
        self._do("delete", folder, lambda: self.fs.rmdir(path), None)
        return True

    def delete_tree(self, folder: str) -> None:
        path = self._path(check_folder(folder))

        def remove() -> None:
            self._check_folder(folder)
            self.fs.rm(path, recursive=True)

        self._do("delete", folder, remove, None)


class _Renaming(NamedTuple):
    renames: bool
    """Gives a file a name that is free."""
    replaces: bool
    """Gives it one that is taken, in place of what was there."""


def _has_a_rename(fs: Any) -> bool:
    """Whether ``mv`` is the filesystem's own: fsspec's copies, and deletes then."""
    from fsspec import AbstractFileSystem
    from fsspec.implementations.dirfs import DirFileSystem

    while isinstance(fs, DirFileSystem):
        fs = fs.fs
    return getattr(type(fs), "mv", None) is not AbstractFileSystem.mv


async def _web_range(fs: Any, url: str, start: int | None, end: int | None) -> bytes:
    """The bytes of a range of a page. A server may send all of it instead: what comes before the
    range is dropped, and the rest is not waited for."""
    first = start or 0
    span = f"{first}-{'' if end is None else max(first, end - 1)}" if first >= 0 else str(first)
    options = dict(fs.kwargs)
    headers = {**options.pop("headers", {}), "Range": f"bytes={span}"}
    session = await fs.set_session()
    async with session.get(fs.encode_url(url), headers=headers, **options) as answer:
        if answer.status == 416:
            return b""
        fs._raise_not_found_for_status(answer, url)
        is_part = answer.status == 206
        before = 0 if is_part else max(0, first)
        out = bytearray()
        taken = 0
        async for piece in answer.content.iter_chunked(_PIECE):
            taken += len(piece)
            if end is None and taken > (-first if is_part and first < 0 else MOST_UNBOUNDED):
                raise _EndlessError(f"it sends more than {taken - 1} bytes of one file")
            expect(len(piece))
            out += piece[before:] if before else piece
            before = max(0, before - len(piece))
            if first < 0:
                del out[:first]
            elif end is not None and len(out) >= end - first:
                break
        return bytes(out if end is None else out[: end - first])


async def _web_listing(fs: Any, url: str) -> list[dict[str, Any]]:
    """The links of a page that lead below it, as fsspec lists them; a page has an end."""
    page = bytearray()
    session = await fs.set_session()
    async with session.get(fs.encode_url(url), **fs.kwargs) as answer:
        fs._raise_not_found_for_status(answer, url)
        kind = answer.headers.get("Content-Type", "text/html").partition(";")[0]
        if kind != "text/html":
            return []
        async for piece in answer.content.iter_chunked(_PIECE):
            page += piece
            if len(page) > MOST_LISTING:
                raise _EndlessError(f"it sends a list of files of more than {MOST_LISTING} bytes")
    base = f"{url.rstrip('/')}/"
    links = {urljoin(base, link) for link in _LINK.findall(page.decode("utf-8", "ignore"))}
    return [
        {"name": link, "size": None, "type": "directory" if link[-1] == "/" else "file"}
        for link in sorted(links)
        if link.startswith(base) and link != base
    ]


class _EndlessError(NotImplementedError):
    """A server that sends more than it was asked for is refused."""


_LINK = re.compile(r"""<a\s[^>]*?href=["']([^"']+)["']""", re.IGNORECASE)
MOST_LISTING = 16 << 20
MOST_UNBOUNDED = 1 << 30
"""The most that is taken of a web server where no end was asked for."""
_PIECE = 1 << 20


def _file_info(name: str, found: Mapping[str, Any]) -> FileInfo:
    return FileInfo(name, int(found.get("size") or 0), _modified_ms(found))


def _modified_ms(found: Mapping[str, Any]) -> int:
    """The time of a listing; filesystems call it by many names, and some have none."""
    for word in ("mtime", "LastModified", "last_modified", "modified", "created"):
        value = found.get(word)
        if isinstance(value, datetime):
            return int(value.timestamp() * 1000)
        if isinstance(value, (int, float)):
            return int(value * 1000)
        if isinstance(value, str):
            try:
                return int(datetime.fromisoformat(value).timestamp() * 1000)
            except ValueError:
                continue
    return 0
