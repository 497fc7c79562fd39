"""The driver that ``test_sink_kills`` kills: run as ``python sink_driver.py ROOT CHECKPOINT SEED``.

It streams numbered records into two topics. Rows of a micro-batch are few or many by its number,
and now and then the process of a task dies, so that Spark runs the task again."""

from __future__ import annotations

import os
import random
import sys

ROWS = 4000


def alive(number: int) -> int:
    """The number itself, from a worker that may not live to give it."""
    if random.random() < 1e-5:
        os._exit(9)
    return number


def main(root: str, checkpoint: str, seed: str) -> None:
    from pyspark.sql.functions import udf

    import offsetlog.spark

    random.seed(int(seed))
    spark = offsetlog.spark.session(
        "killed",
        master="local[2,6]",
        delta=False,
        config={"spark.ui.enabled": "false", "spark.sql.shuffle.partitions": "2"},
    )
    spark.sparkContext.setLogLevel("OFF")
    numbers = spark.readStream.format("rate-micro-batch").option("rowsPerBatch", ROWS)
    numbers = numbers.option("numPartitions", 2).load()
    # Every third batch is large enough for segments, the others send their rows in messages.
    rows = numbers.selectExpr(
        f"IF(value DIV {ROWS} % 3 = 0 OR value % {ROWS} < 60, value, NULL) AS number",
        f"IF(value DIV {ROWS} % 3 = 0, 150, 5) AS pad",
    ).where("number IS NOT NULL")
    lives = udf(alive, "long").asNondeterministic()
    rows = rows.select(lives("number").alias("number"), "pad").selectExpr(
        "CAST(number AS STRING) AS key",
        "concat(number, repeat('-', pad)) AS value",
        "IF(number % 2 = 0, 'even', 'odd') AS topic",
    )
    query = (
        rows.writeStream.format("offsetlog")
        .option("path", root)
        .option("checkpointLocation", checkpoint)
        .start()
    )
    os.write(1, b"started\n")
    query.awaitTermination()


if __name__ == "__main__":
    main(*sys.argv[1:])
