"""One local Spark session for a whole run, with every peer in it.

1. It is the session that a user of ours gets, and the connector of Kafka beside it.
2. Its folders lie in the run's own; the jars come from the cache.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from bench.figure import Setting
from bench.peers.jars import Package, fetch
from bench.peers.process import PeerUnavailableError
from bench.suite import SUITE

VERSION = "4.2.0"
KAFKA_CONNECTOR = (
    Package("org.apache.spark", "spark-sql-kafka-0-10_2.13", VERSION),
    # The newest of its kind that every mirror has; it only matters with delegation tokens.
    Package("org.apache.spark", "spark-token-provider-kafka-0-10_2.13", "4.0.0"),
    Package("org.apache.kafka", "kafka-clients", "3.9.2"),
    Package("org.apache.commons", "commons-pool2", "2.13.1"),
)
CORES = 2
DRIVER_MEMORY = "4g"


def spark(setting: Setting) -> Any:
    """The run's session; started at the first call."""
    return SUITE.once("spark", lambda: _running(setting))


def folder(setting: Setting) -> Path:
    """Where cases that share things keep them."""
    place = setting.work.resolve().parent / "spark"
    place.mkdir(exist_ok=True)
    return place


@contextmanager
def _running(setting: Setting) -> Iterator[Any]:
    jars = fetch(f"spark-kafka-{VERSION}", KAFKA_CONNECTOR, setting.cache.resolve(), alone=True)
    place = folder(setting)
    settings = {
        "spark.driver.memory": DRIVER_MEMORY,
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.log.level": "OFF",
        "spark.jars": ",".join(str(jar) for jar in sorted(jars.glob("*.jar"))),
        "spark.jars.ivy": str(setting.cache.resolve().parent / "ivy"),
        "spark.local.dir": str(place / "local"),
        "spark.sql.warehouse.dir": str(place / "warehouse"),
        "spark.sql.streaming.numRecentProgressUpdates": "1000",
    }
    log = place / "spark.log"
    try:
        session = _build(settings, log)
    except Exception as error:
        raise PeerUnavailableError(f"Spark did not start: {log.read_text()[-2000:]}") from error
    try:
        yield session
    finally:
        session.stop()


def _build(settings: dict[str, str], log: Path) -> Any:
    from offsetlog.spark import session

    with _written_to(log):
        return session("bench", master=f"local[{CORES}]", config=settings)


@contextmanager
def _written_to(log: Path) -> Iterator[None]:
    """What the JVM and its workers say goes to a file, from their start on: they tell at length
    of every query that is stopped."""
    kept = [os.dup(number) for number in (1, 2)]
    with log.open("ab") as file:
        for number in (1, 2):
            os.dup2(file.fileno(), number)
        try:
            yield
        finally:
            for number, before in zip((1, 2), kept, strict=True):
                os.dup2(before, number)
                os.close(before)
