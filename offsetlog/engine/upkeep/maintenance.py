"""Looking after a topic: retention, consolidation, collection, stubs, snapshots.

Invariants:

1. All decisions are entries of the chain, so maintenance races with nobody, and two
   maintainers at once do no harm.
2. What is deleted is decided by a state that contains the collect that allows it.
3. The rows of an entry are taken out only when a folded state shows that no live extent needs
   them; the entry itself, with its decision, stays for ever.
4. A snapshot is deleted when it is seen to be one: an entry's name has the same form.
5. The grace period is measured by the storage's own clock. It is a courtesy to slow writers
   and running readers, not a condition of safety.
6. What a round has done is noted as the last thing: one that failed leaves no sign of having been
   there, so another maintainer does its work.
7. Records are rewritten some at a time, and so many files are planned for at once: memory is
   bounded by ``memory_bytes``, whatever waits.
8. On a full disk what the chain let go already is deleted before anything is written.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from itertools import groupby, islice
from operator import attrgetter
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from offsetlog.core import strict_json
from offsetlog.core.decode import boolean, default, integer, list_of, record, row
from offsetlog.core.topic import retention
from offsetlog.core.topic.compaction import Met
from offsetlog.core.topic.entry import (
    Append,
    Collect,
    Expire,
    Replace,
    ReplacedRun,
    ReplacementPiece,
    Trim,
)
from offsetlog.core.topic.extents import Extent
from offsetlog.core.topic.index import Leaf, inline_of, segments_of
from offsetlog.core.topic.plan import PlannedPiece, estimate_records
from offsetlog.core.topic.rewrite import (
    FILE_WEIGHT,
    RewritePlan,
    maybe_shared,
    plan_all,
    plan_division,
    plan_rewrites,
    plan_table_rewrites,
    small_ones,
    unfit_ones,
    weight_of,
)
from offsetlog.core.topic.state import TopicState
from offsetlog.core.topic.table import Blocked
from offsetlog.engine.topic.chain import Chain
from offsetlog.engine.topic.open_topic import OpenTopic
from offsetlog.engine.topic.reader import ALL_COLUMNS, InlineRows
from offsetlog.engine.upkeep.compaction import KeyCompaction
from offsetlog.errors import (
    OffsetLogError,
    OffsetOutOfRangeError,
    UnknownTopicError,
)
from offsetlog.format import entries as entry_format
from offsetlog.format import names, notes, segments
from offsetlog.format import record_schema as rows
from offsetlog.format.topic_table import Head
from offsetlog.logs import get_logger
from offsetlog.storage.faults import NoSpaceError
from offsetlog.storage.store import FileInfo
from offsetlog.values import NO_LIMIT, settings_of

GRACE_MS = 24 * 3_600_000
STUBS_AT_ONCE = 256
REWRITE_BYTES = 128 * 1024 * 1024
"""Of records that are read for rewriting at once; a longer run is read by itself."""
MEMORY_BYTES = 1024**3
"""What a round may take for the records that it rewrites, beside what the process takes anyway."""
COPIES = 4
"""Of records that are rewritten, in memory: as they were read, joined, sorted, and encoded."""
MAX_SORTED_BYTES = 1024**3
"""Of rows in entries that are sorted at once: Arrow can't take 2 GiB of a column together."""
MOST_NOTE_BYTES = 4096
MOST_CUTS, MOST_MET = 64, 16
"""In a note; others wait for their turn."""
DIVISIONS = 5
"""How often a table is tried again, after what it can't have as a whole was divided."""
STATES_KEPT = 8
"""For a table, in a grace period."""
SAVED_BLOCK, SAVED_BYTES = 4096, 16 * 1024
"""A stub of an entry that is smaller saves nothing on a disk, which gives out whole blocks; and on
an object store less, within a year, than its request costs."""
LISTED_MS = 3_600_000
"""Files that nobody needs are looked for this often: each partition is a request."""
_base = attrgetter("base")
_since = attrgetter("since_ms")
logger = get_logger(__name__)
Progress = Callable[[str, int, int], None]
"""(what is done, how much of it is done, how much there is)."""
Rewritten = list[ReplacedRun | None]
ShareOut = Callable[[str, list[list[RewritePlan]]], Iterator[Rewritten]]
"""Has groups of a topic's runs rewritten elsewhere, each by ``Maintenance.rewrite``, and gives what
became of them in their order."""


class _Since(NamedTuple):
    """Since when a segment is known to be cut by the log start; or passes of compaction, to have
    times in the future."""

    partition: int
    end: int
    """The segment's; of the last pass."""
    since_ms: int


