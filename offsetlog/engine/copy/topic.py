"""One topic of a copy: its entries in their order, and the segments that they name before them.

Invariants:

1. An entry is put, if absent, at its own number and with its own bytes, after every segment that it
   names and that the source still has. So what the copy of a chain has is a prefix of the chain.
2. A topic that the copy does not have yet is read by nobody, since its entry 0 comes last: the
   others come side by side. One that it has is brought up to date in the chain's order.
3. What was taken away at the source meanwhile is needed by no state from then on: the copy goes on
   to such a state before it counts as done.
4. Nothing is overwritten but caches. An entry of somebody else's in the copy ends it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple

from offsetlog.core.topic.entry import Append, Compact, Erase, Replace, SegmentRef
from offsetlog.core.topic.index import Leaf
from offsetlog.core.topic.state import TopicState
from offsetlog.engine.copy.transfer import SIDE_BY_SIDE, Transfer
from offsetlog.engine.topic.open_topic import OpenTopic
from offsetlog.errors import CorruptLogError, InvalidRequestError, OffsetLogError
from offsetlog.format import entries as entry_format
from offsetlog.format import names, notes, segments, snapshots
from offsetlog.format.entries import StoredEntry

Progress = Callable[[str, int, int], None]
ROUNDS = 20
"""Looks at a source whose files go faster than they are copied."""


class RecreatedTopicError(OffsetLogError):
    """The topics of one name, in the source and in the copy, have other first entries."""


class CopiedTopic(NamedTuple):
    """What was done for one topic."""

    topic: str
    entries: int
    """Of its chain, all of which the copy has."""
    new_entries: int
    segments: int
    bytes: int


class _Segment(NamedTuple):
    name: names.SegmentName
    ref: SegmentRef
    records: int


class _Needed(NamedTuple):
    """What a state needs of the files of its entries."""

    segments: frozenset[str]
    rows_of: frozenset[int]


class TopicCopy:
    def __init__(self, topic: OpenTopic, transfer: Transfer) -> None:
        self.topic = topic.name
        self._topic = topic
        self._transfer = transfer
        self._folder = topic.chain.folder
        self._is_new = not self._has(0)
        self._tip = 0
        self._segments = self._bytes = self._put_entries = 0

    def run(self, progress: Progress) -> None:
        """Copy all but what makes a new topic visible."""
        there = self._entries_there()
        first = 0 if self._is_new else max(there, default=-1) + 1
        if not self._is_new and first:
            self._check_prefix(first - 1)
        state, done, lost = self._topic.refresh(), first, _Needed(frozenset(), frozenset())
        for _ in range(ROUNDS):
            needed = self._needed(state, first)
            rows_gone, segments_gone = set(lost.rows_of), set(lost.segments)
            for low in range(done, state.tip, SIDE_BY_SIDE):
                numbers = range(low, min(state.tip, low + SIDE_BY_SIDE))
                self._copy_entries(numbers, there, needed, rows_gone, segments_gone)
                progress(state.topic, numbers.stop, state.tip)
            done = state.tip
            lost = _Needed(frozenset(segments_gone), frozenset(rows_gone))
            if not (needed.segments & lost.segments or needed.rows_of & lost.rows_of):
                break
            state = self._topic.refresh()
            if state.tip == done:
                raise CorruptLogError(
                    f"Files of {self._transfer.source.url}/{self._folder} that its chain needs "
                    f"are missing: {sorted(needed.segments & lost.segments)[:3]}.",
                    "Run 'offsetlog verify' on it.",
                )
        else:
            raise OffsetLogError(
                f"Files of topic {state.topic!r} are deleted faster than they are copied.",
                "Maintain the source with a longer grace period (--grace), and copy again.",
            )
        self._tip = done
        self._settle(first, done)

    @property
    def may_have_table(self) -> bool:
        """Whether the copy is to have a table too, of its own."""
        return self._topic.table.may_exist

    def finish(self) -> CopiedTopic:
        """Make a new topic visible, and store a snapshot."""
        if self._is_new:
            self._put_entry(0, self._get_entry(0))
            self._put_entries += 1
        self._copy_snapshot(self._tip)
        return CopiedTopic(
            self._topic.chain.state.topic,
            self._tip,
            self._put_entries,
            self._segments,
            self._bytes,
        )

    def discard(self) -> None:
        """Remove what was copied of a new topic, which nobody has seen."""
        if self._is_new:
            self._transfer.again(lambda: self._transfer.target.delete_tree(self._folder))

    def _has(self, number: int) -> bool:
        name, target = str(names.EntryName(self._folder, number)), self._transfer.target
        return self._transfer.again(lambda: target.get(name, 0, 1)) is not None

    # --- what is there ---------------------------------------------------------------------

    def _entries_there(self) -> set[int]:
        """Numbers of the entries that the copy has. A complete one has no hole, so its last bucket
        tells them."""
        target = self._transfer.target
        log = names.log_folder(self._folder)
        buckets = sorted(self._transfer.again(lambda: list(target.folders(log))))
        if not self._is_new:
            buckets = buckets[-1:]
        there: set[int] = set()
        for bucket in buckets:
            folder = f"{log}/{bucket}"
            listed = self._transfer.again(lambda folder=folder: list(target.list(folder)))  # type: ignore[misc]
            parsed = (names.parse_entry(info.name) for info in listed)
            there |= {name.number for name in parsed if name is not None}
        return there

    def _check_prefix(self, number: int) -> None:
        """Refuse a copy that somebody wrote to: its last entry is not the source's."""
        if self._has_of_source(number):
            return
        target = self._transfer.target.url
        if not self._has_of_source(0):
            raise RecreatedTopicError(
                f"Topic {self.topic!r} was purged and created again since it was copied, in the "
                "source or in the copy: their first entries are not the same.",
                f"Was it in the source, then purge the old one in the copy: offsetlog --root "
                f"{target} topics delete {self.topic} --purge",
            )
        raise written_to(target, str(names.EntryName(self._folder, number)))

    def _has_of_source(self, number: int) -> bool:
        """Whether the copy's entry is the source's."""
        name = str(names.EntryName(self._folder, number))
        theirs = self._transfer.again(
            lambda: self._transfer.target.get(name, 0, entry_format.MAX_ENTRY_BYTES + 1)
        )
        ours = self._topic.chain.read_entry(number)
        return (
            theirs is not None
            and ours is not None
            and _write_id(theirs, name) == ours.entry.write_id
        )

    def _needed(self, state: TopicState, first: int) -> _Needed:
        """What a state needs of the files of entries from ``first`` on."""

        def choose(leaf: Leaf, span: range) -> list[int]:
            return [i for i in span if leaf.entry[i] >= first]

        live = [e for e in self._topic.reader.live(state, choose) if e.entry >= first]
        return _Needed(
            frozenset(e.segment.uid for e in live if e.segment is not None),
            frozenset(e.entry for e in live if e.inline),
        )

    # --- copying ---------------------------------------------------------------------------

    def _copy_entries(
        self,
        numbers: range,
        there: set[int],
        needed: _Needed,
        rows_gone: set[int],
        segments_gone: set[str],
    ) -> None:
        """Some entries and their segments; adds what the source does not have any more."""
        held_back = {0} if self._is_new else set()
        missing = [number for number in numbers if number not in there and number not in held_back]
        stored = list(self._transfer.map(self._get_entry, missing))
        wanted = [
            segment
            for one in stored
            for segment in _segments_of(self._folder, one)
            if not self._is_new or segment.ref.uid in needed.segments
        ]
        for segment, is_there in zip(
            wanted, self._transfer.map(self._copy_segment, wanted), strict=True
        ):
            if not is_there:
                segments_gone.add(segment.ref.uid)
        numbered = list(zip(missing, stored, strict=True))
        rows_gone.update(number for number, one in numbered if one.stub)
        put = self._transfer.map if self._is_new else map
        for _ in put(lambda pair: self._put_entry(*pair), numbered):
            self._put_entries += 1

    def _get_entry(self, number: int) -> StoredEntry:
        name = str(names.EntryName(self._folder, number))
        data = self._transfer.get(name, entry_format.MAX_ENTRY_BYTES)
        if data is None:
            raise CorruptLogError(f"{name} is missing, though it was there.", "Restore it.")
        return entry_format.decode(data, name)

    def _put_entry(self, number: int, stored: StoredEntry) -> None:
        name = str(names.EntryName(self._folder, number))
        if not self._is_new and number % names.BUCKET_ENTRIES == 0 and number:
            self._transfer.target.settle(names.bucket_folder(self._folder, number - 1))
        if not self._transfer.create(name, stored.data):
            most = entry_format.MAX_ENTRY_BYTES + 1
            theirs = self._transfer.again(lambda: self._transfer.target.get(name, 0, most))
            if theirs is None or _write_id(theirs, name) != stored.entry.write_id:
                raise written_to(self._transfer.target.url, name)
        self._bytes += len(stored.data)

    def _copy_segment(self, segment: _Segment) -> bool:
        """Whether the copy has it; False: the source has it no more."""
        name, size = str(segment.name), segment.ref.size
        info = self._transfer.again(lambda: self._transfer.target.info(name))
        if info is not None and info.size == size:
            return True
        with self._transfer.room_for(size):
            data = self._transfer.get(name, size)
            if data is None:
                return False
            segments.OpenSegment.whole(segment.ref, segment.records, name, data).check()
            self._transfer.put(name, data)
        self._segments += 1
        self._bytes += size
        return True

    def _settle(self, first: int, tip: int) -> None:
        """Make what was put, by an earlier run too, durable before the copy is done."""
        bucket = names.BUCKET_ENTRIES
        for number in range(first - first % bucket, tip, bucket):
            self._transfer.target.settle(names.bucket_folder(self._folder, number))

    # --- caches ----------------------------------------------------------------------------

    def _copy_snapshot(self, tip: int) -> None:
        """The newest stored state that the copy's chain reaches. Best effort: it is a cache."""
        folder = names.snapshot_folder(self._folder)
        try:
            parsed = (names.parse_snapshot(i.name) for i in self._transfer.source.list(folder))
            for seq in sorted((name.seq for name in parsed if name is not None), reverse=True):
                if seq <= tip and self._copy_stored_state(seq):
                    return
        except OffsetLogError:
            return

    def _copy_stored_state(self, seq: int) -> bool:
        target = self._transfer.target
        name = str(names.SnapshotName(self._folder, seq))
        data = self._transfer.get(name, snapshots.MAX_SNAPSHOT_BYTES)
        try:
            state, senders_in = snapshots.decode_snapshot(data or b"", name)
            for uid in (ref.uid for ref in state.index.leaves):
                self._copy_cache(uid, lambda data, name: snapshots.decode_leaf(data, name))
            if senders_in is not None:
                self._copy_cache(
                    senders_in, lambda data, name: snapshots.decode_senders(state, data, name)
                )
        except CorruptLogError:
            return False
        target.put(name, data or b"", durable=False)
        hint = notes.encode({"seq": seq})
        target.put(names.hint_name(self._folder), hint, durable=False)
        return True

    def _copy_cache(self, uid: str, check: Callable[[bytes, str], object]) -> None:
        name = str(names.LeafName(self._folder, uid))
        if self._transfer.target.info(name) is None:
            data = self._transfer.get(name, snapshots.MAX_SNAPSHOT_BYTES) or b""
            check(data, name)
            self._transfer.target.put(name, data, durable=False)


def _segments_of(folder: str, stored: StoredEntry) -> Iterator[_Segment]:
    """The segments that an entry names."""
    body = stored.entry.body
    if isinstance(body, Append):
        for part in body.parts:
            if part.segment is not None:
                name = names.segment_name(folder, part.partition, part.segment)
                yield _Segment(name, part.segment, part.records)
    elif isinstance(body, Replace | Compact | Erase):
        for run in body.runs:
            for piece in run.pieces:
                ref = piece.segment
                if ref is None:
                    continue
                name = names.SegmentName(
                    folder, run.partition, ref.born, ref.uid, piece.base, piece.end
                )
                yield _Segment(name, ref, piece.records)


def _write_id(data: bytes, name: str) -> str:
    return entry_format.decode(data, name).entry.write_id


def written_to(url: str, name: str) -> InvalidRequestError:
    return InvalidRequestError(
        f"The copy at {url} was written to since: {name} is not of the log that it is a copy of.",
        "It is a log of its own now. Nothing of it was changed; copy to another place.",
    )
