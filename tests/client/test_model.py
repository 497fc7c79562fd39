"""A stateful model of topics through the public client, over the memory store."""

from __future__ import annotations

import itertools

import pyarrow as pa
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

import offsetlog
from offsetlog import (
    InvalidRequestError,
    OffsetOutOfRangeError,
    TopicExistsError,
    UnknownTopicError,
)
from offsetlog.format.partitioner import partitions_of

_roots = itertools.count()
TOPIC = "orders"
KEYS = st.none() | st.sampled_from([b"", b"a", b"b", b"ccc"])
VALUES = st.none() | st.binary(max_size=12) | st.just(b"x" * 5000)
RECORDS = st.lists(st.tuples(KEYS, VALUES, st.integers(0, 50)), min_size=1, max_size=6)


class Model:
    """What a topic should hold."""

    def __init__(self) -> None:
        self.alive = False
        self.partitions = 0
        self.rows: list[list[tuple]] = []
        self.starts: list[int] = []

    def create(self, partitions: int) -> None:
        self.alive, self.partitions = True, partitions
        self.grow(partitions)

    def grow(self, partitions: int) -> None:
        self.partitions = partitions
        while len(self.rows) < partitions:
            self.rows.append([])
            self.starts.append(0)

    def delete(self) -> None:
        self.alive, self.partitions = False, 0
        self.starts = [len(rows) for rows in self.rows]

    def put(self, partition: int, offset: int, row: tuple) -> None:
        assert offset == len(self.rows[partition]), "offsets grow by one and are never given twice"
        self.rows[partition].append(row)


