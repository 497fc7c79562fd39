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
        options = dict(storage_options or store.options_for(str(place)))
        store, folder = open_store(str(place), **options), ""
    address = store.delta_address(folder)
    if address is None:
        return ChainOffsets(store, folder, root_id)
    from offsetlog.storage.delta.table import DeltaOffsets

    return DeltaOffsets(store, folder, address, root_id)
