"""JSON for Spark's JVM inside what Spark carries as a pickle, to be found without unpickling it.

Invariants:

1. It is sixteen bytes that say what it is, the sum of the text (XXH3-64, eight bytes), its length
   (four), and the text; numbers are little-endian. ``MarkedJson.java`` looks for it.
2. What only looks like it has another sum and is passed over.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import xxhash

MARK_BYTES = 16


def marked(mark: bytes, value: Mapping[str, Any]) -> bytes:
    """``value`` behind its mark."""
    if len(mark) != MARK_BYTES:
        raise AssertionError(f"a mark has {MARK_BYTES} bytes")
    text = json.dumps(value, separators=(",", ":")).encode()
    total = xxhash.xxh3_64_intdigest(text).to_bytes(8, "little")
    return mark + total + len(text).to_bytes(4, "little") + text
