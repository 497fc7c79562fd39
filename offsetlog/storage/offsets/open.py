"""From a log's store to the offsets table beside it.

1. Where readers of Delta reach the filesystem the table is a Delta table; elsewhere a chain.
2. It lies in ``__consumer_offsets`` under the root, or where the setting says.
3. All of it is read and written by the store: nothing else is given its address or options.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

from offsetlog.errors import InvalidRequestError
from offsetlog.storage.fsspec import FsspecStore
from offsetlog.storage.local.disk import LocalStore
from offsetlog.storage.offsets.chain import ChainOffsets
from offsetlog.storage.offsets.port import OffsetsPort, RootId
from offsetlog.storage.open import open_store
from offsetlog.storage.store import Store

FOLDER = "__consumer_offsets"


def open_offsets(
    store: Store,
    place: str | None = None,
    storage_options: Mapping[str, Any] | None = None,
    root_id: RootId | None = None,
) -> OffsetsPort:
    """The offsets table of the log on ``store``; ``place`` is a path or URL of its own.
    ``root_id`` tells whose it is: a table of another log's is refused."""
    folder = FOLDER
    if place is not None:
        if not isinstance(place, (str, os.PathLike)) or not str(place):
            raise InvalidRequestError(
                f"offsets.table is {place!r}.", "It is a path or a URL, or left out."
            )
        options = dict(storage_options or {})
        if isinstance(store, FsspecStore) and "://" in str(place) and not options:
            same = str(place).partition("://")[0] == store._protocol
            options = dict(store._options) if same else {}
        store, folder = open_store(str(place), **options), ""
    inner = _innermost(store)
    if isinstance(inner, LocalStore):
        from offsetlog.storage.delta.table import DeltaOffsets

        path = os.path.join(inner._root, folder) if folder else inner._root
        return DeltaOffsets(store, folder, path, root_id)
    if isinstance(inner, FsspecStore) and inner._protocol in _SCHEMES:
        from offsetlog.storage.delta.table import DeltaOffsets

        uri = f"{_SCHEMES[inner._protocol]}://{inner._path(folder)}".rstrip("/")
        return DeltaOffsets(store, folder, uri, root_id)
    return ChainOffsets(store, folder, root_id)


def _innermost(store: Any) -> Any:
    """The store under those that only count or watch."""
    while (inner := getattr(store, "inner", None)) is not None:
        store = inner
    return store


_SCHEMES = {
    "s3": "s3",
    "s3a": "s3",
    "gs": "gs",
    "gcs": "gs",
    "abfs": "az",
    "abfss": "az",
    "az": "az",
    "adl": "az",
}
"""Filesystems that readers of Delta reach, in their words."""


def delta_address(port: OffsetsPort) -> str | None:
    """Where other readers of Delta find the table: a path or a URL; None where it is a chain."""
    uri = getattr(port, "_uri", None)
    return None if uri is None else str(uri)
