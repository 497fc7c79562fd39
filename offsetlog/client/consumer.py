"""The consumer: reads partitions from a position on, alone or as a member of a group.

Invariants:

1. A position is the offset of the next record that ``poll`` returns. It moves only by ``poll``
   and by ``seek``, to a place where the partition has a record or ends. A poll that does not
   return, be it by Ctrl-C, moves nothing: the next one returns its records, and no commit names
   them. Committed is the next offset to read, too.
2. A partition found after subscribing is read from its start, so none of its records is missed;
   with a group, one that was added while the group had a member or a position in its topic.
3. Without a group nothing is committed. With one, ``poll`` first does what the group asks for:
   commits by itself if it is time, releases partitions, takes new ones, follows resets.
4. A ``with`` block that ends by an exception commits nothing new, and leaves the group.
5. One thread uses it at a time; another is refused meanwhile.
6. A poll returns in its time, also where a server answers nothing: what it began goes on in a
   thread of its own, which alone uses the cursor until it has ended. The next poll takes what it
   found, any other call waits for its end; callbacks run in the caller's thread.
"""

from __future__ import annotations

import threading
import warnings
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import Future
from functools import partial, wraps
from typing import Any, TypeVar, cast

import pyarrow as pa

from offsetlog.arguments import (
    ANYTHING,
    CALLBACK,
    FLAG,
    OFFSET,
    SECONDS,
    TIME_MS,
    TOPIC_PARTITION,
    checked,
    checks_itself,
    many,
    mapping,
)
from offsetlog.client.poll_round import PollRound
from offsetlog.client.rules import CONSUMER_SETTINGS, OFFSETS, RECORDS, TOPICS
from offsetlog.client.to_records import to_records
from offsetlog.core.topic.plan import check_partition
from offsetlog.core.topic.state import TopicState
from offsetlog.engine.group.group_member import (
    GroupHost,
    GroupMember,
    MemberSettings,
    RebalanceCallback,
    RebalanceCallbacks,
)
from offsetlog.engine.group.heartbeats import HeartbeatTiming
from offsetlog.engine.root import RootGoneError
from offsetlog.engine.topic.chain import ask_all_ahead
from offsetlog.engine.topic.cursor import Cursor, Positions, Rows
from offsetlog.engine.topic.open_topic import OpenTopic
from offsetlog.errors import (
    InvalidRequestError,
    NoOffsetForGroupError,
    OffsetLogError,
    OffsetLogWarning,
    OffsetOutOfRangeError,
    StorageError,
)
from offsetlog.logs import get_logger
from offsetlog.storage import forks
from offsetlog.values import Record, TopicPartition, held_offsets

LOCAL_PAUSE_SECONDS = 0.002
REMOTE_PAUSE_SECONDS = 0.1
LEAST_PATIENCE = 1.0
"""So long a poll waits for a server's answer at the least, however short its timeout."""
MAX_ARROW_RECORDS = 1_000_000
logger = get_logger(__name__)
T = TypeVar("T")
Method = TypeVar("Method", bound=Callable[..., Any])


def _by_one_thread(method: Method) -> Method:
    """A call that is refused while another thread is in one, as in Kafka: they would share
    positions, and records would be given twice. What a callback calls is of the same thread. A
    round of a poll that is on its way ends first."""
    return _guarded(method, ends_round=True)


def _polls(method: Method) -> Method:
    """The same, for who waits for the round itself."""
    return _guarded(method, ends_round=False)


def _guarded(method: Method, ends_round: bool) -> Method:

    @wraps(method)
    def call(self: Consumer, *given: Any, **named: Any) -> Any:
        users, me = self._users, threading.get_ident()
        if users.get("thread") == me:
            return method(self, *given, **named)
        try:
            if users.setdefault("thread", me) != me:
                raise InvalidRequestError(
                    "Another thread is using this consumer.",
                    "A consumer is for one thread: give each thread its own, in one group.",
                )
            if ends_round and self._round is not None and not forks.is_foreign(self._made_in):
                self._end_round()
            return method(self, *given, **named)
        finally:
            # Without a call, at whose end a signal would be looked at: the result is on its way.
            if "thread" in users and users["thread"] == me:
                del users["thread"]

    return cast(Method, call)


