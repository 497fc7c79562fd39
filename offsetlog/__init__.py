"""offsetlog: Kafka's topics, partitions and offsets as Parquet files, with no broker.

``offsetlog.open(url)`` opens a root on any fsspec filesystem; everything else hangs off the
``Log`` that it gives. Each name is imported when it is first used: nothing is imported here, so
that a command that is ended at once ends silently (``__main__``).
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from offsetlog.client.consumer import Consumer
    from offsetlog.client.group import Group
    from offsetlog.client.log import Log
    from offsetlog.client.producer import Producer
    from offsetlog.client.topic import Topic
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
    from offsetlog.opening import open  # noqa: A004
    from offsetlog.values import Record, RecordMetadata, TopicPartition

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


_OF_CLIENT = ("Consumer", "Group", "Log", "Producer", "Topic")
_VALUES = ("Record", "RecordMetadata", "TopicPartition")


def __getattr__(name: str) -> object:
    """A public name, when somebody first uses it."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    if name in _OF_CLIENT:
        home = f"client.{name.lower()}"
    elif name == "open":
        home = "opening"
    else:
        home = "values" if name in _VALUES else "errors"
    value: object = getattr(import_module(f"offsetlog.{home}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
