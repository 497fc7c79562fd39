"""What a sender is told when answers are lost, and that it is true."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from offsetlog.client.producer import Producer
from offsetlog.core.topic.entry import Collect, Configure, Create, Delete, Expire, Trim
from offsetlog.engine.append.record_batch import RecordBatch, digest_of, prepare
from offsetlog.engine.append.writer import Sender
from offsetlog.engine.upkeep.verify import verify_topic
from offsetlog.errors import CorruptLogError, InvalidRequestError, StorageError
from offsetlog.format import record_schema as rows
from tests.engine.scripted import OneTopicHost, quick_env, topic
from tests.simulation.mutations import planted


def batch(*values: bytes, partition: int = 0) -> RecordBatch:
    table = pa.table(
        {
            "key": pa.nulls(len(values), pa.binary()),
            "value": pa.array(values, pa.binary()),
            "headers": pa.nulls(len(values), rows.HEADERS),
            "timestamp": pa.array([1] * len(values)).cast(rows.TIMESTAMP),
        },
        schema=rows.ROWS,
    )
    return prepare(table, np.full(len(values), partition, np.int32))


def values_of(handle, partition: int = 0) -> list[bytes]:
    state = handle.state()
    found = handle.reader.read(partition, state.start(partition), state.end(partition))
    return [value for b in found for value in b.table.column("value").to_pylist()]


def send(handle, prepared: RecordBatch, seq: int, app: str = "a", own: bool = True):
    state = handle.chain.state
    return handle.writer.append(
        prepared, Sender(app, seq, own), state.partitions, state.created_at_entry
    )


def test_a_refusal_behind_a_hidden_landing_is_an_acknowledgement():
    """The library hid the lost answer behind a conflict, and the next name was refused."""
    store, handle = topic()
    store.script = ["hidden", "refused"]
    receipt = send(handle, batch(b"x"), 1)
    assert receipt.entry == 1
    assert values_of(handle) == [b"x"]


def test_a_refusal_behind_a_real_conflict_means_that_nothing_landed():
    store, handle = topic()
    _, other = topic(root=store._root, create=False)
    send(other, batch(b"y"), 1, app="b")
    store.script = ["ok", "refused"]
    with pytest.raises(StorageError) as error:
        send(handle, batch(b"x"), 1)
    assert not error.value.may_have_landed
    assert values_of(handle) == [b"y"]


def test_an_append_behind_an_entry_that_cannot_be_read_is_not_tried_again():
    """The entry stays what it is: trying for two minutes would only hold the sender up."""
    store, handle = topic()
    _, other = topic(root=store._root, create=False)
    send(other, batch(b"y"), 1, app="b")
    [name] = [f.name for f in store.list("t/_log/0000000000000000") if f.name.endswith("1.parquet")]
    store.put(f"t/_log/0000000000000000/{name.rpartition('/')[2]}", b"no entry")
    waits: list[float] = []
    handle.chain.env = handle.chain.env._replace(sleep=waits.append)
    state = handle.chain.state
    with pytest.raises(CorruptLogError) as error:
        handle.writer.deliver(
            batch(b"x"), Sender("a", 1, True), state.partitions, state.created_at_entry
        )
    assert error.value.may_have_landed
    assert waits == []


def test_an_entry_that_landed_and_cannot_be_folded_yet_may_have_landed():
    store, handle = topic()
    _, other = topic(root=store._root, create=False)
    send(other, batch(b"y"), 1, app="b")
    store.fail_reads = 1
    with pytest.raises(StorageError) as error:
        send(handle, batch(b"x"), 1)
    assert error.value.may_have_landed
    assert send(handle, batch(b"x"), 1).duplicate
    assert values_of(handle) == [b"y", b"x"]


@pytest.mark.parametrize("denying", [False, True])
def test_a_retry_that_fails_does_not_deny_what_the_first_try_landed(denying):
    """Segments are written again for a retry, and there the disk is full."""
    store, handle = topic()
    big = batch(b"x" * 300_000)
    store.script = ["lost"] + ["unknown"] * 4
    with pytest.raises(StorageError):
        send(handle, big, 1)
    store.put = _full  # type: ignore[method-assign]
    store.fail_reads = 1
    if denying:
        with planted("a failed retry denies the first try"), pytest.raises(StorageError) as error:
            send(handle, big, 1)
        assert not error.value.may_have_landed, "what the rule is for"
        return
    with pytest.raises(StorageError) as error:
        send(handle, big, 1)
    assert error.value.may_have_landed
    receipt = send(handle, big, 1)
    assert (receipt.entry, receipt.duplicate) == (1, True)


def _full(name: str, data: bytes, durable: bool = True) -> None:
    raise StorageError(f"Could not write {name}: the disk is full.")


@pytest.mark.parametrize("leaping", [False, True])
def test_a_leap_to_a_newer_snapshot_does_not_pass_an_entry_on_its_way(leaping):
    store, handle = topic()
    _, other = topic(root=store._root, create=False)

    def leap(name: str) -> None:
        """The answer is on its way, and a thread of this process adopts a newer stored state."""
        store.after_put = lambda name: None
        other.chain.refresh()
        send(other, batch(b"y"), 1, app="b")
        other.stored.publish()
        stored = handle.stored.newest()
        assert stored is not None and stored.tip == 3
        handle.chain.rebase(stored)

    store.after_put = leap
    if leaping:
        # Without the rule an entry that landed is taken for somebody else's.
        with planted("a leap passes own entries"), pytest.raises(CorruptLogError):
            send(handle, batch(b"x"), 1)
        return
    receipt = send(handle, batch(b"x"), 1)
    assert receipt.entry == 1
    assert values_of(handle) == [b"x", b"y"]


@pytest.mark.parametrize("leap", [False, True])
def test_a_sender_that_was_forgotten_while_its_fate_was_open_finds_its_own_landing(leap):
    """It slept for longer than its id is remembered: it looks at the names that it tried."""
    store, handle = topic()
    store.script = ["lost"] + ["unknown"] * 4
    with pytest.raises(StorageError) as error:
        send(handle, batch(b"x"), 1)
    assert error.value.may_have_landed
    _, other = topic(root=store._root, create=False)
    for _ in range(3):
        assert other.decide(Trim(((0, 0),))) is None
    assert other.decide(Expire(other.chain.state.tip)) is None
    assert other.chain.state.own.get("a") is None
    if leap:
        handle.chain.refresh()
    receipt = send(handle, batch(b"x"), 1)
    assert (receipt.entry, receipt.duplicate) == (1, True)
    assert values_of(handle) == [b"x"]


def test_a_forgotten_sender_that_never_landed_sends_again():
    store, handle = topic()
    store.script = ["unknown"] * 5
    with pytest.raises(StorageError):
        send(handle, batch(b"x"), 1)
    _, other = topic(root=store._root, create=False)
    other.decide(Trim(((0, 0),)))
    other.decide(Expire(other.chain.state.tip))
    assert send(handle, batch(b"x"), 1).entry == 3
    assert values_of(handle) == [b"x"]


def keyed(handle, sequence: int = 7) -> Producer:
    return Producer(OneTopicHost(handle), app_id="query", sequence=sequence)


def test_a_keyed_flush_whose_fate_is_open_is_flushed_again_with_the_same_rows():
    store, handle = topic()
    producer = keyed(handle)
    future = producer.send("t", b"x", partition=0)
    store.script = ["unknown"] * 5
    with pytest.raises(StorageError):
        producer.flush()
    with pytest.raises(InvalidRequestError, match="fate of sequence 7"):
        producer.send("t", b"more", partition=0)
    handle.decide(Configure(5, (), handle.chain.state.head))
    producer.flush()
    assert future.result().offset == 0
    next_one = keyed(handle, 8)
    next_one.send("t", b"more", partition=0)
    next_one.flush()
    assert values_of(handle) == [b"x", b"more"]


def test_a_batch_for_a_deleted_topic_never_lands_in_the_next_one():
    store, handle = topic()
    store.script = ["unknown"] * 5
    with pytest.raises(StorageError):
        send(handle, batch(b"x"), 1)
    life = handle.chain.state.created_at_entry
    handle.decide(Delete(handle.chain.state.head))
    handle.decide(Create("t", 2, (), handle.chain.state.head))
    with pytest.raises(InvalidRequestError, match="deleted"):
        handle.writer.append(batch(b"x"), Sender("a", 1, True), 2, life)
    assert values_of(handle) == []


def test_what_a_reader_would_refuse_is_never_written():
    """One unreadable entry would end the topic for everybody."""
    _, handle = topic()
    producer = keyed(handle)
    for bad in (-(2**62) - 1, 2**63, -(2**63), 10**13):
        with pytest.raises(InvalidRequestError, match="timestamp"):
            producer.send("t", b"x", timestamp=bad)
    early = pa.table({"value": [b"x"], "timestamp": pa.array([-(2**63)], pa.int64())})
    with pytest.raises(InvalidRequestError, match="timestamp"):
        producer.send_arrow("t", early)
    raw = pa.list_(pa.struct([("key", pa.binary()), ("value", pa.binary())]))
    pair = pa.array([[{"key": b"\xff", "value": b"v"}]], raw)
    not_text = pa.table({"value": [b"x"], "headers": pair.view(rows.HEADERS)})
    with pytest.raises(InvalidRequestError, match="key of a header is not UTF-8"):
        producer.send_arrow("t", not_text)
    with pytest.raises(InvalidRequestError, match="Nothing was written"):
        handle.decide(Trim(((0, -5),)))
    producer.send("t", b"x", timestamp=-(10**12), partition=0)
    producer.flush()
    _, fresh = topic(root=handle.chain.store._root, create=False)
    assert values_of(fresh) == [b"x"]


def test_many_rows_without_bytes_do_not_make_an_entry_too_large_to_read():
    _, handle = topic()
    count = 300_000
    times = pa.array(np.arange(count) * 1_000_003)
    producer = keyed(handle)
    empty = pa.table({"value": pa.nulls(count, pa.binary()), "timestamp": times})
    producer.send_arrow("t", empty.append_column("partition", pa.array(np.zeros(count, np.int32))))
    producer.flush()
    [extent] = handle.chain.state.parts[0].tail
    assert extent.segment is not None
    _, fresh = topic(root=handle.chain.store._root, create=False)
    assert len(values_of(fresh)) == count


def test_a_digest_is_of_the_rows_and_not_of_the_buffers():
    values = [b"a", None, b"", b"ccc", b"a", None, b"", b"ddd"]
    headers = [[("h", b"v")], None, [], [("h", None)]] * 2
    whole = pa.table(
        {
            "key": pa.array(values),
            "value": pa.array(values[::-1]),
            "headers": pa.array(headers, rows.HEADERS),
            "timestamp": pa.array(range(8)).cast(rows.TIMESTAMP),
        },
        schema=rows.ROWS,
    )
    zeros = np.zeros(4, np.int32)
    low, high = whole.slice(0, 4), whole.slice(4, 4)
    again = pa.Table.from_pylist(high.to_pylist(), schema=rows.ROWS)
    apart = pa.concat_tables([whole.slice(4, 1), whole.slice(5, 3)])
    assert digest_of(low, zeros) != digest_of(high, zeros)
    assert digest_of(high, zeros) == digest_of(again, zeros) == digest_of(apart, zeros)
    assert digest_of(high, zeros) != digest_of(high, zeros + 1)
    assert digest_of(again.set_column(2, "headers", pa.nulls(4, rows.HEADERS)), zeros) != digest_of(
        again, zeros
    )


def test_other_records_under_a_used_key_are_an_error_also_as_slices_of_one_table():
    _, handle = topic()
    table = pa.table({"value": [b"a", b"b"]})
    for first in (0, 0):
        producer = keyed(handle, 3)
        producer.send_arrow("t", table.slice(first, 1))
        producer.flush()
    other = keyed(handle, 3)
    other.send_arrow("t", table.slice(1, 1))
    with pytest.raises(InvalidRequestError, match="used for other records"):
        other.flush()


def test_verify_is_clean_after_all_kinds_of_entries():
    store, handle = topic()
    send(handle, batch(b"x"), 1)
    handle.decide(Collect(1))
    handle.stored.publish()
    assert verify_topic(store, "t").faults == ()


def test_a_sender_that_stood_still_in_the_middle_of_a_put_does_not_give_way_for_as_long():
    """On an object store a winner waits a part of a put's time: of the store's, not of its own."""
    store, handle = topic()
    store.is_local = False
    clock, slept = [2e9], []
    env = quick_env()._replace(monotonic=lambda: clock[0], sleep=slept.append, chance=lambda: 0.99)
    handle.chain.env = env

    def stands_still(name: str) -> None:
        clock[0] += 3600.0

    store.after_put = stands_still
    send(handle, batch(b"a"), 1)
    store.after_put = lambda name: None
    send(handle, batch(b"b"), 2)
    assert max(slept) < 3
