"""Erasure: all records of some keys go, for good.

Invariants:

1. When it returns, no state of the topic names a file for them that holds them: whoever plans a
   read from then on does not get them. What was planned before may still be read until its files
   are collected.
2. It takes what lay below the end offsets that it last saw, which are at least those at its call;
   its entry says which.
3. Keys are nowhere written: the entry has a salted digest of each.
4. A file is read once to look for keys, however often others get in between; content only shrinks,
   so where a key was not it will not be.
5. Nothing live lies in a file that holds them, not even in rows that nobody reads any more: an
   entry's rows of other partitions, and a file that the log start cuts, move too.
"""

from __future__ import annotations

import getpass
import hashlib
import socket
from collections.abc import Callable, Sequence
from typing import NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from offsetlog.core.topic.entry import Erase, ReplacedRun, Void
from offsetlog.core.topic.index import inline_of
from offsetlog.core.topic.plan import PlannedPiece, estimate_bytes
from offsetlog.core.topic.state import TopicState
from offsetlog.engine.topic.open_topic import OpenTopic
from offsetlog.engine.topic.purge import Removal, address_of
from offsetlog.engine.upkeep.offset_set import Mask, Offsets, OffsetSet
from offsetlog.engine.upkeep.shrink import Dropped, Shrinker
from offsetlog.errors import (
    InvalidRequestError,
    OffsetOutOfRangeError,
    StorageError,
    UnknownTopicError,
)
from offsetlog.format.decisions import MAX_ERASED_KEYS
from offsetlog.logs import get_logger

TRIES = 20
ENTRY_BYTES = 256 * 1024 * 1024
"""Of segments that one entry brings: what a conflict with a maintainer costs."""
ENTRY_RUNS = 1024
logger = get_logger(__name__)
Progress = Callable[[str, int, int], None]


class Erased(NamedTuple):
    """What an erasure did."""

    topic: str
    keys: int
    records: int
    """That are gone."""
    files: int
    """Files and entries that held them; upkeep frees them once the grace period is over."""
    new_segments: int
    scanned_bytes: int
    """About how many bytes of keys, values and headers were read to find them."""
    end_offsets: dict[int, int]
    """What it covers: a record of these keys at or above them is a new one."""


class _Kept(NamedTuple):
    """Stays: all but the dropped ones, in other files where one holds a key elsewhere."""

    dropped: Dropped
    entries: set[int]
    """Entries that hold a key in any of their rows."""

    def loses(self, piece: PlannedPiece) -> bool:
        extent = piece.extent
        is_cut = extent.base < piece.start and not extent.is_empty
        is_shared = extent.inline and extent.entry in self.entries
        return is_cut or is_shared or self.dropped.loses(piece)

    def keeps(self, offsets: Offsets) -> Mask:
        return self.dropped.keeps(offsets)


def erase(
    topic: OpenTopic,
    keys: Sequence[bytes],
    progress: Progress | None = None,
    agree: Callable[[Removal], None] | None = None,
) -> Erased:
    """``agree`` is called once the records were found and before one goes, with what goes; nothing
    was done if it raises."""
    if not keys:
        raise InvalidRequestError("No key was named.", "Name one at least.")
    return _Erasure(topic, keys, progress or (lambda what, done, of: None)).run(agree)


