"""What may be written, what is refused, and in which words."""

from __future__ import annotations

import pickle

import pytest

from offsetlog.core.group.checkpoint import from_plain, to_plain
from offsetlog.core.group.decide import Accepted, Refused, decide
from offsetlog.core.group.facts import Fact, OffsetAndMetadata, Subscription, TopicView
from offsetlog.core.group.fold import IgnoredReason, fold
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
from offsetlog.core.group.reset import OffsetSpan, ShiftBy, ToEarliest, ToOffset
from offsetlog.core.group.state import EMPTY, Status, status
from offsetlog.errors import CorruptLogError, FencedError, InvalidRequestError

G = "billing"
P0, P1, P2 = [("orders", p) for p in range(3)]
SPANS = {p: OffsetSpan(0, 1000) for p in (P0, P1, P2)}


class Story:
    """One table, and everybody who writes to it in turn."""

    def __init__(self):
        self.table, self.facts, self.now = EMPTY, [], 0

    def ask(self, *requests):
        self.now += 1
        made = decide(self.table, requests, self.now, f"w{self.now}")
        self.facts += made.facts
        self.table = made.table
        return made.outcomes[0] if len(made.outcomes) == 1 else made.outcomes

    def does(self, *requests):
        outcomes = self.ask(*requests)
        for outcome in (outcomes,) if isinstance(outcomes, Accepted | Refused) else outcomes:
            assert isinstance(outcome, Accepted), outcome
        return outcomes

    def refused(self, request):
        before = self.table
        outcome = self.ask(request)
        assert isinstance(outcome, Refused)
        assert self.table is before
        return outcome.error

    @property
    def group(self):
        return self.table.group(G)

    def joined(self, name):
        return self.group.members[name].joined

    def offsets(self):
        return {p: position.offset for p, position in self.group.positions.items()}


def join(name, topics=("orders",), **said):
    return JoinRequest(G, name, Subscription(topics=topics, **said))


def topics(partitions=3, tip=1, topic="orders"):
    return TopicsRequest(G, {topic: TopicView(partitions, tip)})


def at(*pairs):
    return {partition: OffsetAndMetadata(offset) for partition, offset in pairs}


def commit(story, name, *pairs, reset=None, generation=None):
    return CommitRequest(
        G,
        name,
        story.group.generation if generation is None else generation,
        story.group.resets if reset is None else reset,
        at(*pairs),
    )


@pytest.fixture
def story():
    return Story()


@pytest.fixture
def two(story):
    """a holds orders-0 and orders-1, b holds orders-2."""
    story.does(topics(), join("a"))
    story.does(join("b"))
    story.does(ReleaseRequest(G, "a", 2, 0, {P2: OffsetAndMetadata(10)}))
    return story


def test_the_first_member_holds_everything_at_once(story):
    story.does(topics(), join("a"))
    assert standing(story.group, "a", 1) == Standing(1, frozenset({P0, P1, P2}), (), ())
    assert status(story.group) == Status.STABLE


def test_a_partition_stays_with_its_holder_until_it_is_released(story):
    story.does(topics(), join("a"))
    story.does(join("b"))
    a, b = standing(story.group, "a", 1), standing(story.group, "b", 2)
    assert (a.holds, a.release, a.keeps) == ({P0, P1, P2}, (P2,), {P0, P1})
    assert (b.holds, b.waits) == (frozenset(), (P2,))
    assert status(story.group) == Status.REBALANCING
    assert "belongs to 'a'" in story.refused(commit(story, "b", (P2, 1))).message
    story.does(commit(story, "a", (P2, 8)))
    story.does(ReleaseRequest(G, "a", 2, 0, {P2: OffsetAndMetadata(10)}))
    assert standing(story.group, "b", 2).holds == {P2}
    assert story.offsets() == {P2: 10}
    assert isinstance(story.refused(commit(story, "a", (P2, 11))), FencedError)
    story.does(commit(story, "b", (P2, 12)))
    assert status(story.group) == Status.STABLE


