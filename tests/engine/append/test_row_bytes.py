"""What each record weighs, which max.message.bytes limits."""

from __future__ import annotations

import pyarrow as pa

from offsetlog.engine.append.record_batch import row_bytes
from offsetlog.format import record_schema as rows


def test_keys_values_and_headers_of_each_row():
    """Also of slices, and of tables in pieces. A header weighs eight bytes more."""
    headers = [[("ab", b"123"), ("c", None)], None, [], [("", b"")], [("ä", b"1")]]
    whole = pa.RecordBatch.from_arrays(
        [
            pa.array([b"k", b"", None, None, b"kk"], pa.binary()),
            pa.array([b"v", None, b"", b"vv", b"x"], pa.binary()),
            pa.array(headers, rows.HEADERS),
            pa.array([1] * 5, pa.int64()).view(rows.TIMESTAMP),
        ],
        schema=rows.ROWS,
    )
    assert row_bytes(whole).tolist() == [24, 0, 0, 10, 14]
    assert row_bytes(whole.slice(3)).tolist() == [10, 14]
    pieces = pa.Table.from_batches([whole.slice(1, 2), whole.slice(4), whole.slice(0, 1)])
    assert row_bytes(pieces).tolist() == [0, 0, 14, 24]
