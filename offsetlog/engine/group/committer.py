"""What a consumer commits for its group, and how.

Invariants:

1. Committed is the next offset to read. An offset that was never there is refused, and so is
   everything else in the same commit.
2. One commit is in flight at a time: later ones wait for it, and keep their order.
3. A commit carries the generation of the last look, and for each position the reset number
   that was followed when it was given; what was reset since is passed over.
4. A commit of all positions writes those that are not committed already, with the same text.
   What was named is always written.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple, Protocol

from offsetlog.core.group.decide import Accepted
from offsetlog.core.group.facts import OffsetAndMetadata, Partition, check_position
from offsetlog.core.group.membership import resets_since
from offsetlog.core.group.requests import CommitRequest, Request
from offsetlog.core.group.state import GroupsState, GroupState
from offsetlog.core.topic.plan import check_partition
from offsetlog.engine.env import Env
from offsetlog.engine.group.commit_queue import CommitQueue
from offsetlog.engine.group.heartbeats import Heartbeats, HeartbeatTiming
from offsetlog.engine.group.offsets_table import OffsetsTable
from offsetlog.engine.group.polled import PolledRanges
from offsetlog.engine.topic.cursor import Cursor, Rows
from offsetlog.engine.topic.open_topic import OpenTopic
from offsetlog.errors import (
    FencedError,
    InvalidRequestError,
    OffsetLogError,
    OffsetLogWarning,
    OffsetOutOfRangeError,
    UnknownTopicError,
)
from offsetlog.values import TopicPartition, as_partition

Said = dict[Partition, OffsetAndMetadata]


class Settings(NamedTuple):
    policy: str
    auto_commit: bool
    auto_commit_ms: float
    timing: HeartbeatTiming
    strategy: str
    client: str


class WorkerHost(Protocol):
    """What a worker needs of the ``Log``."""

    env: Env

    def topic_handle(self, name: str) -> OpenTopic: ...

    @property
    def offsets_table(self) -> OffsetsTable: ...

    @property
    def pulses(self) -> Heartbeats: ...


class Committer:
    """The part of a worker that commits."""

    def __init__(self, host: WorkerHost, group: str, settings: Settings, cursor: Cursor) -> None:
        self.group = group
        self._host = host
        self._env = host.env
        self._table = host.offsets_table
        self._settings = settings
        self._cursor = cursor
        self.topics: tuple[str, ...] = ()
        self.member: str | None = None
        self._generation = 0
        self._followed = 0
        self._saved: dict[Partition, int] = {}
        self.handed = PolledRanges()
        self._seen: GroupsState | None = None
        self._next_auto = self._env.monotonic() + settings.auto_commit_ms / 1000
        self.commits = CommitQueue(self._ask_commit, f"offsetlog-commits-{group}", host.env.spawn)

    def offsets_of(self, given: Mapping[Any, Any] | None) -> Said:
        """What a commit says: all positions, or those that were given, looked at with care."""
        if given is None:
            return {
                tp: OffsetAndMetadata(position)
                for tp, position in self._cursor.positions.items()
                if position is not None
            }
        return {tp: self._checked(tp, said) for tp, said in _as_offsets(given).items()}

    def _checked(self, tp: Partition, said: OffsetAndMetadata) -> OffsetAndMetadata:
        check_position(tp, said)
        handle = self._host.topic_handle(tp[0])
        state = handle.state(fresh=False)
        if tp[1] >= state.partitions or said.offset > state.end(tp[1]):
            state = handle.state()
        check_partition(state, tp[1])
        end = state.end(tp[1])
        if said.offset > end:
            raise OffsetOutOfRangeError(
                f"Offset {said.offset} of {tp[0]}-{tp[1]} was never there: it ends at {end}.",
                "Commit the next offset to read, which is at most the end.",
            )
        return said

    def commit(self, given: Mapping[Any, Any] | None) -> None:
        self.commits.drain()
        offsets = self.offsets_of(given)
        if offsets:
            self._ask_commit(self._request(offsets, news=given is None))

    def commit_async(self, given: Mapping[Any, Any] | None, callback: Any) -> Any:
        request = self._request(self.offsets_of(given), news=given is None)
        return self.commits.submit(request, callback)

    def _request(self, offsets: Said, news: bool) -> CommitRequest:
        if self.member is None and self.topics:
            raise FencedError(
                f"This consumer is no longer a member of the group {self.group!r}.",
                "The next poll joins anew, and goes on from the committed positions.",
            )
        return CommitRequest(
            self.group,
            self.member,
            self._generation,
            self._followed,
            offsets,
            self._earlier(offsets),
            news,
        )

    def gave(self, found: Iterable[Rows]) -> None:
        """Records that a poll is about to give."""
        for tp, batch, low, high in found:
            offsets = batch.table.column("offset")
            after = offsets[high].as_py() if high < len(offsets) else batch.end
            self.handed.give(tp, offsets[low].as_py(), after)

    def _earlier(self, offsets: Said) -> dict[Partition, int]:
        """Those that were given before a reset that was followed since."""
        out: dict[Partition, int] = {}
        for partition, said in offsets.items():
            tp = TopicPartition(*partition)
            number = self.handed.number_of(tp, said.offset)
            if number is not None and self._cursor.positions.get(tp) != said.offset:
                out[partition] = number
        return out

    def _adopt(self, group: GroupState) -> None:
        """Go on from the group's reset number as it is now."""
        since = resets_since(group, self._followed)
        self.handed.follow((TopicPartition(*p) for p in since), group.resets)
        self._followed = group.resets

    def _ask_commit(self, request: CommitRequest) -> None:
        [accepted] = self._accept(request)
        for tp, said in request.offsets.items():
            if tp not in accepted.dropped:
                self._saved[TopicPartition(*tp)] = said.offset

    def _dirty(self) -> Said:
        return {tp: said for tp, said in self.offsets_of(None).items() if self._moved(tp, said)}

    def _auto_commit(self) -> None:
        offsets = self._dirty()
        if not offsets:
            return
        try:
            self.commit({tuple(tp): said for tp, said in offsets.items()})
        except FencedError:
            if self.member is None:
                raise
            self._seen = None  # The look that follows says what happened, and warns.
        except UnknownTopicError:
            self._seen = None  # Its partitions are taken away at the next look.
        except OffsetLogError as error:
            if not error.retryable:
                raise
            warn(f"The automatic commit failed and is tried again: {error}")

    def _accept(self, *requests: Request) -> tuple[Accepted, ...]:
        return self._table.accept(*requests)

    def committed(self, only: list[TopicPartition] | None) -> dict[TopicPartition, Any]:
        self.commits.drain()
        positions = self._table.look().group(self.group).positions
        wanted = [TopicPartition(*p) for p in sorted(positions)] if only is None else only
        return {
            tp: OffsetAndMetadata(positions[tp].offset, positions[tp].metadata)
            for tp in wanted
            if tp in positions
        }

    def _moved(self, tp: Partition, said: OffsetAndMetadata) -> bool:
        """Whether a position still is to be committed after the revoke callback has run."""
        return self._saved.get(tp) != said.offset


def _as_offsets(given: Mapping[Any, Any]) -> Said:
    if not isinstance(given, Mapping):
        raise InvalidRequestError(
            f"{given!r} is not what a commit takes.", 'Write it as {("orders", 0): 53}.'
        )
    out: Said = {}
    for key, value in given.items():
        if isinstance(value, tuple):
            if len(value) != 2 or not isinstance(value[1], str):
                raise InvalidRequestError(
                    f"{value!r} is not an offset with its metadata.", 'Write it as (53, "text").'
                )
            value = OffsetAndMetadata(*value)
        else:
            value = OffsetAndMetadata(value)
        out[as_partition(key)] = value
    return out


def warn(text: str) -> None:
    warnings.warn(text, OffsetLogWarning, stacklevel=2)
