"""``offsetlog consume``: records to stdout.

Invariants:

1. Without ``--follow`` it prints what was there when it began, and ends.
2. A record is printed whole: its line is built before any of it is written.
3. Nothing of a record is lost or guessed: bytes are written as they are, and in JSON bytes that
   are not UTF-8 have a field of their own.
4. With ``--group`` only records that were written to stdout are committed: every few seconds, when
   partitions are revoked, and at the end, also after Ctrl-C or when the reader of stdout left.
   Records from before a reset that was followed since are not.
5. Every record that was polled is printed: ``--max`` limits what is polled.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

import click

from offsetlog.cli.base import Command
from offsetlog.cli.output import print_bytes, print_warning, reader_left, to_json_line
from offsetlog.cli.params import TOPIC, ConsumeFrom, Duration, OffsetOrTime, Separator, Whole
from offsetlog.cli.session import CliSession, pass_session
from offsetlog.errors import FencedError, InvalidRequestError, OffsetOutOfRangeError

if TYPE_CHECKING:
    from offsetlog.client.consumer import Consumer
    from offsetlog.client.log import Log
    from offsetlog.values import Record, TopicPartition

    ToLine = Callable[[Record], bytes]

POLL_RECORDS = 2000
FOLLOW_SECONDS = 0.5
LOCAL_INTERVAL_MS = 20
REMOTE_INTERVAL_MS = 500
GROUP_POLL_SECONDS = 0.2
COMMIT_SECONDS = 5.0
ASSIGNMENT_SECONDS = 10.0
"""How long a group member without partitions waits for some, without ``--follow``, after the time
in which a member that died is expelled."""
WAIT_NOTICE_SECONDS = 5.0


@click.command(
    "consume",
    cls=Command,
    examples="""
    $ offsetlog consume orders
    $ offsetlog consume orders --from 142 --partition 0 --max 10
    $ offsetlog consume orders --from 2026-03-01T12:30:00Z --json
    $ offsetlog consume orders --follow --max 5
    $ offsetlog consume orders --group billing
    """,
)
@click.argument("topic", metavar="TOPIC", type=TOPIC)
@click.option(
    "--from", "start", type=OffsetOrTime(), default="earliest", show_default=True,
    metavar="earliest|latest|OFFSET|TIMESTAMP", help="Where to begin.",
)  # fmt: skip
@click.option(
    "--partition", "partitions", type=Whole(0), multiple=True, metavar="P",
    help="Read only this partition; repeatable.",
)  # fmt: skip
@click.option("--max", "limit", type=Whole(1), metavar="N", help="End after N records.")
@click.option("--follow", is_flag=True, help="Wait for new records, until Ctrl-C.")
@click.option(
    "--group", metavar="G", help="Read as a member of this group, and commit what was printed."
)
@click.option(
    "--session-timeout", type=Duration(), default="45s", show_default=True, metavar="DURATION",
    help="With --group: a member without a heartbeat for this long is expelled.",
)  # fmt: skip
@click.option("--key-separator", type=Separator(), help="Print KEY, this text, VALUE.")
@click.option(
    "--null-marker", default="null", show_default=True, metavar="TEXT",
    help="Print this for a null key or value.",
)  # fmt: skip
@pass_session
def command(
    session: CliSession,
    topic: str,
    start: ConsumeFrom,
    partitions: tuple[int, ...],
    limit: int | None,
    follow: bool,
    group: str | None,
    session_timeout: int,
    key_separator: bytes | None,
    null_marker: str,
) -> None:
    """Print the values of a topic's records, one a line.

    Without --follow it ends where the topic ended when it began. In --from a bare number is an
    offset; a time is ISO 8601 (UTC if it names no zone), or @ and milliseconds since 1970.
    A partition with no record since that time is read from its end.

    With --group it starts at the group's committed offsets (or where --from says if there are
    none), shares the partitions with the other members, and commits what was printed.

    With --json each line is an object with partition, offset, timestamp, key, value and headers.
    Bytes that are not UTF-8 are null there, with their base64 in key_base64 or value_base64.
    """
    null = null_marker.encode("utf-8", "surrogateescape")
    to_line: ToLine = to_json if session.json else PlainFormat(key_separator, null)
    policy = None if group is None else reset_policy(start)
    with session.open() as log:
        if group is not None and policy is not None:
            ends = log.topic(topic).end_offsets()
            with GroupReader(log, group, topic, policy, partitions, session_timeout) as reader:
                _print(reader.batches(None if follow else ends, limit), to_line, None)
            return
        with _consumer(log, topic, start, partitions) as consumer:
            if follow:
                batches = _follow(consumer)
            else:
                batches = _read_until(consumer, log.topic(topic).end_offsets())
            _print(batches, to_line, limit)


def _print(batches: Iterator[list[Record]], to_line: ToLine, limit: int | None) -> None:
    remaining = limit
    for batch in batches:
        if remaining is not None:
            batch = batch[:remaining]
            remaining -= len(batch)
        if batch:
            print_bytes([to_line(record) for record in batch])
        if remaining == 0:
            return


# --- without a group ---------------------------------------------------------------------------


def _poll_interval_ms(log: Log) -> int:
    return LOCAL_INTERVAL_MS if log.store.is_local else REMOTE_INTERVAL_MS


def _consumer(log: Log, topic: str, start: ConsumeFrom, partitions: Sequence[int]) -> Consumer:
    """A consumer at its starting position."""
    policy = "latest" if start.kind == "latest" else "earliest"
    consumer = log.consumer(auto_offset_reset=policy, poll_interval_ms=_poll_interval_ms(log))
    if partitions:
        consumer.assign([(topic, p) for p in dict.fromkeys(partitions)])
    else:
        consumer.subscribe([topic])
    if start.kind == "offset":
        _seek(consumer, start.number)
    elif start.kind == "time":
        consumer.seek_to_time(start.number)
    elif start.kind == "latest":
        consumer.seek_to_end()
    return consumer


def _seek(consumer: Consumer, offset: int) -> None:
    assigned = sorted(consumer.assignment())
    for partition in assigned:
        try:
            consumer.seek(partition, offset)
        except OffsetOutOfRangeError as error:
            hint = error.hint
            if len(assigned) > 1:
                hint += " Choose one partition with --partition."
            if offset > 10**11:
                hint += f" A time in milliseconds is written as @{offset}."
            raise OffsetOutOfRangeError(error.message, hint) from None


def _read_until(consumer: Consumer, ends: dict[int, int]) -> Iterator[list[Record]]:
    """The records below ``ends``."""
    remaining = set(consumer.assignment())
    while True:
        for tp in [tp for tp in remaining if consumer.position(tp) >= ends.get(tp.partition, 0)]:
            consumer.pause(tp)
            remaining.discard(tp)
        if not remaining:
            return
        batch = consumer.poll(0.0, POLL_RECORDS)
        yield [record for record in batch if record.offset < ends.get(record.partition, 0)]


def _follow(consumer: Consumer) -> Iterator[list[Record]]:
    while True:
        batch = consumer.poll(FOLLOW_SECONDS, POLL_RECORDS)
        if not batch and reader_left():
            raise BrokenPipeError
        yield batch


# --- as a member of a group --------------------------------------------------------------------


def reset_policy(start: ConsumeFrom) -> str:
    """What ``--from`` says with ``--group``."""
    if start.kind not in ("earliest", "latest"):
        raise InvalidRequestError(
            "--from with an offset or a time does not go with --group.",
            "A group starts at its committed offsets: move it with 'offsetlog groups reset'.",
        )
    return start.kind


class GroupReader:
    """A member of a group that commits what was printed."""

    def __init__(
        self, log: Log, group: str, topic: str, policy: str, partitions: Sequence[int],
        session_ms: int,
    ) -> None:  # fmt: skip
        self._printed: dict[TopicPartition, tuple[int, int]] = {}
        """The next offset, and the number of the last reset that was followed before it."""
        self._next_commit = time.monotonic() + COMMIT_SECONDS
        self._group = log.group(group)
        self._consumer: Consumer = log.consumer(
            group,
            auto_offset_reset=policy,
            enable_auto_commit=False,
            poll_interval_ms=_poll_interval_ms(log),
            session_timeout_ms=session_ms,
            on_revoke=self._on_revoke,
            on_lost=self._on_lost,
        )
        if partitions:
            self._consumer.assign([(topic, p) for p in dict.fromkeys(partitions)])
        else:
            self._consumer.subscribe([topic])

    def batches(self, ends: dict[int, int] | None, limit: int | None) -> Iterator[list[Record]]:
        """Batches to print; each counts as printed when the next one is asked for.

        With ``ends`` they stop when this member's partitions are read up to there.
        """
        consumer = self._consumer
        remaining = limit
        unassigned_since, patience = time.monotonic(), 0.0
        while remaining is None or remaining > 0:
            size = POLL_RECORDS if remaining is None else min(POLL_RECORDS, remaining)
            batch = consumer.poll(GROUP_POLL_SECONDS, size)
            if batch:
                positions = self._positions(batch)
                yield batch
                remaining = None if remaining is None else remaining - len(batch)
                self._printed.update(positions)
            elif ends is None and reader_left():
                raise BrokenPipeError
            if time.monotonic() >= self._next_commit:
                self._commit()
            assigned = consumer.assignment()
            if assigned:
                unassigned_since = time.monotonic()
            if ends is None:
                continue
            if assigned and all(consumer.position(tp) >= ends[tp.partition] for tp in assigned):
                return
            waited = time.monotonic() - unassigned_since
            if not assigned and waited > WAIT_NOTICE_SECONDS and not patience:
                patience = self._patience()
                print_warning(
                    "other members of the group hold all partitions; waiting for up to "
                    f"{patience:.0f} s, in which one that died is expelled."
                )
            if not assigned and patience and waited > patience:
                print_warning("other members of the group still hold all partitions.")
                return

    def _patience(self) -> float:
        """Seconds in which every member that died is expelled, and its partitions handed over."""
        sessions = [member.session_timeout_ms for member in self._group.describe().members]
        return max(sessions, default=0) / 1000 + ASSIGNMENT_SECONDS

    def _positions(self, batch: list[Record]) -> dict[TopicPartition, tuple[int, int]]:
        """What may be committed once the batch is printed."""
        from offsetlog.values import TopicPartition

        partitions = {TopicPartition(record.topic, record.partition) for record in batch}
        consumer = self._consumer
        return {tp: (consumer.position(tp), consumer.followed_reset(tp)) for tp in partitions}

    def _commit(self, partitions: Sequence[TopicPartition] | None = None) -> None:
        """Commit what was printed, of these partitions or of all."""
        self._next_commit = time.monotonic() + COMMIT_SECONDS
        followed = self._consumer.followed_reset
        offsets = {}
        for tp in [tp for tp in self._printed if partitions is None or tp in partitions]:
            offset, reset = self._printed.pop(tp)
            if reset == followed(tp):
                offsets[tp] = offset
        if offsets:
            self._consumer.commit(offsets)

    def _on_revoke(self, _: Any, partitions: list[TopicPartition]) -> None:
        with contextlib.suppress(FencedError):
            self._commit(partitions)

    def _on_lost(self, _: Any, partitions: list[TopicPartition]) -> None:
        for tp in partitions:
            self._printed.pop(tp, None)

    def __enter__(self) -> GroupReader:
        return self

    def __exit__(self, *_: object) -> None:
        try:
            self._commit()
        except FencedError:
            print_warning(
                "another member holds these partitions now: what was printed last is not committed."
            )
        finally:
            self._consumer.close()


# --- formats -----------------------------------------------------------------------------------


class PlainFormat:
    """The value, and the key with a separator, as the bytes that they are."""

    def __init__(self, key_separator: bytes | None, null: bytes) -> None:
        self._separator = key_separator
        self._null = null

    def __call__(self, record: Record) -> bytes:
        value = self._null if record.value is None else record.value
        if self._separator is None:
            return value
        key = self._null if record.key is None else record.key
        return key + self._separator + value


def to_json(record: Record) -> bytes:
    return to_json_line(record.to_dict())
