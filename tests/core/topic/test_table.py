"""The table of a topic, against one that is made anew from all extents at each version."""

from __future__ import annotations

from random import Random

import pytest

from offsetlog.core.topic.entry import (
    Append,
    Body,
    Create,
    Delete,
    Entry,
    Part,
    Replace,
    ReplacedRun,
    ReplacementPiece,
    Trim,
)
from offsetlog.core.topic.extents import Extent
from offsetlog.core.topic.fold import step
from offsetlog.core.topic.index import Leaf
from offsetlog.core.topic.plan import NeedLeaves, live_fences
from offsetlog.core.topic.rewrite import RewritePlan, plan_division, plan_table_rewrites
from offsetlog.core.topic.state import EMPTY_STATE, TopicState
from offsetlog.core.topic.table import Blocked, Changes, changes, files
from tests.core.topic.strategies import segment
from tests.core.topic.test_index import Publisher

TARGET = 400


class Topic:
    """A topic to which things happen, with a table that is published now and then."""

    def __init__(self, seed: int) -> None:
        self.rng = Random(seed)
        self.folder = Publisher(1)
        self.do(Create("t", 2, (), -1))
        self.published: TopicState = EMPTY_STATE
        self.ends: tuple[int, ...] = ()
        self.names: dict[str, Extent] = {}
        self.streamed: set[tuple[int, int]] = set()
        self.gone: set[tuple[int, int]] = set()
        """Offsets that a compaction took out."""
        self.needed = 0
        """Leaves that publishing had to read."""

    @property
    def state(self) -> TopicState:
        return self.folder.state

    def do(self, body: Body) -> None:
        write_id = f"{self.rng.getrandbits(128):032x}"
        self.folder.state, _ = step(self.state, Entry(write_id, 0, body))

    def live(self, state: TopicState) -> list[Extent]:
        out: list[Extent] = []
        for uid, fences in live_fences(state).items():
            leaf: Leaf = self.folder.leaves[uid]
            for fence in fences:
                out += map(leaf.extent, leaf.span(fence.partition, fence.base, fence.end))
        for part in state.parts:
            out += part.tail.overlapping(part.start, part.end)
        return sorted(set(out), key=lambda extent: (extent.partition, extent.base))

    # --- what happens ----------------------------------------------------------------------

    def append(self) -> None:
        rng, state = self.rng, self.state
        ref = segment(rng, state.tip) if rng.random() < 0.4 else None
        size = rng.choice((10, 50, 300))
        part = Part(rng.randrange(2), rng.randint(1, 20), size, 0, 9, ref)
        made = max(0, state.created_at_entry)
        self.do(Append(str(state.tip), 0, False, state.tip, made, 2, "0" * 16, 0, (part,)))

    def trim(self) -> None:
        partition = self.rng.randrange(2)
        part = self.state.parts[partition]
        self.do(Trim(((partition, self.rng.randint(part.start, part.end)),)))

    def recreate(self) -> None:
        self.do(Delete(self.state.head))
        self.do(Create("t", 2, (), self.state.head))

    def rewrite(self, plan: RewritePlan, drop: float = 0.0) -> None:
        pieces = []
        for base, end in plan.ranges:
            there = [n for n in range(base, end) if (plan.partition, n) not in self.gone]
            lost = {(plan.partition, n) for n in there if self.rng.random() < drop}
            self.gone |= lost
            count = len(there) - len(lost)
            ref = segment(self.rng, self.state.tip) if count else None
            pieces.append(ReplacementPiece(base, end, count, 10 * count, 0, 9, 0, ref))
        run = ReplacedRun(plan.partition, plan.start, plan.end, tuple(pieces))
        self.do(Replace(self.state.tip, (run,)))

    def consolidate(self, ends: tuple[int, ...]) -> None:
        for partition, part in enumerate(self.state.parts):
            extents = [e for e in self.live(self.state) if e.partition == partition]
            end = ends[partition] if partition < len(ends) else 0
            for plan in list(plan_table_rewrites(extents, part.start, end, TARGET, 3)):
                self.rewrite(plan)

    def compact(self) -> None:
        """Some run of files that need not know of the table."""
        live = [e for e in self.live(self.state) if e.partition == self.rng.randrange(2)]
        if live:
            low = self.rng.randrange(len(live))
            some = tuple(live[low : low + self.rng.randint(1, 4)])
            start = max(some[0].base, self.state.start(some[0].partition))
            whole = all(a.end == b.base for a, b in zip(some, some[1:], strict=False))
            if whole and start == some[0].base:
                plan = RewritePlan(some[0].partition, start, some[-1].end, some)
                self.rewrite(plan, self.rng.choice((0.0, 0.3, 1.0)))

    # --- the table -------------------------------------------------------------------------

    def changes(self) -> Changes | Blocked:
        leaves: dict[str, Leaf] = {}
        while isinstance(
            answer := changes(self.published, self.ends, self.state, leaves), NeedLeaves
        ):
            assert not leaves.keys() & set(answer.uids)
            leaves |= {uid: self.folder.leaves[uid] for uid in answer.uids}
        self.needed += len(leaves)
        return answer

    def publish(self) -> None:
        answer = self.changes()
        if isinstance(answer, Blocked):
            before = [self.offsets(e) for e in self.names.values()]
            for extent in answer.extents:
                partition = extent.partition
                end = self.ends[partition] if partition < len(self.ends) else 0
                self.rewrite(plan_division(extent, self.state.start(partition), end))
            assert [self.offsets(e) for e in self.names.values()] == before
            answer = self.changes()
        assert isinstance(answer, Changes)
        held = self.records()
        for removal in answer.removed:
            del self.names[removal.extent.segment.uid]
        for extent in (*answer.added, *answer.new):
            assert extent.segment.uid not in self.names
            self.names[extent.segment.uid] = extent
        self.check(answer, held)
        self.published, self.ends = self.state, answer.grown

    def offsets(self, extent: Extent) -> set[tuple[int, int]]:
        return {(extent.partition, n) for n in range(extent.base, extent.end)}

    def records(self) -> set[tuple[int, int]]:
        return set().union(*map(self.offsets, self.names.values()))

    def check(self, step: Changes, held: set[tuple[int, int]]) -> None:
        state = self.state
        live = self.live(state)
        assert set(self.names.values()) == set(files(state, step.grown, live))
        fresh = [self.offsets(extent) for extent in step.new]
        assert not held & set().union(*fresh)
        assert not self.streamed & set().union(*fresh), "a stream gets a record twice"
        self.streamed |= set().union(*fresh)
        for partition, part in enumerate(state.parts):
            end = step.grown[partition]
            assert part.start <= end <= part.end
            there = {(partition, n) for n in range(part.start, end)} - self.gone
            assert there <= self.records(), "a record that the log has is missing"
        assert all(self.state.start(p) <= n for p, n in self.records())
        if not held & self.gone and held <= self.records():
            assert not step.takes_records, "a mere rewrite is said to take records"
        for removal in step.removed:
            kept = self.offsets(removal.extent) - self.gone <= self.records()
            if not removal.takes_records:
                assert kept, "records went without a word"

    def is_complete(self) -> bool:
        return self.ends == tuple(part.end for part in self.state.parts)


