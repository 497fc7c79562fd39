"""The bare program beside Spark's source reads the rows that are there, and checks their sums."""

from __future__ import annotations

from pathlib import Path

import pytest

import offsetlog
from bench.floors.segments import segment_floor
from bench.peers.process import PeerUnavailableError
from bench.workload import random_table

ROWS = 40_000


def test_it_reads_every_row_and_checks_every_sum(tmp_path: Path) -> None:
    url = f"file://{tmp_path}"
    with offsetlog.open(url) as log:
        log.create_topic("orders", partitions=2)
        with log.producer() as producer:
            producer.send_arrow("orders", random_table(ROWS)).result()
    try:
        with segment_floor(threads=2) as floor:
            floor.add(url, "orders")
            assert floor.rows_a_second(ROWS) > 0
            assert floor.rows_a_second(ROWS, "value") > 0
            segment = next(tmp_path.rglob("partition=*/*.parquet"))
            data = bytearray(segment.read_bytes())
            data[len(data) // 2] ^= 1
            segment.write_bytes(data)
            with pytest.raises(RuntimeError, match="unreadable"):
                floor.rows_a_second(ROWS)
    except PeerUnavailableError as error:
        pytest.skip(str(error))
