"""Pages of a topic's records: newest or oldest first, from an offset or a time, by key or content.

Invariants:

1. A partition's records come in the order of their offsets, and none between two of them is left
   out. Across partitions they are merged by their timestamps.
2. A page costs at most about ``MAX_READS`` reads of storage, ``MAX_SCANNED`` records and
   ``MAX_SECONDS``, whatever is searched. If that ends it early, it says where to go on.
3. Never more than ``MAX_DECODED`` bytes are decoded for it. They are counted before they are, by
   what the pages of a file say and not by what an entry says of it, and a file's part that would
   take more alone is refused.
4. What is kept of a file are the records that are wanted, with long values cut.
5. No Python code runs for each record that is searched, only for those that are shown.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from offsetlog.core.topic.extents import Extent
from offsetlog.core.topic.plan import PlannedPiece, check_partition
from offsetlog.core.topic.state import TopicState
from offsetlog.engine.env import Env
from offsetlog.engine.topic.open_topic import OpenTopic
from offsetlog.engine.topic.reader import FetchedBatch
from offsetlog.errors import InvalidRequestError
from offsetlog.format.record_schema import milliseconds
from offsetlog.values import Record

MAX_LIMIT = 500
MAX_READS = 64
LOCAL_READS = 4096
"""The same on a local disk, where a small file costs a fraction of a millisecond."""
MAX_SCANNED = 2_000_000
MAX_SECONDS = 3.0
MAX_MERGED = 1000
"""Partitions that are read together; of a topic with more, one is chosen."""
MAX_TIMES = 100
"""Partitions in which a time is looked up for one page: each may be a read."""
SCAN_RECORDS = 100_000
"""Records of one read, while something is searched."""
MAX_DECODED = 512 * 1024 * 1024
MAX_HELD_BYTES = 64 * 1024 * 1024
"""Of records that are kept to be shown."""
SEARCHED_FILES = 32
SHOWN_FILES = 4
"""Files of one read, at most."""
READ_BYTES = 16 * 1024 * 1024
"""Of one read, about."""
CUT_BYTES = 16 * 1024
"""Of a value in a page of records."""
PAGE_BYTES = 4 * 1024 * 1024
"""Of all values of a page: of many, less of each is shown."""
WHOLE_BYTES = 1024 * 1024
"""Of the value of a record that is asked for alone; more of none is kept."""


class Query(NamedTuple):
    partitions: tuple[int, ...] | None = None
    offset: int | None = None
    time_ms: int | None = None
    key: bytes | None = None
    contains: bytes | None = None
    newest_first: bool | None = None
    """None: newest first, unless an offset or a time says where to begin."""
    cursor: Mapping[int, int] | None = None
    """Where to go on, by partition, in the same order as before."""
    limit: int = 50

    @property
    def backwards(self) -> bool:
        if self.newest_first is None:
            return self.offset is None and self.time_ms is None and self.cursor is None
        return self.newest_first


class Sizes(NamedTuple):
    key: int | None
    value: int | None


class _Spent(Exception):
    """More would be decoded than there is left for a page."""


class _Allowance:
    """What may still be decoded for a page, and within that for one read."""

    def __init__(self) -> None:
        self.left = self.at_once = MAX_DECODED

    def spend(self, size: int) -> None:
        if size > self.at_once:
            raise _Spent
        self.at_once -= size
        self.left -= size


class RecordPage(NamedTuple):
    records: tuple[Record, ...]
    cursor: dict[int, int]
    """Where the next page begins, by partition: newest first, of those with records left; oldest
    first, of all, since more may come."""
    ends: dict[int, int]
    """The next offset of each partition when the page was made."""
    scanned: int
    complete: bool
    """Whether it ends because it is full or nothing is left, and not because it cost enough."""
    sizes: tuple[Sizes, ...] = ()
    """How long the key and the value of each record are, which may be cut."""


class _Hits(NamedTuple):
    """Rows of one read that are wanted, in the order in which they are shown."""

    table: pa.Table
    offsets: np.ndarray
    times: np.ndarray
    ts_type: int
    sizes: list[pa.ChunkedArray]
    """Of keys and values, before they were cut."""


class _Partition:
    """One partition on its way through ``[low, high)``, from the one end or the other."""

    def __init__(self, number: int, low: int, high: int) -> None:
        self.number = number
        self.low = low
        self.high = high
        self.reached: int | None = None
        """The time of the last record that was searched."""
        self.hits: list[_Hits] = []
        self.shown = 0
        """Of the first of ``hits``, how many were taken."""

    @property
    def is_read(self) -> bool:
        return self.low >= self.high

    def go_to(self, at: int, backwards: bool) -> None:
        """What lies before ``at`` was read."""
        if backwards:
            self.high = at
        else:
            self.low = at

    def pass_by(self, extent: Extent, backwards: bool) -> None:
        """Leave out a file's offsets."""
        if backwards:
            self.high = max(self.low, extent.base)
        else:
            self.low = min(self.high, extent.end)

    def head(self) -> tuple[int, int] | None:
        """(time, offset) of the next hit."""
        if not self.hits:
            return None
        first = self.hits[0]
        return int(first.times[self.shown]), int(first.offsets[self.shown])

    def take(self) -> tuple[_Hits, int]:
        first, row = self.hits[0], self.shown
        self.shown += 1
        if self.shown == len(first.offsets):
            self.hits.pop(0)
            self.shown = 0
        return first, row


