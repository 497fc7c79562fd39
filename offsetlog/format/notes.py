"""Notes: small JSON files that are overwritten, each with a sum of itself.

Rules of this module:

1. The sum covers the file, taken with its own sixteen digits as ``0``. Who reads a note for what is
   in it alone takes one without a sum, which earlier libraries wrote, for none.
2. A note that only says where to look, at files that have sums of their own, may lack one.
3. Earlier libraries pass over the sum.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeVar

import xxhash

from offsetlog.core import strict_json
from offsetlog.core.decode import Decoder, field, from_value, hexadecimal, nullable
from offsetlog.errors import CorruptLogError

T = TypeVar("T")
NO_SUM = "0" * 16
_SUM = field("sum", nullable(hexadecimal(16)))


def encode(fields: Mapping[str, object]) -> bytes:
    return with_sum(strict_json.dumps({**fields, "sum": NO_SUM}))


def with_sum(unsummed: bytes) -> bytes:
    """A text with ``NO_SUM`` where its sum is to stand, which is the last place that has it."""
    return _with(unsummed, NO_SUM, xxhash.xxh3_64_hexdigest(unsummed))


def fits(data: bytes, total: str) -> bool:
    """Whether this is the sum of a text in which it stands."""
    return xxhash.xxh3_64_hexdigest(_with(data, total, NO_SUM)) == total


def decode(
    decoder: Decoder[T], data: bytes, where: str, most: int, *, needs_sum: bool = False
) -> T:
    """What a note says; ``CorruptLogError`` where it is not what was written."""
    value = strict_json.loads(data, where, most)
    total = from_value(_SUM, value, where)
    if total is None and needs_sum:
        raise CorruptLogError(f"{where} has no checksum: an earlier version wrote it.")
    if total is not None and not fits(data, total):
        raise CorruptLogError(f"{where} was changed after it was written: its checksum differs.")
    return from_value(decoder, value, where)


def _with(data: bytes, old: str, new: str) -> bytes:
    head, quoted, tail = data.rpartition(b'"%s"' % old.encode())
    return head + quoted.replace(old.encode(), new.encode()) + tail
