"""From a table of records to an entry that landed.

Invariants:

1. Up to ``INLINE_BYTES`` of rows travel in the entry; more go to a segment for each
   partition, written before the entry that names it.
2. A batch keeps its number, its ``born``, its digest and its rows through all of its tries,
   also from one call to the next while its fate is open.
3. An answer is given only from the fold's word: counted, or what being void means here.
"""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from ..errors import (
    CorruptLogError,
    FencedError,
    InvalidRequestError,
    OffsetLogError,
    StorageError,
    UnknownTopicError,
)
from ..format import entries as entry_format
from ..format import rows, segments
from ..format.entries import INLINE_BYTES, MAX_INLINE_RECORDS
from ..format.names import segment_name
from ..log.entry import Append, Counted, Entry, Part, Placed, Reason, SegmentRef, Void
from ..log.state import State
from ..values import settings_of
from .chain import Chain, Landed
from .digest import digest_of

CONDEMNED_TRIES = 2
KEYS_REMEMBERED = 10_000


class Sender(NamedTuple):
    """Who sends: an id that this process made up, or a caller's key."""

    app: str
    seq: int
    own: bool


class Prepared(NamedTuple):
    """Rows and their order by partition, with what an entry needs to say of them."""

    table: pa.Table
    """As it was given."""
    order: npt.NDArray[np.int64] | None
    """Row i of the sorted order is row ``order[i]`` of ``table``; None: nothing moves."""
    partitions: tuple[int, ...]
    bounds: tuple[int, ...]
    """Rows of ``partitions[i]`` are at [bounds[i], bounds[i + 1])."""
    ends: npt.NDArray[np.int64]
    """Bytes of all rows before row i, and at last of all."""
    times: npt.NDArray[np.int64]
    digest: str

    @property
    def bytes(self) -> int:
        return int(self.ends[-1])

    def rows(self, a: int, b: int) -> pa.Table:
        """Rows [a, b) of the sorted order."""
        if self.order is None:
            return self.table.slice(a, b - a)
        return self.table.take(pa.array(self.order[a:b]))


class Receipt(NamedTuple):
    """Where an acknowledged batch lies, run after run of its (sorted) rows."""

    placed: tuple[Placed, ...]
    entry: int
    duplicate: bool = False
    """It was there already, by an earlier call with the same key."""


def prepare(table: pa.Table, partition_of: npt.NDArray[np.int32]) -> Prepared:
    """Say which rows go where, keeping their order within each partition. The rows themselves
    are moved when they are written, partition by partition and in parallel."""
    digest = digest_of(table, partition_of)
    sizes = row_bytes(table)
    times = rows.milliseconds(table.column("timestamp"))
    order = None
    if len(partition_of) > 1 and (partition_of[1:] < partition_of[:-1]).any():
        # Sixteen bits are sorted by radix: many times faster than a comparing sort.
        narrow = partition_of.max() < 2**16
        order = np.argsort(
            partition_of.astype(np.uint16) if narrow else partition_of, kind="stable"
        )
        partition_of, sizes, times = partition_of[order], sizes[order], times[order]
    edges = np.flatnonzero(partition_of[1:] != partition_of[:-1]) + 1
    bounds = (0, *edges.tolist(), len(partition_of))
    ends = np.zeros(len(sizes) + 1, np.int64)
    np.cumsum(sizes, out=ends[1:])
    partitions = tuple(int(partition_of[a]) for a in bounds[:-1])
    return Prepared(table, order, partitions, bounds, ends, times, digest)


def row_bytes(table: pa.Table) -> npt.NDArray[np.int64]:
    """Bytes of each row's key and value; those of headers are shared evenly by the rows."""
    total = np.zeros(table.num_rows, np.int64)
    for name in ("key", "value"):
        column = table.column(name)
        if column.null_count < table.num_rows:
            total += np.concatenate([_lengths(chunk) for chunk in column.chunks])
    headers = table.column("headers")
    if headers.null_count < table.num_rows:
        total += headers.nbytes // table.num_rows
    return total


def _lengths(array: pa.Array) -> npt.NDArray[np.int64]:
    """Length of each value of a binary array; 0 for a null."""
    if not len(array):
        return np.empty(0, np.int64)
    first = array.offset
    offsets = np.frombuffer(array.buffers()[1], np.int32)[first : first + len(array) + 1]
    out = np.diff(offsets).astype(np.int64)
    if array.null_count:
        out[array.is_null().to_numpy(zero_copy_only=False)] = 0
    return out


