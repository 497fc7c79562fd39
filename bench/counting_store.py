"""A store that counts what is asked of it.

1. It changes nothing: the answers are those of the store inside.
2. A call is counted when it is made, its bytes when it is answered.
3. ``list`` and ``folders`` count once each; what a page costs is counted at the HTTP level.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Iterable, Iterator

from offsetlog.storage.store import FileInfo, Offer, PutResult, Store


class CountingStore(Store):
    """Counts calls by kind, and the bytes that went up and came down."""

    def __init__(self, inner: Store) -> None:
        self.inner = inner
        self.url = inner.url
        self.is_local = inner.is_local
        self.calls: Counter[str] = Counter()
        self.bytes_up = 0
        self.bytes_down = 0
        self._lock = threading.Lock()

    @property
    def total(self) -> int:
        """All calls that would be requests: a prepared offer alone is none."""
        return sum(self.calls.values())

    def reset(self) -> None:
        with self._lock:
            self.calls.clear()
            self.bytes_up = self.bytes_down = 0

    def _count(self, kind: str, up: int = 0, down: int = 0, calls: int = 1) -> None:
        with self._lock:
            self.calls[kind] += calls
            self.bytes_up += up
            self.bytes_down += down

    def before_creating(self, see: Callable[[], bool]) -> None:
        self.inner.before_creating(see)

    def offer(self, data: bytes, beside: str) -> CountingOffer:
        return CountingOffer(self, self.inner.offer(data, beside), len(data))

    def get(self, name: str, start: int | None = None, end: int | None = None) -> bytes | None:
        self._count("get")
        found = self.inner.get(name, start, end)
        self._count("get", down=len(found or b""), calls=0)
        return found

    def put(self, name: str, data: bytes, durable: bool = True) -> None:
        self._count("put", up=len(data))
        self.inner.put(name, data, durable)

    def list(self, folder: str) -> Iterator[FileInfo]:
        self._count("list")
        return self.inner.list(folder)

    def folders(self, folder: str) -> Iterator[str]:
        self._count("folders")
        return self.inner.folders(folder)

    def info(self, name: str) -> FileInfo | None:
        self._count("info")
        return self.inner.info(name)

    def delete(self, names: Iterable[str]) -> None:
        self._count("delete")
        self.inner.delete(names)

    def delete_tree(self, folder: str) -> None:
        self._count("delete_tree")
        self.inner.delete_tree(folder)

    def settle(self, folder: str) -> None:
        self._count("settle")
        self.inner.settle(folder)

    def delta_address(self, folder: str) -> str | None:
        return self.inner.delta_address(folder)

    def close(self) -> None:
        self.inner.close()


class CountingOffer(Offer):
    def __init__(self, store: CountingStore, inner: Offer, size: int) -> None:
        self._store, self._inner, self._size = store, inner, size

    def put(self, name: str) -> PutResult:
        self._store._count("create", up=self._size)
        return self._inner.put(name)

    def close(self) -> None:
        self._inner.close()
