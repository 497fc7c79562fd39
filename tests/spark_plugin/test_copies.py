"""Spark's checkpoints hold no root's id: a query goes on with a copy of the log that it read, and
nothing is lost or doubled; a copy that is older than a checkpoint is an error, and no gap."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import offsetlog
from tests.spark_plugin.live import Live, fill, lags, places, source, wal
from tests.spark_plugin.written import values

pytestmark = pytest.mark.usefixtures("orders")

NOW = {"availableNow": True}
GROUP = {"subscribe": "orders", "startingOffsets": "earliest", "group.id": "g"}


def test_a_checkpoint_goes_on_with_the_copy(spark: Any, log: Any, tmp_path: Path) -> None:
    root, copy, checkpoint = tmp_path / "log", tmp_path / "copy", tmp_path / "c"
    fill(log, "orders", {0: 6, 1: 4})
    with Live(spark, root, checkpoint, NOW, maxOffsetsPerTrigger=4, **GROUP) as live:
        live.finished()
    log.copy(str(copy))
    fill(log, "orders", {0: 3})
    log.group("g").reset("orders", to="earliest", partitions=[1], dry_run=False)
    log.copy(str(copy))
    with offsetlog.open(str(copy)) as there:
        fill(there, "orders", {1: 2})
        with Live(spark, copy, checkpoint, NOW, **GROUP) as live:
            live.finished()
        # What was new in the source, the partition that was reset, and what is new in the copy.
        assert places(live.rows) == {("orders", 0): [6, 7, 8], ("orders", 1): [0, 1, 2, 3, 4, 5]}
        assert set(lags(there).values()) == {0}
        assert wal(checkpoint, max(live.batches))["@reset"] == 1
    assert lags(log)["orders", 0] == 3, "the source's groups are its own"


def into_out(spark: Any, root: Path, checkpoint: Path) -> None:
    frame = source(spark, root, stream=True, **GROUP).select("key", "value")
    writer = frame.writeStream.format("offsetlog").option("topic", "out").trigger(**NOW)
    query = writer.option("checkpointLocation", str(checkpoint)).start(str(root))
    assert query.awaitTermination(90)


def test_a_batch_that_is_run_again_with_the_copy_is_not_doubled(
    spark: Any, log: Any, tmp_path: Path
) -> None:
    """The sink's numbers are in the copy too."""
    root, copy, checkpoint = tmp_path / "log", tmp_path / "copy", tmp_path / "c"
    log.create_topic("out", partitions=2)
    fill(log, "orders", {0: 5, 1: 5})
    into_out(spark, root, checkpoint)
    log.copy(str(copy))
    for path in checkpoint.glob("commits/*"):
        path.unlink()  # The batch is in the log, and Spark does not know it.
    for path in checkpoint.glob("commits/.*.crc"):
        path.unlink()
    with offsetlog.open(str(copy)) as there:
        fill(there, "orders", {0: 1})
        into_out(spark, copy, checkpoint)
    assert values(copy, "out") == values(copy, "orders")
    assert len(values(copy, "out")) == 11 and len(values(root, "out")) == 10


def test_a_copy_that_is_older_than_the_checkpoint_is_an_error(
    spark: Any, log: Any, tmp_path: Path
) -> None:
    root, copy, checkpoint = tmp_path / "log", tmp_path / "copy", tmp_path / "c"
    fill(log, "orders", {0: 3})
    log.copy(str(copy))
    fill(log, "orders", {0: 3})
    with Live(spark, root, checkpoint, NOW, **GROUP) as live:
        live.finished()
    with (
        pytest.raises(Exception, match=r"orders-0 was seen up to 6 before.*Nothing is skipped"),
        Live(spark, copy, checkpoint, NOW, **GROUP) as live,
    ):
        live.finished()
    assert not live.rows
