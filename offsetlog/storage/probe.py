"""A quick look at whether a storage keeps the promises that a log rests on, when a root is made.

1. Eight writers make one name at the same moment, three times with files of other sizes: that
   finds servers that ignore the condition of a create, and most of those that only look before
   they write. ``offsetlog.testing.check_store`` races longer, and with processes.
2. On a disk of a program (FUSE) it also sees whether a file that is replaced is ever missing.
3. It costs some thirty requests, and is worth them once.
"""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

from offsetlog.errors import OffsetLogError, StorageError, UnsafeFilesystemError
from offsetlog.storage.store import Committed, Conflict, PutResult, Store, Unknown

PROBE = "_probe-"
RACERS = 8
SIZES = (300, 4_096, 70_000)
REPLACEMENTS = 300
_START_SECONDS = 60.0


def probe_store(store: Store) -> None:
    """Raise UnsafeFilesystemError if several creates of one name succeed, or if a file that is
    replaced is missing meanwhile."""
    folder = f"{PROBE}{os.urandom(8).hex()}"
    try:
        with ThreadPoolExecutor(RACERS, "offsetlog-probe") as pool:
            for size in SIZES:
                _race(store, f"{folder}/{size}", size, pool)
            if store.is_local:
                _replace(store, f"{folder}/replaced", pool)
    except BaseException:
        with contextlib.suppress(OffsetLogError):  # What was found matters more.
            store.delete_tree(folder)
        raise
    store.delete_tree(folder)


def unsafe(url: str, what: str) -> UnsafeFilesystemError:
    """Why a storage is not written to."""
    return UnsafeFilesystemError(
        f"{url} {what}.",
        "Nothing was written: two writers would lose each other's records. Use a storage that "
        "keeps put-if-absent (on S3 If-None-Match), for example AWS S3 or SeaweedFS; 'offsetlog "
        "doctor' tries one.",
    )


def _race(store: Store, name: str, size: int, pool: ThreadPoolExecutor) -> None:
    offered = [f"{number}".encode().ljust(size, b".") for number in range(RACERS)]
    start = threading.Barrier(RACERS)
    results = list(pool.map(lambda data: _create(store, name, data, start), offered))
    winners = [i for i, result in enumerate(results) if isinstance(result, Committed)]
    if len(winners) > 1:
        raise unsafe(
            store.url,
            f"let {len(winners)} of {RACERS} writers make one and the same file, each told to "
            "make it only if none is there",
        )
    stored = store.get(name)
    unknown = [result.error for result in results if isinstance(result, Unknown)]
    if stored is None and unknown:
        raise StorageError(f"{store.url} could not be tried out: {unknown[0]}")
    # Nobody knows of having won where the answer was lost and the client asked again.
    if stored not in ([offered[i] for i in winners] or offered):
        raise unsafe(store.url, "holds another file than the one whose writer was told it won")
    if not isinstance(_create(store, name, b"late"), Conflict) or store.get(name) != stored:
        raise unsafe(
            store.url,
            "made a second file over the first where it was told to make one only if none is there",
        )


def _create(
    store: Store, name: str, data: bytes, start: threading.Barrier | None = None
) -> PutResult:
    offer = store.offer(data, name)
    try:
        if start is not None:
            start.wait(_START_SECONDS)
        return offer.put(name)
    finally:
        offer.close()


def _replace(store: Store, name: str, pool: ThreadPoolExecutor) -> None:
    """Replace a file over and over while another thread reads it."""
    versions = [f"{number}".encode().ljust(4_096, b".") for number in range(2)]
    store.put(name, versions[0], durable=False)
    done = threading.Event()
    reader = pool.submit(_reads_each_time, store, name, versions, done.is_set)
    try:
        for number in range(REPLACEMENTS):
            store.put(name, versions[number % 2], durable=False)
            if reader.done():
                break
    finally:
        done.set()
    if not reader.result():
        raise unsafe(store.url, "does not show a file while it is replaced")


def _reads_each_time(
    store: Store, name: str, versions: list[bytes], is_over: Callable[[], bool]
) -> bool:
    while not is_over():
        if store.get(name) not in versions:
            return False
    return True
