"""The lag of running queries: with every progress, beside the query, whatever goes wrong."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import pyspark
import pytest

import offsetlog
import offsetlog.spark
from offsetlog.metrics import Metrics
from pyspark_offsetlog.about.lag_report import HEAD
from tests.metrics.scrapes import parsed, value
from tests.spark_plugin.live import keeps_limits
from tests.waiting import until


@pytest.fixture(autouse=True)
def records(log: Any, orders: Any) -> None:
    with log.producer() as producer:
        for number in range(40):
            producer.send("orders", b"x" * 10, partition=number % 2)


def _query(spark: Any, log: Any, place: Path, name: str, **options: Any) -> Any:
    reader = spark.readStream.format("offsetlog").option("subscribe", "orders")
    reader = reader.option("startingOffsets", "earliest").options(**options)
    trigger: dict[str, Any]
    trigger = {"availableNow": True} if keeps_limits(spark) else {"processingTime": "0 seconds"}
    return (
        reader.load(log.url)
        .writeStream.queryName(name)
        .option("checkpointLocation", str(place / name))
        .foreachBatch(lambda frame, batch: frame.count())
        .trigger(**trigger)
        .start()
    )


def _ended(query: Any, watch: Any) -> None:
    if not keeps_limits(pyspark.sql.SparkSession.active()):
        query.processAllAvailable()
        query.stop()
    assert query.awaitTermination(60)
    assert watch.wait(20)


@pytest.mark.every_line
def test_every_progress_is_reported(spark: Any, log: Any, tmp_path: Path) -> None:
    reports: list[Any] = []
    watch = offsetlog.spark.watch_lag(spark, reports.append)
    try:
        options = {"maxOffsetsPerTrigger": 20, "group.id": "billing"}
        _ended(_query(spark, log, tmp_path, "counting", **options), watch)
    finally:
        watch.stop()
    assert watch.history[-1] == reports[-1] == watch.last["counting"]
    assert [report.query for report in reports] == ["counting"] * len(reports)
    assert reports[-1].groups == ("billing",)
    assert reports[-1].lag == {("orders", 0): 0, ("orders", 1): 0}
    assert reports[-1].lag.total.bytes == 0 and reports[-1].lag.total.seconds == 0
    first = reports[0]
    assert [(line.committed, line.records) for line in first.lines] == [(10, 10), (10, 10)]
    assert all(line.bytes >= 100 and line.seconds > 0 for line in first.lines)
    assert {row["records"] for row in watch.rows()} == {0, 10}
    assert "counting" in watch._repr_html_() and "orders" in watch._repr_html_()


def test_metrics_have_the_queries_that_run(
    spark: Any, log: Any, tmp_path: Path, capsys: Any
) -> None:
    metrics = Metrics(log)
    scrapes: list[Any] = []
    watch = offsetlog.spark.watch_lag(
        spark, lambda report: scrapes.append(parsed(metrics.text())), metrics=metrics
    )
    quiet = offsetlog.spark.watch_lag(spark, metrics=Metrics())
    try:
        _ended(_query(spark, log, tmp_path, "scraped", maxOffsetsPerTrigger=20), watch)
        until(lambda: not metrics.reports)
    finally:
        quiet.stop()
        watch.stop()
    labels = {"query": "scraped", "topic": "orders", "partition": 1}
    first, last = scrapes[0], scrapes[-1]
    assert value(first, "offsetlog_query_lag", **labels) == 10
    assert value(first, "offsetlog_query_current_offset", **labels) == 10
    assert value(first, "offsetlog_query_lag_bytes", **labels) >= 100
    assert value(last, "offsetlog_query_lag", **labels) == 0
    assert value(last, "kafka_topic_partition_current_offset", topic="orders", partition=1) == 20
    assert "offsetlog_query" not in metrics.text() and capsys.readouterr().out == ""


def test_a_table_is_printed(spark: Any, log: Any, tmp_path: Path, capsys: Any) -> None:
    watch = offsetlog.spark.watch_lag(spark, queries=("shown",))
    try:
        _ended(_query(spark, log, tmp_path, "hidden"), watch)
        _ended(_query(spark, log, tmp_path, "shown", maxOffsetsPerTrigger=20), watch)
    finally:
        watch.stop()
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith("shown, batch 0: 20 records, ")
    assert tuple(lines[1].split()) == HEAD
    assert lines[2].split()[:5] == ["orders", "0", "10", "20", "10"]
    assert not any("hidden" in line for line in lines)


def test_trouble_is_told_once_and_the_query_goes_on(
    spark: Any, log: Any, tmp_path: Path, capsys: Any
) -> None:
    def fail(report: Any) -> None:
        raise ValueError("the dashboard is down")

    watch = offsetlog.spark.watch_lag(spark, fail)
    try:
        query = _query(spark, log, tmp_path, "failing", maxOffsetsPerTrigger=10)
        _ended(query, watch)
    finally:
        watch.stop()
    assert query.exception() is None
    assert watch.last["failing"].lag.total.records == 0
    told = capsys.readouterr().err
    assert told.count("ValueError: the dashboard is down") == 1


def test_a_slow_callback_does_not_hold_the_query_up(spark: Any, log: Any, tmp_path: Path) -> None:
    let_go = threading.Event()
    seen: list[Any] = []

    def slow(report: Any) -> None:
        seen.append(report)
        let_go.wait(60)

    watch = offsetlog.spark.watch_lag(spark, slow)
    try:
        query = _query(spark, log, tmp_path, "hurrying", maxOffsetsPerTrigger=10)
        assert query.awaitTermination(60), "the query waited for its listener"
        assert not watch.wait(0.1)
        until(lambda: len(seen) == 1)
        let_go.set()
        assert watch.wait(20)
    finally:
        let_go.set()
        watch.stop()
    assert seen[-1].lag.total.records == 0
    assert len(seen) < 4, "of what waited, only the newest counts"


def test_other_sources_are_none_of_its_business(spark: Any, tmp_path: Path) -> None:
    watch = offsetlog.spark.watch_lag(spark)
    try:
        query = (
            spark.readStream.format("rate-micro-batch").option("rowsPerBatch", 1).load()
            .writeStream.format("noop").option("checkpointLocation", str(tmp_path / "rate"))
            .start()
        )  # fmt: skip
        until(lambda: query.lastProgress is not None)
        query.stop()
        assert watch.wait(20)
    finally:
        watch.stop()
    assert watch.last == {} and repr(watch) == "No progress yet."


def test_without_the_options_records_are_known(
    spark: Any, log: Any, tmp_path: Path, monkeypatch: Any
) -> None:
    monkeypatch.setattr("pyspark_offsetlog.about.listener._places_in", lambda query: None)
    blind = offsetlog.spark.watch_lag(spark, lambda report: None)
    told = offsetlog.spark.watch_lag(spark, lambda report: None, root=log.url)
    try:
        query = _query(spark, log, tmp_path, "blind", maxOffsetsPerTrigger=20)
        _ended(query, blind)
        _ended(query, told)
    finally:
        blind.stop()
        told.stop()
    assert blind.history[0].lag.total == (20, None, None)
    assert told.history[0].lag.total.records == 20
    assert told.history[0].lag.total.bytes >= 200