def test_a_refused_commit_is_refused_whole(two):
    error = two.refused(commit(two, "a", (P0, 5), (P2, 5)))
    assert isinstance(error, FencedError)
    assert two.offsets() == {P2: 10}


def test_one_append_carries_many_and_a_refusal_touches_only_its_own(two):
    outcomes = two.ask(
        commit(two, "a", (P0, 5)),
        commit(two, "b", (P0, 99)),
        CommitRequest("audit", None, 0, 0, at((P0, 7))),
        commit(two, "b", (P2, 11)),
    )
    assert [type(outcome) for outcome in outcomes] == [Accepted, Refused, Accepted, Accepted]
    assert two.offsets() == {P0: 5, P2: 11}
    assert two.table.group("audit").positions[P0].offset == 7
    assert [(f.version, f.place) for f in two.facts[-3:]] == [(3, 0), (3, 1), (3, 2)]


def test_commit_and_leave_in_one_append_hand_over_at_once(two):
    two.does(LeaveRequest(G, "a", two.group.generation, 0, at((P0, 5), (P1, 6))))
    assert two.offsets() == {P0: 5, P1: 6, P2: 10}
    assert standing(two.group, "b", 2).holds == {P0, P1, P2}
    two.does(LeaveRequest(G, "b", two.group.generation, 0))
    assert status(two.group) == Status.EMPTY
    assert two.group.holders == {}


def test_the_expelled_one_is_told_by_whom_and_moves_nothing(two):
    a = two.joined("a")
    two.does(ExpelRequest(G, "a", a, "b", "no heartbeat for 45 s"))
    assert standing(two.group, "b", 2).holds == {P0, P1, P2}
    for request in (
        commit(two, "a", (P0, 5), generation=2),
        commit(two, "a", generation=2),
        LeaveRequest(G, "a", 2, 0, at((P0, 5))),
        ReleaseRequest(G, "a", 2, 0, {P0: None}),
        JoinRequest(G, "a", Subscription(("orders",)), generation=2),
    ):
        error = two.refused(request)
        assert isinstance(error, FencedError)
        assert "b expelled it, since no heartbeat for 45 s" in error.message
    out = standing(two.group, "a", a)
    assert isinstance(out, FencedError)
    assert pickle.loads(pickle.dumps(out)).message == out.message
    two.does(join("a2"))
    assert standing(two.group, "a2", two.joined("a2")).holds == frozenset()


def test_the_same_name_joining_again_is_another_member(two):
    two.does(ExpelRequest(G, "a", two.joined("a"), "b", "silence"))
    two.does(join("a"))
    spare = standing(two.group, "b", 2).release
    two.does(ReleaseRequest(G, "b", two.group.generation, 0, dict.fromkeys(spare)))
    held = standing(two.group, "a", two.joined("a")).holds
    assert held
    late = commit(two, "a", (sorted(held)[0], 99), generation=2)
    assert isinstance(two.refused(late), FencedError)
    assert isinstance(standing(two.group, "a", 1), FencedError)
    assert two.does(ExpelRequest(G, "a", 1, "b", "an old watch")).facts == 0
    assert "a" in two.group.members


def test_two_that_see_the_same_silence_expel_once(two):
    joined = two.joined("a")
    assert two.does(ExpelRequest(G, "a", joined, "b", "silence")).facts == 1
    assert two.does(ExpelRequest(G, "a", joined, "c", "silence")).facts == 0


def test_progress_from_before_a_reset_is_dropped_without_a_word(two):
    two.does(commit(two, "a", (P0, 50), (P1, 60)))
    plan = two.does(ResetRequest(G, ToOffset(5), (P0,), SPANS, {})).plan
    assert [(m.before, m.after) for m in plan] == [(50, 5)]
    assert (two.group.resets, resets_since(two.group, 0)) == (1, {P0: 5})
    assert resets_since(two.group, 1) == {}
    outcome = two.does(commit(two, "a", (P0, 51), (P1, 61), reset=0))
    assert outcome == Accepted(facts=1, dropped=(P0,))
    assert two.offsets() == {P0: 5, P1: 61, P2: 10}
    two.does(commit(two, "a", (P0, 6), reset=1))
    assert resets_since(two.group, 0) == {P0: 5}, "where it was put, not where it stands"
    outcome = two.does(LeaveRequest(G, "a", two.group.generation, 0, at((P0, 52), (P1, 62))))
    assert outcome.dropped == (P0,)
    assert two.offsets() == {P0: 6, P1: 62, P2: 10}