class StubsNote(NamedTuple):
    """What a round tells the next ones."""

    stubbed_to: int = 0
    """Entries below it need no look any more, unless they were left with their rows."""
    left_from: int = -1
    """From here on some were left with their rows, since a stub of them doesn't pay; -1: none."""
    starts: int = 0
    """The sum of the log starts when the round looked."""
    must_to: int = 0
    """Entries below it may hold rows that were deleted by name."""
    ended_ms: int = 0
    """When the last round began that came to its end, by the storage's clock."""
    listed_ms: int = 0
    """When unused files were last looked for, by the storage's clock."""
    waits: bool = True
    """Whether some were there then that were too young."""
    idle_to: int = 0
    """Entries up to it, from the horizon on, let nothing go."""
    gone: int = -1
    """What was gone (``retention.gone``) when no entry had rows of it beside live ones."""
    cuts: tuple[_Since, ...] = ()
    met: tuple[_Since, ...] = ()


_SINCE = row(_Since, integer(), integer(), integer())
STUBS_NOTE = record(
    StubsNote,
    stubbed_to=default(integer(), 0),
    left_from=default(integer(-1), -1),
    starts=default(integer(), 0),
    must_to=default(integer(), 0),
    ended_ms=default(integer(), 0),
    listed_ms=default(integer(), 0),
    waits=default(boolean, True),
    idle_to=default(integer(), 0),
    gone=default(integer(-1), -1),
    cuts=default(list_of(_SINCE), ()),
    met=default(list_of(_SINCE), ()),
)


def read_note(chain: Chain) -> StubsNote:
    """What earlier rounds noted. A lost note costs time only."""
    data = chain.store.get(names.stubs_name(chain.folder), 0, MOST_NOTE_BYTES + 1)
    try:
        return notes.decode(STUBS_NOTE, data or b"", "note", MOST_NOTE_BYTES, needs_sum=True)
    except OffsetLogError:
        return StubsNote()


class Maintained(NamedTuple):
    """What one round did to a topic."""

    topic: str
    expired_records: int
    rewritten_files: int
    new_segments: int
    stubs: int
    deleted_files: int
    deleted_bytes: int
    horizon: int
    entries: int
    compacted_records: int = 0
    """Older records of a key, and tombstones, that compaction took."""
    table_version: int | None = None
    """The newest one of the topic's table; None where it has none."""

    @property
    def did_something(self) -> bool:
        """Whether anything but notes was written or deleted."""
        numbers = self._replace(topic="", horizon=0, entries=0, deleted_bytes=0, table_version=None)
        return any(numbers[1:])


class _Deleted(NamedTuple):
    files: int
    bytes: int
    waits: bool
    """Whether files that nobody needs are too young."""


NOTHING_DELETED = _Deleted(0, 0, True)


class _Kept(NamedTuple):
    """What readers of the topic's table may still need."""

    head: Head
    old: Head | None
    """The version that was the newest a grace period ago; None where there was none."""
    state: TopicState | None
    """A state that this version had reached."""


