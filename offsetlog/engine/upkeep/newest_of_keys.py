"""Which record of each key is the newest, of any number of keys in bounded memory.

Invariants:

1. Keys are compared as they are: no hash decides that two are the same.
2. Keys are dealt out to buckets by a hash, so that one bucket at a time is compared as a whole.
   Beyond ``memory`` bytes all buckets are written out, to a temporary file without a name: it holds
   keys, and it is gone with the process, however that ends.
3. Of a batch only the newest of each key is kept at all: what is sent over and over costs little.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from typing import IO, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from offsetlog.engine.upkeep.offset_set import Offsets, OffsetSet
from offsetlog.format.partitioner import murmur2
from offsetlog.format.record_schema import as_arrow

MEMORY = 96 * 1024 * 1024
BUCKET_BYTES = 24 * 1024 * 1024
MAX_BUCKETS = 512
_SCHEMA = pa.schema([("key", pa.binary()), ("offset", pa.int64())])


class _Written(NamedTuple):
    at: int
    size: int


class NewestOfKeys:
    def __init__(self, weight: int, memory: int = MEMORY, bucket_bytes: int = BUCKET_BYTES) -> None:
        """``weight``: about how many bytes all keys have, or more."""
        self._buckets = min(MAX_BUCKETS, max(1, -(-weight // bucket_bytes)))
        self._memory = memory
        self._held: list[list[pa.RecordBatch]] = [[] for _ in range(self._buckets)]
        self._bytes = 0
        self._written: list[list[_Written]] = [[] for _ in range(self._buckets)]
        self._file: IO[bytes] | None = None

    def add(self, keys: pa.Array, offsets: Offsets) -> None:
        """Records in the order of their offsets, above all that were added before. Those without a
        key are none of any key."""
        if keys.null_count:
            valid = keys.is_valid()
            keys, offsets = keys.filter(valid), offsets[valid.to_numpy(zero_copy_only=False)]
        if not len(keys):
            return
        keys, offsets = _newest(keys, offsets)
        if self._buckets == 1:
            self._hold(0, keys, offsets)
        else:
            # The upper bits: by the lower ones these keys may have come to this partition.
            bucket = (murmur2(keys) >> np.uint32(7)) % np.uint32(self._buckets)
            order = np.argsort(bucket.astype(np.uint16), kind="stable")
            keys, offsets = keys.take(pa.array(order)), offsets[order]
            edges = np.searchsorted(bucket[order], np.arange(self._buckets + 1))
            for number in np.flatnonzero(np.diff(edges)):
                low, high = int(edges[number]), int(edges[number + 1])
                self._hold(int(number), keys.slice(low, high - low), offsets[low:high])
        if self._bytes > self._memory:
            self._write_out()

    def _hold(self, number: int, keys: pa.Array, offsets: Offsets) -> None:
        batch = pa.RecordBatch.from_arrays([keys, as_arrow(offsets, pa.int64())], schema=_SCHEMA)
        self._held[number].append(batch)
        self._bytes += batch.nbytes

    def _write_out(self) -> None:
        if self._file is None:
            self._file = tempfile.TemporaryFile()  # noqa: SIM115 - as long as this
        for number, batches in enumerate(self._held):
            if batches:
                data = pa.Table.from_batches(batches).combine_chunks().to_batches()[0].serialize()
                self._written[number].append(_Written(self._file.tell(), data.size))
                self._file.write(data)
        self._held = [[] for _ in range(self._buckets)]
        self._bytes = 0

    def into(self, newest: OffsetSet) -> None:
        """Add the offset of each key's newest record."""
        for number in range(self._buckets):
            batches = list(self._of_bucket(number))
            self._held[number] = []
            if batches:
                table = pa.Table.from_batches(batches).combine_chunks()
                [batch] = table.to_batches()
                _, offsets = _newest(batch.column(0), batch.column(1).to_numpy())
                newest.add(np.sort(offsets))
        if self._file is not None:
            self._file.close()

    def _of_bucket(self, number: int) -> Iterator[pa.RecordBatch]:
        for at, size in self._written[number]:
            assert self._file is not None
            self._file.seek(at)
            yield pa.ipc.read_record_batch(pa.py_buffer(self._file.read(size)), _SCHEMA)
        yield from self._held[number]


def _newest(keys: pa.Array, offsets: npt.NDArray[np.int64]) -> tuple[pa.Array, Offsets]:
    """Each key once, with the offset of its last record."""
    encoded = keys.dictionary_encode()
    last = np.empty(len(encoded.dictionary), np.int64)
    # Of several values for one place numpy keeps the last, and offsets rise.
    last[encoded.indices.to_numpy()] = offsets
    return encoded.dictionary, last
