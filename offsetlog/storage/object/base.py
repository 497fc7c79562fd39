"""What the three object stores have in common: one request for one question.

1. A backend says how to ask (five coroutines) and what an exception means; the rest is here.
2. The client's own coroutines are awaited on fsspec's loop, without fsspec's calls around
   them, since those ask more often than they need to.
3. A listing is a stream of pages; one page is held at a time.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import Any, NamedTuple

from offsetlog.storage.fsspec import _RAISE, FsspecStore
from offsetlog.storage.paths import check_folder, check_name, check_range
from offsetlog.storage.store import Committed, FileInfo, PutResult


class ListingPage(NamedTuple):
    """A part of a listing: names in the container, and where the next page starts."""

    files: list[FileInfo]
    folders: list[str]
    next: Any
    markers: Sequence[str] = ()
    """Files that only stand for a folder."""


class ObjectStore(FsspecStore, ABC):
    """A root in a bucket or container."""

    stays = True
    delete_together = 1000
    """How many files one request may delete."""

    def __init__(self, protocol: str, root: str, url: str, options: Mapping[str, Any]) -> None:
        super().__init__(protocol, root.lstrip("/"), url, options)
        self._bucket, _, self._prefix = self._root.partition("/")

    def _key(self, name: str) -> str:
        return f"{self._prefix}/{name}" if self._prefix and name else self._prefix or name

    # -- what a backend provides

    @abstractmethod
    async def _ask_get(self, key: str, start: int | None, end: int | None) -> bytes | None:
        """The bytes of a file or of a range of it; None when it is not there."""

    @abstractmethod
    async def _ask_put(self, key: str, data: bytes, if_absent: bool) -> None:
        """Create or replace a file."""

    @abstractmethod
    async def _ask_page(self, prefix: str, flat: bool, token: Any) -> ListingPage:
        """One page of a listing."""

    @abstractmethod
    async def _ask_info(self, key: str) -> FileInfo | None:
        """Size and time of a file; None when it is not there."""

    @abstractmethod
    async def _ask_delete(self, keys: Sequence[str]) -> None:
        """Delete files with one request."""

    # -- the port

    def _put_if_absent(self, name: str, data: bytes) -> PutResult:
        self._wait(self._ask_put, self._key(name), data, True, size=len(data))
        return Committed()

    def put(self, name: str, data: bytes, durable: bool = True) -> None:
        key = self._key(check_name(name))
        size = len(data)
        self._do(
            "write", name, lambda: self._wait(self._ask_put, key, data, False, size=size), _RAISE
        )

    def get(self, name: str, start: int | None = None, end: int | None = None) -> bytes | None:
        key = self._key(check_name(name))
        check_range(start, end)
        return self._do("read", name, lambda: self._wait(self._ask_get, key, start, end), None)

    def info(self, name: str) -> FileInfo | None:
        key = self._key(check_name(name))
        found = self._do("look at", name, lambda: self._wait(self._ask_info, key), None)
        return None if found is None else found._replace(name=name)

    def list(self, folder: str) -> Iterator[FileInfo]:
        for page in self._pages(folder):
            yield from page.files

    def folders(self, folder: str) -> Iterator[str]:
        for page in self._pages(folder):
            yield from page.folders

    def delete(self, names: Iterable[str]) -> None:
        rest = iter(names)
        while names_now := list(islice(rest, self.delete_together)):
            keys = [self._key(check_name(name)) for name in names_now]
            label = names_now[0]
            self._do("delete", label, lambda keys=keys: self._wait(self._ask_delete, keys), None)  # type: ignore[misc]

    def delete_tree(self, folder: str) -> None:
        markers: list[str] = []
        for page in self._raw_pages(folder, flat=True):
            keys = [found.name for found in page.files]
            markers.extend(page.markers)
            self._do("delete", folder, lambda keys=keys: self._delete_keys(keys), None)  # type: ignore[misc]
        # The deepest first: a folder with something in it may not go.
        for key in sorted(markers, reverse=True):
            self._do("delete", folder, lambda key=key: self._delete_keys([key]), None)  # type: ignore[misc]

    def remove_folder(self, folder: str) -> bool:
        """Remove what stands for a folder if nothing is in it; whether it is gone."""
        markers: set[str] = set()
        for page in self._raw_pages(check_name(folder), flat=True):
            # A name that ends with a slash is a marker that some tools leave for a folder.
            if any(found.name[-1:] != "/" for found in page.files):
                return False
            markers |= {*(found.name for found in page.files), *page.markers}
        own = {key for key in markers if key.rstrip("/") == self._key(folder)}
        if markers - own:
            return False
        for key in own:
            self._do("delete", folder, lambda key=key: self._delete_keys([key]), None)  # type: ignore[misc]
        return True

    def _at_root(self, root: str) -> FsspecStore:
        other = super()._at_root(root)
        assert isinstance(other, ObjectStore)
        other._bucket, _, other._prefix = other._root.partition("/")
        return other

    def _delete_keys(self, keys: Sequence[str]) -> None:
        for first in range(0, len(keys), self.delete_together):
            self._wait(self._ask_delete, keys[first : first + self.delete_together])

    def _pages(self, folder: str) -> Iterator[ListingPage]:
        """The pages of a folder, with names as the port has them."""
        skip = len(self._prefix) + 1 if self._prefix else 0
        cut_folder = len(self._folder_key(folder))
        for page in self._raw_pages(folder, flat=False):
            yield page._replace(
                # A name that ends with a slash is a marker that some tools leave for a folder.
                files=[f._replace(name=f.name[skip:]) for f in page.files if f.name[-1:] != "/"],
                folders=[name[cut_folder:].strip("/") for name in page.folders],
            )

    def _raw_pages(self, folder: str, flat: bool) -> Iterator[ListingPage]:
        prefix = self._folder_key(check_folder(folder))
        token: Any = None
        while True:
            page: ListingPage = self._do(
                "list",
                folder,
                lambda token=token: self._wait(self._ask_page, prefix, flat, token),  # type: ignore[misc]
                _RAISE,
            )
            yield page
            token = page.next
            if not token:
                return

    def _folder_key(self, folder: str) -> str:
        key = self._key(folder)
        return f"{key}/" if key else ""


def range_header(start: int | None, end: int | None) -> str | None:
    """HTTP's words for a range; it has none for an empty one, for which a byte is asked."""
    if start is None and end is None:
        return None
    if start is not None and start < 0:
        return f"bytes={start}"
    first = start or 0
    return f"bytes={first}-" if end is None else f"bytes={first}-{max(first, end - 1)}"


def cut(data: bytes, start: int | None, end: int | None, partial: bool) -> bytes:
    """The bytes of the range out of what a server sent, be it the range or the whole file."""
    if start is None and end is None:
        return data
    if not partial:
        return data[start:end]
    return data if end is None else data[: end - (start or 0)]