def test_a_release_after_a_reset_gives_up_the_partition_but_not_the_position(story):
    story.does(topics(), join("a"))
    story.does(ResetRequest(G, ToEarliest(), (P2,), SPANS, {}))
    story.does(join("b"))
    given_up = ReleaseRequest(G, "a", 2, 0, {P2: OffsetAndMetadata(70)})
    assert story.does(given_up) == Accepted(facts=1, dropped=(P2,))
    assert story.facts[-1].offset is None
    assert story.offsets() == {P2: 0}
    assert standing(story.group, "b", 2).holds == {P2}


def test_shift_by_is_computed_at_the_version_it_is_written_at(two):
    two.does(commit(two, "a", (P0, 50)))
    stale = two.table
    request = ResetRequest(G, ShiftBy(-10), (P0,), SPANS, {})
    dry = decide(stale, [request], 9, "dry").outcomes[0].plan
    two.does(commit(two, "a", (P0, 80)))
    real = two.does(request).plan
    assert (dry[0].after, real[0].after) == (40, 70)


def test_reset_numbers_never_restart(story):
    story.does(CommitRequest(G, None, 0, 0, at((P0, 5))))
    for number in (1, 2):
        story.does(ResetRequest(G, ToEarliest(), (P0, P1), SPANS, {}))
        assert {f.reset for f in story.facts if f.kind == "reset"} == set(range(1, number + 1))
    story.does(DeleteGroupRequest(G))
    assert (story.group.alive, story.group.resets, dict(story.group.positions)) == (False, 2, {})
    assert status(story.group) == Status.DEAD
    assert "no group 'billing'" in story.refused(DeleteGroupRequest(G)).message
    assert "no group" in story.refused(ResetRequest(G, ToEarliest(), (P0,), SPANS, {})).message
    story.does(ResetRequest(G, ToEarliest(), (P0,), SPANS, {}, create=True))
    assert story.group.resets == 3
    assert story.does(commit(story, None, (P0, 9), reset=2)).dropped == (P0,)


def test_the_newest_query_owns_its_group_and_the_older_is_told_its_name(story):
    story.does(join("q1", alone=True, session_ms=0, client="nightly"))
    story.does(commit(story, "q1", (P0, 5), (("clicks", 4), 9)))
    story.does(join("q2", alone=True, session_ms=0, client="hourly"))
    error = story.refused(commit(story, "q1", (P0, 6), generation=1))
    assert isinstance(error, FencedError)
    assert "hourly expelled it" in error.message
    story.does(commit(story, "q2", (P0, 7)))
    assert "'hourly' (q2)" in story.refused(join("w")).message
    by_hand = story.refused(commit(story, None, (P0, 8)))
    assert isinstance(by_hand, FencedError)
    assert story.offsets() == {P0: 7, ("clicks", 4): 9}


def test_a_query_that_takes_over_from_workers_puts_them_out(two):
    two.does(join("q", alone=True, client="nightly"))
    assert set(two.group.members) == {"q"}
    assert (two.group.holders, two.group.targets) == ({}, {})
    assert standing(two.group, "q", two.joined("q")).alone
    assert "nightly" in two.refused(commit(two, "a", (P0, 5), generation=2)).message
    two.does(LeaveRequest(G, "q", two.group.generation, 0, at((P1, 3))))
    two.does(join("c"))
    assert standing(two.group, "c", two.joined("c")).holds == {P0, P1, P2}


