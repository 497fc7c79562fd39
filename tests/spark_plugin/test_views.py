"""A root that is out of a task's sight for a moment, with real Spark: it is renamed away while the
tasks of one batch run, as a shared disk that is not mounted on their machine."""

from __future__ import annotations

import shutil
import socket
from pathlib import Path
from typing import Any

import pytest

from tests.spark_plugin.live import fill, lags, source

pytestmark = pytest.mark.usefixtures("orders")

NOW = {"availableNow": True}
EACH = 10_000
"""Records of a batch: more than the driver hands over by itself."""


class Views:
    """Puts something else in the root's place, and the root back."""

    def __init__(self, root: Path) -> None:
        self.root, self.away = root, root.with_name("away")

    def hide(self, older: Path | None) -> None:
        self.root.rename(self.away)
        if older is not None:
            shutil.copytree(older, self.root)

    def show(self) -> bool:
        """Whether something was made in the root's place."""
        made = self.root.exists()
        shutil.rmtree(self.root, ignore_errors=True)
        self.away.rename(self.root)
        return made


@pytest.mark.parametrize("view", ["nothing", "older"])
def test_a_stream_skips_nothing_that_its_tasks_cannot_see(
    spark: Any, log: Any, root: Path, tmp_path: Path, view: str
) -> None:
    """failOnDataLoss=false is for what is gone."""
    fill(log, "orders", {0: EACH // 4, 1: EACH // 4})
    older = None if view == "nothing" else tmp_path / "older"
    if older is not None:
        shutil.copytree(root, older)
    fill(log, "orders", {0: EACH // 4, 1: EACH // 4})
    # The second batch has entries of its own: those of the first are in the workers' memory.
    fill(log, "orders", {0: EACH // 2, 1: EACH // 2})
    views = Views(root)
    seen: dict[int, int] = {}
    hidden = 0

    def take(frame: Any, batch: int) -> None:
        nonlocal hidden
        if hidden == batch:
            hidden += 1
            views.hide(older)
            try:
                seen[batch] = frame.count()
            finally:
                assert views.show() == (older is not None)
        seen[batch] = frame.count()

    given = {"subscribe": "orders", "startingOffsets": "earliest", "failOnDataLoss": "false"}
    given |= {"group__id": "g", "maxOffsetsPerTrigger": str(EACH)}
    for run in range(3):
        frame = source(spark, root, stream=True, **given)
        writer = frame.writeStream.foreachBatch(take).trigger(**NOW)
        query = writer.option("checkpointLocation", str(tmp_path / "checkpoint")).start()
        if run == 2:
            assert query.awaitTermination(90)
            continue
        error = "RootGoneError" if older is None else "StorageError"
        with pytest.raises(Exception, match=rf"offsetlog\.[a-z.]+\.{error}: ") as failed:
            query.awaitTermination(90)
        said = str(failed.value)
        assert socket.gethostname() in said and str(root) in said
        assert ("sees the log only up to" in said) == (older is not None)
        assert len(seen) == run
        behind = sum(lags(log).values())
        assert behind == (EACH if run else 0), "nothing is committed of a batch that failed"
    assert seen == {0: EACH, 1: EACH}
    assert lags(log) == {("orders", 0): 0, ("orders", 1): 0}


def test_a_batch_query_that_was_planned_reads_all_or_fails(
    spark: Any, log: Any, root: Path
) -> None:
    fill(log, "orders", {0: 20, 1: 20})
    frame = source(spark, root, subscribe="orders", failOnDataLoss="false")
    # What was planned stays with this very frame.
    rows = frame._jdf.queryExecution().toRdd()
    assert rows.getNumPartitions() == 1
    views = Views(root)
    views.hide(None)
    try:
        with pytest.raises(Exception, match="is not at file://"):
            rows.count()
    finally:
        assert not views.show()
    assert rows.count() == 40


@pytest.mark.parametrize("kind", ["batch", "stream"])
def test_a_write_whose_tasks_do_not_see_the_root_fails(
    spark: Any, log: Any, root: Path, tmp_path: Path, kind: str
) -> None:
    """It would name files that nobody else has."""
    hide = tmp_path / "hide"
    there, away = str(root), str(root.with_name("away"))

    def rows(batches: Any) -> Any:
        import os

        for batch in batches:
            if os.path.exists(str(hide)):
                os.remove(str(hide))
                os.rename(there, away)
            yield batch

    def write(number: int) -> None:
        options = {"topic": "orders", "path": there}
        if kind == "batch":
            frame = spark.range(0, 20_000, numPartitions=1).selectExpr(wide)
            frame = frame.mapInArrow(rows, "value string")
            frame.write.format("offsetlog").options(**options).mode("append").save()
            return
        stream = spark.readStream.schema("value string").parquet(str(tmp_path / "input"))
        writer = stream.mapInArrow(rows, "value string").writeStream.format("offsetlog")
        writer = writer.options(**options).trigger(**NOW)
        writer = writer.option("checkpointLocation", str(tmp_path / "checkpoint"))
        writer.start().awaitTermination(90)

    wide = "repeat(cast(id as string), 40) as value"
    if kind == "stream":
        spark.range(0, 20_000, numPartitions=1).selectExpr(wide).write.parquet(
            str(tmp_path / "input")
        )
    hide.touch()
    try:
        with pytest.raises(Exception, match="is not at file://") as failed:
            write(0)
    finally:
        assert not Views(root).show(), "a task made a root"
    assert socket.gethostname() in str(failed.value)
    assert log.topic("orders").end_offsets() == {0: 0, 1: 0}
    write(1)
    assert sum(log.topic("orders").end_offsets().values()) == 20_000
    with log.consumer() as consumer:
        consumer.assign([("orders", 0), ("orders", 1)])
        consumer.seek_to_beginning()
        got = 0
        while records := consumer.poll(timeout=0):
            got += len(records)
    assert got == 20_000
    [report] = log.verify("orders")
    assert report.faults == ()


def test_a_query_that_starts_on_an_empty_mount_point_makes_nothing(
    spark: Any, log: Any, root: Path, tmp_path: Path
) -> None:
    fill(log, "orders", {0: 5})
    given = {"subscribe": "orders", "startingOffsets": "earliest", "failOnDataLoss": "false"}
    given["group__id"] = "g"

    def run() -> None:
        writer = source(spark, root, stream=True, **given).writeStream.format("noop")
        writer = writer.option("checkpointLocation", str(tmp_path / "checkpoint"))
        query = writer.trigger(**NOW).start()
        query.awaitTermination(90)

    run()
    fill(log, "orders", {0: 5})
    root.rename(tmp_path / "away")
    root.mkdir()
    with pytest.raises(Exception, match="There is no log at"):
        run()
    assert list(root.iterdir()) == []
    root.rmdir()
    (tmp_path / "away").rename(root)
    run()
    assert lags(log)[("orders", 0)] == 0
