"""From requests to the facts that may be written at the next version.

Rules of this module:

1. A decision holds at the version that it was made on and at no other: its facts are to be
   appended at exactly the next one. On a conflict, fold what is new and decide again.
2. Each request is accepted whole or refused whole, in the order given; a refusal does not
   touch the others, so that many groups and consumers share one append.
3. An accepted request may have nothing to write: progress from before a reset, a member that
   has left already, a count or a position that is known. Then it has happened, and no append is
   needed; that a position is ``unchanged`` counts only on fresh knowledge, as a refusal does.
4. Nothing illegal is ever proposed: each fact counts in the state that it will meet
   (``why_ignored``).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from offsetlog.core.group.assign import check_strategy
from offsetlog.core.group.facts import (
    Expulsion,
    Fact,
    FactKind,
    Partition,
    Subscription,
    TopicView,
    check_position,
    encode_expulsion,
    encode_subscription,
    encode_topic,
    whole,
)
from offsetlog.core.group.fold import (
    GroupDraft,
    IgnoredReason,
    TableDraft,
    partition_of,
    why_ignored,
)
from offsetlog.core.group.refusal import (
    no_longer_a_member,
    no_offset,
    refusal,
    unknown_group,
)
from offsetlog.core.group.requests import (
    CommitRequest,
    DeleteGroupRequest,
    DeleteOffsetsRequest,
    ExpelRequest,
    ExpireRequest,
    JoinRequest,
    LeaveRequest,
    ReleaseRequest,
    Request,
    ResetRequest,
    TopicsRequest,
)
from offsetlog.core.group.reset import Move, plan_reset
from offsetlog.core.group.retention import is_expired
from offsetlog.core.group.state import GroupsState
from offsetlog.errors import InvalidRequestError, OffsetLogError
from offsetlog.values import MAX_GROUP_PARTITIONS, MAX_PARTITIONS, canonical_name, check_name

SILENT_MS = 10_000
"""How long a group without members goes without a fact before a commit of what is committed
already is one. Much shorter than any retention of positions, which is whole minutes."""


class Accepted(NamedTuple):
    """The request holds once the decision's facts are in the table."""

    facts: int = 0
    """How many of the decision's facts are this request's."""
    dropped: tuple[Partition, ...] = ()
    """Progress that was passed over, since the partition was reset after it was made."""
    plan: tuple[Move, ...] = ()
    """Of a reset: what it moves."""
    unchanged: bool = False
    """Something was left out, since it is committed already as of the version decided on."""


class Refused(NamedTuple):
    error: OffsetLogError


Outcome = Accepted | Refused


class Decision(NamedTuple):
    """``facts`` go into the table in one append at ``version``; nothing to append if there
    are none. ``table`` is the state once they are there."""

    version: int
    facts: tuple[Fact, ...]
    outcomes: tuple[Outcome, ...]
    table: GroupsState


def decide(table: GroupsState, requests: Sequence[Request], now_ms: int, write_id: str) -> Decision:
    """What to append at ``table.version + 1``, and what becomes of each request by that."""
    decider = _Decider(table, now_ms, write_id)
    outcomes = tuple(decider.outcome(request) for request in requests)
    if not decider.facts:
        return Decision(table.version, (), outcomes, table)
    decider.draft.end_version()
    after = decider.draft.to_state(decider.version)
    facts = tuple(
        fact
        if fact.kind in (FactKind.COMMIT, FactKind.RELEASE)
        else fact._replace(generation=after.group(fact.group).generation)
        for fact in decider.facts
    )
    return Decision(decider.version, facts, outcomes, after)


