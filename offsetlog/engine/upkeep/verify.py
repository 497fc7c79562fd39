"""``verify``: derive every promise again from what is stored. Nothing is repaired.

Invariants:

1. The chain is folded from entry 0; no snapshot is believed, each is compared. Only where an entry
   is missing or broken the fold goes on from the next snapshot that is sound, and says so. Until
   then the entry counts as void: each file is still judged by its own sums, and what depends on
   the fold is not judged.
2. Every entry is read once, every leaf once for each snapshot that names something new of it, and
   every file that a live extent names once and whole: its sums, its count, its times.
3. A log in use gives no false alarm: what seems to be missing is looked for again in what the
   chain says then.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import accumulate
from typing import NamedTuple

import numpy as np

from offsetlog.core.decode import field, integer
from offsetlog.core.topic import retention
from offsetlog.core.topic.entry import Append, Compact, Erase, Replace
from offsetlog.core.topic.extents import Extent, Tail
from offsetlog.core.topic.fold import step
from offsetlog.core.topic.index import EMPTY_INDEX, Fence, Leaf
from offsetlog.core.topic.invariants import state_faults, tiling_faults
from offsetlog.core.topic.state import EMPTY_STATE, PartitionState, TopicState
from offsetlog.engine.copy.note import read_note
from offsetlog.engine.topic.open_topic import unknown_topic
from offsetlog.engine.upkeep.findings import TopicReport
from offsetlog.engine.upkeep.maintenance import MOST_NOTE_BYTES, STUBS_NOTE, StubsNote
from offsetlog.engine.upkeep.verify_table import TableCheck
from offsetlog.errors import CorruptLogError, OffsetLogError
from offsetlog.format import entries as entry_format
from offsetlog.format import names, notes, root_file, segments, snapshots
from offsetlog.format import record_schema as rows
from offsetlog.format.delta_log import LOG
from offsetlog.storage.offsets.check import CacheFault
from offsetlog.storage.offsets.open import FOLDER as OFFSETS_FOLDER
from offsetlog.storage.offsets.port import OffsetsPort
from offsetlog.storage.store import Store
from offsetlog.values import check_name

Progress = Callable[[str, int, int], None]
ENTRIES_AHEAD = 16
MOST_REFUSED = 16
"""Files that the storage does not give, after which it is the storage that is broken."""
SEGMENT_BYTES_AHEAD = 64 * 1024 * 1024
_NEVER_CREATED = (
    "its creation was interrupted, and nothing was ever stored in it: the topic does not exist"
)
_NOTES = (
    (names.hint_name, field("seq", integer())),
    (names.stubs_name, STUBS_NOTE),
    (names.table_name, field("version", integer())),
)


_OF_REFUSED_WRITERS = re.compile(r"\.?part-[0-9]+-[0-9a-f-]{36}[-.\w]*\.parquet(\.crc)?", re.ASCII)
"""What writers of Delta leave beside the segments when their commit is refused."""


def verify_log(
    store: Store,
    offsets: Callable[[], OffsetsPort],
    pool: ThreadPoolExecutor | None = None,
    progress: Progress | None = None,
) -> list[TopicReport]:
    """The root's file, every topic that was ever created, and the offsets table."""
    root = verify_root(store)
    topics = verify_topics(store, None, pool=pool, progress=progress)
    if root.faults:
        return [root, *topics]  # Whose the offsets table is can't be told.
    return [root, *topics, *verify_offsets(offsets, progress)]


def verify_root(store: Store) -> TopicReport:
    data = store.get(names.ROOT_FILE, 0, root_file.MAX_BYTES + 1) or b""
    try:
        root_file.decode(data, names.ROOT_FILE)
        read_note(store)
    except OffsetLogError as error:
        return TopicReport(names.ROOT_FILE, 0, 0, 1, len(data), (str(error),))
    return TopicReport(names.ROOT_FILE, 0, 0, 1, len(data), ())


def verify_offsets(
    offsets: Callable[[], OffsetsPort], progress: Progress | None = None
) -> list[TopicReport]:
    """The table of all groups, in a topic's words: its versions are entries, its facts records.
    Nothing where there is none."""
    try:
        check = offsets().verify(progress or (lambda what, done, of: None))
    except OffsetLogError as error:
        return [TopicReport(OFFSETS_FOLDER, 0, 0, 0, 0, (str(error),))]
    if check is None:
        return []
    return [
        TopicReport(
            OFFSETS_FOLDER,
            check.version + 1,
            check.facts,
            check.files,
            check.bytes,
            check.faults,
            check.caches,
        )
    ]


