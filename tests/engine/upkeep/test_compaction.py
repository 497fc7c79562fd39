"""Compaction by key against a model, whatever the files look like that it meets."""

from __future__ import annotations

from random import Random
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import offsetlog
from offsetlog.core.topic.compaction import due_pass, due_tombstones
from offsetlog.core.topic.index import integers
from offsetlog.core.topic.retention import Sizes
from offsetlog.core.topic.state import Compaction, PartitionState
from offsetlog.engine.upkeep import newest_of_keys
from offsetlog.engine.upkeep.compaction import KeyCompaction
from offsetlog.engine.upkeep.newest_of_keys import NewestOfKeys
from offsetlog.engine.upkeep.offset_set import OffsetSet
from offsetlog.values import TopicConfig
from tests.engine.upkeep.clocked import ClockedLog

pytestmark = pytest.mark.root_in("local", "memory")

COMPACT = {"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0"}


def read(log: offsetlog.Log, topic: str = "t") -> dict[int, list[tuple[int, bytes | None, bytes]]]:
    """What every reader sees: (offset, key, value) of each partition."""
    out: dict[int, list[tuple[int, bytes | None, bytes]]] = {}
    with log.consumer(auto_offset_reset="earliest") as consumer:
        count = log.topic(topic).partitions
        consumer.assign([(topic, p) for p in range(count)])
        while True:
            records = consumer.poll(timeout=0)
            if not records:
                return out
            for r in records:
                out.setdefault(r.partition, []).append((r.offset, r.key, r.value))


def newest(records: list[tuple[int, bytes | None, bytes]]) -> list:
    last = {key: offset for offset, key, _ in records}
    return [r for r in records if r[1] is not None and last[r[1]] == r[0]]


def sound(log: offsetlog.Log) -> None:
    assert [r.faults + r.caches for r in log.verify() if not r.sound] == []


def test_the_newest_of_each_key_stays_at_its_offset(log):
    log.create_topic("t", partitions=2, config=COMPACT)
    with log.producer() as producer:
        for n in range(300):
            producer.send("t", key=b"%d" % (n % 7), value=b"%d" % n, partition=n % 2)
    before = read(log)
    ends = log.topic("t").end_offsets()
    [report] = log.maintain("t")
    assert report.compacted_records == 300 - 14
    after = read(log)
    assert after == {p: newest(records) for p, records in before.items()}
    assert log.topic("t").end_offsets() == ends
    sound(log)
    assert log.maintain("t")[0].compacted_records == 0, "there is nothing new"


def test_records_without_a_key_from_before_are_dropped(log):
    log.create_topic("t")
    with log.producer() as producer:
        for n in range(10):
            producer.send("t", key=None if n % 2 else b"k%d" % n, value=b"v")
    log.topic("t").alter(config=COMPACT)
    log.maintain("t")
    assert [offset for offset, _, _ in read(log)[0]] == [0, 2, 4, 6, 8]
    sound(log)


class Step(NamedTuple):
    what: str
    seed: int


WHATS = ["send", "send", "send", "large", "maintain", "wait", "trim", "reopen"]
STEPS = st.lists(
    st.builds(Step, st.sampled_from(WHATS), st.integers(0, 2**16)), min_size=3, max_size=14
)


@given(STEPS, st.integers(1, 3))
@settings(max_examples=40, deadline=None)
def test_whatever_happened_what_is_left_is_what_the_model_says(steps, min_files):
    """Kept: the newest of each key; tombstones until their time, which begins at their first pass;
    nothing at all below the log's start. Nothing moves."""

    clocked = ClockedLog(min_files=min_files)
    log = clocked.log
    log.create_topic("t", config={**COMPACT, "delete.retention.ms": "1000"})
    model: dict[int, tuple[bytes, bytes | None]] = {}
    first_met: dict[int, int] = {}
    end = start = compacted_to = 0
    for what, seed in [*steps, Step("maintain", 0)]:
        rng = Random(seed)
        if what in ("send", "large"):
            count = rng.randint(1, 9) if what == "send" else rng.randint(100, 400)
            keys = [b"k%d" % rng.randint(0, 12) for _ in range(count)]
            values = [None if rng.random() < 0.3 else b"v%d" % rng.getrandbits(40) for _ in keys]
            if what == "large":
                values = [value and value * 90 for value in values]
            table = pa.table({"key": pa.array(keys, pa.binary()), "value": values})
            with log.producer() as producer:
                producer.send_arrow("t", table)
            for record in zip(keys, values, strict=True):
                model[end] = record
                end += 1
        elif what == "wait":
            clocked.wait(rng.choice((1, 600, 1000)))
        elif what == "trim" and end > start:
            start = rng.randint(start, end)
            log.topic("t").delete_records({0: start})
            model = {o: r for o, r in model.items() if o >= start}
        elif what == "reopen":
            log = clocked.reopen()
        elif what == "maintain":
            log.maintain("t", grace_ms=rng.choice((0, 10**9)))
            now = clocked.now()
            compacted_to = max(compacted_to, start)
            due = {
                o
                for o, met in first_met.items()
                if o < compacted_to and met + 1000 <= now and o in model
            }
            last = {key: o for o, (key, _) in model.items()}
            model = {o: r for o, r in model.items() if last[r[0]] == o and o not in due}
            for o, (_, value) in model.items():
                if value is None and o >= compacted_to:
                    first_met[o] = now
            compacted_to = end
        assert read(log).get(0, []) == [(o, *r) for o, r in sorted(model.items())]
    sound(log)
    clocked.close()


