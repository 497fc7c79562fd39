"""A session as offsetlog builds it, in which things go wrong, with Spark's log on stderr."""

from __future__ import annotations

import sys

import offsetlog.spark
from tests.spark_plugin.story import report


def main(root: str) -> None:
    spark = offsetlog.spark.session(
        delta=False, master="local[2]", config={"spark.ui.enabled": "false"}
    )
    # One task: Spark would kill another with a trace of its own.
    rows = spark.range(0, 3, 1, 1).selectExpr(
        "CAST(id AS STRING) value", "IF(id = 1, NULL, 'a') topic"
    )
    report(says="a null topic")
    try:
        writer = rows.write.format("offsetlog").option("createTopicPartitions", 1)
        writer.mode("append").save(root)
    except Exception as error:
        report(failed=str(error))
    unknown = spark.readStream.format("offsetlog").option("subscribe", "b").load(root)
    try:
        unknown.writeStream.format("noop").start().awaitTermination(60)
    except Exception as error:
        report(ended=str(error))
    report(says="somebody else's error")
    try:
        spark.range(1).selectExpr("raise_error('mine')").collect()
    except Exception as error:
        report(other=str(error))
    spark.stop()


if __name__ == "__main__":
    main(f"{sys.argv[1]}/log")