def read_page(topic: OpenTopic, query: Query, env: Env) -> RecordPage:
    """The records of a query, from one fresh look at the topic."""
    state = topic.state()
    if not 1 <= query.limit <= MAX_LIMIT:
        raise InvalidRequestError(
            f"limit is {query.limit}.", f"A page has 1 to {MAX_LIMIT} records."
        )
    allowance = _Allowance()
    partitions = _ranges(topic, state, query, allowance)
    ends = {partition.number: state.end(partition.number) for partition in partitions}
    return _Gathering(topic, query, env, partitions, ends, allowance).page()


def _ranges(
    topic: OpenTopic, state: TopicState, query: Query, allowance: _Allowance
) -> list[_Partition]:
    """What of each partition the query is about."""
    numbers = tuple(range(state.partitions)) if query.partitions is None else query.partitions
    for number in numbers:
        check_partition(state, number)
    if query.cursor is not None:
        for number in query.cursor:
            check_partition(state, number)
        grown = range(max(query.cursor, default=-1) + 1, state.partitions)
        is_new = set() if query.backwards or query.partitions is not None else set(grown)
        numbers = tuple(number for number in numbers if number in query.cursor or number in is_new)
    if len(numbers) > MAX_MERGED:
        raise InvalidRequestError(
            f"Topic {topic.name!r} has {len(numbers)} partitions; at most {MAX_MERGED} are read "
            "together.",
            "Choose one with partition=.",
        )
    if query.time_ms is not None and query.cursor is None and len(numbers) > MAX_TIMES:
        raise InvalidRequestError(
            f"A time is looked up in at most {MAX_TIMES} partitions at once, and topic "
            f"{topic.name!r} has {len(numbers)}.",
            "Choose one with partition=.",
        )
    out = []
    for number in numbers:
        low, high = state.start(number), state.end(number)
        at: int | None = None
        if query.cursor is not None:
            at = query.cursor.get(number, low)
        elif query.offset is not None:
            at = query.offset + 1 if query.backwards else query.offset
        elif query.time_ms is not None:
            try:
                found = topic.offset_for_time(number, query.time_ms, allowance.spend)
            except _Spent:
                raise _too_large(f"To find a time in {topic.name}-{number}") from None
            at = high if found is None else found
        if at is not None:
            at = min(max(at, low), high)
            low, high = (low, at) if query.backwards else (at, high)
        out.append(_Partition(number, low, high))
    return out


