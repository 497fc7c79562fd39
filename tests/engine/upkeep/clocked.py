"""A log in memory whose storage's clock, and everybody's, is the test's."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

from offsetlog.client.log import Log
from offsetlog.engine.env import REAL, Limits
from offsetlog.storage.memory import MemoryStore
from offsetlog.storage.store import FileInfo, PutResult

_roots = itertools.count()
BEGINNING = 1_700_000_000_000


class ClockedStore(MemoryStore):
    def __init__(self, root: str) -> None:
        super().__init__(root)
        self.now = BEGINNING
        self._times: dict[str, int] = {}

    def _create(self, name: str, data: bytes) -> PutResult:
        self._times.setdefault(name, self.now)
        return super()._create(name, data)

    def put(self, name: str, data: bytes, durable: bool = True) -> None:
        self._times[name] = self.now
        super().put(name, data, durable)

    def list(self, folder: str) -> Iterator[FileInfo]:
        for info in super().list(folder):
            yield info._replace(modified_ms=self._times[info.name])

    def info(self, name: str) -> FileInfo | None:
        info = super().info(name)
        return None if info is None else info._replace(modified_ms=self._times[name])


class ClockedLog:
    def __init__(
        self,
        min_files: int = 8,
        inline_bytes: int = 4096,
        store: type[ClockedStore] = ClockedStore,
    ) -> None:
        self.store = store(f"clocked-{next(_roots)}")
        limits = Limits(
            min_files=min_files, inline_bytes=inline_bytes, row_group_records=16, plan_records=50
        )
        self._env = REAL._replace(now_ms=self.now, now_ns=None, limits=limits)
        self.log = Log(self.store, self._env)

    def now(self) -> int:
        return self.store.now

    def wait(self, milliseconds: int) -> None:
        self.store.now += milliseconds

    def reopen(self) -> Log:
        """As another program that knows nothing yet."""
        self.log.close()
        self.log = Log(self.store, self._env)
        return self.log

    def close(self) -> None:
        self.log.close()
