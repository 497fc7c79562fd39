"""``offsetlog consume``: records to stdout.

Invariants:

1. Without ``--follow`` it prints what was there when it began, and ends.
2. A record is printed whole: its line is built before any of it is written.
3. Nothing of a record is lost or guessed: bytes are written as they are, and in JSON bytes that
   are not UTF-8 are in a field of their own.
"""

from __future__ import annotations

import json
import select
import sys
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import click

from offsetlog.cli.base import Command
from offsetlog.cli.group_consume import GroupReading, check_start
from offsetlog.cli.params import TOPIC, ConsumeFrom, Duration, OffsetOrTime, Separator, Whole
from offsetlog.cli.session import CliSession, pass_session
from offsetlog.errors import OffsetOutOfRangeError

if TYPE_CHECKING:
    from offsetlog.client.consumer import Consumer
    from offsetlog.client.log import Log
    from offsetlog.values import Record

POLL_RECORDS = 2000
FOLLOW_SECONDS = 0.5
LOCAL_INTERVAL_MS = 20
REMOTE_INTERVAL_MS = 500


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
    help="Read only this one; may be repeated.",
)  # fmt: skip
@click.option("--max", "most", type=Whole(1), metavar="N", help="End after N records.")
@click.option("--follow", is_flag=True, help="Wait for new records, until Ctrl-C.")
@click.option(
    "--group", metavar="G", help="Go on where this group is, share its work, and commit for it."
)
@click.option(
    "--session-timeout", type=Duration(), default="45s", show_default=True, metavar="DURATION",
    help="With --group: after so long without a sign of life others take over.",
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
    most: int | None,
    follow: bool,
    group: str | None,
    session_timeout: int,
    key_separator: bytes | None,
    null_marker: str,
) -> None:
    """Print the values of a topic's records, one a line.

    Without --follow it ends where the topic ended when it began. A bare number behind --from
    is an offset; a time is ISO 8601 (UTC if it names no zone), or @ and milliseconds since 1970.
    A partition with no record since that time is read from its end.

    With --group it goes on at the group's committed offsets (--from says where if there are none),
    several of them share the partitions, and what was printed is committed.

    With --json each line is an object with partition, offset, timestamp, key, value and headers.
    Bytes that are not UTF-8 are null there, and in base64 in key_base64 or value_base64 beside it.
    """
    if session.json:
        show = as_json
    else:
        null = null_marker.encode("utf-8", "surrogateescape")
        show = _Plain(key_separator, null)
    if group is not None:
        policy = check_start(start)
        with session.open() as log:
            interval = LOCAL_INTERVAL_MS if log.store.is_local else REMOTE_INTERVAL_MS
            ends = log.topic(topic).end_offsets()
            with GroupReading(
                log, group, topic, policy, partitions, interval, session_timeout
            ) as reading:
                batches = reading.batches(None if follow else ends, most, reader_left)
                _print(batches, show, None)
        return
    with session.open() as log, _consumer(log, topic, start, partitions) as consumer:
        if follow:
            batches = _following(consumer)
        else:
            batches = _up_to_now(consumer, log.topic(topic).end_offsets())
        _print(batches, show, most)


def _consumer(log: Log, topic: str, start: ConsumeFrom, partitions: Sequence[int]) -> Consumer:
    """A consumer that stands where it was asked to."""
    interval = LOCAL_INTERVAL_MS if log.store.is_local else REMOTE_INTERVAL_MS
    policy = "latest" if start.kind == "latest" else "earliest"
    consumer = log.consumer(auto_offset_reset=policy, poll_interval_ms=interval)
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


# --- what is read ------------------------------------------------------------------------------


def _up_to_now(consumer: Consumer, ends: dict[int, int]) -> Iterator[list[Record]]:
    """What lies before ``ends``; then nothing more."""
    left = set(consumer.assignment())
    while left:
        for done in [tp for tp in left if consumer.position(tp) >= ends.get(tp.partition, 0)]:
            consumer.pause(done)
            left.discard(done)
        if not left:
            return
        batch = consumer.poll(0.0, POLL_RECORDS)
        yield [record for record in batch if record.offset < ends.get(record.partition, 0)]


def _following(consumer: Consumer) -> Iterator[list[Record]]:
    while True:
        batch = consumer.poll(FOLLOW_SECONDS, POLL_RECORDS)
        if not batch and reader_left():
            raise BrokenPipeError
        yield batch


def reader_left() -> bool:
    """Whether the pipe that stdout is has nobody at its other end."""
    try:
        looking = select.poll()
        looking.register(sys.stdout.fileno(), 0)
        return any(event & select.POLLERR for _, event in looking.poll(0))
    except (OSError, ValueError, AttributeError):
        return False


# --- how it is shown ---------------------------------------------------------------------------


class _Plain:
    """The value, and the key if asked for, as the bytes that they are."""

    def __init__(self, key_separator: bytes | None, null: bytes) -> None:
        self._separator = key_separator
        self._null = null

    def __call__(self, record: Record) -> bytes:
        value = self._null if record.value is None else record.value
        if self._separator is None:
            return value
        key = self._null if record.key is None else record.key
        return key + self._separator + value


def as_json(record: Record) -> bytes:
    told: dict[str, Any] = {
        "partition": record.partition,
        "offset": record.offset,
        "timestamp": record.timestamp,
    }
    put_bytes(told, "key", record.key)
    put_bytes(told, "value", record.value)
    headers = []
    for name, value in record.headers:
        header: dict[str, Any] = {"key": name}
        put_bytes(header, "value", value)
        headers.append(header)
    told["headers"] = headers
    return json.dumps(told, ensure_ascii=False).encode()


def put_bytes(told: dict[str, Any], name: str, data: bytes | None) -> None:
    """Bytes as text if they are UTF-8, else as null with their base64 beside it."""
    try:
        told[name] = None if data is None else data.decode()
    except UnicodeDecodeError:
        from base64 import b64encode

        assert data is not None
        told[name] = None
        told[f"{name}_base64"] = b64encode(data).decode()


def _print(batches: Iterator[list[Record]], show: Any, most: int | None) -> None:
    out = sys.stdout.buffer
    left = most
    for batch in batches:
        if left is not None:
            batch = batch[:left]
            left -= len(batch)
        if batch:
            out.write(b"\n".join(map(show, batch)) + b"\n")
            out.flush()
        if left == 0:
            return
