"""What each view asks of a storage on the network; docs/page.md says these numbers."""

from __future__ import annotations

import re
import threading
from collections.abc import Iterator

import pytest

from offsetlog.client.log import Log
from offsetlog.page.server import PageServer
from offsetlog.storage.memory import MemoryStore
from tests.engine.scripted import fresh_root
from tests.page.server import Client
from tests.pages import ROOT

TOPICS, PARTITIONS = 12, 6


class Remote(MemoryStore):
    """A server, as far as requests are counted: reads and listings."""

    is_local = False

    def __init__(self, root: str) -> None:
        super().__init__(root)
        self.requests = 0
        self._counting = threading.Lock()

    def _count(self) -> None:
        with self._counting:
            self.requests += 1

    def get(self, name, start=None, end=None):
        self._count()
        return super().get(name, start, end)

    def view(self, name, start=None, end=None):
        return self.get(name, start, end)

    def list(self, folder):
        self._count()
        return super().list(folder)

    def folders(self, folder):
        self._count()
        return super().folders(folder)


@pytest.fixture(scope="module")
def place() -> Iterator[tuple[Remote, PageServer]]:
    """A log that another program wrote: nothing of it is in this one's memory."""
    root = fresh_root()
    with Log(MemoryStore(root)) as writer:
        for number in range(TOPICS):
            writer.create_topic(f"t{number}", partitions=PARTITIONS, config={"retention.ms": -1})
            with writer.producer() as producer:
                for n in range(60):
                    producer.send(
                        f"t{number}", b"v" * 100, key=b"k%d" % n, partition=n % PARTITIONS
                    )
        for name in ("one", "other"):
            positions = {(f"t{n}", p): 3 for n in range(4) for p in range(PARTITIONS)}
            with writer.consumer(group=name, enable_auto_commit=False) as consumer:
                consumer.assign(list(positions))
                consumer.commit(positions)
    store = Remote(root)
    with Log(store) as log, PageServer(log, port=0) as server:
        yield store, server


def cost(place: tuple[Remote, PageServer], path: str, **parameters: object) -> int:
    """Of a request when the page has been open for a while, and a new look is due or not."""
    store, server = place
    client = Client(server)
    assert client.get(path, **parameters).status == 200
    server.page.looks.expire()
    store.requests = 0
    assert client.get(path, **parameters).status == 200
    return store.requests


LOOK = TOPICS + 2
"""A listing, a request for each topic, and one for the groups."""


@pytest.mark.parametrize(
    ("path", "most"),
    [
        ("/api/state", 0),
        ("/api/topics", LOOK),
        ("/api/groups", LOOK),
        ("/api/changes", LOOK),
        ("/metrics", LOOK + 1),  # When a round of upkeep last ended.
        ("/api/jobs", 0),
        ("/api/topics/t1", LOOK + 2),
        ("/api/topics/t1/records", 1),
        ("/api/topics/t1/entries", 1),
        ("/api/topics/t1/files", 1),
        ("/api/groups/one", 1 + 4),
    ],
)
def test_requests_of_a_view(place, path, most) -> None:
    assert cost(place, path) <= most


def test_a_look_is_shared_and_not_taken_too_often(place) -> None:
    store, server = place
    server.page.looks.expire()
    store.requests = 0
    clients = [threading.Thread(target=Client(server).get, args=("/api/topics",)) for _ in range(8)]
    for thread in clients:
        thread.start()
    for thread in clients:
        thread.join()
    assert Client(server).get("/api/groups").status == 200
    assert store.requests <= LOOK
    assert server.page.looks.pause >= 5


def test_of_many_topics_looks_are_rarer(place, monkeypatch) -> None:
    """At most 20 requests a second, however many there are."""
    _, server = place
    looks = server.page.looks
    newest = looks.newest()
    many = newest._replace(seen=newest.seen._replace(topics=newest.seen.topics * 100))
    monkeypatch.setattr(looks, "_newest", many)
    assert looks._pause_after(0.1) == (TOPICS * 100 + 3) / 20
    assert looks._pause_after(100.0) == 1000.0


def test_records_that_are_far_behind_cost_bounded_reads(tmp_path) -> None:
    """Of a topic of a thousand partitions a page reads the newest ones' files, and no other."""
    root = fresh_root()
    with Log(MemoryStore(root)) as writer:
        writer.create_topic("wide", partitions=1000, config={"retention.ms": -1})
        with writer.producer() as producer:
            for n in range(1000):
                producer.send("wide", b"v", partition=n, timestamp=1_000_000 + n)
    store = Remote(root)
    with Log(store) as log, PageServer(log, port=0) as server:
        client = Client(server)
        client.get("/api/topics/wide/records")
        store.requests = 0
        page = client.get("/api/topics/wide/records", limit=20).json
        assert [r["partition"] for r in page["records"]] == list(range(999, 979, -1))
        assert page["complete"] and store.requests <= 21


def test_the_documentation_says_these_numbers() -> None:
    text = (ROOT / "docs" / "page.md").read_text()
    rows = dict(re.findall(r"^\| ([^|]+) \| ([^|]+) \|", text, re.MULTILINE))
    assert rows["a look"] == "1 listing, 1 for each topic, 1 for the groups"
    assert rows["a topic's records"].startswith("1, and at most 64 files")
    assert rows["one group"].startswith("1, 1 for each of its topics")
