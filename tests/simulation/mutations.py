"""Planted bugs: each takes one rule of the protocol away. The simulation must find every one.

They are switched on in tests only, one at a time, by replacing a function."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, suppress
from typing import Any

import pyarrow as pa

from offsetlog.core.topic import compaction, fold, landing, retention
from offsetlog.core.topic.entry import Append, Collect, Erase, Void, VoidReason
from offsetlog.core.topic.extents import Extent
from offsetlog.core.topic.state import PartitionState, TopicState, rebase
from offsetlog.core.topic.table import Changes
from offsetlog.engine.append.writer import Writer
from offsetlog.engine.topic.chain import Chain, LandedEntry
from offsetlog.engine.topic.open_topic import OpenTopic
from offsetlog.engine.topic.reader import FetchedBatch, Reader
from offsetlog.engine.upkeep import compaction as key_compaction
from offsetlog.engine.upkeep import newest_of_keys
from offsetlog.engine.upkeep.maintenance import NOTHING_DELETED, Maintenance
from offsetlog.engine.upkeep.shrink import Shrinker
from offsetlog.errors import OffsetLogError
from offsetlog.format import names, topic_table
from offsetlog.format.record_schema import OFFSET, complete
from tests.simulation.planting import Patch, patched


def planted(name: str) -> AbstractContextManager[None]:
    every = {**MUTATIONS, **TABLE_MUTATIONS, **KEY_MUTATIONS, **NOT_IN_A_HISTORY}
    return patched(every[name]())


# --- rules of the fold ---------------------------------------------------------------------


def _appends_without(reason: str) -> Callable[[], list[Patch]]:
    """The fold's rules for appends, but for one of them."""

    def judge(state: TopicState, body: Append) -> Void | None:
        known = (state.own if body.own else state.callers).get(body.app)
        if reason != VoidReason.DUPLICATE and known is not None and body.seq <= known.seq:
            return Void(VoidReason.DUPLICATE, "")
        forgotten = body.own and known is None and body.born < state.floor
        if reason != VoidReason.FORGOTTEN and forgotten:
            return Void(VoidReason.FORGOTTEN, "")
        if reason != VoidReason.DELETED and (
            not state.alive or body.created_at_entry != state.created_at_entry
        ):
            return Void(VoidReason.DELETED, "")
        for part in body.parts:
            if reason != VoidReason.NO_PARTITION and part.partition >= state.partitions:
                return Void(VoidReason.NO_PARTITION, "")
        for part in body.parts:
            condemned = part.segment is not None and part.segment.born < state.horizon
            if reason != VoidReason.CONDEMNED and condemned:
                return Void(VoidReason.CONDEMNED, "")
        return None

    return lambda: [(fold, "_judge_append", judge)]


def _replaces_without(*reasons: str) -> Callable[[], list[Patch]]:
    judge = fold._judge_replace

    def lenient(state: TopicState, body: Any) -> Void | None:
        void = judge(state, body)
        return None if void is not None and void.reason in reasons else void

    return lambda: [(fold, "_judge_replace", lenient)]


def _replaces_forget_silently() -> list[Patch]:
    """A replace planned before the oldest remembered one counts."""
    judge = fold._judge_replace
    return [
        (
            fold,
            "_judge_replace",
            lambda state, body: judge(state._replace(replaces_forgotten=-1), body),
        )
    ]


def _lifecycle_without_sees() -> list[Patch]:
    """An old delete, or create, hits what came after it."""

    def judge(state: TopicState, body: Any) -> Void | None:
        return fold_lifecycle(state, body._replace(expected_head=state.head))

    fold_lifecycle = fold._judge_lifecycle
    return [(fold, "_judge_lifecycle", judge)]


# --- landing -------------------------------------------------------------------------------


def _acknowledge_before_the_fold() -> list[Patch]:
    def fold_own(self: Chain, stored: Any, number: int) -> LandedEntry:
        return LandedEntry(number, fold.step(self.state, stored.entry)[1])

    return [(Chain, "_fold_own", fold_own)]


