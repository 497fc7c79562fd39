"""Run by test_connect: Spark Connect, with a server of its own on this machine."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import offsetlog
import offsetlog.spark
from tests.servers.process import free_port
from tests.spark_plugin.story import report, run_to_the_end, story


def main(place: Path) -> None:
    from pyspark.sql import SparkSession
    from pyspark.sql.connect.client import DefaultChannelBuilder

    # A client of "local" knows no other port than the usual one, which may be in use.
    port = free_port()
    DefaultChannelBuilder.default_port = staticmethod(lambda: port)
    builder = SparkSession.builder.remote("local[2]")
    for name, value in {
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.connect.grpc.binding.address": "127.0.0.1",
        "spark.connect.grpc.binding.port": str(port),
        "spark.ui.enabled": "false",
        # A Python that starts slowly, on a busy machine, is no failure.
        "spark.python.authSocketTimeout": "120s",
        "spark.sql.shuffle.partitions": "2",
        "spark.log.level": "ERROR",
        "spark.local.dir": str(place / "local"),
        "spark.sql.warehouse.dir": str(place / "warehouse"),
    }.items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    report(session=type(spark).__module__)
    root = str(place / "log")
    report(story=story(spark, root, {}, place, brief=True))
    offsetlog.spark.register(spark)
    orders = spark.read.format("offsetlog").option("subscribe", "orders").load(root)
    report(registered=orders.count())
    report(views=_views(spark, root))
    report(batches=_foreach_batch(spark, root, place))
    spark.conf.set("spark.sql.connect.serverStacktrace.enabled", "false")
    try:
        spark.read.format("offsetlog").option("subscribe", "odrers").load(root).count()
    except Exception as error:
        report(error=str(error))
    spark.stop()


def _views(spark: Any, root: str) -> list[int]:
    """Through the client: this server has no Delta."""
    offsetlog.spark.views(spark, root)
    behind = spark.sql("SELECT sum(lag_records) AS n FROM offsetlog_lag WHERE group = 'copier'")
    facts = spark.sql("SELECT count(*) AS n FROM offsetlog_offsets WHERE kind = 'commit'")
    return [frame.collect()[0]["n"] for frame in (behind, facts)]


def _foreach_batch(spark: Any, root: str, place: Path) -> dict[str, Any]:
    counts = str(place / "counts")

    def note(frame: Any, batch: int) -> None:
        with open(counts, "a") as out:
            out.write(f"{frame.count()}\n")

    watch = offsetlog.spark.watch_lag(spark, lambda told: None, root=root)
    try:
        _count(spark, root, place, note)
        watch.wait(30)
    finally:
        watch.stop()
    return {
        "counts": [int(line) for line in Path(counts).read_text().split()],
        "lags": [told.lag.total.records for told in watch.history],
        "bytes are known": all(told.lag.total.bytes is not None for told in watch.history),
    }


def _count(spark: Any, root: str, place: Path, note: Any) -> None:
    writer = (
        spark.readStream.format("offsetlog")
        .options(subscribe="orders", startingOffsets="earliest", maxOffsetsPerTrigger="40")
        .load(root)
        .writeStream.foreachBatch(note)
        .queryName("counting")
        .option("checkpointLocation", str(place / "counting"))
    )
    run_to_the_end(writer)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
