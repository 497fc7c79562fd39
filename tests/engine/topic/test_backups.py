"""Copies of a log in use: the order that is sound, and what is said of one that is not."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

import offsetlog
from offsetlog.engine.env import REAL
from offsetlog.engine.topic.open_topic import OpenTopic
from offsetlog.errors import CorruptLogError, OffsetLogError
from offsetlog.storage import open_store

SOUND = ("_offsetlog.json", "__consumer_offsets", "t/_snapshot", "t/_index", "t/_log", "t/*")
"""What docs/operations.md says, in its order."""
LOG_FIRST = ("_offsetlog.json", "t/_log", "t/_snapshot", "t/_index", "t/*")


def send(log, count: int) -> None:
    with log.producer() as producer:
        for number in range(count):
            producer.send("t", b"%d" % number, partition=0).result()


def copied(log, root: Path, to: Path, order: tuple[str, ...]) -> Path:
    """A copy made part by part while somebody writes, with a snapshot between all parts."""
    for pattern in order:
        for part in sorted(root.glob(pattern)):
            target = to / part.relative_to(root)
            if part.is_dir() and not target.exists():
                shutil.copytree(part, target)
            elif part.is_file():
                target.parent.mkdir(parents=True, exist_ok=True)
                shutil.copy2(part, target)
        send(log, 40)
        log.open_topic("t").stored.publish()
    return to


@pytest.fixture(autouse=True)
def topic(log):
    log.create_topic("t")
    send(log, 40)
    log.open_topic("t").stored.publish()


def everything(root: Path) -> list[bytes]:
    with offsetlog.open(str(root)) as log:
        consumer = log.consumer(auto_offset_reset="earliest")
        consumer.assign([("t", 0)])
        found: list[bytes] = []
        while records := consumer.poll(0):
            found += [record.value for record in records]
        assert consumer.position(("t", 0)) == log.topic("t").end_offsets()[0] == len(found)
        return found


def test_the_documented_order_is_sound(log, tmp_path):
    copy = copied(log, tmp_path / "log", tmp_path / "copy", SOUND)
    with offsetlog.open(str(copy)) as there:
        assert all(report.sound for report in there.verify())
        send(there, 3)
    assert len(everything(copy)) >= 43


@pytest.fixture
def cut(log, tmp_path) -> Path:
    """A copy whose snapshots are newer than its chain."""
    return copied(log, tmp_path / "log", tmp_path / "copy", LOG_FIRST)


def test_a_copy_whose_chain_ends_before_its_newest_snapshot_is_refused(cut):
    newest = max((cut / "t" / "_snapshot").glob("0*.parquet")).name
    asks = [
        lambda log: log.topic("t").end_offsets(),
        lambda log: send(log, 1),
        lambda log: log.maintain("t"),
        lambda log: log.consumer(auto_offset_reset="earliest").assign([("t", 0)]),
    ]
    before = sorted(path.name for path in cut.rglob("*.parquet"))
    for ask in asks:
        with offsetlog.open(str(cut)) as log:
            for _ in range(2):  # It must not be forgotten the second time.
                with pytest.raises(CorruptLogError, match="ends before its newest") as caught:
                    ask(log)
                assert newest in str(caught.value)
    assert sorted(path.name for path in cut.rglob("*.parquet")) == before


def test_verify_names_each_snapshot_beyond_the_chain(cut):
    with offsetlog.open(str(cut)) as log:
        [report] = [report for report in log.verify() if report.topic == "t"]
    tip = 1 + max(int(path.stem) for path in (cut / "t" / "_log").rglob("*.parquet"))
    stored = (cut / "t" / "_snapshot").glob("0*.parquet")
    beyond = [path.name for path in stored if int(path.stem) > tip]
    assert beyond
    for name in beyond:
        assert any(name in fault and "beyond the end" in fault for fault in report.faults)


def test_a_copy_that_was_cut_ends_with_its_last_entry_without_the_caches(cut):
    shutil.rmtree(cut / "t" / "_snapshot")
    shutil.rmtree(cut / "t" / "_index")
    assert len(everything(cut)) == len(list((cut / "t" / "_log").rglob("*.parquet"))) - 1
    with offsetlog.open(str(cut)) as log:
        assert all(report.sound for report in log.verify())


def test_upkeep_finds_a_snapshot_that_the_hint_does_not_name(log, tmp_path):
    copy = copied(log, tmp_path / "log", tmp_path / "copy", SOUND)
    late = copied(log, tmp_path / "log", tmp_path / "late", ("t/_snapshot", "t/_index"))
    for part in ("_snapshot", "_index"):
        for path in (late / "t" / part).glob("*.parquet"):
            shutil.copy2(path, copy / "t" / part / path.name)
    with (
        offsetlog.open(str(copy)) as there,
        pytest.raises(CorruptLogError, match="ends before its newest"),
    ):
        there.maintain("t", grace_ms=0)


class Remote:
    """A store whose calls are requests."""

    def __init__(self, inner) -> None:
        self._inner = inner
        self.is_local = False
        self.asked: list[str] = []

    def __getattr__(self, name):
        return getattr(self._inner, name)

    def get(self, name, start=None, end=None):
        self.asked.append(name)
        return self._inner.get(name, start, end)


def opened(root: Path) -> tuple[Remote, OpenTopic]:
    store = Remote(open_store(str(root)))
    return store, OpenTopic(store, "t", REAL._replace(sleep=lambda seconds: None), None)


def test_over_a_network_it_is_found_too_and_costs_a_request_only_at_the_tip(cut, log, tmp_path):
    _, handle = opened(cut)
    for _ in range(2):
        with pytest.raises(OffsetLogError, match="ends before its newest snapshot"):
            handle.state()
    store, handle = opened(tmp_path / "log")
    tip = handle.state().tip
    idle = [name for name in store.asked if "/_log/" in name]
    assert [int(name[-28:-8]) for name in idle] == [tip, tip + 1, tip - 1]
    send(log, 1)
    store, handle = opened(tmp_path / "log")
    assert handle.state().tip == tip + 1
    busy = [name for name in store.asked if "/_log/" in name]
    assert [int(name[-28:-8]) for name in busy] == [tip, tip + 1, tip + 2], (
        "one that came after is proof"
    )
