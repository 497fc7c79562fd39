"""Which partition a key belongs to: Kafka's murmur2, over a whole column at once.

Invariants:

1. ``partitions_of`` gives what a Kafka client's default partitioner gives for each key:
   ``(murmur2(key) & 0x7fffffff) % partitions``.
2. A null key has no partition (-1); an empty key has one.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pyarrow as pa

_M = np.uint32(0x5BD1E995)
_SEED = np.uint32(0x9747B28C)
FEW = 8
"""So many keys are hashed one by one: setting up arrays would take longer."""


def partitions_of(keys: pa.Array | pa.ChunkedArray, partitions: int) -> npt.NDArray[np.int32]:
    """The partition of each key."""
    if isinstance(keys, pa.ChunkedArray):
        pieces = [partitions_of(chunk, partitions) for chunk in keys.chunks]
        if len(pieces) == 1:
            return pieces[0]
        return np.concatenate(pieces) if pieces else np.empty(0, np.int32)
    hashes = murmur2(keys)
    out = ((hashes & np.uint32(0x7FFFFFFF)) % np.uint32(partitions)).astype(np.int32)
    if keys.null_count:
        out[~keys.is_valid().to_numpy(zero_copy_only=False)] = -1
    return out


def murmur2(keys: pa.Array) -> npt.NDArray[np.uint32]:
    """The 32-bit murmur2 of each value of a binary array."""
    if not len(keys):
        return np.empty(0, np.uint32)
    if len(keys) <= FEW and keys.nbytes <= 64 * FEW:
        return np.array([_hash_one(key or b"") for key in keys.to_pylist()], np.uint32)
    keys = keys.cast(pa.binary())
    offsets = np.frombuffer(keys.buffers()[1], np.int32)[keys.offset : keys.offset + len(keys) + 1]
    raw = keys.buffers()[2]
    # Four bytes of padding let every word be read without a look at the end.
    size = int(offsets[-1])
    data = np.zeros(size + 4, np.uint8)
    if raw is not None and size:
        data[:size] = np.frombuffer(raw, np.uint8, size)
    # Words begin at any byte: a view whose neighbours overlap reads each with one gather.
    words = np.ndarray((size + 1,), "<u4", data.data, strides=(1,))
    starts = offsets[:-1].astype(np.int64)
    lengths = np.diff(offsets)
    first = int(lengths[0])
    if (lengths == first).all():
        return _hash(words, starts, first)
    out = np.empty(len(lengths), np.uint32)
    for length in np.unique(lengths):
        rows = np.flatnonzero(lengths == length)
        out[rows] = _hash(words, starts[rows], int(length))
    return out


def _hash(
    words: npt.NDArray[np.uint32], starts: npt.NDArray[np.int64], length: int
) -> npt.NDArray[np.uint32]:
    """murmur2 of the values of one length that begin at ``starts``."""
    h = np.full(len(starts), _SEED ^ np.uint32(length), np.uint32)
    whole = length - length % 4
    for at in range(0, whole, 4):
        k = words[starts + at] * _M
        k ^= k >> np.uint32(24)
        k *= _M
        h *= _M
        h ^= k
    if length % 4:
        h ^= words[starts + whole] & np.uint32((1 << 8 * (length % 4)) - 1)
        h *= _M
    h ^= h >> np.uint32(13)
    h *= _M
    h ^= h >> np.uint32(15)
    return h


def _hash_one(key: bytes | str) -> int:
    """murmur2 of one value."""
    data = key.encode() if isinstance(key, str) else key
    m, mask = 0x5BD1E995, 0xFFFFFFFF
    h = 0x9747B28C ^ len(data)
    whole = len(data) & ~3
    for at in range(0, whole, 4):
        k = int.from_bytes(data[at : at + 4], "little") * m & mask
        k = (k ^ k >> 24) * m & mask
        h = h * m & mask ^ k
    if whole < len(data):
        h = (h ^ int.from_bytes(data[whole:], "little")) * m & mask
    h = (h ^ h >> 13) * m & mask
    return h ^ h >> 15
