"""Whether a fact counts.

Rules of this module:

1. ``judge`` looks only at the state and the fact, so all programs judge alike. ``decide``
   asks it before a fact is written; the fold asks it again, so that a row which somebody put
   into the table by hand moves nothing that it may not move.
2. A commit or a release counts when its member holds the partition, and has held it since a
   generation no later than the one it worked in. In a group without members anybody may
   commit, and only without a name.
3. A commit made before the partition's last reset does not count. A release does, and only
   its position is passed over.
4. A member that owns its group alone holds every partition; nobody joins beside it but
   another such owner, which puts it out.
"""

from __future__ import annotations

from collections.abc import Callable

from offsetlog.core.group.assign import STRATEGIES
from offsetlog.core.group.draft import Draft
from offsetlog.core.group.facts import Fact, FactKind, decode_subscription, decode_topic, whole
from offsetlog.values import MAX_OFFSET


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


def judge(draft: Draft, fact: Fact) -> str | None:
    """Why the fact does not count, or None: it does."""
    return _JUDGES[fact.kind](draft, fact)


def _has_partition(fact: Fact) -> bool:
    return bool(fact.topic) and whole(fact.partition) and (fact.partition or 0) >= 0


def _has_offset(fact: Fact) -> bool:
    return whole(fact.offset) and 0 <= (fact.offset or 0) <= MAX_OFFSET


def _commit(draft: Draft, fact: Fact) -> str | None:
    if not _has_partition(fact) or not _has_offset(fact):
        return IgnoredReason.MALFORMED
    reason = _holding(draft, fact)
    if reason is None and fact.reset < draft.marks.get((fact.topic or "", fact.partition or 0), 0):
        return IgnoredReason.RESET_SINCE
    return reason


def _holding(draft: Draft, fact: Fact) -> str | None:
    if fact.member is None:
        return IgnoredReason.HAS_MEMBERS if draft.members else None
    member = draft.members.get(fact.member)
    if member is None:
        return IgnoredReason.NOT_A_MEMBER
    if fact.generation < member.joined:
        return IgnoredReason.OLD_GENERATION
    if member.said.alone:
        return None
    held = draft.holders.get((fact.topic or "", fact.partition or 0))
    if held is None or held.member != fact.member:
        return IgnoredReason.NOT_THE_HOLDER
    return IgnoredReason.OLD_GENERATION if fact.generation < held.since else None


def _release(draft: Draft, fact: Fact) -> str | None:
    if not _has_partition(fact) or fact.member is None:
        return IgnoredReason.MALFORMED
    if fact.offset is not None and not _has_offset(fact):
        return IgnoredReason.MALFORMED
    return _holding(draft, fact)


def _reset(draft: Draft, fact: Fact) -> str | None:
    if not _has_partition(fact) or not _has_offset(fact):
        return IgnoredReason.MALFORMED
    return None if draft.may_reset(fact.reset) else IgnoredReason.NOT_THE_NEXT_RESET


def _join(draft: Draft, fact: Fact) -> str | None:
    said = decode_subscription(fact.metadata)
    if not fact.member or said is None or said.strategy not in STRATEGIES:
        return IgnoredReason.MALFORMED
    if said.alone:
        return None
    owner = draft.owner
    if owner is not None and owner.name != fact.member:
        return IgnoredReason.OWNED_ALONE
    others = [m for m in draft.members.values() if m.name != fact.member]
    if any(m.said.strategy != said.strategy for m in others):
        return IgnoredReason.OTHER_STRATEGY
    return None


def _leave(draft: Draft, fact: Fact) -> str | None:
    return None if fact.member in draft.members else IgnoredReason.NOT_A_MEMBER


def _topics(draft: Draft, fact: Fact) -> str | None:
    view = decode_topic(fact.metadata)
    if not fact.topic or view is None:
        return IgnoredReason.MALFORMED
    known = draft.topics.get(fact.topic)
    return IgnoredReason.OLD_VIEW if known is not None and view.tip <= known.tip else None


def _delete(draft: Draft, fact: Fact) -> str | None:
    if not draft.alive:
        return IgnoredReason.UNKNOWN_GROUP
    if fact.topic is None:
        return IgnoredReason.HAS_MEMBERS if draft.members else None
    if not _has_partition(fact):
        return IgnoredReason.MALFORMED
    if draft.reads(fact.topic):
        return IgnoredReason.IS_READ
    known = (fact.topic, fact.partition or 0) in draft.positions
    return None if known else IgnoredReason.NO_OFFSET


_JUDGES: dict[str, Callable[[Draft, Fact], str | None]] = {
    FactKind.COMMIT: _commit,
    FactKind.RELEASE: _release,
    FactKind.RESET: _reset,
    FactKind.JOIN: _join,
    FactKind.LEAVE: _leave,
    FactKind.EXPEL: _leave,
    FactKind.TOPICS: _topics,
    FactKind.DELETE: _delete,
}
