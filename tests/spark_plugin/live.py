"""Helpers for tests with real Spark: queries whose batches are kept, records that say where
they lie, and waiting without sleeping longer than needed."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pyspark
import pytest

import offsetlog
from offsetlog.environment import delta_jar, version_of
from offsetlog.spark_jar import spark_jar
from pyspark_offsetlog.lines.classes import STARTS_ARE_GIVEN
from pyspark_offsetlog.runtime.jar import SETTING
from tests.waiting import until

with_delta = pytest.mark.skipif(
    delta_jar(pyspark.__version__, version_of("delta-spark")) is None,
    reason="there is no Delta for this Spark",
)
COLUMNS = ("topic", "partition", "offset", "value")


def keeps_limits(spark: Any) -> bool:
    """Whether availableNow takes as many batches as it needs: before Spark 4.2 by the jar."""
    if STARTS_ARE_GIVEN:
        return True
    has_jar = spark_jar(spark.version).path is not None
    return has_jar and spark.conf.get(SETTING, "auto") != "rows"


def fill(log: Any, topic: str, counts: dict[int, int], **more: Any) -> None:
    with log.producer() as producer:
        ends = log.topic(topic).end_offsets()
        for partition, count in counts.items():
            for at in range(ends[partition], ends[partition] + count):
                value = f"{topic}-{partition}-{at}".encode()
                producer.send(topic, value, partition=partition, **more)
        producer.flush()


def places(rows: Iterable[Any]) -> dict[tuple[str, int], list[int]]:
    """The offsets of each partition, sorted; every value is the one written there."""
    out: dict[tuple[str, int], list[int]] = {}
    for row in rows:
        assert bytes(row["value"]) == f"{row.topic}-{row.partition}-{row.offset}".encode()
        out.setdefault((row.topic, row.partition), []).append(row.offset)
    return {tp: sorted(out[tp]) for tp in sorted(out)}


def source(spark: Any, root: Any, *, stream: bool = False, **given: Any) -> Any:
    reader = spark.readStream if stream else spark.read
    reader = reader.format("offsetlog")
    for name, value in given.items():
        reader = reader.option(name.replace("__", "."), str(value))
    return reader.load(str(root))


class Live:
    """A running query that keeps the rows of each of its batches."""

    def __init__(
        self,
        spark: Any,
        root: Any,
        checkpoint: Path | None = None,
        trigger: dict[str, Any] | None = None,
        **given: Any,
    ) -> None:
        self.batches: dict[int, list[Any]] = {}
        self.fail_at: int | None = None
        self.hold = threading.Event()
        self.hold.set()
        self.frame = source(spark, root, stream=True, **given)
        writer = self.frame.select(*COLUMNS).writeStream.foreachBatch(self._take)
        # Where availableNow is a single batch (see test_lines) this takes many.
        self._drains = trigger == {"availableNow": True} and not keeps_limits(spark)
        if trigger is not None and not self._drains:
            writer = writer.trigger(**trigger)
        if checkpoint is not None:
            writer = writer.option("checkpointLocation", str(checkpoint))
        self.query = writer.start()

    def _take(self, frame: Any, batch: int) -> None:
        rows = frame.collect()
        assert self.hold.wait(60)
        if self.fail_at == batch:
            raise ValueError(f"batch {batch} fails on purpose")
        self.batches[batch] = rows

    def __enter__(self) -> Live:
        return self

    def __exit__(self, *_: object) -> None:
        self.hold.set()
        self.query.stop()

    @property
    def rows(self) -> list[Any]:
        return [row for batch in sorted(self.batches) for row in self.batches[batch]]

    def drained(self) -> Live:
        """The query has looked where it starts, and read all that is there."""
        self.query.processAllAvailable()
        return self

    def finished(self) -> Live:
        """Of a query that ends by itself."""
        if self._drains:
            self.query.processAllAvailable()
            self.query.stop()
            return self
        assert self.query.awaitTermination(90)
        return self

    def wait_for(self, rows: int) -> Live:
        def there() -> bool:
            error = self.query.exception()
            if error is not None:
                raise error
            return len(self.rows) >= rows

        until(there)
        return self

    def error(self) -> str:
        """The message of the error that ended it."""
        until(lambda: not self.query.isActive)
        return str(self.query.exception())


def wal(checkpoint: Path, batch: int) -> dict[str, Any]:
    """The end of a batch in Spark's own log."""
    return dict(json.loads((checkpoint / "offsets" / str(batch)).read_text().splitlines()[2]))


def lose_commit(checkpoint: Path, batch: int) -> None:
    """As if the driver had died before it wrote that the batch was done."""
    for name in (str(batch), f".{batch}.crc"):
        (checkpoint / "commits" / name).unlink(missing_ok=True)


def lags(log: Any, group: str = "g") -> dict[tuple[str, int], int]:
    return {tuple(tp): lag for tp, lag in log.group(group).lag().items()}


def opened(tmp_path: Path) -> Any:
    return offsetlog.open(str(tmp_path / "log"))
