"""Limits of micro-batches that stand alone, and records that go while a batch is read."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.spark_plugin.live import Live, fill, places, source
from tests.spark_plugin.story import run_to_the_end

pytestmark = pytest.mark.usefixtures("tasks_in", "orders")

NOW = {"availableNow": True}
EARLIEST = {"subscribe": "orders", "startingOffsets": "earliest"}


def heavy(log: Any, count: int) -> None:
    with log.producer() as producer:
        for at in range(count):
            producer.send("orders", bytes(300_000), key=b"%d" % at, partition=0).result()


@pytest.mark.every_line
def test_bytes_alone(spark: Any, log: Any, root: Path) -> None:
    heavy(log, 6)
    took: list[int] = []
    stream = source(spark, root, stream=True, maxBytesPerTrigger="700k", **EARLIEST)
    frame = stream.select("offset")
    run_to_the_end(frame.writeStream.foreachBatch(lambda frame, _: took.append(frame.count())))
    assert took == [2, 2, 2]


@pytest.mark.every_line
def test_a_least_number_of_records_alone(spark: Any, log: Any, root: Path, tmp_path: Path) -> None:
    fill(log, "orders", {0: 1})
    given = {**EARLIEST, "minOffsetsPerTrigger": 5, "maxTriggerDelay": "1h"}
    with Live(spark, root, tmp_path / "c", **given) as live:
        live.wait_for(1)
        fill(log, "orders", {0: 2})
        live.drained()
        assert len(live.rows) == 1
        fill(log, "orders", {1: 3})
        live.wait_for(6)
    with Live(spark, root, tmp_path / "d", NOW, **given) as live:
        live.finished()
    assert places(live.rows) == {("orders", 0): [0, 1, 2], ("orders", 1): [0, 1, 2]}


def test_retention_between_the_plan_of_a_batch_and_its_reading(
    spark: Any, log: Any, root: Path
) -> None:
    heavy(log, 9)
    plans = []
    for loss in ("true", "false"):
        frame = source(spark, root, subscribe="orders", failOnDataLoss=loss).select("offset")
        plans.append(frame.rdd)
        assert plans[-1].getNumPartitions() >= 1
    log.topic("orders").delete_records({0: 4})
    for _ in range(3):
        log.maintain(grace_ms=0)
    with pytest.raises(Exception, match="the records before 4 were deleted") as failed:
        plans[0].collect()
    assert "failOnDataLoss=false" in str(failed.value)
    assert [row.offset for row in plans[1].collect()] == [4, 5, 6, 7, 8]