def _no_answer_taken_for_a_conflict() -> list[Patch]:
    return [(landing.Landing, "unanswered", lambda self, *answer: self.conflicted())]


def _a_retry_with_a_fresh_number() -> list[Patch]:
    deliver = Writer.deliver
    newest: dict[str, int] = {}
    """The last number of each sender."""

    def fresh(self: Writer, load: Any, sender: Any, hashed_with: int, life: int) -> Any:
        if not sender.own:
            return deliver(self, load, sender, hashed_with, life)
        seq = max(sender.seq, newest.get(sender.app, 0) + 1)
        for _ in range(5):
            newest[sender.app] = seq
            try:
                return self.append(load, sender._replace(seq=seq), hashed_with, life)
            except OffsetLogError as error:
                if not error.may_have_landed:
                    raise
            seq += 1
        newest[sender.app] = seq
        return deliver(self, load, sender._replace(seq=seq), hashed_with, life)

    return [(Writer, "deliver", fresh)]


def _a_refusal_denies_a_hidden_landing() -> list[Patch]:
    def refused(self: Chain, entry: Any, number: int, error: Any, tried: list[int]) -> int:
        tried.clear()
        raise error

    return [(Chain, "_refused", refused)]


def _a_leap_passes_own_entries() -> list[Patch]:
    def leap(self: Chain, stored: TopicState) -> TopicState:
        with self._lock:
            ahead = stored.tip > self.state.tip
            self.state = stored if ahead else rebase(self.state, stored.index)
            return self.state

    return [(Chain, "rebase", leap)]


def _a_forgotten_sender_looks_nowhere() -> list[Patch]:
    return [(Writer, "_landed_before", lambda self, number, hashed_with: None)]


def _born_anew_at_each_retry() -> list[Patch]:
    append = Writer._append

    def anew(self: Writer, prepared: Any, sender: Any, hashed: int, life: int, number: Any) -> Any:
        if number.tries:
            number = number._replace(born=self.chain.refresh().tip)
        return append(self, prepared, sender, hashed, life, number)

    return [(Writer, "_append", anew)]


def _a_failed_retry_denies_the_first_try() -> list[Patch]:
    append = Writer._append

    def deny(self: Writer, prepared: Any, sender: Any, hashed: int, life: int, number: Any) -> Any:
        before = list(number.tries)
        try:
            return append(self, prepared, sender, hashed, life, number)
        except OffsetLogError:
            if number.tries == before:
                number.tries.clear()
            raise

    return [(Writer, "_append", deny)]


def _two_undecided_entries_of_one_app() -> list[Patch]:
    """Who gave up on an answer leaves that name alone, and goes on with the next one."""
    open_fate = Chain._open_fate

    def past(self: Chain, number: int, error: str) -> Any:
        told = open_fate(self, number, error)
        self._undecided = number + 1
        return told

    return [(Chain, "_open_fate", past)]


def _the_digest_rule_on_a_micro_batch() -> list[Patch]:
    """A micro-batch that is run again, with its rows split otherwise, is taken for another."""
    answer = Writer._answer_duplicate

    def known(self: Writer, load: Any, sender: Any, number: Any) -> Any:
        return answer(self, load, sender._replace(reruns=False), number)

    return [(Writer, "_answer_duplicate", known)]


def _any_rows_under_a_callers_key() -> list[Patch]:
    """Other rows under a used number are acknowledged, and are nowhere."""
    answer = Writer._answer_duplicate

    def known(self: Writer, load: Any, sender: Any, number: Any) -> Any:
        found = self.chain.state.callers.get(sender.app)
        lower = found is not None and found.seq != sender.seq
        return answer(self, load, sender._replace(reruns=not lower), number)

    return [(Writer, "_answer_duplicate", known)]


