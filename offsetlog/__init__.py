"""offsetlog: Kafka's topics, partitions and offsets as Parquet files, with no broker.

``offsetlog.open(url)`` opens a root on any fsspec filesystem; everything else hangs off the
``Log`` that it gives. The import is light: Arrow, fsspec and the like load when they are used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from offsetlog.errors import (
    CorruptLogError,
    FencedError,
    InvalidRequestError,
    NoOffsetForGroupError,
    OffsetLogError,
    OffsetLogWarning,
    OffsetOutOfRangeError,
    StorageError,
    TopicExistsError,
    UnknownTopicError,
    UnsafeFilesystemError,
)
from offsetlog.values import Record, RecordMetadata, TopicPartition

if TYPE_CHECKING:
    from offsetlog.client.consumer import Consumer
    from offsetlog.client.group import Group
    from offsetlog.client.log import Log
    from offsetlog.client.producer import Producer
    from offsetlog.client.topic import Topic

__version__ = "0.1.0"

__all__ = [
    "Consumer",
    "CorruptLogError",
    "FencedError",
    "Group",
    "InvalidRequestError",
    "Log",
    "NoOffsetForGroupError",
    "OffsetLogError",
    "OffsetLogWarning",
    "OffsetOutOfRangeError",
    "Producer",
    "Record",
    "RecordMetadata",
    "StorageError",
    "Topic",
    "TopicExistsError",
    "TopicPartition",
    "UnknownTopicError",
    "UnsafeFilesystemError",
    "__version__",
    "open",
]


def __getattr__(name: str) -> Any:
    """The classes that need Arrow, when somebody names them."""
    if name not in ("Consumer", "Group", "Log", "Producer", "Topic"):
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(f"offsetlog.client.{name.lower()}"), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})


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
    from offsetlog.client.log import Log
    from offsetlog.storage.open import open_store

    store = open_store(url, single_writer=single_writer, **storage_options)
    return Log(store, offsets_table=offsets_table)
