"""``offsetlog.open``. Arrow and the filesystem are imported when it is called."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from offsetlog.arguments import ANYTHING, FLAG, PLACE, checked

if TYPE_CHECKING:
    from offsetlog.client.log import Log


@checked(url=PLACE, single_writer=FLAG, offsets_table=PLACE, storage_options=ANYTHING)
def open(  # noqa: A001
    url: str,
    *,
    single_writer: bool = False,
    offsets_table: str | None = None,
    **storage_options: Any,
) -> Log:
    """Open the log at ``url``: a local path, or any URL that fsspec knows.

    ``storage_options`` are passed to the filesystem; credentials are better taken from the
    environment. ``single_writer`` accepts, by name, the risk of a filesystem that cannot decide
    a race: then only one program may ever write at a time. ``offsets_table`` puts the groups'
    positions elsewhere than in ``__consumer_offsets`` under the root: a path or a URL.
    """
    log = open_anywhere(
        url, single_writer=single_writer, offsets_table=offsets_table, **storage_options
    )
    log.keep_to_root()
    return log


def open_anywhere(
    url: str, *, single_writer: bool, offsets_table: str | None, **storage_options: Any
) -> Log:
    """As ``open``, without a look at which root is there: for who knows its id, or only asks."""
    from offsetlog.client.log import Log
    from offsetlog.storage.open import open_store

    store = open_store(url, single_writer=single_writer, **storage_options)
    return Log(store, offsets_table=offsets_table)
