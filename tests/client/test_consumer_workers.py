"""Workers of a group: put out, told of changes, closed; topics that come, grow and go."""

from __future__ import annotations

import pytest

import offsetlog
from offsetlog import FencedError
from offsetlog.client.log import Log
from offsetlog.core.group.facts import Subscription
from offsetlog.core.group.requests import JoinRequest, LeaveRequest
from offsetlog.engine.env import REAL
from offsetlog.engine.group.heartbeats import Heartbeats
from offsetlog.storage import open_store
from tests.client.consumers import drain, fill, places, quiet, settle

pytestmark = pytest.mark.root_in("local", "memory")


def test_who_was_put_out_is_fenced_loses_nothing_of_others_and_rejoins(log):
    fill(log, partitions=2, records=20)
    lost = []
    old = quiet(log, on_lost=lambda c, p: lost.extend(p))
    assert len(drain(old)) == 20
    first = old.member
    log.group("billing").remove_members(first)
    with quiet(log) as new:
        settle(new, until=lambda: len(places(new)) == 2)
        new.commit({("orders", 0): 1, ("orders", 1): 1})
        with pytest.raises(FencedError, match="no longer a member.*administrator"):
            old.commit()
        assert new.committed() == {("orders", 0): 1, ("orders", 1): 1}
        with pytest.warns(offsetlog.OffsetLogWarning, match="joins anew"):
            old.poll()
        assert lost == [("orders", 0), ("orders", 1)]
        assert old.member not in (None, first)
        settle(old, new, until=lambda: len(places(old)) == len(places(new)) == 1)
    settle(old, until=lambda: len(places(old)) == 2)
    old.close()


def test_callbacks_tell_of_every_change_in_order(log):
    fill(log, partitions=2, records=20)
    told = []
    one = quiet(
        log,
        on_assign=lambda c, p: told.append(("one has", len(p))),
        on_revoke=lambda c, p: (c.commit(), told.append(("one gives", len(p)))),
    )
    assert len(drain(one)) == 20
    two = quiet(log, on_assign=lambda c, p: told.append(("two has", len(p))))
    got = settle(one, two, until=lambda: len(places(two)) == 1)
    assert told == [("one has", 2), ("one gives", 1), ("two has", 1)]
    assert got[two] == [] and drain(two) == [], "it was committed as it was given up"
    two.close()
    one.close()
    assert told[-1] == ("one gives", 1), "it did not poll after the other had left"


def test_auto_commit_commits_what_is_taken_away(log):
    fill(log, partitions=2, records=20)
    one = log.consumer("billing", ["orders"], auto_offset_reset="earliest")
    assert len(drain(one)) == 20
    two = log.consumer("billing", ["orders"], auto_offset_reset="earliest")
    got = settle(one, two, until=lambda: len(places(two)) == 1)
    assert got[two] == [] and drain(two) == []
    for worker in (one, two):
        worker.close()
    assert sum(log.group("billing").lag().values()) == 0


def test_close_commits_and_leaves_in_one_append(log):
    fill(log)
    consumer = log.consumer("billing", ["orders"], auto_offset_reset="earliest")
    drain(consumer)
    before = log.offsets_table.look().version
    consumer.close()
    consumer.close()
    assert log.offsets_table.look().version == before + 1
    assert log.group("billing").state() == "Empty"
    assert set(log.group("billing").lag().values()) == {0}


def test_a_group_of_many_topics_and_more_of_them_later(log):
    fill(log, "orders", 2, 4)
    fill(log, "clicks", 2, 4)
    with quiet(log) as consumer:
        assert {r.topic for r in drain(consumer)} == {"orders"}
        consumer.subscribe(["orders", "clicks"])
        assert [r.topic for r in drain(consumer)] == ["clicks"] * 4
        consumer.unsubscribe()
        assert log.group("billing").state() == "Empty"
        consumer.subscribe("clicks")
        assert {tp.topic for tp in consumer.assignment()} == {"clicks"}


def test_partitions_that_are_added_are_read_from_their_start(log):
    fill(log, partitions=1, records=3)
    with log.consumer("billing", ["orders"], auto_offset_reset="latest") as consumer:
        assert consumer.poll() == []
        log.topic("orders").alter(partitions=3)
        fill(log, partitions=3, records=3)
        got = settle(consumer, until=lambda: len(places(consumer)) == 3)[consumer]
        got += drain(consumer, 1.0)
        assert sorted((r.partition, r.offset) for r in got) == [(0, 3), (1, 0), (2, 0)]


def test_a_partition_that_was_added_is_read_from_its_start_by_whoever_gets_it(log):
    """A sees it come, and B, which was not there yet, gets it."""
    fill(log, partitions=1, records=3)
    with log.consumer("billing", ["orders"]) as one:
        assert one.poll() == []
        log.topic("orders").alter(partitions=2)
        fill(log, partitions=2, records=10)
        with log.consumer("billing", ["orders"]) as two:
            settle(one, two, until=lambda: len(places(one)) == len(places(two)) == 1)
            got = [(r.partition, r.offset) for w in (one, two) for r in drain(w, 1.0)]
            assert {o for p, o in got if p == 1} == set(range(5)), "none of its records is missed"
            assert {o for p, o in got if p == 0} <= set(range(3, 8))


