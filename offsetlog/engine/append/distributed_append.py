"""A batch that many processes write together: each stages its rows, one appends the entry.

Invariants:

1. What a process hands over is plain values: what it saw of the topic, the segments it wrote,
   and the rows that were too few for one, as an Arrow stream.
2. Staged rows are invisible until one entry names them all. What is never named is removed by
   the collector, and by nobody else.
3. Rows of one process keep their order within a partition.
4. What a ``TaskStage`` holds in memory is what was added since its last ``spill``.
5. Who appends the entry sees the chain as far as who planned did, and on a disk finds each
   segment of others that it names first: a machine may see another disk at the same path.
   Elsewhere a store that answered a put is believed, since a look would be a request for each
   segment.
"""

from __future__ import annotations

import socket
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import xxhash

from offsetlog.core.topic.entry import CREATE_TIME, LOG_APPEND_TIME, Counted, Part
from offsetlog.core.topic.state import TopicState
from offsetlog.engine.append.record_batch import (
    Ints,
    RecordBatch,
    SentColumns,
    assign_partitions,
    bounds_of,
    ends_of,
    order_by,
    part_of,
    prepare,
    row_bytes,
    split,
)
from offsetlog.engine.append.record_checks import check_times, too_large, without_key
from offsetlog.engine.append.segment_writer import SegmentWriter
from offsetlog.engine.append.writer import Receipt, Sender
from offsetlog.engine.env import Env
from offsetlog.engine.topic.open_topic import OpenTopic
from offsetlog.errors import InvalidRequestError, StorageError, UnknownTopicError
from offsetlog.format import record_schema as rows
from offsetlog.format.decisions import decode_parts
from offsetlog.format.names import topic_folder
from offsetlog.format.parquet import ParquetReader
from offsetlog.storage.store import Store
from offsetlog.values import TopicConfig, settings_of

RECORD_WEIGHT = 32
"""What a record weighs besides its key and value."""
_CONTENT = ("key", "value")
COPIES = 4
"""Segments that are copied side by side."""
LOOKS, LOOK_SECONDS = 5, 0.1
"""For what is not in sight: a network disk may show it late. Each pause is twice the last, three
seconds in all."""

HANDED_OVER_BYTES = 64 * 1024 * 1024
"""What the rows in a message may unfold to."""
MOST_SEGMENTS = 250_000
"""Segments that one entry may name: below what a reader takes of JSON."""


class TopicAtPlanning(NamedTuple):
    """What a process that stages rows must know of their topic."""

    name: str
    partitions: int
    created_at_entry: int
    tip: int
    config: tuple[tuple[str, str], ...]

    @property
    def settings(self) -> TopicConfig:
        return settings_of(self.config)


class TaskShare(NamedTuple):
    """What one process has staged for one topic."""

    topic: str
    partitions: int
    """The count that keys were hashed with."""
    created_at_entry: int
    parts: tuple[Part, ...]
    rows: bytes
    """Those that are in no segment, sorted by partition; empty: none."""
    tip: int = 0
    """Up to where the chain was seen when it was planned."""
    append_time: bool = False
    """Its rows have the time at which they were staged, as the topic asked then."""


def facts_of(topic: OpenTopic) -> TopicAtPlanning:
    """What the topic is now; ``UnknownTopicError`` when there is none."""
    state = topic.state()
    return TopicAtPlanning(
        topic.name, state.partitions, state.created_at_entry, state.tip, state.config
    )


class _Piece(NamedTuple):
    """Rows of one partition that came together."""

    batch: pa.RecordBatch
    sizes: Ints
    times: Ints


