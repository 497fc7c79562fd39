"""The offsets table is a Delta table like any other: delta-spark reads it as it is."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import offsetlog


def _commits(log: Any, group: str, count: int) -> None:
    with log.consumer(group=group, topics=["orders"], auto_offset_reset="earliest") as consumer:
        for _ in range(count):
            consumer.poll(timeout=1.0, max_records=2)
            consumer.commit()


def test_delta_spark_reads_what_the_groups_wrote(spark: Any, tmp_path: Path) -> None:
    with offsetlog.open(str(tmp_path)) as log:
        log.create_topic("orders", partitions=2)
        with log.producer() as producer:
            for number in range(40):
                producer.send("orders", b"%d" % number, partition=number % 2).result()
        _commits(log, "billing", 6)
        _commits(log, "shipping", 3)
        log.group("shipping").reset("orders", to="earliest", dry_run=False)
        for looked_after in (False, True):
            if looked_after:
                log.maintain(grace_ms=0)
                _commits(log, "billing", 2)
            _compare(spark, log, tmp_path / "__consumer_offsets")


def _compare(spark: Any, log: Any, table: Path) -> None:
    """Every column of every row, and the positions that follow from them."""
    rows = [row.asDict() for row in spark.read.format("delta").load(str(table)).collect()]
    named = {"group", "topic", "partition", "offset", "metadata", "committed_at", "generation"}
    assert named | {"member", "kind"} <= set(rows[0])
    moving = [row for row in rows if row["kind"] in ("commit", "reset", "release")]
    latest: dict[tuple[str, str, int], int | None] = {}
    for row in sorted(moving, key=lambda row: (row["version"], row["place"])):
        if row["offset"] is not None:
            latest[row["group"], row["topic"], row["partition"]] = row["offset"]
    positions = {
        (said["group"], said["topic"], said["partition"]): said["offset"]
        for said in log.positions().to_pylist()
    }
    assert latest == positions
    assert {key[0] for key in positions} == {"billing", "shipping"}
    assert positions["shipping", "orders", 0] == 0
    assert positions["billing", "orders", 0] + positions["billing", "orders", 1] >= 12
