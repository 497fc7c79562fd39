"""A log of many segments, built through the real fold, format and snapshots.

1. Every entry is folded by the library and stored in its chain; snapshots are published on the
   way as a writer would, so the index has the shape that years of appends would give it.
2. The segments themselves are not there, but for one in the middle, which the lookup by time
   reads; nothing else that is measured opens one.
3. Sizes are irregular: entries touch some partitions or all, records vary over four decades.
"""

from __future__ import annotations

from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from bench.figure import Setting
from bench.suite import SUITE
from bench.workload import irregular_sizes, random_table

if TYPE_CHECKING:
    from bench.floors.s3 import BareHttp

TOPIC = "orders"
PARTITIONS = 64
PUBLISH_EVERY = 64
"""Entries from one snapshot to the next while building, as a writer has them."""
FIRST_TIME = 1_700_000_000_000
PLANNED = 100
"""Segments of partition 0 that the planned range spans."""
REAL_ROWS = 5_000
LARGE_ROWS = 5_000
"""Records that fill half of the smallest target of a rewrite: such a segment is left alone."""
SENDERS = 100
"""Producers that take turns; each is remembered by the state."""


class Built(NamedTuple):
    """Where the log lies and what is known of it."""

    url: str
    folder: Path
    entries: int
    segments: int
    planned: tuple[int, int]
    """Offsets of partition 0 over a hundred segments, in the middle."""
    wanted: tuple[int, int]
    """A time in the middle, and the offset of partition 0 that stands for it."""
    parts: tuple[str, ...]
    """All files that a reader of the topic may ask for, below the root."""


class Written(NamedTuple):
    """Files and bytes that were put."""

    files: int
    bytes: int


class Author:
    """Makes entries that name segments, and folds them onto a chain of its own.

    ``stored``: put each entry into the chain. What only opens the log's newest state asks for none
    but the last below a snapshot, and 10^6 files take long to make."""

    def __init__(
        self, url: str, seed: int = 7, stored: bool = True, least: int = 1, **options: Any
    ) -> None:
        from bench.counting_store import CountingStore
        from offsetlog.engine.env import REAL
        from offsetlog.engine.topic.chain import Chain
        from offsetlog.engine.topic.stored_state import StoredState
        from offsetlog.format.names import topic_folder
        from offsetlog.storage.open import open_store

        self._store = CountingStore(open_store(url, **options))
        self._chain = Chain(self._store, topic_folder(TOPIC), REAL)
        self.stored = StoredState(self._chain)
        self.state = self.stored.refresh()
        self._seed = seed
        self._source = np.random.default_rng(seed)
        self._sizes = irregular_sizes(1 << 16, seed, low=least)
        self._stored = stored
        self._used = 0
        self._last, self._last_data = "", b""
        self.real = ""
        self.time = FIRST_TIME + self.state.tip * 1000

    def append(self, limit: int) -> int:
        """One entry over some partitions; how many segments it names."""
        chosen = self._partitions(limit)
        ids = self._source.bytes(24 * len(chosen)).hex()
        parts = tuple(self._part(p, ids[48 * i : 48 * i + 48]) for i, p in enumerate(chosen))
        self._land(parts)
        self.time += int(self._source.integers(1, 2000))
        return len(parts)

    def append_real(self) -> tuple[int, int]:
        """One entry whose segment is there; a time in its middle and the offset for it."""
        import pyarrow as pa

        from offsetlog.core.topic.entry import Part
        from offsetlog.format import record_schema as rows
        from offsetlog.format import segments
        from offsetlog.format.names import segment_name

        self.time += 10_000  # later than any timestamp before it
        table = random_table(REAL_ROWS)
        times = pa.array(np.arange(REAL_ROWS) + self.time).cast(rows.TIMESTAMP)
        headers = pa.nulls(REAL_ROWS, rows.HEADERS)
        columns = [table["key"], table["value"], headers, times]
        encoded = segments.encode(pa.Table.from_arrays(columns, schema=rows.ROWS), "zstd")
        ref = encoded.ref(self.state.tip, self._source.bytes(16).hex())
        self.real = str(segment_name(self._chain.folder, 0, ref))
        self._store.put(self.real, encoded.data, durable=False)
        half = REAL_ROWS // 2
        wanted = (self.time + half, self.state.end(0) + half)
        last = self.time + REAL_ROWS - 1
        self._land((Part(0, REAL_ROWS, 108 * REAL_ROWS, self.time, last, ref),))
        self.time = last + 1
        return wanted

    def _land(self, parts: tuple[Any, ...]) -> None:
        from offsetlog.core.topic.entry import Append, Entry
        from offsetlog.core.topic.fold import step
        from offsetlog.format import entries
        from offsetlog.format.names import EntryName

        ids = self._source.bytes(24).hex()
        body = Append(
            app=f"{self._seed:08x}{self.state.tip % SENDERS:024x}",
            seq=self.state.tip,
            own=True,
            born=self.state.tip,
            created_at_entry=self.state.created_at_entry,
            hashed_with=self.state.partitions,
            digest=ids[:16],
            ts_type=0,
            parts=parts,
        )
        entry = Entry(ids[16:], self.time, body)
        self._last = str(EntryName(self._chain.folder, self.state.tip))
        self._last_data = entries.encode(entry, None, "none").data
        if self._stored:
            self._store.put(self._last, self._last_data, durable=False)
        self.state, verdict = step(self.state, entry)
        if not hasattr(verdict, "placed"):
            raise RuntimeError(f"an entry of the large log is void: {verdict}")

    def publish(self) -> None:
        """Store the state as a writer does."""
        self._store_last()
        self._chain.state = self.state
        self.state = self.stored.publish()

    def look_after(self) -> None:
        """Store the state as ``maintain`` does, which sorts old leaves."""
        self._store_last()
        self._chain.state = self.state
        self.state = self.stored.tidy()

    def _store_last(self) -> None:
        """Whoever opens the log from a snapshot looks whether the entry below it is there."""
        if not self._stored and self._last:
            self._store.put(self._last, self._last_data, durable=False)

    def publish_if_due(self, every: int = PUBLISH_EVERY) -> None:
        """Store the state when the stored one is far enough behind."""
        if self.state.tip - self.state.index.seq >= every:
            self.publish()

    def files(self) -> tuple[str, ...]:
        """All that a reader may ask for: of the entries, the one below the snapshot."""
        from offsetlog.format import names

        folder = self._chain.folder
        found = [str(names.LeafName(folder, ref.uid)) for ref in self.state.index.leaves]
        found += [str(names.SnapshotName(folder, self.state.tip)), names.hint_name(folder)]
        found += [self.real] if self.real else []
        found += [self._last] if self._last else []
        return (names.ROOT_FILE, *found)

    def written(self) -> Written:
        """What was put by now."""
        return Written(self._store.calls["put"], self._store.bytes_up)

    def close(self) -> None:
        """Let go of the store."""
        self._store.close()

    def _partitions(self, limit: int) -> list[int]:
        there = self.state.partitions
        count = min(limit, there, int(self._source.integers(1, 2 * there)))
        picked = self._source.choice(there, count, replace=False)
        return sorted(int(p) for p in picked)

    def _part(self, partition: int, digits: str) -> Any:
        from offsetlog.core.topic.entry import Part, SegmentRef

        records = int(self._sizes[self._used % len(self._sizes)])
        self._used += 1
        size = 1_500 + 112 * records
        segment = SegmentRef(self.state.tip, digits[:32], size, 900 + records % 400, digits[32:])
        spread = int(self._source.integers(0, 5_000))
        return Part(partition, records, 108 * records, self.time, self.time + spread, segment)


