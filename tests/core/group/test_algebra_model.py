"""Many workers, one table, compare and set: what holds whatever anybody knows or forgets.

Each worker knows the table as of its last look, and proposes what it decided on that: if the
table has moved on since, its append does not land, and it folds what is new and decides
again. Workers sleep, are put out by others, come back, and lose the answer to an append.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
)

from offsetlog.core.group.checkpoint import from_plain, to_plain
from offsetlog.core.group.decide import Accepted, Refused, decide
from offsetlog.core.group.facts import Fact, OffsetAndMetadata, Subscription, TopicView
from offsetlog.core.group.fold import fold
from offsetlog.core.group.membership import Standing, resets_since, standing
from offsetlog.core.group.requests import (
    CommitRequest,
    DeleteGroupRequest,
    DeleteOffsetsRequest,
    ExpelRequest,
    JoinRequest,
    LeaveRequest,
    ReleaseRequest,
    ResetRequest,
    TopicsRequest,
)
from offsetlog.core.group.reset import OffsetSpan, ShiftBy, ToEarliest, ToLatest, ToOffset
from offsetlog.core.group.state import EMPTY, GroupsState, Status, status
from offsetlog.errors import FencedError, InvalidRequestError

G = "billing"
TOPICS = ("clicks", "orders")
END = 40


@dataclass
class World:
    """The table as it is: the facts of each version, and who wins an append."""

    versions: list[tuple[Fact, ...]] = field(default_factory=list)
    truth: GroupsState = EMPTY

    @property
    def tip(self) -> int:
        return len(self.versions) - 1

    def since(self, version: int) -> list[Fact]:
        return [fact for facts in self.versions[version + 1 :] for fact in facts]

    def put(self, version: int, facts: tuple[Fact, ...]) -> bool:
        """Compare and set: it lands at the very next version, or not at all."""
        if version != self.tip + 1:
            return False
        before = self.truth
        self.versions.append(facts)
        self.truth = fold(before, facts, version, _no_void)
        self._check(before, facts)
        return True

    def _check(self, before: GroupsState, facts: tuple[Fact, ...]) -> None:
        """What must hold between two versions, told without the fold's own rules."""
        old, new = before.group(G), self.truth.group(G)
        assert new.generation >= old.generation and new.resets >= old.resets
        freed = {f.member for f in facts if f.kind in ("leave", "expel")}
        released = {(f.member, (f.topic, f.partition)) for f in facts if f.kind == "release"}
        alone = any('"alone":true' in f.metadata for f in facts if f.kind == "join")
        for partition, held in old.holders.items():
            now = new.holders.get(partition)
            if now != held:
                assert alone or held.member in freed or (held.member, partition) in released
        for held in new.holders.values():
            assert held.member in new.members
        said = {(f.topic, f.partition): f for f in facts if f.offset is not None}
        put = {(f.topic, f.partition): f.offset for f in facts if f.kind == "reset"}
        assert new.reset_to == {**old.reset_to, **put}
        assert new.reset_to.keys() == new.last_reset.keys()
        emptied = any(f.kind == "delete" for f in facts)
        for partition in old.positions.keys() | new.positions.keys():
            was, now = old.positions.get(partition), new.positions.get(partition)
            if was == now:
                continue
            if now is None:
                assert emptied
                continue
            fact = said[partition]
            assert now.offset == fact.offset
            assert fact.kind == "reset" or fact.reset >= old.last_reset.get(partition, 0)
            if fact.member is not None and fact.kind != "reset":
                holder = old.holders.get(partition)
                owner = old.owner
                assert fact.member == (owner.name if owner else holder and holder.member)
            elif fact.kind == "commit":
                assert not old.members


def _no_void(fact: Fact, reason: str) -> None:
    raise AssertionError(f"{fact} was proposed, but is {reason}")


class Writer:
    """Reads the table, decides, proposes, and on a conflict does it again."""

    def __init__(self, world: World, name: str) -> None:
        self.world, self.name, self.table, self.tries = world, name, EMPTY, 0

    def look(self) -> None:
        world = self.world
        self.table = fold(self.table, world.since(self.table.version), world.tip)

    def ask(self, *requests, lost: bool = False):
        for _ in range(3):
            self.tries += 1
            write_id = f"{self.name}-{self.tries}"
            made = decide(self.table, requests, 1000 + self.tries, write_id)
            if not made.facts:
                # A refusal on old knowledge is no answer: it may be out of date.
                if self.table.version == self.world.tip:
                    return made.outcomes[0]
                self.look()
                continue
            won = self.world.put(made.version, made.facts)
            if won and not lost:
                self.table = made.table
                return made.outcomes[0]
            new = self.world.since(self.table.version)
            self.look()
            if any(fact.write_id == write_id for fact in new):
                assert won
                assert self.table == made.table
                return made.outcomes[0]
        raise AssertionError("an append that meets nobody must land")


