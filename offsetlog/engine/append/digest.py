"""A digest of records as values: the same rows give the same digest, however they are stored.

Invariants:

1. Slices, chunks and spare bytes of Arrow's buffers do not show in it; order and nulls do.
2. Timestamps don't count: a batch that is sent again may get them afresh.
3. It tells batches of one sender apart. It is no protection against an attacker.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import xxhash


def digest_of(table: pa.Table, partition_of: npt.NDArray[np.int32]) -> str:
    """Of the rows of ``table`` and the partition that each goes to."""
    total = xxhash.xxh3_64(partition_of.tobytes())
    for name in ("key", "value", "headers"):
        column = table.column(name)
        _add(total, column.chunk(0) if column.num_chunks == 1 else column.combine_chunks())
    digest: str = total.hexdigest()
    return digest


def _add(total: Any, array: pa.Array | pa.ChunkedArray) -> None:
    if isinstance(array, pa.ChunkedArray):
        array = array.chunk(0) if array.num_chunks else pa.array([], array.type)
    count, nulls = len(array), array.null_count
    total.update(b"%d;%d;" % (count, nulls))
    if nulls == count:
        return
    if nulls:
        total.update(pc.is_null(array).to_numpy(zero_copy_only=False))
    kind = array.type
    if pa.types.is_list(kind):
        total.update(pc.fill_null(pc.list_value_length(array), 0).to_numpy())
        for part in array.flatten().flatten():
            _add(total, part)
        return
    if nulls:
        array = array.fill_null(b"" if pa.types.is_binary(kind) else "")
    low, buffers = array.offset, array.buffers()
    offsets = np.frombuffer(buffers[1], np.int32)[low : low + count + 1]
    total.update(offsets[1:] - offsets[:-1])
    if buffers[2] is not None:
        total.update(memoryview(buffers[2])[int(offsets[0]) : int(offsets[-1])])