def verify_topics(
    store: Store,
    topic: str | None,
    *,
    pool: ThreadPoolExecutor | None = None,
    progress: Progress | None = None,
) -> list[TopicReport]:
    """Verify one topic, or all that were ever created."""
    folders = sorted(filter(names.is_topic_folder, store.folders("")))
    if topic is not None:
        folder = names.topic_folder(check_name(topic))
        if folder not in folders:
            raise unknown_topic(topic, EMPTY_STATE)
        folders = [folder]
    return [verify_topic(store, folder, pool=pool, progress=progress) for folder in folders]


def verify_topic(
    store: Store,
    folder: str,
    *,
    pool: ThreadPoolExecutor | None = None,
    progress: Progress | None = None,
) -> TopicReport:
    return _Verify(store, folder, pool, progress or (lambda what, done, of: None)).run()


class _Missing(OffsetLogError):
    """There is no such entry, and there are later ones."""

    def __init__(self) -> None:
        super().__init__("An entry is missing.")


class _CheckedSegment(NamedTuple):
    faults: list[str]
    bytes: int
    is_missing: bool = False


class _Verify:
    def __init__(
        self, store: Store, folder: str, pool: ThreadPoolExecutor | None, progress: Progress
    ) -> None:
        self._store = store
        self._folder = folder
        self._pool = None if store.is_local else pool
        self._progress = progress
        self._faults: list[str] = []
        self._caches: list[CacheFault] = []
        self._notes: list[str] = []
        self._unusable: dict[int, str] = {}
        """Entries whose rows are not there, or can't be read, and why."""
        self._wrong: dict[tuple[int, int], str] = {}
        """What is wrong with the rows that begin at a row of an entry."""
        self._replaced: Counter[int] = Counter()
        """How often something of a partition was replaced."""
        self._fitting: dict[tuple[str, Fence], int] = {}
        """Ranges of leaves that were seen to be what was folded, after so many replacements."""
        self._guessed_from: int | None = None
        """The broken entry after which the fold is not known."""
        self._missing: list[int] = []
        self._with_rows: list[int] = []
        """Entries that hold rows."""
        self._stubs = StubsNote()
        self._refused = 0
        self._files = self._bytes = 0
        self._table = TableCheck(store, folder)

    def run(self) -> TopicReport:
        snapshots_there = self._listed_snapshots()
        self._check_notes()
        self._caches += self._table.caches
        last = self._last_entry()
        try:
            state = self._folded(snapshots_there, last)
        except OffsetLogError as error:  # The storage does not answer.
            self._faults.append(str(error))
            return self._report(EMPTY_STATE)
        self._check_ends(state, snapshots_there)
        has_segments = self._check_names()
        if not state.tip and not snapshots_there and not has_segments:
            self._notes.append(_NEVER_CREATED)
            return self._report(state)
        if not state.tip:
            self._faults.append(f"{self._folder}: there is no entry 0, so this is not a topic")
        elif state.topic and names.topic_folder(state.topic) != self._folder:
            self._faults.append(f"{self._folder}: its chain is that of topic {state.topic!r}")
        if self._guessed_from is None:
            self._faults += state_faults(state)
            for partition, part in enumerate(state.parts):
                self._faults += tiling_faults(partition, part.start, part.end, part.tail)
                self._check_inline(part.tail)
            self._faults += self._table.faults(state)
            self._check_stubs(state)
        self._check_segments(state)
        return self._report(state)

    def _report(self, state: TopicState) -> TopicReport:
        return TopicReport(
            state.topic or self._folder,
            state.tip,
            sum(_records(part) for part in state.parts),
            self._files,
            self._bytes,
            tuple(self._faults),
            tuple(self._caches),
            tuple(self._notes),
        )

    def _get(self, name: str, most: int) -> bytes | None:
        return self._store.get(name, 0, most + 1)

    def _cache_fault(self, file: str, text: str) -> None:
        self._caches.append(CacheFault(file, text))

    # --- the chain -------------------------------------------------------------------------

    def _folded(self, snapshots_there: set[int], last: int) -> TopicState:
        """The state at the end of the chain; entry ``last`` was in the listing."""
        state = EMPTY_STATE
        for stored in self._entries(0, last):
            if stored is None:
                break
            number = state.tip
            try:
                if isinstance(stored, OffsetLogError):
                    raise stored
                state, _ = step(state, stored.entry)
            except OffsetLogError as error:
                self._note_broken(number, error)
                state = state._replace(tip=number + 1)
            else:
                self._table.folded(state, stored.entry)
                self._note_rows(number, stored)
                self._files += 1
                self._bytes += len(stored.data)
            if state.tip % 64 == 0:
                self._progress("entries", state.tip, max(last + 1, state.tip))
            if state.tip not in snapshots_there:
                continue
            if self._guessed_from is None:
                self._compare(state)
            else:
                state = self._resumed(state)
        self._name_missing(last)
        if self._guessed_from is not None:
            self._notes.append(
                f"no snapshot lies behind entry {self._guessed_from}, so what comes after it was "
                "checked file by file only: which offsets it has, and whether a segment is "
                "missing, can't be told"
            )
        return state

    def _states(self, state: TopicState) -> Iterator[TopicState]:
        """The state, and each after it."""
        yield state
        for stored in self._entries(state.tip, -1):
            if not isinstance(stored, entry_format.StoredEntry):
                return
            state, _ = step(state, stored.entry)
            yield state

    def _entries(
        self, number: int, last: int
    ) -> Iterator[entry_format.StoredEntry | OffsetLogError | None]:
        """Those from a number on, or what is wrong with them, and None at the end."""
        width = 1 if self._pool is None else ENTRIES_AHEAD
        work = map if self._pool is None else self._pool.map
        while True:
            numbers = range(number, number + width)
            for at, stored in zip(numbers, work(self._entry, numbers), strict=True):
                yield _Missing() if stored is None and at <= last else stored
            number += width

    def _entry(self, number: int) -> entry_format.StoredEntry | OffsetLogError | None:
        name = str(names.EntryName(self._folder, number))
        try:
            data = self._get(name, entry_format.MAX_ENTRY_BYTES)
            return None if data is None else entry_format.decode(data, name)
        except OffsetLogError as error:
            return error

    def _note_broken(self, number: int, error: OffsetLogError) -> None:
        """An entry that is missing or can't be read: from here on the fold is a guess."""
        if not isinstance(error, CorruptLogError | _Missing):
            self._refused += 1
            if getattr(error, "retryable", True) or self._refused > MOST_REFUSED:
                raise error
        if self._guessed_from is None:
            self._guessed_from = number
        if isinstance(error, _Missing):
            self._missing.append(number)
        else:
            self._faults.append(str(error))
            self._unusable[number] = "it can't be read"

    def _name_missing(self, last: int) -> None:
        """Each run of missing entries in a sentence."""
        first: int | None = None
        for i, number in enumerate(self._missing, 1):
            first = number if first is None else first
            if self._missing[i : i + 1] == [number + 1]:
                continue
            name = names.EntryName(self._folder, first)
            what = f"{name} is" if first == number else f"{name} and those up to {number} are"
            self._faults.append(f"{what} missing, though entry {last} is there")
            first = None
        self._unusable.update(dict.fromkeys(self._missing, "it is missing"))

    def _resumed(self, guessed: TopicState) -> TopicState:
        """The state that a snapshot has here, with all its extents; the guess, if it is broken."""
        name = str(names.SnapshotName(self._folder, guessed.tip))
        try:
            stored = self._stored_state(guessed.tip, name)
            if stored is None:
                return guessed
            state = self._with_extents(stored)
        except OffsetLogError as error:
            self._cache_fault(name, f"{name}: {error.message}")
            return guessed
        self._notes.append(
            f"entries {self._guessed_from} to {guessed.tip - 1} were checked file by file only, "
            f"and {name} was believed in their place"
        )
        self._guessed_from = None
        self._table.resumed(state)
        return state

    def _with_extents(self, stored: TopicState) -> TopicState:
        """A stored state whose tails hold what its leaves do."""
        leaves: dict[int, Leaf] = {}
        parts = []
        for partition, part in enumerate(stored.parts):
            extents: list[Extent] = []
            for fence in stored.index.fences(partition, part.start, part.end):
                leaf = leaves.get(fence.leaf)
                if leaf is None:
                    uid = stored.index.leaves[fence.leaf].uid
                    leaf = leaves[fence.leaf] = self._leaf(str(names.LeafName(self._folder, uid)))
                low, high = max(part.start, fence.base), min(part.end, fence.end)
                extents += [leaf.extent(i) for i in leaf.span(partition, low, high)]
            parts.append(part._replace(tail=Tail(extents)))
        return stored._replace(parts=tuple(parts), index=EMPTY_INDEX)

    def _last_entry(self) -> int:
        """The greatest number in the listing."""
        last = -1
        for bucket in self._store.folders(names.log_folder(self._folder)):
            if not bucket.isdigit():
                continue  # Somebody else's.
            where = f"{names.log_folder(self._folder)}/{bucket}"
            for info in self._store.list(where):
                parsed = names.parse_entry(info.name)
                if parsed is not None:
                    last = max(last, parsed.number)
                elif not info.name.rsplit("/", 1)[-1].startswith(".tmp-"):
                    self._faults.append(f"{info.name} is not the name of an entry")
        return last

    # --- rows in entries -------------------------------------------------------------------

    def _note_rows(self, number: int, stored: entry_format.StoredEntry) -> None:
        """Remember what is wrong with an entry's rows. Whether it counts, and they are needed, is
        known when the whole chain was folded."""
        body = stored.entry.body
        if isinstance(body, Replace | Compact | Erase):
            self._replaced.update(run.partition for run in body.runs)
        parts = [p for p in body.parts if p.segment is None] if isinstance(body, Append) else []
        if not parts:
            return
        if stored.stub:
            self._unusable[number] = "its rows were taken out"
            return
        self._with_rows.append(number)
        try:
            table = stored.rows(0, stored.inline_records, ("partition", "timestamp"))
        except OffsetLogError as error:
            self._unusable[number] = str(error)
            return
        counts = [part.records for part in parts]
        starts = list(accumulate(counts, initial=0))[:-1]
        held, times = table.column("partition").to_numpy(), rows.milliseconds(table["timestamp"])
        strange = np.add.reduceat(held != np.repeat([p.partition for p in parts], counts), starts)
        low, high = np.minimum.reduceat(times, starts), np.maximum.reduceat(times, starts)
        for i, part in enumerate(parts):
            if strange[i]:
                self._wrong[number, starts[i]] = f"holds rows of another partition for {part[:2]}"
            elif (int(low[i]), int(high[i])) != (part.min_ts, part.max_ts):
                self._wrong[number, starts[i]] = "its timestamps are not those that it states"

    def _check_inline(self, extents: Iterable[Extent]) -> None:
        for extent in extents:
            if not extent.inline:
                continue
            reason = self._unusable.get(extent.entry) or self._wrong.get((extent.entry, extent.row))
            if reason is not None:
                self._faults.append(
                    f"{names.EntryName(self._folder, extent.entry)}: {reason}, but offsets "
                    f"{extent.base} to {extent.end} of partition {extent.partition} need them"
                )

    # --- snapshots -------------------------------------------------------------------------

    def _listed_snapshots(self) -> set[int]:
        """Those that were there before the chain was read, so that none of them is only newer."""
        listed = self._store.list(names.snapshot_folder(self._folder))
        parsed = (names.parse_snapshot(info.name) for info in listed)
        return {name.seq for name in parsed if name is not None}

    def _check_notes(self) -> None:
        for name_of, decoder in _NOTES:
            name = name_of(self._folder)
            data = self._get(name, MOST_NOTE_BYTES)
            try:
                if data is not None:
                    said = notes.decode(decoder, data, name, MOST_NOTE_BYTES)
                    self._stubs = said if isinstance(said, StubsNote) else self._stubs
            except CorruptLogError as error:
                self._cache_fault(name, error.message)

    def _check_stubs(self, state: TopicState) -> None:
        """Rows that nobody needs any more, in entries that upkeep does not look at again."""
        needed = {e.entry for part in state.parts for e in part.tail if e.inline}
        idle = [number for number in self._with_rows if number not in needed]
        said = self._stubs
        looked_at = said.stubbed_to if said.left_from < 0 else min(said.stubbed_to, said.left_from)
        passed_over = [number for number in idle if number < looked_at]
        if passed_over:
            name = names.stubs_name(self._folder)
            self._cache_fault(
                name,
                f"{name} says that no entry below {looked_at} holds rows that nobody needs, and "
                f"entry {passed_over[0]} does",
            )
        waiting = [number for number in idle if number < state.horizon]
        if waiting and retention.lets_rows_go(state) and self._store.replaces_at_once:
            self._notes.append(
                f"{len(waiting)} entries, the first of them {waiting[0]}, hold rows that nobody "
                "needs any more: the next 'offsetlog maintain' takes them out"
            )

    def _check_ends(self, state: TopicState, snapshots_there: set[int]) -> None:
        """A snapshot is stored after the entries below it, so none lies beyond the chain's end."""
        for seq in sorted(snapshots_there):
            if seq > state.tip:
                self._faults.append(
                    f"{names.SnapshotName(self._folder, seq)} lies beyond the end of the chain, "
                    f"which has no entry {state.tip}: entries were lost, or copied before it"
                )

    def _compare(self, folded: TopicState) -> None:
        """Is the snapshot of this place what was folded, down to each extent."""
        name = str(names.SnapshotName(self._folder, folded.tip))
        try:
            stored = self._stored_state(folded.tip, name)
            reason = None if stored is None else self._difference(folded, stored)
        except OffsetLogError as error:
            reason = error.message
        # Upkeep deletes old ones, and then their leaves.
        if reason is not None and self._store.info(name) is not None:
            self._cache_fault(name, f"{name}: {reason}")

    def _stored_state(self, seq: int, name: str) -> TopicState | None:
        data = self._get(name, snapshots.MAX_SNAPSHOT_BYTES)
        if data is None:
            return None
        self._files += 1
        self._bytes += len(data)
        state, senders_in = snapshots.decode_snapshot(data, name)
        if state.tip != seq:
            raise CorruptLogError(f"it is the state at {state.tip}")
        if senders_in is None:
            return state
        apart = str(names.LeafName(self._folder, senders_in))
        data = self._get(apart, snapshots.MAX_SNAPSHOT_BYTES)
        return snapshots.decode_senders(state, data or b"", apart)

    def _difference(self, folded: TopicState, stored: TopicState) -> str | None:
        for name in TopicState._fields:
            if name not in ("parts", "index") and getattr(folded, name) != getattr(stored, name):
                return f"{name} differs from the fold of the chain"
        if len(folded.parts) != len(stored.parts):
            return f"it has {len(stored.parts)} partitions"
        by_leaf: dict[int, list[Fence]] = {}
        for partition, (part, other) in enumerate(zip(folded.parts, stored.parts, strict=True)):
            if part._replace(tail=other.tail) != other:
                return f"offsets of partition {partition} differ"
            at = part.start
            for fence in stored.index.fences(partition, part.start, part.end):
                if fence.base > at or (fence.base < at and at > part.start):
                    return f"the index of partition {partition} has a hole or an overlap at {at}"
                by_leaf.setdefault(fence.leaf, []).append(fence)
                at = fence.end
            if at != part.end:
                return f"the index of partition {partition} ends at {at}"
        for leaf, fences in sorted(by_leaf.items()):
            reason = self._leaf_difference(folded, stored.index.leaves[leaf].uid, fences)
            if reason is not None:
                return reason
        return None

    def _leaf_difference(self, folded: TopicState, uid: str, fences: list[Fence]) -> str | None:
        """What of a leaf is not what was folded; what was seen to fit is not looked at again."""
        keys = [(uid, fence._replace(leaf=0)) for fence in fences]
        fresh = [
            (key, fence)
            for key, fence in zip(keys, fences, strict=True)
            if self._fitting.get(key) != self._replaced[fence.partition]
        ]
        if not fresh:
            return None
        name = str(names.LeafName(self._folder, uid))
        leaf = self._leaf(name)
        for key, fence in fresh:
            if not _fits(folded, leaf, fence):
                return f"its index of partition {fence.partition} differs from the fold"
            self._fitting[key] = self._replaced[fence.partition]
        return None

    def _leaf(self, name: str) -> Leaf:
        data = self._get(name, snapshots.MAX_LEAF_BYTES)
        if data is None:
            raise CorruptLogError(f"{name} is missing")
        self._files += 1
        self._bytes += len(data)
        try:
            return snapshots.decode_leaf(data, name)
        except CorruptLogError as error:
            self._cache_fault(name, error.message)
            raise

    # --- files -----------------------------------------------------------------------------

    def _check_names(self) -> bool:
        """Does the folder hold only what belongs there; whether it holds segments."""
        has_segments = False
        refused: list[str] = []
        for folder in self._store.folders(self._folder):
            if names.parse_partition_folder(folder) is None:
                if folder not in ("_log", "_snapshot", "_index", LOG):
                    self._faults.append(f"{self._folder}/{folder} does not belong to the log")
                continue
            for info in self._store.list(f"{self._folder}/{folder}"):
                last = info.name.rsplit("/", 1)[-1]
                if names.parse_segment(info.name) is not None:
                    has_segments = True
                elif _OF_REFUSED_WRITERS.fullmatch(last):
                    refused.append(info.name)
                elif not last.startswith(".tmp-"):
                    self._faults.append(f"{info.name} is not the name of a segment")
        if refused:
            others = f" and {len(refused) - 1} more" if len(refused) > 1 else ""
            self._notes.append(
                f"{refused[0]}{others} is of a writer that the topic's table refused; no reader "
                "sees it, and it may be removed"
            )
        return has_segments

    def _check_segments(self, state: TopicState) -> None:
        extents = [e for part in state.parts for e in part.tail if e.segment is not None]
        missing: list[Extent] = []
        done = 0
        for together in _portions(extents):
            work = map if self._pool is None else self._pool.map
            for extent, checked in zip(together, work(self._segment, together), strict=True):
                self._faults += checked.faults
                self._files += not checked.is_missing
                self._bytes += checked.bytes
                if checked.is_missing:
                    missing.append(extent)
            done += len(together)
            self._progress("segments", done, len(extents))
        if not missing or self._guessed_from is not None:
            return
        for now in self._states(state):
            state = now  # It may have been merged, and collected, since.
        for extent in missing:
            part = state.parts[extent.partition]
            if extent in part.tail.overlapping(max(extent.base, part.start), extent.end):
                self._faults.append(
                    f"{names.segment_of(self._folder, extent)} is missing; it holds offsets "
                    f"{extent.base} to {extent.end} of partition {extent.partition}"
                )

    def _segment(self, extent: Extent) -> _CheckedSegment:
        name = str(names.segment_of(self._folder, extent))
        assert extent.segment is not None
        data = self._get(name, extent.segment.size)
        if data is None:
            return _CheckedSegment([], 0, True)
        try:
            opened = segments.OpenSegment.whole(extent.segment, extent.records, name, data)
            return _CheckedSegment(list(_segment_faults(name, extent, opened)), len(data))
        except OffsetLogError as error:
            return _CheckedSegment([str(error)], len(data))


