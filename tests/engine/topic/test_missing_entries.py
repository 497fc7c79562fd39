"""An entry that is missing in the middle of a chain is named, and never taken for its end."""

from __future__ import annotations

import os
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

import offsetlog
from offsetlog.client.log import Log
from offsetlog.engine.env import REAL
from offsetlog.engine.topic import chain as chain_module
from offsetlog.engine.topic.open_topic import OpenTopic
from offsetlog.errors import CorruptLogError, OffsetLogError, UnknownTopicError
from offsetlog.format.names import EntryName
from offsetlog.storage import open_store
from offsetlog.storage.memory import MemoryStore
from tests.engine.scripted import fresh_root
from tests.page.test_costs import Remote

GONE = 3
NAMED = f"{EntryName('t', GONE)} is missing, though entry"


def send(log: offsetlog.Log, count: int) -> None:
    for number in range(count):
        with log.producer() as producer:
            producer.send("t", b"%d" % number, partition=0)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A topic of seven entries without a snapshot."""
    root = tmp_path / "log"
    with offsetlog.open(str(root)) as log:
        log.create_topic("t")
        send(log, 6)
    assert not list(root.glob("t/_snapshot/*"))
    return root


def damaged(root: Path, how: str, numbers: range = range(GONE, GONE + 1)) -> None:
    for number in numbers:
        path = root / str(EntryName("t", number))
        path.unlink()
        if how == "a pipe":
            os.mkfifo(path)


@pytest.mark.parametrize("how", ["missing", "a pipe"])
def test_opening_polling_and_copying_name_it(root: Path, tmp_path: Path, how: str) -> None:
    damaged(root, how)
    with offsetlog.open(str(root)) as log:
        with pytest.raises(CorruptLogError, match=NAMED):
            log.topic("t").end_offsets()
        with (
            log.consumer(auto_offset_reset="earliest") as consumer,
            pytest.raises(CorruptLogError, match=NAMED),
        ):
            consumer.assign([("t", 0)])
            consumer.poll(timeout=0)
        with log.producer() as producer, pytest.raises(CorruptLogError, match=NAMED):
            producer.send("t", b"more").result()
        with pytest.raises(OffsetLogError, match=NAMED):
            log.copy(str(tmp_path / "copy"))
    assert not (root / str(EntryName("t", GONE))).is_file(), "nobody wrote there"


@pytest.mark.parametrize("gone", [range(2, 3), range(2, 9), range(5, 14)])
def test_more_than_one_may_be_missing_on_a_disk(root: Path, gone: range) -> None:
    with offsetlog.open(str(root)) as log:
        send(log, 12)
    damaged(root, "missing", gone)
    with (
        offsetlog.open(str(root)) as log,
        pytest.raises(CorruptLogError, match=str(EntryName("t", gone[0]))),
    ):
        log.topic("t").end_offsets()


@pytest.fixture
def remote() -> Iterator[tuple[Remote, MemoryStore]]:
    name = fresh_root()
    store = MemoryStore(name)
    with Log(store) as log:
        log.create_topic("t")
        send(log, 6)
        yield Remote(name), store


def handle(store: Remote, pool: ThreadPoolExecutor | None = None) -> OpenTopic:
    return OpenTopic(store, "t", REAL._replace(sleep=lambda seconds: None), pool)


@pytest.mark.parametrize("gone", [range(2, 3), range(6, 7), range(1, 6)])
@pytest.mark.parametrize("threads", [0, 4])
def test_a_server_names_it_too(remote, gone: range, threads: int) -> None:
    """Those before the last one; of the last alone nobody can know."""
    store, plain = remote
    with Log(plain) as log:
        send(log, 1)
    store.delete([str(EntryName("t", number)) for number in gone])
    pool = ThreadPoolExecutor(threads) if threads else None
    with pytest.raises(CorruptLogError, match=str(EntryName("t", gone[0]))):
        handle(store, pool).state()


@pytest.mark.parametrize("threads", [0, 4])
def test_behind_a_snapshot_a_server_names_one(remote, threads: int) -> None:
    store, plain = remote
    with Log(plain) as log:
        log.open_topic("t").stored.publish()
        send(log, 3)
    store.delete([str(EntryName("t", 7))])
    pool = ThreadPoolExecutor(threads) if threads else None
    with pytest.raises(CorruptLogError, match=str(EntryName("t", 7))):
        handle(store, pool).state()


def test_one_that_comes_into_sight_late_is_waited_for(remote) -> None:
    store, plain = remote
    name = str(EntryName("t", GONE))
    data = plain.get(name)
    store.delete([name])
    slept = []

    def sleep(seconds: float) -> None:
        slept.append(seconds)
        if len(slept) == 3:
            plain.put(name, data)

    topic = OpenTopic(store, "t", REAL._replace(sleep=sleep), None)
    assert (topic.state().tip, len(slept)) == (7, 3)


def test_who_tails_finds_it_within_a_minute_and_asks_for_nothing_more_before(remote) -> None:
    store, plain = remote
    now = [1000.0]
    env = REAL._replace(sleep=lambda seconds: None, monotonic=lambda: now[0])
    topic = OpenTopic(store, "t", env, None)
    tip = topic.state().tip
    store.requests = 0
    for _ in range(10):
        topic.advance()
    assert store.requests == 10
    with Log(plain) as log:
        send(log, 2)
    store.delete([str(EntryName("t", tip))])
    assert topic.advance().tip == tip
    now[0] += chain_module.BEYOND_SECONDS
    with pytest.raises(CorruptLogError, match=str(EntryName("t", tip))):
        topic.advance()
    with pytest.raises(CorruptLogError, match=str(EntryName("t", tip))):
        topic.advance(topic.chain.ask_ahead())


def test_a_topic_without_entry_0_is_none(root: Path) -> None:
    """It is one in the making, in a copy, or one that is being purged."""
    damaged(root, "missing", range(1))
    with offsetlog.open(str(root)) as log, pytest.raises(UnknownTopicError):
        log.topic("t").end_offsets()


def test_a_whole_chain_is_read_from_any_store(root: Path) -> None:
    store = open_store(str(root))
    assert OpenTopic(store, "t", REAL, None).state().tip == 7
