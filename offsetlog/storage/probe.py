"""A quick look at whether a server heeds the condition of a create at all.

1. It makes one file twice, by itself: that finds servers that ignore the condition, not those
   that race. ``offsetlog.testing.check_store`` finds both, with many processes.
2. It costs four requests, and is worth them once, when a root is made.
"""

from __future__ import annotations

import os

from offsetlog.errors import UnsafeFilesystemError
from offsetlog.storage.store import Committed, Store

PROBE = "_probe-"


def probe_store(store: Store) -> None:
    """Raise UnsafeFilesystemError if a second create of one name does not conflict."""
    folder = f"{PROBE}{os.urandom(8).hex()}"
    name = f"{folder}/once"
    try:
        first = store.offer(b"first", name)
        first.put(name)
        first.close()
        second = store.offer(b"second", name)
        result = second.put(name)
        second.close()
        if isinstance(result, Committed) or store.get(name) != b"first":
            raise UnsafeFilesystemError(
                f"{store.url} made a second file over the first where it was told to make one "
                "only if none is there.",
                "Two writers would lose each other's records: use a server that heeds "
                "If-None-Match, for example AWS S3 or SeaweedFS.",
            )
    finally:
        store.delete_tree(folder)