def _fits(folded: TopicState, leaf: Leaf, fence: Fence) -> bool:
    """Whether what a leaf has within a fence is what was folded, and within the fence's times."""
    part = folded.parts[fence.partition]
    low, high = max(part.start, fence.base), min(part.end, fence.end)
    stored = [leaf.extent(i) for i in leaf.span(fence.partition, low, high)]
    return stored == part.tail.overlapping(low, high) and all(
        fence.min_ts <= extent.min_ts and extent.max_ts <= fence.max_ts for extent in stored
    )


def _records(part: PartitionState) -> int:
    """How many a partition holds. What the log start cuts in two counts by its offsets."""
    return sum(
        extent.records - max(0, min(extent.records, part.start - extent.base))
        for extent in part.tail
    )


def _portions(extents: list[Extent]) -> Iterator[list[Extent]]:
    """A few at a time, by their bytes."""
    portion: list[Extent] = []
    size = 0
    for extent in extents:
        assert extent.segment is not None
        if portion and (
            size + extent.segment.size > SEGMENT_BYTES_AHEAD or len(portion) == ENTRIES_AHEAD
        ):
            yield portion
            portion, size = [], 0
        portion.append(extent)
        size += extent.segment.size
    if portion:
        yield portion


def _segment_faults(name: str, extent: Extent, opened: segments.OpenSegment) -> Iterator[str]:
    columns = ("key", "value", "headers", "timestamp")
    spans: list[tuple[int, int]] = []
    last = -1
    for i, group in enumerate(opened.groups):
        for table in opened.read(group.first, group.first + group.records, columns):
            times = rows.milliseconds(table.column("timestamp"))
            spans.append((int(times.min()), int(times.max())))
        if spans[-1][1] > opened.newest(i):
            yield f"{name}: row group {i} has later times than its footer says"
        if extent.rewritten:
            offsets = opened.offsets(i, extent.base, extent.end)
            if offsets[0] <= last:
                raise opened.misplaced(i)
            last = int(offsets[-1])
    low, high = min((span[0] for span in spans), default=0), max((s[1] for s in spans), default=0)
    if spans and (low, high) != (extent.min_ts, extent.max_ts):
        yield f"{name}: its timestamps are not those that its entry states"
