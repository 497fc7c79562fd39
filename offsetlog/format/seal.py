"""A checksum of a whole Parquet file, kept in its own footer.

Invariants:

1. The seal is the XXH3-64 of the file, taken with the seal's own sixteen digits as zeros.
2. It is the last key-value pair of the footer, so its place is found without parsing: it
   follows the last occurrence of its mark.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import xxhash

from offsetlog.errors import CorruptLogError

KEY = "offsetlog.seal"
_ZEROS = b"0" * 16
# The key and the length of its value as Thrift's compact protocol writes them.
_MARK = b"\x0e" + KEY.encode() + b"\x18\x10"


class SealedWriter:
    """Writes one sealed Parquet file in memory."""

    def __init__(self, schema: pa.Schema, compression: str = "none", **settings: Any) -> None:
        self._sink = pa.BufferOutputStream()
        level = 1 if compression == "zstd" else None
        self.parquet = pq.ParquetWriter(
            self._sink,
            schema,
            compression=compression,
            compression_level=level,
            use_dictionary=False,
            write_statistics=False,
            store_schema=False,
            **settings,
        )

    def finish(self, metadata: Mapping[str, str]) -> bytes:
        """Close the file with ``metadata`` in its footer, and seal it."""
        self.parquet.add_key_value_metadata({**metadata, KEY: _ZEROS.decode()})
        self.parquet.close()
        data = bytearray(self._sink.getvalue())
        at = data.rfind(_MARK) + len(_MARK)
        data[at : at + 16] = xxhash.xxh3_64_hexdigest(data).encode()
        return bytes(data)


def check(data: bytes, name: str, max_bytes: int) -> None:
    """Raise ``CorruptLogError`` unless ``data`` is a file as ``SealedWriter`` made it."""
    if len(data) > max_bytes:
        raise CorruptLogError(f"{name} has {len(data)} bytes; at most {max_bytes} are read.")
    at = data.rfind(_MARK) + len(_MARK)
    if at < len(_MARK) or not data.endswith(b"PAR1"):
        raise CorruptLogError(
            f"{name} is not a complete file of offsetlog.",
            "It was cut off or overwritten; restore it from a backup.",
        )
    view = memoryview(data)
    total = xxhash.xxh3_64(view[:at])
    total.update(_ZEROS)
    total.update(view[at + 16 :])
    if total.hexdigest().encode() != data[at : at + 16]:
        raise CorruptLogError(
            f"{name} was changed after it was written: its checksum differs.",
            "Restore it from a backup; 'offsetlog verify' names all faults.",
        )
