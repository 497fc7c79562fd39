"""The errors for whoever asked for what does not count, or is a member no longer.

Rules of this module:

1. A member that lost a partition or a group is told by name who has it now, or who expelled it.
2. ``FencedError`` means that somebody newer owns this: joining anew is the way on. What that
   cannot mend is ``InvalidRequestError``.
"""

from __future__ import annotations

from offsetlog.core.group.facts import Fact, FactKind, decode_subscription
from offsetlog.core.group.fold import GroupDraft, IgnoredReason
from offsetlog.core.group.state import GroupState
from offsetlog.errors import FencedError, InvalidRequestError, OffsetLogError

_REJOIN = "Join the group anew and go on from its committed positions; nothing of others' moved."


def refusal(draft: GroupDraft | GroupState, fact: Fact, reason: str) -> OffsetLogError:
    """The error for a fact that does not count."""
    if reason in (
        IgnoredReason.NOT_A_MEMBER,
        IgnoredReason.OLD_GENERATION,
        IgnoredReason.NOT_THE_HOLDER,
    ):
        return _fenced(draft, fact, reason)
    group = draft.name
    if reason == IgnoredReason.HAS_MEMBERS:
        return _has_members(draft, fact)
    if reason == IgnoredReason.OWNED_ALONE:
        owner = draft.owner
        name = known_as(draft, owner.name) if owner is not None else ""
        return FencedError(
            f"The group {group!r} is owned by {name} alone.",
            "Stop that one first, or use another group.",
        )
    if reason == IgnoredReason.OTHER_STRATEGY:
        subscription = decode_subscription(fact.metadata)
        others = [m for m in draft.members.values() if m.name != fact.member]
        theirs = sorted({m.subscription.strategy for m in others})
        return InvalidRequestError(
            f"The members of the group {group!r} share partitions by {theirs[0]!r}, not by "
            f"{subscription.strategy if subscription else ''!r}.",
            "All members of a group must use the same assignment strategy.",
        )
    if reason == IgnoredReason.IS_READ:
        return InvalidRequestError(
            f"The group {group!r} has members that read the topic {fact.topic!r}.",
            "Stop them before its offsets are deleted, or reset them instead.",
        )
    if reason == IgnoredReason.NO_OFFSET:
        return no_offset(group, fact.topic or "", fact.partition)
    if reason == IgnoredReason.UNKNOWN_GROUP:
        return unknown_group(group)
    return InvalidRequestError(
        f"The group {group!r} does not take this {fact.kind}: {reason}.",
        "Look at the group and ask again.",
    )


def unknown_group(group: str) -> InvalidRequestError:
    return InvalidRequestError(
        f"There is no group {group!r}.", "`groups list` shows those that exist."
    )


def no_offset(group: str, topic: str, partition: int | None) -> InvalidRequestError:
    where = f"topic {topic!r}" if partition is None else f"partition {partition} of topic {topic!r}"
    return InvalidRequestError(
        f"The group {group!r} has no committed offset in {where}.",
        f"`groups describe {group}` shows those that it has.",
    )


def known_as(draft: GroupDraft | GroupState, member: str) -> str:
    """A member by the name that people know it by, and its own."""
    present = draft.members.get(member)
    client = present.subscription.client if present is not None else ""
    return f"{client!r} ({member})" if client and client != member else repr(member)


def _fenced(draft: GroupDraft | GroupState, fact: Fact, reason: str) -> FencedError:
    group, member = draft.name, fact.member or ""
    if member not in draft.members or reason == IgnoredReason.OLD_GENERATION:
        return no_longer_a_member(draft, member, fact.generation)
    held = draft.holders.get((fact.topic or "", -1 if fact.partition is None else fact.partition))
    where = f"partition {fact.partition} of topic {fact.topic!r}"
    if held is None:
        return FencedError(
            f"No member holds {where} in the group {group!r} now, {member!r} included.",
            _REJOIN,
        )
    return FencedError(
        f"{where[0].upper()}{where[1:]} belongs to {known_as(draft, held.member)} in the group "
        f"{group!r} now, not to {member!r}.",
        _REJOIN,
    )


def no_longer_a_member(draft: GroupDraft | GroupState, member: str, generation: int) -> FencedError:
    """For one that joined, or worked, in ``generation``."""
    last = [d for d in draft.departures if d.member == member and d.joined <= generation]
    owner = draft.owner
    if last:
        why = f": {last[-1].by} expelled it, since {last[-1].why}" if last[-1].by else ""
    elif owner is not None:
        why = f": {known_as(draft, owner.name)} owns it alone"
    elif member in draft.members:
        why = " in that generation: it has joined anew since"
    else:
        why = ""
    return FencedError(
        f"{member!r} is no longer a member of the group {draft.name!r}{why}.", _REJOIN
    )


def _has_members(draft: GroupDraft | GroupState, fact: Fact) -> OffsetLogError:
    names = sorted(known_as(draft, name) for name in draft.members)
    few = ", ".join(names[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else "")
    if fact.kind == FactKind.COMMIT:
        return FencedError(
            f"The group {draft.name!r} has members ({few}), so a consumer that was assigned by "
            "hand may not commit for it.",
            "Subscribe in place of assigning, or use a group of its own.",
        )
    return InvalidRequestError(
        f"The group {draft.name!r} is not empty: {few}.", "Stop its members first."
    )
