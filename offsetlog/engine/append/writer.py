"""From a batch of records to an entry that landed.

Invariants:

1. A batch keeps its number, its ``born``, its digest and its rows through all of its tries,
   also from one call to the next while its fate is open.
2. An answer is given only from the fold's word: counted, or what being void means here.
3. A number that counted before is acknowledged only when its entry is durable, whoever put it
   there; and, but for Spark's own re-runs, only for the same rows. They are compared under the
   partition count that the entry was hashed with, so adding partitions makes no retry another.
4. Whatever interrupts a try (Ctrl-C too), the next one of the number knows where it may be.
"""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple, Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from offsetlog.core.topic.entry import Append, Counted, Entry, Part, Placed, Void, VoidReason
from offsetlog.core.topic.state import TopicState
from offsetlog.engine.append.segment_writer import SegmentWriter
from offsetlog.engine.topic.chain import Chain
from offsetlog.errors import (
    CorruptLogError,
    FencedError,
    InvalidRequestError,
    OffsetLogError,
    StorageError,
    UnknownTopicError,
)
from offsetlog.format import entries as entry_format
from offsetlog.format import record_schema as rows
from offsetlog.format.names import bucket_folder
from offsetlog.logs import get_logger
from offsetlog.values import NO_TIMESTAMP, settings_of

CONDEMNED_TRIES = 2
KEYS_REMEMBERED = 10_000
DELIVERY_SECONDS = 120.0
logger = get_logger(__name__)


class Sender(NamedTuple):
    """Who sends: an id that this process made up, or a caller's key."""

    app: str
    seq: int
    own: bool
    reruns: bool = False
    """Runs its batches again by itself, as Spark does: a number that counted stands for its
    batch, whatever the rows are this time, and so does a lower one."""


class Receipt(NamedTuple):
    """Where an acknowledged batch lies, run after run of its (sorted) rows."""

    placed: tuple[Placed, ...]
    entry: int
    duplicate: bool = False
    """It was there already, by an earlier call with the same key."""
    hashed_with: int = 0
    """The partition count that its rows were placed by."""


class _Number(NamedTuple):
    """A sender's number on its way, kept from one try to the next until its fate is known."""

    seq: int
    born: int
    tries: list[tuple[str, list[int]]]
    """(write id, numbers of the entries where it may have landed), of tries without an answer."""


class AppendPayload(Protocol):
    """What an entry carries."""

    @property
    def digest(self) -> str:
        """Of the logical rows and their partitions, fixed before the first try."""

    @property
    def ts_type(self) -> int:
        """Whose time its rows have. It is theirs and not the topic's, whose config may change
        between their preparing and the entry."""

    def digest_under(self, partitions: int) -> str:
        """The digest that the same rows have when keys are hashed with so many partitions."""

    def parts(self, segment_writer: SegmentWriter, state: TopicState) -> tuple[Part, ...]:
        """What the entry says of the rows, whose segments are written then. When it is asked
        for again, an entry with the parts of the last time was void or failed."""

    def inline(self) -> pa.Table:
        """The rows of the parts that have no segment, in their order."""