class TaskStage:
    """Takes the rows of one process for one topic.

    ``spread`` chooses the partition of rows without a key: another one after each spill.
    ``pool`` puts segments in the store while the next rows are taken."""

    def __init__(
        self,
        store: Store,
        facts: TopicAtPlanning,
        env: Env,
        spread: int,
        pool: ThreadPoolExecutor | None = None,
    ) -> None:
        self._facts = facts
        self._pool = pool
        self._on_their_way: list[Future[None]] = []
        self._segment_writer = SegmentWriter(store, topic_folder(facts.name), env, None)
        self._spread = spread
        self._most = facts.settings.max_message_bytes
        self._needs_key = facts.settings.compacts
        self._pieces: dict[int, list[_Piece]] = {}
        self._parts: list[Part] = []
        self.weight = 0
        """Bytes of the rows that are in no segment yet."""

    def add(self, batch: pa.RecordBatch, named: npt.NDArray[np.int32] | None) -> None:
        """Take rows with the columns of ``ROWS``; ``named`` holds the partitions that were
        chosen for them, -1 where none was."""
        if not batch.num_rows:
            return
        sizes = row_bytes(batch)
        heaviest = int(sizes.max())
        if heaviest > self._most:
            raise too_large(self._facts.name, heaviest, self._most)
        if self._needs_key and batch.column("key").null_count:
            raise without_key(self._facts.name)
        times = batch.column("timestamp").view(pa.int64()).to_numpy()
        check_times(times)
        if named is not None and named.min() < -1:
            raise InvalidRequestError(
                f"{named.min()} is not a partition of topic {self._facts.name!r}.",
                f"It has {self._facts.partitions}, from 0.",
            )
        chosen = assign_partitions(
            SentColumns(batch, named), self._facts.partitions, self._spread, self._facts.name
        )
        self.weight += int(sizes.sum()) + RECORD_WEIGHT * batch.num_rows
        batch = rows.compact(batch)
        order = order_by(chosen)
        if order is not None:
            batch = batch.take(pa.array(order))
            chosen, sizes, times = chosen[order], sizes[order], times[order]
        bounds = bounds_of(chosen)
        for a, b in zip(bounds, bounds[1:], strict=False):
            piece = _Piece(batch.slice(a, b - a), sizes[a:b], times[a:b])
            self._pieces.setdefault(int(chosen[a]), []).append(piece)

    def spill(self) -> None:
        """Write what is in memory as segments."""
        self.settle()
        pieces, self._pieces = self._pieces, {}
        config = self._facts.settings
        for partition in sorted(pieces):
            # Taken out, so that its memory is free once it is written.
            mine = pieces.pop(partition)
            table = _joined(mine)
            times = np.concatenate([piece.times for piece in mine])
            ends = ends_of(np.concatenate([piece.sizes for piece in mine]))
            for a, b in split(ends, 0, table.num_rows, config.segment_bytes):
                rows_ = table.slice(a, b - a)
                ref, encoded = self._segment_writer.encode(
                    rows_, self._facts.tip, config.compression
                )
                if self._pool is None:
                    self._segment_writer.put(partition, ref, encoded)
                else:
                    put = self._pool.submit(self._segment_writer.put, partition, ref, encoded)
                    self._on_their_way.append(put)
                self._parts.append(part_of(partition, ends, times, a, b, ref))
        self.weight = 0
        self._spread += 1

    def settle(self) -> None:
        """Wait until all segments are in the store; raises why one is not."""
        waiting, self._on_their_way = self._on_their_way, []
        for put in waiting:
            put.result()

    def share(self) -> TaskShare:
        """All that was taken. What is still in memory travels in it as it is."""
        self.settle()
        facts = self._facts
        data = b""
        if self._pieces:
            order = sorted(self._pieces)
            table = _joined([piece for partition in order for piece in self._pieces[partition]])
            counts = [sum(len(p.times) for p in self._pieces[partition]) for partition in order]
            column = pa.array(np.repeat(np.array(order, np.int32), counts))
            data = _to_bytes(table.append_column(rows.PARTITION, column))
        return TaskShare(
            facts.name,
            facts.partitions,
            facts.created_at_entry,
            tuple(self._parts),
            data,
            facts.tip,
            facts.settings.log_append_time,
        )


def _joined(pieces: Iterable[_Piece]) -> pa.Table:
    """The rows of pieces one after another; nothing is copied."""
    tables = [pa.Table.from_batches([piece.batch]) for piece in pieces]
    return pa.concat_tables(tables, promote_options="default")


