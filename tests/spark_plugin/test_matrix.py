"""The story of ``test_lines`` on S3; and what a running query asks of S3."""

from __future__ import annotations

import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import offsetlog
from tests.servers.process import Place
from tests.spark_plugin.story import EXPECTED, story
from tests.waiting import until


def test_the_story(spark: Any, seaweedfs: Place, tmp_path: Path) -> None:
    root = f"{seaweedfs.url}/story"
    assert story(spark, root, seaweedfs.options, tmp_path) == EXPECTED


class Asked:
    """A running query on a small S3 server, and its requests."""

    def __init__(self, spark: Any, server: Place, place: Path, **options: str) -> None:
        self.rows: list[int] = []
        self._port = server.http_port
        root = f"{server.url}/{place.name}"
        self.log = offsetlog.open(root, **server.options)
        self.log.create_topic("orders", partitions=2)
        storage = {f"storage.{name}": value for name, value in server.options.items()}
        self.query = (
            spark.readStream.format("offsetlog")
            .options(**storage)
            .options(**options)
            .options(subscribe="orders", startingOffsets="earliest")
            .load(root)
            .writeStream.foreachBatch(lambda frame, _: self.rows.append(frame.count()))
            .option("checkpointLocation", str(place / "checkpoint"))
            .start()
        )
        self.send()
        until(lambda: self.rows, 240)

    def send(self) -> None:
        with self.log.producer() as producer:
            producer.send("orders", b"value", partition=0).result()

    def counts(self) -> dict[str, int]:
        import json

        with urllib.request.urlopen(f"http://127.0.0.1:{self._port}/_counts") as answer:
            return dict(json.loads(answer.read()))

    def reset(self) -> float:
        urllib.request.urlopen(f"http://127.0.0.1:{self._port}/_reset").close()
        return time.monotonic()


@pytest.fixture
def asked(
    spark: Any, latency_s3: Place, tmp_path: Path, request: pytest.FixtureRequest
) -> Iterator[Asked]:
    asked = Asked(spark, latency_s3, tmp_path, **request.param)
    try:
        yield asked
    finally:
        asked.query.stop()
        asked.log.close()


@pytest.mark.parametrize("asked", [{}, {"group.id": "billing"}], indirect=True, ids=["", "group"])
def test_requests_while_idle(asked: Asked) -> None:
    """One look in half a second: one request for the topic, and one more for a group."""
    grouped = asked.log.groups() != []
    until(lambda: not asked.query.status["isTriggerActive"], 60)
    time.sleep(1.0)
    began = asked.reset()
    time.sleep(4.0)
    counts, seconds = asked.counts(), time.monotonic() - began
    looks = seconds / 0.5 + 2
    assert counts.keys() <= {"GET"}
    assert 1 <= counts["GET"] <= (2 if grouped else 1) * looks


@pytest.mark.parametrize("asked", [{"pollIntervalMs": "60000"}], indirect=True)
def test_the_poll_interval_bounds_an_idle_query(asked: Asked) -> None:
    time.sleep(1.0)
    asked.reset()
    time.sleep(2.0)
    assert sum(asked.counts().values()) <= 1


@pytest.mark.parametrize("asked", [{}], indirect=True)
def test_requests_of_a_micro_batch(asked: Asked) -> None:
    """A small one: the driver's look brings the entry, and its rows are handed over."""
    time.sleep(1.0)
    before = len(asked.rows)
    asked.reset()
    asked.send()
    until(lambda: len(asked.rows) > before, 120)
    counts = asked.counts()
    assert counts["PUT"] == 1
    assert counts["GET"] <= 4
    assert counts.keys() <= {"GET", "PUT"}
