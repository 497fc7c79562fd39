"""What the state means for one member: what it may read, must release and must follow.

Rules of this module:

1. A member may read what it holds in the state it has folded. It may go on with that between
   two looks: nobody else gets it before the member itself has released it or was expelled.
2. What it holds and is not meant for it, it releases, with its last position.
3. A reset is followed for the partitions that were reset, and only those, to where it put
   them; what the log no longer holds is clamped there (``follow_resets``), for workers and
   queries alike.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from offsetlog.core.group.facts import AnyPartition, Partition
from offsetlog.core.group.refusal import no_longer_a_member
from offsetlog.core.group.reset import OffsetSpan
from offsetlog.core.group.starting_offset import StartingOffset
from offsetlog.core.group.state import GroupState
from offsetlog.errors import FencedError


class Standing(NamedTuple):
    """A member's place in its group at one version."""

    generation: int
    """To be given with its requests until the next look."""
    holds: frozenset[Partition]
    release: tuple[Partition, ...]
    """Held, but meant for somebody else or for nobody."""
    waits: tuple[Partition, ...]
    """Meant for it, but not released by their holders yet."""
    alone: bool = False
    """It owns the group alone and holds every partition there is; ``holds`` is empty."""

    @property
    def keeps(self) -> frozenset[Partition]:
        return self.holds - frozenset(self.release)


def standing(group: GroupState, member: str, joined: int) -> Standing | FencedError:
    """Where the member that joined in generation ``joined`` stands, or why it is out: then it
    drops all that it held and joins anew, under another name."""
    present = group.members.get(member)
    if present is None or present.joined != joined:
        return no_longer_a_member(group, member, joined)
    holds = frozenset(p for p, held in group.holders.items() if held.member == member)
    meant = {p for p, target in group.targets.items() if target == member}
    return Standing(
        group.generation,
        holds,
        tuple(sorted(holds - meant)),
        tuple(sorted(meant - holds)),
        present.subscription.alone,
    )


def resets_since(group: GroupState, number: int) -> dict[Partition, int]:
    """The partitions that were reset after reset ``number``, and where to: not where the group
    stands now, which may have been committed, deleted or expired since."""
    return {
        partition: group.reset_to[partition]
        for partition, mark in sorted(group.last_reset.items())
        if mark > number
    }


def follow_resets(
    group: GroupState, followed: int, spans: Mapping[AnyPartition, OffsetSpan], policy: str
) -> dict[AnyPartition, StartingOffset]:
    """Where reading goes on in those partitions of ``spans`` that were reset after reset
    ``followed``: where the reset put them. What the log does not hold is clamped to its start
    (``earliest``) or end (``latest``), with a warning; under ``none`` it stays, and the read
    fails."""
    return {
        partition: _clamped(group, partition, span, policy)
        for partition, span in sorted(spans.items())
        if group.last_reset.get(partition, 0) > followed
    }


def _clamped(
    group: GroupState, partition: Partition, span: OffsetSpan, policy: str
) -> StartingOffset:
    offset = group.reset_to[partition]
    if policy == "none" or span.start <= offset <= span.end:
        return StartingOffset(offset)
    clamped = span.start if policy == "earliest" else span.end
    return StartingOffset(
        clamped,
        f"The group {group.name!r} was reset to {offset} of {partition[0]}-{partition[1]}, which "
        f"holds {span.start} to {span.end} now; reading goes on from {clamped}.",
    )
