"""Where the files of a log lie, and the one promise that a place must keep.

1. ``open_store`` is the only way in; what it gives is a ``Store`` (see ``ports``).
2. Only this package knows fsspec and the clients under it; each is imported when its
   filesystem is opened, never before.
3. A filesystem may be written to only if it decides a race of creators for one name. One
   module for each that does says how; everything else is for reading.
"""

from offsetlog.storage.open import open_store
from offsetlog.storage.store import Committed, Conflict, FileInfo, Offer, PutResult, Store, Unknown

__all__ = [
    "Committed",
    "Conflict",
    "FileInfo",
    "Offer",
    "PutResult",
    "Store",
    "Unknown",
    "open_store",
]
