"""A batch that several processes stage and one appends: what lands, once, whatever goes wrong."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from offsetlog.core.topic.entry import (
    Append,
    Collect,
    Configure,
    Create,
    Delete,
    Entry,
    Part,
    Trim,
)
from offsetlog.engine.append import distributed_append as staged
from offsetlog.engine.append import writer
from offsetlog.engine.append.distributed_append import TaskShare, TaskStage, append_shares, facts_of
from offsetlog.engine.append.writer import Sender
from offsetlog.engine.upkeep.maintenance import Maintenance
from offsetlog.engine.upkeep.verify import verify_topic
from offsetlog.errors import InvalidRequestError, StorageError, UnknownTopicError
from offsetlog.format import entries, segments
from offsetlog.format import record_schema as rows
from offsetlog.format.names import parse_segment
from offsetlog.format.partitioner import partitions_of
from tests.engine.scripted import quick_env, topic


def batch(values, keys=None, headers=None, times=1) -> pa.RecordBatch:
    count = len(values)
    times = [times] * count if isinstance(times, int) else times
    return pa.RecordBatch.from_arrays(
        [
            pa.array(keys or [None] * count, pa.binary()),
            pa.array(values, pa.binary()),
            pa.array(headers or [None] * count, rows.HEADERS),
            pa.array(times, pa.int64()).view(rows.TIMESTAMP),
        ],
        schema=rows.ROWS,
    )


def stage(
    handle, values=(), partitions=None, spill=False, spread=0, keys=None, pool=None
) -> TaskShare:
    """What one task does."""
    taken = TaskStage(handle.chain.store, facts_of(handle), quick_env(), spread, pool)
    if len(values):
        named = None if partitions is None else np.array(partitions, np.int32)
        taken.add(batch(list(values), keys), named)
    if spill:
        taken.spill()
    return taken.share()


def again(seq: int, app: str = "query") -> Sender:
    return Sender(app, seq, False, True)


def values_of(handle, partition: int = 0) -> list[bytes]:
    state = handle.state()
    found = handle.reader.read(partition, state.start(partition), state.end(partition))
    return [value for b in found for value in b.table.column("value").to_pylist()]


def sound(store) -> None:
    assert verify_topic(store, "t").faults == ()


def test_few_rows_of_many_tasks_are_one_small_entry():
    store, handle = topic()
    shares = [stage(handle, [b"%d" % i, b"%d'" % i], [i % 2, i % 2]) for i in range(5)]
    receipt = append_shares(handle, shares, again(3))
    assert receipt.entry == 1
    assert values_of(handle, 0) == [b"0", b"0'", b"2", b"2'", b"4", b"4'"]
    assert values_of(handle, 1) == [b"1", b"1'", b"3", b"3'"]
    assert all(extent.segment is None for extent in handle.chain.state.parts[0].tail)
    sound(store)


@pytest.mark.parametrize("pooled", [False, True])
def test_segments_of_many_tasks_and_the_rows_that_were_left_over(pooled):
    store, handle = topic()
    pool = ThreadPoolExecutor(2) if pooled else None
    first = TaskStage(store, facts_of(handle), quick_env(), 0, pool)
    first.add(batch([b"a0", b"b0", b"a1"]), np.array([0, 1, 0], np.int32))
    first.spill()
    assert first.weight == 0
    first.add(batch([b"a2", b"b1"]), np.array([0, 1], np.int32))
    shares = [first.share(), stage(handle, [b"a3"], [0], spill=True), stage(handle, [b"a4"], [0])]
    assert [len(share.parts) for share in shares] == [2, 1, 0]
    append_shares(handle, shares, again(0))
    # A task's own order is kept; what was left over comes in the last segment of all.
    assert sorted(values_of(handle, 0)) == [b"a0", b"a1", b"a2", b"a3", b"a4"]
    own = [value for value in values_of(handle, 0) if value in (b"a0", b"a1", b"a2")]
    assert own == [b"a0", b"a1", b"a2"]
    assert values_of(handle, 1) == [b"b0", b"b1"]
    assert all(extent.segment is not None for extent in handle.chain.state.parts[0].tail)
    sound(store)


def test_no_rows_are_no_entry():
    _, handle = topic()
    assert append_shares(handle, [stage(handle), stage(handle)], again(0)) is None
    assert handle.chain.refresh().tip == 1


def test_keys_go_where_a_kafka_client_puts_them_and_null_keys_stay_together():
    _, handle = topic(partitions=4)
    keys = [b"k%d" % i for i in range(40)] + [b"", None, None]
    values = [b"%d" % i for i in range(43)]
    append_shares(handle, [stage(handle, values, keys=keys, spread=7)], again(0))
    expected = partitions_of(pa.array(keys[:41]), 4).tolist() + [3, 3]
    found = {value: p for p in range(4) for value in values_of(handle, p)}
    assert [found[value] for value in values] == expected
    for partition in range(4):
        numbers = [int(value) for value in values_of(handle, partition)]
        assert numbers == sorted(numbers)


def test_rows_without_a_key_go_elsewhere_after_each_spill():
    _, handle = topic(partitions=3)
    taken = TaskStage(handle.chain.store, facts_of(handle), quick_env(), 1)
    for number in range(4):
        taken.add(batch([b"%d" % number]), None)
        taken.spill()
    assert [part.partition for part in taken.share().parts] == [1, 2, 0, 1]


def test_a_batch_that_is_run_again_is_acknowledged_as_it_was():
    """Its content may differ, in this process too; a lower number is passed over, as in Delta."""
    store, handle = topic()
    append_shares(handle, [stage(handle, [b"first"], [0])], again(5))
    for spill in (False, True):
        receipt = append_shares(handle, [stage(handle, [b"other"], [0], spill)], again(5))
        assert (receipt.duplicate, receipt.entry) == (True, 1)
        receipt = append_shares(handle, [stage(handle, [b"older"], [0], spill)], again(4))
        assert receipt.duplicate
    assert append_shares(handle, [stage(handle, [b"next"], [0])], again(6)).entry == 2
    assert values_of(handle) == [b"first", b"next"]
    sound(store)


def test_of_two_drivers_of_one_batch_the_first_one_counts():
    """A zombie commits the same batch with other rows, and has not seen that it is done."""
    store, handle = topic()
    _, zombie = topic(root=store._root, create=False)
    late = [stage(zombie, [b"zombie"], [1], spill=True)]
    append_shares(handle, [stage(handle, [b"live"], [0], spill=True)], again(9))
    receipt = append_shares(zombie, late, again(9))
    assert receipt.duplicate
    assert (values_of(handle, 0), values_of(handle, 1)) == ([b"live"], [])
    sound(store)


def test_of_two_attempts_of_a_task_only_the_one_that_is_named_is_read():
    store, handle = topic()
    first = stage(handle, [b"x"], [0], spill=True)
    second = stage(handle, [b"x"], [0], spill=True)
    append_shares(handle, [second], again(0))
    assert values_of(handle) == [b"x"]
    _let_maintenance_pass(store)
    names = [info.name for info in store.list("t/partition=0")]
    kept = [parse_segment(name).uid for name in names]
    assert first.parts[0].segment.uid not in kept
    _, fresh = topic(root=store._root, create=False)
    assert values_of(fresh) == [b"x"]


def _let_maintenance_pass(store) -> None:
    _, other = topic(root=store._root, create=False)
    for _ in range(3):
        Maintenance(other, None, grace_ms=0).run()


@pytest.mark.parametrize("script", [["lost", "unknown"], ["unknown"] * 7, ["hidden"], ["lost"] * 9])
def test_answers_that_are_lost_are_asked_for_again_until_the_fate_is_known(script):
    store, handle = topic()
    shares = [stage(handle, [b"x"], [0], spill=True), stage(handle, [b"y"], [0])]
    store.script = list(script)
    append_shares(handle, shares, again(0))
    assert values_of(handle) == [b"x", b"y"]
    sound(store)


def test_an_error_after_a_lost_answer_does_not_say_that_nothing_landed(monkeypatch):
    monkeypatch.setattr(writer, "DELIVERY_SECONDS", 0.1)
    store, handle = topic()
    shares = [stage(handle, [b"x"], [0])]
    store.script, store.fail_reads = ["lost"] + ["unknown"] * 1000, 1000
    with pytest.raises(StorageError) as error:
        append_shares(handle, shares, again(0))
    assert error.value.may_have_landed
    store.script, store.fail_reads = [], 0
    _, restarted = topic(root=store._root, create=False)
    assert append_shares(restarted, [stage(restarted, [b"x"], [0])], again(0)).duplicate
    assert values_of(restarted) == [b"x"]


# --- a batch that was slow -----------------------------------------------------------------


def _raise_horizon(other) -> None:
    """What was born before now may be collected."""
    other.chain.refresh()
    other.decide(Trim(((0, 0),)))
    other.decide(Collect(other.chain.state.tip))


def test_segments_that_may_be_collected_are_copied_under_new_names():
    store, handle = topic()
    shares = [stage(handle, [b"x", b"y"], [0, 1], spill=True), stage(handle, [b"z"], [0])]
    _, other = topic(root=store._root, create=False)
    _raise_horizon(other)
    handle.refresh()
    append_shares(handle, shares, again(0))
    assert (values_of(handle, 0), values_of(handle, 1)) == ([b"x", b"z"], [b"y"])
    named = {extent.segment.uid for part in handle.chain.state.parts for extent in part.tail}
    assert not named & {part.segment.uid for part in shares[0].parts}
    sound(store)


def test_a_batch_that_is_overtaken_by_the_collector_again_and_again_names_the_setting():
    store, handle = topic()
    shares = [stage(handle, [b"x"], [0], spill=True)]
    _, other = topic(root=store._root, create=False)

    put = store.put

    def put_then_collect(name, data, durable=True):
        put(name, data, durable)
        _raise_horizon(other)

    store.put = put_then_collect
    _raise_horizon(other)
    handle.refresh()
    with pytest.raises(StorageError, match="grace period of 'maintain', twice.*--grace"):
        append_shares(handle, shares, again(0))
    store.put = put
    assert values_of(handle) == []


def test_a_batch_whose_segments_are_collected_already_is_an_error():
    store, handle = topic()
    shares = [stage(handle, [b"x"], [0], spill=True)]
    _, other = topic(root=store._root, create=False)
    append_shares(other, [stage(other, [b"y"], [0])], again(0, "another"))
    _let_maintenance_pass(store)
    handle.refresh()
    with pytest.raises(StorageError, match="collected already.*--grace"):
        append_shares(handle, shares, again(0))
    _, fresh = topic(root=store._root, create=False)
    assert values_of(fresh) == [b"y"]


def test_a_topic_that_was_deleted_or_made_anew_meanwhile():
    store, handle = topic()
    old = stage(handle, [b"x"], [0])
    handle.decide(Delete(handle.chain.state.head))
    with pytest.raises(UnknownTopicError, match="deleted; nothing was written"):
        append_shares(handle, [old], again(0))
    handle.decide(Create("t", 2, (), handle.chain.state.head))
    with pytest.raises(UnknownTopicError, match="deleted"):
        append_shares(handle, [old], again(0))
    with pytest.raises(UnknownTopicError, match="deleted and created again while"):
        append_shares(handle, [old, stage(handle, [b"y"], [0])], again(0))
    assert values_of(handle) == []
    sound(store)


def test_tasks_that_saw_different_partition_counts():
    store, handle = topic()
    before = stage(handle, [b"x"], [1])
    handle.decide(Configure(5, (), handle.chain.state.head))
    append_shares(handle, [before, stage(handle, [b"y"], [4])], again(0))
    assert (values_of(handle, 1), values_of(handle, 4)) == ([b"x"], [b"y"])
    sound(store)


@pytest.mark.parametrize("spill", [False, True])
def test_a_switch_of_the_timestamp_type_between_staging_and_append(spill):
    """The type is the rows' own. Where tasks saw different ones, nobody is told of an append's
    time that is none."""
    store, handle = topic(partitions=1)

    def switch(kind: str) -> None:
        config = (("message.timestamp.type", kind),)
        handle.decide(Configure(1, config, handle.chain.state.head))

    sent = stage(handle, [b"x"], spill=spill)
    switch("LogAppendTime")
    append_shares(handle, [sent], again(0))
    stamped = stage(handle, [b"y"], spill=spill)
    append_shares(handle, [sent, stamped], again(1))
    switch("CreateTime")
    append_shares(handle, [stamped], again(2))
    found = [b for low in range(4) for b in handle.reader.read(0, low, low + 1)]
    assert [b.ts_type for b in found] == [0, 0, 0, 1]
    sound(store)


# --- what is not taken ---------------------------------------------------------------------


def test_rows_that_a_topic_does_not_take():
    _, handle = topic()
    taken = TaskStage(handle.chain.store, facts_of(handle), quick_env(), 0)
    with pytest.raises(InvalidRequestError, match="no partition 2. It has 2, from 0"):
        taken.add(batch([b"x"]), np.array([2], np.int32))
    with pytest.raises(InvalidRequestError, match="-7 is not a partition of topic 't'"):
        taken.add(batch([b"x"]), np.array([-7], np.int32))
    with pytest.raises(InvalidRequestError, match="has 1048589 bytes; the topic takes 1048588"):
        taken.add(batch([b"x" * 1_048_500], keys=[b"k" * 89]), None)
    large = [None, [("a", b"v")], [], [("h", b"x" * 1_048_590), ("i", None)]]
    few = batch([b""] * 1_003 + [b"x"], headers=[None] * 1_000 + large)
    with pytest.raises(InvalidRequestError, match="has 1048609 bytes; the topic takes 1048588"):
        taken.add(few.slice(2), None)
    with pytest.raises(InvalidRequestError, match="The timestamp is"):
        taken.add(batch([b"x"], times=10**13), None)
    assert taken.share() == TaskShare("t", 2, 0, (), b"", 1)


def test_a_segment_that_cannot_be_put_fails_its_task():
    _, handle = topic()
    taken = TaskStage(handle.chain.store, facts_of(handle), quick_env(), 0, ThreadPoolExecutor(1))

    def full(name, data, durable=True):
        raise StorageError("Could not write it: the disk is full.")

    handle.chain.store.put = full
    taken.add(batch([b"x"]), None)
    taken.spill()
    with pytest.raises(StorageError, match="disk is full"):
        taken.share()


# --- segments ------------------------------------------------------------------------------


def test_more_segments_than_an_entry_can_name(monkeypatch):
    _, handle = topic()
    monkeypatch.setattr(staged, "MOST_SEGMENTS", 3)
    shares = [stage(handle, [b"x", b"y"], [0, 1], spill=True) for _ in range(2)]
    with pytest.raises(InvalidRequestError, match="2 tasks wrote 4 segments.*repartition"):
        append_shares(handle, shares, again(0))
    assert append_shares(handle, shares[:1], again(0)).entry == 1


def test_segments_are_no_larger_than_the_topic_says():
    _, handle = topic(partitions=1)
    handle.decide(Configure(1, (("segment.bytes", str(1 << 20)),), handle.chain.state.head))
    taken = TaskStage(handle.chain.store, facts_of(handle), quick_env(), 0)
    chance = np.random.default_rng(3)
    values = [chance.bytes(100_000) for _ in range(35)]
    for low in range(0, 35, 5):
        taken.add(batch(values[low : low + 5]), None)
    taken.spill()
    share = taken.share()
    assert [part.records for part in share.parts] == [10, 10, 10, 5]
    append_shares(handle, [share], again(0))
    assert values_of(handle) == values


def test_bytes_that_do_not_shrink_are_not_worked_on():
    chance = np.random.default_rng(5)
    count = 5_000
    noise = [chance.bytes(100) for _ in range(count)]
    headers = [[("h", b"v")]] * count
    for values, codec in ((noise, "UNCOMPRESSED"), ([b"text" * 25] * count, "ZSTD")):
        made = pa.Table.from_batches([batch(values, keys=[b"key"] * count, headers=headers)])
        body = Append("a", 0, True, 0, 0, 1, "d", 0, (Part(0, count, 10**6, 0, 0),))
        entry = entries.encode(Entry("0" * 32, 0, body), made, "zstd")
        for data in (segments.encode(made, "zstd").data, entry.data):
            file = pq.ParquetFile(pa.BufferReader(data))
            group = file.metadata.row_group(0)
            columns = [group.column(i) for i in range(group.num_columns)]
            found = {column.path_in_schema: column.compression for column in columns}
            assert found.pop("value") == codec
            assert set(found.values()) == {"ZSTD"} and len(found) == 4
            assert file.read().column("value").to_pylist() == values


def test_a_file_that_needs_more_room_than_expected(monkeypatch):
    table = pa.Table.from_batches([batch([b"%d" % i for i in range(1000)])])
    expected = segments.encode(table, "zstd").data
    asked = []
    allocate = pa.allocate_buffer

    def little(size: int):
        asked.append(size)
        return allocate(size // 1000)

    monkeypatch.setattr(segments.pa, "allocate_buffer", little)
    assert segments.encode(table, "zstd").data == expected
    assert len(asked) > 1


def test_headers_that_came_late_and_rows_that_have_none():
    _, handle = topic(partitions=1)
    taken = TaskStage(handle.chain.store, facts_of(handle), quick_env(), 0)
    taken.add(batch([b"a"]), None)
    taken.add(batch([b"b"], keys=[b"k"], headers=[[("h", b"v"), ("h", None)]]), None)
    taken.add(batch([None]), None)
    append_shares(handle, [taken.share()], again(0))
    [found] = handle.reader.read(0, 0, 3)
    assert found.table.column("value").to_pylist() == [b"a", b"b", None]
    assert found.table.column("key").to_pylist() == [None, b"k", None]
    assert found.table.column("headers").to_pylist() == [
        None,
        [{"key": "h", "value": b"v"}, {"key": "h", "value": None}],
        None,
    ]


def test_a_late_stranger_does_not_spoil_what_is_staged():
    """Somebody else appends between the staging and the commit."""
    store, handle = topic()
    shares = [stage(handle, [b"x"], [0], spill=True)]
    _, other = topic(root=store._root, create=False)
    for number in range(12):
        append_shares(other, [stage(other, [b"%d" % number], [0])], again(number, "another"))
    append_shares(handle, shares, again(0))
    assert values_of(handle)[-1] == b"x"