def _an_abort_deletes_its_segments() -> list[Patch]:
    """Who got no answer tidies up what it had written for the entry."""
    land = Chain.land

    def tidy(self: Chain, stored: Any, tried: Any = None) -> Any:
        try:
            return land(self, stored, tried)
        except OffsetLogError:
            for part in getattr(stored.entry.body, "parts", ()):
                if part.segment is not None:
                    name = names.segment_name(self.folder, part.partition, part.segment)
                    with suppress(OffsetLogError):
                        self.store.delete([str(name)])
            raise

    return [(Chain, "land", tidy)]


# --- maintenance ---------------------------------------------------------------------------


def _the_horizon_ignored() -> list[Patch]:
    def condemned(segments: Any, horizon: int, live: Any) -> Any:
        return (name for born, uid, name in segments if uid not in live)

    return [(retention, "condemned", condemned)]


def _rows_taken_out_before_they_moved() -> list[Patch]:
    def stub(self: Maintenance, now_ms: int, before: Any, note: Any) -> tuple[int, Any]:
        return sum(self._stub_one(number) for number in range(self._chain.state.tip)), note

    return [(Maintenance, "_stub", stub)]


def _a_list_from_a_state_before_its_collect() -> list[Patch]:
    delete = Maintenance._delete

    def collect(self: Maintenance, now_ms: int, note: Any, *, waits: bool) -> Any:
        state = self._chain.state
        horizon = self._horizon(now_ms, state)
        self._before = state._replace(horizon=horizon, collected_at=state.tip)  # type: ignore[attr-defined]
        if horizon > state.horizon:
            self._topic.decide(Collect(horizon))
        return note

    def early(self: Maintenance, now_ms: int, kept: Any) -> Any:
        chain = self._chain

        class Old:
            state = self._before  # type: ignore[attr-defined]

        self._chain = Old()  # type: ignore[assignment]
        try:
            return delete(self, now_ms, kept)
        finally:
            self._chain = chain

    return [(Maintenance, "_collect", collect), (Maintenance, "_delete", early)]


def _stubs_by_a_lost_answer() -> list[Patch]:
    """The rows go as soon as the replace was put, whatever the fold said of it."""

    def delete(self: Maintenance, now_ms: int, kept: Any) -> Any:
        return NOTHING_DELETED

    def consolidate(self: Maintenance) -> tuple[int, int]:
        state = self._chain.state
        done = consolidate_(self)
        for partition in range(state.partitions):
            for extent in state.parts[partition].tail:
                if extent.inline and done[0]:
                    self._stub_one(extent.entry)
        return done

    consolidate_ = Maintenance._consolidate
    return [(Maintenance, "_consolidate", consolidate), (Maintenance, "_delete", delete)]


# --- reading -------------------------------------------------------------------------------


def _inline_rows_believed_unseen() -> list[Patch]:
    def open_entry(self: Reader, extent: Any) -> Any:
        return self.chain.read_entry(extent.entry)

    return [(Reader, "_open_entry", open_entry)]


def _a_stub_taken_for_an_empty_result() -> list[Patch]:
    """Rows that were taken out mean that there are none, not that the plan is old."""
    inline_batch = Reader._inline_batch

    def empty(self: Reader, piece: Any, stored: Any, columns: Any) -> Any:
        if not stored.stub:
            return inline_batch(self, piece, stored, columns)
        nothing = complete(pa.schema([OFFSET]).empty_table(), columns)
        return FetchedBatch(piece.extent.partition, piece.start, piece.end, 0, nothing)

    [unseen] = _inline_rows_believed_unseen()
    return [unseen, (Reader, "_inline_batch", empty)]


def _write_ids_not_compared() -> list[Patch]:
    open_entry = Reader._open_entry

    def trusting(self: Reader, extent: Any) -> Any:
        stored = self.chain.read_entry(extent.entry)
        if stored is None or stored.stub:
            return open_entry(self, extent)
        return stored

    return [(Reader, "_open_entry", trusting)]


def _a_hole_is_the_end() -> list[Patch]:
    """A window of names whose first is missing is passed over to the next one seen."""

    def fold_window(self: Chain, width: int) -> int:
        tip = self.state.tip
        folded = 0
        for number in range(tip, tip + width):
            stored = self._get(number)
            if stored is not None:
                self.state = self.state._replace(tip=number)
                self._fold_one(number, stored)
                folded += 1
        return folded

    return [(Chain, "_fold_window", fold_window)]