@given(st.lists(st.binary(max_size=3), max_size=200), st.integers(1, 400), st.integers(1, 2000))
@settings(deadline=None, max_examples=60)
def test_the_newest_of_keys_in_any_number_of_buckets_and_spilled(keys, bucket_bytes, memory):
    offsets = np.cumsum(np.array([1 + len(key) for key in keys], np.int64)) + 100
    mixed = [key if len(key) != 2 else None for key in keys]
    table = NewestOfKeys(1000, memory=memory, bucket_bytes=bucket_bytes)
    for low in range(0, len(keys), 7):
        some = slice(low, low + 7)
        table.add(pa.array(mixed[some], pa.binary()), offsets[some])
    end = int(offsets[-1]) + 1 if len(keys) else 101
    found = OffsetSet(100, end)
    table.into(found)
    last = {key: int(o) for key, o in zip(mixed, offsets, strict=True) if key is not None}
    assert [o for o in offsets.tolist() if found.has(np.array([o]))[0]] == sorted(last.values())
    assert found.count(0, end + 9) == len(last)


@given(st.sets(st.integers(13, 4000)), st.sets(st.integers(13, 4000)), st.data())
@settings(deadline=None)
def test_a_set_of_offsets_is_a_set(members, others, data):
    mine, other = OffsetSet(13, 4001), OffsetSet(13, 4001)
    for which, offsets in ((mine, members), (other, others)):
        which.add(np.array(sorted(offsets), np.int64))
    low = data.draw(st.integers(0, 4100))
    high = data.draw(st.integers(low, 4200))
    assert mine.count(low, high) == len([o for o in members if low <= o < high])
    assert mine.first(low, other) == min((o for o in members & others if o >= low), default=None)
    mine.remove_all(other, low, high)
    left = {o for o in members if not (o in others and low <= o < high)}
    everything = np.arange(13, 4001)
    assert set(everything[mine.has(everything)].tolist()) == left


def test_a_large_set_lies_in_a_file(monkeypatch):
    from offsetlog.engine.upkeep import offset_set

    monkeypatch.setattr(offset_set, "IN_MEMORY", 10)
    some = OffsetSet(5, 100_000)
    some.add(np.array([5, 6, 99_999]))
    assert some.count(0, 200_000) == 3
    assert some.has(np.array([5, 7, 99_999])).tolist() == [True, False, True]


def part(start: int, end: int, *passes: tuple[int, int], tombstones_from: int = 0):
    compactions = tuple(Compaction(*one) for one in passes)
    return PartitionState(start, end, compactions=compactions, tombstones_from=tombstones_from)


def sizes(*extents: tuple[int, int, int]) -> Sizes:
    """(end, bytes, time)"""
    ends, weights, times = zip(*extents, strict=True) if extents else ((), (), ())
    return Sizes(integers(ends), integers(weights), integers(times), integers(times))


@pytest.mark.parametrize(
    ("extents", "config", "end"),
    [
        ([(10, 100, 5), (20, 100, 6)], {}, None),
        ([(10, 100, 5), (20, 101, 6)], {}, 20),
        ([(10, 100, 5), (20, 50, 6), (30, 60, 7)], {}, 30),
        ([(10, 100, 5), (20, 1, 6)], {"min_cleanable_dirty_ratio": 0.0}, 20),
        ([(10, 100, 5)], {"min_cleanable_dirty_ratio": 0.0}, None),
        ([(10, 100, 5), (20, 1, 6)], {"max_compaction_lag_ms": 993}, 20),
        ([(10, 100, 5), (20, 1, 6)], {"max_compaction_lag_ms": 994}, None),
        ([(10, 100, 5), (20, 900, 900), (30, 900, 6)], {"min_compaction_lag_ms": 100}, 30),
        ([(10, 100, 5), (20, 900, 900), (30, 900, 901)], {"min_compaction_lag_ms": 100}, 20),
        ([(10, 100, 5), (20, 900, 901), (30, 900, 6)], {"min_compaction_lag_ms": 100}, None),
        ([(10, 0, 5), (20, 0, 6)], {}, 20),
        ([(10, 100, 5), (20, 900, 2000)], {}, 20),
    ],
)
def test_when_a_pass_is_due(extents, config, end):
    """By Kafka's settings; the first ten offsets were compacted before, at time 100."""
    state = part(0, extents[-1][0], (10, 100), tombstones_from=10)
    due = due_pass(state, sizes(*extents), TopicConfig(**config), 1000)
    assert (due.end if due is not None and due.compacts else None) == end


