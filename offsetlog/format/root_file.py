"""The root's own file: the format of what lies below it, and the log's id. It never changes."""

from __future__ import annotations

from offsetlog.core import strict_json
from offsetlog.core.decode import Decoder, from_json, hexadecimal, integer, record
from offsetlog.errors import CorruptLogError
from offsetlog.format import FORMAT_VERSION

MAX_BYTES = 65_536
_ROOT: Decoder[tuple[int, str]] = record(
    lambda version, root_id: (version, root_id), format=integer(1), id=hexadecimal(32)
)


def encode(root_id: str) -> bytes:
    return strict_json.dumps({"format": FORMAT_VERSION, "id": root_id})


def decode(data: bytes, where: str) -> str:
    """The log's id."""
    version, root_id = from_json(_ROOT, data, where, MAX_BYTES)
    if version != FORMAT_VERSION:
        raise CorruptLogError(
            f"{where} is of format {version}; this library knows {FORMAT_VERSION}.",
            "Upgrade offsetlog.",
        )
    return root_id
