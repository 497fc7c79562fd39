"""Upkeep as a Spark job: its tasks rewrite, and what it leaves is what ``log.maintain`` leaves."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import pytest

import offsetlog
import offsetlog.spark
from tests.waiting import until


@pytest.fixture
def root(root: Path) -> str:
    with offsetlog.open(str(root)) as log:
        for topic in ("orders", "clicks"):
            log.create_topic(topic, partitions=3)
            _send(log, topic, 12)
    return str(root)


def _send(log: Any, topic: str, appends: int) -> None:
    with log.producer(linger_ms=0) as producer:
        for number in range(appends):
            for partition in range(3):
                producer.send(topic, b"%d" % number, b"k", partition=partition)
            producer.flush()


def _records(log: Any, topic: str) -> list[Any]:
    with log.consumer(topics=[topic], auto_offset_reset="earliest") as consumer:
        read: list[Any] = []
        while batch := consumer.poll(timeout=1):
            read += batch
    return sorted((r.partition, r.offset, r.key, r.value, r.timestamp) for r in read)


@pytest.mark.every_line
def test_tasks_rewrite_what_maintain_would(spark: Any, root: str) -> None:
    with offsetlog.open(root) as log:
        before = {topic: _records(log, topic) for topic in ("orders", "clicks")}
        reports = offsetlog.spark.maintain(spark, root, grace_ms=0)
        by_topic = {report.topic: report for report in reports}
        assert by_topic["orders"].rewritten_files == 36 and by_topic["orders"].new_segments == 3
        assert {topic: _records(log, topic) for topic in before} == before
        assert [r.faults for r in log.verify() if r.faults] == []
        again = offsetlog.spark.maintain(spark, root, ["orders"], grace_ms=0)
        assert [report.topic for report in again] == ["orders"]
        assert again[0].rewritten_files == 0


def test_the_rewriting_is_done_by_workers(spark: Any, root: str, monkeypatch: Any) -> None:
    from offsetlog.engine.upkeep.maintenance import Maintenance

    def refuse(*_: Any) -> None:
        raise AssertionError("the driver rewrote a file")

    monkeypatch.setattr(Maintenance, "_rewrite", refuse)
    [report] = offsetlog.spark.maintain(spark, root, "clicks")
    assert report.new_segments == 3


def test_two_jobs_at_once_and_a_log_in_use(spark: Any, root: str) -> None:
    failures: list[Exception] = []

    def work() -> None:
        try:
            offsetlog.spark.maintain(spark, root, ["orders"], grace_ms=0)
        except Exception as error:  # noqa: BLE001
            failures.append(error)

    with offsetlog.open(root) as log:
        threads = [threading.Thread(target=work) for _ in range(2)]
        for thread in threads:
            thread.start()
        _send(log, "orders", 10)
        for thread in threads:
            thread.join(120)
        assert not failures
        assert len(_records(log, "orders")) == 3 * 22
        assert [r.faults for r in log.verify() if r.faults] == []


def test_a_task_that_fails_is_an_error_of_one_line(spark: Any, root: str) -> None:
    first = sorted(Path(root, "orders", "_log").rglob("*.parquet"))[3]
    data = bytearray(first.read_bytes())
    data[len(data) // 2] ^= 1
    first.write_bytes(bytes(data))
    with pytest.raises(offsetlog.OffsetLogError) as caught:
        offsetlog.spark.maintain(spark, root, "orders")
    assert len(str(caught.value).splitlines()) == 1 and "orders" in str(caught.value)


@pytest.mark.parametrize("topics", [3, [1], b"orders"])
def test_mistakes(spark: Any, root: str, topics: Any) -> None:
    with pytest.raises(offsetlog.InvalidRequestError, match="The topics are"):
        offsetlog.spark.maintain(spark, root, topics)


def test_a_topic_or_a_log_that_is_not_there(spark: Any, root: str, tmp_path: Path) -> None:
    with pytest.raises(offsetlog.UnknownTopicError):
        offsetlog.spark.maintain(spark, root, "nothing")
    with pytest.raises(offsetlog.InvalidRequestError, match="There is no log"):
        offsetlog.spark.maintain(spark, str(tmp_path / "nowhere"))


def test_a_stream_looks_after_what_it_writes(spark: Any, tmp_path: Path) -> None:
    """Beside its batches, in a process that ends by itself."""
    root = str(tmp_path / "log")
    with offsetlog.open(root) as log:
        log.create_topic("orders")
        lines = spark.readStream.format("rate").option("rowsPerSecond", 20).load()
        query = (
            lines.selectExpr("CAST(value AS STRING) value").writeStream.format("offsetlog")
            .option("path", root).option("topic", "orders").option("maintainInterval", "2s")
            .option("checkpointLocation", str(tmp_path / "checkpoint"))
            .trigger(processingTime="200 milliseconds").start()
        )  # fmt: skip
        try:
            until(lambda: _merged(log), 90)
            assert query.exception() is None and query.isActive
        finally:
            query.stop()
        values = sorted(int(value) for _, _, _, value, _ in _records(log, "orders"))
        assert values == list(range(len(values))) and values
        assert [r.faults for r in log.verify() if r.faults] == []


def _merged(log: Any) -> bool:
    folders = [folder for folder in log.store.folders("orders") if folder[0] != "_"]
    return any(list(log.store.list(f"orders/{folder}")) for folder in folders)