def test_assigned_by_hand_commits_only_into_a_group_without_members(story):
    story.does(commit(story, None, (P0, 5)))
    story.does(topics(), join("a", client="worker-1"))
    error = story.refused(commit(story, None, (P0, 6)))
    assert isinstance(error, FencedError)
    assert "'worker-1' (a)" in error.message
    story.does(LeaveRequest(G, "a", 1, 0))
    story.does(commit(story, None, (P0, 6)))
    assert story.offsets() == {P0: 6}


def test_more_partitions_are_shared_and_an_old_view_is_passed_over(two):
    generation = two.group.generation
    two.does(topics(5, tip=9))
    assert two.group.generation == generation + 1
    assert len(standing(two.group, "b", 2).holds) == 2
    assert two.does(topics(3, tip=4)).facts == 0
    assert two.does(topics(5, tip=12)).facts == 0
    two.does(topics(4, tip=1, topic="clicks"))
    assert two.group.generation == generation + 1


def test_a_topic_that_is_gone_leaves_its_partitions_to_be_released(two):
    two.does(topics(0, tip=9))
    a = standing(two.group, "a", 1)
    assert a.release == (P0, P1)
    two.does(topics(3, tip=15))
    assert standing(two.group, "a", 1).holds == {P0, P1}
    assert two.offsets() == {P2: 10}


def test_a_partition_of_a_gone_topic_is_free_once_it_is_released(two):
    two.does(topics(0, tip=9))
    two.does(ReleaseRequest(G, "a", two.group.generation, 0, dict.fromkeys((P0, P1))))
    assert set(two.group.holders) == {P2}
    assert standing(two.group, "a", 1) == Standing(two.group.generation, frozenset(), (), ())


def test_what_was_held_before_is_no_title_to_what_is_held_again(two):
    """a gave orders-2 to b at 10, b moved it to 20 and left: a's old progress is void."""
    two.does(commit(two, "b", (P2, 20)))
    two.does(LeaveRequest(G, "b", two.group.generation, 0))
    assert P2 in standing(two.group, "a", 1).holds
    assert isinstance(two.refused(commit(two, "a", (P2, 10), generation=2)), FencedError)
    two.does(commit(two, "a", (P2, 21)))


def test_a_member_that_takes_its_group_alone_and_shares_it_again(two):
    said = Subscription(("orders",), alone=True)
    two.does(JoinRequest(G, "a", said, generation=two.group.generation))
    assert (dict(two.group.holders), set(two.group.members)) == ({}, {"a"})
    two.does(commit(two, "a", (P2, 30)))
    two.does(JoinRequest(G, "a", said._replace(alone=False), generation=two.group.generation))
    assert standing(two.group, "a", 1).holds == {P0, P1, P2}
    assert {held.since for held in two.group.holders.values()} == {two.group.generation}


def test_a_new_subscription_keeps_what_is_still_wanted(two):
    two.does(topics(2, tip=1, topic="clicks"))
    said = Subscription(("clicks", "orders"))
    two.does(JoinRequest(G, "a", said, generation=two.group.generation))
    assert two.joined("a") == 1
    assert ("clicks", 0) in standing(two.group, "a", 1).holds
    assert two.does(JoinRequest(G, "a", said, generation=two.group.generation)).facts == 0


def test_deletion_is_for_groups_and_topics_nobody_reads(two):
    assert "is not empty: 'a', 'b'" in two.refused(DeleteGroupRequest(G)).message
    assert (
        "members that read the topic 'orders'"
        in two.refused(DeleteOffsetsRequest(G, "orders")).message
    )
    for name in ("a", "b"):
        two.does(LeaveRequest(G, name, two.group.generation, 0, {}))
    assert "partition 1 of" in two.refused(DeleteOffsetsRequest(G, "orders", (1,))).message
    assert "topic 'clicks'" in two.refused(DeleteOffsetsRequest(G, "clicks")).message
    two.does(DeleteOffsetsRequest(G, "orders"))
    assert two.offsets() == {}
    two.does(DeleteGroupRequest(G))
    assert "no group" in two.refused(DeleteOffsetsRequest(G, "orders")).message


