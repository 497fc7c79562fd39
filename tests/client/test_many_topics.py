"""A consumer of many topics on a server waits for all of them at once."""

from __future__ import annotations

import threading
import time

from offsetlog.client.log import Log
from offsetlog.storage.memory import MemoryStore
from offsetlog.storage.pool import Pool
from tests.engine.scripted import fresh_root

TOPICS = [f"t{i}" for i in range(40)]


class Slow(MemoryStore):
    """A server: each request takes a while."""

    is_local = False

    def __init__(self, root: str) -> None:
        super().__init__(root)
        self.waits = 0.0
        self.requests = 0
        self._counting = threading.Lock()

    def get(self, name, start=None, end=None):
        with self._counting:
            self.requests += 1
        time.sleep(self.waits)
        return super().get(name, start, end)


def opened() -> tuple[Slow, Log]:
    store = Slow(fresh_root())
    log = Log(store)
    for name in TOPICS:
        log.create_topic(name)
    return store, log


def test_an_idle_look_at_many_topics_asks_for_all_at_once() -> None:
    """40 requests in a row took 40 waits."""
    store, log = opened()
    with log.consumer(topics=TOPICS, auto_offset_reset="earliest") as consumer:
        consumer.poll(timeout=0)
        store.waits, store.requests = 0.05, 0
        start = time.perf_counter()
        assert not consumer.poll(timeout=0)
        took = time.perf_counter() - start
        assert store.requests == len(TOPICS)
        assert took < 0.05 * len(TOPICS) / 2
    log.close()


def test_what_was_acknowledged_before_a_poll_is_seen_by_it() -> None:
    store, log = opened()
    with (
        Log(MemoryStore(store._root)) as writer,
        writer.producer() as producer,
        log.consumer(topics=TOPICS, auto_offset_reset="earliest") as consumer,
    ):
        while consumer.poll(timeout=0):
            pass
        for value in range(5):
            for name in TOPICS[value::7]:
                producer.send(name, b"%d" % value).result()
            received = []
            while got := consumer.poll(timeout=0):
                received += [record.topic for record in got]
            assert sorted(received) == sorted(TOPICS[value::7])
    log.close()


def test_one_request_brings_a_new_record_of_many_topics() -> None:
    store, log = opened()
    assert isinstance(log._pool, Pool)
    with log.producer() as producer, log.consumer(topics=TOPICS) as consumer:
        consumer.poll(timeout=0)
        other = Log(MemoryStore(store._root))
        with other.producer() as elsewhere:
            elsewhere.send("t3", b"x").result()
        store.requests = 0
        assert [record.value for record in consumer.poll(timeout=0)] == [b"x"]
        assert store.requests == len(TOPICS)
        other.close()
        del producer
    log.close()
