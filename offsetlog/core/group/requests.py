"""The requests that a group takes.

Rules of this module:

1. A request holds what its author wants and what it knew, never what is to be written: that is
   decided anew (``decide``) against each version at which it is tried.
2. ``generation`` is the one of the fold that its author worked in, ``reset`` the reset
   number that its progress has followed; where some of it was made under an earlier one,
   ``earlier`` says under which.
3. A request happens whole or not at all.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from offsetlog.core.group.facts import OffsetAndMetadata, Partition, Subscription, TopicView
from offsetlog.core.group.reset import OffsetSpan, Scenario
from offsetlog.values import MAX_OFFSET

Offsets = Mapping[Partition, OffsetAndMetadata]


class CommitRequest(NamedTuple):
    """``member=None``: a consumer that was assigned by hand and is no member. ``news``: what is
    committed already need not be written again."""

    group: str
    member: str | None
    generation: int
    reset: int
    offsets: Offsets
    earlier: Mapping[Partition, int] = {}
    news: bool = False


class JoinRequest(NamedTuple):
    """``generation=None``: a new member, under a name never used before. Else it is a member
    since no later than that generation, and changes its subscription. ``expels``: the only owner
    that a new one which joins alone may expel; None: whoever owns the group."""

    group: str
    member: str
    subscription: Subscription
    generation: int | None = None
    expels: str | None = None


class ReleaseRequest(NamedTuple):
    """The holder gives partitions up, each with its last position (None: it has none)."""

    group: str
    member: str
    generation: int
    reset: int
    partitions: Mapping[Partition, OffsetAndMetadata | None]


class LeaveRequest(NamedTuple):
    """Commit and leave in one append."""

    group: str
    member: str
    generation: int
    reset: int
    offsets: Offsets = {}


class ExpelRequest(NamedTuple):
    """``joined`` is that of the membership that was watched: a name that joined again is another
    member."""

    group: str
    member: str
    joined: int
    by: str
    why: str


class TopicsRequest(NamedTuple):
    """Partition counts as somebody saw them."""

    group: str
    views: Mapping[str, TopicView]


class ResetRequest(NamedTuple):
    """Move positions; where to is computed against the positions at the version at which it is
    written. ``create``: the group may be a new one, which knows its topics by ``views``."""

    group: str
    scenario: Scenario
    targets: tuple[Partition, ...]
    spans: Mapping[Partition, OffsetSpan]
    offsets_at_time: Mapping[Partition, int | None]
    create: bool = False
    views: Mapping[str, TopicView] = {}


class DeleteGroupRequest(NamedTuple):
    group: str


class DeleteOffsetsRequest(NamedTuple):
    """``partitions=None``: all that have a position."""

    group: str
    topic: str
    partitions: tuple[int, ...] | None = None


class ExpireRequest(NamedTuple):
    """Drop the group if it has had no member and no commit for ``retention_ms``, as of ``now_ms``
    (None: the clock of whoever decides). A commit after ``version`` keeps it."""

    group: str
    retention_ms: int
    now_ms: int | None = None
    version: int = MAX_OFFSET


Request = (
    CommitRequest
    | JoinRequest
    | ReleaseRequest
    | LeaveRequest
    | ExpelRequest
    | TopicsRequest
    | ResetRequest
    | DeleteGroupRequest
    | DeleteOffsetsRequest
    | ExpireRequest
)