@pytest.mark.parametrize(
    ("request_", "message"),
    [
        (JoinRequest("../x", "a", Subscription(("t",))), "not a legal group name"),
        (join("a"), "has a member 'a' already"),
        (join("c", strategy="range"), "share partitions by 'sticky', not by 'range'"),
        (join("c", strategy="fair"), "'fair' is not an assignment strategy"),
        (join("c", topics=()), "subscribes to no topic"),
        (join("", topics=("t",)), "must have a name"),
        (join("c", topics=("a/b",)), "'a/b'"),
        (join("c", session_ms=-1), "session timeout"),
        (topics(-1), "cannot have -1 partitions"),
        (CommitRequest(G, "a", 2, 0, at((P0, -1))), "-1 is not an offset"),
        (CommitRequest(G, "a", 2, 0, at((P0, 2**63))), "is not an offset"),
        (CommitRequest(G, "a", 2, 0, {P0: OffsetAndMetadata(1, "x" * 5000)}), "longer than 4096"),
        (CommitRequest("Billing", None, 0, 0, at((P0, 1))), "differs from 'Billing' only by case"),
    ],
)
def test_bad_input_is_named_and_changes_nothing(two, request_, message):
    error = two.refused(request_)
    assert isinstance(error, InvalidRequestError)
    assert message in error.message
    assert error.hint


def test_a_row_put_in_by_hand_moves_nothing_it_may_not_move(two):
    legal = two.facts[-1]
    forged = [
        legal._replace(kind="commit", member="a", topic="orders", partition=2, offset=0),
        legal._replace(kind="commit", member="nobody", partition=0),
        legal._replace(kind="commit", member=None, partition=0),
        legal._replace(kind="commit", member="b", offset=None),
        legal._replace(kind="commit", member="b", topic=None),
        legal._replace(kind="release", member=None),
        legal._replace(kind="release", member="b", offset=-1),
        legal._replace(kind="reset", reset=7),
        legal._replace(kind="reset", reset=0),
        legal._replace(kind="join", member="c", metadata="{"),
        legal._replace(kind="join", member="c", metadata="[1]"),
        legal._replace(kind="leave", member="c"),
        legal._replace(kind="expel", member=None),
        legal._replace(kind="topics", metadata='{"partitions":true,"tip":1}'),
        legal._replace(kind="delete", topic=None),
        legal._replace(kind="delete"),
    ]
    rows = [fact._replace(version=two.table.version + 1, place=i) for i, fact in enumerate(forged)]
    void = []
    after = fold(two.table, rows, two.table.version + 1, lambda f, reason: void.append(reason))
    assert after.groups == two.table.groups
    assert len(void) == len(rows)
    assert IgnoredReason.NOT_THE_HOLDER in void


def test_a_row_put_in_by_hand_needs_more_than_the_right_name(two):
    """Old generations, old resets, old views, and a reset's number given once more."""
    two.does(ResetRequest(G, ToOffset(5), (P0, P2), SPANS, {}))
    two.does(ExpelRequest(G, "b", two.joined("b"), "a", "silence"))
    two.does(join("q", alone=True))
    base = two.table
    two.does(ResetRequest(G, ToOffset(6), (P0,), SPANS, {}))
    row = two.facts[-1]
    late = row._replace(version=row.version + 1)
    forged = [
        late._replace(kind="commit", member="q", generation=2, offset=99),
        late._replace(kind="reset", offset=99, place=1),
        late._replace(kind="topics", metadata='{"partitions":9,"tip":1}', place=2),
        late._replace(kind="release", member="q", offset=99, reset=1, place=3),
    ]
    void = []
    after = fold(base, [row, *forged], late.version, lambda f, reason: void.append(reason))
    assert void == [
        IgnoredReason.OLD_GENERATION,
        IgnoredReason.NOT_THE_NEXT_RESET,
        IgnoredReason.OLD_VIEW,
    ]
    assert after.group(G).positions == two.group.positions
    assert after.group(G).topics == two.group.topics