class _Decider:
    def __init__(self, table: GroupsState, now_ms: int, write_id: str) -> None:
        self.draft = TableDraft(table)
        self.version = table.version + 1
        self.now_ms = now_ms
        self.write_id = write_id
        self.facts: list[Fact] = []

    def outcome(self, request: Request) -> Outcome:
        before = len(self.facts)
        try:
            group = self.draft.group(request.group)
            if not group.alive:
                check_name(group.name, "group")
            accepted: Accepted = _HANDLERS[type(request)](self, group, request)
        except OffsetLogError as error:
            return Refused(error)
        return accepted._replace(facts=len(self.facts) - before)

    # --- one request -----------------------------------------------------------------------

    def commit(self, group: GroupDraft, request: CommitRequest) -> Accepted:
        if request.member is not None:
            self._check_member(group, request.member, request.generation)
        facts, dropped = self._progress(group, request)
        written = self._not_committed(group, facts) if request.news else facts
        self._append(group, written)
        return Accepted(dropped=dropped, unchanged=len(written) < len(facts))

    def _not_committed(self, group: GroupDraft, facts: list[Fact]) -> list[Fact]:
        """Those that are not committed already. A group without members lives by what is written,
        so now and then one of them is written all the same."""
        written = []
        for fact in facts:
            position = group.positions.get(partition_of(fact))
            if position is None or position[:2] != (fact.offset, fact.metadata):
                written.append(fact)
        silent = not group.members and self.now_ms - group.active_at >= SILENT_MS
        return facts[:1] if silent and not written else written

    def release(self, group: GroupDraft, request: ReleaseRequest) -> Accepted:
        self._check_member(group, request.member, request.generation)
        dropped, facts = [], []
        for partition, position in sorted(request.partitions.items()):
            if position is not None:
                check_position(partition, position)
                if request.reset < group.last_reset.get(partition, 0):
                    dropped.append(partition)
                    position = None
            offset, metadata = (None, "") if position is None else position
            facts.append(
                self._fact(
                    group,
                    FactKind.RELEASE,
                    *partition,
                    offset=offset,
                    metadata=metadata,
                    member=request.member,
                    generation=request.generation,
                    reset=request.reset,
                )
            )
        self._write(group, facts)
        return Accepted(dropped=tuple(dropped))

    def leave(self, group: GroupDraft, request: LeaveRequest) -> Accepted:
        self._check_member(group, request.member, request.generation)
        facts, dropped = self._progress(group, request)
        self._append(group, [*facts, self._fact(group, FactKind.LEAVE, member=request.member)])
        return Accepted(dropped=dropped)

    def join(self, group: GroupDraft, request: JoinRequest) -> Accepted:
        _check_subscription(request.member, request.subscription)
        self._check_new_name(group)
        metadata = encode_subscription(request.subscription)
        if request.generation is not None:
            self._check_member(group, request.member, request.generation)
        elif request.member in group.members:
            raise InvalidRequestError(
                f"The group {group.name!r} has a member {request.member!r} already.",
                "Join under a name that was never used before.",
            )
        member = group.members.get(request.member)
        if member is None or encode_subscription(member.subscription) != metadata:
            join = self._fact(group, FactKind.JOIN, member=request.member, metadata=metadata)
            owner = group.owner
            mine = (request.member, request.expels)
            if request.expels is not None and owner is not None and owner.name not in mine:
                raise refusal(group, join, IgnoredReason.OWNED_ALONE)
            self._write(group, [join])
        return Accepted()

    def expel(self, group: GroupDraft, request: ExpelRequest) -> Accepted:
        member = group.members.get(request.member)
        if member is not None and member.joined == request.joined:
            why = encode_expulsion(Expulsion(request.by, request.why))
            expel = self._fact(group, FactKind.EXPEL, member=request.member, metadata=why)
            self._write(group, [expel])
        return Accepted()

    def topics(self, group: GroupDraft, request: TopicsRequest) -> Accepted:
        self._write(group, self._changed_views(group, request.views))
        return Accepted()

    def _changed_views(self, group: GroupDraft, views: Mapping[str, TopicView]) -> list[Fact]:
        facts = []
        partitions = group.partitions
        for topic, view in sorted(views.items()):
            _check_view(topic, view)
            known = group.topics.get(topic)
            partitions += view.partitions - (known.partitions if known is not None else 0)
            if known is None and view.partitions == 0:
                continue
            if known is None or (view.partitions != known.partitions and view.tip > known.tip):
                text = encode_topic(view)
                facts.append(self._fact(group, FactKind.TOPICS, topic=topic, metadata=text))
        if facts and partitions > max(MAX_GROUP_PARTITIONS, group.partitions):
            raise InvalidRequestError(
                f"The topics of group {group.name!r} would have {partitions} partitions together; "
                f"a group takes {MAX_GROUP_PARTITIONS}.",
                "Subscribe to fewer topics, or use several groups.",
            )
        return facts

    def reset(self, group: GroupDraft, request: ResetRequest) -> Accepted:
        if not group.alive and not request.create:
            raise unknown_group(group.name)
        self._check_new_name(group)
        plan = plan_reset(
            group.positions,
            request.scenario,
            request.targets,
            request.spans,
            request.offsets_at_time,
        )
        facts = [] if group.alive else self._changed_views(group, request.views)
        number = group.resets + 1
        facts += [
            self._fact(group, FactKind.RESET, m.topic, m.partition, offset=m.after, reset=number)
            for m in plan
        ]
        self._write(group, facts)
        return Accepted(plan=plan)

    def delete(self, group: GroupDraft, _: DeleteGroupRequest) -> Accepted:
        self._write(group, [self._fact(group, FactKind.DELETE)])
        return Accepted()

    def delete_offsets(self, group: GroupDraft, request: DeleteOffsetsRequest) -> Accepted:
        if not group.alive:
            raise unknown_group(group.name)
        numbers = request.partitions
        if numbers is None:
            numbers = tuple(p for topic, p in group.positions if topic == request.topic)
            if not numbers:
                raise no_offset(group.name, request.topic, None)
        topic, delete = request.topic, FactKind.DELETE
        self._write(group, [self._fact(group, delete, topic, n) for n in sorted(set(numbers))])
        return Accepted()

    def expire(self, group: GroupDraft, request: ExpireRequest) -> Accepted:
        later = any(p.version > request.version for p in group.positions.values())
        now_ms = self.now_ms if request.now_ms is None else request.now_ms
        if not later and is_expired(group, now_ms, request.retention_ms):
            self._write(group, [self._fact(group, FactKind.DELETE)])
        return Accepted()

    # --- what they share -------------------------------------------------------------------

    def _write(self, group: GroupDraft, facts: Sequence[Fact]) -> None:
        """All of them or none. Facts of one request do not stand in each other's way, so each may
        be checked before the first is applied."""
        for fact in facts:
            reason = why_ignored(group, fact)
            if reason is not None:
                raise refusal(group, fact, reason)
        self._append(group, facts)

    def _append(self, group: GroupDraft, facts: Sequence[Fact]) -> None:
        """Facts that were checked."""
        for fact in facts:
            group.apply(fact)
            self.facts.append(fact._replace(place=len(self.facts)))

    def _progress(
        self, group: GroupDraft, request: CommitRequest | LeaveRequest
    ) -> tuple[list[Fact], tuple[Partition, ...]]:
        """The facts of its offsets, checked; and the partitions that were reset since."""
        self._check_new_name(group)
        earlier = request.earlier if isinstance(request, CommitRequest) else {}
        facts, dropped = [], []
        for partition, position in sorted(request.offsets.items()):
            check_position(partition, position)
            fact = self._fact(
                group,
                FactKind.COMMIT,
                *partition,
                offset=position.offset,
                metadata=position.metadata,
                member=request.member,
                generation=request.generation,
                reset=earlier.get(partition, request.reset),
            )
            reason = why_ignored(group, fact)
            if reason is None:
                facts.append(fact)
            elif reason == IgnoredReason.RESET_SINCE:
                dropped.append(partition)
            else:
                raise refusal(group, fact, reason)
        return facts, tuple(dropped)

    def _check_member(self, group: GroupDraft, name: str, generation: int) -> None:
        member = group.members.get(name)
        if member is None or generation < member.joined:
            raise no_longer_a_member(group, name, generation)

    def _check_new_name(self, group: GroupDraft) -> None:
        """A new group's name must differ from others' by more than case and '.' for '_'."""
        if group.alive:
            return
        canonical = canonical_name(group.name)
        for other in self.draft.alive():
            if canonical_name(other) == canonical:
                raise InvalidRequestError(
                    f"There is a group {other!r}, which differs from {group.name!r} only by "
                    "case or by '.' and '_'.",
                    "Use that name, or one that differs by more.",
                )

    def _fact(
        self,
        group: GroupDraft,
        kind: str,
        topic: str | None = None,
        partition: int | None = None,
        *,
        offset: int | None = None,
        metadata: str = "",
        member: str | None = None,
        generation: int | None = None,
        reset: int | None = None,
    ) -> Fact:
        """With the group's generation and reset number as they are, where none is given."""
        return Fact(
            group=group.name,
            topic=topic,
            partition=partition,
            offset=offset,
            metadata=metadata,
            committed_at=self.now_ms,
            generation=group.generation if generation is None else generation,
            reset=group.resets if reset is None else reset,
            member=member,
            kind=kind,
            write_id=self.write_id,
            version=self.version,
            place=0,
        )


