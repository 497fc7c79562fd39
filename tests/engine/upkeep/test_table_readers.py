"""The table of a topic in other engines than Spark: DuckDB, Polars and DataFusion give the same."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import offsetlog

duckdb = pytest.importorskip("duckdb")
polars = pytest.importorskip("polars")
extension = pytest.importorskip("duckdb_extension_delta")

HOUR_MS = 3_600_000
NOW = int(time.time() * 1000) // HOUR_MS * HOUR_MS - 6 * HOUR_MS
Answer = list[tuple[Any, ...]]


def in_duckdb(path: str, where: str) -> Answer:
    [file] = Path(extension.__file__).parent.rglob("*.duckdb_extension")
    with duckdb.connect(config={"allow_unsigned_extensions": "true"}) as connection:
        connection.execute(f"load '{file}'")
        query = f"""select partition, "offset", epoch_ms(timestamp), key, value, headers
                    from delta_scan('{path}') where {where} order by 1, 2"""
        rows: Answer = connection.execute(query).fetchall()
    return [(*row[:5], [tuple(h.values()) for h in row[5] or []]) for row in rows]


def in_polars(path: str, where: str) -> Answer:
    frame = polars.scan_delta(path)
    rows = polars.SQLContext(t=frame).execute(f"select * from t where {where}").collect()
    rows = rows.with_columns(polars.col("timestamp").dt.epoch("ms")).sort("partition", "offset")
    return [(*row[:5], [tuple(h.values()) for h in row[5] or []]) for row in rows.rows()]


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Files with keys and without, with headers and without, rewritten and divided."""
    root = str(tmp_path_factory.mktemp("tables"))
    with offsetlog.open(root) as log:
        log.create_topic("t", partitions=3, config={"table.format": "delta"})
        for hour in range(6):
            with log.producer() as producer:
                for n in range(50):
                    key = b"k%d" % (n % 7) if hour % 2 else None
                    headers = [("h", b"x"), ("no", None)] if hour % 3 == 0 else None
                    at = NOW + hour * HOUR_MS + n
                    producer.send("t", b"%d" % n, key=key, headers=headers, timestamp=at)
            log.maintain()
        log.topic("t").delete_records({0: 7})
        log.maintain()
        return str(log.topic("t").table().path)


@pytest.mark.parametrize("read", [in_duckdb, in_polars])
@pytest.mark.parametrize(
    "where", ["true", "partition = 1", 'partition = 2 and "offset" >= 20', "key = 'k3'::blob"]
)
def test_each_reader_gives_the_records(
    path: str, read: Callable[[str, str], Answer], where: str
) -> None:
    if read is in_polars:
        where = where.replace("'k3'::blob", "x'6b33'").replace("where true", "where 1 = 1")
    with offsetlog.open(str(Path(path).parent)) as log, log.consumer() as consumer:
        consumer.assign([("t", p) for p in range(3)])
        consumer.seek_to_beginning()
        records = []
        while batch := consumer.poll(timeout=0.1):
            records += batch
    tests: dict[str, Callable[[Any], bool]] = {
        "true": lambda r: True,
        "partition = 1": lambda r: r.partition == 1,
        'partition = 2 and "offset" >= 20': lambda r: r.partition == 2 and r.offset >= 20,
    }
    chosen = tests.get(where, lambda r: r.key == b"k3")
    own = sorted(
        (r.partition, r.offset, r.timestamp, r.key, r.value, r.headers)
        for r in records
        if chosen(r)
    )
    assert own
    assert read(path, where) == own


def test_a_query_by_time_reads_the_files_of_that_time(path: str) -> None:
    hour = NOW + 3 * HOUR_MS
    rows = in_duckdb(path, f"epoch_ms(timestamp) between {hour} and {hour + HOUR_MS - 1}")
    assert len(rows) == 50
    plan = polars.scan_delta(path).filter(
        polars.col("timestamp")
        >= polars.from_epoch(polars.lit(hour + 2 * HOUR_MS), "ms").dt.replace_time_zone("UTC")
    )
    assert plan.collect().height == 50