def build(folder: Path, segments: int) -> Built:
    """A log whose topic has so many segments, its last snapshot at its tip."""
    url = f"file://{folder}"
    _create(url, PARTITIONS, {})
    author = Author(url)
    left = segments - 1
    while left > segments // 2:
        left -= author.append(left)
        author.publish_if_due()
    start = author.state.end(0)
    wanted = author.append_real()
    end, spanned = author.state.end(0), 1
    while left:
        left -= author.append(left)
        if spanned < PLANNED and author.state.end(0) > end:
            end, spanned = author.state.end(0), spanned + 1
        author.publish_if_due()
    author.look_after()
    built = Built(
        url,
        folder,
        author.state.tip,
        segments,
        (start, end),
        wanted,
        author.files(),
    )
    author.close()
    return built


def _create(url: str, partitions: int, config: dict[str, object]) -> None:
    import offsetlog

    with offsetlog.open(url) as log:
        log.create_topic(TOPIC, partitions=partitions, config=config)


class Sketch(NamedTuple):
    """A log without its entries, for what never asks for them."""

    url: str
    folder: Path
    files: tuple[str, ...]

    def mirror(self, server: BareHttp, prefix: str) -> None:
        """Put it on an object store too."""
        for name in self.files:
            server.put(f"{prefix}/{name}", (self.folder / name).read_bytes())


def sketched(setting: Setting, segments: int, partitions: int = PARTITIONS) -> Sketch:
    """Such a log, made once a run. Who wants to change it mirrors or copies it."""
    name = f"sketch-{segments}-{partitions}"
    folder = setting.work.parent / name
    return SUITE.once(name, lambda: nullcontext(_sketch(folder, segments, partitions)))


def _sketch(folder: Path, segments: int, partitions: int) -> Sketch:
    """Its segments are too large for upkeep to join, and no retention takes them."""
    folder.mkdir()
    url = f"file://{folder}"
    config: dict[str, object] = {"retention.ms": -1, "segment.bytes": 1 << 20}
    _create(url, partitions, config)
    author = Author(url, stored=False, least=LARGE_ROWS)
    left, every = segments, max(PUBLISH_EVERY, segments // partitions // 128)
    while left:
        left -= author.append(left)
        author.publish_if_due(every)
    author.look_after()
    files = author.files()
    author.close()
    return Sketch(url, folder, files)


def extend(url: str, entries: int, **options: Any) -> None:
    """Append entries that no snapshot covers yet."""
    author = Author(url, seed=8, **options)
    for _ in range(entries):
        author.append(PARTITIONS)
    author.close()
