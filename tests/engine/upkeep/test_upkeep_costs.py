"""What a round asks of a store: a stub only where it pays or rows must go, and no listing of each
partition in each round."""

from __future__ import annotations

from typing import Any

import pytest

from bench.counting_store import CountingStore
from offsetlog.client.log import Log
from offsetlog.core.topic.entry import Collect
from offsetlog.engine.env import REAL
from offsetlog.engine.upkeep.maintenance import SAVED_BLOCK, SAVED_BYTES, Maintenance
from offsetlog.format import entries, names
from offsetlog.storage.memory import MemoryStore
from tests.engine.scripted import fresh_root
from tests.engine.upkeep.clocked import ClockedLog, ClockedStore

FOREVER = {"retention.ms": -1, "compression.type": "none"}
SMALL, LARGE = 10, 2 * SAVED_BYTES
HOUR = 3_600_000


class Server(MemoryStore):
    is_local = False


def written(log: Any, sizes: list[int]) -> None:
    with log.producer(linger_ms=0) as producer:
        for number, size in enumerate(sizes):
            producer.send("orders", b"%05d" % number + b"x" * size, partition=0).result()


def with_rows(log: Any) -> list[int]:
    """The entries whose rows are still in them."""
    found = []
    for number in range(log.open_topic("orders").state().tip):
        name = str(names.EntryName("orders", number))
        stored = entries.decode(log.store.get(name), name)
        if stored.inline_records and not stored.stub:
            found.append(number)
    return found


def text_of(log: Any) -> bytes:
    return b"".join(
        log.store.get(info.name) for info in log.store.list(names.bucket_folder("orders", 0))
    )


def test_a_log_that_keeps_all_has_stubs_where_they_pay() -> None:
    log = Log(Server(fresh_root()))
    log.create_topic("orders", config=FOREVER)
    written(log, [SMALL, LARGE] * 10)
    [report] = log.maintain("orders", grace_ms=0)
    assert report.rewritten_files == 20 and report.stubs == 10
    assert with_rows(log) == list(range(1, 21, 2))
    [again] = log.maintain("orders", grace_ms=0)
    assert again.stubs == 0
    log.close()


def test_on_a_disk_a_block_is_what_is_saved(tmp_path: Any) -> None:
    import offsetlog

    with offsetlog.open(str(tmp_path / "log")) as log:
        log.create_topic("orders", config=FOREVER)
        written(log, [SMALL, SAVED_BLOCK] * 5)
        assert log.maintain("orders", grace_ms=0)[0].stubs == 5


@pytest.mark.parametrize("size", [SMALL, LARGE])
def test_what_retention_will_take_becomes_stubs_at_once(size: int) -> None:
    """It needs its stub anyway; the sooner, the more is saved."""
    log = Log(Server(fresh_root()))
    log.create_topic("orders", config={"compression.type": "none"})
    written(log, [size] * 10)
    assert log.maintain("orders", grace_ms=0)[0].stubs == 10
    log.close()


def test_rows_that_were_deleted_by_name_go_from_what_was_left() -> None:
    log = Log(Server(fresh_root()))
    log.create_topic("orders", config=FOREVER)
    written(log, [SMALL] * 20)
    assert log.maintain("orders", grace_ms=0)[0].stubs == 0
    assert b"00003x" in text_of(log)
    written(log, [SMALL] * 12)
    log.topic("orders").delete_records({0: 20})
    log.maintain("orders", grace_ms=0)
    assert with_rows(log) == [] and b"00003x" not in text_of(log)
    # What comes after the deletion is left again.
    written(log, [SMALL] * 12)
    assert log.maintain("orders", grace_ms=0)[0].stubs == 0
    assert len(with_rows(log)) == 12
    log.close()