def _to_bytes(table: pa.Table) -> bytes:
    sink = pa.BufferOutputStream()
    # One batch: without it every small piece would bring a header of its own.
    whole = table.combine_chunks()
    with pa.ipc.new_stream(sink, whole.schema) as out:
        out.write_table(whole)
    data: bytes = sink.getvalue().to_pybytes()
    return data


def share_of(told: Mapping[str, Any], file: bytes) -> TaskShare:
    """What a process that is not Python has staged. ``file`` is a Parquet file of the rows that
    are in no segment, or empty, and ``told["rows"]`` how many of them each partition has."""
    data = b""
    if file:
        reader = ParquetReader(file, "a task's rows")
        table = reader.read(reader.types(rows.TYPES), HANDED_OVER_BYTES)
        partitions, counts = np.array(told["rows"]).T
        column = pa.array(np.repeat(partitions.astype(np.int32), counts))
        data = _to_bytes(table.append_column(rows.PARTITION, column))
    return TaskShare(
        told["topic"],
        told["partitions"],
        told["created_at_entry"],
        decode_parts(told["parts"], "a task's segments"),
        data,
        told["tip"],
        told["append_time"],
    )


# --- the one that appends ------------------------------------------------------------------


class StagedBatch:
    """The load of an entry that names segments of several processes, and its own for the rows
    that they handed over."""

    def __init__(
        self, parts: Sequence[Part], few: RecordBatch | None, topic: str, ts_type: int
    ) -> None:
        self._parts = tuple(parts)
        self.ts_type = ts_type
        self._few = few
        self._topic = topic
        self._told = False
        seed = ";".join(
            f"{p.partition},{p.records},{p.segment and p.segment.footer_xxh3}" for p in parts
        )
        seed += few.digest if few is not None else ""
        self.digest: str = xxhash.xxh3_64_hexdigest(seed.encode())

    def digest_under(self, partitions: int) -> str:
        return self.digest

    def parts(self, segment_writer: SegmentWriter, state: TopicState) -> tuple[Part, ...]:
        if not self._told:
            self._find(segment_writer, state)
        if self._told:
            fresh: list[Part] = []
            # A few at a time: each is in memory while it is copied.
            for low in range(0, len(self._parts), COPIES):
                some = self._parts[low : low + COPIES]
                fresh += segment_writer.each(partial(self._fresh, segment_writer, state), some)
            self._parts = tuple(fresh)
        elif self._few is not None:
            self._parts += self._few.segments(segment_writer, state)
            self._few = None
        self._parts = tuple(sorted(self._parts, key=lambda part: part.partition))
        self._told = True
        return self._parts

    def inline(self) -> pa.Table:
        raise AssertionError("all of it is in segments")

    def _find(self, segment_writer: SegmentWriter, state: TopicState) -> None:
        """That the segments of others are there. Those that the collector may take are left out:
        they are copied, and then it is said what became of them."""
        missing = [p for p in self._parts if p.segment and p.segment.born >= state.horizon]
        for look in range(LOOKS + 1):
            missing = [part for part in missing if not segment_writer.is_there(part)]
            if not missing:
                return
            if look < LOOKS:
                segment_writer.env.sleep(LOOK_SECONDS * 2**look)
        name = segment_writer.name_of(missing[0])
        raise StorageError(
            f"Of {len(self._parts)} segments that were written for topic {self._topic!r}, "
            f"{len(missing)} are not there as the machine {socket.gethostname()} sees it, "
            f"{name} among them. Nothing was appended.",
            "All machines must reach the same log under its address: put it on an object store "
            "or a shared disk.",
        )

    def _fresh(self, segment_writer: SegmentWriter, state: TopicState, part: Part) -> Part:
        """The part with a segment that the collector does not want."""
        ref = part.segment
        assert ref is not None
        if ref.born >= state.horizon:
            return part
        made = segment_writer.copy(part.partition, ref, state.tip)
        if made is None:
            raise StorageError(
                f"A batch for topic {self._topic!r} took longer than the grace period of "
                "'maintain': what was written for it is collected already.",
                "Raise its --grace, or write smaller batches.",
            )
        return part._replace(segment=made)


