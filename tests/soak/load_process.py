"""A process of the load: a writer, the maintainer, or a Spark driver with two queries.

1. Each appends a line of JSON to its file now and then, with totals and what was slow meanwhile.
2. Each ends by itself when the file ``stop`` is there; the driver when it has read the log's end.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from statistics import median
from typing import Any

import offsetlog

TOPIC, PARTITIONS = "orders", 4
RECORDS, PAUSE = 25, 0.25
"""Of one append of a writer, and from one to the next."""
GROUPS = ("billing", "audit")
MAINTAIN_EVERY, GRACE_MS = 2.0, 10_000
HEAP_EVERY = 5.0


class Notes:
    def __init__(self, place: Path, name: str) -> None:
        self._file = (place / f"{name}.jsonl").open("a")
        self._stop = place / "stop"

    def write(self, **facts: Any) -> None:
        print(json.dumps({"at": time.monotonic(), **facts}), file=self._file, flush=True)

    def seconds(self, pause: float) -> Iterator[float]:
        """Until it is time to stop."""
        while not self._stop.exists():
            begin = time.monotonic()
            yield begin
            time.sleep(max(0.0, pause - (time.monotonic() - begin)))


def writer(root: str, notes: Notes, name: str) -> None:
    """Small appends at an even pace, each waited for."""
    sent, slow, told = 0, [], time.monotonic()
    with offsetlog.open(root) as log, log.producer() as producer:
        for begin in notes.seconds(PAUSE):
            futures = [
                producer.send(TOPIC, b"%s/%d" % (name.encode(), sent + i), key=b"%d" % (sent + i))
                for i in range(RECORDS)
            ]
            for future in futures:
                future.result(60)
            slow.append(time.monotonic() - begin)
            sent += RECORDS
            if begin - told > 1:
                notes.write(sent=sent, milliseconds=1000 * median(slow))
                slow, told = [], begin
        notes.write(sent=sent, milliseconds=1000 * median(slow or [0.0]))


def maintainer(root: str, notes: Notes, name: str) -> None:
    with offsetlog.open(root) as log:
        for begin in notes.seconds(MAINTAIN_EVERY):
            log.maintain(grace_ms=GRACE_MS)
            notes.write(milliseconds=1000 * (time.monotonic() - begin))


class Query:
    """What one query was given: every record once, in the order of its partition."""

    def __init__(self, group: str) -> None:
        self.group = group
        self.rows = 0
        self.next = dict.fromkeys(range(PARTITIONS), 0)
        self.faults: list[str] = []

    def take(self, frame: Any, batch: int) -> None:
        found = frame.selectExpr("partition", "offset").toPandas().sort_values("offset")
        for partition, offsets in found.groupby("partition")["offset"]:
            here = offsets.to_numpy()
            there = range(self.next[partition], self.next[partition] + len(here))
            if here[0] != there.start or here[-1] != there.stop - 1 or len(set(here)) < len(here):
                self.faults.append(
                    f"{self.group}, batch {batch}, partition {partition}: {len(here)} records "
                    f"from {here[0]} to {here[-1]}, not from {there.start} to {there.stop - 1}"
                )
            self.next[partition] = int(here[-1]) + 1
        self.rows += len(found)


def driver(root: str, notes: Notes, name: str) -> None:
    import offsetlog.spark

    spark = offsetlog.spark.session(
        "load", master="local[2]", delta=False,
        config={"spark.ui.enabled": "false", "spark.driver.memory": "1g",
                "spark.sql.shuffle.partitions": "2"},
    )  # fmt: skip
    spark.sparkContext.setLogLevel("ERROR")
    queries = [Query(group) for group in GROUPS]
    running = []
    for query in queries:
        rows = spark.readStream.format("offsetlog").option("subscribe", TOPIC)
        rows = rows.option("startingOffsets", "earliest").option("group.id", query.group).load(root)
        writing = rows.writeStream.foreachBatch(query.take).trigger(processingTime="1 second")
        checkpoint = f"{root}-{query.group}"
        running.append(writing.option("checkpointLocation", checkpoint).start())
    system = spark.sparkContext._jvm.java.lang
    told = 0.0
    with offsetlog.open(root) as log:
        for begin in notes.seconds(1.0):
            _note(notes, queries, running)
            if begin - told > HEAP_EVERY:
                system.System.gc()
                heap = system.Runtime.getRuntime()
                notes.write(heap=(heap.totalMemory() - heap.freeMemory()) >> 20)
                told = begin
        ends = log.topic(TOPIC).end_offsets()
        deadline = time.monotonic() + 60
        while any(query.next != ends for query in queries) and time.monotonic() < deadline:
            time.sleep(0.2)
    for one in running:
        one.stop()
    _note(notes, queries, running)
    spark.stop()


def _note(notes: Notes, queries: list[Query], running: list[Any]) -> None:
    faults = [fault for query in queries for fault in query.faults[:5]]
    faults += [str(one.exception())[:500] for one in running if one.exception()]
    took = [one.lastProgress["batchDuration"] for one in running if one.lastProgress]
    facts = {"rows": [query.rows for query in queries], "faults": faults}
    notes.write(**facts, **({"milliseconds": max(took)} if took else {}))


def main(role: str, root: str, place: str, name: str) -> None:
    roles = {"writer": writer, "maintainer": maintainer, "driver": driver}
    roles[role](root, Notes(Path(place), name), name)


if __name__ == "__main__":
    main(*sys.argv[1:])
