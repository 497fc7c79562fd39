"""The root's own file: the format of what lies below it, and the log's id. It never changes, but
for that of a copy that is being made: it becomes a log's when the copy is complete.

Invariants:

1. The file's sum covers all of it. One of a library that wrote none has two fields and no other.
2. A copy in the making is of a format of its own, so that every library, older ones too, refuses
   it by name.
"""

from __future__ import annotations

from typing import NamedTuple

from offsetlog.core import strict_json
from offsetlog.core.decode import (
    Decoder,
    from_value,
    hexadecimal,
    integer,
    nullable,
    plain,
    record,
)
from offsetlog.errors import CorruptLogError, InvalidRequestError
from offsetlog.format import FORMAT_VERSION, notes

MAX_BYTES = 65_536
COPYING = 2
"""The format of a root that is being made as a copy of another."""


class RootFile(NamedTuple):
    format: int
    id: str
    copy_of: str | None
    """Of a copy that is not complete: the id of the log that is copied."""
    sum: str | None


_ROOT: Decoder[RootFile] = record(
    RootFile,
    format=integer(1),
    id=hexadecimal(32),
    copy_of=nullable(hexadecimal(32)),
    sum=nullable(hexadecimal(16)),
)


def encode(root_id: str, copy_of: str | None = None) -> bytes:
    """The file; with ``copy_of`` that of a copy which is not complete yet."""
    fields: dict[str, object] = {"format": FORMAT_VERSION, "id": root_id, "sum": notes.NO_SUM}
    if copy_of is not None:
        fields |= {"format": COPYING, "copy_of": copy_of}
    return notes.with_sum(strict_json.dumps(fields))


def read(data: bytes, where: str) -> RootFile:
    """What the file says, of a log or of a copy in the making."""
    fields = from_value(plain, strict_json.loads(data, where, MAX_BYTES), where)
    root = from_value(_ROOT, fields, where)
    if root.sum is None:
        is_whole = fields.keys() == {"format", "id"} or root.format > COPYING
    else:
        is_whole = notes.fits(data, root.sum)
    if not is_whole:
        raise CorruptLogError(
            f"{where} was changed after it was written: its checksum differs.",
            "Restore it from a backup.",
        )
    if root.format != (FORMAT_VERSION if root.copy_of is None else COPYING):
        raise CorruptLogError(
            f"{where} is of format {root.format}; this library knows {FORMAT_VERSION}.",
            "Upgrade offsetlog.",
        )
    return root


def decode(data: bytes, where: str) -> str:
    """The log's id."""
    root = read(data, where)
    if root.copy_of is not None:
        raise InvalidRequestError(
            f"{where} is that of a copy of the log {root.copy_of} that is not complete.",
            "Run 'offsetlog copy' again with the same addresses: it goes on where it was ended.",
        )
    return root.id
