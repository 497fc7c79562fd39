"""A topic's Delta table: where it is, what its newest version says, and how a version is made.

Invariants:

1. A version follows from the folded state, and goes to exactly the version after the newest that
   was read. Who loses that race looks again: two publishers, a kill and a retry leave one table.
2. The states of the versions never go back. So a version that was put names no file that was dead
   at the state of an older one, and neither can one that is still on its way.
3. A publisher reads the newest version, the states of it and of the chain, and what differs
   between them: as many requests for a million segments as for a hundred.
4. Checkpoints are a cache of the log. They come when enough has changed to pay for them, and at
   the latest every ``CHECKPOINT_VERSIONS``.
5. An end never goes back while the table is open. Where nobody may rewrite what blocks a step (in
   a copy) the table goes to an older state that it can have, or stays as it is.
"""

from __future__ import annotations

import operator
import uuid
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from offsetlog.core.topic import retention, table
from offsetlog.core.topic.entry import Trim
from offsetlog.core.topic.extents import Extent
from offsetlog.core.topic.index import Leaf, segments_of
from offsetlog.core.topic.plan import NeedLeaves, live_fences
from offsetlog.core.topic.state import EMPTY_STATE, TopicState
from offsetlog.core.topic.table import Blocked, Changes, Point, Removal
from offsetlog.engine.topic.chain import Chain
from offsetlog.engine.topic.stored_state import StoredState
from offsetlog.errors import CorruptLogError, InvalidRequestError, OffsetLogError, StorageError
from offsetlog.format import delta_log, names, topic_table
from offsetlog.format.delta_log import Action
from offsetlog.format.topic_table import Head
from offsetlog.logs import get_logger
from offsetlog.storage.delta.log import IN_TURN, DeltaLog
from offsetlog.storage.store import Committed, Conflict, Unknown
from offsetlog.values import settings_of

TRIES = 50
UNANSWERED = 5
NEW_FILES = 20_000
"""That one version adds at the most: a table that is turned on late gets several."""
FEW_VERSIONS, CHECKPOINT_VERSIONS = 10, 100
"""A checkpoint comes no sooner, and no later, after the last one."""
PAYS = 10
"""In between it comes when a tenth of the files changed."""
LOOKED_BACK, STATES_TRIED = 4096, 8
"""Entries, and states between them, among which a copy looks for one that its table can have."""
logger = get_logger(__name__)