def test_so_do_those_of_young_entries_once_the_grace_period_is_over() -> None:
    """The deletion is noted when it is seen, though its entries are too young for stubs."""
    log = Log(Server(fresh_root()))
    log.create_topic("orders", config=FOREVER)
    written(log, [SMALL] * 20)
    log.topic("orders").delete_records({0: 5})
    log.maintain("orders", grace_ms=HOUR)
    assert len(with_rows(log)) == 20
    log.maintain("orders", grace_ms=0)
    assert with_rows(log) == []
    log.close()


def test_retention_that_is_turned_on_later_takes_all() -> None:
    log = Log(Server(fresh_root()))
    log.create_topic("orders", config=FOREVER)
    written(log, [SMALL] * 20)
    assert log.maintain("orders", grace_ms=0)[0].stubs == 0
    log.topic("orders").alter(config={"retention.ms": 7 * 24 * HOUR})
    assert log.maintain("orders", grace_ms=0)[0].stubs == 20
    assert with_rows(log) == []
    log.close()


def test_a_lost_note_costs_time_only() -> None:
    log = Log(Server(fresh_root()))
    log.create_topic("orders", config=FOREVER)
    written(log, [SMALL, LARGE] * 10)
    log.maintain("orders", grace_ms=0)
    log.topic("orders").delete_records({0: 3})
    log.store.delete([names.stubs_name("orders")])
    log.maintain("orders", grace_ms=0)
    assert with_rows(log) == []
    log.close()


def test_rounds_in_a_row_do_not_list_each_partition() -> None:
    """A round every ten minutes over a topic of 64 partitions was 6,400 lists a day for nothing."""
    store = CountingStore(Server(fresh_root()))
    now = [REAL.now_ms()]
    log = Log(store, REAL._replace(now_ms=lambda: now[0]))
    log.create_topic("orders", partitions=64)
    written(log, [SMALL] * 20)
    Maintenance(log.open_topic("orders"), grace_ms=24 * HOUR).run()
    store.reset()
    Maintenance(log.open_topic("orders"), grace_ms=24 * HOUR).run()
    assert store.calls["list"] + store.calls["folders"] == 0
    assert store.total < 20
    store.reset()
    Maintenance(log.open_topic("orders"), grace_ms=0).run()
    assert store.calls["list"] >= 1
    log.close()


def test_an_idle_topic_gets_no_entries() -> None:
    """A collect in each round, for which nothing waited, was an entry every ten minutes."""
    clocked = ClockedLog()
    log = clocked.log
    log.create_topic("t")

    def tip_after(hours: int) -> int:
        for _ in range(hours):
            clocked.wait(HOUR)
            log.maintain("t")
        return log.open_topic("t").state().tip

    with log.producer() as producer:
        for number in range(10):
            producer.send("t", b"%d" % number).result()
    quiet = tip_after(24 * 10)  # Until the sender is forgotten, too.
    assert quiet <= 11 + 8
    assert tip_after(24 * 3) == quiet
    # What a killed writer leaves goes all the same, as soon as it may.
    left = str(names.SegmentName("t", 0, quiet, "ab" * 16))
    clocked.store.put(left, b"rows")
    assert tip_after(24 * 4) <= quiet + 30 and clocked.store.info(left) is None
    quiet = tip_after(24 * 2)
    assert tip_after(24 * 3) == quiet
    clocked.close()


def test_the_collects_of_older_versions_are_read_once() -> None:
    """A chain may end with a day of them, young enough to be looked at in each round."""
    clocked = ClockedStore(fresh_root())
    store = CountingStore(clocked)
    env = REAL._replace(now_ms=lambda: clocked.now, now_ns=None)
    log = Log(store, env)
    log.create_topic("orders")
    for _ in range(144):
        clocked.now += HOUR // 6
        log.open_topic("orders").decide(Collect(1))
    requests = []
    for _ in range(48):
        log.close()
        log = Log(store, env)
        clocked.now += HOUR // 2
        store.reset()
        log.maintain("orders")
        requests.append(store.total)
    assert log.open_topic("orders").state().tip <= 147
    # Some fourteen of them are the look beyond the end, which is names on a disk.
    assert max(requests[10:]) < 60
    log.close()