class Maintenance:
    """One round for one topic."""

    def __init__(
        self,
        topic: OpenTopic,
        pool: ThreadPoolExecutor | None = None,
        *,
        grace_ms: int = GRACE_MS,
        memory_bytes: int = MEMORY_BYTES,
        progress: Progress | None = None,
        share_out: ShareOut | None = None,
    ) -> None:
        self._share_out = share_out
        self._topic = topic
        self._chain = topic.chain
        self._limits = topic.chain.env.limits
        self._store = topic.chain.store
        self._folder = topic.chain.folder
        self._pool = pool
        self._grace = grace_ms
        self._most_weight = memory_bytes // COPIES
        """Of a run that is rewritten, at the most."""
        self._progress = progress or (lambda what, done, of: None)
        self._has_no_time = False
        """Whether the newest entry has a time in the future: then nobody knows how old others are,
        until another one comes."""

    def run(self) -> Maintained:
        """A round; on a full disk another one, if something could be deleted."""
        try:
            return self._run()
        except NoSpaceError as error:
            freed = self.free_space()
            if not freed.files:
                raise
            logger.info("%s: deleted %d files: %s", self._topic.name, freed.files, str(error))
        done = self._run()
        return done._replace(
            deleted_files=done.deleted_files + freed.files,
            deleted_bytes=done.deleted_bytes + freed.bytes,
        )

    def _run(self) -> Maintained:
        self._topic.refresh()
        self._chain.check_place()
        now = self._storage_now()
        note = stored = self._note()
        # A time in the future is none: the storage's clock was ahead once.
        lists = not 0 <= now - note.listed_ms < min(self._grace, LISTED_MS)
        expired = self._retain(now)
        rewritten, fresh = self._consolidate()
        met = {one.partition: Met(one.end, one.since_ms) for one in note.met}
        compacted = KeyCompaction(self._topic).run(now, self._storage_now, met)
        seen = [_Since(partition, *one) for partition, one in compacted.met.items()]
        note = note._replace(met=tuple(sorted(seen, key=_since)[:MOST_MET]))
        if lists:
            note, divided, parts = self._part_from_deleted(now, note)
            rewritten, fresh = rewritten + divided, fresh + parts
        self._expire_senders()
        note = self._collect(now, note, waits=lists and note.waits)
        head = self._publish(now)
        stubs, note = self._stub(now, stored, note)
        deleted = NOTHING_DELETED
        if lists:
            kept = self._kept(head, now)
            deleted = self._delete(now, kept)
        self._topic.stored.tidy()
        if lists:
            self._drop_stored(now, kept)
            self._sweep(now)
        ended = note._replace(ended_ms=now)
        if lists:
            ended = ended._replace(waits=deleted.waits, listed_ms=now)
        self._store_note(ended, note)
        state = self._chain.state
        maintained = Maintained(
            topic=state.topic,
            expired_records=expired,
            rewritten_files=rewritten + compacted.files,
            new_segments=fresh + compacted.segments,
            stubs=stubs,
            deleted_files=deleted.files,
            deleted_bytes=deleted.bytes,
            horizon=state.horizon,
            entries=state.tip,
            compacted_records=compacted.records,
            table_version=None if head is None or head.closed else head.version,
        )
        logger.info("maintained %s", maintained)
        return maintained

    def free(self, *, has_news: bool) -> None:
        """The part of a round that adds no entry: delete what the chain let go, as in a copy,
        whose chain is its source's. Without news now and then only, for what was too young."""
        note = self._note()
        if not has_news and 0 <= self._chain.env.now_ms() - note.listed_ms < LISTED_MS:
            return
        self._topic.refresh()
        now = self._storage_now()
        kept = self._kept(self._publish(now, may_rewrite=False), now)
        _, note = self._stub(now, note, note)
        self._delete(now, kept)
        self._drop_stored(now, kept)
        self._sweep(now)
        self._store_note(note._replace(listed_ms=now), note)

    def free_space(self) -> _Deleted:
        """Delete what the chain let go already, which needs no space; and then, as far as there is
        some, what it may let go now. What the storage's clock said to the last round will do."""
        self._topic.refresh()
        info = self._store.info(names.clock_name(self._folder))
        now = 0 if info is None else info.modified_ms
        freed = self._delete(now, self._kept(self._head(), now), may_write=False)
        self._sweep(now)
        with suppress(NoSpaceError):
            now = self._storage_now()
            self._retain(now)
            self._collect(now, self._note(), waits=True)
            more = self._delete(now, self._kept(self._head(), now), may_write=False)
            freed = _Deleted(freed.files + more.files, freed.bytes + more.bytes, more.waits)
        return freed

    def _storage_now(self) -> int:
        """The storage's own clock: the time that it gives to a file written now."""
        name = names.clock_name(self._folder)
        self._store.put(name, strict_json.dumps({"touched": True}), durable=False)
        info = self._store.info(name)
        return self._chain.env.now_ms() if info is None else info.modified_ms

    # --- retention -------------------------------------------------------------------------

    def _retain(self, now_ms: int) -> int:
        """Move log starts past what the topic's config lets go; how many records went.

        By the storage's clock, so that a maintainer whose own is wrong lets nothing go early."""
        state = self._chain.state
        config = settings_of(state.config)
        limits = (config.retention_ms, config.retention_bytes)
        if not config.retires or limits == (NO_LIMIT, NO_LIMIT):
            return 0
        starts = []
        for partition, sizes in enumerate(self._topic.reader.sizes(state)):
            log_start = state.start(partition)
            start = retention.retained_from(
                sizes, log_start, now_ms, config.retention_ms, config.retention_bytes
            )
            if start > log_start:
                starts.append((partition, start))
        if starts:
            self._topic.decide(Trim(tuple(starts)))
        after = self._chain.state
        return sum(estimate_records(state, p, state.start(p), after.start(p)) for p, _ in starts)

    # --- consolidation ---------------------------------------------------------------------

    def _consolidate(self) -> tuple[int, int]:
        """Rewrite runs of small files as large ones, so many at a time; (files replaced, segments
        written)."""
        replaced = written = 0
        most = max(1, self._most_weight // FILE_WEIGHT)
        while True:
            more, fresh, is_all = self._consolidate_some(most)
            replaced, written = replaced + more, written + fresh
            if is_all:
                return replaced, written
            if not more:
                most *= 2  # None of these is worth it, or others rewrite them.

    def _consolidate_some(self, most: int) -> tuple[int, int, bool]:
        """The same for ``most`` files of the index, and whether these were all of them."""
        state = self._chain.state
        target = settings_of(state.config).segment_bytes
        has_table = self._topic.table.is_wanted
        kind = unfit_ones if has_table else small_ones
        left = most

        def choose(leaf: Leaf, span: range) -> list[int]:
            nonlocal left
            chosen = kind(leaf, span, target) if left > 0 else []
            left -= len(chosen)
            return chosen

        small: dict[int, list[Extent]] = {}
        for extent in self._topic.reader.live(state, choose):
            small.setdefault(extent.partition, []).append(extent)
        head = self._topic.table.head() if has_table else None
        ends = head.point.ends if head is not None else ()
        limits = target, self._limits.min_files, self._most_weight
        plans: list[RewritePlan] = []
        for partition in sorted(small):
            extents, start = sorted(small[partition], key=_base), state.start(partition)
            if has_table:
                end = ends[partition] if partition < len(ends) else 0
                plans += plan_table_rewrites(extents, start, end, *limits)
            else:
                plans += plan_rewrites(extents, start, *limits)
        return *self._rewrite_all(state, plans), left > 0

    def _rewrite_all(self, state: TopicState, plans: list[RewritePlan]) -> tuple[int, int]:
        """(files replaced, segments written)."""
        replaced = written = done = 0
        for group, runs in self._rewrites(plans):
            for low in range(0, len(group), self._limits.runs_per_entry):
                few = slice(low, low + self._limits.runs_per_entry)
                tried = zip(group[few], islice(runs, self._limits.runs_per_entry), strict=True)
                rewritten = [(plan, run) for plan, run in tried if run is not None]
                replacements = tuple(run for _, run in rewritten)
                void = self._topic.decide(Replace(state.tip, replacements)) if rewritten else None
                if void is not None:
                    logger.info("%s: a rewrite does not count: %s", state.topic, void.detail)
                elif rewritten:
                    replaced += sum(len(plan.extents) for plan, _ in rewritten)
                    written += sum(len(run.pieces) for run in replacements)
            done += len(group)
            self._progress("consolidating", done, len(plans))
        return replaced, written

    def _rewrites(
        self, plans: list[RewritePlan]
    ) -> Iterator[tuple[list[RewritePlan], Iterator[ReplacedRun | None]]]:
        """Groups of runs, and what becomes of each run when it is asked for."""
        groups = list(self._groups(plans))
        if self._share_out is not None:
            elsewhere = self._share_out(self._topic.name, groups)
            yield from ((group, iter(next(elsewhere))) for group in groups)
            return
        for group in groups:
            self._progress("consolidating", 0, len(plans))
            there = [plan for plan in group if self._is_there(plan)]
            yield there, self._rewrite_each(there)

    def rewrite(self, plans: list[RewritePlan]) -> Rewritten:
        """Write the segments of these runs, for whoever lets them take the place of what was read:
        None where the records are gone."""
        return list(self._rewrite_each(plans))

    def _rewrite_each(self, plans: list[RewritePlan]) -> Iterator[ReplacedRun | None]:
        compression = settings_of(self._chain.state.config).compression
        extents = [extent for plan in plans for extent in plan.extents if extent.inline]
        if sum([extent.bytes for extent in extents]) > MAX_SORTED_BYTES:
            extents = []  # The reader reads them, one after another.
        inline = self._topic.reader.inline_rows(extents)
        for plan in plans:
            yield self._rewrite(plan, inline, compression)

    def _groups(self, plans: list[RewritePlan]) -> Iterator[list[RewritePlan]]:
        """As many runs as are held in memory at once."""
        group: list[RewritePlan] = []
        size, most = 0, min(REWRITE_BYTES, self._most_weight)
        for plan in plans:
            weight = sum(map(weight_of, plan.extents))
            if group and size + weight > most:
                yield group
                group, size = [], 0
            group.append(plan)
            size += weight
        if group:
            yield group

    def _is_there(self, plan: RewritePlan) -> bool:
        """False when the log start was moved into it, or the topic deleted, since it was made."""
        state = self._chain.state
        return state.alive and plan.start >= state.start(plan.partition)

    def _read(self, partition: int, start: int, extents: tuple[Extent, ...]) -> pa.Table:
        pieces = tuple(PlannedPiece(e, max(start, e.base), e.end) for e in extents)
        end = extents[-1].end
        batches = self._topic.reader.read(partition, start, end, ALL_COLUMNS, planned=pieces)
        return pa.concat_tables([batch.table for batch in batches])

    def _rewrite(
        self, plan: RewritePlan, inline: InlineRows, compression: str
    ) -> ReplacedRun | None:
        """Write segments with the records of a run of extents; None if they are gone."""
        tables = []
        try:
            for is_inline, group in groupby(plan.extents, attrgetter("inline")):
                extents = tuple(group)
                start, end = max(plan.start, extents[0].base), extents[-1].end
                table = inline.between(plan.partition, start, end) if is_inline else None
                # Where an entry is not as it was planned, the reader plans again.
                is_whole = table is not None and table.num_rows == end - start
                tables.append(table if is_whole else self._read(plan.partition, start, extents))
        except (OffsetOutOfRangeError, UnknownTopicError):
            # The log start was moved, or the topic deleted, since this was planned.
            return None
        table = pa.concat_tables(tables).combine_chunks()
        pieces = []
        for base, end in plan.ranges:
            low, high = np.searchsorted(table.column("offset").to_numpy(), [base, end])
            part = table.slice(low, high - low)
            share = plan.bytes * part.num_rows // max(1, sum(e.records for e in plan.extents))
            pieces.append(self._write_piece(plan, base, end, part, share, compression))
        return ReplacedRun(plan.partition, plan.start, plan.end, tuple(pieces))

    def _write_piece(
        self, plan: RewritePlan, base: int, end: int, table: pa.Table, size: int, compression: str
    ) -> ReplacementPiece:
        if not table.num_rows:
            time = plan.extents[-1].max_ts
            return ReplacementPiece(base, end, 0, 0, time, time, plan.extents[0].ts_type)
        encoded = segments.encode(table, compression, self._limits.row_group_records)
        ref = encoded.ref(self._chain.state.tip, self._chain.env.new_id())
        name = names.SegmentName(self._folder, plan.partition, ref.born, ref.uid, base, end)
        self._store.put(str(name), encoded.data)
        times = rows.milliseconds(table.column("timestamp"))
        return ReplacementPiece(
            base=base,
            end=end,
            records=table.num_rows,
            bytes=size,
            min_ts=int(times.min()),
            max_ts=int(times.max()),
            ts_type=plan.extents[0].ts_type,
            segment=ref,
        )

    # --- what deleted records leave beside live ones ---------------------------------------

    def _part_from_deleted(self, now_ms: int, note: StubsNote) -> tuple[StubsNote, int, int]:
        """Rewrite live records that lie in one file with deleted ones, which would stay as long;
        (the note, files replaced, segments written). Rows of an entry move at once, and they move
        once; a segment that the log start cuts does a grace period later, since a log start that
        goes on soon leaves it behind as a whole."""
        state = self._chain.state
        gone = retention.gone(state)
        if gone in (0, note.gone) and not note.cuts:
            return note._replace(gone=gone), 0, 0
        live = self._topic.reader.live(state, maybe_shared)
        mixed = self._mixed([e for e in live if e.inline]) if gone != note.gone else []
        cut, cuts = [], []
        since = {(one.partition, one.end): one.since_ms for one in note.cuts}
        for extent in () if self._topic.table.is_wanted else live:  # A table divides it itself.
            if extent.base < state.start(extent.partition) and extent.segment is not None:
                seen = _Since(extent.partition, extent.end, now_ms)
                seen = seen._replace(since_ms=min(now_ms, since.get(seen[:2], now_ms)))
                if now_ms - seen.since_ms >= self._grace:
                    cut.append(extent)
                else:
                    cuts.append(seen)
        plans: list[RewritePlan] = []
        target = settings_of(state.config).segment_bytes
        extents = sorted([*mixed, *cut], key=attrgetter("partition", "base"))
        for partition, group in groupby(extents, attrgetter("partition")):
            plans += plan_all(group, state.start(partition), target, self._most_weight)
        replaced, written = self._rewrite_all(state, plans)
        if replaced == len(extents):
            note = note._replace(gone=gone, cuts=tuple(sorted(cuts, key=_since)[:MOST_CUTS]))
        return note, replaced, written

    def _mixed(self, extents: list[Extent]) -> list[Extent]:
        """Those in entries that have other rows too, which nobody needs any more."""
        state = self._chain.state
        live: dict[int, int] = {}
        for extent in extents:
            count = extent.end - max(extent.base, state.start(extent.partition))
            live[extent.entry] = live.get(extent.entry, 0) + count
        numbers = sorted(live)
        mixed = set()
        for low in range(0, len(numbers), self._limits.window):
            window = numbers[low : low + self._limits.window]
            for number, stored in zip(window, self._chain.read_entries(window), strict=True):
                if stored is not None and not stored.stub and live[number] < stored.inline_records:
                    mixed.add(number)
        return [extent for extent in extents if extent.entry in mixed]

    # --- the table -------------------------------------------------------------------------

    def _head(self) -> Head | None:
        """The table's newest version; None where the topic never had one."""
        table = self._topic.table
        return table.head() if table.may_exist and table.path is not None else None

    def _publish(self, now_ms: int, *, may_rewrite: bool = True) -> Head | None:
        """Bring the topic's table up to date; None where the topic never had one."""
        table = self._topic.table
        if not table.may_exist or table.path is None:
            return None
        if table.is_wanted:
            self._topic.stored.publish()  # What the next publisher compares with.
        head = table.publish(now_ms, self._grace, whole=not may_rewrite)
        for _ in range(DIVISIONS):
            if not isinstance(head, Blocked) or not may_rewrite:
                break
            self._divide(head)
            head = table.publish(now_ms, self._grace)
        if isinstance(head, Blocked):
            logger.info("%s: the table waits: its files were changed meanwhile", self._topic.name)
            head = table.head()
        return head

    def _kept(self, head: Head | None, now_ms: int) -> _Kept | None:
        """What of the table others may still need; None where there is none."""
        if head is None:
            return None
        table = self._topic.table
        old = head if self._grace == 0 else table.old_version(head, now_ms, self._grace)
        stored = None if old is None else self._topic.stored.newest_before(old.point.tip)
        return _Kept(head, old, stored)

    def _divide(self, blocked: Blocked) -> None:
        """Rewrite what the table can have only in part."""
        state, head = self._chain.state, self._topic.table.head()
        ends = head.point.ends if head is not None else ()
        plans = []
        for extent in blocked.extents:
            partition = extent.partition
            end = ends[partition] if partition < len(ends) else 0
            plans.append(plan_division(extent, state.start(partition), end))
        self._rewrite_all(state, [plan for plan in plans if plan.start < plan.end])
        self._topic.stored.publish()

    # --- senders ---------------------------------------------------------------------------

    def _expire_senders(self) -> None:
        """Forget our own senders that were silent for long, or that are too many."""
        state = self._chain.state
        config = settings_of(state.config)
        oldest = self._chain.env.now_ms() - config.producer_expiration_ms
        senders = sorted((app.entry, app.time) for _, app in state.own.items())
        silent = [entry for entry, time in senders if time < oldest]
        floor = max(silent, default=-1) + 1
        if len(senders) - len(silent) > self._limits.senders_kept:
            floor = max(floor, senders[-self._limits.senders_kept][0])
        if floor > state.floor and silent or len(senders) > self._limits.senders_kept:
            self._topic.decide(Expire(min(floor, state.tip)))

    # --- collection ------------------------------------------------------------------------

    def _collect(self, now_ms: int, note: StubsNote, *, waits: bool) -> StubsNote:
        """Raise the horizon to the newest entry that is older than the grace period, if that lets
        anything go: else each round over an idle topic would add an entry. ``waits``: there are
        files that nobody needs, and they were too young."""
        state = self._chain.state
        horizon = self._horizon(now_ms, state)
        if self._has_no_time:
            waits = True  # For an entry by whose time the age of those before it will be known.
        elif horizon <= state.horizon:
            return note
        if not waits and not self._has_news(max(state.horizon, note.idle_to), horizon):
            return note._replace(idle_to=horizon)
        logger.debug("%s: horizon %d", state.topic, horizon)
        self._topic.decide(Collect(horizon))
        return note

    def _has_news(self, after: int, to: int) -> bool:
        """Whether any of these entries is not a collect itself."""
        for number in range(min(to, self._chain.state.tip - 1), after, -1):
            stored = self._chain.read_entry(number)
            if stored is None or not isinstance(stored.entry.body, Collect):
                return True
        return False

    def _horizon(self, now_ms: int, state: TopicState) -> int:
        """By bisection: entries are stored in the order of their numbers."""
        if self._grace == 0:
            return state.tip

        def time_of(number: int) -> int:
            # A stub's time is that of its stubbing: it says nothing, and counts as young.
            info = self._store.info(str(names.EntryName(self._folder, number)))
            return now_ms if info is None else info.modified_ms

        low, high = state.horizon, state.tip
        self._has_no_time = False
        while low < high:
            middle = (low + high) // 2
            is_old = retention.is_old(time_of, middle, high, now_ms, self._grace)
            self._has_no_time |= is_old is None and high == state.tip
            if is_old:
                low = middle + 1
            else:
                high = middle
        return max(0, low - 1)

    def _delete(self, now_ms: int, kept: _Kept | None, *, may_write: bool = True) -> _Deleted:
        """Delete segments born below the horizon that are not live. ``may_write``: or see to it
        that a table lets them go a grace period later."""
        state = self._chain.state
        in_table = None if kept is None else self._in_table(kept.state)
        waiting: list[str] = []
        if state.collected_at < 0:
            return NOTHING_DELETED
        extents = self._topic.reader.live(state, segments_of)
        live = {extent.segment.uid for extent in extents if extent.segment is not None}
        files = size = 0
        waits = False
        for folder in self._store.folders(self._folder):
            if names.parse_partition_folder(folder) is None:
                continue
            segments_there = {}
            for info in self._store.list(f"{self._folder}/{folder}"):
                parsed = names.parse_segment(info.name)
                if parsed is not None:
                    segments_there[info.name] = (parsed.born, parsed.uid, info.size)
            condemned = list(
                retention.condemned(
                    ((born, uid, name) for name, (born, uid, _) in segments_there.items()),
                    state.horizon,
                    live,
                )
            )
            waits = waits or any(
                born >= state.horizon and uid not in live
                for born, uid, _ in segments_there.values()
            )
            if in_table is not None:
                waiting += filter(in_table, condemned)
                condemned = [name for name in condemned if not in_table(name)]
            self._store.delete(condemned)
            files += len(condemned)
            size += sum(segments_there[name][2] for name in condemned)
        if kept is not None and waiting and may_write:
            self._advance_table(now_ms, kept, waiting)
            if not self._grace:  # No reader of an older version is waited for.
                more = self._delete(now_ms, self._kept(self._head(), now_ms), may_write=False)
                return _Deleted(files + more.files, size + more.bytes, more.waits)
        return _Deleted(files, size, waits)

    def _advance_table(self, now_ms: int, kept: _Kept, waiting: list[str]) -> None:
        """Bring the table to the present state if only that lets segments go a grace period later:
        one to which nothing comes any more, or that is closed, gets no version otherwise."""
        stored = self._topic.stored
        newest = kept.state if kept.old == kept.head else stored.newest_before(kept.head.point.tip)
        has_time = self._topic.table.has_time(kept.head, now_ms)
        if not has_time or any(map(self._in_table(newest), waiting)):
            stored.publish()
            self._topic.table.publish(now_ms, self._grace, advance=True)

    def _in_table(self, old: TopicState | None) -> Callable[[str], bool]:
        """Whether a version of the table that a reader may have, or one that a publisher still
        puts, may name a segment: unless it was dead for good at the state of a version that is
        older than the grace period, since the states of versions never go back."""
        horizon, live = 0, set[str]()
        if old is not None:
            extents = self._topic.reader.live(old, segments_of)
            live = {extent.segment.uid for extent in extents if extent.segment is not None}
            horizon = old.horizon

        def in_table(name: str) -> bool:
            parsed = names.parse_segment(name)
            if parsed is None or parsed.base is None:
                return False  # A table names rewritten segments only.
            return parsed.born >= horizon or parsed.uid in live

        return in_table

    # --- stubs -----------------------------------------------------------------------------

    def _stub(self, now_ms: int, before: StubsNote, note: StubsNote) -> tuple[int, StubsNote]:
        """Take the rows out of entries that no live extent needs; how many, and the note as it is
        stored then. Not where an entry can't be replaced at once: who is killed in the middle of
        it would leave half of one. Nor where it saves next to nothing, unless the rows must go.
        ``before`` is the note as it is stored."""
        if not self._store.replaces_at_once:
            return 0, self._store_note(note, before)
        state = self._chain.state
        extents = self._topic.reader.live(state, inline_of)
        needed = {extent.entry for extent in extents if extent.inline}
        starts = sum(part.start for part in state.parts)
        if starts != note.starts:
            # Records were deleted by name: those of older entries go, also where it doesn't pay.
            note = note._replace(starts=starts, must_to=state.tip)
        limit = self._horizon(now_ms, state) if self._grace else state.tip
        must_to = limit if retention.lets_rows_go(state) else min(note.must_to, limit)
        left = note.left_from
        start = min(note.stubbed_to, state.tip)
        if 0 <= left < must_to:
            start = min(start, left)  # An entry that was needed may lie below those.
        sizes = self._entry_sizes(max(start, must_to), limit)
        least = SAVED_BLOCK if self._store.is_local else SAVED_BYTES
        if 0 <= left < must_to:
            left = -1
        stubs = 0
        reached: int | None = None
        for low in range(start, limit, STUBS_AT_ONCE):
            numbers = range(low, min(limit, low + STUBS_AT_ONCE))
            free = [number for number in numbers if number not in needed]
            pays = [n for n in free if n < must_to or sizes.get(n, 0) >= least]
            if left < 0 and len(pays) < len(free):
                left = min(set(free) - set(pays))
            # Each waits for the disk or the store by itself: many wait together.
            work = map if self._pool is None else self._pool.map
            stubs += sum(work(self._stub_one, pays))
            self._progress("taking rows out", numbers.stop - start, limit - start)
            if reached is None and len(free) < len(numbers):
                reached = min(set(numbers) - set(free))
                noted = note._replace(stubbed_to=reached, left_from=left)
                before = self._store_note(noted, before)
        reached = max(limit, note.stubbed_to) if reached is None else reached
        return stubs, self._store_note(note._replace(stubbed_to=reached, left_from=left), before)

    def _entry_sizes(self, start: int, end: int) -> dict[int, int]:
        """The bytes of each entry, by a listing: a request for each thousand of them."""
        sizes: dict[int, int] = {}
        for number in range(start - start % names.BUCKET_ENTRIES, end, names.BUCKET_ENTRIES):
            for info in self._store.list(names.bucket_folder(self._folder, number)):
                entry = names.parse_entry(info.name)
                if entry is not None:
                    sizes[entry.number] = info.size
        return sizes

    def _stub_one(self, number: int) -> int:
        name = str(names.EntryName(self._folder, number))
        data = self._store.get(name, 0, entry_format.MAX_ENTRY_BYTES + 1)
        if data is None:
            return 0
        stored = entry_format.decode(data, name)
        if stored.stub or not isinstance(stored.entry.body, Append) or not stored.inline_records:
            return 0
        self._store.put(name, entry_format.encode_stub(stored))
        return 1

    def _note(self) -> StubsNote:
        return read_note(self._chain)

    def _store_note(self, note: StubsNote, before: StubsNote) -> StubsNote:
        if note != before:
            name = names.stubs_name(self._folder)
            self._store.put(name, notes.encode(note._asdict()), durable=False)
        return note

    # --- stored states ---------------------------------------------------------------------

    def _drop_stored(self, now_ms: int, kept: _Kept | None) -> None:
        """Delete snapshots and leaves that no newer reader needs and that are old enough."""
        folder = names.snapshot_folder(self._folder)
        snapshots = sorted(
            (parsed.seq, info)
            for info in self._store.list(folder)
            if (parsed := names.parse_snapshot(info.name)) is not None
        )
        if snapshots and snapshots[-1][0] > self._chain.state.tip:
            self._chain.check_reaches(snapshots[-1][0])
        expendable, needed = [], [seq for seq, _ in snapshots[-self._limits.snapshots_kept :]]
        pinned = self._pinned(snapshots, kept, now_ms)
        for seq, info in snapshots[: -self._limits.snapshots_kept]:
            if seq in pinned or self._is_young(info, now_ms, min(self._grace, 3_600_000)):
                needed.append(seq)
            elif not info.size or self._topic.stored.is_snapshot(seq):
                expendable.append(info.name)
            # Else it has a snapshot's name alone, as an entry has: it is not ours to delete.
        used = self._topic.stored.leaves_of(needed)
        if used is None:
            return
        leaves = [
            info.name
            for info in self._store.list(names.leaf_folder(self._folder))
            if (leaf := names.parse_leaf(info.name)) is not None
            and leaf.uid not in used
            and not self._is_young(info, now_ms, max(self._grace // 24, 60_000))
        ]
        self._store.delete([*expendable, *leaves])

    @staticmethod
    def _is_young(info: FileInfo, now_ms: int, age_ms: int) -> bool:
        """Of a cache. One with a time in the future may go."""
        return now_ms - age_ms < info.modified_ms <= now_ms + retention.AHEAD_MS

    def _pinned(
        self, snapshots: list[tuple[int, FileInfo]], kept: _Kept | None, now_ms: int
    ) -> set[int]:
        """The states that a table needs: those of its newest version and of the one that is as
        old as the grace period, and some between them, of which each will be that one."""
        if kept is None:
            return set()
        tips = [head.point.tip for head in (kept.head, kept.old) if head is not None]
        least = min(tips) if kept.old is not None else 0
        pinned = {max((seq for seq, _ in snapshots if seq <= tip), default=0) for tip in tips}
        last = 0
        for seq, info in snapshots:
            has_time = info.modified_ms <= now_ms + retention.AHEAD_MS
            if seq >= least and has_time and info.modified_ms >= last + self._grace // STATES_KEPT:
                pinned.add(seq)
                last = info.modified_ms
        return pinned

    def _sweep(self, now_ms: int) -> None:
        """Remove what killed writers left beside the files, where a store leaves such things."""
        if not self._store.leaves_temporaries:
            return
        before = now_ms - max(self._grace, 3_600_000)
        parts = list(self._store.folders(self._folder))
        buckets = self._store.folders(names.log_folder(self._folder))
        parts += [f"_log/{bucket}" for bucket in buckets]
        for part in filter(names.is_topics_part, parts):
            self._store.sweep(f"{self._folder}/{part}", before)
