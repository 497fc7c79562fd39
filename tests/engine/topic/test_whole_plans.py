"""Whoever plans, reads, counts or shows a range has all of it, in every state of upkeep."""

from __future__ import annotations

import itertools
import random
from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import offsetlog
from offsetlog.client.log import Log
from offsetlog.core.topic import publish
from offsetlog.core.topic import state as topic_state
from offsetlog.core.topic.plan import NeedLeaves, PlannedPart, estimate_records, plan_part
from offsetlog.engine.env import REAL, Limits
from offsetlog.engine.group import lag
from offsetlog.errors import CorruptLogError
from offsetlog.page.records import Query, read_page
from offsetlog.storage.memory import MemoryStore
from tests.engine.scripted import fresh_root

KEYS = [b"key-%d" % number for number in range(60)]
LIMITS = Limits(
    min_files=2,
    inline_bytes=2000,
    row_group_records=16,
    plan_records=40,
    leaves_kept=2,
    publishing=publish.IndexLimits(leaf_extents=4, full_leaf=2, sorted_at_once=64),
)
ENV = REAL._replace(limits=LIMITS)


class History:
    """A log, what it holds, and readers of it that opened it earlier."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.met: Counter[str] = Counter()
        self.root = fresh_root()
        self.log = Log(MemoryStore(self.root), ENV)
        config = {"retention.ms": -1, "compression.type": "none", "min.cleanable.dirty.ratio": 0}
        self.compacts = self.rng.random() < 0.3
        if self.compacts:
            config["cleanup.policy"] = "compact"
        self.partitions = self.rng.choice((1, 2))
        self.log.create_topic("t", partitions=self.partitions, config=config)
        self.readers = [self.log]
        self.rows: list[dict[int, tuple[bytes, bytes]]] = [{} for _ in range(self.partitions)]
        self.numbers = itertools.count()

    def close(self) -> None:
        for reader in self.readers:
            reader.close()

    def open_another(self) -> Log:
        self.readers.append(Log(MemoryStore(self.root), ENV))
        self.readers[-1].open_topic("t").state()
        return self.readers[-1]

    def send(self) -> None:
        for _ in range(self.rng.choice((1, 2, 12))):
            size = self.rng.choice((1, 1, 1, 300))
            count = self.rng.choice((1, 3, 20))
            keys = [self.rng.choice(KEYS) for _ in range(count)]
            values = [b"%06d" % next(self.numbers) + b"x" * size for _ in keys]
            partition = self.rng.randrange(self.partitions)
            end = self.log.topic("t").end_offsets()[partition]
            table = pa.table({"key": keys, "value": values, "partition": [partition] * count})
            with self.log.producer() as producer:
                producer.send_arrow("t", table)
            self.rows[partition] |= dict(enumerate(zip(keys, values, strict=True), end))

    def erase(self) -> None:
        keys = self.rng.sample(KEYS, 1)
        self.log.topic("t").erase(keys=keys)
        self.rows = [
            {at: row for at, row in rows.items() if row[0] not in keys} for rows in self.rows
        ]

    def delete(self) -> None:
        partition = self.rng.randrange(self.partitions)
        end = self.log.topic("t").end_offsets()[partition]
        before = self.rng.randint(0, max(0, end // 2))
        self.log.topic("t").delete_records({partition: before})
        self.rows[partition] = {at: r for at, r in self.rows[partition].items() if at >= before}

    def maintain(self) -> None:
        self.log.maintain("t", grace_ms=0)
        if self.compacts:
            self.rows = [
                {
                    at: r
                    for at, r in rows.items()
                    if at == max(a for a in rows if rows[a][0] == r[0])
                }
                for rows in self.rows
            ]

    def publish(self) -> None:
        self.log.open_topic("t").stored.publish()

    def run(self) -> None:
        for _ in range(self.rng.choice((0, 0, 12))):
            self.send()
            self.publish()
        steps = (self.send, self.erase, self.delete, self.maintain, self.publish, self.open_another)
        for _ in range(self.rng.randint(6, 16)):
            [step] = self.rng.choices(steps, (10, 3, 3, 3, 4, 2))
            step()
        if self.rng.random() < 0.5:
            self.erase()  # Which stores no snapshot.
        self.check(self.open_another())
        for reader in self.readers[:-1]:
            self.check(reader)

    def check(self, log: Log) -> None:
        topic = log.open_topic("t")
        state = topic.state()
        for partition, rows in enumerate(self.rows):
            self.note(state, partition)
            low, end = state.start(partition), state.end(partition)
            if low == end:
                continue
            for start, stop in ((low, end), *(self.some(low, end) for _ in range(3))):
                inside = {at: row for at, row in rows.items() if start <= at < stop}
                pieces = topic.reader.plan(partition, start, stop)
                edges = [start, *(piece.end for piece in pieces)]
                assert [(p.start, p.end) for p in pieces] == list(itertools.pairwise(edges))
                assert edges[-1] == stop
                read = pa.concat_tables(
                    [batch.table for batch in topic.reader.read(partition, start, stop)]
                ).to_pylist()
                found = {r["offset"]: (r["key"], r["value"]) for r in read}
                assert found == inside and len(read) == len(inside)
                for piece in pieces:
                    count = sum(piece.start <= at < piece.end for at in inside)
                    assert piece.may_have(count) and bool(piece.records) >= bool(count)
            for start in (low, *(self.some(low, end)[0] for _ in range(3))):
                records = sum(at >= start for at in rows)
                assert lag.backlog(log, ("t", partition), start).records == records
                estimated = lag.estimated_backlog(topic.chain.state, partition, start).records
                assert bool(estimated) >= bool(records) and estimated <= end - start
            self.check_page(log, partition, rows)

    def some(self, low: int, end: int) -> tuple[int, int]:
        start = self.rng.randint(low, end - 1)
        return start, self.rng.randint(start + 1, end)

    def check_page(self, log: Log, partition: int, rows: dict[int, Any]) -> None:
        for newest_first in (True, False):
            shown: list[int] = []
            query = Query((partition,), newest_first=newest_first, limit=500)
            while True:
                page = read_page(log.open_topic("t"), query, log.env)
                shown += [record.offset for record in page.records]
                if page.complete and (len(page.records) < 500 or not page.cursor):
                    break
                query = query._replace(cursor=page.cursor)
            assert shown == sorted(rows, reverse=newest_first)

    def note(self, state: topic_state.TopicState, partition: int) -> None:
        part = state.parts[partition]
        young = part.tail.overlapping(part.start, part.end)
        fences = state.index.fences(partition, part.start, part.end)
        self.met["young before stored"] += any(e.end <= f.base for e in young for f in fences)
        self.met["young between stored"] += any(
            fences[0].base < e.base and e.end < fences[-1].end for e in young if fences
        )
        self.met["more than eight leaves"] += len({fence.leaf for fence in fences}) > 8
        self.met["trimmed in a file"] += any(e.base < part.start for e in young)


def test_every_answer_covers_what_was_asked() -> None:
    met: Counter[str] = Counter()
    for seed in range(24):
        history = History(seed)
        try:
            history.run()
        finally:
            history.close()
        met += history.met
    assert met.keys() == {
        "young before stored",
        "young between stored",
        "more than eight leaves",
        "trimmed in a file",
    }


# --- planning by hand ------------------------------------------------------------------------


def many_leaves(count: int = 40) -> Log:
    log = Log(MemoryStore(fresh_root()), ENV)
    log.create_topic("t", config={"retention.ms": -1})
    for number in range(count):
        with log.producer() as producer:
            producer.send("t", b"%d" % number)
        if number % 4 == 3:
            log.open_topic("t").stored.publish()
    assert len(log.open_topic("t").state().index.leaves) > 8
    return log


def test_a_part_says_where_it_ends_and_is_no_sequence() -> None:
    with many_leaves() as log:
        topic = log.open_topic("t")
        part = topic.reader.plan_part(0, 0, 40)
        assert isinstance(part, PlannedPart) and 0 < part.end < 40
        assert part.end == part.pieces[-1].end
        for misuse in (len, iter, tuple, lambda one: one[0]):
            with pytest.raises(TypeError):
                misuse(part)
        limited = topic.reader.plan_part(0, 7, 40, max_records=2)
        assert limited.pieces[0].start == 7 and limited.end in (8, 9)
        assert isinstance(plan_part(topic.chain.state, 0, 0, 40, {}), NeedLeaves)


def test_a_whole_plan_holds_few_leaves_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    with many_leaves(80) as log:
        topic = log.open_topic("t")
        held = []
        load = topic.reader._load

        def counted(uids: tuple[str, ...], leaves: dict[str, Any]) -> bool:
            found = load(uids, leaves)
            held.append(len(leaves))
            return found

        monkeypatch.setattr(topic.reader, "_load", counted)
        assert [(p.start, p.end) for p in topic.reader.plan(0, 0, 80)] == [
            (at, at + 1) for at in range(80)
        ]
        assert max(held) <= 8 and len(held) > 1


def test_leaves_that_go_in_the_middle_of_a_plan_cost_time_alone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """They are merged into newer ones, and more is appended, between two looks for leaves: the
    plan is of one state all the same."""
    with many_leaves(80) as log, Log(MemoryStore(log.store._root), ENV) as other:
        topic = other.open_topic("t")
        topic.state()
        load, calls = topic.reader._load, itertools.count()

        def changed(uids: tuple[str, ...], leaves: dict[str, Any]) -> bool:
            if next(calls) == 1:
                log.maintain("t", grace_ms=0)
                for _ in range(3):
                    with log.producer() as producer:
                        producer.send("t", b"more")
                    log.maintain("t", grace_ms=0)
                    log.open_topic("t").stored.publish()
                log.store.delete([f.name for f in list(log.store.list("t/_index"))[:4]])
                topic.stored._leaves.clear()
                other.open_topic("t").state()
            return load(uids, leaves)

        monkeypatch.setattr(topic.reader, "_load", changed)
        pieces = topic.reader.plan(0, 0, 80)
        assert next(calls) > 2
        edges = [0, *(piece.end for piece in pieces)]
        assert [(p.start, p.end) for p in pieces] == list(itertools.pairwise(edges))
        assert edges[-1] == 80


@pytest.mark.parametrize("wrong", ["left out", "twice", "beyond"])
def test_pieces_that_do_not_tile_a_range_are_refused_by_whoever_reads_them(wrong: str) -> None:
    with many_leaves() as log:
        reader = log.open_topic("t").reader
        pieces = list(reader.plan(0, 10, 20))
        if wrong == "left out":
            del pieces[4]
        elif wrong == "twice":
            pieces.insert(4, pieces[4])
        else:
            pieces += reader.plan(0, 20, 21)
        with pytest.raises(CorruptLogError, match=r"Offsets \d+ to 20 of t-0 were to be read"):
            for _ in reader.read(0, 10, 20, planned=tuple(pieces)):
                pass
        # What ends early is gone on with.
        rows = [b.table.num_rows for b in reader.read(0, 10, 20, planned=tuple(pieces[:3]))]
        assert sum(rows) == 10


@pytest.mark.parametrize("kind", ["entry", "segment", "with gaps"])
def test_a_file_with_another_number_of_rows_than_the_log_counts(tmp_path: Path, kind: str) -> None:
    """Its checksums are right: whoever wrote it, or the index, was wrong."""
    with offsetlog.open(str(tmp_path)) as log:
        log.create_topic("t", config={"retention.ms": -1})
        with log.producer() as producer:
            keys = [b"k%d" % number for number in range(40)]
            producer.send_arrow("t", pa.table({"key": keys, "value": keys}))
        if kind != "entry":
            for _ in range(9):
                with log.producer() as producer:
                    producer.send("t", b"v", key=b"k")
            log.maintain("t", grace_ms=0)
        if kind == "with gaps":
            log.topic("t").erase(keys=[b"k3"])
        reader = log.open_topic("t").reader
        end = log.topic("t").end_offsets()[0]
        piece = reader.plan(0, 0, end)[0]
        true = reader._batches

        def short(piece: Any, *arguments: Any) -> Any:
            for batch in true(piece, *arguments):
                yield batch._replace(table=batch.table.slice(1))

        reader._batches = short  # type: ignore[method-assign]
        stated = piece.extent.records
        with pytest.raises(CorruptLogError, match=f"has {stated - 1} records.*counts {stated}"):
            list(reader.read(0, 0, end, ("offset",)))
        # Of a cut file with gaps fewer may be right.
        assert piece._replace(end=20).may_have(19) == (kind == "with gaps")
        assert not piece._replace(end=20).may_have(18 if kind == "with gaps" else 19)


def test_an_estimate_of_a_cut_file_with_gaps_is_never_0(tmp_path: Path) -> None:
    """`topics describe` said 0 records, and the metrics a lag of 0, where 5 and 6 were."""
    with offsetlog.open(str(tmp_path)) as log:
        log.create_topic("t", config={"retention.ms": -1})
        with log.producer() as producer:
            for number in range(100):
                producer.send("t", b"v", key=b"k" if number < 98 else b"k%d" % number)
        log.topic("t").erase(keys=[b"k"])
        assert log.topic("t").describe().records == 2
        state = log.open_topic("t").state()
        for offset in range(100):
            assert 1 <= estimate_records(state, 0, offset, 100) <= 2
        log.topic("t").delete_records({0: 97})
        assert log.topic("t").describe().records == 1  # Of 2: about as many, and not 0.
        with log.consumer(group="g", enable_auto_commit=False) as consumer:
            consumer.assign([("t", 0)])
            consumer.commit({("t", 0): 97})
        [group] = log.overview().groups
        assert [line.records for line in group.partitions] == [1]
        assert log.group("g").lag() == {("t", 0): 2}