class Worker(Writer):
    """A consumer: what it may read, how far it has read, and which reset it follows."""

    def __init__(self, world: World, name: str) -> None:
        super().__init__(world, name)
        self.lives = 0
        self.member, self.joined, self.reset = "", 0, 0
        self.progress: dict[tuple[str, int], int] = {}

    @property
    def is_in(self) -> bool:
        return bool(self.member)

    def standing(self) -> Standing | FencedError:
        return standing(self.table.group(G), self.member, self.joined)

    def join(self, topics) -> object:
        self.lives += 1
        member = f"{self.name}.{self.lives}"
        outcome = self.ask(JoinRequest(G, member, Subscription(topics)))
        if isinstance(outcome, Accepted):
            self.member = member
            self.joined = self.table.group(G).members[member].joined
            self.reset = self.table.group(G).resets
            self.progress = {}
            self.settle()
        return outcome

    def poll(self) -> None:
        self.look()
        self.settle()

    def settle(self) -> None:
        """Drop what is lost, take up what is new, follow what was reset."""
        now = self.standing()
        if isinstance(now, FencedError):
            self.out()
            return
        group = self.table.group(G)
        for partition in set(self.progress) - now.holds:
            del self.progress[partition]
        for partition, offset in resets_since(group, self.reset).items():
            if partition in self.progress:
                self.progress[partition] = offset
        self.reset = group.resets
        for partition in now.keeps - set(self.progress):
            position = group.positions.get(partition)
            self.progress[partition] = position.offset if position else 0

    def out(self) -> None:
        self.member, self.progress = "", {}

    def said(self, partitions=None) -> dict[tuple[str, int], OffsetAndMetadata]:
        which = self.progress if partitions is None else partitions
        return {p: OffsetAndMetadata(self.progress[p]) for p in which if p in self.progress}

    def generation(self) -> int:
        return self.table.group(G).generation

    def release(self) -> None:
        now = self.standing()
        assert isinstance(now, Standing)
        said = self.said(now.release)
        outcome = self.ask(
            ReleaseRequest(
                G,
                self.member,
                self.generation(),
                self.reset,
                {p: said.get(p) for p in now.release},
            )
        )
        self.after(outcome)

    def after(self, outcome) -> None:
        if isinstance(outcome, Refused):
            assert isinstance(outcome.error, FencedError)
            self.out()
        else:
            self.settle()