@pytest.mark.parametrize("seen", [False, True], ids=["while nobody was there", "seen"])
def test_a_partition_that_was_added_before_a_restart_is_read_from_its_start(log, seen):
    fill(log, partitions=1, records=3)
    with log.consumer("billing", ["orders"]) as first:
        assert first.poll() == []
        if seen:
            log.topic("orders").alter(partitions=2)
            settle(first, until=lambda: len(places(first)) == 2)
            first.commit({("orders", 0): 3})
            first._group_member._settings = first._group_member._settings._replace(
                auto_commit=False
            )
    if not seen:
        log.topic("orders").alter(partitions=2)
    fill(log, partitions=2, records=10)
    with log.consumer("billing", ["orders"]) as again:
        assert sorted((r.partition, r.offset) for r in drain(again, 1.0)) == [
            *((0, o) for o in range(3, 8)), *((1, o) for o in range(5))
        ]  # fmt: skip


def test_a_group_that_is_new_begins_where_its_policy_says(log):
    """Partitions that were added before it came, or after it was deleted, are not added ones."""
    fill(log, partitions=1, records=3)
    with log.consumer("billing", ["orders"]) as first:
        assert first.poll() == []
    log.topic("orders").alter(partitions=2)
    with log.consumer("billing", ["orders"]) as first:
        assert first.poll() == []
    fill(log, partitions=2, records=10)
    log.group("billing").delete()
    with log.consumer("billing", ["orders"]) as anew, log.consumer("audit", ["orders"]) as other:
        assert anew.poll() == other.poll() == []
        assert [anew.position(("orders", p)) for p in range(2)] == [8, 5]
    log.topic("orders").alter(partitions=3)
    log.group("billing").delete_offsets("orders")
    fill(log, partitions=3, records=3)
    with log.consumer("billing", ["orders"]) as after:
        assert after.poll() == []


@pytest.mark.parametrize("way", ["a reset of one partition", "assigned by hand", "offsets deleted"])
def test_partitions_that_were_there_before_the_group_are_not_added_ones(log, way):
    """``latest`` reads nothing that is older, whatever the group knew of the topic."""
    fill(log, partitions=3, records=9)
    old = set()
    if way == "a reset of one partition":
        log.create_topic("other")
        with log.consumer("billing", ["other"]) as first:
            first.poll()
            first.commit({("other", 0): 0})
        log.group("billing").reset("orders", to="earliest", partitions=[0], dry_run=False)
        old = {(0, 0), (0, 1), (0, 2)}
    elif way == "assigned by hand":
        with log.consumer("billing") as first:
            first.assign([("orders", 0)])
            first.commit({("orders", 0): 3})
    else:
        with log.consumer("billing", ["orders"]) as first:
            first.poll()
            first.commit()
            log.topic("orders").alter(partitions=4)
            settle(first, until=lambda: len(places(first)) == 4)
            fill(log, partitions=4, records=4)
            drain(first, 1.0)
            first.commit()
        log.group("billing").delete_offsets("orders", [3])
    with log.consumer("billing", ["orders"]) as worker:
        assert {(r.partition, r.offset) for r in drain(worker, 0.5)} == old


def test_a_worker_that_was_refused_leaves_no_partition_added(log):
    """A query owns the group, for another topic: the worker's topic has not grown."""
    fill(log, topic="queried", partitions=1, records=1)
    fill(log, partitions=2, records=4)
    said = Subscription(("queried",), "sticky", 0, "query", "here", True)
    log.offsets_table.accept(JoinRequest("billing", "query", said))
    with pytest.raises(FencedError), log.consumer("billing", ["orders"]) as worker:
        worker.poll()
    joined = log.offsets_table.look().group("billing").generation
    log.offsets_table.accept(LeaveRequest("billing", "query", joined, 0))
    with log.consumer("billing", ["orders"]) as worker:
        assert drain(worker, 0.5) == []


def test_a_topic_deleted_and_made_again_goes_on_with_its_offsets(log):
    fill(log, partitions=1, records=10)
    with quiet(log) as consumer:
        drain(consumer)
        consumer.commit({("orders", 0): 4})
        log.delete_topic("orders")
        settle(consumer, until=lambda: not places(consumer))
    fill(log, partitions=1, records=5)
    with (
        quiet(log) as consumer,
        pytest.warns(offsetlog.OffsetLogWarning, match="Offset 4.*range 10 to 15"),
    ):
        assert [r.offset for r in drain(consumer)] == [10, 11, 12, 13, 14]