def test_tombstones_whose_time_is_over():
    state = part(5, 50, (10, 100), (20, 200), (30, 300), tombstones_from=7)
    assert due_tombstones(state, 100, 199) == (7, 7)
    assert due_tombstones(state, 100, 200) == (7, 10)
    assert due_tombstones(state, 100, 399) == (7, 20)
    assert due_tombstones(state, 0, 300) == (7, 30)
    assert due_tombstones(state._replace(tombstones_from=30), 0, 300) == (30, 30)
    assert due_tombstones(state._replace(start=40), 0, 300)[0] == 40
    assert newest_of_keys.MAX_BUCKETS < 2**16


def test_records_without_a_key_are_refused_by_the_topics_name(log):
    log.create_topic("t", config=COMPACT)
    keyed = pa.table({"key": [b"a", None], "value": [b"1", b"2"]})
    with (
        log.producer() as producer,
        log.producer(app_id="app", sequence=1) as sequenced,
    ):
        for refused in (
            lambda: producer.send("t", value=b"v"),
            lambda: sequenced.send("t", value=b"v"),
            lambda: producer.send_arrow("t", keyed),
            lambda: producer.send_arrow("t", keyed.select(["value"])),
        ):
            with pytest.raises(offsetlog.InvalidRequestError, match="topic 't' has no key"):
                refused()
        producer.send("t", key=b"", value=None).result()
        log.topic("t").alter(unset=["cleanup.policy"])
        producer.send("t", key=b"k", value=None).result()
        producer.send("t", value=b"v").result()
    assert len(read(log)[0]) == 3


def test_lag_and_sizes_count_the_records_that_are_there(log):
    log.create_topic("t", config=COMPACT)
    with log.producer() as producer:
        for n in range(100):
            producer.send("t", key=b"%d" % (n % 10 if n < 90 else n), value=b"v")
    with log.consumer(group="g", topics=["t"], auto_offset_reset="earliest") as consumer:
        consumer.commit({("t", 0): 85})
    assert log.group("g").lag() == {("t", 0): 15}
    log.maintain("t")
    assert log.group("g").lag() == {("t", 0): 15}
    with log.producer() as producer:
        producer.send("t", key=b"95", value=b"v").result()
    log.maintain("t")
    [partition] = log.topic("t").describe().partitions
    assert (partition.records, partition.end_offset) == (20, 101)
    assert log.group("g").lag() == {("t", 0): 15}, "one went, one came"
    [line] = log.group("g").describe().partitions
    assert (line.records, line.end - line.committed) == (15, 16)
    [report] = [r for r in log.verify() if r.topic == "t"]
    assert report.records == 20


def test_times_are_found_across_gaps(log):
    log.create_topic("t", config=COMPACT)
    with log.producer() as producer:
        for n in range(50):
            producer.send("t", key=b"k%d" % (n % 3), value=b"v", timestamp=1000 + n)
    log.maintain("t")
    topic = log.topic("t")
    for time, offset in ((0, 47), (1047, 47), (1048, 48), (1049, 49), (1050, None)):
        assert topic.offsets_for_times({0: time}) == {0: offset}
    log.topic("t").erase(keys=[b"k0", b"k1", b"k2"])
    assert topic.offsets_for_times({0: 0}) == {0: None}
    sound(log)


def test_a_pass_is_of_the_state_that_it_was_planned_from(log, monkeypatch):
    """Another maintainer compacts further, and this one sees it in the middle of its pass."""
    log.create_topic("t", partitions=2, config=COMPACT)
    other = offsetlog.open(log.url)

    def send(count: int) -> None:
        table = pa.table({"key": [b"%d" % (n % 7) for n in range(count)], "value": [b"v"] * count})
        with other.producer() as producer:
            for partition in (0, 1):
                column = pa.array([partition] * count, pa.int32())
                producer.send_arrow("t", table.append_column("partition", column))

    send(100)
    scan, scanned = KeyCompaction._scan, []

    def scan_between(self, *given, **named):
        scanned.append(given[0])
        if len(scanned) == 1:
            send(1000)
            other.maintain("t")
            log.open_topic("t").refresh()
        return scan(self, *given, **named)

    monkeypatch.setattr(KeyCompaction, "_scan", scan_between)
    log.maintain("t")
    monkeypatch.undo()
    log.maintain("t")
    assert [len(records) for records in read(log).values()] == [7, 7]
    sound(log)
    other.close()