class TopicTable:
    """The table of one topic, whether or not it has one."""

    def __init__(self, chain: Chain, stored: StoredState) -> None:
        self._chain = chain
        self._stored = stored
        self._log = DeltaLog(chain.store, chain.folder, IN_TURN)
        self._note = names.table_name(chain.folder)

    @property
    def path(self) -> str | None:
        """Where readers of Delta find it; None where they can't."""
        return self._chain.store.delta_address(self._chain.folder)

    @property
    def is_wanted(self) -> bool:
        """Whether the topic, as it is known, has a table. A copy where no reader of Delta comes
        has none, whatever its config says."""
        state = self._chain.state
        return state.alive and settings_of(state.config).has_table and self.path is not None

    @property
    def may_exist(self) -> bool:
        """Whether there may be one: a chain in which no entry needs newer rules never had one."""
        return self.is_wanted or self._chain.state.rules > 1

    # --- looking ---------------------------------------------------------------------------

    def head(self) -> Head | None:
        """The newest version; None where there is no table."""
        found = self._newest()
        return None if found is None else self._head(*found)

    def _head(self, version: int, data: bytes) -> Head:
        return topic_table.head_of(version, data, self._log.name(version))

    def _newest(self) -> tuple[int, bytes] | None:
        version = self._noted()
        data = None if version < 0 else self._log.version(version)
        if data is None:
            versions = [file.version for _, file in self._log.files() if not file.parts]
            if not versions:
                return None
            version = max(versions)
            data = self._log.version(version)
            if data is None:
                raise CorruptLogError(f"{self._log.name(version)} is gone.")
        while (following := self._log.version(version + 1)) is not None:
            version, data = version + 1, following
        return version, data

    def _noted(self) -> int:
        """A version that is there; -1 where that is not known."""
        data = self._chain.store.get(self._note, 0, topic_table.MOST_NOTE_BYTES + 1)
        try:
            return -1 if data is None else topic_table.decode_note(data, self._note)
        except OffsetLogError:
            return -1

    def has_time(self, head: Head, now_ms: int) -> bool:
        """Whether the time of a version does not lie in the future."""
        return self._time_of(head.version) <= now_ms + retention.AHEAD_MS

    def _time_of(self, version: int) -> int:
        info = self._chain.store.info(self._log.name(version))
        # One that is gone was deleted since it was old.
        return 0 if info is None else info.modified_ms

    def old_version(self, head: Head, now_ms: int, age_ms: int) -> Head | None:
        """The version that was the newest so long ago by the storage's clock; None where that is
        not known any more."""
        low, high = -1, head.version + 1
        at = head.version
        while low < at:
            if retention.is_old(self._time_of, at, high, now_ms, age_ms):
                low = at
            else:
                high = at
            at = (low + high) // 2
        data = None if low < 0 else self._log.version(low)
        return None if data is None else self._head(low, data)

    # --- publishing ------------------------------------------------------------------------

    def publish(
        self, now_ms: int, retention_ms: int, *, whole: bool = False, advance: bool = False
    ) -> Head | Blocked | None:
        """Bring the table to the chain's state, as far as that was folded; None where there is
        no table. ``whole``: nobody may rewrite what blocks a step. What lies on both sides of the
        table's end is then replaced, after which a stream over the table begins anew; and what
        the log start cuts is waited for, at the newest state in which it was not cut yet.
        ``advance``: also where no file differs, so that the newest version is one of this
        state."""
        for _ in range(TRIES):
            found = self._newest()
            before = self._ours(found)
            state = self._chain.state
            if before is not None and before.point.tip > state.tip:
                # Also a table that is not wanted: it may be wanted again by now.
                if self._stored.refresh().tip < before.point.tip:
                    raise CorruptLogError(
                        f"The table of topic {state.topic!r} has the state after entry "
                        f"{before.point.tip - 1}, and the chain ends before that.",
                        "The chain lost entries: restore the topic from a backup.",
                    )
                continue
            if not self.is_wanted:
                head = self._close(found, before, state, now_ms, advance)
                if head is not None or found is None:
                    return head
                continue
            if found is not None and before is None:
                before = self._head(*found)  # Somebody else's, which is refused by name.
            step = self._step(before, state, retention_ms, whole, advance)
            if step is None or isinstance(step, Blocked):
                return before if step is None else step
            if self._put(step, before, now_ms) and step.is_last:
                return step.head
        raise StorageError(
            f"The table of topic {self._chain.state.topic!r} was published by others each time "
            "this was tried.",
            "Run maintain again.",
        )

    def _step(
        self,
        before: Head | None,
        state: TopicState,
        retention_ms: int,
        whole: bool,
        advance: bool,
    ) -> _Step | Blocked | None:
        """The next version; None if the table is up to date, or has to wait as it is."""
        is_open = before is not None and not before.closed
        ends = before.point.ends if before is not None and is_open else ()
        old = self._stored.at(before.point.tip) if before is not None and is_open else EMPTY_STATE
        change = self._changes(old, ends, state)
        is_whole = False
        if isinstance(change, Blocked) and whole:
            reached = self._reachable(old, ends, state)
            if reached is None:
                return None
            state, change, is_whole = reached
        if isinstance(change, Blocked):
            return change
        new: Sequence[Extent] = change.new[:NEW_FILES]
        if change.takes_records or is_whole:
            new = change.new if is_whole else ()
        grown = _ends_with(change, new)
        is_last = grown == change.grown
        # Another grace period alone is no version: two maintainers would put them by turns.
        same = is_open and grown == ends and not change.removed and not change.added
        if same and not (advance and before is not None and before.point.tip < state.tip):
            return None
        held = before.files if before is not None and is_open else 0
        version = 0 if before is None else before.version + 1
        count = len(change.removed) + len(change.added) + len(new)
        actions = count + (0 if before is None else before.actions)
        head = Head(
            version=version,
            point=Point(state.tip, grown),
            files=held - len(change.removed) + len(change.added) + len(new),
            checkpoint=-1 if before is None else before.checkpoint,
            actions=actions,
            closed=False,
            retention_ms=retention_ms,
            table_id=self._new_id() if before is None else before.table_id,
        )
        since = version - max(head.checkpoint, 0)
        pays = since >= FEW_VERSIONS and actions * PAYS >= head.files
        if is_last and (pays or since >= CHECKPOINT_VERSIONS):
            head = head._replace(checkpoint=version, actions=0)
        return _Step(state, head, change, new, is_last)

    def _new_id(self) -> str:
        return str(uuid.UUID(hex=self._chain.env.new_id()))

    def _changes(self, old: TopicState, ends: Sequence[int], new: TopicState) -> Changes | Blocked:
        leaves: dict[str, Leaf] = {}
        while True:
            answer = table.changes(old, ends, new, leaves)
            if not isinstance(answer, NeedLeaves):
                return answer
            for uid in answer.uids:
                leaf = self._stored.leaf(uid)
                if leaf is None:
                    old, new = self._stored.readable(old), self._stored.readable(new)
                    break
                leaves[uid] = leaf

    def _replacement(
        self, old: TopicState, ends: Sequence[int], new: TopicState
    ) -> Changes | Blocked:
        """From one state to another whatever lies between them: all files that differ go and
        come."""
        there = {extent.segment for part in self._files(old, ends) for extent in part}
        change = self._changes(EMPTY_STATE, (), new)
        if isinstance(change, Blocked):
            return change
        stays = {extent.segment for extent in change.new}
        gone = (e for part in self._files(old, ends) for e in part if e.segment not in stays)
        return change._replace(
            removed=tuple(Removal(extent, takes_records=True) for extent in gone),
            new=tuple(extent for extent in change.new if extent.segment not in there),
            ends=change.grown,
        )

    def _reachable(
        self, old: TopicState, ends: Sequence[int], newest: TopicState
    ) -> _Reachable | None:
        """The newest state that a table can have without a rewrite, and the step to it: nothing
        that the log has leaves the table, so no end goes back. None: there is none yet."""
        for state in self._uncut(old.tip, newest):
            change = self._changes(old, ends, state)
            is_whole = isinstance(change, Blocked)
            if isinstance(change, Blocked):
                change = self._replacement(old, ends, state)
            if isinstance(change, Blocked) or any(map(operator.lt, change.grown, ends)):
                continue
            # What only an older state needs may be gone, or was never copied.
            if state is newest or all(map(self._is_there, (*change.added, *change.new))):
                return _Reachable(state, change, is_whole)
        logger.info("%s: the table waits: the log start cuts a file of it", newest.topic)
        return None

    def _uncut(self, after: int, newest: TopicState) -> Iterator[TopicState]:
        """A state, those before each log start that was moved since another one, and that one,
        from which ends may still grow."""
        yield newest
        tried = 0
        for number in range(newest.tip - 1, max(after, newest.tip - LOOKED_BACK) - 1, -1):
            stored = self._chain.read_entry(number)
            if stored is None or tried == STATES_TRIED:
                return
            if isinstance(stored.entry.body, Trim) or number == after:
                state = self._stored.at(number)
                if state.alive and settings_of(state.config).has_table:
                    tried += 1
                    yield state

    def _is_there(self, extent: Extent) -> bool:
        name = f"{self._chain.folder}/{topic_table.path_of(extent)}"
        return self._chain.store.info(name) is not None

    def _put(self, step: _Step, before: Head | None, now_ms: int) -> bool:
        """Whether it is the next version now."""
        state = step.state
        text = topic_table.version_text(
            step.head,
            state.topic,
            now_ms,
            removed=step.change.removed,
            added=step.change.added,
            new=step.new,
            before=before,
        )
        if not self._land(step.head.version, text):
            return False
        logger.info(
            "%s: version %d of the table: %d files, %d new, %d removed",
            state.topic,
            step.head.version,
            step.head.files,
            len(step.new),
            len(step.change.removed),
        )
        if step.head.checkpoint == step.head.version:
            self._checkpoint(step.head, state, now_ms)
        return True

    def _land(self, version: int, text: bytes) -> bool:
        error = ""
        self._chain.check_place()
        for _ in range(UNANSWERED):
            result = self._log.put(version, text)
            if isinstance(result, Unknown):
                error = result.error
                if result.waited:
                    break
                continue
            if isinstance(result, Conflict) and self._log.version(version) != text:
                return False
            assert isinstance(result, Committed | Conflict)
            if version == 0:
                self._chain.store.settle(self._chain.folder)
            note = topic_table.encode_note(version)
            self._chain.store.put(self._note, note, durable=False)
            return True
        raise StorageError(f"No answer came to {self._log.name(version)}: {error}")

    def _ours(self, found: tuple[int, bytes] | None) -> Head | None:
        """What the newest version says; None where there is none, or somebody else wrote it."""
        try:
            return None if found is None else self._head(*found)
        except InvalidRequestError:
            return None

    def _close(
        self,
        found: tuple[int, bytes] | None,
        before: Head | None,
        state: TopicState,
        now_ms: int,
        advance: bool,
    ) -> Head | None:
        """Take all files out of a table that is not wanted any more, and let nobody read it: an
        empty table would say that there are no records. None if there was nothing to close, or
        somebody else put a version first."""
        if found is None:
            return None
        version, _ = found
        if before is not None and before.closed:
            if not advance or before.point.tip == state.tip:
                return before
            head = before._replace(version=version + 1, point=Point(state.tip, ()))
            if head.version - max(head.checkpoint, 0) >= CHECKPOINT_VERSIONS:
                head = head._replace(checkpoint=head.version, actions=0)
            text = topic_table.version_text(head, state.topic, now_ms, before=before)
            if not self._land(version + 1, text):
                return None
            if head.checkpoint == head.version:
                self._checkpoint(head, state, now_ms)
            return head
        read = self._log.replayed()
        if read.version != version:
            return None
        known = topic_table.unknown(version, str(read.metadata.get("id")))
        head = (before or known)._replace(
            version=version + 1, point=Point(state.tip, ()), files=0, closed=True
        )
        text = topic_table.version_text(
            head, state.topic, now_ms, paths=sorted(read.adds), before=before or known
        )
        return head if self._land(version + 1, text) else None

    # --- checkpoints -----------------------------------------------------------------------

    def _checkpoint(self, head: Head, state: TopicState, now_ms: int) -> None:
        """Best effort: the log is all that a reader needs."""
        try:
            removed = self._young_removals(head, now_ms)
            files = iter(()) if head.closed else self._files(state, head.point.ends)
            data, rows = topic_table.checkpoint(head, state.topic, now_ms, files, removed)
            self._log.store_checkpoint(head.version, data, rows, head.files, {})
            self._log.drop_old(now_ms - max(head.retention_ms, topic_table.LOG_MS))
        except OffsetLogError as error:
            logger.warning("%s: no checkpoint was stored: %s", state.topic, str(error))

    def _files(self, state: TopicState, ends: Sequence[int]) -> Iterator[list[Extent]]:
        """All files of a version, a leaf of the index at a time."""
        for uid, fences in live_fences(state).items():
            leaf = self._stored.leaf(uid)
            if leaf is None:
                raise CorruptLogError(f"{names.LeafName(self._chain.folder, uid)} can't be read.")
            spans = [leaf.span(f.partition, f.base, f.end) for f in fences]
            chosen = [leaf.extent(i) for span in spans for i in segments_of(leaf, span)]
            yield list(table.files(state, ends, chosen))
        for part in state.parts:
            yield list(table.files(state, ends, part.tail.overlapping(part.start, part.end)))

    def _young_removals(self, head: Head, now_ms: int) -> list[Action]:
        """Files that were removed within the grace period, as the newest checkpoint says and the
        versions after it: a checkpoint keeps them for whoever cleans."""
        since = self._log.newest_checkpoint()
        try:
            removed = self._log.removed_files(since) if 0 <= since < head.version else {}
        except CorruptLogError:
            removed = {}  # Else none would ever come after a broken one.
        for version in range(max(since, -1) + 1, head.version + 1):
            data = self._log.version(version)
            for action in delta_log.actions_of(data or b"", self._log.name(version)):
                if "remove" in action:
                    removed[action["remove"]["path"]] = action["remove"]["deletionTimestamp"]
                elif "add" in action:
                    removed.pop(action["add"]["path"], None)
        return [
            {"path": path, "deletionTimestamp": time}
            for path, time in sorted(removed.items())
            if time >= now_ms - head.retention_ms
        ]

    def files(self, head: Head) -> Iterator[list[Extent]]:
        """What a version names, as the chain says."""
        return self._files(self._stored.at(head.point.tip), head.point.ends)


class _Reachable(NamedTuple):
    state: TopicState
    change: Changes
    is_whole: bool
    """All files that differ go and come."""


class _Step(NamedTuple):
    state: TopicState
    head: Head
    change: Changes
    new: Sequence[Extent]
    is_last: bool


def _ends_with(change: Changes, new: Sequence[Extent]) -> tuple[int, ...]:
    """The table's ends with some of the new files, which come by partition and offset."""
    if len(new) == len(change.new):
        return change.grown
    if not new:
        return change.ends
    last = new[-1].partition
    return (*change.grown[:last], new[-1].end, *change.ends[last + 1 :])
