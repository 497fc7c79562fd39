"""From what was asked for to the facts that may be written at the next version.

Rules of this module:

1. What is decided holds at the version it was decided on and at no other: the facts are to
   be appended at exactly the next one. On a conflict, fold what is new and decide again.
2. Each request is accepted whole or refused whole, in the order given; a refusal does not
   touch the others, so that many groups and consumers share one append.
3. An accepted request may have nothing to write: progress from before a reset, a member that
   is out already, a count or a position that is known. Then it has happened, and no append is
   needed; that a position is ``unchanged`` counts only on fresh knowledge, as a refusal does.
4. Nothing illegal is ever proposed: each fact passed ``judge`` in the state that it will meet.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from offsetlog.core.group.assign import check_strategy
from offsetlog.core.group.draft import Draft
from offsetlog.core.group.facts import (
    Expulsion,
    Fact,
    FactKind,
    OffsetAndMetadata,
    Partition,
    Subscription,
    TopicView,
    check_position,
    encode_expulsion,
    encode_subscription,
    encode_topic,
    whole,
)
from offsetlog.core.group.fold import Opening
from offsetlog.core.group.refusal import no_offset, refusal, unknown_group
from offsetlog.core.group.requests import (
    CommitRequest,
    DeleteGroupRequest,
    DeleteOffsetsRequest,
    ExpelRequest,
    ExpireRequest,
    JoinRequest,
    LeaveRequest,
    Offsets,
    ReleaseRequest,
    Request,
    ResetRequest,
    TopicsRequest,
)
from offsetlog.core.group.reset import PlannedReset, plan_reset
from offsetlog.core.group.retention import is_expired
from offsetlog.core.group.state import GroupsState
from offsetlog.core.group.verdict import IgnoredReason, judge
from offsetlog.errors import InvalidRequestError, OffsetLogError
from offsetlog.values import MAX_PARTITIONS, canonical_name, check_name

SILENT_MS = 10_000
"""How long a group without members goes without a fact before a commit of what is committed
already is one. Much shorter than any retention of positions, which is whole minutes."""


class Accepted(NamedTuple):
    """The request holds once the decision's facts are in the table."""

    facts: int = 0
    """How many of the decision's facts are this request's."""
    dropped: tuple[Partition, ...] = ()
    """Progress that was passed over, since the partition was reset after it was made."""
    plan: PlannedReset | None = None
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
    """What to append at ``table.version + 1``, and what each request comes to by that."""
    decider = _Decider(table, now_ms, write_id)
    outcomes = tuple(decider.outcome(request) for request in requests)
    if not decider.facts:
        return Decision(table.version, (), outcomes, table)
    facts, after = decider.close()
    return Decision(table.version + 1, facts, outcomes, after)


