"""One small story, told wherever Spark runs and wherever the log lies: read as a batch, stream
with a group into another topic, restart, replay after a reset, run a batch again, write once.

``story`` returns what it counted; ``EXPECTED`` is what must come out everywhere.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import offsetlog
from pyspark_offsetlog.lines.classes import STARTS_ARE_GIVEN

EXPECTED = {
    "read": {"0": 30, "1": 30},
    "streamed": 60,
    "lag": 0,
    "restarted": 80,
    "replayed": 160,
    "batch run again": True,
    "after that": 160,
    "keys in the wrong partition": 0,
    "written once": 30,
    "lag in a frame": {"0": 0, "1": 0},
}
SECONDS = 240


BRIEF = ("read", "streamed", "lag", "written once", "lag in a frame")


def story(
    spark: Any, root: str, storage: Mapping[str, Any], place: Path, brief: bool = False
) -> dict[str, Any]:
    """``brief`` leaves out what comes after the first run of the stream."""
    with offsetlog.open(root, **storage) as log:
        log.create_topic("orders", partitions=2)
        _send(log, 60)
        return _Story(spark, root, storage, place, log).tell(brief)


def _send(log: Any, count: int) -> None:
    with log.producer() as producer:
        for number in range(count):
            producer.send("orders", b"value", key=b"%d" % number, partition=number % 2)


def run_to_the_end(writer: Any) -> Any:
    """A query over all that there is, in as many batches as it takes. Before Spark 4.2
    ``availableNow`` is a single one (see test_lines), so it is stopped by hand there."""
    if STARTS_ARE_GIVEN:
        query = writer.trigger(availableNow=True).start()
        if not query.awaitTermination(SECONDS):
            query.stop()
            raise AssertionError("the query did not end")
    else:
        query = writer.start()
        query.processAllAvailable()
        query.stop()
    return query


class _Story:
    def __init__(
        self, spark: Any, root: str, storage: Mapping[str, Any], place: Path, log: Any
    ) -> None:
        self.spark, self.root, self.storage, self.log = spark, root, storage, log
        self.options = {f"storage.{name}": str(value) for name, value in storage.items()}
        self.checkpoint = place / "checkpoint"

    def tell(self, brief: bool) -> dict[str, Any]:
        out: dict[str, Any] = {"read": self._partitions("orders")}
        self._stream(createTopicPartitions=2)
        out["streamed"] = self._count("copy")
        out["lag"] = sum(self.log.group("copier").lag().values())
        if not brief:
            out.update(self._again())
        self._write_once()
        out["written once"] = self._count("out")
        out["lag in a frame"] = self._lag()
        return out

    def _again(self) -> dict[str, Any]:
        """Restarted, replayed, and with a batch run twice."""
        out: dict[str, Any] = {}
        _send(self.log, 20)
        self._stream()
        out["restarted"] = self._count("copy")
        self.log.group("copier").reset("orders", to="earliest", dry_run=False)
        self._stream()
        out["replayed"] = self._count("copy")
        out["batch run again"] = self._forget_the_last_commit()
        self._stream()
        out["after that"] = self._count("copy")
        out["keys in the wrong partition"] = self._astray()
        return out

    def _read(self, topic: str) -> Any:
        reader = self.spark.read.format("offsetlog").options(**self.options)
        return reader.option("subscribe", topic).load(self.root)

    def _partitions(self, topic: str) -> dict[str, int]:
        rows = self._read(topic).groupBy("partition").count().collect()
        return {str(row["partition"]): row["count"] for row in sorted(rows)}

    def _count(self, topic: str) -> int:
        ends = self.log.topic(topic).end_offsets()
        assert self._read(topic).count() == sum(ends.values())
        return sum(ends.values())

    def _stream(self, **more: Any) -> None:
        writer = (
            self.spark.readStream.format("offsetlog")
            .options(**self.options)
            .options(**{"subscribe": "orders", "group.id": "copier", "maxOffsetsPerTrigger": 40})
            .option("startingOffsets", "earliest")
            .load(self.root)
            .select("key", "value")
            .writeStream.format("offsetlog")
            .options(**self.options)
            .options(**{name: str(value) for name, value in more.items()})
            .option("path", self.root)
            .option("topic", "copy")
            .option("checkpointLocation", str(self.checkpoint))
        )
        run_to_the_end(writer)

    def _forget_the_last_commit(self) -> bool:
        """As if the driver had died between the sink's commit and Spark's own note of it."""
        commits = self.checkpoint / "commits"
        last = max(int(name) for name in os.listdir(commits) if name.isdigit())
        (commits / f".{last}.crc").unlink(missing_ok=True)
        (commits / str(last)).unlink()
        return last > 2

    def _astray(self) -> int:
        rows = self._read("copy").select("key", "partition").distinct()
        return int(rows.groupBy("key").count().where("count > 1").count())

    def _write_once(self) -> None:
        frame = self._read("orders").where("partition = 1 AND offset < 30")
        for _ in range(2):
            (
                frame.select("value").write.format("offsetlog").mode("append")
                .options(**self.options)
                .options(path=self.root, topic="out", createTopicPartitions="1",
                         txnAppId="story", txnVersion="1")
                .save()
            )  # fmt: skip

    def _lag(self) -> dict[str, int]:
        import offsetlog.spark

        rows = offsetlog.spark.lag(self.spark, self.root, "copier", **self.storage).collect()
        return {str(row["partition"]): row["lag_records"] for row in sorted(rows)}


def report(**told: Any) -> None:
    """What a program of the tests says to the test that started it."""
    sys.stdout.write(f"told: {json.dumps(told)}\n")
    sys.stdout.flush()


def told_by(output: str) -> dict[str, Any]:
    out: dict[str, Any] = {}
    for line in output.splitlines():
        if line.startswith("told: "):
            out.update(json.loads(line.removeprefix("told: ")))
    return out
