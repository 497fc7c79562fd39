"""Topics as Delta tables, as delta-spark reads them: batches, versions, files, streams."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest

from tests.spark_plugin.live import with_delta

pytestmark = with_delta
NOW = int(time.time() * 1000) - 3_600_000


def send(log: Any, count: int, at: int = NOW) -> None:
    with log.producer() as producer:
        for n in range(count):
            headers = [("h", b"x")] if n % 3 == 0 else None
            producer.send("t", b"%d" % n, key=b"k%d" % (n % 5), headers=headers, timestamp=at + n)
        producer.flush()


@pytest.fixture(autouse=True)
def topic(log: Any) -> None:
    log.create_topic("t", partitions=2, config={"table.format": "delta"})


def path_of(log: Any) -> str:
    return str(log.topic("t").table().path)


def places(frame: Any) -> list[tuple[int, int]]:
    return sorted(
        (row.partition, row.offset) for row in frame.select("partition", "offset").collect()
    )


def test_batches_versions_and_files(spark: Any, log: Any) -> None:
    counts = []
    for n in range(12):
        send(log, 20 + n, NOW + 60_000 * n)
        log.maintain()
        counts.append(20 + n)
    table = spark.read.format("delta").load(path_of(log))
    assert dict(table.dtypes) == {
        "partition": "int",
        "offset": "bigint",
        "timestamp": "timestamp",
        "key": "binary",
        "value": "binary",
        "headers": "array<struct<key:string,value:binary>>",
    }
    columns = ["partition", "offset", "key", "value", "timestamp"]
    own = spark.read.format("offsetlog").option("subscribe", "t")
    own = own.load(str(Path(path_of(log)).parent)).select(columns).collect()
    assert sorted(table.select(columns).collect()) == sorted(own)
    assert len(own) == sum(counts)
    for version in (0, 11):
        then = spark.read.format("delta").option("versionAsOf", version).load(path_of(log))
        assert then.count() == sum(counts[: version + 1])
    files = table.select("_metadata.file_name", "offset").collect()
    for row in files:
        base, end = (int(number) for number in row.file_name.split("-")[:2])
        assert base <= row.offset < end
    last = table.where(f"timestamp >= timestamp_millis({NOW + 60_000 * 11})")
    assert last.count() == counts[-1]
    history = spark.sql(f"describe history delta.`{path_of(log)}`").collect()
    assert [row.operation for row in history] == ["PUBLISH"] * 12


def test_nobody_else_writes_to_it(spark: Any, log: Any) -> None:
    for _ in range(2):
        send(log, 50)
        log.maintain()
    path = path_of(log)
    spark.conf.set("spark.databricks.delta.retentionDurationCheck.enabled", "false")
    row = spark.read.format("delta").load(path).limit(1)
    Path(path, "partition=0", f"{9:020d}-{'a' * 32}.parquet").touch()
    for write in (
        lambda: row.write.format("delta").mode("append").save(path),
        lambda: row.write.format("delta").mode("overwrite").save(path),
        *(
            lambda text=text: spark.sql(text.format(f"delta.`{path}`"))
            for text in (
                "delete from {} where offset = 1",
                "update {} set key = null",
                "optimize {}",
                "vacuum {} retain 0 hours",
                "alter table {} set tblproperties ('delta.appendOnly' = 'true')",
            )
        ),
    ):
        with pytest.raises(Exception, match="(?i)feature.*offsetlog|offsetlog.*feature"):
            write()
    assert spark.read.format("delta").load(path).count() == 100
    assert Path(path, "partition=0", f"{9:020d}-{'a' * 32}.parquet").exists()
    assert log.topic("t").table().version == 1


def test_a_stream_over_the_table_sees_each_record_once(
    spark: Any, log: Any, tmp_path: Path
) -> None:
    """Also where files are rewritten, and where records are deleted, which it is told to skip."""
    seen: list[tuple[int, int]] = []

    def run(**options: str) -> None:
        reader = spark.readStream.format("delta").options(**options).load(path_of(log))
        query = (
            reader.writeStream.foreachBatch(lambda frame, _: seen.extend(places(frame)))
            .option("checkpointLocation", str(tmp_path / "checkpoint"))
            .trigger(availableNow=True)
            .start()
        )
        try:
            assert query.awaitTermination(120)
        finally:
            query.stop()

    for n in range(12):
        send(log, 10, NOW + n)
        log.maintain()
        if n in (2, 11):
            run()
    assert sorted(seen) == [
        (p, n) for p, end in log.topic("t").end_offsets().items() for n in range(end)
    ]
    assert len(seen) == 120
    files = [
        a for a in Path(path_of(log), "_delta_log").glob("*.json") if '"remove"' in a.read_text()
    ]
    assert files, "nothing was rewritten"
    log.topic("t").delete_records({0: 7})
    send(log, 10)
    log.maintain()
    with pytest.raises(Exception, match="DELETE|delete"):
        run()
    run(ignoreDeletes="true")
    assert len(seen) == len(set(seen)) == 130
    log.topic("t").delete_records({1: 3})
    send(log, 10)
    log.maintain()
    run(skipChangeCommits="true")
    assert len(seen) == len(set(seen)) == 140


def test_a_table_that_was_turned_off_is_refused_and_not_empty(spark: Any, log: Any) -> None:
    send(log, 20)
    log.maintain()
    path = path_of(log)
    log.topic("t").alter(config={"table.format": "none"})
    log.maintain()
    with pytest.raises(Exception, match="offsetlog-closed"):
        spark.read.format("delta").load(path).count()
    log.topic("t").alter(config={"table.format": "delta"})
    log.maintain()
    assert spark.read.format("delta").load(path).count() == 20
