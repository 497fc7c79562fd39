"""The jobs of the figures, as a user types them: reads into ``noop``, writes of the same rows.

1. A job is timed from the call until Spark is done; what is dirty on the disk is synced before.
2. Every read is a read of all rows and checks nothing: ``checked`` counts them, outside the time.
3. Ours runs where ``tasks_in`` says: in Spark's JVM, or in Python.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from time import perf_counter
from typing import Any

from bench.peers.process import PeerUnavailableError
from bench.spark.rows import TOPIC, Rows

COLUMNS = ("key", "value", "topic", "partition", "offset", "timestamp", "timestampType")
RAISED = {
    "kafka.max.partition.fetch.bytes": str(32 << 20),
    "kafka.fetch.max.bytes": str(128 << 20),
    "kafka.max.poll.records": "50000",
    "kafka.receive.buffer.bytes": str(1 << 20),
}
"""Fetch sizes of a Kafka consumer that is set up for throughput."""
BATCHED = {"kafka.batch.size": str(1 << 20), "kafka.linger.ms": "20"}
"""The same for a producer; its other settings are the defaults, ``acks=all`` among them."""
CODECS = ("none", "gzip", "lz4", "zstd", "snappy")


def seconds(job: Callable[[], object]) -> float:
    """How long a job takes, on a disk that has nothing left to write."""
    os.sync()
    begin = perf_counter()
    job()
    return perf_counter() - begin


def into_noop(frame: Any) -> None:
    """Read all of a frame and keep nothing."""
    frame.write.format("noop").mode("overwrite").save()


def checked(frame: Any, rows: int) -> None:
    """Stop if a source has not got all rows."""
    seen = frame.count()
    if seen != rows:
        raise RuntimeError(f"{seen} rows were read; there are {rows}")


@contextmanager
def tasks_in(spark: Any, reader: str) -> Iterator[None]:
    """Queries of ours that are planned in this block read and write in the ``jvm``, or in
    ``python``."""
    from offsetlog.spark_jar import spark_jar
    from pyspark_offsetlog.runtime.jar import SETTING

    jar = spark_jar(spark.version)
    if reader == "jvm" and jar.path is None:
        raise PeerUnavailableError(f"the figures of Spark's JVM need the jar: {jar.reason}")
    spark.conf.set(SETTING, reader)
    try:
        yield
    finally:
        spark.conf.unset(SETTING)


def checked_jvm(frame: Any, rows: int) -> None:
    """Stop if the JVM itself has not read all rows."""
    without_value = frame.where("value IS NULL")
    without_value.collect()
    leaves = without_value._jdf.queryExecution().executedPlan().collectLeaves()
    metric = leaves.apply(0).metrics().get("rowsOfJvm")
    seen = metric.get().value() if metric.isDefined() else 0
    if seen != rows:
        raise RuntimeError(f"the JVM read {seen} rows; there are {rows}")


# --- reading -------------------------------------------------------------------------------


def read_ours(spark: Any, rows: Rows) -> Any:
    """Our topic from its start to its end."""
    return read_topic(spark, rows.root)


def read_topic(spark: Any, root: str, **options: str) -> Any:
    """The same of a log anywhere."""
    reader = spark.read.format("offsetlog").option("subscribe", TOPIC).options(**options)
    return reader.option("startingOffsets", "earliest").load(root)


def read_parquet(spark: Any, rows: Rows) -> Any:
    """The seven columns from plain Parquet: what is not stored is computed."""
    return read_files(spark, rows.scan)


def read_files(spark: Any, folder: str) -> Any:
    """The same of files anywhere."""
    from pyspark.sql import functions as sql

    return spark.read.parquet(folder).select(
        "key",
        "value",
        sql.lit(TOPIC).alias("topic"),
        "partition",
        sql.col("_metadata.row_index").alias("offset"),
        "timestamp",
        sql.lit(0).alias("timestampType"),
    )


def read_kafka(spark: Any, address: str, topic: str, raised: bool) -> Any:
    """A Kafka topic from its start to its end."""
    reader = spark.read.format("kafka").option("kafka.bootstrap.servers", address)
    reader = reader.option("subscribe", topic).option("startingOffsets", "earliest")
    return reader.options(**(RAISED if raised else {})).load()


def stream_to_noop(stream: Any, checkpoint: Path) -> None:
    """All that is there now, as a stream with a checkpoint of its own."""
    writer = stream.writeStream.format("noop").option("checkpointLocation", str(checkpoint))
    writer.trigger(availableNow=True).start().awaitTermination()


def stream_ours(spark: Any, rows: Rows) -> Any:
    reader = spark.readStream.format("offsetlog").option("subscribe", TOPIC)
    return reader.option("startingOffsets", "earliest").load(rows.root)


def stream_delta(spark: Any, table: str) -> Any:
    return spark.readStream.format("delta").load(table)


# --- writing -------------------------------------------------------------------------------


def source_of(spark: Any, rows: Rows, *columns: str) -> Any:
    """What the sinks are fed from."""
    return spark.read.parquet(rows.input).select(*columns)


def write_ours(spark: Any, rows: Rows, root: str, topic: str) -> None:
    """By key: the sink finds each record's partition."""
    writer = source_of(spark, rows, "key", "value").write.format("offsetlog")
    writer.option("topic", topic).mode("append").save(root)


def write_parquet(spark: Any, rows: Rows, path: str) -> None:
    """The partition of each row comes as a column."""
    source_of(spark, rows, "key", "value", "partition").write.partitionBy("partition").parquet(path)


def write_delta(spark: Any, rows: Rows, path: str) -> None:
    """Laid out as the Parquet is; without ``partitionBy`` it is as fast, and larger."""
    writer = source_of(spark, rows, "key", "value", "partition").write.format("delta")
    writer.partitionBy("partition").save(path)


def write_kafka(spark: Any, rows: Rows, address: str, topic: str, codec: str) -> None:
    """By key, as a Kafka client does it."""
    writer = source_of(spark, rows, "key", "value").write.format("kafka").options(**BATCHED)
    writer = writer.option("kafka.bootstrap.servers", address).option("topic", topic)
    writer.option("kafka.compression.type", codec).save()


def delta_table(spark: Any, rows: Rows) -> str:
    """The rows as a Delta table with all that is not the same everywhere; made once."""
    from pyspark.sql import functions as sql

    path = rows.place / "delta"
    if not path.exists():
        stored = spark.read.parquet(rows.scan).select(
            "key",
            "value",
            "partition",
            sql.col("_metadata.row_index").alias("offset"),
            "timestamp",
        )
        stored.write.format("delta").save(str(path))
    return str(path)


def size_of(folder: Path, pattern: str = "*") -> int:
    """Bytes of all files below a folder."""
    return sum(file.stat().st_size for file in folder.rglob(pattern) if file.is_file())


def drop(folder: str) -> None:
    """Take away what a write made, so that the disk does not fill up. It is a few dozen files,
    and no figure that makes many small ones runs near it."""
    shutil.rmtree(folder, ignore_errors=True)