def _entries_deleted() -> list[Patch]:
    """Collection frees the names of entries whose rows have moved."""

    def stub_one(self: Maintenance, number: int) -> int:
        self._store.delete([str(names.EntryName(self._folder, number))])
        return 1

    return [(Maintenance, "_stub_one", stub_one)]


# --- tables --------------------------------------------------------------------------------


def _a_table_names_a_collected_file() -> list[Patch]:
    """The collector asks the chain alone."""
    return [(Maintenance, "_in_table", lambda self, kept: None)]


def _a_rewrite_of_a_table_is_new_to_streams() -> list[Patch]:
    text = topic_table.version_text

    def all_new(*args: Any, added: Any = (), new: Any = (), **more: Any) -> bytes:
        return text(*args, new=[*added, *new], **more)

    return [(topic_table, "version_text", all_new)]


def _removals_come_with_new_records() -> list[Patch]:
    return [(Changes, "takes_records", False)]


# --- compaction and erasure ----------------------------------------------------------------


def _a_tombstone_dropped_too_early() -> list[Patch]:
    """As soon as a pass met it, and not when its time is over."""

    def at_once(part: PartitionState, *times: object) -> tuple[int, int]:
        return max(part.start, part.tombstones_from), part.compacted_to

    return [(compaction, "due_tombstones", at_once)]


def _a_tombstone_dropped_in_its_first_pass() -> list[Patch]:
    """With older records of its key in files whose rewrite may not count."""
    due = compaction.due_pass

    def first(*given: Any) -> Any:
        found = due(*given)
        return found and found._replace(due_to=found.end)

    return [(key_compaction, "due_pass", first)]


def _the_older_of_two_kept() -> list[Patch]:
    """Rows of a batch are taken in another order than that of their offsets."""
    newest = newest_of_keys._newest

    def oldest(keys: Any, offsets: Any) -> Any:
        return newest(keys.take(pa.array(range(len(keys) - 1, -1, -1))), offsets[::-1])

    return [(newest_of_keys, "_newest", oldest)]


def _an_erased_key_in_a_late_file() -> list[Patch]:
    """A rewrite that was planned before an erasure, and lands after it, counts."""
    judge = fold._judge_replace

    def lenient(state: TopicState, body: Any) -> Void | None:
        void = judge(state, body)
        late = void is not None and void.detail.startswith("replaced by entry")
        return None if late and not isinstance(body, Erase) else void

    return [(fold, "_judge_replace", lenient)]


def _an_erasure_that_does_not_look_again() -> list[Patch]:
    """What others rewrote meanwhile is taken for what it was."""

    def decide(self: OpenTopic, body: Any) -> Any:
        if isinstance(body, Erase):
            decide_(self, body)
            return None
        return decide_(self, body)

    decide_ = OpenTopic.decide
    return [(OpenTopic, "decide", decide)]


def _an_offset_moved_by_a_rewrite() -> list[Patch]:
    """What is left is numbered anew from the first offset on."""
    write = Shrinker._write

    def closed_up(self: Shrinker, partition: int, base: int, end: int, kept: Any, time: int) -> Any:
        moved = []
        for batch in kept:
            count = batch.table.num_rows
            offsets = pa.array(range(base, base + count), pa.int64())
            table = batch.table.set_column(batch.table.num_columns - 1, OFFSET, offsets)
            moved.append(batch._replace(table=table))
        return write(self, partition, base, end, moved, time)

    return [(Shrinker, "_write", closed_up)]


def _compacted_though_it_does_not_count() -> list[Patch]:
    land = key_compaction.KeyCompaction._land

    def forgetful(self: Any) -> None:
        land(self)
        self._void.clear()

    return [(key_compaction.KeyCompaction, "_land", forgetful)]


def _gaps_read_by_position() -> list[Patch]:
    """Offsets of what has gaps are taken for base and position."""
    return [(Extent, "dense", property(lambda self: not self.is_empty))]