class Crowd:
    """Workers of one group, each with heartbeats of its own, in a time that is set by hand."""

    def __init__(self, log, count, session_ms, monkeypatch):
        self.clock, self.looks, self.lists = 1000.0, 0, 0
        env = REAL._replace(monotonic=lambda: self.clock, sleep=lambda s: None)
        monkeypatch.setattr(Heartbeats, "add", lambda beats, heart: beats._hearts.update(
            {heart.member: heart}
        ))  # fmt: skip
        self.session_ms = session_ms
        self.logs = [Log(open_store(log.url), env) for _ in range(count)]
        self.members = []
        self.consumers = []
        """Held: one that is collected leaves."""
        for n, each in enumerate(self.logs):
            each.offsets_table.port = self.counted(each.offsets_table.port)
            consumer = each.consumer(
                "billing", ["orders"], session_timeout_ms=session_ms, client_id=f"w{n:02}"
            )
            self.members.append(consumer.member)
            self.consumers.append(consumer)

    def counted(self, port):
        look, listing = port.look_at_beat, port.list_beats

        def count_look(member):
            self.looks += 1
            return look(member)

        def count_list():
            self.lists += 1
            return listing()

        port.look_at_beat, port.list_beats = count_look, count_list
        return port

    def passes(self, seconds, alive):
        until = self.clock + seconds
        while self.clock < until:
            self.clock += 0.1
            for n in alive:
                for heart in self.logs[n].heartbeats._hearts.values():
                    heart.polled_at = self.clock
                self.logs[n].heartbeats.send_due()
                self.logs[n].heartbeats.watch_due()

    def there(self, log):
        left = log.offsets_table.look().group("billing").members
        return [n for n, member in enumerate(self.members) if member in left]


@pytest.mark.parametrize("alive", [[0, 1], [0, *range(21, 24)], [23], list(range(0, 24, 3))],
                         ids=["a long row", "a row", "all but one", "two of three"])  # fmt: skip
@pytest.mark.parametrize("session_ms", [3000, 45_000])
def test_it_does_not_matter_how_many_are_killed_at_once(log, alive, session_ms, monkeypatch):
    """Even with more members than each looks at one by one."""
    fill(log, partitions=24, records=0)
    crowd = Crowd(log, 24, session_ms, monkeypatch)
    everybody = range(24)
    crowd.passes(3, everybody)
    crowd.looks = crowd.lists = 0
    crowd.passes(2, everybody)
    looks, lists = crowd.looks, crowd.lists
    killed = crowd.clock
    while crowd.there(log) != alive:
        crowd.passes(0.1, alive)
        assert crowd.clock - killed <= session_ms / 1000 + 1.2, crowd.there(log)
    crowd.passes(2 * session_ms / 1000, alive)
    assert crowd.there(log) == alive, "who lives is not put out"
    assert looks <= 24 * 8 * (2 / 0.2 + 1), "eight of them, five times a second"
    assert 0 < lists <= 24 * (2 / min(1.0, session_ms / 8000) + 1)


def test_a_listing_that_is_stale_puts_nobody_out(log, monkeypatch):
    """As of a disk on the network whose client keeps what it knew of a folder."""
    fill(log, partitions=12, records=0)
    crowd = Crowd(log, 12, 3000, monkeypatch)
    crowd.passes(1, range(12))
    stale = crowd.logs[0].offsets_table.port.list_beats()
    for each in crowd.logs:
        each.offsets_table.port.list_beats = lambda: stale
    crowd.passes(12, range(12))
    crowd.logs[3].heartbeats._hearts.clear()
    for each in crowd.logs:
        each.offsets_table.port.list_beats = dict
    crowd.passes(7, range(12))
    assert crowd.there(log) == [0, 1, 2, *range(4, 12)]


def test_a_watcher_that_slept_puts_nobody_out(log, monkeypatch):
    fill(log, partitions=12, records=0)
    crowd = Crowd(log, 12, 3000, monkeypatch)
    crowd.passes(3, range(12))
    for _ in range(4):
        crowd.clock += 60
        crowd.logs[0].heartbeats.watch_due()
        crowd.passes(1, range(12))
    assert crowd.there(log) == list(range(12))


def test_the_heartbeat_of_a_worker_that_died_goes_with_it(tmp_path):
    """The files of killed workers used to stay for ever."""
    timing = {"session_timeout_ms": 1000, "heartbeat_interval_ms": 300}
    with offsetlog.open(str(tmp_path)) as log, offsetlog.open(str(tmp_path)) as other:
        fill(log, partitions=1, records=1)
        dead = quiet(other, **timing)
        assert len(drain(dead)) == 1
        other.heartbeats.close()  # From here on nobody hears of it.
        beats = set((tmp_path / "__consumer_offsets" / "_heartbeats").iterdir())
        assert [beat.name for beat in beats] == [dead.member]
        place = tmp_path / "__consumer_offsets" / "_heartbeats"
        with quiet(log, **timing) as new:
            settle(new, until=lambda: len(places(new)) == 1)
            settle(new, until=lambda: {beat.name for beat in place.iterdir()} == {new.member})
