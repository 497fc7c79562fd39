"""``verify``: derive every promise again from what is stored. Nothing is repaired.

Invariants:

1. The chain is folded from entry 0; no snapshot is believed, each is compared.
2. Every file that a live extent names is read whole: its sums, its count, its times.
3. Each fault is a sentence that names the place.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple

import pyarrow as pa

from offsetlog.core.topic.extents import Extent
from offsetlog.core.topic.fold import step
from offsetlog.core.topic.invariants import state_faults, tiling_faults
from offsetlog.core.topic.state import EMPTY_STATE, TopicState
from offsetlog.engine.topic.open_topic import unknown_topic
from offsetlog.errors import CorruptLogError, OffsetLogError
from offsetlog.format import entries as entry_format
from offsetlog.format import names, segments, snapshots
from offsetlog.format import record_schema as rows
from offsetlog.storage.store import Store
from offsetlog.values import check_name

Progress = Callable[[str, int, int], None]


class TopicReport(NamedTuple):
    topic: str
    entries: int
    records: int
    files: int
    bytes: int
    faults: tuple[str, ...]

    @property
    def sound(self) -> bool:
        return not self.faults


def verify_topics(
    store: Store, topic: str | None, *, progress: Progress | None = None
) -> list[TopicReport]:
    """Verify one topic, or all that were ever created."""
    folders = sorted(filter(names.is_topic_folder, store.folders("")))
    if topic is not None:
        folder = names.topic_folder(check_name(topic))
        if folder not in folders:
            raise unknown_topic(topic, EMPTY_STATE)
        folders = [folder]
    return [verify_topic(store, folder, progress=progress) for folder in folders]


def verify_topic(store: Store, folder: str, *, progress: Progress | None = None) -> TopicReport:
    return _Verify(store, folder, progress or (lambda what, done, of: None)).run()


class _Verify:
    def __init__(self, store: Store, folder: str, progress: Progress) -> None:
        self._store = store
        self._folder = folder
        self._progress = progress
        self._faults: list[str] = []
        self._snapshots: dict[int, TopicState] = {}
        self._leaves: dict[str, object] = {}
        self._files = self._bytes = 0

    def run(self) -> TopicReport:
        self._read_snapshots()
        try:
            state = self._fold()
        except OffsetLogError as error:
            self._faults.append(str(error))
            return TopicReport(self._folder, 0, 0, 0, 0, tuple(self._faults))
        self._faults += state_faults(state)
        self._check_ends(state)
        if not state.tip:
            self._faults.append(f"{self._folder}: there is no entry 0, so this is not a topic")
        elif names.topic_folder(state.topic) != self._folder:
            self._faults.append(f"{self._folder}: its chain is that of topic {state.topic!r}")
        self._check_names(state)
        records = 0
        for partition, part in enumerate(state.parts):
            extents = list(part.tail)
            self._faults += tiling_faults(partition, part.start, part.end, extents)
            records += part.end - part.start
            for i, extent in enumerate(extents):
                self._progress(f"partition {partition}", i, len(extents))
                self._check(extent)
        return TopicReport(
            state.topic or self._folder,
            state.tip,
            records,
            self._files,
            self._bytes,
            tuple(self._faults),
        )

    # --- the chain -------------------------------------------------------------------------

    def _fold(self) -> TopicState:
        state = EMPTY_STATE
        last = self._last_entry()
        while True:
            if state.tip in self._snapshots:
                self._compare(state, self._snapshots[state.tip])
            name = str(names.EntryName(self._folder, state.tip))
            data = self._store.get(name, 0, entry_format.MAX_ENTRY_BYTES + 1)
            if data is None:
                if state.tip <= last:
                    raise CorruptLogError(
                        f"{name} is missing, though entry {last} is there.",
                        "Restore it from a backup.",
                    )
                return state
            stored = entry_format.decode(data, name)
            state, _ = step(state, stored.entry)
            self._files += 1
            self._bytes += len(data)
            if state.tip % 64 == 0:
                self._progress("entries", state.tip, max(last + 1, state.tip))

    def _last_entry(self) -> int:
        """The greatest number in the listing."""
        last = -1
        for bucket in self._store.folders(names.log_folder(self._folder)):
            where = f"{names.log_folder(self._folder)}/{bucket}"
            for info in self._store.list(where):
                parsed = names.parse_entry(info.name)
                if parsed is not None:
                    last = max(last, parsed.number)
                elif not info.name.rsplit("/", 1)[-1].startswith(".tmp-"):
                    self._faults.append(f"{info.name} is not the name of an entry")
        return last

    # --- snapshots -------------------------------------------------------------------------

    def _read_snapshots(self) -> None:
        for info in self._store.list(names.snapshot_folder(self._folder)):
            parsed = names.parse_snapshot(info.name)
            if parsed is None:
                continue
            try:
                data = self._store.get(info.name, 0, snapshots.MAX_SNAPSHOT_BYTES + 1)
                state, senders_in = snapshots.decode_snapshot(data or b"", info.name)
                if senders_in is not None:
                    apart = str(names.LeafName(self._folder, senders_in))
                    data = self._store.get(apart, 0, snapshots.MAX_SNAPSHOT_BYTES + 1)
                    state = snapshots.decode_senders(state, data or b"", apart)
            except CorruptLogError as error:
                self._faults.append(f"{error} (A snapshot is a cache: delete it.)")
                continue
            if state.tip != parsed.seq:
                self._faults.append(f"{info.name} is the state at {state.tip}")
                continue
            self._snapshots[state.tip] = state

    def _compare(self, folded: TopicState, stored: TopicState) -> None:
        """Is a snapshot the fold at its place, down to each extent."""
        where = str(names.SnapshotName(self._folder, stored.tip))
        for field in TopicState._fields:
            if field in ("parts", "index"):
                continue
            if getattr(folded, field) != getattr(stored, field):
                self._faults.append(f"{where}: {field} differs from the fold of the chain")
        if len(folded.parts) != len(stored.parts):
            self._faults.append(f"{where}: {len(stored.parts)} partitions")
            return
        for partition, part in enumerate(folded.parts):
            other = stored.parts[partition]
            if (part.start, part.end) != (other.start, other.end):
                self._faults.append(f"{where}: offsets of partition {partition} differ")
            try:
                indexed = list(self._indexed(stored, partition))
            except OffsetLogError as error:
                self._faults.append(f"{where}: {error}")
                return
            if indexed != [e for e in part.tail if e.end > part.start]:
                self._faults.append(f"{where}: the index of partition {partition} differs")

    def _check_ends(self, state: TopicState) -> None:
        """A snapshot is stored after the entries below it, so none lies beyond the chain's end.

        They were listed before the chain was read, so that none of them is only newer."""
        for seq in sorted(self._snapshots):
            if seq > state.tip:
                self._faults.append(
                    f"{names.SnapshotName(self._folder, seq)} lies beyond the end of the chain, "
                    f"which has no entry {state.tip}: entries were lost, or copied before it"
                )

    def _indexed(self, state: TopicState, partition: int) -> Iterator[Extent]:
        part = state.parts[partition]
        for fence in state.index.fences(partition, part.start, part.end):
            uid = state.index.leaves[fence.leaf].uid
            if uid not in self._leaves:
                name = str(names.LeafName(self._folder, uid))
                data = self._store.get(name, 0, snapshots.MAX_LEAF_BYTES + 1)
                self._leaves = {uid: snapshots.decode_leaf(data or b"", name)}
            leaf = self._leaves[uid]
            low, high = max(part.start, fence.base), min(part.end, fence.end)
            for i in leaf.span(partition, low, high):  # type: ignore[attr-defined]
                yield leaf.extent(i)  # type: ignore[attr-defined]

    # --- files -----------------------------------------------------------------------------

    def _check_names(self, state: TopicState) -> None:
        """Does the folder hold only what belongs there."""
        for folder in self._store.folders(self._folder):
            partition = names.parse_partition_folder(folder)
            if partition is None:
                if folder not in ("_log", "_snapshot", "_index"):
                    self._faults.append(f"{self._folder}/{folder} does not belong to the log")
                continue
            for info in self._store.list(f"{self._folder}/{folder}"):
                last = info.name.rsplit("/", 1)[-1]
                if names.parse_segment(info.name) is None and not last.startswith(".tmp-"):
                    self._faults.append(f"{info.name} is not the name of a segment")

    def _check(self, extent: Extent) -> None:
        try:
            if extent.segment is None:
                self._check_inline(extent)
            else:
                self._check_segment(extent)
        except OffsetLogError as error:
            self._faults.append(str(error))

    def _check_inline(self, extent: Extent) -> None:
        name = str(names.EntryName(self._folder, extent.entry))
        data = self._store.get(name, 0, entry_format.MAX_ENTRY_BYTES + 1)
        stored = entry_format.decode(data or b"", name)
        if stored.stub:
            self._faults.append(
                f"{name}: its rows were taken out, but offsets {extent.base} to "
                f"{extent.end} of partition {extent.partition} need them"
            )
            return
        table = stored.rows(extent.row, extent.records, ("partition", "timestamp"))
        if set(table.column("partition").to_pylist()) - {extent.partition}:
            self._faults.append(f"{name}: holds rows of another partition for {extent.base}")
        self._check_times(name, extent, table.column("timestamp"))

    def _check_segment(self, extent: Extent) -> None:
        name = str(names.segment_of(self._folder, extent))
        assert extent.segment is not None
        data = self._store.get(name, 0, extent.segment.size + 1)
        if data is None:
            self._faults.append(
                f"{name} is missing; it holds offsets {extent.base} to {extent.end} of "
                f"partition {extent.partition}"
            )
            return
        self._files += 1
        self._bytes += len(data)
        opened = segments.OpenSegment.whole(extent.segment, extent.records, name, data)
        columns = ("key", "value", "headers", "timestamp")
        tables = opened.read(0, extent.records, columns)
        if not tables:
            return
        self._check_times(name, extent, pa.concat_tables(tables).column("timestamp"))
        if extent.rewritten:
            self._check_offsets(name, extent, opened)

    def _check_offsets(self, name: str, extent: Extent, opened: segments.OpenSegment) -> None:
        last = extent.base - 1
        for i in range(len(opened.groups)):
            for offset in opened.offsets(i).to_numpy()[[0, -1]].tolist():
                if not last <= offset < extent.end:
                    self._faults.append(f"{name}: offset {offset} is out of its place")
                last = offset

    def _check_times(self, name: str, extent: Extent, column: pa.ChunkedArray) -> None:
        times = rows.milliseconds(column)
        if (int(times.min()), int(times.max())) != (extent.min_ts, extent.max_ts):
            self._faults.append(f"{name}: its timestamps are not those that its entry states")
