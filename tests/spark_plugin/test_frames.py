"""What is known about a log, as frames and as views: it shows the present, wherever it lies."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import offsetlog
import offsetlog.spark
from offsetlog.errors import InvalidRequestError
from tests.servers.process import Place
from tests.spark_plugin.live import with_delta


@pytest.fixture(autouse=True)
def records(log: Any) -> None:
    _fill(log)


def _fill(log: Any) -> None:
    log.create_topic("orders", partitions=2)
    with log.producer() as producer:
        for number in range(20):
            producer.send("orders", b"x" * 10, partition=number % 2)


def _commit(log: Any, group: str, *offsets: int) -> None:
    with log.consumer(group=group, topics=["orders"], enable_auto_commit=False) as consumer:
        consumer.poll(timeout=0.1)
        consumer.commit({("orders", p): offset for p, offset in enumerate(offsets)})


def _rows(frame: Any, *columns: str) -> list[tuple[Any, ...]]:
    return sorted(tuple(row) for row in frame.select(*columns).collect())


def test_views_show_the_present(spark: Any, log: Any) -> None:
    names = offsetlog.spark.views(spark, log.url)
    assert names == tuple(f"offsetlog_{n}" for n in ("offsets", "positions", "lag", "topics"))
    ask = (
        "SELECT group, partition, lag_records FROM offsetlog_lag "
        "WHERE group = 'billing' ORDER BY partition"
    )
    assert spark.sql(ask).collect() == []
    assert spark.sql("SELECT count(*) FROM offsetlog_offsets").collect()[0][0] == 0
    _commit(log, "billing", 4, 10)
    assert [tuple(row) for row in spark.sql(ask).collect()] == [
        ("billing", 0, 6),
        ("billing", 1, 0),
    ]
    log.group("billing").reset("orders", to="earliest", dry_run=False)
    assert [row["lag_records"] for row in spark.sql(ask).collect()] == [10, 10]
    with log.producer() as producer:
        producer.send("orders", b"y", partition=1)
    assert [row["lag_records"] for row in spark.sql(ask).collect()] == [10, 11]
    positions = spark.sql("SELECT topic, partition, offset, kind FROM offsetlog_positions")
    assert _rows(positions, "partition", "offset", "kind") == [(0, 0, "reset"), (1, 0, "reset")]
    ends = spark.sql("SELECT partition, end_offset, records FROM offsetlog_topics")
    assert _rows(ends, "partition", "end_offset", "records") == [(0, 10, 10), (1, 11, 11)]


def test_lag_is_what_the_client_says(spark: Any, log: Any) -> None:
    _commit(log, "billing", 4, 10)
    _commit(log, "audit", 0, 1)
    rows = {
        (row["group"], row["partition"]): row
        for row in offsetlog.spark.lag(spark, log.url).collect()
    }
    assert rows.keys() == {(g, p) for g in ("audit", "billing") for p in (0, 1)}
    for name in ("audit", "billing"):
        for line in log.group(name).describe().partitions:
            row = rows[name, line.partition]
            assert row["committed"] == line.committed
            assert row["lag_records"] == line.records
            assert row["lag_bytes"] == line.bytes
            assert (row["lag_seconds"] > 0) == (line.seconds is not None and line.seconds > 0)
            assert (row["log_start"], row["log_end"]) == (line.start, line.end)
    only = offsetlog.spark.lag(spark, log.url, "audit")
    assert _rows(only, "group", "partition") == [("audit", 0), ("audit", 1)]


@with_delta
def test_delta_and_the_client_read_the_same_facts(spark: Any, log: Any) -> None:
    _commit(log, "billing", 4, 10)
    _commit(log, "audit", 0, 1)
    through_delta = offsetlog.spark.offsets(spark, log.url, delta=True)
    by_client = offsetlog.spark.offsets(spark, log.url, delta=False)
    assert through_delta.columns == by_client.columns
    assert dict(through_delta.dtypes) == dict(by_client.dtypes)
    assert _all(through_delta) == _all(by_client)
    assert len(_all(by_client)) > 4
    for delta in (True, False):
        one = offsetlog.spark.offsets(spark, log.url, "audit", delta=delta)
        assert {row["group"] for row in one.collect()} == {"audit"}
    _commit(log, "late", 1)
    # Delta holds a frame to what its first action saw; what is made of it looks anew.
    assert _all(through_delta.select("*")) == _all(by_client)
    assert "late" in {row["group"] for row in by_client.collect()}


def _all(frame: Any) -> list[tuple[Any, ...]]:
    return sorted((tuple(row) for row in frame.collect()), key=lambda row: row[-2:])


@with_delta
def test_a_root_that_delta_does_not_reach(spark: Any, capfd: Any, seaweedfs: Place) -> None:
    url, options = f"{seaweedfs.url}/frames", seaweedfs.options
    with offsetlog.open(url, **options) as log:
        _fill(log)
        _commit(log, "billing", 4, 10)
        frame = offsetlog.spark.offsets(spark, url, **options)
        told = capfd.readouterr().err
        assert "S3AFileSystem" in told and "offsetlog's own client reads" in told
        assert options["secret"] not in told
        committed = frame.where("kind = 'commit'")
        assert _rows(committed, "partition", "offset") == [(0, 4), (1, 10)]
        with pytest.raises(InvalidRequestError, match="S3AFileSystem not found"):
            offsetlog.spark.offsets(spark, url, delta=True, **options)
        lag = offsetlog.spark.lag(spark, url, **options)
        assert _rows(lag, "partition", "lag_records") == [(0, 6), (1, 0)]


def test_a_root_in_memory_is_copied(spark: Any) -> None:
    with offsetlog.open("memory://frames") as log:
        _fill(log)
        assert offsetlog.spark.lag(spark, "memory://frames").collect() == []
        _commit(log, "billing", 4, 10)
        frame = offsetlog.spark.lag(spark, "memory://frames")
        offsetlog.spark.views(spark, "memory://frames", prefix="mem_")
        _commit(log, "billing", 10, 10)
        assert _rows(frame, "partition", "lag_records") == [(0, 6), (1, 0)]
        seen = spark.table("mem_offsets").where("kind = 'commit'")
        assert _rows(seen, "partition", "offset") == [(0, 4), (1, 10)]
        assert spark.table("mem_topics").count() == 2


def test_another_place_for_the_offsets_table(spark: Any, log: Any, tmp_path: Path) -> None:
    where = str(tmp_path / "elsewhere")
    with offsetlog.open(log.url, offsets_table=where) as other:
        _commit(other, "billing", 3, 3)
    frame = offsetlog.spark.positions(spark, log.url, offsets_table=where)
    assert _rows(frame, "partition", "offset") == [(0, 3), (1, 3)]
    assert offsetlog.spark.positions(spark, log.url).collect() == []


def test_sql_alone(spark: Any, log: Any) -> None:
    _commit(log, "billing", 4, 10)
    spark.sql(
        "CREATE OR REPLACE TEMPORARY VIEW mine USING offsetlog "
        f"OPTIONS (path '{log.url}', table 'lag', `group.id` 'billing')"
    )
    total = spark.sql("SELECT sum(lag_records) AS behind FROM mine").collect()
    assert [row["behind"] for row in total] == [6]


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"table": "lags"}, "table cannot be 'lags'.*offsets, positions, lag, topics"),
        ({"table": "lag", "subscribe": "orders"}, "'subscribe' is not an option of a table"),
        ({"table": "lag", "group.id": "no/slash"}, "group"),
    ],
)
def test_options_that_are_wrong(spark: Any, log: Any, options: dict[str, str], told: str) -> None:
    with pytest.raises(Exception, match=told):
        spark.read.format("offsetlog").options(**options).load(log.url).collect()


def test_a_root_that_is_not_there(spark: Any, tmp_path: Path) -> None:
    nowhere = str(tmp_path / "nowhere")
    with pytest.raises(Exception, match="There is no log at") as caught:
        offsetlog.spark.lag(spark, nowhere).collect()
    assert "Traceback" not in str(caught.value)
    with pytest.raises(InvalidRequestError, match="There is no log at"):
        offsetlog.spark.offsets(spark, nowhere)
    with pytest.raises(InvalidRequestError, match="A view cannot begin with"):
        offsetlog.spark.views(spark, nowhere, prefix="my views")
