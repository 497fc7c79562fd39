"""One topic's chain, driven: fold it forward, and land entries on it.

Invariants:

1. ``state`` is the true fold of the chain up to its tip. It only moves forward.
2. ``land`` answers after the fold has passed the place where its entry landed, and with the
   fold's word on it. What the state at hand already voids is not put.
3. An entry of ours whose fate is open can land at one name only, and the next entry of ours
   starts at that name.
4. An idle look is one request.
5. No state is taken from a snapshot that the chain does not reach: the entry below its tip is
   there. On a server that costs one request, and only when nothing came after the snapshot.
6. A name that is missing is the end of the chain, or corruption if a later one stays in sight. A
   look that ends at one looks beyond it when the topic is opened, and from then on now and then:
   without a stored state it lists the folder, else it asks for the next name, and on a disk for
   some behind that, the farther the sparser. Nothing is put at a name that stayed missing.
7. What is acknowledged lies in the chain that was folded, and not in a folder that took its
   place, and nothing of another chain is folded upon the state of this one: an entry that is
   known is looked at again. On a disk that is done for each put and each entry that is folded,
   by the file's identity; on a server it is a request, so it is done now and then.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple

from offsetlog.core.topic import landing
from offsetlog.core.topic.entry import Entry, Verdict, Void
from offsetlog.core.topic.fold import judge, step
from offsetlog.core.topic.state import EMPTY_STATE, TopicState, rebase
from offsetlog.engine.env import Env
from offsetlog.engine.topic.recent_entries import RecentEntries
from offsetlog.errors import CorruptLogError, OffsetLogError, StorageError, UnknownTopicError
from offsetlog.format import entries as entry_format
from offsetlog.format.entries import StoredEntry
from offsetlog.format.names import (
    BUCKET_ENTRIES,
    EntryName,
    SnapshotName,
    bucket_folder,
    parse_entry,
)
from offsetlog.logs import get_logger
from offsetlog.storage.faults import SilenceError
from offsetlog.storage.store import Committed, Conflict, Offer, PutResult, Store

COMPANY_ENTRIES = 64
"""For so many entries after somebody else's a writer gives way as in company."""
ALONE_PART = 0.2
"""The part of a put's latency within which a writer that is alone gives way."""
LONGEST_PUT = 2.0
"""Seconds of a put that are believed to be the store's: a process that stood still in the middle
of one must not give way for as long as it stood."""
PROVEN_SECONDS = 600.0
"""For so long a chain on a server is believed to be the one that was folded."""
MAX_AGE_SECONDS = 5.0
"""No read is planned from an older state: what an erasure took is in no read that begins so long
after it returned, whatever process reads."""
MISSING_LOOKS = 5
"""Looks for a name that is missing although a later one was seen."""
BEYOND_SECONDS = 60.0
"""For so long the end of a chain is believed to be one."""

logger = get_logger(__name__)


class FolderTakenError(UnknownTopicError):
    """Another topic lies in the folder: what was folded tells nothing of it."""


class LandedEntry(NamedTuple):
    """``number`` is None when the entry was void before it was put."""

    number: int | None
    verdict: Verdict


class Ahead(NamedTuple):
    """What was at the next name."""

    number: int
    stored: StoredEntry | None
    asked_at: float
    """Before the request began."""
    beyond: int | None
    """If nothing was: the number of a later entry that is there."""


class _Anchor(NamedTuple):
    """An entry that was folded; no other will ever be at its number."""

    number: int
    write_id: str
    name: str