class Consumer:
    """Reads records. For one thread."""

    @checked(host=ANYTHING, **CONSUMER_SETTINGS)
    def __init__(
        self,
        host: GroupHost,
        group: str | None = None,
        topics: Iterable[str] | str | None = None,
        *,
        auto_offset_reset: str = "latest",
        enable_auto_commit: bool = True,
        auto_commit_interval_ms: float = 5000,
        session_timeout_ms: int = 45_000,
        heartbeat_interval_ms: int | None = None,
        max_poll_interval_ms: int = 300_000,
        partition_assignment_strategy: str = "sticky",
        client_id: str = "",
        on_assign: RebalanceCallback | None = None,
        on_revoke: RebalanceCallback | None = None,
        on_lost: RebalanceCallback | None = None,
        max_poll_records: int = 500,
        poll_interval_ms: float | None = None,
    ) -> None:
        self._host = host
        self._policy = auto_offset_reset
        self._max_records = max_poll_records
        self._pause = None if poll_interval_ms is None else poll_interval_ms / 1000
        self._subscribed: tuple[str, ...] = ()
        self._counts: dict[str, int] = {}
        self._closed = self._closing = False
        self._users: dict[str, int] = {}
        """The thread that is in a call, if there is one."""
        self._made_in = forks.process()
        self._cursor = Cursor(host.open_topic, self)
        self._round: PollRound[list[Rows]] | None = None
        """What a poll began on a server and nobody has taken; its thread uses the cursor."""
        self._on_server: bool | None = None
        self._group_member: GroupMember | None = None
        if group is not None:
            if heartbeat_interval_ms is None:
                heartbeat_interval_ms = min(3000, session_timeout_ms // 5)
            settings = MemberSettings(
                auto_offset_reset,
                enable_auto_commit,
                auto_commit_interval_ms,
                HeartbeatTiming(session_timeout_ms, heartbeat_interval_ms, max_poll_interval_ms),
                partition_assignment_strategy,
                client_id,
            )
            if heartbeat_interval_ms * 3 > session_timeout_ms:
                # So that one that is lost does not matter.
                raise InvalidRequestError(
                    f"heartbeat_interval_ms is {heartbeat_interval_ms}, with a session timeout of "
                    f"{session_timeout_ms} ms.",
                    "It is at most a third of the session timeout.",
                )
            self._group_member = GroupMember(
                host=host, group=group, settings=settings, cursor=self._cursor, consumer=self
            )
            self._group_member.call_user = self._call_user
        self._callbacks = RebalanceCallbacks(on_assign, on_revoke, on_lost)
        if topics is not None:
            self.subscribe(topics)

    # --- what is read ----------------------------------------------------------------------

    @checked(topics=TOPICS, on_assign=CALLBACK, on_revoke=CALLBACK, on_lost=CALLBACK)
    @_by_one_thread
    def subscribe(
        self,
        topics: Iterable[str] | str,
        on_assign: RebalanceCallback | None = None,
        on_revoke: RebalanceCallback | None = None,
        on_lost: RebalanceCallback | None = None,
    ) -> None:
        """Read these topics, including partitions that are added later; with a group, the
        partitions that are assigned to this member. The callbacks get the consumer and the
        partitions."""
        self._check_open()
        names = tuple(dict.fromkeys(topics))
        if not names:
            raise InvalidRequestError("No topic was given.", "Name at least one.")
        callbacks = RebalanceCallbacks(on_assign, on_revoke, on_lost)
        if any(callbacks):
            self._callbacks = callbacks
        if self._group_member is not None:
            self._group_member.callbacks = self._callbacks
            self._group_member.subscribe(names)
            self._subscribed = names
            return
        counts = {name: self._topic(name).state().partitions for name in names}
        self._subscribed = names
        self._counts = counts
        self._cursor.keep([TopicPartition(name, p) for name in names for p in range(counts[name])])

    @checked(partitions=many(TOPIC_PARTITION))
    @_by_one_thread
    def assign(self, partitions: Iterable[tuple[str, int]]) -> None:
        """Read just these partitions. With a group, commits are the group's, as long as it has no
        members; there are no heartbeats and no rebalancing."""
        self._check_open()
        assigned = [TopicPartition(*p) for p in partitions]
        self._fresh_states(assigned)
        self._subscribed, self._counts = (), {}
        if self._group_member is not None:
            self._group_member.assign(assigned)
        else:
            self._cursor.keep(assigned)

    @_by_one_thread
    def unsubscribe(self) -> None:
        """Read nothing. With a group, commit (if auto-commit is on) and leave it."""
        self._check_open()
        if self._group_member is not None:
            self._group_member.leave(commit=True)
        self._subscribed, self._counts = (), {}
        self._cursor.keep([])

    def assignment(self) -> set[TopicPartition]:
        """The partitions that this consumer reads now."""
        return set(self._cursor.positions)

    def subscription(self) -> set[str]:
        """The topics that are subscribed to."""
        return set(self._subscribed)

    @property
    def member(self) -> str | None:
        """The name of this member in its group, as ``describe`` shows it."""
        return None if self._group_member is None else self._group_member.member

    # --- positions -------------------------------------------------------------------------

    @checked(partitions=TOPIC_PARTITION)
    def pause(self, *partitions: tuple[str, int]) -> None:
        """Return no records of these partitions until ``resume``."""
        self._cursor.paused |= {self._assigned(p) for p in partitions}

    @checked(partitions=TOPIC_PARTITION)
    def resume(self, *partitions: tuple[str, int]) -> None:
        """Return records of these partitions again."""
        self._cursor.paused -= {self._assigned(p) for p in partitions}

    def paused(self) -> set[TopicPartition]:
        """The partitions that are paused."""
        return set(self._cursor.paused)

    @checked(partition=TOPIC_PARTITION, offset=OFFSET)
    @_by_one_thread
    def seek(self, partition: tuple[str, int], offset: int) -> None:
        """Let the next poll begin at ``offset``, which must exist or be the end."""
        tp = self._assigned(partition)
        part = self._topic(tp.topic).recent_state().parts[tp.partition]
        if not part.start <= offset <= part.end:
            part = self._fresh_states([tp])[tp].parts[tp.partition]
        if not part.start <= offset <= part.end:
            raise OffsetOutOfRangeError(
                f"Offset {offset} of {tp.topic}-{tp.partition} is not there.",
                held_offsets(part.start, part.end),
            )
        self._cursor.move(tp, offset)

    @checked(partitions=TOPIC_PARTITION)
    @_by_one_thread
    def seek_to_beginning(self, *partitions: tuple[str, int]) -> None:
        """Let the next poll begin at the log start of these partitions, or of all."""
        for tp, state in self._fresh_states(self._assigned_or_all(partitions)).items():
            self._cursor.move(tp, state.start(tp.partition))

    @checked(partitions=TOPIC_PARTITION)
    @_by_one_thread
    def seek_to_end(self, *partitions: tuple[str, int]) -> None:
        """Let the next poll begin at the end of these partitions, or of all."""
        for tp, state in self._fresh_states(self._assigned_or_all(partitions)).items():
            self._cursor.move(tp, state.end(tp.partition))

    @checked(time_ms=TIME_MS, partitions=TOPIC_PARTITION)
    @_by_one_thread
    def seek_to_time(self, time_ms: int, *partitions: tuple[str, int]) -> None:
        """Let the next poll begin at the first record at or after a time; at the end if none."""
        for tp, state in self._fresh_states(self._assigned_or_all(partitions)).items():
            offset = self._topic(tp.topic).offset_for_time(tp.partition, time_ms)
            self._cursor.move(tp, state.end(tp.partition) if offset is None else offset)

    @checked(partition=TOPIC_PARTITION)
    @_by_one_thread
    def position(self, partition: tuple[str, int]) -> int:
        """The offset of the next record that ``poll`` returns."""
        return self._cursor.position(self._assigned(partition))

    @checked(partitions=many(TOPIC_PARTITION))
    def beginning_offsets(self, partitions: Iterable[tuple[str, int]]) -> dict[TopicPartition, int]:
        """The first offset of these partitions."""
        states = self._fresh_states(TopicPartition(*p) for p in partitions)
        return {tp: state.start(tp.partition) for tp, state in states.items()}

    @checked(partitions=many(TOPIC_PARTITION))
    def end_offsets(self, partitions: Iterable[tuple[str, int]]) -> dict[TopicPartition, int]:
        """The next offset of these partitions."""
        states = self._fresh_states(TopicPartition(*p) for p in partitions)
        return {tp: state.end(tp.partition) for tp, state in states.items()}

    @checked(times=mapping(TOPIC_PARTITION, TIME_MS))
    def offsets_for_times(
        self, times: Mapping[tuple[str, int], int]
    ) -> dict[TopicPartition, int | None]:
        """The first offset at or after a time for each partition; None where there is none."""
        by_partition = {TopicPartition(*p): time_ms for p, time_ms in times.items()}
        return {
            tp: self._topic(tp.topic).offset_for_time(tp.partition, by_partition[tp])
            for tp in self._fresh_states(by_partition)
        }

    # --- commits ---------------------------------------------------------------------------

    @checked(offsets=OFFSETS)
    @_by_one_thread
    def commit(self, offsets: Mapping[Any, Any] | None = None) -> None:
        """Commit all positions, or these: ``{("orders", 0): 53}`` means that 53 is the next
        offset to read; ``(53, "text")`` stores metadata with it. Returns when it is durable."""
        self._in_group("commit").commit(offsets)

    @checked(offsets=OFFSETS, callback=CALLBACK)
    @_by_one_thread
    def commit_async(
        self,
        offsets: Mapping[Any, Any] | None = None,
        callback: Callable[[dict[Any, Any], OffsetLogError | None], None] | None = None,
    ) -> Future[None]:
        """Like ``commit``, without waiting. The callback gets the offsets, and the error or None,
        in this thread, at the next poll, commit or close."""
        return self._in_group("commit_async").commit_async(offsets, callback)

    @checked(partitions=TOPIC_PARTITION, metadata=FLAG)
    @_by_one_thread
    def committed(
        self, *partitions: tuple[str, int], metadata: bool = False
    ) -> dict[TopicPartition, Any]:
        """The committed offset of these partitions (default: of all that the group has), for those
        that have one; with ``metadata``, each with its metadata."""
        only = [TopicPartition(*p) for p in partitions] or None
        self._fresh_states(only or ())
        committed = self._in_group("committed").committed(only)
        return committed if metadata else {tp: c.offset for tp, c in committed.items()}

    @checked(partition=TOPIC_PARTITION)
    def followed_reset(self, partition: tuple[str, int]) -> int:
        """The number of the last reset of the group that was followed in a partition; 0: none.
        What was polled under another number is not committed any more."""
        return self._in_group("followed_reset").polled.followed(TopicPartition(*partition))

    def _in_group(self, method: str) -> GroupMember:
        self._check_open()
        if self._group_member is None:
            raise InvalidRequestError(
                f"{method}() needs a group, and this consumer has none.",
                'Make it with log.consumer(group="..."), or keep the positions yourself.',
            )
        return self._group_member

    # --- where reading begins (for the cursor) ---------------------------------------------

    def begin(self, tp: TopicPartition) -> int:
        """The position of a partition that has none yet: the committed one, or the policy's."""
        if self._group_member is not None:
            return self._group_member.begin(tp)
        state = self._topic(tp.topic).known_state()
        check_partition(state, tp.partition)
        if self._policy == "none":
            raise NoOffsetForGroupError(
                f"There is no position for {tp.topic}-{tp.partition}, and auto_offset_reset is "
                "'none'.",
                "Call seek() first, or choose 'earliest' or 'latest'.",
            )
        part = state.parts[tp.partition]
        return part.start if self._policy == "earliest" else part.end

    def out_of_range(self, tp: TopicPartition, position: int) -> int:
        part = self._fresh_states([tp])[tp].parts[tp.partition]
        if self._policy == "none":
            raise OffsetOutOfRangeError(
                f"Position {position} of {tp.topic}-{tp.partition} is not there any more.",
                f"{held_offsets(part.start, part.end)} Call seek(), or set auto_offset_reset.",
            )
        target = part.start if self._policy == "earliest" else part.end
        warnings.warn(
            f"Position {position} of {tp.topic}-{tp.partition} is not there any more (it holds "
            f"{part.start} to {part.end}); auto_offset_reset={self._policy!r} moved it to "
            f"{target}.",
            OffsetLogWarning,
            stacklevel=5,
        )
        return target

    # --- polling ---------------------------------------------------------------------------

    @checks_itself(timeout=SECONDS, max_records=RECORDS)
    def poll(self, timeout: float = 0.0, max_records: int | None = None) -> list[Record]:
        """Up to ``max_records`` records; waits up to ``timeout`` seconds for the first."""
        limit = self._max_records
        if max_records is not None:
            limit = RECORDS("max_records", max_records)
        return self._poll(SECONDS("timeout", timeout), limit, _records)

    @checks_itself(timeout=SECONDS, max_records=RECORDS)
    def poll_arrow(
        self, timeout: float = 0.0, max_records: int | None = None
    ) -> dict[TopicPartition, pa.Table]:
        """Arrow tables by partition, each of up to ``max_records`` rows (default: what one
        file or row group holds); waits up to ``timeout`` seconds for the first."""
        limit = MAX_ARROW_RECORDS
        if max_records is not None:
            limit = RECORDS("max_records", max_records)
        return self._poll(SECONDS("timeout", timeout), limit, _tables)

    @_polls
    def _poll(self, timeout: float, limit: int, build: Callable[[list[Rows]], T]) -> T:
        """What was read, as the caller gets it. Positions move with the return, not before."""
        before: Positions | None = None
        try:
            rows = self._read(timeout, limit)
            if rows is None:
                return build([])
            before = self._cursor.before
            result = build(rows)
            if self._group_member is not None:
                self._group_member.record_polled(rows)
            self._cursor.before = None  # From here to the caller no signal is looked at.
            return result
        except MemoryError as error:
            self._cursor.rewind(before)
            raise StorageError(
                f"There is not enough memory for what was polled: {error or 'none is left'}.",
                "Poll fewer records at once (max_poll_records, max_records), or let the process "
                "have more memory. No position was moved.",
            ) from None
        except BaseException:
            if self._round is None:
                self._cursor.rewind(before)
            raise

    def _read(self, timeout: float, limit: int) -> list[Rows] | None:
        """None where a server has not answered in time: a later poll has what it says."""
        if self._round is None:
            self._check_open()
        else:
            forks.check(self._made_in)
        if not self._cursor.positions and not self._subscribed:
            raise InvalidRequestError("Nothing is assigned.", "Call subscribe() or assign().")
        env = self._host.env
        began = env.monotonic()
        deadline = began + timeout
        # A poll that does not wait for records waits for an answer all the same, once.
        patience = deadline if self._round is not None else max(deadline, began + LEAST_PATIENCE)
        while True:
            self._host.check_open()  # A thread may wait here while another closes the log.
            try:
                rows = self._look_and_gather(limit, patience)
                if rows is None or rows:
                    return rows
                pause = self._idle_pause()
            except RootGoneError as error:
                # A disk may be mounted again: until then there is nothing to be read.
                logger.warning("A consumer waits. %s", str(error))
                pause = REMOTE_PAUSE_SECONDS
            if env.monotonic() >= deadline:
                return []
            env.sleep(min(pause, max(0.0, deadline - env.monotonic())))

    def _look_and_gather(self, limit: int, until: float) -> list[Rows] | None:
        """What a round finds; None where it goes on at ``until``."""
        if self._round is None:
            if not self._may_stall(limit):
                return self._one_round(limit)
            self._round = PollRound(partial(self._one_round, limit))
            self._round.begin(self._host.env.spawn)
        elif self._group_member is not None:
            self._group_member.note_poll()
        if not self._round.wait(max(0.0, until - self._host.env.monotonic())):
            return None
        ended, self._round = self._round, None
        rows = ended.result()
        if sum(high - low for _, _, low, high in rows) > limit:
            self._cursor.rewind()  # An earlier poll asked for more than this one takes.
            return self._look_and_gather(limit, until)
        return rows

    def _one_round(self, limit: int) -> list[Rows]:
        """What there is: what is at hand, else what a look finds."""
        looked = grew = False
        while True:
            self._cursor.check_places()
            if self._group_member is not None:
                self._group_member.keep_up()
            rows = self._cursor.gather(limit, self._host.env.monotonic)
            if rows or (looked and not grew):
                return rows
            grew = self._look()
            looked = True

    def _may_stall(self, limit: int) -> bool:
        """Whether a round asks a server, which may not answer."""
        if self._on_server is None:
            names = (*self._subscribed, *(tp.topic for tp in self._cursor.positions))
            self._on_server = self._topic(names[0]).chain.store.may_stall
        if not self._on_server:
            return False
        is_quiet = self._group_member is None or self._group_member.is_quiet
        return not (is_quiet and self._cursor.holds(limit))

    def _end_round(self) -> None:
        """Wait until what a poll began is done; what it read is read again."""
        assert self._round is not None
        while not self._round.wait(1.0):
            continue
        self._round = None
        self._cursor.rewind()

    def _call_user(self, call: Callable[[], object]) -> None:
        if self._round is None:
            call()
        else:
            self._round.in_caller(call)

    def _idle_pause(self) -> float:
        if self._pause is not None:
            return self._pause
        names = self._subscribed or tuple(tp.topic for tp in self._cursor.positions)
        local = all(self._topic(name).chain.store.is_local for name in names)
        return LOCAL_PAUSE_SECONDS if local else REMOTE_PAUSE_SECONDS

    def _look(self) -> bool:
        """One request for each topic: is there anything new?"""
        tips = self._tips()
        if self._group_member is not None and self._subscribed:
            self._group_member.report_topics()
            return self._tips() != tips
        ahead = ask_all_ahead([self._topic(topic).chain for topic in tips])
        for topic, answer in zip(tips, ahead, strict=True):
            state = self._topic(topic).advance(answer)
            known = self._counts.get(topic)
            if known is not None and state.partitions > known:
                for partition in range(known, state.partitions):
                    self._cursor.move(TopicPartition(topic, partition), state.start(partition))
                self._counts[topic] = state.partitions
        return self._tips() != tips

    def _tips(self) -> dict[str, int]:
        """How far each topic that is read was folded."""
        topics = dict.fromkeys([*self._subscribed, *(tp.topic for tp in self._cursor.positions)])
        return {topic: self._topic(topic).chain.state.tip for topic in topics}

    # --- the rest --------------------------------------------------------------------------

    def _topic(self, name: str) -> OpenTopic:
        return self._cursor.open_topic(name)

    def _fresh_states(
        self, partitions: Iterable[TopicPartition]
    ) -> dict[TopicPartition, TopicState]:
        """The state of each partition's topic, from one fresh look at each topic."""
        states: dict[str, TopicState] = {}
        by_partition: dict[TopicPartition, TopicState] = {}
        for tp in partitions:
            if tp.topic not in states:
                states[tp.topic] = self._topic(tp.topic).state()
            check_partition(states[tp.topic], tp.partition)
            by_partition[tp] = states[tp.topic]
        return by_partition

    def _assigned(self, partition: tuple[str, int]) -> TopicPartition:
        tp = TopicPartition(*partition)
        if tp not in self._cursor.positions:
            raise InvalidRequestError(
                f"{tp.topic}-{tp.partition} is not assigned to this consumer.",
                "Call assign() or subscribe() first; with a group, it may be another worker's.",
            )
        return tp

    def _assigned_or_all(self, partitions: tuple[tuple[str, int], ...]) -> list[TopicPartition]:
        return [self._assigned(p) for p in partitions] or list(self._cursor.positions)

    def _check_open(self) -> None:
        forks.check(self._made_in)
        self._host.check_open()
        self._cursor.rewind()  # A second Ctrl-C may have come in the midst of it.
        if self._closed:
            raise InvalidRequestError("The consumer is closed.", "Make a new one.")

    @checked(commit=FLAG)
    @_by_one_thread
    def close(self, *, commit: bool = True) -> None:
        """Commit (if auto-commit is on) and leave the group, in one append."""
        if self._closed or self._closing or forks.is_foreign(self._made_in):
            return
        self._closing = True
        self._cursor.rewind()
        try:
            if self._group_member is not None:
                self._group_member.leave(commit)
        finally:
            self._closed = True
            self._cursor.clear()

    def __enter__(self) -> Consumer:
        return self

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        try:
            self.close(commit=error is None)
        except OffsetLogError:
            if error is None:
                raise

    def __iter__(self) -> Consumer:
        return self

    def __next__(self) -> list[Record]:
        while True:
            records = self.poll(timeout=1.0)
            if records:
                return records


def _records(rows: list[Rows]) -> list[Record]:
    records: list[Record] = []
    for tp, batch, low, high in rows:
        records += to_records(tp.topic, batch, low, high)
    return records


def _tables(rows: list[Rows]) -> dict[TopicPartition, pa.Table]:
    tables: dict[TopicPartition, list[pa.Table]] = {}
    for tp, batch, low, high in rows:
        tables.setdefault(tp, []).append(batch.table.slice(low, high - low))
    return {tp: pa.concat_tables(parts) for tp, parts in tables.items()}
