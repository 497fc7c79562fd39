"""What was deleted, or compacted away, is in no file after the grace period, whatever lay beside
it."""

from __future__ import annotations

from random import Random

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import offsetlog
from offsetlog.core.topic.entry import Replace
from offsetlog.format import names
from tests.engine.upkeep.clocked import ClockedLog
from tests.engine.upkeep.test_compaction import COMPACT, read, sound
from tests.engine.upkeep.test_erasure import entries

HOUR = 3_600_000
GRACE = 24 * HOUR
KEEP = {"retention.ms": "-1"}


@pytest.fixture
def clocked():
    clocked = ClockedLog()
    yield clocked
    clocked.close()


def send(log: offsetlog.Log, records: list[tuple[int, bytes, bytes]]) -> None:
    """(partition, key, value) of records that are sent as one batch."""
    partitions, keys, values = zip(*records, strict=True)
    with log.producer() as producer:
        producer.send_arrow("t", pa.table({"partition": partitions, "key": keys, "value": values}))


def stored_values(clocked: ClockedLog) -> set[bytes]:
    """Of all records in entries and segments, whoever may read them."""
    store, found = clocked.store, set()
    folders = [names.bucket_folder("t", 0)]
    folders += [f"t/{folder}" for folder in store.folders("t") if folder.startswith("partition")]
    for folder in folders:
        for info in list(store.list(folder)):
            table = pq.read_table(pa.BufferReader(store.get(info.name)))
            if "value" in table.column_names:
                found |= set(table.column("value").to_pylist())
    return found


def values(log: offsetlog.Log) -> set[bytes]:
    return {value for records in read(log).values() for _, _, value in records}


def rounds(clocked: ClockedLog, count: int, every: int = GRACE + 1) -> None:
    for _ in range(count):
        clocked.wait(every)
        clocked.log.maintain("t")


def test_rows_that_were_compacted_away_go_from_an_entry_of_live_ones(clocked):
    clocked.log.create_topic("t", partitions=2, config=COMPACT)
    send(clocked.log, [(0, b"a", b"old"), (1, b"b", b"stays")])
    send(clocked.log, [(0, b"a", b"new")])
    rounds(clocked, 3)
    assert stored_values(clocked) == values(clocked.log) == {b"new", b"stays"}
    sound(clocked.log)


def test_rows_that_were_deleted_go_from_an_entry_of_live_ones(clocked):
    clocked.log.create_topic("t", partitions=2, config=KEEP)
    send(clocked.log, [(0, b"a", b"deleted"), (0, b"a", b"kept"), (1, b"b", b"stays")])
    clocked.log.topic("t").delete_records({0: 1})
    rounds(clocked, 2)
    assert stored_values(clocked) == values(clocked.log) == {b"kept", b"stays"}
    count = len(entries(clocked.log, Replace))
    rounds(clocked, 3)
    assert len(entries(clocked.log, Replace)) == count, "each row moves once"
    sound(clocked.log)


@pytest.mark.parametrize("table", ["none", "delta"])
def test_a_segment_is_divided_when_the_log_start_stays_in_it(clocked, table, monkeypatch):
    monkeypatch.setattr(type(clocked.store), "delta_address", lambda self, folder: folder, False)
    clocked.log.create_topic("t", config={**KEEP, "table.format": table})
    send(clocked.log, [(0, b"k", b"%04d" % n * 20) for n in range(1000)])
    clocked.log.topic("t").delete_records({0: 10})
    clocked.log.maintain("t")
    if table == "none":
        assert not entries(clocked.log, Replace), "it may soon be gone as a whole"
    rounds(clocked, 4)
    assert stored_values(clocked) == values(clocked.log)
    assert len(values(clocked.log)) == 990
    assert len(entries(clocked.log, Replace)) == 1
    sound(clocked.log)


def test_a_log_start_that_moves_on_divides_a_segment_once_in_a_grace_period(clocked):
    clocked.log.create_topic("t", config=KEEP)
    send(clocked.log, [(0, b"k", b"%04d" % n * 20) for n in range(1000)])
    for hour in range(72):
        clocked.log.topic("t").delete_records({0: hour + 1})
        rounds(clocked, 1, HOUR)
    assert len(entries(clocked.log, Replace)) == 2
    assert {b"%04d" % n * 20 for n in range(24)}.isdisjoint(stored_values(clocked))
    sound(clocked.log)


@pytest.mark.parametrize("seed", range(8))
def test_whatever_happened_only_live_records_are_stored(seed):
    rng = Random(seed)
    clocked = ClockedLog(min_files=rng.choice((2, 8)))
    log = clocked.log
    log.create_topic("t", partitions=3, config=KEEP if seed % 2 else {**KEEP, **COMPACT})
    sent = 0
    for _ in range(25):
        act = rng.randrange(5)
        if act <= 1:
            count = rng.choice((1, 4, 30))
            send(
                log,
                [
                    (rng.randrange(3), b"k%d" % rng.randrange(5), b"%06d" % n * rng.choice((1, 40)))
                    for n in range(sent, sent + count)
                ],
            )
            sent += count
        elif act == 2:
            partition = rng.randrange(3)
            end = log.topic("t").end_offsets()[partition]
            log.topic("t").delete_records({partition: rng.randint(0, end)})
        elif act == 3:
            log.topic("t").erase(keys=[b"k%d" % rng.randrange(5)])
        else:
            log.maintain("t", grace_ms=rng.choice((0, GRACE)))
        clocked.wait(rng.choice((0, HOUR, GRACE)))
    rounds(clocked, 5)
    assert stored_values(clocked) == values(log)
    sound(log)
    clocked.close()
