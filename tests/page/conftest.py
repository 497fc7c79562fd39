"""A log in memory with hostile text in it, and pages of it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

import offsetlog
from offsetlog.page.server import PageServer
from tests.page.server import Client, token_of
from tests.servers import chromium

HOSTILE = "<script>window.hacked = 1</script>"
IMAGE = '"><img src=x onerror="window.hacked=1">'


@pytest.fixture(scope="session", autouse=True)
def own_notes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Where pages note that they run, for servers of a whole module too."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_RUNTIME_DIR", str(tmp_path_factory.mktemp("runtime")))
        yield


def fill(log: offsetlog.Log) -> None:
    """Topics orders and hostile, and the groups billing (behind) and audit (with members)."""
    log.create_topic("orders", partitions=3, config={"retention.ms": -1})
    with log.producer() as producer:
        for n in range(90):
            producer.send(
                "orders", f'{{"order": {n}, "big": 12345678901234567890}}'.encode(),
                key=f"customer-{n % 4}".encode(), headers=[("source", b"web")], partition=n % 3,
                timestamp=1_760_000_000_000 + 1000 * n,
            )  # fmt: skip
    log.create_topic("hostile", partitions=1)
    with log.producer() as producer:
        producer.send(
            "hostile", f"{HOSTILE}{IMAGE}".encode(), key=HOSTILE.encode(),
            headers=[(HOSTILE, IMAGE.encode())],
        )  # fmt: skip
        producer.send("hostile", b"\xff\x00\x80", key=b"\xfe")
        producer.send("hostile", "\u202edrow\x1b[31m".encode(), key=None)
        producer.send("hostile", None, key=b"tombstone")
    with log.consumer(group="billing", enable_auto_commit=False) as consumer:
        consumer.assign([("orders", p) for p in range(3)])
        consumer.commit({("orders", 0): 10, ("orders", 1): 30, ("orders", 2): (0, HOSTILE)})


@pytest.fixture
def log(log: offsetlog.Log) -> offsetlog.Log:
    fill(log)
    return log


@pytest.fixture
def server(log: offsetlog.Log) -> Iterator[PageServer]:
    """It only reads."""
    with PageServer(log, port=0) as server:
        yield server


@pytest.fixture
def client(server: PageServer) -> Client:
    return Client(server)


@pytest.fixture
def changing(log: offsetlog.Log) -> Iterator[PageServer]:
    with PageServer(log, port=0, allow_changes=True) as server:
        yield server


@pytest.fixture
def admin(changing: PageServer) -> Client:
    return Client(changing, authorization=f"Bearer {token_of(changing)}")


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    """Chromium. Only where none can be had are the tests with a browser skipped. It ends with the
    module: other modules of this process start theirs."""
    try:
        chromium.install()
    except RuntimeError as error:
        pytest.skip(str(error))
    with chromium.running() as browser:
        yield browser
