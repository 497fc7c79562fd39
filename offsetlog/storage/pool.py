"""The threads that a log shares: reading ahead, and writing side by side.

Invariants:

1. In a process that was forked since, it refuses: its threads are the parent's, and whoever
   waited for them would wait forever.
2. While the interpreter ends no thread can be had any more: the caller does the work itself.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

from offsetlog.storage import forks


class Pool(ThreadPoolExecutor):
    def __init__(self, threads: int, thread_name_prefix: str) -> None:
        super().__init__(threads, thread_name_prefix)
        self._made_in = forks.process()
        self._closed = False

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        forks.check(self._made_in)
        try:
            return super().submit(fn, *args, **kwargs)
        except RuntimeError as error:
            if self._closed or "interpreter shutdown" not in str(error):
                raise
        future: Future[Any] = Future()
        try:
            future.set_result(fn(*args, **kwargs))
        except BaseException as error:  # noqa: BLE001 - told by the future, as by a thread's
            future.set_exception(error)
        return future

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        self._closed = True
        super().shutdown(wait, cancel_futures=cancel_futures)