class TopicMachine(RuleBasedStateMachine):
    @initialize(partitions=st.integers(1, 3))
    def begin(self, partitions):
        self.url = f"memory://model-{next(_roots)}"
        self.log = offsetlog.open(self.url)
        self.model = Model()
        self.sequence = 1
        self.positions: dict[int, int] = {}
        self.consumer = None
        self.create(partitions)

    # --- the topic -------------------------------------------------------------------------

    @precondition(lambda self: not self.model.alive)
    @rule(partitions=st.integers(1, 4))
    def create(self, partitions):
        self.log.create_topic(TOPIC, partitions=partitions, config={"retention.ms": -1})
        self.model.create(partitions)

    @precondition(lambda self: self.model.alive)
    @rule()
    def create_what_exists(self):
        for name in (TOPIC, "Orders"):
            with pytest.raises(TopicExistsError):
                self.log.create_topic(name)

    @precondition(lambda self: self.model.alive)
    @rule(more=st.integers(-1, 2))
    def alter(self, more):
        count = self.model.partitions + more
        if count < self.model.partitions or count > 6:
            with pytest.raises(InvalidRequestError):
                self.log.topic(TOPIC).alter(partitions=max(0, self.model.partitions - 1))
            return
        self.log.topic(TOPIC).alter(partitions=count, config={"compression.type": "lz4"})
        self.model.grow(count)

    @precondition(lambda self: self.model.alive)
    @rule()
    def delete(self):
        self.log.delete_topic(TOPIC)
        self.model.delete()
        self.drop_consumer()

    @precondition(lambda self: not self.model.alive)
    @rule()
    def nothing_works_on_a_deleted_topic(self):
        assert TOPIC not in self.log.topics()
        for call in (
            lambda: self.log.topic(TOPIC),
            lambda: self.log.delete_topic(TOPIC),
            lambda: self.log.producer().send(TOPIC, b"x"),
            lambda: self.log.consumer(topics=[TOPIC]),
        ):
            with pytest.raises(UnknownTopicError):
                call()

    # --- writing ---------------------------------------------------------------------------

    @precondition(lambda self: self.model.alive)
    @rule(records=RECORDS, named=st.booleans())
    def produce(self, records, named):
        with self.log.producer() as producer:
            sent = []
            for i, (key, value, time) in enumerate(records):
                partition = i % self.model.partitions if named else None
                sent.append(producer.send(TOPIC, value, key, partition=partition, timestamp=time))
            told = [future.result() for future in sent]
        self.took(records, [(t.partition, t.offset) for t in told], named)

    @precondition(lambda self: self.model.alive)
    @rule(records=RECORDS)
    def send_arrow(self, records):
        keys, values, times = zip(*records, strict=True)
        table = pa.table(
            {
                "key": pa.array(keys, pa.binary()),
                "value": pa.array(values, pa.binary()),
                "timestamp": pa.array(times, pa.int64()),
            }
        )
        with self.log.producer() as producer:
            future = producer.send_arrow(TOPIC, table)
            future.result()
            told = [future.metadata(i) for i in range(len(records))]
        self.took(records, [(t.partition, t.offset) for t in told], False)

    @precondition(lambda self: self.model.alive)
    @rule(records=RECORDS, again=st.booleans(), new=st.booleans())
    def keyed(self, records, again, new):
        """A caller's own sequence; sending it again, from wherever, changes nothing."""
        self.sequence += 1
        told = self.flush_keyed(records)
        self.took(records, told, False)
        if new:
            self.reopen()
        if again:
            assert self.flush_keyed(records) == told
            with pytest.raises(InvalidRequestError):
                self.flush_keyed(records, self.sequence - 1)

    def flush_keyed(self, records, sequence=None) -> list[tuple[int, int]]:
        producer = self.log.producer(app_id="app", sequence=sequence or self.sequence)
        sent = [producer.send(TOPIC, v, k, timestamp=t) for k, v, t in records]
        producer.flush()
        return [(f.result().partition, f.result().offset) for f in sent]

    def took(self, records, told, named) -> None:
        hashed = partitions_of(
            pa.array([r[0] for r in records], pa.binary()), self.model.partitions
        )
        in_order = sorted(range(len(records)), key=lambda i: told[i])
        for i in in_order:
            (partition, offset), (key, value, time) = told[i], records[i]
            if key is not None and not named:
                assert partition == hashed[i], "the partition that a Kafka client would choose"
            self.model.put(partition, offset, (key, value, time))
        for partition in range(self.model.partitions):
            mine = [told[i][1] for i in range(len(records)) if told[i][0] == partition]
            assert mine == sorted(mine), "in the order of sending"

    # --- reading ---------------------------------------------------------------------------

    def drop_consumer(self) -> None:
        if self.consumer is not None:
            self.consumer.close()
        self.consumer, self.positions = None, {}

    def reading(self):
        if self.consumer is None:
            self.consumer = self.log.consumer(auto_offset_reset="earliest")
            self.consumer.assign([(TOPIC, p) for p in range(self.model.partitions)])
            self.positions = {p: self.model.starts[p] for p in range(self.model.partitions)}
        return self.consumer

    @precondition(lambda self: self.model.alive)
    @rule(most=st.integers(1, 20))
    def poll(self, most):
        consumer = self.reading()
        expected = sum(
            len(self.model.rows[p]) - max(at, self.model.starts[p])
            for p, at in self.positions.items()
        )
        trimmed = any(at < self.model.starts[p] for p, at in self.positions.items())
        if trimmed:
            self.drop_consumer()
            consumer = self.reading()
            expected = sum(len(self.model.rows[p]) - at for p, at in self.positions.items())
        found = consumer.poll(timeout=0, max_records=most)
        assert bool(found) == bool(expected)
        assert len(found) <= most
        for record in found:
            assert record.offset == self.positions[record.partition], "none is passed over"
            row = self.model.rows[record.partition][record.offset]
            assert (record.key, record.value, record.timestamp) == row
            self.positions[record.partition] += 1
        for p, at in self.positions.items():
            assert consumer.position((TOPIC, p)) == at

    @precondition(lambda self: self.model.alive)
    @rule(partition=st.integers(0, 5), back=st.integers(-2, 30))
    def seek(self, partition, back):
        consumer = self.reading()
        if partition not in self.positions:
            return
        target = len(self.model.rows[partition]) - back
        if not self.model.starts[partition] <= target <= len(self.model.rows[partition]):
            with pytest.raises(OffsetOutOfRangeError):
                consumer.seek((TOPIC, partition), target)
            return
        consumer.seek((TOPIC, partition), target)
        self.positions[partition] = target

    @precondition(lambda self: self.model.alive)
    @rule(time=st.integers(-1, 52))
    def offsets_for_times(self, time):
        topic = self.log.topic(TOPIC)
        found = topic.offsets_for_times(dict.fromkeys(range(self.model.partitions), time))
        for p, offset in found.items():
            rows = enumerate(self.model.rows[p])
            later = (o for o, row in rows if o >= self.model.starts[p] and row[2] >= time)
            assert offset == next(later, None)

    # --- upkeep ----------------------------------------------------------------------------

    @precondition(lambda self: self.model.alive)
    @rule(partition=st.integers(0, 5), to=st.integers(-1, 40))
    def delete_records(self, partition, to):
        topic = self.log.topic(TOPIC)
        if partition >= self.model.partitions:
            with pytest.raises(UnknownTopicError):
                topic.delete_records({partition: 0})
            return
        end = len(self.model.rows[partition])
        if to > end:
            with pytest.raises(OffsetOutOfRangeError):
                topic.delete_records({partition: to})
            return
        target = end if to == -1 else max(to, self.model.starts[partition])
        assert topic.delete_records({partition: to}) == {partition: target}
        self.model.starts[partition] = target

    @rule()
    def maintain(self):
        self.log.maintain(grace_ms=0)

    @rule()
    def reopen(self):
        self.drop_consumer()
        self.log.close()
        self.log = offsetlog.open(self.url)

    # --- what always holds -----------------------------------------------------------------

    @invariant()
    def offsets_are_those_of_the_model(self):
        if not getattr(self, "model", None) or not self.model.alive:
            return
        topic = self.log.topic(TOPIC)
        count = self.model.partitions
        assert topic.end_offsets() == {p: len(self.model.rows[p]) for p in range(count)}
        assert topic.beginning_offsets() == {p: self.model.starts[p] for p in range(count)}

    def teardown(self):
        if not hasattr(self, "log"):
            return
        self.drop_consumer()
        if self.model.alive:
            fresh = offsetlog.open(self.url)
            with fresh.consumer(auto_offset_reset="earliest") as consumer:
                consumer.assign([(TOPIC, p) for p in range(self.model.partitions)])
                found: dict[int, list[tuple]] = {p: [] for p in range(self.model.partitions)}
                while batch := consumer.poll(timeout=0, max_records=1000):
                    for r in batch:
                        assert r.offset == self.model.starts[r.partition] + len(found[r.partition])
                        found[r.partition].append((r.key, r.value, r.timestamp))
            for p, rows in found.items():
                assert rows == self.model.rows[p][self.model.starts[p] :]
        for report in self.log.verify():
            assert report.faults == ()
        self.log.close()


TopicMachine.TestCase.settings = settings(max_examples=60, stateful_step_count=25, deadline=None)
TestTopic = TopicMachine.TestCase
