"""One Kafka broker for all Spark figures, and the data sets as its topics."""

from __future__ import annotations

from typing import Any

from bench.figure import Setting
from bench.peers import kafka
from bench.spark import jobs
from bench.spark.rows import PARTITIONS, Rows
from bench.spark.session import folder, spark
from bench.suite import SUITE


def broker(setting: Setting) -> kafka.Broker:
    """The run's broker; started at the first call."""
    return SUITE.once("broker", lambda: kafka.running(folder(setting), setting.cache))


def topic_of(rows: Rows, setting: Setting, codec: str = "none") -> str:
    """A topic with the rows, in large batches; filled at the first call."""
    name = f"{rows.kind.name}-{codec}"
    return SUITE.once(f"kafka {name}", lambda: _Filled(name, rows, setting, codec))


class _Filled:
    def __init__(self, name: str, rows: Rows, setting: Setting, codec: str) -> None:
        self._name = name
        self._rows = rows
        self._setting = setting
        self._codec = codec

    def __enter__(self) -> str:
        there = broker(self._setting)
        there.create_topic(self._name, PARTITIONS)
        session = spark(self._setting)
        jobs.write_kafka(session, self._rows, there.address, self._name, self._codec)
        return self._name

    def __exit__(self, *_: Any) -> None:
        """The topic goes with the broker's folder."""
