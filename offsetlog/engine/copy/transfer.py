"""Files from one store to another: side by side, again after a failure, in bounded memory.

Invariants:

1. A call that may succeed later is made again, a bounded number of times; one whose fate is open is
   made again at the same name.
2. Whatever the sizes, only so many bytes are on their way at once, or one file.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from itertools import islice
from typing import TypeVar

from offsetlog.engine.env import Env
from offsetlog.errors import StorageError
from offsetlog.storage.faults import SilenceError
from offsetlog.storage.store import Committed, Conflict, Store

S = TypeVar("S")
T = TypeVar("T")
TRIES = 6
SIDE_BY_SIDE = 64
"""Files that wait for their turn at once; the pool has fewer threads."""
BYTES_AT_ONCE = 256 * 1024 * 1024


class Transfer:
    """Of one copy, from ``source`` to ``target``."""

    def __init__(
        self, source: Store, target: Store, env: Env, pool: ThreadPoolExecutor | None
    ) -> None:
        self.source = source
        self.target = target
        self.env = env
        self._pool = pool
        self._room = BYTES_AT_ONCE
        self._changed = threading.Condition()

    def map(self, work: Callable[[S], T], items: Iterable[S]) -> Iterator[T]:
        """``work`` for each item, in the order of the items."""
        waiting = iter(items)
        run = map if self._pool is None else self._pool.map
        while together := list(islice(waiting, SIDE_BY_SIDE)):
            yield from run(work, together)

    @contextmanager
    def room_for(self, size: int) -> Iterator[None]:
        """Wait until so many bytes may be held; more than all are held alone."""
        size = min(size, BYTES_AT_ONCE)
        with self._changed:
            self._changed.wait_for(lambda: self._room >= size)
            self._room -= size
        try:
            yield
        finally:
            with self._changed:
                self._room += size
                self._changed.notify_all()

    def again(self, call: Callable[[], T]) -> T:
        """The answer of a call; it is made again where the storage fails for a while."""
        for attempt in range(TRIES):
            try:
                return call()
            except StorageError as error:
                is_silent = isinstance(error, SilenceError)
                if attempt == TRIES - 1 or not error.retryable or is_silent:
                    raise
                self._pause(attempt)
        raise AssertionError

    def get(self, name: str, most: int) -> bytes | None:
        return self.again(lambda: self.source.get(name, 0, most + 1))

    def put(self, name: str, data: bytes) -> None:
        self.again(lambda: self.target.put(name, data))

    def create(self, name: str, data: bytes) -> bool:
        """Put a file if it is absent; whether it is ours."""
        offer = self.target.offer(data, name)
        error = ""
        try:
            for attempt in range(TRIES):
                result = self.again(lambda: offer.put(name))
                if isinstance(result, Committed | Conflict):
                    return isinstance(result, Committed)
                error = result.error
                if result.waited:
                    break
                self._pause(attempt)
        finally:
            offer.close()
        raise StorageError(f"No answer came to the creation of {self.target.url}/{name}: {error}")

    def _pause(self, attempt: int) -> None:
        self.env.sleep(0.1 * 2**attempt * (0.5 + self.env.chance()))
