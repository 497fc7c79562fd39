"""The data of the figures: real values, the same for both sides.

1. Values are random bytes, so that no codec makes them small; events are JSON as a shop sends it.
2. A seed makes the same data again.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    import pyarrow as pa

KEY_BYTES = 8
VALUE_BYTES = 100
FIRST_TIME = 1_700_000_000_000
KINDS = ("view", "cart", "order", "refund")
AGENTS = (
    "Mozilla/5.0 (X11; Linux x86_64)",
    "Mozilla/5.0 (Windows NT 10.0; Win64)",
    "Mozilla/5.0 (iPhone; CPU iPhone OS 18)",
    "Mozilla/5.0 (Linux; Android 15)",
    "ShopApp/7.2 (Android 15)",
    "ShopApp/7.1 (iOS 18)",
)


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
    """JSON events of about 200 bytes, keyed by customer, with the times at which they happened.

    Sessions of some twenty events lie close together, as in a real stream."""
    import pyarrow as pa
    import pyarrow.compute as pc

    source = np.random.default_rng(seed)
    sessions = rows // 20 + 200
    drift = source.normal(0, 50, rows).astype(np.int64)
    session = np.clip(np.arange(rows) // 20 + 100 + drift, 0, sessions - 1)
    customer = (100_000 * source.random(sessions) ** 2).astype(np.int64)[session]
    agent = source.integers(0, len(AGENTS), sessions)[session]
    category = source.integers(0, 40, sessions)[session]
    kind = source.choice(len(KINDS), rows, p=[0.7, 0.2, 0.08, 0.02])
    at = FIRST_TIME + np.cumsum(source.integers(0, 20, rows))

    def text(values: np.ndarray) -> pa.Array:
        return pa.array(values).cast(pa.string())

    def picked(words: tuple[str, ...], which: np.ndarray) -> pa.Array:
        return pa.array(words).take(pa.array(which))

    value = pc.binary_join_element_wise(
        '{"event":"',
        picked(KINDS, kind),
        '","customer":',
        text(customer),
        ',"session":"',
        _hex(source.bytes(8 * sessions)).take(pa.array(session)),
        '","at":',
        text(at),
        ',"page":"/shop/category-',
        text(category),
        "/item-",
        text(source.integers(0, 5_000, rows)),
        '","amount":{"currency":"EUR","cents":',
        text(source.integers(99, 99_999, rows)),
        '},"agent":"',
        picked(AGENTS, agent),
        '"}',
        "",
    )
    key = pc.binary_join_element_wise("customer-", text(customer), "")
    times = pa.array(at).cast(pa.timestamp("ms", "UTC"))
    columns = {"key": key.cast(pa.binary()), "value": value.cast(pa.binary()), "timestamp": times}
    return pa.table(columns)


def _hex(raw: bytes) -> pa.Array:
    """Strings of sixteen hexadecimal digits."""
    digits = np.frombuffer(raw.hex().encode(), np.uint8)
    return _binary(digits.tobytes(), 16).cast("string")


def timed(table: pa.Table, seed: int = 7) -> pa.Table:
    """A table with the times at which its rows came, some milliseconds apart."""
    import pyarrow as pa

    gaps = np.random.default_rng(seed).integers(0, 3, table.num_rows)
    times = pa.array(FIRST_TIME + np.cumsum(gaps)).cast(pa.timestamp("ms", "UTC"))
    return table.append_column("timestamp", times)


def irregular_sizes(count: int, seed: int = 7, low: int = 1, high: int = 50_000) -> np.ndarray:
    """Record counts as real logs have them: most small, a few large."""
    source = np.random.default_rng(seed)
    return np.clip(source.lognormal(5.0, 2.0, count).astype(np.int64), low, high)