class _Number(NamedTuple):
    """A sender's number on its way, kept from one try to the next until its fate is known."""

    seq: int
    born: int
    tries: list[tuple[str, list[int]]]
    """(write id, numbers of the entries where it may have landed), of tries without an answer."""


class Writer:
    """Appends batches to one topic, one at a time for each sender."""

    def __init__(self, chain: Chain, pool: ThreadPoolExecutor | None) -> None:
        self.chain = chain
        self._pool = pool
        self._used: dict[tuple[str, int], str] = {}
        self._open: dict[str, _Number] = {}

    def append(self, prepared: Prepared, sender: Sender, hashed_with: int, life: int) -> Receipt:
        """Land a batch. ``life`` and ``hashed_with`` are of the state it was prepared for."""
        chain = self.chain
        if not sender.own:
            self._used_once(prepared, sender)
        number = self._open.pop(sender.app, None)
        if number is None or number.seq != sender.seq:
            number = _Number(sender.seq, chain.state.tip, [])
        try:
            return self._append(prepared, sender, hashed_with, life, number)
        except OffsetLogError as error:
            if number.tries:
                # Whatever went wrong this time, an earlier try may be there.
                error.may_have_landed = True
                self._open[sender.app] = number
                while len(self._open) > KEYS_REMEMBERED:
                    del self._open[next(iter(self._open))]
            raise

    def _append(
        self, prepared: Prepared, sender: Sender, hashed_with: int, life: int, number: _Number
    ) -> Receipt:
        chain = self.chain
        born, condemned = number.born, 0
        if number.tries:
            chain.refresh()
        while True:
            known = (chain.state.own if sender.own else chain.state.callers).get(sender.app)
            if known is not None and sender.seq <= known.seq:
                return self._known(prepared, sender)
            body = Append(
                sender.app,
                sender.seq,
                sender.own,
                born,
                life,
                hashed_with,
                prepared.digest,
                1 if settings_of(chain.state.config).log_append_time else 0,
                self._parts(prepared),
            )
            landed = self._land(body, prepared, number)
            verdict = landed.verdict
            if isinstance(verdict, Counted):
                return Receipt(verdict.placed, -1 if landed.number is None else landed.number)
            if verdict.reason == Reason.DUPLICATE:
                return self._known(prepared, sender)
            chain.refresh()
            if verdict.reason == Reason.FORGOTTEN:
                # The chain does not know this sender any more; its names still do.
                found = self._landed_before(number)
                if found is not None:
                    return found
                born = chain.state.tip
            elif verdict.reason == Reason.CONDEMNED and condemned < CONDEMNED_TRIES:
                condemned += 1
            else:
                # What is void for good here is void at the names of earlier tries as well.
                number.tries.clear()
                raise _refused(chain.state, verdict)

    def _land(self, body: Append, prepared: Prepared, number: _Number) -> Landed:
        chain = self.chain
        entry = Entry(chain.env.new_id(), chain.env.now_ms(), body)
        table = None
        if body.parts[0].segment is None:
            table = _inline_table(prepared)
        compression = settings_of(chain.state.config).compression
        tried: list[int] = []
        data = entry_format.encode(entry, table, compression)
        try:
            return chain.land(entry, data, tried)
        except OffsetLogError:
            if tried:
                number.tries.append((entry.write_id, tried))
            raise

    def _landed_before(self, number: _Number) -> Receipt | None:
        """Where an earlier try of this number landed and counted, if one did."""
        for write_id, tried in number.tries:
            for at in tried:
                verdict = self.chain.place(at, write_id)
                if isinstance(verdict, Counted):
                    return Receipt(verdict.placed, at, duplicate=True)
        return None

    # --- rows to parts ---------------------------------------------------------------------

    def _parts(self, prepared: Prepared) -> tuple[Part, ...]:
        runs = zip(prepared.partitions, pairs(prepared.bounds), strict=True)
        # Rows without key and value weigh nothing, but an entry of them must stay small too.
        if prepared.bytes <= INLINE_BYTES and prepared.table.num_rows <= MAX_INLINE_RECORDS:
            return tuple(_part(prepared, p, a, b, None) for p, (a, b) in runs)
        config = settings_of(self.chain.state.config)
        pieces = [
            (p, low, high)
            for p, (a, b) in runs
            for low, high in _split(prepared.ends, a, b, config.segment_bytes)
        ]
        born = self.chain.state.tip

        def write(piece: tuple[int, int, int]) -> Part:
            partition, low, high = piece
            ref = self._write_segment(prepared.rows(low, high), partition, born, config.compression)
            return _part(prepared, partition, low, high, ref)

        if self._pool is None or len(pieces) == 1:
            return tuple(write(piece) for piece in pieces)
        return tuple(self._pool.map(write, pieces))

    def _write_segment(
        self, table: pa.Table, partition: int, born: int, compression: str
    ) -> SegmentRef:
        encoded = segments.encode(table, compression)
        ref = encoded.ref(born, self.chain.env.new_id())
        name = str(segment_name(self.chain.folder, partition, ref))
        self.chain.store.put(name, encoded.data)
        return ref

    # --- what being void means -------------------------------------------------------------

    def _used_once(self, prepared: Prepared, sender: Sender) -> None:
        key = (sender.app, sender.seq)
        if self._used.setdefault(key, prepared.digest) != prepared.digest:
            raise InvalidRequestError(
                f"Sequence {sender.seq} of app_id {sender.app!r} was used for other records "
                "by this very process.",
                "Give each batch a sequence of its own.",
            )
        while len(self._used) > KEYS_REMEMBERED:
            del self._used[next(iter(self._used))]

    def _known(self, prepared: Prepared, sender: Sender) -> Receipt:
        """The number counted before: answer with where that lies, if it is the same batch."""
        state = self.chain.state
        known = (state.own if sender.own else state.callers).get(sender.app)
        assert known is not None
        if sender.own and (known.seq != sender.seq or known.digest != prepared.digest):
            raise FencedError(
                f"Another process sends as {sender.app}: its number {known.seq} counted.",
                "A process that was cloned while it sent must open the log again.",
            )
        if known.seq != sender.seq:
            raise InvalidRequestError(
                f"Sequence {sender.seq} of app_id {sender.app!r} is below {known.seq}, which "
                "was acknowledged before.",
                "Go on with a higher sequence.",
            )
        verdict = self.chain.place(known.entry)
        if not isinstance(verdict, Counted):
            raise CorruptLogError(
                f"Entry {known.entry} of topic {state.topic!r} counted, and is not there any more.",
                "Restore it from a backup; 'offsetlog verify' names all faults.",
            )
        return Receipt(verdict.placed, known.entry, duplicate=True)


