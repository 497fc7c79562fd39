"""Run by test_cluster: a driver of its own, since a process has one Spark."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

import offsetlog.spark
from tests.spark_plugin.jvm import SHORT_LIVED
from tests.spark_plugin.story import report, story


def settings(place: Path) -> dict[str, str]:
    return {
        "spark.ui.enabled": "false",
        "spark.executor.extraJavaOptions": " ".join(SHORT_LIVED),
        "spark.executor.memory": "512m",
        "spark.executor.cores": "1",
        "spark.sql.shuffle.partitions": "2",
        "spark.log.level": "ERROR",
        "spark.local.dir": str(place / "local"),
        "spark.sql.warehouse.dir": str(place / "warehouse"),
    }


def python_of_workers(place: Path) -> str:
    """The running Python; where ``OLDER`` is set, another offsetlog comes first in its path."""
    older = place / "older"
    for package in ("offsetlog", "pyspark_offsetlog"):
        (older / package).mkdir(parents=True)
        (older / package / "__init__.py").write_text('__version__ = "0.0.1"\n')
    wrapper = place / "python"
    change = f'[ -z "$OLDER" ] || export PYTHONPATH="{older}:$PYTHONPATH"'
    wrapper.write_text(f'#!/bin/sh\n{change}\nexec "{sys.executable}" "$@"\n')
    wrapper.chmod(0o755)
    return str(wrapper)


def main(master: str, root: str, storage: dict[str, Any], place: Path) -> None:
    os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = python_of_workers(place)
    spark = offsetlog.spark.session("story", master=master, delta=False, config=settings(place))
    reports: list[Any] = []
    watch = offsetlog.spark.watch_lag(spark, reports.append)
    report(story=story(spark, root, storage, place, brief=True))
    watch.wait(30)
    watch.stop()
    workers = spark.sparkContext._jsc.sc().getExecutorMemoryStatus().size() - 1
    last = reports[-1].lag.total
    report(workers=workers, groups=reports[-1].groups, behind=[last.records, last.bytes])

    os.chdir(place)
    with offsetlog.open("relative") as log:
        log.create_topic("orders")
        with log.producer() as producer:
            producer.send("orders", b"x")
    # Tasks run in a folder of their own, and still read what the driver means.
    absolute = spark.read.format("offsetlog").option("subscribe", "orders")
    report(relative=absolute.load(os.path.relpath("relative", os.environ["STARTED_IN"])).count())
    spark.stop()

    config = {**settings(place), "spark.executorEnv.OLDER": "1", "spark.task.maxFailures": "1"}
    spark = offsetlog.spark.session("mixed", master=master, delta=False, config=config)
    try:
        options = {f"storage.{name}": value for name, value in storage.items()}
        reader = spark.read.format("offsetlog").options(**options)
        reader.option("subscribe", "orders").load(root).count()
    except Exception as error:
        report(mixed=str(error))
    spark.stop()


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], json.loads(sys.argv[3]), Path(sys.argv[4]))
