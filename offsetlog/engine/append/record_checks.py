"""What a record may be: refused before anything is written, so that no reader is left with it."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from offsetlog.engine.topic.open_topic import OpenTopic
from offsetlog.errors import InvalidRequestError, UnknownTopicError

MAX_MS = 2**63 // 1_000_000
"""Timestamps lie between minus this and this: what nanoseconds can say."""


def check_times(times: npt.NDArray[np.int64]) -> None:
    """Refuse milliseconds that no reader would take."""
    if len(times):
        for time in (int(times.min()), int(times.max())):
            if not -MAX_MS < time < MAX_MS:
                raise bad_timestamp(time)


def bad_timestamp(timestamp: object) -> InvalidRequestError:
    return InvalidRequestError(
        f"The timestamp is {timestamp!r}.",
        f"It is a whole number of milliseconds since 1970, from {1 - MAX_MS} to {MAX_MS - 1}.",
    )


def check_headers(column: pa.Array | pa.ChunkedArray) -> None:
    """Refuse headers that no reader could take: Arrow itself takes any bytes for a text."""
    for chunk in column.chunks if isinstance(column, pa.ChunkedArray) else [column]:
        if chunk.null_count == len(chunk):
            continue
        pairs = chunk.flatten()
        names = pairs.field(0)
        if pairs.null_count or names.null_count:
            raise InvalidRequestError(
                "A header is null, or its key is.",
                "A header has a key; only its value may be null.",
            )
        try:
            names.validate(full=True)
        except pa.ArrowInvalid:
            raise InvalidRequestError(
                "The key of a header is not UTF-8.",
                "A header's key is text; bytes belong into its value.",
            ) from None


def too_large(topic: str, size: int, limit: int) -> InvalidRequestError:
    return InvalidRequestError(
        f"A record for topic {topic!r} has {size} bytes; the topic takes {limit}.",
        "Raise the topic's max.message.bytes, or send less.",
    )


def without_key(topic: str) -> InvalidRequestError:
    return InvalidRequestError(
        f"A record for topic {topic!r} has no key; its cleanup.policy compacts by key.",
        "Give each record a key, or set the topic's cleanup.policy to delete.",
    )


def check_named_partition(topic: OpenTopic, partition: object) -> None:
    """Refuse a partition that a sender named and that is not there."""
    count = topic.chain.state.partitions
    if type(partition) is not int or partition < 0:
        raise InvalidRequestError(f"{partition!r} is not a partition.", "It is a number from 0.")
    if partition >= count:
        count = topic.state().partitions
    if partition >= count:
        raise UnknownTopicError(
            f"Topic {topic.name!r} has no partition {partition}.", f"It has {count}, from 0."
        )
