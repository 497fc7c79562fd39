"""Groups in whole stories: speeds, shared work, crashes, auto-commit, expired records, lag."""

from __future__ import annotations

import threading
import time

import pytest

import offsetlog
from offsetlog import InvalidRequestError, OffsetOutOfRangeError
from tests.client.consumers import drain, fill, places, quiet, settle

pytestmark = pytest.mark.root_in("local", "memory")


def test_two_groups_read_at_their_own_speed(log):
    fill(log)
    with quiet(log, "billing") as fast, quiet(log, "audit") as slow:
        assert len(drain(fast)) == 30
        fast.commit()
        assert len(slow.poll(max_records=10)) == 10
        slow.commit()
    assert sum(log.group("billing").lag().values()) == 0
    assert log.group("audit").describe().total.records == 20
    assert list(log.groups()) == ["audit", "billing"]


def test_two_workers_share_and_the_one_that_stays_gets_all(log):
    fill(log, partitions=4, records=0)
    one = quiet(log, client_id="worker-1")
    assert len(places(one)) == 4
    two = quiet(log, client_id="worker-2")
    settle(one, two, until=lambda: len(places(one)) == len(places(two)) == 2)
    assert not set(places(one)) & set(places(two))
    fill(log, partitions=4, records=40)
    got = [(r.partition, r.offset) for worker in (one, two) for r in drain(worker, 1.0)]
    assert sorted(got) == [(p, o) for p in range(4) for o in range(10)]
    shown = log.group("billing").describe()
    assert [m.client for m in shown.members] == ["worker-1", "worker-2"]
    assert shown.state == "Stable"
    one.commit()
    two.commit()
    two.close()
    settle(one, until=lambda: len(places(one)) == 4)
    assert drain(one) == [], "what the other committed is not read again"
    one.close()
    assert log.group("billing").state() == "Empty"


def test_a_crash_between_reading_and_committing_reads_again(log):
    fill(log, partitions=1, records=10)
    with pytest.raises(RuntimeError), quiet(log) as consumer:
        assert [r.offset for r in consumer.poll(max_records=4)] == [0, 1, 2, 3]
        consumer.commit()
        assert [r.offset for r in consumer.poll(max_records=3)] == [4, 5, 6]
        raise RuntimeError("a crash")
    assert log.group("billing").state() == "Empty", "the block left the group all the same"
    with quiet(log) as consumer:
        assert [r.offset for r in drain(consumer)] == [4, 5, 6, 7, 8, 9]


def test_the_auto_commit_timeline(tmp_path):
    """At 5 s what was read before the poll is committed; a crash at 7 s reads from there."""
    from offsetlog.client.log import Log
    from offsetlog.engine.env import REAL
    from offsetlog.storage import open_store

    clock = [100.0]
    env = REAL._replace(monotonic=lambda: clock[0], sleep=lambda s: None)
    log = Log(open_store(f"memory://{tmp_path.name}"), env)
    fill(log, partitions=1, records=10)
    consumer = log.consumer("billing", ["orders"], auto_offset_reset="earliest")
    assert len(consumer.poll(max_records=3)) == 3
    clock[0] += 4.9
    assert len(consumer.poll(max_records=2)) == 2
    assert consumer.committed() == {}
    clock[0] += 0.2
    assert len(consumer.poll(max_records=1)) == 1
    assert consumer.committed() == {("orders", 0): 5}, "what this poll gave is not processed yet"
    clock[0] += 1.9
    consumer.close(commit=False)
    with log.consumer("billing", ["orders"]) as again:
        assert [r.offset for r in drain(again)] == [5, 6, 7, 8, 9]
    with log.consumer("billing", ["orders"]) as again:
        assert drain(again) == [], "close committed"


def test_of_1000_messages_200_expired(log):
    fill(log, partitions=1, records=1000)
    with quiet(log) as consumer:
        assert len(consumer.poll(max_records=100)) == 100
        consumer.commit()
    log.topic("orders").delete_records({0: 200})
    [line] = log.group("billing").describe().partitions
    assert (line.committed, line.expired, line.records, line.out_of_range) == (100, 100, 800, True)
    with (
        quiet(log) as consumer,
        pytest.warns(offsetlog.OffsetLogWarning, match="100.*range 200 to 1000"),
    ):
        assert drain(consumer)[0].offset == 200
    with (
        log.consumer("billing", ["orders"], auto_offset_reset="none") as strict,
        pytest.raises(OffsetOutOfRangeError, match="100"),
    ):
        strict.poll()


def test_the_lag_table(log):
    fill(log)
    with log.consumer("billing") as consumer:
        consumer.assign([("orders", p) for p in range(3)])
        consumer.commit({("orders", 0): 10, ("orders", 1): 4, ("orders", 2): 0})
    lag = log.group("billing").lag()
    assert lag == {("orders", 0): 0, ("orders", 1): 6, ("orders", 2): 10}
    told = log.group("billing").describe()
    assert told.total.records == 16
    assert [line.seconds == 0 for line in told.partitions] == [True, False, False]
    assert [bool(line.bytes) for line in told.partitions] == [False, True, True]
    assert 0 <= told.total.seconds < 60
    for shown in (lag, told, log.group("billing"), log.groups()):
        assert "<table>" in shown._repr_html_() and "billing" in told._repr_html_()


@pytest.mark.parametrize("call", ["poll", "commit", "seek", "close"])
def test_a_second_thread_is_refused_while_one_uses_the_consumer(log, call):
    """They would share its positions, and records would be given twice."""
    log.create_topic("t")
    with log.consumer("g", auto_offset_reset="earliest") as consumer:
        consumer.assign([("t", 0)])
        polling = threading.Thread(target=consumer.poll, args=(1.0,))
        polling.start()
        time.sleep(0.2)
        calls = {"seek": lambda: consumer.seek(("t", 0), 0)}
        with pytest.raises(InvalidRequestError, match="Another thread is using this consumer"):
            calls.get(call, getattr(consumer, call))()
        polling.join()
        with log.producer() as producer:
            producer.send("t", b"x").result()
        assert [record.offset for record in consumer.poll(1.0)] == [0], "afterwards it may"