class _Decider:
    def __init__(self, table: GroupsState, now_ms: int, write_id: str) -> None:
        self.opening = Opening(table)
        self.version = table.version + 1
        self.now_ms = now_ms
        self.write_id = write_id
        self.facts: list[Fact] = []

    def outcome(self, request: Request) -> Outcome:
        before = len(self.facts)
        try:
            check_name(request.group, "group")
            accepted = self._accept(request)
        except OffsetLogError as error:
            return Refused(error)
        return accepted._replace(facts=len(self.facts) - before)

    def close(self) -> tuple[tuple[Fact, ...], GroupsState]:
        self.opening.settle(self.version)
        after = self.opening.table(self.version)
        facts = tuple(
            fact
            if fact.kind in (FactKind.COMMIT, FactKind.RELEASE)
            else fact._replace(generation=after.group(fact.group).generation)
            for fact in self.facts
        )
        return facts, after

    def _accept(self, request: Request) -> Accepted:
        draft = self.opening.group(request.group)
        match request:
            case CommitRequest():
                return self._commit(draft, request)
            case ReleaseRequest():
                return self._release(draft, request)
            case JoinRequest():
                return self._join(draft, request)
            case LeaveRequest():
                return self._leave(draft, request)
            case ExpelRequest():
                return self._expel(draft, request)
            case TopicsRequest():
                return self._topics(draft, request)
            case ResetRequest():
                return self._reset(draft, request)
            case DeleteGroupRequest():
                self._write(draft, [self._fact(draft, FactKind.DELETE)])
                return Accepted()
            case DeleteOffsetsRequest():
                return self._delete_offsets(draft, request)
            case ExpireRequest():
                later = any(p.version > request.version for p in draft.positions.values())
                now_ms = self.now_ms if request.now_ms is None else request.now_ms
                if not later and is_expired(draft.frozen(), now_ms, request.retention_ms):
                    self._write(draft, [self._fact(draft, FactKind.DELETE)])
                return Accepted()

    # --- one request -----------------------------------------------------------------------

    def _commit(self, draft: Draft, asked: CommitRequest) -> Accepted:
        if asked.member is not None:
            self._same_member(draft, asked.member, asked.generation)
        facts, dropped = self._progress(draft, asked, asked.offsets)
        news = self._news(draft, facts) if asked.news else facts
        self._write(draft, news)
        return Accepted(dropped=dropped, unchanged=len(news) < len(facts))

    def _news(self, draft: Draft, facts: list[Fact]) -> list[Fact]:
        """Those that are not committed already; the others must be legal all the same. A group
        without members lives by what is written, so now and then it is one of them."""
        out = []
        for fact in facts:
            self._check(draft, fact)
            known = draft.positions.get((fact.topic or "", fact.partition or 0))
            if known is None or (known.offset, known.metadata) != (fact.offset, fact.metadata):
                out.append(fact)
        silent = not draft.members and self.now_ms - draft.active_at >= SILENT_MS
        return facts[:1] if silent and not out else out

    def _release(self, draft: Draft, asked: ReleaseRequest) -> Accepted:
        self._same_member(draft, asked.member, asked.generation)
        dropped, facts = [], []
        for partition, said in sorted(asked.partitions.items()):
            if said is not None:
                check_position(partition, said)
                if asked.reset < draft.marks.get(partition, 0):
                    dropped.append(partition)
                    said = None
            facts.append(self._position(draft, FactKind.RELEASE, asked, partition, said))
        self._write(draft, facts)
        return Accepted(dropped=tuple(dropped))

    def _leave(self, draft: Draft, asked: LeaveRequest) -> Accepted:
        self._same_member(draft, asked.member, asked.generation)
        facts, dropped = self._progress(draft, asked, asked.offsets)
        self._write(draft, [*facts, self._fact(draft, FactKind.LEAVE, member=asked.member)])
        return Accepted(dropped=dropped)

    def _join(self, draft: Draft, asked: JoinRequest) -> Accepted:
        _check_subscription(asked.member, asked.said)
        self._new_spelling(draft)
        fact = self._fact(
            draft, FactKind.JOIN, member=asked.member, metadata=encode_subscription(asked.said)
        )
        if asked.generation is not None:
            self._same_member(draft, asked.member, asked.generation)
        elif asked.member in draft.members:
            raise InvalidRequestError(
                f"The group {draft.name!r} has a member {asked.member!r} already.",
                "Join under a name that was never used before.",
            )
        known = draft.members.get(asked.member)
        if known is None or encode_subscription(known.said) != fact.metadata:
            self._write(draft, [fact])
        return Accepted()

    def _expel(self, draft: Draft, asked: ExpelRequest) -> Accepted:
        known = draft.members.get(asked.member)
        if known is not None and known.joined == asked.joined:
            why = encode_expulsion(Expulsion(asked.by, asked.why))
            self._write(
                draft, [self._fact(draft, FactKind.EXPEL, member=asked.member, metadata=why)]
            )
        return Accepted()

    def _topics(self, draft: Draft, asked: TopicsRequest) -> Accepted:
        self._write(draft, self._seen(draft, asked.views))
        return Accepted()

    def _seen(self, draft: Draft, views: Mapping[str, TopicView]) -> list[Fact]:
        facts = []
        for topic, view in sorted(views.items()):
            _check_view(topic, view)
            known = draft.topics.get(topic)
            if known is None and view.partitions == 0:
                continue
            if known is None or (view.partitions != known.partitions and view.tip > known.tip):
                text = encode_topic(view)
                facts.append(self._fact(draft, FactKind.TOPICS, topic=topic, metadata=text))
        return facts

    def _reset(self, draft: Draft, asked: ResetRequest) -> Accepted:
        if not draft.alive and not asked.create:
            raise unknown_group(draft.name)
        self._new_spelling(draft)
        plan = plan_reset(draft.positions, asked.scenario, asked.targets, asked.spans, asked.found)
        number = draft.resets + 1
        seen = [] if draft.alive else self._seen(draft, asked.views)
        self._write(
            draft,
            [
                *seen,
                *(
                    self._fact(
                        draft,
                        FactKind.RESET,
                        topic=move.topic,
                        partition=move.partition,
                        offset=move.after,
                        reset=number,
                    )
                    for move in plan.moves
                ),
            ],
        )
        return Accepted(plan=plan)

    def _delete_offsets(self, draft: Draft, asked: DeleteOffsetsRequest) -> Accepted:
        if not draft.alive:
            raise unknown_group(draft.name)
        which = asked.partitions
        if which is None:
            which = tuple(p for topic, p in draft.positions if topic == asked.topic)
            if not which:
                raise no_offset(draft.name, asked.topic, None)
        facts = [
            self._fact(draft, FactKind.DELETE, topic=asked.topic, partition=p)
            for p in sorted(set(which))
        ]
        self._write(draft, facts)
        return Accepted()

    # --- what they share -------------------------------------------------------------------

    def _write(self, draft: Draft, facts: Sequence[Fact]) -> None:
        """All of them or none. Facts of one request do not stand in each other's way, so
        each may be judged before the first is applied."""
        for fact in facts:
            self._check(draft, fact)
        for fact in facts:
            draft.apply(fact)
            self.facts.append(fact._replace(place=len(self.facts)))

    def _check(self, draft: Draft, fact: Fact) -> None:
        reason = judge(draft, fact)
        if reason is not None:
            raise refusal(draft, fact, reason)

    def _progress(
        self, draft: Draft, asked: CommitRequest | LeaveRequest, offsets: Offsets
    ) -> tuple[list[Fact], tuple[Partition, ...]]:
        self._new_spelling(draft)
        facts, dropped = [], []
        for partition, said in sorted(offsets.items()):
            check_position(partition, said)
            fact = self._position(draft, FactKind.COMMIT, asked, partition, said)
            if isinstance(asked, CommitRequest) and partition in asked.earlier:
                fact = fact._replace(reset=asked.earlier[partition])
            reason = judge(draft, fact)
            if reason == IgnoredReason.RESET_SINCE:
                dropped.append(partition)
            else:
                facts.append(fact)
        return facts, tuple(dropped)

    def _same_member(self, draft: Draft, member: str, generation: int) -> None:
        known = draft.members.get(member)
        if known is None or generation < known.joined:
            fact = self._fact(draft, FactKind.LEAVE, member=member)._replace(generation=generation)
            reason = IgnoredReason.NOT_A_MEMBER if known is None else IgnoredReason.OLD_GENERATION
            raise refusal(draft, fact, reason)

    def _new_spelling(self, draft: Draft) -> None:
        """A new group's name must differ from others' by more than case and '.' for '_'."""
        if draft.alive:
            return
        same = canonical_name(draft.name)
        for other in self.opening.alive():
            if canonical_name(other) == same:
                raise InvalidRequestError(
                    f"There is a group {other!r}, which differs from {draft.name!r} only by "
                    "case or by '.' and '_'.",
                    "Use that name, or one that differs by more.",
                )

    def _position(
        self,
        draft: Draft,
        kind: str,
        asked: CommitRequest | LeaveRequest | ReleaseRequest,
        partition: Partition,
        said: OffsetAndMetadata | None,
    ) -> Fact:
        fact = self._fact(
            draft,
            kind,
            topic=partition[0],
            partition=partition[1],
            offset=said.offset if said is not None else None,
            metadata=said.metadata if said is not None else "",
            member=asked.member,
            reset=asked.reset,
        )
        return fact._replace(generation=asked.generation)

    def _fact(
        self,
        draft: Draft,
        kind: str,
        *,
        topic: str | None = None,
        partition: int | None = None,
        offset: int | None = None,
        metadata: str = "",
        member: str | None = None,
        reset: int | None = None,
    ) -> Fact:
        return Fact(
            group=draft.name,
            topic=topic,
            partition=partition,
            offset=offset,
            metadata=metadata,
            committed_at=self.now_ms,
            generation=draft.generation,
            reset=draft.resets if reset is None else reset,
            member=member,
            kind=kind,
            write_id=self.write_id,
            version=self.version,
            place=0,
        )


def _check_subscription(member: str, said: Subscription) -> None:
    if not member:
        raise InvalidRequestError("A member must have a name.", "Give each one its own.")
    check_strategy(said.strategy)
    if not said.topics and not said.alone:
        raise InvalidRequestError(
            f"The member {member!r} subscribes to no topic.", "Name at least one topic."
        )
    for topic in said.topics:
        check_name(topic)
    if not whole(said.session_ms) or said.session_ms < 0:
        raise InvalidRequestError(
            f"The session timeout cannot be {said.session_ms!r} ms.", "Use 45000, or 0 for none."
        )


def _check_view(topic: str, view: TopicView) -> None:
    check_name(topic)
    if not 0 <= view.partitions <= MAX_PARTITIONS or view.tip < 0:
        raise InvalidRequestError(
            f"The topic {topic!r} cannot have {view.partitions} partitions.",
            f"Allowed: 0 (it is gone) to {MAX_PARTITIONS}.",
        )
