"""Writing a history down from a running program.

1. One file, one process, one ``Recorder``; its threads may share it.
2. A line is one write to the file, made before the operation begins and after it ended. What
   was written survives the process's end by SIGKILL.
3. An operation that nobody ended has an unknown outcome; one that left its ``with`` block by an
   error failed if the error says that nothing landed, else its outcome is unknown.
"""

from __future__ import annotations

import json
import os
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

from offsetlog.errors import InvalidRequestError, OffsetLogError
from offsetlog.testing.history.events import VERSION, partition_name
from offsetlog.values import Record

Partition = tuple[str, int]
Value = str | int
Mark = Callable[[bytes | None], Value]


def plain_mark(value: bytes | None) -> Value:
    """A record's value as text. Give a ``mark`` of your own where values are long."""
    return "" if value is None else value.decode("utf-8", "backslashreplace")


class Operation:
    """One that has begun. Say how it ended with ``ok``, ``fail`` or ``unknown``."""

    def __init__(self, recorder: Recorder, n: int) -> None:
        self.n = n
        self._recorder = recorder
        self._ended = False

    def ok(self, answer: Mapping[Any, Any] | None = None) -> None:
        named = None if answer is None else _named(answer)
        self._end("ok", named)

    def fail(self) -> None:
        """For certain nothing happened."""
        self._end("fail", None)

    def unknown(self) -> None:
        self._end("unknown", None)

    def _end(self, outcome: str, answer: Any) -> None:
        if not self._ended:
            self._ended = True
            self._recorder.write({"n": self.n, "at": self._recorder.clock(), outcome: answer})

    def __enter__(self) -> Operation:
        return self

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if error is None or self._ended:
            return
        if isinstance(error, OffsetLogError) and not error.may_have_landed:
            self.fail()
        else:
            self.unknown()


class Polling(Operation):
    """A poll: ``got`` takes the records as a consumer gives them."""

    def __init__(self, recorder: Recorder, n: int, mark: Mark) -> None:
        super().__init__(recorder, n)
        self._mark = mark

    def got(self, records: Iterable[Record]) -> None:
        answer: dict[str, tuple[list[int], list[Value]]] = {}
        for record in records:
            name = partition_name((record.topic, record.partition))
            offsets, values = answer.setdefault(name, ([], []))
            offsets.append(record.offset)
            values.append(self._mark(record.value))
        self._end("ok", answer)


class Recorder:
    """The history of this process."""

    def __init__(
        self,
        path: str | Path,
        process: str | None = None,
        *,
        mark: Mark = plain_mark,
        clock: Callable[[], int] = time.monotonic_ns,
    ) -> None:
        """The clock must be one for all processes of a history, as ``monotonic_ns`` is on one
        machine. A file that is there already is another process's: an error."""
        self.process = process or Path(path).stem
        self.clock = clock
        self._mark = mark
        self._lock = threading.Lock()
        self._n = 0
        try:
            self._file = os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_APPEND, 0o644)
        except FileExistsError:
            raise InvalidRequestError(
                f"There is a history at {path}.", "Each process writes a file of its own."
            ) from None
        self.write({"history": VERSION, "process": self.process})

    def write(self, line: dict[str, Any]) -> None:
        data = json.dumps(line, separators=(",", ":")).encode() + b"\n"
        with self._lock:
            while data:
                data = data[os.write(self._file, data) :]

    def _begin(self, kind: str, given: dict[str, Any]) -> int:
        n = self._next()
        self.write({"n": n, "at": self.clock(), "do": kind, "with": given})
        return n

    def _next(self) -> int:
        with self._lock:
            self._n += 1
            return self._n

    # --- records ---------------------------------------------------------------------------

    def send(
        self,
        records: Mapping[Partition, Iterable[Value]],
        *,
        batch: tuple[str, int] | None = None,
        sender: str | None = None,
    ) -> Operation:
        """Values, by partition, that nobody else sends; ``ok`` takes their offsets. A batch has
        a key (app, number) and may be sent again under it. What one sender begins later is to
        lie later; the sender is this process unless its threads name themselves."""
        given: dict[str, Any] = {"records": _named(records, list)}
        if batch is not None:
            given["batch"] = list(batch)
        if sender is not None:
            given["sender"] = sender
        return Operation(self, self._begin("send", given))

    def poll(self, consumer: str = "", group: str | None = None) -> Polling:
        """``got(records)`` ends it."""
        n = self._begin("poll", {"consumer": consumer, "group": group})
        return Polling(self, n, self._mark)

    def seek(self, offsets: Mapping[Partition, int | None], consumer: str = "") -> None:
        """The consumer reads from there; None where the place is not known."""
        self._did("seek", {"consumer": consumer, "offsets": _named(offsets)})

    def ends(self) -> Operation:
        """``ok`` takes the log end offsets, of one look for each topic."""
        return Operation(self, self._begin("ends", {}))

    def trim(self, starts: Mapping[Partition, int | None]) -> Operation:
        """Log starts are moved up: what is below may be gone. None: nobody knows how far."""
        return Operation(self, self._begin("trim", {"starts": _named(starts)}))

    # --- groups ----------------------------------------------------------------------------

    def commit(self, group: str, offsets: Mapping[Partition, int]) -> Operation:
        return Operation(self, self._begin("commit", {"group": group, "offsets": _named(offsets)}))

    def reset(self, group: str, offsets: Mapping[Partition, int | None]) -> Operation:
        """None: the position is taken away."""
        return Operation(self, self._begin("reset", {"group": group, "offsets": _named(offsets)}))

    def committed(self, group: str) -> Operation:
        """``ok`` takes what was seen; None where the group has no position."""
        return Operation(self, self._begin("committed", {"group": group}))

    def assign(
        self, partitions: Iterable[Partition], group: str | None = None, consumer: str = ""
    ) -> None:
        self._held("assign", partitions, group, consumer)

    def revoke(
        self, partitions: Iterable[Partition], group: str | None = None, consumer: str = ""
    ) -> None:
        """Given up because the group asked for it."""
        self._held("revoke", partitions, group, consumer)

    def lost(
        self, partitions: Iterable[Partition], group: str | None = None, consumer: str = ""
    ) -> None:
        """Found out that others had put it out of the group."""
        self._held("lost", partitions, group, consumer)

    def _held(
        self, kind: str, partitions: Iterable[Partition], group: str | None, consumer: str
    ) -> None:
        names = [partition_name(p) for p in partitions]
        self._did(kind, {"consumer": consumer, "group": group, "partitions": names})

    def _did(self, kind: str, given: dict[str, Any]) -> None:
        self.write({"n": self._next(), "at": self.clock(), "did": kind, "with": given})

    # --- the end ---------------------------------------------------------------------------

    def close(self) -> None:
        if self._file >= 0:
            os.close(self._file)
            self._file = -1

    def __enter__(self) -> Recorder:
        return self

    def __exit__(self, *about: object) -> None:
        self.close()


def _named(
    by_partition: Mapping[Any, Any], each: Callable[[Any], Any] | None = None
) -> dict[str, Any]:
    return {partition_name(p): each(said) if each else said for p, said in by_partition.items()}
