"""A topic as a Delta table, read by an engine that is not ours (DuckDB).

A query over the whole table is held against the same query over the same files as plain Parquet;
one over an hour of a month against one over the month. Both use the values, so nothing is
answered from statistics.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from time import perf_counter
from typing import Any

from bench.figure import Case, Figure, Rig, Setting
from bench.workload import random_table

HOUR_MS = 3_600_000
FIRST = 1_700_000_000_000 // HOUR_MS * HOUR_MS
FIGURES = (
    Figure("table_query", "rows/s", "the same files as plain Parquet", 0.95, "higher"),
    Figure("table_hour", "queries/s", "the same query over the month", 20.0, "higher"),
)
SUMS = 'count(*), sum(octet_length(value)), sum(octet_length(key)), sum("offset"), max(timestamp)'


class _Queries:
    def __init__(self, connection: Any, path: str, rows: int, hours: int) -> None:
        self._connection = connection
        self._table = f"delta_scan('{path}')"
        self._files = f"read_parquet('{path}/partition=*/*.parquet', hive_partitioning=true)"
        self._rows, self._hours = rows, hours

    def _seconds(self, source: str, rows: int, where: str = "") -> float:
        begin = perf_counter()
        [(seen, *_)] = self._connection.execute(f"select {SUMS} from {source} {where}").fetchall()
        seconds = perf_counter() - begin
        if seen != rows:
            raise RuntimeError(f"{source} gave {seen} rows; there are {rows}")
        return seconds

    def ours(self) -> dict[str, float]:
        begin = FIRST + self._hours // 2 * HOUR_MS
        hour = f"where timestamp >= make_timestamptz({begin}000) and "
        hour += f"timestamp < make_timestamptz({begin + HOUR_MS}000)"
        return {
            "table_query": self._rows / self._seconds(self._table, self._rows),
            "table_hour": 1 / self._seconds(self._table, self._rows // self._hours, hour),
        }

    def peer(self) -> dict[str, float]:
        return {
            "table_query": self._rows / self._seconds(self._files, self._rows),
            "table_hour": 1 / self._seconds(self._table, self._rows),
        }


@contextmanager
def _rig(setting: Setting) -> Iterator[Rig]:
    import duckdb
    import duckdb_extension_delta

    import offsetlog

    hours, each = setting.pick((720, 20_000), (24, 500))
    with offsetlog.open(f"file://{setting.work}/log") as log:
        settings = {"table.format": "delta", "segment.bytes": 4 << 20, "retention.ms": -1}
        log.create_topic("orders", partitions=1, config=settings)
        _fill(log, hours, each)
        log.maintain("orders", grace_ms=0)
        log.maintain("orders", grace_ms=0)
        info = log.topic("orders").table()
        if info is None or info.end_offsets != {0: hours * each}:
            raise RuntimeError(f"the table is not up to date: {info}")
    [extension] = Path(duckdb_extension_delta.__file__).parent.rglob("*.duckdb_extension")
    with duckdb.connect(config={"allow_unsigned_extensions": "true"}) as connection:
        connection.execute(f"load '{extension}'")
        yield _Queries(connection, info.path, hours * each, hours)


def _fill(log: Any, hours: int, each: int) -> None:
    """So many records in each hour, as a producer sends them."""
    import numpy as np
    import pyarrow as pa

    table = random_table(each)
    with log.producer() as producer:
        for hour in range(hours):
            times = FIRST + hour * HOUR_MS + np.arange(each) * HOUR_MS // each
            column = pa.array(times, pa.timestamp("ms", tz="UTC"))
            producer.send_arrow("orders", table.append_column("timestamp", column))
            producer.flush()


CASES = (Case("table", FIGURES, _rig),)