MUTATIONS: dict[str, Callable[[], list[Patch]]] = {
    "duplicates count": _appends_without(VoidReason.DUPLICATE),
    "forgotten senders count": _appends_without(VoidReason.FORGOTTEN),
    "appends to a deleted topic count": _appends_without(VoidReason.DELETED),
    "appends to missing partitions count": _appends_without(VoidReason.NO_PARTITION),
    "appends to condemned segments count": _appends_without(VoidReason.CONDEMNED),
    "replaces with condemned segments count": _replaces_without(VoidReason.CONDEMNED),
    "stale replaces count": _replaces_without(VoidReason.STALE),
    "replaces of a deleted topic count": _replaces_without(VoidReason.DELETED, VoidReason.STALE),
    "a replace from before the memory counts": _replaces_forget_silently,
    "an old delete hits a new topic": _lifecycle_without_sees,
    "acknowledged before the fold": _acknowledge_before_the_fold,
    "no answer taken for a conflict": _no_answer_taken_for_a_conflict,
    "two undecided entries of one app": _two_undecided_entries_of_one_app,
    "the digest rule on a micro-batch": _the_digest_rule_on_a_micro_batch,
    "any rows under a caller's key": _any_rows_under_a_callers_key,
    "an abort deletes its segments": _an_abort_deletes_its_segments,
    "a retry with a fresh number": _a_retry_with_a_fresh_number,
    "a refusal denies a hidden landing": _a_refusal_denies_a_hidden_landing,
    "a forgotten sender looks nowhere": _a_forgotten_sender_looks_nowhere,
    "born anew at each retry": _born_anew_at_each_retry,
    "the horizon ignored": _the_horizon_ignored,
    "rows taken out before they moved": _rows_taken_out_before_they_moved,
    "rows taken out whatever the fold said": _stubs_by_a_lost_answer,
    "a list from a state before its collect": _a_list_from_a_state_before_its_collect,
    "an old plan read without comparing ids": _inline_rows_believed_unseen,
    "a stub taken for an empty result": _a_stub_taken_for_an_empty_result,
    "holes passed over": _a_hole_is_the_end,
    "names of entries freed": _entries_deleted,
}
TABLE_MUTATIONS: dict[str, Callable[[], list[Patch]]] = {
    "a table names a collected file": _a_table_names_a_collected_file,
    "a rewrite of a table is new to streams": _a_rewrite_of_a_table_is_new_to_streams,
    "removals come with new records": _removals_come_with_new_records,
}
"""Found in histories of topics that are tables."""
KEY_MUTATIONS: dict[str, Callable[[], list[Patch]]] = {
    "a tombstone dropped too early": _a_tombstone_dropped_too_early,
    "a tombstone dropped in its first pass": _a_tombstone_dropped_in_its_first_pass,
    "the older of two kept": _the_older_of_two_kept,
    "an erased key in a late file": _an_erased_key_in_a_late_file,
    "an erasure that does not look again": _an_erasure_that_does_not_look_again,
    "an offset moved by a rewrite": _an_offset_moved_by_a_rewrite,
    "compacted though it does not count": _compacted_though_it_does_not_count,
    "gaps read by position": _gaps_read_by_position,
}
"""Found in histories of topics that keep the newest of each key."""
NOT_IN_A_HISTORY: dict[str, Callable[[], list[Patch]]] = {
    # A retry of one life fails for sure after an open fate: found once in some two hundred
    # histories. See tests/engine/append/test_open_fates.py.
    "a failed retry denies the first try": _a_failed_retry_denies_the_first_try,
    # A thread adopts a newer stored state while an entry of its process has landed and is not
    # folded yet: too rare for some hundred histories. See tests/engine/append/test_open_fates.py.
    "a leap passes own entries": _a_leap_passes_own_entries,
    # A name is used once, so another entry is met only where a topic was purged, which no
    # history does. See tests/engine/topic/test_missing_leaves.py.
    "write ids not compared": _write_ids_not_compared,
}