def test_rows_that_cannot_be_ours_stop_the_fold(two):
    last = two.facts[-1]
    newer = last._replace(version=two.table.version + 1, place=0)
    with pytest.raises(CorruptLogError, match="holds a fact of version"):
        fold(two.table, [newer], two.table.version)
    with pytest.raises(CorruptLogError, match="two facts at place 0"):
        fold(two.table, [newer, newer._replace(offset=77)], newer.version)
    with pytest.raises(InvalidRequestError, match="unknown kind 'grant'"):
        fold(two.table, [newer._replace(kind="grant")], newer.version)
    rules = newer._replace(kind="join", member="z", metadata='{"rules":2}')
    with pytest.raises(InvalidRequestError, match="version 2"):
        fold(two.table, [rules], newer.version)


def test_a_lost_answer_is_found_by_its_write_id(two):
    request = commit(two, "a", (P0, 5))
    sent = decide(two.table, [request], 50, "mine")
    assert {(f.write_id, f.version) for f in sent.facts} == {("mine", sent.version)}
    other = decide(two.table, [commit(two, "b", (P2, 11))], 50, "theirs")
    assert {f.write_id for f in other.facts} == {"theirs"}
    assert fold(two.table, sent.facts, sent.version) == sent.table


def test_a_fact_has_the_columns_of_the_table():
    assert Fact._fields == (
        "group", "topic", "partition", "offset", "metadata", "committed_at", "generation",
        "reset", "member", "kind", "write_id", "version", "place",
    )  # fmt: skip


def test_the_checkpoint_reads_back_and_a_broken_one_is_told(two):
    two.does(ResetRequest(G, ToEarliest(), (P0,), SPANS, {}))
    two.does(ExpelRequest(G, "b", 2, "a", "silence"))
    plain = to_plain(two.table)
    assert from_plain(plain) == two.table
    for path, wrong in [
        (("version",), "7"),
        (("rules",), 0),
        (("groups",), []),
        (("groups", G, "generation"), -1),
        (("groups", G, "alive"), 1),
        (("groups", G, "members", "a"), ["{}", 1, 1]),
        (("groups", G, "positions", "orders"), {"x": []}),
        (("groups", G, "positions", "orders", "0"), [1, 2]),
        (("groups", G, "holders", "orders", "0"), ["a", True]),
        (("groups", G, "gone"), {}),
        (("groups", G, "reset_to"), {}),
        (("groups", G, "reset_to", "orders", "0"), "5"),
        (("groups", G, "reset_to", "orders", "9"), 5),
    ]:
        broken = _with(plain, path, wrong)
        with pytest.raises(CorruptLogError, match="checkpoint"):
            from_plain(broken)
    with pytest.raises(CorruptLogError, match="'resets' is missing"):
        from_plain(_with(plain, ("groups", G), {"alive": True, "generation": 1}))
    with pytest.raises(InvalidRequestError, match="Upgrade"):
        from_plain({"rules": 2})


def test_a_checkpoint_of_an_earlier_version_without_the_targets_of_resets(two):
    """It is as good as none where there were resets: the facts say where they went."""
    plain = to_plain(two.table)
    del plain["groups"][G]["reset_to"]
    assert from_plain(plain) == two.table
    two.does(ResetRequest(G, ToOffset(5), (P0,), SPANS, {}))
    plain = to_plain(two.table)
    assert plain["groups"][G]["reset_to"] == {"orders": {"0": 5}}
    del plain["groups"][G]["reset_to"]
    with pytest.raises(CorruptLogError, match="'reset_to' does not say where each reset"):
        from_plain(plain)


def test_a_checkpoint_of_an_earlier_version_without_the_partitions_that_were_added(two):
    """It is as good as none where topics are known: the facts say which were added."""
    plain = to_plain(two.table)
    assert two.group.topics
    del plain["groups"][G]["added"]
    with pytest.raises(CorruptLogError, match="'added' is missing"):
        from_plain(plain)
    plain["groups"][G]["topics"] = {}
    from_plain(plain)


def _with(plain, path, value):
    head, *rest = path
    return {**plain, head: _with(plain[head], rest, value) if rest else value}
