"""A session that nobody prepared, where Spark's Python is not this one: what works in it once
``offsetlog.spark.register`` was called."""

from __future__ import annotations

import os
import sys

from pyspark.sql import SparkSession

import offsetlog.spark
from offsetlog.errors import InvalidRequestError
from tests.spark_plugin.story import report


def main(root: str) -> None:
    spark = (
        SparkSession.builder.master("local[1]")
        .config("spark.ui.enabled", "false")
        .config("spark.driver.host", "127.0.0.1")
        .getOrCreate()
    )
    spark.sparkContext.setLogLevel("OFF")
    os.environ["PYSPARK_PYTHON"] = spark.sparkContext.pythonExec = os.environ["EMPTY_PYTHON"]
    try:
        offsetlog.spark.register(spark)
    except InvalidRequestError as error:
        report(refused=str(error))
    spark.sparkContext.pythonExec = "python3"  # what it was; the variable came too late

    offsetlog.spark.register(spark)
    rows = spark.range(20).selectExpr("CAST(id AS STRING) value")
    writer = rows.write.format("offsetlog").option("topic", "orders")
    writer.option("createTopicPartitions", 1).mode("append").save(root)
    orders = spark.read.format("offsetlog").option("subscribe", "orders").load(root)
    report(rows=orders.count(), topics=offsetlog.spark.topics(spark, root).count())
    report(counted=spark.sparkContext.range(3).map(lambda number: 1).sum())
    spark.stop()


if __name__ == "__main__":
    main(f"{sys.argv[1]}/log")
