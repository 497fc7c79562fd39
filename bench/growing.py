"""What is measured as a log grows; and, as a program, the memory that all of it takes."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from time import perf_counter
from typing import Any

from bench.large_log import PARTITIONS, TOPIC
from bench.memory import high_water_mb

GROUP = "billing"
MANY = 1_000_000
"""Records of the range that is planned, and that a trigger of a stream might take."""


class InUse:
    """An open log whose topic is written to and read, with one method for each operation."""

    def __init__(self, log: Any) -> None:
        self.log = log
        self._producer = log.producer(linger_ms=0)
        self._consumer = log.consumer(group=GROUP, enable_auto_commit=False)
        self._consumer.assign([(TOPIC, number) for number in range(PARTITIONS)])
        self._consumer.seek_to_end()
        self._producer.send(TOPIC, value=b"first").result()
        while not self._consumer.poll(timeout=1.0):
            pass
        self._consumer.commit()

    def append(self) -> None:
        """One record, acknowledged."""
        self._producer.send(TOPIC, value=b"next").result()

    def poll(self) -> None:
        """Whatever is new since the last look."""
        self._consumer.poll(timeout=0)

    def plan(self) -> None:
        """Where a million records in the middle of a partition lie."""
        handle = self.log.open_topic(TOPIC)
        state = handle.state()
        start = (state.start(0) + state.end(0)) // 2
        handle.reader.plan(0, start, min(start + MANY, state.end(0)))

    def commit(self) -> None:
        """All positions of a group."""
        self._consumer.commit()

    def maintain(self) -> None:
        """A round of upkeep that finds nothing to do."""
        self.log.maintain(TOPIC)

    def close(self) -> None:
        """Let go of what it holds, but the log."""
        self._consumer.close()
        self._producer.close()


def milliseconds(operation: Callable[[], object]) -> float:
    """How long it takes once."""
    begin = perf_counter()
    operation()
    return (perf_counter() - begin) * 1e3


def main(url: str) -> None:
    """Do each once, but upkeep, and tell the most memory that it took."""
    import offsetlog

    with offsetlog.open(url) as log:
        used = InUse(log)
        for operation in (used.append, used.poll, used.plan, used.commit):
            operation()
        used.close()
    sys.stdout.write(json.dumps({"high_water_mb": high_water_mb()}) + "\n")


if __name__ == "__main__":
    main(*sys.argv[1:])
