"""A consumer without a group that follows the topic as it grows."""

from __future__ import annotations

import threading
import time
from collections import deque

import offsetlog
from offsetlog.demo.orders import PARTITIONS, TOPIC

Stored = dict[tuple[int, int], bytes | None]
"""(partition, offset) -> value"""


class Tail(threading.Thread):
    def __init__(self, root: str) -> None:
        super().__init__(name="tail", daemon=True)
        self.records: Stored = {}
        self.faults: list[str] = []
        self._root = root
        self._latencies: deque[int] = deque(maxlen=100)
        self._ending = threading.Event()

    def run(self) -> None:
        try:
            self._follow()
        except offsetlog.OffsetLogError as error:
            self.faults.append(f"the tail failed: {error}")

    def _follow(self) -> None:
        ends = dict.fromkeys(range(PARTITIONS), 0)
        with (
            offsetlog.open(self._root) as log,
            log.consumer(topics=TOPIC, auto_offset_reset="earliest") as consumer,
        ):
            while True:
                ending = self._ending.is_set()
                records = consumer.poll(timeout=0.2)
                for record in records:
                    place = record.partition, record.offset
                    if record.offset != ends[record.partition]:
                        self.faults.append(f"{place} came in place of {ends[record.partition]}")
                    ends[record.partition] = record.offset + 1
                    self.records[place] = record.value
                if records:
                    newest = max(record.timestamp for record in records)
                    self._latencies.append(time.time_ns() // 1_000_000 - newest)
                elif ending:
                    return

    def latency_ms(self) -> int | None:
        """The median time from ``send`` to here."""
        recent = sorted(self._latencies)
        return recent[len(recent) // 2] if recent else None

    def end(self) -> None:
        """Read the rest, then stop."""
        self._ending.set()
        if self.is_alive():
            self.join(30)