@pytest.mark.parametrize("seed", range(60))
def test_a_table_has_what_the_log_has_and_a_stream_of_it_sees_each_record_once(seed: int) -> None:
    topic = Topic(seed)
    rng = topic.rng
    for _ in range(80):
        kind = rng.choices(
            ("append", "trim", "recreate", "compact", "consolidate", "index", "publish"),
            (10, 1.5, 0.2, 1, 2, 3, 2),
        )[0]
        if kind == "index":
            topic.folder.publish(sorting=rng.random() < 0.3)
        elif kind == "consolidate":
            # Some plan with an old version of the table.
            topic.consolidate(topic.ends if rng.random() < 0.7 else ())
        else:
            getattr(topic, kind)()
    topic.consolidate(topic.ends)
    topic.publish()
    assert topic.is_complete()
    version = dict(topic.names)
    topic.publish()
    assert topic.names == version


def test_publishing_reads_no_more_leaves_of_a_longer_log() -> None:
    counts = []
    for length in (50, 400):
        topic = Topic(1)
        for n in range(length):
            topic.append()
            if n % 10 == 9:
                topic.consolidate(topic.ends)
                topic.folder.publish()
                topic.publish()
        topic.needed = 0
        for _ in range(20):
            topic.append()
            topic.consolidate(topic.ends)
            topic.folder.publish()
            topic.publish()
        counts.append(topic.needed)
        assert len(topic.folder.state.index.leaves) >= length // 50
    assert counts[1] <= 1.5 * counts[0] + 10, counts
