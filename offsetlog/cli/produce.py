"""``offsetlog produce``: lines become records.

Invariants:

1. Memory is bounded: lines are read in chunks, sent, and their answers waited for by one thread
   that is at most a few chunks behind.
2. ``--acks`` prints the lines' places in the order of the lines; nothing is printed for a line
   behind one that failed, so output line n always belongs to input line n.
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
from offsetlog.cli.output import print_json
from offsetlog.cli.params import TOPIC, Separator, Whole
from offsetlog.cli.session import CliSession, pass_session
from offsetlog.errors import InvalidRequestError, OffsetLogError, UnknownTopicError

if TYPE_CHECKING:
    from offsetlog.client.producer import Producer
    from offsetlog.engine.append.send_buffer import SendFuture

CHUNK_BYTES = 65_536
CHUNKS_BEHIND = 8
PARTS_BYTES = 65_536
"""What key, headers and separators may add to a line, besides the value."""
NO_READER = 141
"""As a shell reports a program that wrote into a closed pipe."""

Headers = list[tuple[str, bytes | None]]


class LineFormat(NamedTuple):
    """How a line holds headers, key and value."""

    key: bytes | None
    headers: bool
    delimiter: bytes
    between: bytes
    inside: bytes
    null: bytes | None

    def parse(self, line: bytes) -> tuple[bytes | None, bytes | None, Headers | None]:
        """(value, key, headers)"""
        headers = None
        if self.headers:
            text, line = _split(line, self.delimiter, "headers")
            headers = self._headers(text)
        if self.key is None:
            return self._or_null(line), None, headers
        key, value = _split(line, self.key, "a key")
        return self._or_null(value), self._or_null(key), headers

    def _headers(self, text: bytes) -> Headers:
        if text in (b"", self.null):
            return []
        out: Headers = []
        for pair in text.split(self.between):
            name, value = _split(pair, self.inside, "a header's name")
            try:
                out.append((name.decode(), self._or_null(value)))
            except UnicodeDecodeError:
                raise InvalidRequestError("A header's name is not UTF-8.") from None
        return out

    def _or_null(self, text: bytes) -> bytes | None:
        return None if text == self.null else text


def _split(text: bytes, separator: bytes, what: str) -> tuple[bytes, bytes]:
    first, found, rest = text.partition(separator)
    if not found:
        raise InvalidRequestError(
            f"It has no {separator.decode(errors='replace')!r} behind {what}.",
            "Check the separators that were given.",
        )
    return first, rest


class Answers(threading.Thread):
    """Waits for the answers to what was sent, in order, and prints them if asked to."""

    def __init__(self, printing: bool, as_json: bool) -> None:
        super().__init__(name="acks", daemon=True)
        self._waiting: queue.Queue[Sequence[SendFuture] | None] = queue.Queue(CHUNKS_BEHIND)
        self._printing = printing
        self._json = as_json
        self.acknowledged = 0
        self.behind = 0
        """How many of them stand behind the line that failed."""
        self.failed_line = 0
        self.error: OffsetLogError | None = None
        self.no_reader: OSError | None = None

    def take(self, futures: Sequence[SendFuture]) -> None:
        self._waiting.put(futures)

    def end(self) -> None:
        """All was sent: return when all is answered."""
        self._waiting.put(None)
        self.join()

    @property
    def troubled(self) -> bool:
        return self.error is not None or self.no_reader is not None

    def run(self) -> None:
        line = 0
        while True:
            futures = self._waiting.get()
            if futures is None:
                return
            places: list[str] = []
            for future in futures:
                line += 1
                try:
                    told = future.result()
                except OffsetLogError as error:
                    if self.error is None:
                        self.error, self.failed_line = error, line
                    continue
                self.acknowledged += 1
                self.behind += self.error is not None
                if self.error is None and self._printing:
                    places.append(
                        f'{{"partition": {told.partition}, "offset": {told.offset}}}\n'
                        if self._json
                        else f"{told.partition}\t{told.offset}\n"
                    )
            self._print(places)

    def _print(self, places: list[str]) -> None:
        if not places or self.no_reader is not None:
            return
        try:
            sys.stdout.write("".join(places))
            sys.stdout.flush()
        except OSError as error:
            self.no_reader = error


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
@click.option("--file", "path", type=click.Path(), metavar="FILE", help="Read it, not stdin.")
@click.option("--partition", type=Whole(0), help="Send everything there.")
@click.option("--acks", is_flag=True, help="Print PARTITION<TAB>OFFSET for each line, in order.")
@click.option("--key-separator", type=Separator(), help="Lines are KEY, this text, VALUE.")
@click.option("--parse-headers", is_flag=True, help="Lines begin with headers: NAME:VALUE,...")
@click.option(
    "--headers-delimiter", type=Separator(), default=r"\t", show_default=True,
    help="Stands behind the headers.",
)  # fmt: skip
@click.option(
    "--headers-separator", type=Separator(), default=",", show_default=True,
    help="Stands between two headers.",
)  # fmt: skip
@click.option(
    "--headers-key-separator", type=Separator(), default=":", show_default=True,
    help="Stands between a header's name and its value.",
)  # fmt: skip
@click.option("--null-marker", metavar="TEXT", help="A key or value that is just this is null.")
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

    A line ends with \n or \r\n, which is not part of the record; an empty line is a record with
    an empty value. Records with a key go to the partition that a Kafka client would choose.
    In separators \t stands for a tab. A line that can't be sent ends the command: the lines
    before it are written, and the error names it.
    """
    session.broken_pipe_status = NO_READER
    null = None if null_marker is None else null_marker.encode("utf-8", "surrogateescape")
    shape = LineFormat(
        key_separator, parse_headers, headers_delimiter, headers_separator, headers_key_separator,
        null,
    )  # fmt: skip
    source = _source(path)
    try:
        with session.open() as log:
            told = log.topic(topic).describe()
            count = len(told.partitions)
            if partition is not None and partition >= count:
                raise UnknownTopicError(
                    f"Topic {topic!r} has no partition {partition}.", f"It has {count}, from 0."
                )
            limit = int(told.settings["max.message.bytes"])
            with log.producer() as producer:
                answers = Answers(acks, session.json)
                sent = _Sending(producer, topic, partition, shape, answers)
                sent.run(source, limit + PARTS_BYTES)
    finally:
        if path not in (None, "-"):
            source.close()
    if session.json and not acks:
        print_json({"topic": topic, "records": answers.acknowledged})


