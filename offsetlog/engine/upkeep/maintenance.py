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
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from operator import attrgetter
from typing import NamedTuple

import pyarrow as pa

from offsetlog.core import strict_json
from offsetlog.core.decode import default, field, from_json, integer
from offsetlog.core.topic import retention
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
from offsetlog.core.topic.index import inline_of, segments_of
from offsetlog.core.topic.rewrite import RewritePlan, plan_rewrites, small_ones
from offsetlog.core.topic.state import TopicState
from offsetlog.engine.topic.open_topic import OpenTopic
from offsetlog.errors import (
    InvalidRequestError,
    OffsetLogError,
    OffsetOutOfRangeError,
    UnknownTopicError,
)
from offsetlog.format import entries as entry_format
from offsetlog.format import names, segments
from offsetlog.format import record_schema as rows
from offsetlog.values import NO_LIMIT, settings_of

GRACE_MS = 24 * 3_600_000
STUBS_AT_ONCE = 256
_STUBBED_TO = field("stubbed_to", default(integer(), 0))
_base = attrgetter("base")
logger = logging.getLogger(__name__)
Progress = Callable[[str, int, int], None]
"""(what is done, how much of it is done, how much there is)."""


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


def check_grace(grace_ms: object) -> int:
    if isinstance(grace_ms, bool) or not isinstance(grace_ms, int) or grace_ms < 0:
        raise InvalidRequestError(f"grace_ms is {grace_ms!r}.", "It is milliseconds from 0.")
    return grace_ms


