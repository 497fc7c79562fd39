"""Erasure: what is gone, from reads at once and from the storage after the grace period."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path
from random import Random

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import offsetlog
from offsetlog.core.topic.entry import Compact, Erase, Replace
from offsetlog.engine.upkeep import erasure
from tests.engine.upkeep.clocked import ClockedLog
from tests.engine.upkeep.test_compaction import COMPACT, read, sound

pytestmark = pytest.mark.root_in("local", "memory")

SECRET = b"ann-of-green-gables"


def entries(log: offsetlog.Log, kind: type, topic: str = "t") -> list:
    chain = log.open_topic(topic).chain
    stored = [chain.read_entry(n) for n in range(chain.refresh().tip)]
    return [one.entry.body for one in stored if one and isinstance(one.entry.body, kind)]


def send(log: offsetlog.Log, keys: list[bytes | None], partition: int = 0, size: int = 1) -> None:
    table = pa.table(
        {
            "key": pa.array(keys, pa.binary()),
            "value": [b"of %s" % key + bytes(size) if key else b"" for key in keys],
            "partition": [partition] * len(keys),
        }
    )
    with log.producer() as producer:
        producer.send_arrow("t", table)


@pytest.mark.parametrize("in_chain", [True, False])
def test_an_erased_key_is_in_no_read_at_once_and_in_no_file_after_the_grace_period(
    tmp_path, in_chain
):
    with offsetlog.open(str(tmp_path)) as log:
        log.create_topic("t", partitions=2, config={"compression.type": "none"})
        size = 1 if in_chain else 200_000
        for n in range(6):
            send(log, [b"bob", SECRET, None], n % 2, size)
        before = read(log)
        assert holding(tmp_path)
        erased = log.topic("t").erase(keys=[SECRET, b"nobody"])
        assert (erased.keys, erased.records, erased.files) == (2, 6, 6)
        assert erased.end_offsets == log.topic("t").end_offsets() == {0: 9, 1: 9}
        kept = {p: [r for r in records if r[1] != SECRET] for p, records in before.items()}
        assert read(log) == kept
        sound(log)
        send(log, [SECRET])
        assert read(log)[0][-1][:2] == (9, SECRET), "a later record is a new one"
        log.topic("t").erase(keys=[SECRET])
        assert holding(tmp_path), "until the grace period is over"
        for _ in range(2):
            log.maintain("t", grace_ms=0)
        assert not holding(tmp_path)
        assert read(log) == kept
        sound(log)
    with offsetlog.open(str(tmp_path)) as log:
        assert read(log) == kept


def holding(root: Path) -> list[str]:
    return [str(path) for path in root.rglob("*") if path.is_file() and SECRET in path.read_bytes()]


@pytest.mark.parametrize("gone_before", ["", "rewritten", "trimmed"])
def test_no_other_partition_keeps_an_entry_that_holds_an_erased_key(tmp_path, gone_before):
    with offsetlog.open(str(tmp_path)) as log:
        log.create_topic("t", partitions=2, config={"compression.type": "none"})
        with log.producer() as producer:
            for n in range(10):
                producer.send("t", key=SECRET, value=b"", partition=0)
                producer.send("t", key=b"bob", value=b"%d" % n, partition=1)
        if gone_before == "rewritten":
            for _ in range(8):
                send(log, [SECRET])
            log.maintain()
            assert len(entries(log, Replace)) == 1
        if gone_before == "trimmed":
            log.topic("t").delete_records({0: -1})
        before = read(log)
        log.topic("t").erase(keys=[SECRET])
        for _ in range(2):
            log.maintain(grace_ms=0)
        assert not holding(tmp_path)
        assert read(log)[1] == before[1]
        sound(log)
        log.topic("t").erase(keys=[SECRET])
        assert entries(log, Erase)[-1].runs == (), "nothing is left to do"


def test_an_entry_that_live_rows_kept_goes_though_later_ones_were_left(tmp_path):
    """A round leaves rows in entries where a stub doesn't pay; one that it could not take, since
    another partition needed it, lies below them."""
    with offsetlog.open(str(tmp_path)) as log:
        config = {"compression.type": "none", "retention.ms": -1}
        log.create_topic("t", partitions=2, config=config)
        both = {"key": [b"eve", SECRET, b"bob"], "value": [b"v"] * 3, "partition": [0, 0, 1]}
        with log.producer() as producer:
            producer.send_arrow("t", pa.table(both))
        for _ in range(10):
            send(log, [b"eve"])
        log.topic("t").delete_records({0: 1})
        log.maintain(grace_ms=0)
        for _ in range(10):
            send(log, [b"eve"])
        log.maintain(grace_ms=0)
        log.topic("t").erase(keys=[SECRET])
        for _ in range(2):
            log.maintain(grace_ms=0)
        assert not holding(tmp_path)
        sound(log)


@pytest.mark.parametrize("in_chain", [True, False])
def test_a_file_that_the_log_start_cuts_keeps_no_erased_key(tmp_path, in_chain):
    with offsetlog.open(str(tmp_path)) as log:
        log.create_topic("t", config={"compression.type": "none"})
        send(log, [SECRET, b"bob", b"eve"], size=1 if in_chain else 200_000)
        log.topic("t").delete_records({0: 1})
        before = read(log)
        log.topic("t").erase(keys=[SECRET])
        for _ in range(2):
            log.maintain(grace_ms=0)
        assert not holding(tmp_path)
        assert read(log) == before
        sound(log)


def test_what_a_killed_writer_left_goes_also_beside_a_broken_snapshot(tmp_path):
    with offsetlog.open(str(tmp_path)) as log:
        log.create_topic("t")
        send(log, [b"bob"])
        log.maintain()
        for snapshot in tmp_path.glob("t/_snapshot/*.parquet"):
            snapshot.write_bytes(b"broken")
        (tmp_path / "t/partition=0").mkdir(exist_ok=True)
        left = tmp_path / "t/partition=0/.tmp-left"
        left.write_bytes(SECRET)
        os.utime(left, (0, 0))
        log.maintain(grace_ms=0)
        assert not holding(tmp_path)


def test_the_chain_says_that_it_was_done(log):
    log.create_topic("t")
    send(log, [SECRET, b"bob", SECRET])
    log.topic("t").erase(keys=[SECRET])
    [entry] = entries(log, Erase)
    assert (entry.ends, entry.records, len(entry.runs)) == (((0, 3),), 2, 1)
    digest = hashlib.sha256(bytes.fromhex(entry.salt) + SECRET).hexdigest()
    assert entry.keys == (digest,)
    assert "@" in entry.by
    log.topic("t").erase(keys=[b"nobody"])
    assert entries(log, Erase)[1][1:3] == ((), ((0, 3),)), "also that there was nothing"


def test_positions_go_on(log):
    log.create_topic("t")
    send(log, [SECRET, b"bob", SECRET, b"eve", SECRET])
    with log.consumer(group="g", topics=["t"], auto_offset_reset="earliest") as consumer:
        consumer.commit({("t", 0): 2})
    log.topic("t").erase(keys=[SECRET])
    with log.consumer(group="g", topics=["t"]) as consumer:
        records = consumer.poll(timeout=5)
        assert [r.offset for r in records] == [3]
        assert consumer.position(("t", 0)) == 5


def test_nothing_left_of_a_file_is_no_file(log):
    log.create_topic("t")
    send(log, [SECRET] * 4)
    send(log, [b"bob"])
    log.topic("t").erase(keys=[SECRET])
    [piece] = entries(log, Erase)[0].runs[0].pieces
    assert (piece.base, piece.end, piece.segment) == (0, 4, None)
    assert read(log) == {0: [(4, b"bob", b"of bob\0")]}
    with log.consumer(auto_offset_reset="earliest") as consumer:
        consumer.assign([("t", 0)])
        consumer.seek(("t", 0), 2)
        assert [r.offset for r in consumer.poll(timeout=1)] == [4]
    sound(log)


def test_keys_that_cannot_be(log):
    log.create_topic("t")
    for keys in ([], ["ann"], [None], b"ann"):
        with pytest.raises(offsetlog.InvalidRequestError):
            log.topic("t").erase(keys=keys)


class Between:
    """Lets others act while an erasure is on its way: before each entry that it puts."""

    def __init__(self, topic, acts) -> None:
        self.acts = list(acts)
        self.decide = topic.decide
        topic.decide = self
        self.topic = topic

    def __call__(self, body):
        if isinstance(body, Erase | Compact) and self.acts:
            self.acts.pop(0)()
        return self.decide(body)


def test_what_comes_between_is_met(log, monkeypatch):
    """Maintainers that merge what it read, and senders: it tries again, and looks only at what is
    new."""
    monkeypatch.setattr(erasure, "ENTRY_RUNS", 1)
    log.create_topic("t", partitions=2)
    for n in range(20):
        send(log, [SECRET, b"bob"], n % 2)
    other = offsetlog.open(log.url)
    scans = []
    reading = erasure._Erasure._scan_range

    def scan(self, partition, low, high, into):
        scans.append((partition, low, high))
        reading(self, partition, low, high, into)

    monkeypatch.setattr(erasure._Erasure, "_scan_range", scan)
    Between(
        log.open_topic("t"),
        [lambda: other.maintain("t"), lambda: send(other, [SECRET, b"eve"], 1), lambda: None],
    )
    log.topic("t").erase(keys=[SECRET])
    for records in read(other).values():
        assert {key for offset, key, _ in records if offset < 20} == {b"bob"}
    assert scans == [(0, 0, 20), (1, 0, 20)], "each offset is looked at once"
    done = entries(log, Erase)
    assert [bool(one.ends) for one in done].count(True) == 1
    assert len({one.salt for one in done}) == 1
    sound(log)
    other.close()


@given(st.lists(st.integers(0, 2**32), min_size=2, max_size=12))
@settings(max_examples=40, deadline=None)
def test_erasure_among_everything_else(seeds):
    clocked = ClockedLog(min_files=2)
    log = clocked.log
    log.create_topic("t", partitions=2)
    model: dict[int, list[tuple[int, bytes | None]]] = {0: [], 1: []}
    ends = [0, 0]
    for seed in seeds:
        rng = Random(seed)
        act = rng.randrange(5)
        if act <= 1:
            p = rng.randrange(2)
            keys = [rng.choice((b"a", b"b", b"c", None)) for _ in range(rng.randint(1, 40))]
            send(log, keys, p, rng.choice((1, 500)))
            model[p] += [(ends[p] + n, key) for n, key in enumerate(keys)]
            ends[p] += len(keys)
        elif act == 2:
            keys = rng.sample((b"a", b"b", b"c", b"d"), rng.randint(1, 2))
            log.topic("t").erase(keys=keys)
            model = {p: [r for r in some if r[1] not in keys] for p, some in model.items()}
        elif act == 3:
            log.maintain("t", grace_ms=rng.choice((0, 10**9)))
        else:
            p = rng.randrange(2)
            start = rng.randint(0, ends[p])
            log.topic("t").delete_records({p: start})
            model[p] = [r for r in model[p] if r[0] >= start]
        found = read(log)
        assert {p: [r[:2] for r in found.get(p, [])] for p in model} == model
    sound(log)
    clocked.close()


def test_an_erasure_of_a_compacted_topic(log):
    log.create_topic("t", config=COMPACT)
    for _ in range(5):
        send(log, [SECRET, b"bob"])
    log.maintain("t")
    log.topic("t").erase(keys=[SECRET])
    log.maintain("t", grace_ms=0)
    assert [r[:2] for r in read(log)[0]] == [(9, b"bob")]
    sound(log)
