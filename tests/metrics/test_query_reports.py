"""The reports of running queries, beside the metrics of a log or without one."""

from __future__ import annotations

import pytest

from offsetlog.core.group.lag import Lag
from offsetlog.metrics import Metrics
from pyspark_offsetlog.about.lag_report import LagReport
from tests.metrics.scrapes import parsed, value

pytestmark = pytest.mark.root_in("local", "memory")


def report(query: str, run_id: str, records: int | None, seconds: float | None = 1.5) -> LagReport:
    line = Lag("orders", 0, 5, 0, 9, records, records, seconds, 0, False, None, "")
    return LagReport(query, run_id, 3, "2026-03-01T12:00:00Z", (), (line,))


def test_the_newest_report_of_each_query_counts_until_its_run_ends() -> None:
    metrics = Metrics()
    assert parsed(metrics.text()) == {}
    metrics.report(report("etl", "run-1", 9))
    metrics.report(report("other", "run-2", 4))
    metrics.report(report("etl", "run-1", 7))
    labels = {"topic": "orders", "partition": 0}
    series = parsed(metrics.text())
    assert value(series, "offsetlog_query_lag", query="etl", **labels) == 7
    assert value(series, "offsetlog_query_lag", query="other", **labels) == 4
    assert value(series, "offsetlog_query_lag_seconds", query="etl", **labels) == 1.5
    assert list(metrics.reports) == ["etl", "other"]
    # The query was started anew before its old run was seen to end.
    metrics.report(report("etl", "run-3", 1))
    metrics.forget("run-1")
    assert value(parsed(metrics.text()), "offsetlog_query_lag", query="etl", **labels) == 1
    metrics.forget("run-3")
    metrics.forget("run-2")
    assert parsed(metrics.text()) == {}


def test_what_is_not_known_is_left_out() -> None:
    metrics = Metrics()
    metrics.report(report("etl", "run-1", None, None))
    assert {name for name, _ in parsed(metrics.text())} == {"offsetlog_query_current_offset"}


def test_beside_a_log(log) -> None:
    log.create_topic("orders")
    metrics = Metrics(log)
    metrics.report(report('e"t\\l\n', "run-1", 9))
    series = parsed(metrics.text())
    assert value(series, "kafka_topic_partitions", topic="orders") == 1
    labels = {"query": 'e"t\\l\n', "topic": "orders", "partition": 0}
    assert value(series, "offsetlog_query_lag", **labels) == 9
