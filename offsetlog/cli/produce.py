"""``offsetlog produce``: lines become records.

Invariants:

1. Memory is bounded: lines are read and sent in chunks, and one thread waits for their
   acknowledgements, at most a few chunks behind.
2. ``--acks`` prints in the order of the lines, and nothing after a line that failed: output line
   n always belongs to input line n.
3. The exit status is 0 only if every line was acknowledged.
"""

from __future__ import annotations

import queue
import sys
import threading
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, BinaryIO, NamedTuple

import click

from offsetlog.cli.base import Command
from offsetlog.cli.output import print_json, print_line, print_text
from offsetlog.cli.params import TOPIC, Separator, Whole
from offsetlog.cli.session import CliSession, pass_session
from offsetlog.errors import InvalidRequestError, OffsetLogError, UnknownTopicError

if TYPE_CHECKING:
    from offsetlog.client.producer import Producer
    from offsetlog.engine.append.send_buffer import SendFuture

CHUNK_BYTES = 65_536
MAX_PENDING_CHUNKS = 8
MAX_OVERHEAD_BYTES = 65_536
"""Of a line, for key, headers and separators, besides the value."""
BROKEN_PIPE = 141
"""The status with which a shell reports a program that wrote into a closed pipe."""

Headers = list[tuple[str, bytes | None]]


class LineFormat(NamedTuple):
    """Where headers, key and value are in a line."""

    key_separator: bytes | None
    has_headers: bool
    headers_delimiter: bytes
    header_separator: bytes
    header_key_separator: bytes
    null_marker: bytes | None

    def parse(self, line: bytes) -> tuple[bytes | None, bytes | None, Headers | None]:
        """(value, key, headers)"""
        headers = None
        if self.has_headers:
            text, line = _split(line, self.headers_delimiter, "the headers")
            headers = self._parse_headers(text)
        if self.key_separator is None:
            return self._or_null(line), None, headers
        key, value = _split(line, self.key_separator, "the key")
        return self._or_null(value), self._or_null(key), headers

    def _parse_headers(self, text: bytes) -> Headers:
        if text in (b"", self.null_marker):
            return []
        headers: Headers = []
        for header in text.split(self.header_separator):
            name, value = _split(header, self.header_key_separator, "a header's name")
            try:
                headers.append((name.decode(), self._or_null(value)))
            except UnicodeDecodeError:
                raise InvalidRequestError("A header's name is not UTF-8.") from None
        return headers

    def _or_null(self, text: bytes) -> bytes | None:
        return None if text == self.null_marker else text


def _split(text: bytes, separator: bytes, field: str) -> tuple[bytes, bytes]:
    first, middle, rest = text.partition(separator)
    if not middle:
        raise InvalidRequestError(
            f"There is no {separator.decode(errors='replace')!r} after {field}.",
            "Check the separator options.",
        )
    return first, rest


class Acks(threading.Thread):
    """Waits for acknowledgements in order, and prints them with ``--acks``."""

    def __init__(self, print_acks: bool, as_json: bool) -> None:
        super().__init__(name="acks", daemon=True)
        self._pending: queue.Queue[Sequence[SendFuture] | None] = queue.Queue(MAX_PENDING_CHUNKS)
        self._print_acks = print_acks
        self._json = as_json
        self.acknowledged = 0
        self.acknowledged_after_failure = 0
        """Those of them whose lines come after the one that failed."""
        self.failed_line = 0
        self.error: OffsetLogError | None = None
        self.stdout_error: OSError | None = None

    def add(self, futures: Sequence[SendFuture]) -> None:
        self._pending.put(futures)

    def finish(self) -> None:
        """Return when everything that was sent is acknowledged or failed."""
        self._pending.put(None)
        self.join()

    @property
    def failed(self) -> bool:
        return self.error is not None or self.stdout_error is not None

    def run(self) -> None:
        line = 0
        while True:
            futures = self._pending.get()
            if futures is None:
                return
            lines: list[str] = []
            for future in futures:
                line += 1
                try:
                    metadata = future.result()
                except OffsetLogError as error:
                    if self.error is None:
                        self.error, self.failed_line = error, line
                    continue
                self.acknowledged += 1
                self.acknowledged_after_failure += self.error is not None
                if self.error is None and self._print_acks:
                    partition, offset = metadata.partition, metadata.offset
                    lines.append(
                        f'{{"partition": {partition}, "offset": {offset}}}\n'
                        if self._json
                        else f"{partition}\t{offset}\n"
                    )
            self._print(lines)

    def _print(self, lines: list[str]) -> None:
        if not lines or self.stdout_error is not None:
            return
        try:
            print_text("".join(lines))
        except OSError as error:
            self.stdout_error = error