class _Gathering:
    """Reads of several partitions, merged by time, within a budget."""

    def __init__(
        self,
        topic: OpenTopic,
        query: Query,
        env: Env,
        partitions: list[_Partition],
        ends: dict[int, int],
        allowance: _Allowance,
    ) -> None:
        self._topic = topic
        self._query = query
        self._partitions = partitions
        self._ends = ends
        self._sign = -1 if query.backwards else 1
        self._is_search = query.key is not None or query.contains is not None
        self._reads = 0
        self._scanned = self._held = 0
        self._allowance = allowance
        self._is_spent = False
        is_local = topic.chain.store.is_local
        self._most_reads = LOCAL_READS if is_local else MAX_READS
        self._env = env
        self._until = env.monotonic() + MAX_SECONDS

    def page(self) -> RecordPage:
        taken: list[tuple[_Partition, _Hits, int]] = []
        heap: list[tuple[int, int, _Partition]] = []
        """Each partition by its next hit's time, or where it has none at hand, by the earliest
        time that one could have."""
        for partition in self._partitions:
            self._push(heap, partition)
        within = True
        while heap and len(taken) < self._query.limit:
            _, _, partition = heapq.heappop(heap)
            if partition.head() is None:
                within = self._within_budget()
                if not within:
                    break
                self._read(partition)
            else:
                taken.append((partition, *partition.take()))
            self._push(heap, partition)
        if not within and (self._is_search or not taken):
            # What was read is shown, whatever the partitions hold that were not: else the next
            # page would read it again, and come no further.
            known = [(self._sign * head[0], one.number, one) for one, head in self._heads()]
            heapq.heapify(known)
            while known and len(taken) < self._query.limit:
                _, _, partition = heapq.heappop(known)
                taken.append((partition, *partition.take()))
                if (head := partition.head()) is not None:
                    heapq.heappush(known, (self._sign * head[0], partition.number, partition))
        return self._as_page(taken, within)

    def _heads(self) -> Iterator[tuple[_Partition, tuple[int, int]]]:
        for partition in self._partitions:
            head = partition.head()
            if head is not None:
                yield partition, head

    def _push(self, heap: list[tuple[int, int, _Partition]], partition: _Partition) -> None:
        head = partition.head()
        if head is not None:
            heapq.heappush(heap, (self._sign * head[0], partition.number, partition))
            return
        while not partition.is_read and (extent := self._extent(partition)).is_empty:
            partition.pass_by(extent, self._query.backwards)
        if not partition.is_read:
            extent = self._extent(partition)
            time = extent.max_ts if self._query.backwards else extent.min_ts
            if partition.reached is not None:
                # A search without hits goes on in all partitions side by side.
                limit = min if self._query.backwards else max
                time = limit(time, partition.reached)
            heapq.heappush(heap, (self._sign * time, partition.number, partition))

    def _extent(self, partition: _Partition) -> Extent:
        at = partition.high - 1 if self._query.backwards else partition.low
        return self._topic.reader.extent_at(partition.number, at)

    def _within_budget(self) -> bool:
        if not self._scanned:
            return True  # However slow the storage is, each page comes further.
        return (
            self._reads < self._most_reads
            and self._scanned < MAX_SCANNED
            and self._held < MAX_HELD_BYTES
            and not self._is_spent
            and self._env.monotonic() < self._until
        )

    def _read(self, partition: _Partition) -> None:
        """The next stretch of a partition, which lies in a few files."""
        pieces = self._stretch(partition)
        self._reads += sum(map(self._is_elsewhere, pieces))
        backwards = self._query.backwards
        partition.hits = []
        # Files are read from their beginnings: newest first a stretch counts as a whole, or if
        # that is too much each file.
        if self._try(partition, pieces, 2 if backwards else 1):
            return
        if backwards and all(self._try(partition, (piece,)) for piece in reversed(pieces)):
            return
        if self._scanned:
            self._is_spent = True
            return
        # However much there is, each page comes further, if only by a record.
        at = pieces[-1].end - 1 if backwards else pieces[0].start
        one = pieces[-1 if backwards else 0]._replace(start=at, end=at + 1)
        if not self._try(partition, (one,), is_last=True):
            raise _too_large(
                f"To show offset {at} of {self._topic.name}-{partition.number}",
                f"Read it with: offsetlog consume {self._topic.name} --partition "
                f"{partition.number} --from {at} --max 1",
            )

    def _try(
        self,
        partition: _Partition,
        pieces: Sequence[PlannedPiece],
        share: int = 1,
        is_last: bool = False,
    ) -> bool:
        """Read these, if what is left suffices. Before anything was read half of that is kept for
        the last try."""
        kept = 0 if self._scanned or is_last else MAX_DECODED // 2
        self._allowance.at_once = max(0, self._allowance.left - kept) // share
        try:
            self._read_pieces(partition, pieces)
        except _Spent:
            return False
        return True

    def _read_pieces(self, partition: _Partition, pieces: Sequence[PlannedPiece]) -> None:
        """Newest first all of them count or none; else each batch that came."""
        backwards, spend = self._query.backwards, self._allowance.spend
        low, high = pieces[0].start, pieces[-1].end
        hits: list[_Hits] = []
        reached = None
        for batch in self._topic.reader.read(partition.number, low, high, spend=spend):
            if batch.table.num_rows and (not backwards or reached is None):
                row = 0 if backwards else -1
                reached = int(milliseconds(batch.table.column("timestamp"))[row])
            one = self._hits(batch)
            if len(one.offsets):
                hits.append(one)
            if not backwards:
                self._take(partition, hits, batch.end, batch.end - batch.start, reached)
                hits = []
        if backwards:
            self._take(partition, hits[::-1], low, high - low, reached)

    def _take(
        self, partition: _Partition, hits: list[_Hits], at: int, scanned: int, reached: int | None
    ) -> None:
        partition.hits += hits
        partition.go_to(at, self._query.backwards)
        if self._is_search and reached is not None:
            partition.reached = reached
        self._scanned += scanned
        self._held += sum(one.table.nbytes for one in hits)

    def _stretch(self, partition: _Partition) -> list[PlannedPiece]:
        extent = self._extent(partition)
        span = extent.end - extent.base
        each = max(1, extent.bytes // span)
        # Where compaction left gaps, more offsets hold as many records.
        wanted = SCAN_RECORDS if self._is_search else self._query.limit
        want = min(wanted * span // max(1, extent.records), max(1, READ_BYTES // each))
        # Where files are small, several are read side by side.
        files = SEARCHED_FILES if self._is_search else SHOWN_FILES
        window = min(want, span * files)
        backwards = self._query.backwards
        low = max(partition.low, partition.high - window) if backwards else partition.low
        high = partition.high if backwards else min(partition.high, partition.low + window)
        planned = self._topic.reader.plan(partition.number, low, high)
        pieces = list(planned[-files:] if backwards else planned[:files])
        while len(pieces) > 1 and sum(piece.bytes for piece in pieces) > READ_BYTES:
            pieces.pop(0 if backwards else -1)
        return pieces

    def _is_elsewhere(self, piece: PlannedPiece) -> bool:
        """Whether a file has to be read for it: the newest entries are in memory."""
        extent = piece.extent
        if extent.inline:
            return self._topic.chain.recent(extent.entry) is None
        return not extent.is_empty

    def _hits(self, batch: FetchedBatch) -> _Hits:
        table = batch.table
        wanted = None
        if self._query.key is not None:
            keys = table.column("key")
            wanted = pc.equal(keys, pa.scalar(self._query.key, keys.type))
        if self._query.contains is not None:
            text = self._query.contains
            inside = [
                pc.fill_null(pc.match_substring(table.column(name), text), False)
                for name in ("key", "value")
            ]
            either = pc.or_(*inside)
            wanted = either if wanted is None else pc.and_(pc.fill_null(wanted, False), either)
        rows = np.arange(table.num_rows)
        if wanted is not None:
            rows = np.flatnonzero(pc.fill_null(wanted, False).to_numpy())
        chosen = pa.array(rows[::-1] if self._query.backwards else rows)
        sizes = [pc.binary_length(table.column(name)).take(chosen) for name in ("key", "value")]
        # What is taken is a copy, so that nothing else of the file stays in memory.
        table = self._cut(table).take(chosen)
        times = milliseconds(table.column("timestamp"))
        offsets = table.column("offset").to_numpy()
        return _Hits(table, offsets, times, batch.ts_type, sizes)

    def _cut(self, table: pa.Table) -> pa.Table:
        """With the beginnings of keys and values that are long."""
        for name in ("key", "value"):
            column = table.column(name)
            if (pc.max(pc.binary_length(column)).as_py() or 0) > WHOLE_BYTES:
                short = pc.binary_slice(column, 0, WHOLE_BYTES)
                table = table.set_column(table.schema.get_field_index(name), name, short)
        return table

    def _as_page(self, taken: list[tuple[_Partition, _Hits, int]], within: bool) -> RecordPage:
        cursor = {}
        for partition in self._partitions:
            head = partition.head()
            if head is not None:
                cursor[partition.number] = head[1] + (1 if self._query.backwards else 0)
            elif not self._query.backwards:
                cursor[partition.number] = partition.low
            elif not partition.is_read:
                cursor[partition.number] = partition.high
        records = tuple(self._record(partition.number, hits, row) for partition, hits, row in taken)
        sizes = tuple(Sizes(*(one[row].as_py() for one in hits.sizes)) for _, hits, row in taken)
        return RecordPage(records, cursor, self._ends, self._scanned, within, sizes)

    def _record(self, number: int, hits: _Hits, row: int) -> Record:
        [values] = hits.table.slice(row, 1).to_pylist()
        return Record(
            self._topic.name,
            number,
            int(hits.offsets[row]),
            values["key"],
            values["value"],
            [(pair["key"], pair["value"]) for pair in values["headers"] or ()],
            int(hits.times[row]),
            hits.ts_type,
        )


def _too_large(what: str, hint: str = "Begin at an offset.") -> InvalidRequestError:
    return InvalidRequestError(
        f"{what} more than {MAX_DECODED // 2**20} MiB would have to be unfolded at once.", hint
    )


# --- as JSON -----------------------------------------------------------------------------------


def to_documents(page: RecordPage, whole: bool = False) -> list[dict[str, object]]:
    """The records of a page, with what is long cut; ``whole``: it is one, cut as late as may be."""
    limit = WHOLE_BYTES if whole else min(CUT_BYTES, PAGE_BYTES // max(1, len(page.records)))
    return [
        to_document(record, limit, sizes)
        for record, sizes in zip(page.records, page.sizes, strict=True)
    ]


def to_document(record: Record, limit: int, sizes: Sizes) -> dict[str, object]:
    """A record as ``consume --json`` prints it. What is longer than ``limit`` bytes (headers share
    them) is cut; ``sizes`` says how long it is."""
    count = max(1, limit // 512)
    each = max(512, limit // max(1, min(count, len(record.headers))))
    shown = [
        (name[:each], None if data is None else cut(data, each))
        for name, data in record.headers[:count]
    ]
    key, value = (None if one is None else cut(one, limit) for one in (record.key, record.value))
    is_cut = [one is not None and one > limit for one in sizes]
    return {
        **record._replace(key=key, value=value, headers=shown).to_dict(),
        "timestamp_type": record.timestamp_type,
        "key_bytes": sizes[0],
        "value_bytes": sizes[1],
        "key_is_cut": is_cut[0],
        "value_is_cut": is_cut[1],
        "headers_left_out": len(record.headers) - len(shown),
    }


def cut(data: bytes, limit: int) -> bytes:
    """The beginning of it, with no half of a character at the end."""
    if len(data) <= limit:
        return data
    end = limit
    while end > limit - 4 and data[end] & 0xC0 == 0x80:
        end -= 1
    return data[:end] if data[end] & 0xC0 != 0x80 else data[:limit]