class Writer:
    """Appends batches to one topic, one at a time for each sender."""

    def __init__(self, chain: Chain, pool: ThreadPoolExecutor | None) -> None:
        self.chain = chain
        self._segment_writer = SegmentWriter(chain.store, chain.folder, chain.env, pool)
        self._now_ns = chain.env.stamp()
        self._open: dict[str, _Number] = {}
        self._open_lock = threading.Lock()
        self.until = float("inf")
        """When the log was closed or the program ended: no try begins after this time."""

    def deliver(
        self, load: AppendPayload, sender: Sender, hashed_with: int, created_at_entry: int
    ) -> Receipt:
        """Try until it is acknowledged, refused, or too late."""
        env = self.chain.env
        deadline = env.monotonic() + DELIVERY_SECONDS
        pause = 0.1
        while True:
            try:
                return self.append(load, sender, hashed_with, created_at_entry)
            except OffsetLogError as error:
                late = env.monotonic() + pause > min(deadline, self.until)
                if late or not error.may_have_landed or isinstance(error, CorruptLogError):
                    # An entry that can't be read stays so, however often it is asked for.
                    raise
                logger.info("An append may have landed; trying again: %s", str(error))
            env.sleep(pause * (0.5 + env.chance()))
            pause = min(5.0, 2 * pause)

    def append(
        self, load: AppendPayload, sender: Sender, hashed_with: int, created_at_entry: int
    ) -> Receipt:
        """Land a batch. The last two are of the state that it was prepared for."""
        with self._open_lock:
            number = self._open.pop(sender.app, None)
        if number is None or number.seq != sender.seq:
            number = _Number(sender.seq, self.chain.state.tip, [])
        try:
            return self._append(load, sender, hashed_with, created_at_entry, number)
        except BaseException as error:
            if number.tries:
                # Whatever went wrong this time, an earlier try may be there.
                if isinstance(error, OffsetLogError):
                    error.may_have_landed = True
                with self._open_lock:
                    self._open[sender.app] = number
                    while len(self._open) > KEYS_REMEMBERED:
                        del self._open[next(iter(self._open))]
            raise

    def _append(
        self,
        load: AppendPayload,
        sender: Sender,
        hashed_with: int,
        created_at_entry: int,
        number: _Number,
    ) -> Receipt:
        chain = self.chain
        born, condemned = number.born, 0
        if number.tries:
            chain.refresh()
        while True:
            last = (chain.state.own if sender.own else chain.state.callers).get(sender.app)
            if last is not None and sender.seq <= last.seq:
                return self._answer_duplicate(load, sender, number)
            settings = settings_of(chain.state.config)
            body = Append(
                app=sender.app,
                seq=sender.seq,
                own=sender.own,
                born=born,
                created_at_entry=created_at_entry,
                hashed_with=hashed_with,
                digest=load.digest,
                ts_type=load.ts_type,
                parts=load.parts(self._segment_writer, chain.state),
            )
            entry = Entry(chain.env.new_id(), self._now_ns() // 1_000_000, body)
            table = load.inline() if body.parts[0].segment is None else None
            stored = entry_format.encode(entry, table, settings.compression)
            tried: list[int] = []
            try:
                landed = chain.land(stored, tried)
            except BaseException:
                if tried:
                    number.tries.append((entry.write_id, tried))
                raise
            verdict = landed.verdict
            if isinstance(verdict, Counted):
                entry_number = -1 if landed.number is None else landed.number
                return Receipt(verdict.placed, entry_number, False, hashed_with)
            logger.debug("Sender %s, number %d: void, %s.", sender.app, sender.seq, verdict.detail)
            if verdict.reason == VoidReason.DUPLICATE:
                return self._answer_duplicate(load, sender, number)
            chain.refresh()
            if verdict.reason == VoidReason.FORGOTTEN:
                # The chain does not know this sender any more; its names still do.
                receipt = self._landed_before(number, hashed_with)
                if receipt is not None:
                    return receipt
                born = chain.state.tip
            elif verdict.reason == VoidReason.CONDEMNED and condemned < CONDEMNED_TRIES:
                condemned += 1
            else:
                # What is void for good here is void at the names of earlier tries as well.
                number.tries.clear()
                raise _refused(chain.state.topic or chain.folder, verdict)

    def _landed_before(self, number: _Number, hashed_with: int) -> Receipt | None:
        """Where an earlier try of this number landed and counted, if one did."""
        for write_id, tried in number.tries:
            for entry in tried:
                verdict = self.chain.place(entry, write_id)
                if isinstance(verdict, Counted):
                    return self._durable(Receipt(verdict.placed, entry, True, hashed_with))
        return None

    def stored_times(self, receipt: Receipt) -> npt.NDArray[np.int64]:
        """The timestamps that the records of a batch have which was there already, in the order of
        its rows; ``NO_TIMESTAMP`` where that takes more than a look at its entry."""
        stored = self.chain.read_entry(receipt.entry)
        body = None if stored is None else stored.entry.body
        if stored is None or not isinstance(body, Append):
            return np.empty(0, np.int64)
        if stored.inline_records and not stored.stub:
            table = stored.rows(0, stored.inline_records, ("timestamp",))
            return rows.milliseconds(table.column("timestamp"))
        times = [part.min_ts if part.min_ts == part.max_ts else NO_TIMESTAMP for part in body.parts]
        return np.repeat(np.array(times, np.int64), [part.records for part in body.parts])

    # --- what being void means -------------------------------------------------------------

    def _answer_duplicate(self, load: AppendPayload, sender: Sender, number: _Number) -> Receipt:
        """The number counted before: answer with where that lies, if it is the same batch."""
        state = self.chain.state
        last = (state.own if sender.own else state.callers).get(sender.app)
        assert last is not None
        if sender.own and (last.seq != sender.seq or last.digest != load.digest):
            raise FencedError(
                f"Another process sends as {sender.app}: its number {last.seq} counted.",
                "A process that was cloned while it sent must open the log again.",
            )
        if last.seq != sender.seq and sender.reruns:
            return self._durable(Receipt((), last.entry, True))
        if last.seq != sender.seq:
            raise InvalidRequestError(
                f"Sequence {sender.seq} of app_id {sender.app!r} is below {last.seq}, which "
                "was acknowledged before.",
                "Go on with a higher sequence.",
            )
        try:
            landed = self.chain.entry_at(last.entry)
        except OffsetLogError as error:
            error.may_have_landed = True  # The number counted; whether for these rows is not seen.
            raise
        entry, verdict = landed or (None, None)
        if entry is None or not isinstance(verdict, Counted):
            raise CorruptLogError(
                f"Entry {last.entry} of topic {state.topic!r} counted, and is not there any more.",
                "Restore it from a backup; 'offsetlog verify' names all faults.",
            )
        assert isinstance(entry.body, Append)
        hashed_with = entry.body.hashed_with
        by_caller = not (sender.own or sender.reruns)
        if by_caller and load.digest_under(hashed_with) != last.digest:
            # The number is another batch's: no try of this one can count.
            number.tries.clear()
            count = sum(run.records for run in verdict.placed)
            raise InvalidRequestError(
                f"Sequence {sender.seq} of app_id {sender.app!r} was used for other records: "
                f"entry {last.entry} of topic {state.topic!r} holds {count} under it. None of "
                "these were written.",
                "Give each batch a sequence of its own, and send a batch again with the same "
                "records in the same order.",
            )
        return self._durable(Receipt(verdict.placed, last.entry, True, hashed_with))

    def _durable(self, receipt: Receipt) -> Receipt:
        """The author of the entry may have died before its name was durable."""
        chain = self.chain
        try:
            chain.store.settle(bucket_folder(chain.folder, receipt.entry))
        except OffsetLogError as error:
            error.may_have_landed = True
            raise
        return receipt


def _refused(topic: str, verdict: Void) -> OffsetLogError:
    if verdict.reason == VoidReason.DELETED:
        return UnknownTopicError(
            f"Topic {topic!r} was deleted; nothing was written.", "Create it again, or look."
        )
    if verdict.reason == VoidReason.NO_PARTITION:
        return UnknownTopicError(f"Topic {topic!r}: there is no {verdict.detail}.")
    if verdict.reason == VoidReason.CONDEMNED:
        return StorageError(
            f"A batch for topic {topic!r} took longer than the grace period of 'maintain', twice.",
            "Raise its --grace, or send smaller batches.",
        )
    return StorageError(f"A batch for topic {topic!r} was refused: {verdict.detail}.")
