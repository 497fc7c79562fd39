"""The data of the figures: real values, the same for both sides.

1. Values are random bytes, so that no codec makes them small; events are JSON as a shop sends it.
2. A seed makes the same data again.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    import pyarrow as pa

KEY_BYTES = 8
VALUE_BYTES = 100


def _binary(raw: bytes, width: int) -> pa.Array:
    """A binary column whose values all have one width, without a copy."""
    import pyarrow as pa

    count = len(raw) // width
    offsets = np.arange(count + 1, dtype=np.int32) * width
    return pa.Array.from_buffers(
        pa.binary(), count, [None, pa.py_buffer(offsets), pa.py_buffer(raw)]
    )


def random_table(rows: int, seed: int = 7) -> pa.Table:
    """Keys of 8 and values of 100 random bytes."""
    import pyarrow as pa

    source = np.random.default_rng(seed)
    return pa.table(
        {
            "key": _binary(source.bytes(rows * KEY_BYTES), KEY_BYTES),
            "value": _binary(source.bytes(rows * VALUE_BYTES), VALUE_BYTES),
        }
    )


def random_records(rows: int, seed: int = 7) -> tuple[list[bytes], list[bytes]]:
    """The same as Python objects: keys and values."""
    table = random_table(rows, seed)
    return table["key"].to_pylist(), table["value"].to_pylist()


def events(rows: int, seed: int = 7) -> pa.Table:
    """JSON events of about 200 bytes, keyed by customer."""
    import pyarrow as pa

    source = np.random.default_rng(seed)
    customers = source.zipf(1.3, rows) % 100_000
    cents = source.integers(99, 99_999, rows)
    kinds = source.choice(["view", "cart", "order", "refund"], rows, p=[0.7, 0.2, 0.08, 0.02])
    clicks = np.cumsum(source.integers(0, 20, rows)) + 1_700_000_000_000
    sessions = source.integers(0, 2**63, rows)
    values = [
        json.dumps(
            {
                "event": str(kind),
                "customer": int(customer),
                "session": f"{session:016x}",
                "at": int(at),
                "amount": {"currency": "EUR", "cents": int(cent)},
                "page": f"/shop/category-{customer % 40}/item-{cent % 5000}",
                "agent": "Mozilla/5.0 (X11; Linux x86_64)",
            },
            separators=(",", ":"),
        ).encode()
        for kind, customer, session, at, cent in zip(
            kinds, customers, sessions, clicks, cents, strict=True
        )
    ]
    keys = [f"customer-{number}".encode() for number in customers]
    return pa.table({"key": pa.array(keys, pa.binary()), "value": pa.array(values, pa.binary())})


def irregular_sizes(count: int, seed: int = 7, low: int = 1, high: int = 50_000) -> np.ndarray:
    """Record counts as real logs have them: most small, a few large."""
    source = np.random.default_rng(seed)
    return np.clip(source.lognormal(5.0, 2.0, count).astype(np.int64), low, high)
