"""The segments of one topic: written before the entry that names them, and copied.

Invariants:

1. A segment's name says the tip that was believed in before it was written.
2. A segment is invisible until an entry names it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

import pyarrow as pa

from offsetlog.core.topic.entry import Part, SegmentRef
from offsetlog.engine.env import Env
from offsetlog.format import segments
from offsetlog.format.names import segment_name
from offsetlog.format.segments import EncodedSegment
from offsetlog.storage.store import Store

T = TypeVar("T")
S = TypeVar("S")


class SegmentWriter:
    """Writes the segments of one topic."""

    def __init__(
        self, store: Store, folder: str, env: Env, pool: ThreadPoolExecutor | None
    ) -> None:
        self._store = store
        self._folder = folder
        self.env = env
        self._pool = pool

    def write(self, table: pa.Table, partition: int, born: int, compression: str) -> SegmentRef:
        ref, encoded = self.encode(table, born, compression)
        self.put(partition, ref, encoded)
        return ref

    def encode(
        self, table: pa.Table, born: int, compression: str
    ) -> tuple[SegmentRef, EncodedSegment]:
        """A segment that is still to be ``put``."""
        encoded = segments.encode(table, compression, self.env.limits.row_group_records)
        return encoded.ref(born, self.env.new_id()), encoded

    def put(self, partition: int, ref: SegmentRef, encoded: EncodedSegment) -> None:
        data: Any = encoded.data
        if self._store.takes_buffers:
            data = encoded.buffer
        self._store.put(str(segment_name(self._folder, partition, ref)), data)

    def name_of(self, part: Part) -> str:
        assert part.segment is not None
        return str(segment_name(self._folder, part.partition, part.segment))

    def is_there(self, part: Part) -> bool:
        """Whether the part's segment is there as it was written. Only a disk is asked."""
        if not self._store.is_local:
            return True
        file = self._store.info(self.name_of(part))
        return file is not None and part.segment is not None and file.size == part.segment.size

    def copy(self, partition: int, ref: SegmentRef, born: int) -> SegmentRef | None:
        """The same segment under a new name; None when it is not there any more."""
        data = self._store.get(str(segment_name(self._folder, partition, ref)), 0, ref.size + 1)
        if data is None:
            return None
        copy = ref._replace(born=born, uid=self.env.new_id())
        self._store.put(str(segment_name(self._folder, partition, copy)), data)
        return copy

    def each(self, call: Callable[[S], T], items: Sequence[S]) -> tuple[T, ...]:
        """``call`` of each item, side by side where that is possible."""
        if self._pool is None or len(items) == 1:
            return tuple(map(call, items))
        return tuple(self._pool.map(call, items))
