"""Where a consumer begins to read a partition.

Rules of this module:

1. The committed offset is the next one to read, and is where reading goes on.
2. Where there is none, or the log does not have it (retention passed it, or the topic was
   recreated), ``auto_offset_reset`` says where; in the second case with a warning, for records
   may be missed or read again.
"""

from __future__ import annotations

from typing import NamedTuple

from offsetlog.core.group.facts import Partition
from offsetlog.core.group.reset import OffsetSpan
from offsetlog.errors import InvalidRequestError, NoOffsetForGroupError, OffsetOutOfRangeError

POLICIES = ("earliest", "latest", "none")


class StartingOffset(NamedTuple):
    """Where to read from, and what the user should know about it."""

    offset: int
    warning: str = ""


def starting_offset(
    group: str, partition: Partition, committed: int | None, span: OffsetSpan, policy: str
) -> StartingOffset:
    """Where reading begins. ``policy`` (``earliest``, ``latest``, ``none``) says it when there
    is no position, and, with a warning, when the log no longer or not yet has it."""
    where = f"partition {partition[1]} of topic {partition[0]!r}"
    if policy not in POLICIES:
        raise InvalidRequestError(
            f"auto_offset_reset cannot be {policy!r}.", f"Use one of {', '.join(POLICIES)}."
        )
    if committed is not None and span.start <= committed <= span.end:
        return StartingOffset(committed)
    if policy == "none":
        hint = "Reset the group, or set auto_offset_reset to earliest or latest."
        if committed is None:
            raise NoOffsetForGroupError(
                f"The group {group!r} has no committed offset in {where}.", hint
            )
        raise OffsetOutOfRangeError(
            f"Offset {committed}, committed by the group {group!r} in {where}, is out of its "
            f"range {span.start} to {span.end}.",
            hint,
        )
    offset = span.start if policy == "earliest" else span.end
    if committed is None:
        return StartingOffset(offset)
    return StartingOffset(
        offset,
        f"Offset {committed}, committed by the group {group!r} in {where}, is out of its range "
        f"{span.start} to {span.end}; reading goes on from {offset} ({policy}).",
    )
