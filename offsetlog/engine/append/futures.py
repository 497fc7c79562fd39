"""What ``send`` and ``send_arrow`` hand out: the answer, once there is one.

Invariants:

1. A future is a buffer and a place in it, and no container that the garbage collector would look
   at again and again: there are as many of them as records.
2. ``result`` may be called from any thread; it makes sure that somebody writes the buffer.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from offsetlog.core.topic.entry import Placed
from offsetlog.engine.append.send_buffer import SendBuffer
from offsetlog.errors import OffsetLogError
from offsetlog.values import RecordMetadata


class SendFuture(tuple[SendBuffer, int]):
    """The answer to one ``send``: where the record lies, once it is acknowledged."""

    __slots__ = ()

    def result(self, timeout: float | None = None) -> RecordMetadata:
        """Wait until the record is acknowledged; raises why if it is not."""
        batch, index = self
        if batch.results is not None:
            return batch.results[index]
        batch.wait(timeout, index)
        return batch.metadata(index)

    def exception(self, timeout: float | None = None) -> OffsetLogError | None:
        batch, index = self
        try:
            batch.wait(timeout, index)
        except OffsetLogError as error:
            return error
        return None

    def done(self) -> bool:
        return self[0].done.is_set()

    def add_done_callback(self, callback: Callable[[SendFuture], Any]) -> None:
        """Call back with this future once it is done, from the thread that wrote it."""
        self[0].add_callback(lambda: callback(self))

    def __repr__(self) -> str:
        return f"SendFuture({self[0].topic!r}, done={self.done()})"


class ArrowFuture:
    """The answer to ``send_arrow``: the runs of offsets that the table's rows got."""

    __slots__ = ("_batch",)

    def __init__(self, batch: SendBuffer) -> None:
        self._batch = batch

    def result(self, timeout: float | None = None) -> tuple[Placed, ...]:
        """(partition, base, records) of each run of rows, in the order of the partitions."""
        self._batch.wait(timeout)
        return self._batch.placed

    def metadata(self, index: int) -> RecordMetadata:
        """Where row ``index`` of the table lies."""
        self._batch.wait(None)
        return self._batch.metadata(index)

    def exception(self, timeout: float | None = None) -> OffsetLogError | None:
        try:
            self._batch.wait(timeout)
        except OffsetLogError as error:
            return error
        return None

    def done(self) -> bool:
        return self._batch.done.is_set()

    def add_done_callback(self, callback: Callable[[ArrowFuture], Any]) -> None:
        self._batch.add_callback(lambda: callback(self))