def _source(path: str | None) -> BinaryIO:
    if path in (None, "-"):
        if sys.stdin.isatty():
            click.echo("Type one record a line; Ctrl-D ends.", err=True)
        return sys.stdin.buffer
    assert path is not None
    try:
        return open(path, "rb")
    except OSError as error:
        raise InvalidRequestError(
            f"{path!r} can't be read: {error.strerror}.", "Give a file of lines."
        ) from None


class _Sending:
    """One run over the lines of a source."""

    def __init__(
        self,
        producer: Producer,
        topic: str,
        partition: int | None,
        shape: LineFormat,
        answers: Answers,
    ) -> None:
        self._producer = producer
        self._topic = topic
        self._partition = partition
        self._shape = shape
        self._answers = answers
        self._sent = 0

    def run(self, source: BinaryIO, limit: int) -> None:
        answers = self._answers
        answers.start()
        refused: OffsetLogError | None = None
        try:
            for lines in read_lines(source, limit):
                futures: list[SendFuture] = []
                try:
                    self._send(lines, futures)
                finally:
                    answers.take(futures)
                if answers.troubled:
                    break
        except OffsetLogError as error:
            refused = error
        finally:
            # Also after Ctrl-C: what was sent is written, and its places are printed.
            answers.end()
        if answers.error is not None:
            raise self._failure(answers.failed_line, answers.error)
        if answers.no_reader is not None:
            raise answers.no_reader
        if refused is not None:
            raise self._failure(self._sent + 1, refused)

    def _send(self, lines: Sequence[bytes], futures: list[SendFuture]) -> None:
        send, parse = self._producer.send, self._shape.parse
        topic, partition = self._topic, self._partition
        for line in lines:
            value, key, headers = parse(line)
            futures.append(send(topic, value, key, headers, partition))
            self._sent += 1

    def _failure(self, line: int, error: OffsetLogError) -> OffsetLogError:
        message = f"Line {line}: {error.message}"
        behind = self._answers.behind
        written = f"{self._answers.acknowledged - behind} lines before it were written"
        if behind:
            written += f", and {behind} behind it"
        return type(error)(
            message, f"{error.hint} {written}.".strip(), may_have_landed=error.may_have_landed
        )


def read_lines(source: BinaryIO, limit: int) -> Iterator[list[bytes]]:
    """The lines of a source as they come, without their ends; some at a time."""
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
            text = b"".join(rest)
            rest, size = [tail] if tail else [], len(tail)
            yield [line.removesuffix(b"\r") for line in text.split(b"\n")]
        if size > limit:
            raise InvalidRequestError(
                f"It is longer than {limit} bytes, and the topic takes less.",
                "Raise the topic's max.message.bytes, or check that the input is lines.",
            )
