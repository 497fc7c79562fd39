"""The demo's Spark program: ``python -m offsetlog.demo.spark_queries FOLDER``.

One query streams JSON files into the topic. Another one reads the topic as the group ``billing``,
and bills each order.

Invariant: it is a program as a user would write it. It knows nothing of the crash to come, and is
restarted by the same command.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import offsetlog.spark
from offsetlog.demo.billing import Billing
from offsetlog.demo.orders import GROUP, TOPIC
from offsetlog.demo.program import when_stdin_ends

SCHEMA = "sender STRING, number LONG, customer STRING, price LONG, pieces LONG"
BATCH_RECORDS = 5000
FILES_PER_BATCH = 10
LOG4J = """rootLogger.level = error
rootLogger.appenderRef.stderr.ref = console
appender.console.type = Console
appender.console.name = console
appender.console.target = SYSTEM_ERR
appender.console.layout.type = PatternLayout
appender.console.layout.pattern = %d{HH:mm:ss} %p %c{1}: %m%n%ex{short}
"""


def settings(folder: Path) -> dict[str, str]:
    """A session for a small machine."""
    temporary = folder / "tmp"
    temporary.mkdir(exist_ok=True)
    (folder / "log4j2.properties").write_text(LOG4J)
    java = f"-Dlog4j2.configurationFile={(folder / 'log4j2.properties').as_uri()}"
    java += f" -Djava.io.tmpdir={temporary}"
    sockets = str(temporary)
    return {
        "spark.ui.enabled": "false",
        "spark.sql.shuffle.partitions": "2",
        "spark.local.dir": str(folder / "spark"),
        "spark.sql.warehouse.dir": str(folder / "spark" / "warehouse"),
        # The path of a socket must be short.
        "spark.python.unix.domain.socket.dir": sockets if len(sockets) < 60 else "/tmp",
        "spark.driver.memory": "1g",
        # It runs only briefly: compile less, start sooner.
        "spark.driver.extraJavaOptions": f"{java} -XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
    }


def write_orders(spark: Any, folder: Path) -> Any:
    """JSON files -> topic, exactly once."""
    incoming = (
        spark.readStream.schema(SCHEMA)
        .option("maxFilesPerTrigger", FILES_PER_BATCH)
        .json(str(folder / "incoming"))
    )
    return (
        incoming.selectExpr("customer AS key", "to_json(struct(*)) AS value")
        .writeStream.format("offsetlog")
        .option("topic", TOPIC)
        .option("checkpointLocation", str(folder / "checkpoints" / "write"))
        .trigger(processingTime="1 second")
        .start(str(folder / "log"))
    )


def bill_orders(spark: Any, folder: Path) -> Any:
    """Topic -> ledger, with its progress committed as the group's."""
    billing = Billing(folder)

    def bill(batch: Any, number: int) -> None:
        records = batch.select("partition", "offset", "value").toArrow().to_pylist()
        billing.bill((r["partition"], r["offset"], r["value"]) for r in records)

    return (
        spark.readStream.format("offsetlog")
        .option("subscribe", TOPIC)
        .option("startingOffsets", "earliest")
        .option("group.id", GROUP)
        .option("maxOffsetsPerTrigger", BATCH_RECORDS)
        .load(str(folder / "log"))
        .writeStream.foreachBatch(bill)
        .option("checkpointLocation", str(folder / "checkpoints" / "bill"))
        .start()
    )


def main(folder: Path) -> None:
    spark = offsetlog.spark.session(
        "offsetlog demo", master="local[2]", delta=False, config=settings(folder)
    )
    queries = [write_orders(spark, folder), bill_orders(spark, folder)]
    when_stdin_ends(lambda: [query.stop() for query in queries])
    # Raises if a query failed, and ends the program.
    spark.streams.awaitAnyTermination()
    for query in queries:
        query.awaitTermination()
    spark.stop()


if __name__ == "__main__":
    try:
        main(Path(sys.argv[1]))
    except offsetlog.OffsetLogError as error:
        sys.exit(str(error))