def pairs(bounds: Sequence[int]) -> list[tuple[int, int]]:
    return list(zip(bounds, bounds[1:], strict=False))


def _part(prepared: Prepared, partition: int, a: int, b: int, ref: SegmentRef | None) -> Part:
    times = prepared.times[a:b]
    size = int(prepared.ends[b] - prepared.ends[a])
    return Part(partition, b - a, size, int(times.min()), int(times.max()), ref)


def _split(ends: npt.NDArray[np.int64], a: int, b: int, most: int) -> list[tuple[int, int]]:
    """Rows [a, b) in pieces of about ``most`` bytes."""
    out = []
    while a < b:
        cut = int(np.searchsorted(ends, ends[a] + most, side="right")) - 1
        high = min(b, max(a + 1, cut))
        out.append((a, high))
        a = high
    return out


def _inline_table(prepared: Prepared) -> pa.Table:
    counts = [b - a for a, b in pairs(prepared.bounds)]
    column = np.repeat(np.array(prepared.partitions, np.int32), counts)
    table = prepared.rows(0, prepared.bounds[-1])
    return table.add_column(0, rows.PARTITION, pa.array(column))


def _refused(state: State, verdict: Void) -> OffsetLogError:
    topic = state.topic
    if verdict.reason == Reason.DELETED:
        return UnknownTopicError(
            f"Topic {topic!r} was deleted; nothing was written.", "Create it again, or look."
        )
    if verdict.reason == Reason.NO_PARTITION:
        return UnknownTopicError(f"Topic {topic!r}: there is no {verdict.detail}.")
    if verdict.reason == Reason.CONDEMNED:
        return StorageError(
            f"A batch for topic {topic!r} took longer than the grace period of 'maintain', twice.",
            "Raise its --grace, or send smaller batches.",
        )
    return StorageError(f"A batch for topic {topic!r} was refused: {verdict.detail}.")