class _Erasure:
    def __init__(self, topic: OpenTopic, keys: Sequence[bytes], progress: Progress) -> None:
        distinct = sorted(set(keys))
        if len(distinct) > MAX_ERASED_KEYS:
            raise InvalidRequestError(
                f"{len(distinct)} keys are too many for one erasure.",
                f"Erase at most {MAX_ERASED_KEYS} at a time.",
            )
        self._topic = topic
        self._progress = progress
        self._keys = pa.array(distinct, pa.binary())
        self._salt = topic.chain.env.new_id()
        salt = bytes.fromhex(self._salt)
        self._digests = tuple(hashlib.sha256(salt + key).hexdigest() for key in distinct)
        self._by = f"{_user()}@{socket.gethostname()}"
        self._found: dict[int, OffsetSet] = {}
        """Of each partition, the offsets of these keys below the set's end."""
        self._entries: set[int] = set()
        """Entries with live rows that hold a key, be it in rows that are replaced or trimmed."""
        self._shared: set[int] = set()
        """The partitions of those live rows."""
        self._looked_to = 0
        """Entries below it were looked at."""
        self._scanned = self._records = self._files = self._segments = 0

    def run(self, agree: Callable[[Removal], None] | None) -> Erased:
        for _ in range(TRIES):
            state = self._topic.state()
            try:
                self._scan(state)
                if agree is not None:
                    agree(self._removal())
                    agree = None
                void = self._take_out()
            except (OffsetOutOfRangeError, UnknownTopicError):
                # The log start was moved meanwhile, or the topic deleted: then this says so.
                self._topic.state()
                continue
            if void is None:
                done = Erased(
                    topic=self._topic.name,
                    keys=len(self._keys),
                    records=self._records,
                    files=self._files,
                    new_segments=self._segments,
                    scanned_bytes=self._scanned,
                    end_offsets=self._ends(),
                )
                logger.info("%s: erased %d records of %d keys", done.topic, done.records, done.keys)
                return done
            logger.info("%s: an erasure is tried again: %s", self._topic.name, void.detail)
        raise StorageError(
            f"Topic {self._topic.name!r} was changed by others each time this was tried.",
            "Not all records of these keys are erased. Try again.",
        )

    def _removal(self) -> Removal:
        """What was found: of a file's bytes each record counts for an equal share."""
        partitions = records = size = 0
        for partition, found in self._found.items():
            start, end = found.start, found.end
            start = max(start, self._topic.chain.state.start(partition))
            count = found.count(start, end)
            if count:
                partitions += 1
                records += count
                for piece in self._topic.reader.plan(partition, start, end):
                    hits = found.count(piece.start, piece.end)
                    size += hits * piece.extent.bytes // max(1, piece.extent.records)
        return Removal(self._topic.name, address_of(self._topic), partitions, records, size)

    def _ends(self) -> dict[int, int]:
        return {partition: found.end for partition, found in sorted(self._found.items())}

    # --- where the keys are ----------------------------------------------------------------

    def _scan(self, state: TopicState) -> None:
        """Look for the keys in what was not looked at before."""
        self._scan_entries(state)
        for partition in range(state.partitions):
            self._progress("looking for keys", partition, state.partitions)
            start, end = state.start(partition), state.end(partition)
            found = self._found.get(partition)
            if found is None:
                found = OffsetSet(start, end)
            else:
                start, found = max(start, found.end), found.grown(end)
            if start < end:
                self._scanned += estimate_bytes(state, partition, start, end)
                self._scan_range(partition, start, end, found)
            self._found[partition] = found
        self._progress("looking for keys", state.partitions, state.partitions)

    def _scan_entries(self, state: TopicState) -> None:
        """Look for the keys in all rows of the entries that live rows keep from becoming stubs."""
        chain = self._topic.chain
        partitions: dict[int, set[int]] = {}
        for extent in self._topic.reader.live(state, inline_of):
            if extent.inline and extent.entry >= self._looked_to:
                partitions.setdefault(extent.entry, set()).add(extent.partition)
        numbers = sorted(partitions)
        for low in range(0, len(numbers), chain.env.limits.window):
            window = numbers[low : low + chain.env.limits.window]
            for number, stored in zip(window, chain.read_entries(window), strict=True):
                if stored is None or stored.stub:
                    continue  # It was replaced meanwhile.
                keys = stored.rows(0, stored.inline_records, ("key",)).column("key")
                if pc.any(pc.is_in(keys, value_set=self._keys)).as_py():
                    self._check_stubs()
                    self._entries.add(number)
                    self._shared |= partitions[number]
        self._looked_to = state.tip

    def _scan_range(self, partition: int, start: int, end: int, into: OffsetSet) -> None:
        for batch in self._topic.reader.read(partition, start, end, ("key", "offset")):
            if not batch.table.num_rows:
                continue
            hits = pc.is_in(batch.table.column("key"), value_set=self._keys)
            mask = hits.to_numpy()
            if mask.any():
                self._check_stubs()
                into.add(batch.table.column("offset").to_numpy()[mask])

    def _check_stubs(self) -> None:
        """Rows that lie in the chain are taken out by replacing their entries at once."""
        store = self._topic.chain.store
        if not store.replaces_at_once:
            raise InvalidRequestError(
                f"Nothing can be erased at {store.url}: its filesystem can't replace a file at "
                "once, so rows in entries would stay.",
                "Copy the log to another filesystem with 'offsetlog copy', and erase there.",
            )

    # --- taking them out -------------------------------------------------------------------

    def _take_out(self) -> Void | None:
        """Replace the files that hold them; None if all of it counted."""
        chain = self._topic.chain
        planned_at = chain.state.tip
        runs: list[ReplacedRun] = []
        size = records = files = segments = 0

        def land(ends: tuple[tuple[int, int], ...]) -> Void | None:
            nonlocal runs, size, records, files, segments
            entry = Erase(
                planned_at, tuple(runs), ends, self._salt, self._digests, records, self._by
            )
            void = self._topic.decide(entry)
            if void is None:
                self._records += records
                self._files += files
                self._segments += segments
                for run in runs:
                    found = self._found[run.partition]
                    found.remove_all(found, run.start, run.end)
            runs, size, records, files, segments = [], 0, 0, 0, 0
            return void

        for partition, found in sorted(self._found.items()):
            start, end = max(found.start, chain.state.start(partition)), found.end
            if start < end and partition not in self._shared and not found.count(start, end):
                end = self._cut_end(partition, start)
            if start < end:
                survivors = _Kept(Dropped(found, start, end), self._entries)
                for shrunk in Shrinker(self._topic).shrink(partition, start, end, survivors):
                    runs.append(shrunk.run)
                    size += shrunk.bytes
                    records += shrunk.dropped
                    files += shrunk.files
                    segments += shrunk.segments
                    if len(runs) >= ENTRY_RUNS or size >= ENTRY_BYTES:
                        void = land(())
                        if void is not None:
                            return void
            self._progress("erasing", partition + 1, len(self._found))
        return land(tuple(self._ends().items()))

    def _cut_end(self, partition: int, start: int) -> int:
        """The end of a file that the log start cuts; the log start where it cuts none."""
        extent = self._topic.reader.extent_at(partition, start)
        return extent.end if extent.base < start else start


def _user() -> str:
    try:
        return getpass.getuser()
    except (OSError, KeyError, ImportError):
        return "?"
