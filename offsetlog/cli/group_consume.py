"""``offsetlog consume --group``: records to stdout, and a group's commits behind them.

Invariants:

1. Only what was written to stdout is committed: every few seconds, when partitions are taken
   away, and at the end, also at Ctrl-C or when the reader of stdout went away. What was written
   before a reset of its partition that was followed since is not.
2. Nothing that was polled is left out: ``--max`` bounds what is polled.
3. Without ``--follow`` it ends when this worker's partitions are read up to where the topic
   ended when it began.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from offsetlog.cli.failures import say
from offsetlog.cli.params import ConsumeFrom
from offsetlog.errors import FencedError, InvalidRequestError

if TYPE_CHECKING:
    from offsetlog.client.consumer import Consumer
    from offsetlog.client.log import Log
    from offsetlog.values import Record, TopicPartition

COMMIT_SECONDS = 5.0
POLL_SECONDS = 0.2
POLL_RECORDS = 2000
WAIT_SECONDS = 10.0
"""How long a worker that gets no partition waits for one, without ``--follow``."""


def check_start(start: ConsumeFrom) -> str:
    """The reset policy for ``--from``."""
    if start.kind not in ("earliest", "latest"):
        raise InvalidRequestError(
            "--from with an offset or a time does not go with --group.",
            "A group goes on where it is: put it elsewhere with 'offsetlog groups reset'.",
        )
    return start.kind


class GroupReading:
    """One worker of a group, printing."""

    def __init__(
        self, log: Log, group: str, topic: str, policy: str, partitions: Sequence[int],
        interval_ms: float, session_ms: int,
    ) -> None:  # fmt: skip
        self._done: dict[TopicPartition, tuple[int, int]] = {}
        """The next offset, and the number of the reset that was followed until then."""
        self._next_commit = time.monotonic() + COMMIT_SECONDS
        self.consumer: Consumer = log.consumer(
            group,
            auto_offset_reset=policy,
            enable_auto_commit=False,
            poll_interval_ms=interval_ms,
            session_timeout_ms=session_ms,
            on_revoke=self._revoked,
            on_lost=self._lost,
        )
        if partitions:
            self.consumer.assign([(topic, p) for p in dict.fromkeys(partitions)])
        else:
            self.consumer.subscribe([topic])

    def batches(
        self, ends: dict[int, int] | None, most: int | None, reader_left: Callable[[], bool]
    ) -> Iterator[list[Record]]:
        """Batches to print; each is taken for printed when the next one is asked for."""
        left = most
        waiting_since = time.monotonic()
        while left is None or left > 0:
            limit = POLL_RECORDS if left is None else min(POLL_RECORDS, left)
            batch = self.consumer.poll(POLL_SECONDS, limit)
            if batch:
                reached = self._reached(batch)
                yield batch
                left = None if left is None else left - len(batch)
                self._done.update(reached)
            elif ends is None and reader_left():
                raise BrokenPipeError
            if time.monotonic() >= self._next_commit:
                self.commit()
            mine = self.consumer.assignment()
            if mine:
                waiting_since = time.monotonic()
            if ends is None:
                continue
            if mine and all(self.consumer.position(tp) >= ends[tp.partition] for tp in mine):
                return
            if not mine and time.monotonic() - waiting_since > WAIT_SECONDS:
                say("warning: other members of the group hold all partitions.")
                return

    def _reached(self, batch: list[Record]) -> dict[TopicPartition, tuple[int, int]]:
        """What may be committed once the batch is printed."""
        from offsetlog.values import TopicPartition

        parts = {TopicPartition(record.topic, record.partition) for record in batch}
        consumer = self.consumer
        return {tp: (consumer.position(tp), consumer.followed_reset(tp)) for tp in parts}

    def commit(self, only: Sequence[Any] | None = None) -> None:
        self._next_commit = time.monotonic() + COMMIT_SECONDS
        mine = {tp: at for tp, at in self._done.items() if only is None or tp in only}
        for tp in mine:
            del self._done[tp]
        followed = self.consumer.followed_reset
        said = {tp: at for tp, (at, number) in mine.items() if number == followed(tp)}
        if said:
            self.consumer.commit(said)

    def _revoked(self, _: Any, partitions: list[Any]) -> None:
        with contextlib.suppress(FencedError):
            self.commit(partitions)

    def _lost(self, _: Any, partitions: list[Any]) -> None:
        for tp in partitions:
            self._done.pop(tp, None)

    def __enter__(self) -> GroupReading:
        return self

    def __exit__(self, kind: Any, error: Any, trace: Any) -> None:
        try:
            self.commit()
        except FencedError:
            say("warning: what was printed last is another worker's now, and was not committed.")
        finally:
            self.consumer.close()