def append_shares(topic: OpenTopic, shares: Sequence[TaskShare], sender: Sender) -> Receipt | None:
    """Land what several processes staged for one topic as one entry; None: there are no rows.

    ``topic`` must have been looked at."""
    topic.check_process()
    _see(topic, max((share.tip for share in shares), default=0))
    lives = {share.created_at_entry for share in shares}
    if len(lives) > 1:
        raise UnknownTopicError(
            f"Topic {topic.name!r} was deleted and created again while a batch for it was written.",
            "Write it again.",
        )
    parts = [part for share in shares for part in share.parts]
    ts_type = _ts_type_of(shares)
    few = _handed_over(shares, ts_type)
    if few is None and not parts:
        return None
    if len(parts) > MOST_SEGMENTS:
        raise InvalidRequestError(
            f"{len(shares)} tasks wrote {len(parts)} segments of topic {topic.name!r}; one batch "
            f"may have {MOST_SEGMENTS}. Nothing was written.",
            "Use fewer tasks, each of which writes to fewer partitions: repartition by the key, "
            "or coalesce; or write several batches.",
        )
    load = StagedBatch(parts, few, topic.name, ts_type) if parts or few is None else few
    # A topic that grew meanwhile: keys went where each process knew of, as with Kafka's clients.
    hashed_with = max(share.partitions for share in shares)
    receipt = topic.writer.deliver(load, sender, hashed_with, lives.pop())
    topic.stored.publish_if_due()
    return receipt


def _see(topic: OpenTopic, tip: int) -> None:
    """Check that this process sees the chain as far as the planner did: a chain only grows, and
    what is appended to an older view of it is lost."""
    for look in range(LOOKS + 1):
        if topic.chain.state.tip >= tip:
            return
        if look < LOOKS:
            topic.chain.env.sleep(LOOK_SECONDS * 2**look)
            topic.refresh()
    if not topic.chain.state.tip:
        return  # There is no such topic, which is said when the entry is judged.
    raise StorageError(
        f"A batch for topic {topic.name!r} was planned at entry {tip} of its log, and the machine "
        f"{socket.gethostname()} sees it only up to {topic.chain.state.tip}, at "
        f"{topic.chain.store.url}. Nothing was appended.",
        "Look whether all machines see the same disk there.",
    )


def records_in(shares: Sequence[TaskShare]) -> int:
    """How many records were staged."""
    few = (pa.ipc.open_stream(share.rows).read_all() for share in shares if share.rows)
    count: int = sum(table.num_rows for table in few)
    return count + sum(part.records for share in shares for part in share.parts)


def may_be_again(topic: OpenTopic, number: int, shares: Sequence[TaskShare]) -> bool:
    """Whether what was staged may be the records of an entry, in whatever order. Where rows are in
    segments only their count is compared."""
    landed = topic.chain.entry_at(number)
    if landed is None or not isinstance(landed[1], Counted):
        return False  # Retention took it.
    count = records_in(shares)
    if sum(run.records for run in landed[1].placed) != count:
        return False
    stored = topic.chain.read_entry(number)
    if stored is None or stored.stub or stored.inline_records != count:
        return True
    if any(share.parts for share in shares):
        return True
    tables = [pa.ipc.open_stream(share.rows).read_all() for share in shares if share.rows]
    staged = rows.complete(pa.concat_tables(tables, promote_options="default"), _CONTENT)
    is_same: bool = _by_content(staged).equals(_by_content(stored.rows(0, count, _CONTENT)))
    return is_same


def _by_content(table: pa.Table) -> pa.Table:
    return table.sort_by([(name, "ascending") for name in _CONTENT])


def _ts_type_of(shares: Iterable[TaskShare]) -> int:
    """If the topic changed between two tasks, nobody is told of an append's time that is none."""
    return LOG_APPEND_TIME if all(share.append_time for share in shares) else CREATE_TIME


def _handed_over(shares: Iterable[TaskShare], ts_type: int) -> RecordBatch | None:
    tables = [pa.ipc.open_stream(share.rows).read_all() for share in shares if share.rows]
    if not tables:
        return None
    table = pa.concat_tables(tables, promote_options="default").combine_chunks()
    column = table.column("partition").to_numpy()
    return prepare(rows.complete(table, tuple(rows.ROWS.names)), column, ts_type=ts_type)