@click.command(
    "produce",
    cls=Command,
    examples=r"""
    $ seq 1000 | offsetlog produce orders
    $ printf 'anna:3 apples\nbert:1 pear\n' | offsetlog produce orders --key-separator : --acks
    $ offsetlog produce orders --file access.log --partition 0
    $ printf 'anna:\n' | offsetlog produce orders --key-separator : --null-marker ''
    """,
)
@click.argument("topic", metavar="TOPIC", type=TOPIC)
@click.option(
    "--file", "path", type=click.Path(), metavar="FILE", help="Read this file, not stdin."
)
@click.option("--partition", type=Whole(0), help="Send every record to this partition.")
@click.option("--acks", is_flag=True, help="Print PARTITION<TAB>OFFSET for each line, in order.")
@click.option("--key-separator", type=Separator(), help="Lines are KEY, this text, VALUE.")
@click.option("--parse-headers", is_flag=True, help="Lines begin with headers: NAME:VALUE,...")
@click.option(
    "--headers-delimiter", type=Separator(), default=r"\t", show_default=True,
    help="The text after the headers.",
)  # fmt: skip
@click.option(
    "--headers-separator", type=Separator(), default=",", show_default=True,
    help="The text between two headers.",
)  # fmt: skip
@click.option(
    "--headers-key-separator", type=Separator(), default=":", show_default=True,
    help="The text between a header's name and its value.",
)  # fmt: skip
@click.option("--null-marker", metavar="TEXT", help="A key or value that equals this text is null.")
@pass_session
def command(
    session: CliSession,
    topic: str,
    path: str | None,
    partition: int | None,
    acks: bool,
    key_separator: bytes | None,
    parse_headers: bool,
    headers_delimiter: bytes,
    headers_separator: bytes,
    headers_key_separator: bytes,
    null_marker: str | None,
) -> None:
    r"""Send the lines of stdin, or of a file, as records.

    The end of a line, \n or \r\n, is not part of the record; an empty line is a record with an
    empty value. Records with a key go to the partition that a Kafka client would choose. In
    separators \t is a tab. A line that can't be sent ends the command: the lines before it are
    written, and the error names it.
    """
    session.broken_pipe_status = BROKEN_PIPE
    null = None if null_marker is None else null_marker.encode("utf-8", "surrogateescape")
    line_format = LineFormat(
        key_separator, parse_headers, headers_delimiter, headers_separator, headers_key_separator,
        null,
    )  # fmt: skip
    source = _source(path)
    try:
        with session.open() as log:
            info = log.topic(topic).describe()
            count = len(info.partitions)
            if partition is not None and partition >= count:
                raise UnknownTopicError(
                    f"Topic {topic!r} has no partition {partition}.", f"It has {count}, from 0."
                )
            limit = int(info.settings["max.message.bytes"])
            with log.producer() as producer:
                pending = Acks(acks, session.json)
                sender = LineSender(producer, topic, partition, line_format, pending)
                sender.run(source, limit + MAX_OVERHEAD_BYTES)
    finally:
        if path not in (None, "-"):
            source.close()
    if session.json and not acks:
        print_json({"topic": topic, "records": pending.acknowledged})


def _source(path: str | None) -> BinaryIO:
    if path in (None, "-"):
        if sys.stdin.isatty():
            print_line("Type one record a line; Ctrl-D ends.", stderr=True)
        return sys.stdin.buffer
    assert path is not None
    try:
        return open(path, "rb")
    except OSError as error:
        raise InvalidRequestError(
            f"{path!r} can't be read: {error.strerror}.", "Name a file of lines."
        ) from None


class LineSender:
    """Sends the lines of a source."""

    def __init__(
        self,
        producer: Producer,
        topic: str,
        partition: int | None,
        line_format: LineFormat,
        acks: Acks,
    ) -> None:
        self._producer = producer
        self._topic = topic
        self._partition = partition
        self._format = line_format
        self._acks = acks
        self._sent = 0

    def run(self, source: BinaryIO, limit: int) -> None:
        acks = self._acks
        acks.start()
        refused: OffsetLogError | None = None
        try:
            for lines in read_lines(source, limit):
                futures: list[SendFuture] = []
                try:
                    self._send(lines, futures)
                finally:
                    acks.add(futures)
                if acks.failed:
                    break
        except OffsetLogError as error:
            refused = error
        finally:
            # Also after Ctrl-C: what was sent is written, and its acks are printed.
            acks.finish()
        if acks.error is not None:
            raise self._failure(acks.failed_line, acks.error)
        if acks.stdout_error is not None:
            raise acks.stdout_error
        if refused is not None:
            raise self._failure(self._sent + 1, refused)

    def _send(self, lines: Sequence[bytes], futures: list[SendFuture]) -> None:
        send, parse = self._producer.send, self._format.parse
        topic, partition = self._topic, self._partition
        for line in lines:
            value, key, headers = parse(line)
            futures.append(send(topic, value, key, headers, partition))
            self._sent += 1

    def _failure(self, line: int, error: OffsetLogError) -> OffsetLogError:
        message = f"Line {line}: {error.message}"
        after = self._acks.acknowledged_after_failure
        written = f"{self._acks.acknowledged - after} lines before it were written"
        if after:
            written += f", and {after} after it"
        return type(error)(
            message, f"{error.hint} {written}.".strip(), may_have_landed=error.may_have_landed
        )


def read_lines(source: BinaryIO, limit: int) -> Iterator[list[bytes]]:
    """The lines of a source in batches, without their ends."""
    rest: list[bytes] = []
    size = 0
    while True:
        chunk = source.read1(CHUNK_BYTES)  # type: ignore[attr-defined]
        if not chunk:
            if rest:
                yield [b"".join(rest)]
            return
        head, newline, tail = chunk.rpartition(b"\n")
        if not newline:
            rest.append(chunk)
            size += len(chunk)
        else:
            rest.append(head)
            complete = b"".join(rest)
            rest, size = [tail] if tail else [], len(tail)
            yield [line.removesuffix(b"\r") for line in complete.split(b"\n")]
        if size > limit:
            raise InvalidRequestError(
                f"The line is longer than {limit} bytes, and the topic takes less.",
                "Raise the topic's max.message.bytes, or check that the input is lines.",
            )
