"""Run by test_cluster: the executors see an empty disk where the driver has the log."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import offsetlog
import offsetlog.spark
from tests.spark_plugin.programs.on_cluster import settings
from tests.spark_plugin.story import report

ROWS = 20_000


def failure(call: Any) -> str:
    try:
        call()
    except Exception as error:
        return str(error)
    return "no error"


def main(master: str, root: str, place: Path) -> None:
    config = {**settings(place), "spark.task.maxFailures": "1"}
    spark = offsetlog.spark.session("blind", master=master, delta=False, config=config)
    with offsetlog.open(root) as log:
        log.create_topic("t", partitions=2)
        wide = spark.range(ROWS).selectExpr("repeat('x', 200) as value")
        few = spark.range(100).selectExpr("cast(id as string) as value")

        def write(frame: Any) -> None:
            frame.write.format("offsetlog").option("topic", "t").mode("append").save(root)

        report(write=failure(lambda: write(wide)))
        report(ends=log.topic("t").end_offsets())
        write(few)
        report(few=sum(log.topic("t").end_offsets().values()))
        reader = spark.read.format("offsetlog").option("subscribe", "t")
        reader = reader.option("failOnDataLoss", "false")
        report(read=failure(lambda: reader.load(root).count()))
        faults = [fault for told in log.verify() for fault in told.faults]
        report(faults=len(faults))
    spark.stop()


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], Path(sys.argv[3]))
