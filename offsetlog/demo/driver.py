"""The demo's Spark program: ``python -m offsetlog.demo.driver FOLDER``.

One query streams JSON files into the topic. Another streams the topic out of it again, as the
group ``billing``, and writes what each order costs to a ledger.

Invariants:

1. It is a program as a user would write it: it knows nothing of the crash to come, and is
   started again with the same words.
2. How an order is billed is read anew with each batch from ``pricing.py``, so a fix needs no
   restart.
3. It ends when its stdin does.
"""

from __future__ import annotations

import json
import sys
import threading
from pathlib import Path
from typing import Any

import offsetlog.spark

from .ledger import Ledger
from .orders import GROUP, TOPIC

SCHEMA = "source STRING, n LONG, customer STRING, price LONG, pieces LONG"
MOST = 5000
FILES_AT_ONCE = 10


def settings(folder: Path) -> dict[str, str]:
    """A session for a small machine, whose log goes to a file."""
    java = f"-Dlog4j2.configurationFile={(folder / 'log4j2.properties').as_uri()}"
    java += f" -Djava.io.tmpdir={folder / 'tmp'}"
    sockets = str(folder / "tmp")
    return {
        "spark.ui.enabled": "false",
        "spark.sql.shuffle.partitions": "2",
        "spark.local.dir": str(folder / "spark"),
        "spark.sql.warehouse.dir": str(folder / "spark" / "warehouse"),
        # The path of a socket is short, or it does not work.
        "spark.python.unix.domain.socket.dir": sockets if len(sockets) < 60 else "/tmp",
        "spark.driver.memory": "1g",
        # A short life: compile less, start sooner.
        "spark.driver.extraJavaOptions": f"{java} -XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
    }


def write_orders(spark: Any, folder: Path) -> Any:
    """JSON files -> topic, exactly once."""
    incoming = (
        spark.readStream.schema(SCHEMA)
        .option("maxFilesPerTrigger", FILES_AT_ONCE)
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
    ledger = Ledger(str(folder / "ledger.db"))

    def bill(batch: Any, number: int) -> None:
        pricing: dict[str, Any] = {}
        exec((folder / "pricing.py").read_text(), pricing)
        records = batch.selectExpr("partition", "offset", "CAST(value AS STRING) value").toArrow()
        lines = []
        for record in records.to_pylist():
            order = json.loads(record["value"])
            cents = pricing["cents"](order)
            place = record["partition"], record["offset"]
            lines.append((*place, order["source"], order["n"], cents))
        ledger.write(number, lines)

    return (
        spark.readStream.format("offsetlog")
        .option("subscribe", TOPIC)
        .option("startingOffsets", "earliest")
        .option("group.id", GROUP)
        .option("maxOffsetsPerTrigger", MOST)
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

    def end() -> None:
        sys.stdin.read()
        for query in queries:
            query.stop()

    threading.Thread(target=end, daemon=True).start()
    # A query that failed raises here, and ends the program.
    spark.streams.awaitAnyTermination()
    for query in queries:
        query.awaitTermination()
    spark.stop()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