class Groups(RuleBasedStateMachine):
    @initialize(counts=st.tuples(st.integers(1, 3), st.integers(1, 4)))
    def begin(self, counts):
        self.world = World()
        self.admin = Writer(self.world, "admin")
        self.workers = [Worker(self.world, f"w{i}") for i in range(4)]
        self.counts = dict(zip(TOPICS, counts, strict=True))
        self.seen = 1
        self.clean = True
        self.delivered: dict[tuple[str, int], list[int]] = {}
        self.tell()

    def tell(self):
        views = {topic: TopicView(n, self.seen) for topic, n in self.counts.items()}
        assert isinstance(self.admin.ask(TopicsRequest(G, views)), Accepted)

    def one(self, data, wanted):
        there = [w for w in self.workers if wanted(w)]
        return data.draw(st.sampled_from(there), label="worker") if there else None

    # --- workers ---------------------------------------------------------------------------

    @rule(data=st.data(), topics=st.sampled_from([TOPICS, ("orders",), TOPICS]))
    def joins(self, data, topics):
        worker = self.one(data, lambda w: not w.is_in)
        if worker:
            outcome = worker.join(topics)
            owner = self.world.truth.group(G).owner
            assert isinstance(outcome, Refused) == (owner is not None)

    @rule(data=st.data())
    def polls(self, data):
        worker = self.one(data, lambda w: w.is_in)
        if worker:
            worker.poll()

    @rule(data=st.data(), many=st.integers(1, 5))
    def reads(self, data, many):
        """Between two looks: it goes by what it knew at the last."""
        worker = self.one(data, lambda w: w.progress)
        if worker:
            partition = data.draw(st.sampled_from(sorted(worker.progress)))
            start = worker.progress[partition]
            end = min(start + many, END)
            self.delivered.setdefault(partition, []).extend(range(start, end))
            worker.progress[partition] = max(start, end)

    @rule(data=st.data(), lost=st.booleans())
    def commits(self, data, lost):
        worker = self.one(data, lambda w: w.is_in)
        if worker:
            held = standing(self.world.truth.group(G), worker.member, worker.joined)
            outcome = worker.ask(
                CommitRequest(G, worker.member, worker.generation(), worker.reset, worker.said()),
                lost=lost,
            )
            assert isinstance(outcome, Refused) == isinstance(held, FencedError)
            worker.after(outcome)

    @rule(data=st.data(), topic=st.sampled_from(TOPICS), partition=st.integers(0, 5))
    def commits_what_it_may_not_hold(self, data, topic, partition):
        """A caller's own offsets: right or wrong, the table at that very version says."""
        worker = self.one(data, lambda w: w.is_in and (topic, partition) not in w.progress)
        if worker:
            generation = worker.generation()
            held = self.world.truth.group(G).holders.get((topic, partition))
            right = held and held.member == worker.member and held.since <= generation
            offset = data.draw(st.integers(0, END))
            said = {(topic, partition): OffsetAndMetadata(offset)}
            outcome = worker.ask(CommitRequest(G, worker.member, generation, worker.reset, said))
            assert isinstance(outcome, Accepted) == bool(right)
            self.clean = self.clean and not right
            worker.after(outcome)

    @rule(data=st.data())
    def releases(self, data):
        worker = self.one(
            data,
            lambda w: w.is_in and isinstance(w.standing(), Standing) and w.standing().release,
        )
        if worker:
            worker.release()

    @rule(data=st.data())
    def leaves(self, data):
        worker = self.one(data, lambda w: w.is_in)
        if worker:
            worker.ask(
                LeaveRequest(G, worker.member, worker.generation(), worker.reset, worker.said())
            )
            worker.out()

    @rule(data=st.data())
    def dies(self, data):
        """It knows no more of its life; the others have still to find out."""
        worker = self.one(data, lambda w: w.is_in)
        if worker:
            self.clean = False
            worker.out()

    @rule(data=st.data())
    def is_put_out(self, data):
        watcher = self.one(data, lambda w: w.is_in)
        if watcher is None:
            return
        known = watcher.table.group(G).members
        others = sorted(set(known) - {watcher.member})
        if others:
            peer = known[data.draw(st.sampled_from(others))]
            before = self.world.truth.group(G).members.get(peer.name)
            outcome = watcher.ask(
                ExpelRequest(G, peer.name, peer.joined, watcher.member, "silence")
            )
            assert isinstance(outcome, Accepted)
            assert outcome.facts == (1 if before and before.joined == peer.joined else 0)
            self.clean = False

    # --- others ----------------------------------------------------------------------------

    @rule(
        scenario=st.one_of(
            st.sampled_from([ToEarliest(), ToLatest(), ShiftBy(-3), ShiftBy(2)]),
            st.integers(0, 2 * END).map(ToOffset),
        ),
        topic=st.sampled_from(TOPICS),
    )
    def resets(self, scenario, topic):
        targets = tuple((topic, p) for p in range(self.counts[topic]))
        spans = {target: OffsetSpan(0, END) for target in targets}
        number = self.world.truth.group(G).resets
        there = self.world.truth.group(G).positions
        outcome = self.admin.ask(ResetRequest(G, scenario, targets, spans, {}, create=True))
        if isinstance(outcome, Refused):
            assert isinstance(scenario, ShiftBy) and not set(targets) <= set(there)
            return
        self.clean = False
        assert self.world.truth.group(G).resets == number + 1
        for move in outcome.plan:
            position = there.get((move.topic, move.partition))
            assert move.before == (position.offset if position else None)

    @rule(offset=st.integers(0, END))
    def commits_by_hand(self, offset):
        members = self.world.truth.group(G).members
        self.admin.look()
        reset = self.admin.table.group(G).resets
        said = {("orders", 0): OffsetAndMetadata(offset)}
        outcome = self.admin.ask(CommitRequest(G, None, 0, reset, said))
        assert isinstance(outcome, Refused) == bool(members)
        self.clean = self.clean and bool(members)

    @rule()
    def is_deleted(self):
        group = self.world.truth.group(G)
        outcome = self.admin.ask(DeleteGroupRequest(G))
        assert isinstance(outcome, Accepted) == (group.alive and not group.members)
        self.clean = self.clean and isinstance(outcome, Refused)

    @rule(topic=st.sampled_from(TOPICS))
    def loses_offsets(self, topic):
        outcome = self.admin.ask(DeleteOffsetsRequest(G, topic))
        if isinstance(outcome, Refused):
            assert isinstance(outcome.error, InvalidRequestError)
        else:
            assert not any(
                topic in m.subscription.topics for m in self.world.truth.group(G).members.values()
            )
            self.clean = False

    @rule(topic=st.sampled_from(TOPICS), more=st.integers(1, 3))
    def gets_more_partitions(self, topic, more):
        self.counts[topic] = min(self.counts[topic] + more, 6)
        self.seen += 1
        self.tell()

    @rule(topic=st.sampled_from(TOPICS))
    def an_old_view_comes_late(self, topic):
        before = self.world.truth.group(G).topics[topic]
        assert self.admin.ask(TopicsRequest(G, {topic: TopicView(9, 0)})) == Accepted()
        assert self.world.truth.group(G).topics[topic] == before

    @precondition(lambda self: self.world.tip > 5)
    @rule(alone=st.booleans())
    def a_query_takes_the_group(self, alone):
        if not alone:
            return
        self.admin.look()
        name = f"q{self.world.tip}"
        said = Subscription((), alone=True, session_ms=0)
        self.clean = False
        assert isinstance(self.admin.ask(JoinRequest(G, name, said)), Accepted)
        group = self.world.truth.group(G)
        assert set(group.members) == {name}
        assert isinstance(
            self.admin.ask(LeaveRequest(G, name, group.generation, group.resets)), Accepted
        )

    # --- what holds at every step ----------------------------------------------------------

    @invariant()
    def no_two_believe_to_hold_one_partition(self):
        """Each believes what it last saw. Who was put out without knowing it yet believes in
        vain: its commits are refused. Of all others no two believe the same."""
        owners: dict[tuple[str, int], str] = {}
        group = self.world.truth.group(G)
        for worker in self.workers:
            if not worker.is_in or isinstance(
                standing(group, worker.member, worker.joined), FencedError
            ):
                continue
            believed = worker.standing()
            assert isinstance(believed, Standing)
            for partition in believed.holds:
                assert owners.setdefault(partition, worker.member) == worker.member
                assert group.holders[partition].member == worker.member

    @invariant()
    def the_fold_is_the_same_from_anywhere(self):
        world = self.world
        facts = world.since(-1)
        assert fold(EMPTY, reversed(facts), world.tip) == world.truth
        kept = from_plain(to_plain(self.admin.table))
        assert kept == self.admin.table
        assert fold(kept, facts, world.tip) == world.truth

    @invariant()
    def without_faults_nothing_is_read_twice(self):
        if self.clean:
            for offsets in self.delivered.values():
                assert sorted(offsets) == list(range(len(offsets)))

    def teardown(self):
        """When the faults stop, everything ends: all that live agree, and all is shared."""
        if not hasattr(self, "world"):
            return
        for worker in self.workers:
            if not worker.is_in:
                worker.join(TOPICS)
            worker.poll()
        alive = {w.member for w in self.workers if w.is_in}
        for name, member in self.world.truth.group(G).members.items():
            if name not in alive:
                self.admin.look()
                self.admin.ask(ExpelRequest(G, name, member.joined, "admin", "silence"))
        self.seen += 1
        self.tell()
        for _ in range(3):
            for worker in self.workers:
                worker.poll()
                if not worker.is_in:
                    worker.join(TOPICS)
                if worker.standing().release:
                    worker.release()
        group = self.world.truth.group(G)
        assert status(group) == Status.STABLE
        assert set(group.targets) == {
            (topic, p)
            for topic, n in self.counts.items()
            for p in range(n)
            if any(topic in m.subscription.topics for m in group.members.values())
        }
        for worker in self.workers:
            worker.poll()
            assert set(worker.progress) == set(worker.standing().holds)


Groups.TestCase.settings = settings(
    max_examples=120, stateful_step_count=40, deadline=None, print_blob=True
)
TestGroups = Groups.TestCase