_HANDLERS: dict[type, Callable[..., Accepted]] = {
    CommitRequest: _Decider.commit,
    ReleaseRequest: _Decider.release,
    JoinRequest: _Decider.join,
    LeaveRequest: _Decider.leave,
    ExpelRequest: _Decider.expel,
    TopicsRequest: _Decider.topics,
    ResetRequest: _Decider.reset,
    DeleteGroupRequest: _Decider.delete,
    DeleteOffsetsRequest: _Decider.delete_offsets,
    ExpireRequest: _Decider.expire,
}


def _check_subscription(member: str, subscription: Subscription) -> None:
    if not member:
        raise InvalidRequestError("A member must have a name.", "Give each one its own.")
    check_strategy(subscription.strategy)
    if not subscription.topics and not subscription.alone:
        raise InvalidRequestError(
            f"The member {member!r} subscribes to no topic.", "Name at least one topic."
        )
    for topic in subscription.topics:
        check_name(topic)
    if not whole(subscription.session_ms) or subscription.session_ms < 0:
        raise InvalidRequestError(
            f"The session timeout cannot be {subscription.session_ms!r} ms.",
            "Use 45000, or 0 for none.",
        )


def _check_view(topic: str, view: TopicView) -> None:
    check_name(topic)
    if not 0 <= view.partitions <= MAX_PARTITIONS or view.tip < 0:
        raise InvalidRequestError(
            f"The topic {topic!r} cannot have {view.partitions} partitions.",
            f"Allowed: 0 (it is gone) to {MAX_PARTITIONS}.",
        )