class Chain:
    def __init__(
        self,
        store: Store,
        folder: str,
        env: Env,
        pool: ThreadPoolExecutor | None = None,
        recent: RecentEntries | None = None,
    ) -> None:
        self.store = store
        self.folder = folder
        self.env = env
        self.state: TopicState = EMPTY_STATE
        self._pool = None if store.is_local else pool
        self._lock = env.new_lock()
        self._watched: dict[str, LandedEntry | None] = {}
        if recent is None:
            recent = RecentEntries(env.limits.recent_bytes)
        self._recent = recent.of_chain()
        self._undecided: int | None = None
        self._anchor: _Anchor | None = None
        self._stamp_of: Callable[[str], object] | None = store.stamp if store.has_stamps else None
        self._stamp: object = None
        """Of the anchor's file, when it was last seen to be the anchor."""
        self._proven_until = float("-inf")
        self._whole_at = float("-inf")
        """All that was acknowledged before is in the state: the last look that reached the end of
        the chain began then."""
        self._lost = False
        """Whether the last look at the anchor did not find it."""
        self._end_proven_until = float("-inf")
        """Until then nobody looks whether anything lies beyond the end."""
        self._gap: tuple[int, int] | None = None
        """An entry that stayed missing, and a later one that was seen. Nothing is put there."""
        self.open_stored: Callable[[int], TopicState | None] | None = None
        """Gives the newest stored state whose tip is at most a number."""
        self._others_at = -COMPANY_ENTRIES
        """Number of the newest entry that is not ours."""
        self._put_seconds = 0.0
        self._hits = 0
        self._not_before = 0.0

    # --- reading ---------------------------------------------------------------------------

    def resume(self, stored: TopicState) -> TopicState:
        """Begin with a stored state, and fold forward from there."""
        with self._lock:
            if self.store.is_local:
                self.check_reaches(stored.tip)
                self._anchor_below(stored.tip)
            if stored.tip >= self.state.tip:
                self.state = stored
            state = self.refresh(asked=2)  # There are mostly some, some 30 at the most.
            if state.tip == stored.tip and not self.store.is_local:
                try:
                    self.check_reaches(stored.tip)
                except OffsetLogError:
                    self.state = EMPTY_STATE
                    raise
            return state

    def check_reaches(self, tip: int) -> None:
        """Is the entry below the tip of a stored state there? A snapshot is stored after all
        entries below it, so a chain that ends before it has lost some, or was copied before it."""
        if not tip:
            return
        last = str(EntryName(self.folder, tip - 1))
        for attempt in range(MISSING_LOOKS):
            if self.store.get(last, 0, 1) is not None:
                return
            self.env.sleep(0.02 * 2**attempt)
        raise CorruptLogError(
            f"The chain ends before its newest snapshot: {SnapshotName(self.folder, tip)} is "
            f"there, and {last} is missing.",
            f"Restore the entries that were lost. In a copy that was made with _log before "
            f"_snapshot, delete {self.folder}/_snapshot and {self.folder}/_index, which are "
            "caches: the copy then ends with its last entry.",
        )

    def _anchor_below(self, tip: int) -> None:
        try:
            last = self._get(tip - 1) if tip else None
        except CorruptLogError:
            return  # Whoever reads it reports it.
        if last is not None and self._anchor is None:
            self._anchor_to(tip - 1, last.entry.write_id)

    def _anchor_to(self, number: int, write_id: str) -> None:
        self._anchor = _Anchor(number, write_id, str(EntryName(self.folder, number)))
        if self._stamp_of is not None:
            self._stamp = self._stamp_of(self._anchor.name)
        self._proven_until = self.env.monotonic() + PROVEN_SECONDS

    def doubt(self) -> None:
        """Something is odd: look again before the next entry is put."""
        self._proven_until = float("-inf")

    def keeps_place(self) -> bool:
        """Whether the chain that was folded is the one in the folder, as far as that can be told
        without a request."""
        if self._stamp_of is None or self._anchor is None:
            return not self._lost
        try:
            self.check_place()
        except UnknownTopicError:
            return False
        return True

    @property
    def has_free_looks(self) -> bool:
        """Whether ``is_unchanged`` tells without a request."""
        return self._stamp_of is not None

    def is_unchanged(self) -> bool:
        """Whether no entry came since the last look, as far as that can be told without a request:
        False where it takes one."""
        if self._stamp_of is None:
            return False  # It would take a request.
        following = str(EntryName(self.folder, self.state.tip))
        return self._stamp_of(following) is None and self.keeps_place()

    def check_not_taken(self) -> None:
        """Raise if another chain is in the topic's folder. One that is not in sight may be there
        again later: a disk may be unmounted."""
        try:
            self.check_place()
        except FolderTakenError:
            raise FolderTakenError(
                f"Another topic took the folder of topic {self.state.topic!r} since this program "
                "opened it: the offsets of the old one are not those of the new one.",
                "Open the log again, or make a new consumer. A group that read the old topic is "
                "reset first.",
            ) from None
        except UnknownTopicError:
            return

    def check_place(self) -> None:
        """Raise if the topic's folder was removed, or if another chain is in its place."""
        anchor = self._anchor
        if anchor is None:
            return
        stamp: object = None
        if self._stamp_of is not None:
            stamp = self._stamp_of(anchor.name)
            if stamp is not None and stamp == self._stamp:
                return
        elif self.env.monotonic() < self._proven_until:
            return
        stored = self._get(anchor.number)
        self._lost = stored is None or stored.entry.write_id != anchor.write_id
        if self._lost:
            is_taken = stored is not None or self._get(0) is not None
            raise (FolderTakenError if is_taken else UnknownTopicError)(
                f"The folder of topic {self.state.topic!r} was removed, or another one took its "
                "place, since this program opened it; nothing was written.",
                "Open the log again. A topic is purged, or its folder removed, only when nobody "
                "writes to it.",
            )
        self._stamp = stamp
        self._proven_until = self.env.monotonic() + PROVEN_SECONDS

    def rebase(self, stored: TopicState) -> TopicState:
        """Put the state upon the index of a newer stored one: its tails become short."""
        with self._lock:
            if stored.tip > self.state.tip and not self._watched:
                self.check_reaches(stored.tip)
                self.doubt()
                self.check_not_taken()
                self.state = stored
            else:
                # An entry of ours on its way must be met in the fold, not passed in a leap.
                if stored.tip:
                    self.fold_to(stored.tip - 1)
                self.state = rebase(self.state, stored.index)
            return self.state

    def replace_state(self, state: TopicState) -> TopicState:
        """Begin again from another stored state, because what ours rests on cannot be read."""
        with self._lock:
            if self._watched and state.tip:
                self.fold_to(state.tip - 1)
            elif state.tip > self.state.tip:
                self.check_reaches(state.tip)
            self.state = self.fold_aside(state, self.state.tip)
            return self.state

    def fold_aside(self, state: TopicState, tip: int) -> TopicState:
        """``state`` folded forward to ``tip``, beside the chain's own state, which others use."""
        while state.tip < tip:
            numbers = range(state.tip, min(tip, state.tip + self.env.limits.window))
            for number, stored in zip(numbers, self.read_entries(numbers), strict=True):
                if stored is None:
                    raise CorruptLogError(
                        f"{EntryName(self.folder, number)} is missing, though it was there.",
                        "Restore it from a backup; 'offsetlog verify' names all faults.",
                    )
                state, _ = step(state, stored.entry)
        return state

    def read_entries(self, numbers: Sequence[int]) -> list[StoredEntry | None]:
        """Several at once, where the storage makes one wait for each."""
        if self._pool is None or len(numbers) == 1:
            return [self.read_entry(number) for number in numbers]
        return list(self._pool.map(self.read_entry, numbers))

    def refresh(self, asked: int = 1) -> TopicState:
        """Fold forward until a name is not there. An idle look is one request, and one that
        finds one new entry is two; who is far behind asks for more and more at once.
        ``asked``: how many names a second look asks for."""
        with self._lock:
            # Behind a stored state the look beyond the end, where it is due, is in the same wait.
            is_due = self._pool is not None and self.state.index.seq > 0 and self._doubts_end()
            width = 2 if is_due else 1
            while True:
                began = self.env.elapsed()
                folded = self._fold_window(width)
                if folded < width and not self._passed_gap(folded + 1 < width):
                    self._whole_at = began
                    return self.state
                if self._pool is not None:
                    width, asked = min(self.env.limits.window, asked), 2 * asked

    @property
    def is_old(self) -> bool:
        """Whether the state may miss what was acknowledged ``MAX_AGE_SECONDS`` ago."""
        return self.env.elapsed() - self._whole_at >= MAX_AGE_SECONDS

    def advance(self, ahead: Ahead | None = None) -> TopicState:
        """Fold what is there of the next names, in one go: an idle look is one request, and so
        is a look that finds one new entry. A reader that is far behind asks for more each time.
        ``ahead`` is the answer to that request, where it was asked already."""
        with self._lock:
            if ahead is not None and ahead.number == self.state.tip:
                self._hits = 0 if ahead.stored is None else self._hits + 1
                if ahead.stored is not None:
                    self.check_not_taken()
                    self._fold_one(ahead.number, ahead.stored)
                elif ahead.beyond is not None:
                    self._await_entry(ahead.number, ahead.beyond)
                else:
                    self._whole_at = max(self._whole_at, ahead.asked_at)
                return self.state
            # Two hits in a row may be chance; from the third on there is a backlog.
            limit = 1 if self._pool is None else self.env.limits.window
            width = min(limit, 2 ** max(0, self._hits - 2))
            began = self.env.elapsed()
            full = self._fold_window(width) == width or self._passed_gap()
            self._hits = self._hits + 1 if full else 0
            if not full:
                self._whole_at = began
            return self.state

    def ask_ahead(self) -> Ahead | None:
        """The next name, asked for before the look; what is wrong with it that look says."""
        number, began = self.state.tip, self.env.elapsed()
        try:
            if self._hits > 2:
                return None
            stored = self._get(number)
            beyond = self._seen_beyond(number) if stored is None else None
            return Ahead(number, stored, began, beyond)
        except SilenceError:
            raise  # To ask once more takes as long again.
        except OffsetLogError:
            return None

    def read_entry(self, number: int) -> StoredEntry | None:
        """An entry as it is stored: from memory if it was folded or read lately, else one
        request."""
        stored = self._recent.get(number)
        if stored is None:
            stored = self._get(number)
            if stored is not None:
                self._recent.keep(number, stored)
        return stored

    def recent(self, number: int) -> StoredEntry | None:
        """An entry that was folded or read lately; None if it would have to be asked for."""
        return self._recent.get(number)

    def fold_to(self, number: int) -> None:
        """Fold forward until entry ``number`` is part of the state; it must be there."""
        with self._lock:
            while self.state.tip <= number:
                if not self._fold_window(min(self.env.limits.window, number - self.state.tip + 1)):
                    self._await_entry(self.state.tip, number)

    def _fold_window(self, width: int) -> int:
        """Ask for the next ``width`` names and fold what is there, up to the first hole."""
        tip = self.state.tip
        numbers = range(tip, tip + width)
        if self._pool is None or width == 1:
            got: Iterator[StoredEntry | None] = (self._get(n) for n in numbers)
        else:
            got = self._pool.map(self._get, numbers)
        folded = 0
        hole = False
        for number, stored in zip(numbers, got, strict=True):
            self.check_not_taken()
            if stored is None:
                hole = True
                if self._pool is None:
                    break
            elif hole:
                self._await_entry(self.state.tip, number)
                return width
            else:
                self._fold_one(number, stored)
                folded += 1
        return folded

    def _doubts_end(self) -> bool:
        return self.env.monotonic() >= self._end_proven_until

    def _passed_gap(self, next_is_missing: bool = False) -> bool:
        """Whether the name at which a look ended came into sight, because a later one is there;
        corruption if it does not. ``next_is_missing``: the one after it is not there either."""
        seen = self._seen_beyond(self.state.tip, next_is_missing)
        if seen is not None:
            self._await_entry(self.state.tip, seen)
        return seen is not None

    def _seen_beyond(self, tip: int, next_is_missing: bool = False) -> int | None:
        """Number of an entry above ``tip``, which is not there, if it is time to look for one and
        one is found. What has no entry 0 is no topic yet, or none any more."""
        if not tip or not self._doubts_end():
            return None
        for number in self._numbers_beyond(tip, next_is_missing):
            if self.store.get(str(EntryName(self.folder, number)), 0, 1) is not None:
                return number
        self._end_proven_until = self.env.monotonic() + BEYOND_SECONDS
        return None

    def _numbers_beyond(self, tip: int, next_is_missing: bool) -> list[int]:
        """Those above ``tip`` that may be there."""
        if self._end_proven_until < 0 and not self.state.index.seq:
            # Of a chain without a stored state this is mostly one page.
            listed = (parse_entry(f.name) for f in self.store.list(bucket_folder(self.folder, tip)))
            return [name.number for name in listed if name is not None and name.number > tip][:1]
        if self.store.is_local:
            return [tip + 2**power for power in range(BUCKET_ENTRIES.bit_length())]
        return [] if next_is_missing else [tip + 1]

    def _await_entry(self, missing: int, seen: int) -> None:
        """A later name was seen, so this one must come into sight; else the chain has a hole."""
        for attempt in range(MISSING_LOOKS):
            stored = self._get(missing)
            if stored is not None:
                self.check_not_taken()
                self._fold_one(missing, stored)
                return
            self.env.sleep(0.02 * 2**attempt)
        self._gap = missing, seen
        raise CorruptLogError(
            f"{EntryName(self.folder, missing)} is missing, though entry {seen} is there.",
            "Restore it from a backup; 'offsetlog verify' names all faults.",
        )

    def _get(self, number: int) -> StoredEntry | None:
        name = str(EntryName(self.folder, number))
        data = self.store.get(name, 0, entry_format.MAX_ENTRY_BYTES + 1)
        return None if data is None else entry_format.decode(data, name)

    def _fold_one(self, number: int, stored: StoredEntry) -> None:
        if number != self.state.tip:
            return
        state, verdict = step(self.state, stored.entry)
        write_id = stored.entry.write_id
        if self._anchor is None:
            self._anchor_to(number, write_id)
        # An interrupt here (Ctrl-C) must not leave a state that passed an entry of another
        # thread without that thread's learning of it.
        if write_id not in self._watched:
            self._others_at = number
        elif self._watched[write_id] is None:
            self._watched[write_id] = LandedEntry(number, verdict)
        self.state = state
        self._recent.keep(number, stored)

    # --- landing ---------------------------------------------------------------------------

    def land(self, stored: StoredEntry, tried: list[int] | None = None) -> LandedEntry:
        """Put an entry at the tip, and fold up to it. One call at a time for a sender.

        ``tried`` takes the numbers where the bytes may be. An error says ``may_have_landed``
        whenever they may be at one of them and the fold has not told."""
        write_id = stored.entry.write_id
        if self._gap is not None and self._gap[0] == self.state.tip:
            self._await_entry(*self._gap)
        void = judge(self.state, stored.entry)
        if void is not None:
            return LandedEntry(None, void)
        tried = [] if tried is None else tried
        self._watched[write_id] = None
        try:
            number = self._put_until_decided(stored, tried)
            self._undecided = None
            if isinstance(number, Void):
                return LandedEntry(None, number)
            if self._stamp_of is not None:
                # The chain may have been removed meanwhile: then nobody will read the entry.
                try:
                    self.check_place()
                except UnknownTopicError:
                    tried.clear()
                    raise
            return self._fold_own(stored, number)
        except OffsetLogError as error:
            if isinstance(error, FolderTakenError) and self._stamp_of is not None:
                tried.clear()  # What was put lies in the folder that went.
            if tried:
                error.may_have_landed = True
            raise
        finally:
            del self._watched[write_id]

    def _put_until_decided(self, stored: StoredEntry, tried: list[int]) -> int | Void:
        """The number where the bytes landed; or why they never will."""
        entry = stored.entry
        number = self.state.tip if self._undecided is None else self._undecided
        stored.name = str(EntryName(self.folder, number))
        way = landing.Landing(number, self.env.limits.landing)
        action: landing.PutAt | landing.FindTip | landing.GiveUp = landing.PutAt(number)
        offer = self.store.offer(stored.data, stored.name)
        try:
            offer.check = self.check_place
            if not offer.calls_check:
                self.check_place()
            while True:
                if isinstance(action, landing.GiveUp):
                    raise self._open_fate(action.number, action.error)
                if isinstance(action, landing.FindTip):
                    tip = self.refresh().tip
                    landed = self._watched[entry.write_id]
                    if landed is not None and landed.number is not None:
                        return self._settled(landed.number)
                    void = judge(self.state, entry)
                    if void is not None:
                        return void
                    way, action = way.looked(tip)
                if action.number != number:
                    number = action.number
                    stored.name = str(EntryName(self.folder, number))
                if action.again:
                    logger.debug("No answer to the put of %s; trying again.", stored.name)
                    self.env.sleep(0.05 * 2**action.again * (0.5 + self.env.chance()))
                try:
                    result = self._put(offer, number, stored.name)
                except OffsetLogError as error:
                    if way.unknown or error.may_have_landed:
                        tried.append(number)
                        raise self._open_fate(number, str(error)) from error
                    return self._refused(entry, number, error, tried)
                tried.append(number)
                if isinstance(result, Committed):
                    return number
                if isinstance(result, Conflict):
                    logger.debug("%s is another writer's; going on to the next.", stored.name)
                    way, action = way.conflicted()
                else:
                    way, action = way.unanswered(result.error, result.waited)
        except OffsetLogError:
            raise
        except BaseException:
            # Ctrl-C, wherever it struck: the bytes may be, or come to be, at the last name.
            tried.append(number)
            self._undecided = number
            raise
        finally:
            offer.close()

    def _refused(self, entry: Entry, number: int, error: OffsetLogError, tried: list[int]) -> int:
        """The put at ``number`` was refused. An earlier name may hold our own file all the
        same, behind a conflict that hid a lost answer: only the fold up to here tells."""
        if tried:
            self.fold_to(number - 1)
        landed = self._watched[entry.write_id]
        if landed is not None and landed.number is not None:
            return self._settled(landed.number)
        tried.clear()
        raise error

    def _settled(self, number: int) -> int:
        """Our own entry was met at ``number``, and no put said that its name is durable."""
        self.store.settle(bucket_folder(self.folder, number))
        return number

    def _put(self, offer: Offer, number: int, name: str) -> PutResult:
        if not self.store.is_local:
            self.env.sleep(max(0.0, self._not_before - self.env.monotonic()))
        elif number % BUCKET_ENTRIES == 0 and number:
            # A power cut must not keep this entry and lose one before it.
            self.store.settle(bucket_folder(self.folder, number - 1))
        before = self.env.monotonic()
        result = offer.put(name)
        if isinstance(result, Committed):
            now = self.env.monotonic()
            took = min(LONGEST_PUT, now - before)
            before_it = self._put_seconds or took
            self._put_seconds = before_it * 0.8 + took * 0.2
            # The winner of a name asks for the next one first, and would win forever.
            # Alone, a small part is enough to let a newcomer in after a few rounds.
            company = number - self._others_at <= COMPANY_ENTRIES
            part = 1.0 if company else ALONE_PART
            self._not_before = now + self.env.chance() * part * self._put_seconds
        return result

    def _open_fate(self, number: int, error: str) -> StorageError:
        self._undecided = number
        logger.info("%s may have landed: %s", EntryName(self.folder, number), str(error))
        return StorageError(
            f"No answer came to the write of {EntryName(self.folder, number)}: {error}",
            "It may have landed. Send it again with the same app_id and sequence, or look.",
            may_have_landed=True,
        )

    def _fold_own(self, stored: StoredEntry, number: int) -> LandedEntry:
        """Fold up to ``number``, where our bytes are: they need not be read back."""
        write_id = stored.entry.write_id
        with self._lock:
            if self.state.tip < number:
                self.fold_to(number - 1)
            if self.state.tip == number and self._watched[write_id] is None:
                self._fold_one(number, stored)
        landed = self._watched[write_id]
        if landed is None:
            raise CorruptLogError(
                f"{EntryName(self.folder, number)} holds another entry than was put there."
            )
        return landed

    def place(self, number: int, write_id: str) -> Verdict | None:
        """The fold's word on an old entry; None if it is another's."""
        landed = self.entry_at(number)
        return None if landed is None or landed[0].write_id != write_id else landed[1]

    def entry_at(self, number: int) -> tuple[Entry, Verdict] | None:
        """An old entry and the fold's word on it, found by folding to it; None: there is none."""
        stored = self.read_entry(number)
        if stored is None:
            return None
        state = self.fold_aside(self.state_before(number), number)
        return stored.entry, step(state, stored.entry)[1]

    def state_before(self, number: int) -> TopicState:
        """A state at or before ``number``: a stored one where there is one."""
        stored = self.open_stored(number) if self.open_stored is not None else None
        return EMPTY_STATE if stored is None else stored


def ask_all_ahead(chains: Sequence[Chain]) -> list[Ahead | None]:
    """For who is about to advance several: where each makes one wait, all are asked at once."""
    pool = chains[0]._pool if len(chains) > 1 else None
    return [None] * len(chains) if pool is None else list(pool.map(Chain.ask_ahead, chains))
