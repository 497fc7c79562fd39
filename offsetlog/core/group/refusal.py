"""Whether a fact counts, and the error for whoever asked for one that does not.

Rules of this module:

1. ``why_ignored`` looks only at the state and the fact, so all programs agree. ``decide`` asks it
   before a fact is written; the fold asks it again, so that a row that somebody put into the table
   by hand moves nothing that it may not move.
2. A commit or a release counts when its member holds the partition, and has held it since a
   generation no later than the one it worked in. In a group without members anybody may
   commit, and only without a name.
3. A commit made before the partition's last reset does not count. A release does, and only
   its position is passed over.
4. A member that owns its group alone holds every partition; nobody joins beside it but
   another such owner, which expels it.
5. A member that lost a partition or a group is told by name who has it now, or who expelled it.
   ``FencedError`` means that somebody newer owns this: joining anew is the way on. What that
   cannot mend is ``InvalidRequestError``.
"""

from __future__ import annotations

from collections.abc import Callable

from offsetlog.core.group.assign import STRATEGIES
from offsetlog.core.group.draft import GroupDraft, partition_of
from offsetlog.core.group.facts import Fact, FactKind, decode_subscription, decode_topic, whole
from offsetlog.core.group.state import GroupState
from offsetlog.errors import FencedError, InvalidRequestError, OffsetLogError
from offsetlog.values import MAX_OFFSET

_REJOIN = "Join the group anew and go on from its committed positions; nothing of others' moved."


class IgnoredReason:
    """Why a fact does not count."""

    MALFORMED = "malformed"
    UNKNOWN_GROUP = "unknown-group"
    HAS_MEMBERS = "has-members"
    NOT_A_MEMBER = "not-a-member"
    NOT_THE_HOLDER = "not-the-holder"
    OLD_GENERATION = "old-generation"
    RESET_SINCE = "reset-since"
    NOT_THE_NEXT_RESET = "not-the-next-reset"
    OWNED_ALONE = "owned-alone"
    OTHER_STRATEGY = "other-strategy"
    OLD_VIEW = "old-view"
    NO_OFFSET = "no-offset"
    IS_READ = "is-read"


def why_ignored(draft: GroupDraft, fact: Fact) -> str | None:
    """Why the fact does not count (an ``IgnoredReason``), or None: it does."""
    return _RULES[fact.kind](draft, fact)


def _has_partition(fact: Fact) -> bool:
    return bool(fact.topic) and whole(fact.partition) and fact.partition >= 0


def _has_position(fact: Fact) -> bool:
    return _has_partition(fact) and whole(fact.offset) and 0 <= fact.offset <= MAX_OFFSET


def _commit(draft: GroupDraft, fact: Fact) -> str | None:
    if not _has_position(fact):
        return IgnoredReason.MALFORMED
    reason = _holding(draft, fact)
    if reason is None and fact.reset < draft.last_reset.get(partition_of(fact), 0):
        return IgnoredReason.RESET_SINCE
    return reason


def _holding(draft: GroupDraft, fact: Fact) -> str | None:
    if fact.member is None:
        return IgnoredReason.HAS_MEMBERS if draft.members else None
    member = draft.members.get(fact.member)
    if member is None:
        return IgnoredReason.NOT_A_MEMBER
    if fact.generation < member.joined:
        return IgnoredReason.OLD_GENERATION
    if member.subscription.alone:
        return None
    held = draft.holders.get(partition_of(fact))
    if held is None or held.member != fact.member:
        return IgnoredReason.NOT_THE_HOLDER
    return IgnoredReason.OLD_GENERATION if fact.generation < held.since else None


def _release(draft: GroupDraft, fact: Fact) -> str | None:
    well_formed = _has_partition(fact) if fact.offset is None else _has_position(fact)
    if not well_formed or fact.member is None:
        return IgnoredReason.MALFORMED
    return _holding(draft, fact)


def _reset(draft: GroupDraft, fact: Fact) -> str | None:
    if not _has_position(fact):
        return IgnoredReason.MALFORMED
    return None if draft.may_reset(fact.reset) else IgnoredReason.NOT_THE_NEXT_RESET


def _join(draft: GroupDraft, fact: Fact) -> str | None:
    subscription = decode_subscription(fact.metadata)
    if not fact.member or subscription is None or subscription.strategy not in STRATEGIES:
        return IgnoredReason.MALFORMED
    if subscription.alone:
        return None
    owner = draft.owner
    if owner is not None and owner.name != fact.member:
        return IgnoredReason.OWNED_ALONE
    others = [m for m in draft.members.values() if m.name != fact.member]
    if any(m.subscription.strategy != subscription.strategy for m in others):
        return IgnoredReason.OTHER_STRATEGY
    return None


def _leave(draft: GroupDraft, fact: Fact) -> str | None:
    return None if fact.member in draft.members else IgnoredReason.NOT_A_MEMBER


def _topics(draft: GroupDraft, fact: Fact) -> str | None:
    view = decode_topic(fact.metadata)
    if not fact.topic or view is None:
        return IgnoredReason.MALFORMED
    known = draft.topics.get(fact.topic)
    return IgnoredReason.OLD_VIEW if known is not None and view.tip <= known.tip else None


def _delete(draft: GroupDraft, fact: Fact) -> str | None:
    if not draft.alive:
        return IgnoredReason.UNKNOWN_GROUP
    if fact.topic is None:
        return IgnoredReason.HAS_MEMBERS if draft.members else None
    if not _has_partition(fact):
        return IgnoredReason.MALFORMED
    if draft.reads(fact.topic):
        return IgnoredReason.IS_READ
    return None if partition_of(fact) in draft.positions else IgnoredReason.NO_OFFSET


_RULES: dict[str, Callable[[GroupDraft, Fact], str | None]] = {
    FactKind.COMMIT: _commit,
    FactKind.RELEASE: _release,
    FactKind.RESET: _reset,
    FactKind.JOIN: _join,
    FactKind.LEAVE: _leave,
    FactKind.EXPEL: _leave,
    FactKind.TOPICS: _topics,
    FactKind.DELETE: _delete,
}


# --- in words -----------------------------------------------------------------------------


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
        return _no_longer(draft, member, fact)
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


def _no_longer(draft: GroupDraft | GroupState, member: str, fact: Fact) -> FencedError:
    last = [d for d in draft.departures if d.member == member and d.joined <= fact.generation]
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
    if fact.kind == "commit":
        return FencedError(
            f"The group {draft.name!r} has members ({few}), so a consumer that was assigned by "
            "hand may not commit for it.",
            "Subscribe in place of assigning, or use a group of its own.",
        )
    return InvalidRequestError(
        f"The group {draft.name!r} is not empty: {few}.", "Stop its members first."
    )