class Maintenance:
    """One round for one topic."""

    def __init__(
        self,
        topic: OpenTopic,
        pool: ThreadPoolExecutor | None = None,
        *,
        grace_ms: int = GRACE_MS,
        progress: Progress | None = None,
    ) -> None:
        self._topic = topic
        self._chain = topic.chain
        self._limits = topic.chain.env.limits
        self._store = topic.chain.store
        self._folder = topic.chain.folder
        self._pool = pool
        self._grace = check_grace(grace_ms)
        self._progress = progress or (lambda what, done, of: None)

    def run(self) -> Maintained:
        self._topic.refresh()
        self._chain.check_place()
        now = self._storage_now()
        expired = self._retain(now)
        rewritten, fresh = self._consolidate()
        self._expire_senders()
        self._collect(now)
        stubs = self._stub(now)
        files, size = self._delete()
        self._topic.stored.tidy()
        self._drop_stored(now)
        state = self._chain.state
        maintained = Maintained(
            topic=state.topic,
            expired_records=expired,
            rewritten_files=rewritten,
            new_segments=fresh,
            stubs=stubs,
            deleted_files=files,
            deleted_bytes=size,
            horizon=state.horizon,
            entries=state.tip,
        )
        logger.info("maintained %s", maintained)
        return maintained

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
        if (config.retention_ms, config.retention_bytes) == (NO_LIMIT, NO_LIMIT):
            return 0
        starts = []
        for partition in range(state.partitions):
            part = state.parts[partition]
            if part.start == part.end:
                continue
            size = 0
            if config.retention_bytes != NO_LIMIT:
                size = sum(e.bytes for e in self._extents(state, partition))
            start = retention.retained_from(
                self._extents(state, partition),
                part.start,
                size,
                now_ms,
                config.retention_ms,
                config.retention_bytes,
            )
            if start > part.start:
                starts.append((partition, start))
        if starts:
            self._topic.decide(Trim(tuple(starts)))
        after = self._chain.state
        return sum(after.start(p) - state.start(p) for p, _ in starts)

    def _extents(self, state: TopicState, partition: int) -> Iterator[Extent]:
        part = state.parts[partition]
        return self._topic.reader.extents(state, partition, part.start, part.end)

    # --- consolidation ---------------------------------------------------------------------

    def _consolidate(self) -> tuple[int, int]:
        """Rewrite runs of small files as large ones; (files replaced, segments written)."""
        state = self._chain.state
        config = settings_of(state.config)
        target = config.segment_bytes
        small: dict[int, list[Extent]] = {}
        for extent in self._topic.reader.live(state, partial(small_ones, target_bytes=target)):
            small.setdefault(extent.partition, []).append(extent)
        plans = [
            plan
            for partition in sorted(small)
            for plan in plan_rewrites(
                sorted(small[partition], key=_base),
                state.start(partition),
                target,
                self._limits.min_files,
            )
        ]
        replaced = written = 0
        for low in range(0, len(plans), self._limits.runs_per_entry):
            self._progress("consolidating", low, len(plans))
            group = plans[low : low + self._limits.runs_per_entry]
            tried = [(plan, self._rewrite(plan, config.compression)) for plan in group]
            rewritten = [(plan, run) for plan, run in tried if run is not None]
            runs = tuple(run for _, run in rewritten)
            void = self._topic.decide(Replace(state.tip, runs)) if runs else None
            if void is not None:
                logger.info("%s: a rewrite does not count: %s", state.topic, void.detail)
            elif runs:
                replaced += sum(len(plan.extents) for plan, _ in rewritten)
                written += len(runs)
        if plans:
            self._progress("consolidating", len(plans), len(plans))
        return replaced, written

    def _rewrite(self, plan: RewritePlan, compression: str) -> ReplacedRun | None:
        """Write one segment with the records of a run of extents; None if they are gone."""
        columns = (*rows.ROWS.names, "offset")
        try:
            batches = self._topic.reader.read(plan.partition, plan.start, plan.end, columns)
            tables = [batch.table for batch in batches]
        except (OffsetOutOfRangeError, UnknownTopicError):
            # The log start was moved, or the topic deleted, since this was planned.
            return None
        table = pa.concat_tables(tables).combine_chunks()
        encoded = segments.encode(table, compression, self._limits.row_group_records)
        ref = encoded.ref(self._chain.state.tip, self._chain.env.new_id())
        name = names.SegmentName(
            self._folder, plan.partition, ref.born, ref.uid, plan.start, plan.end
        )
        self._store.put(str(name), encoded.data)
        times = rows.milliseconds(table.column("timestamp"))
        first = plan.extents[0]
        low, high = (int(times.min()), int(times.max())) if len(times) else (first.min_ts,) * 2
        piece = ReplacementPiece(
            base=plan.start,
            end=plan.end,
            records=table.num_rows,
            bytes=plan.bytes,
            min_ts=low,
            max_ts=high,
            ts_type=first.ts_type,
            segment=ref,
        )
        return ReplacedRun(plan.partition, plan.start, plan.end, (piece,))

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

    def _collect(self, now_ms: int) -> None:
        """Raise the horizon to the newest entry that is older than the grace period."""
        state = self._chain.state
        horizon = self._horizon(now_ms, state)
        if horizon > state.horizon:
            logger.debug("%s: horizon %d", state.topic, horizon)
            self._topic.decide(Collect(horizon))

    def _horizon(self, now_ms: int, state: TopicState) -> int:
        """By bisection: entries are stored in the order of their numbers."""
        if self._grace == 0:
            return state.tip
        low, high = state.horizon, state.tip
        while low < high:
            middle = (low + high) // 2
            info = self._store.info(str(names.EntryName(self._folder, middle)))
            # A stub's time is that of its stubbing: it says nothing, and counts as young.
            if info is not None and info.modified_ms <= now_ms - self._grace:
                low = middle + 1
            else:
                high = middle
        return max(0, low - 1)

    def _delete(self) -> tuple[int, int]:
        """Delete segments born below the horizon that are not live; (files, bytes)."""
        state = self._chain.state
        if state.collected_at < 0:
            return 0, 0
        extents = self._topic.reader.live(state, segments_of)
        live = {extent.segment.uid for extent in extents if extent.segment is not None}
        files = size = 0
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
            self._store.delete(condemned)
            files += len(condemned)
            size += sum(segments_there[name][2] for name in condemned)
        return files, size

    # --- stubs -----------------------------------------------------------------------------

    def _stub(self, now_ms: int) -> int:
        """Take the rows out of entries that no live extent needs. Not where an entry can't be
        replaced at once: who is killed in the middle of it would leave half of one."""
        if not self._store.replaces_at_once:
            return 0
        state = self._chain.state
        extents = self._topic.reader.live(state, inline_of)
        needed = {extent.entry for extent in extents if extent.inline}
        start = self._stubbed_to()
        limit = self._horizon(now_ms, state) if self._grace else state.tip
        stubs = 0
        reached: int | None = None
        for low in range(start, limit, STUBS_AT_ONCE):
            numbers = range(low, min(limit, low + STUBS_AT_ONCE))
            free = [number for number in numbers if number not in needed]
            # Each waits for the disk or the store by itself: many wait together.
            work = map if self._pool is None else self._pool.map
            stubs += sum(work(self._stub_one, free))
            self._progress("taking rows out", numbers.stop - start, limit - start)
            if reached is None and len(free) < len(numbers):
                reached = min(set(numbers) - set(free))
                self._note_stubbed(reached, start)
        if reached is None:
            self._note_stubbed(limit, start)
        return stubs

    def _note_stubbed(self, reached: int, before: int) -> None:
        if reached > before:
            name = names.stubs_name(self._folder)
            self._store.put(name, strict_json.dumps({"stubbed_to": reached}), durable=False)

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

    def _stubbed_to(self) -> int:
        """Entries below it need no look any more. A lost note costs time only."""
        data = self._store.get(names.stubs_name(self._folder))
        try:
            reached = from_json(_STUBBED_TO, data or b"{}", "note", 4096)
            return min(reached, self._chain.state.tip)
        except OffsetLogError:
            return 0

    # --- stored states ---------------------------------------------------------------------

    def _drop_stored(self, now_ms: int) -> None:
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
        for seq, info in snapshots[: -self._limits.snapshots_kept]:
            if info.modified_ms > now_ms - min(self._grace, 3_600_000):
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
            and info.modified_ms <= now_ms - max(self._grace // 24, 60_000)
        ]
        self._store.delete([*expendable, *leaves])
        self._sweep(now_ms)

    def _sweep(self, now_ms: int) -> None:
        """Remove what killed writers left beside the files, where a store leaves such things."""
        if not self._store.leaves_temporaries:
            return
        before = now_ms - max(self._grace, 3_600_000)
        for folder in self._store.folders(self._folder):
            self._store.sweep(f"{self._folder}/{folder}", before)
        for bucket in self._store.folders(names.log_folder(self._folder)):
            self._store.sweep(f"{names.log_folder(self._folder)}/{bucket}", before)
