"""Spark's JVM in the tests: it lives shortly, and in a time zone of its own.

1. Its zone is neither UTC nor that of the session. A JVM takes times for its own zone's in more
   places than Spark does, which a JVM in UTC never shows. Each zone here once had a local mean
   time, which Java's old calendar does not know: a time before 1900 that goes through a
   ``java.sql.Timestamp`` comes out as another one. The zones take turns by the day, so the runs of
   a day agree; ``ZONE=Asia/Kolkata`` in the environment chooses one.
2. It ends before code that is compiled twice, or garbage that is collected beside it, would pay:
   without both a session begins with 10 seconds of a processor in place of 17.
3. ``python -m tests.spark_plugin.jvm`` keeps Spark's classes as they are once they are loaded.
   Where its file is there, a session begins with 6 seconds; a JVM that it does not fit passes it
   over.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import MutableMapping
from datetime import UTC, datetime
from pathlib import Path
from zoneinfo import available_timezones

import pytest

from offsetlog.environment import version_of

CACHE = Path(__file__).resolve().parents[2] / ".cache"
ZONES = (
    "America/Los_Angeles",
    "Asia/Kolkata",
    "Europe/Amsterdam",
    "Australia/Lord_Howe",
    "America/St_Johns",
    "Pacific/Apia",
)
VARIABLE = "ZONE"
OPTIONS = "SPARK_SUBMIT_OPTS"
"""Each JVM that PySpark or spark-submit starts gets these, and no Python does."""


SHORT_LIVED = ("-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC")
QUIET = ("-Xlog:cds=off", "-Xlog:cds+dynamic=off")
LOADS_CLASSES = """
import sys
import offsetlog.spark

place = sys.argv[1]
settings = ("spark.local.dir", "spark.sql.warehouse.dir")
config = {"spark.ui.enabled": "false", **dict.fromkeys(settings, place)}
with offsetlog.open(f"{place}/log") as log:
    log.create_topic("t", partitions=1)
session = offsetlog.spark.session("classes", master="local[2]", delta=False, config=config)
writer = session.range(9).selectExpr("string(id) AS value").write.format("offsetlog")
writer.option("topic", "t").mode("append").save(f"{place}/log")
reader = session.readStream.format("offsetlog").option("subscribe", "t")
frame = reader.option("startingOffsets", "earliest").load(f"{place}/log")
counted = frame.groupBy("topic").count().writeStream.format("noop").outputMode("complete")
counted = counted.option("checkpointLocation", f"{place}/checkpoint").trigger(availableNow=True)
counted.start().awaitTermination()
session.stop()
"""
"""A program that loads what most tests load."""


def classes() -> Path:
    """The file of Spark's classes, if it was made."""
    return CACHE / f"classes-of-spark-{version_of('pyspark')}.jsa"


def keep_classes() -> None:
    """Make the file of Spark's classes, if it is not there."""
    if classes().exists():
        return
    CACHE.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="offsetlog-classes-", dir=CACHE) as place:
        made = Path(place) / "made"
        options = (*SHORT_LIVED, f"-XX:ArchiveClassesAtExit={made}", *QUIET)
        environment = {**os.environ, OPTIONS: " ".join(options), "PYSPARK_PYTHON": sys.executable}
        done = subprocess.run(
            [sys.executable, "-c", LOADS_CLASSES, place],
            env=environment, check=False, capture_output=True, text=True,
        )  # fmt: skip
        if done.returncode or not made.exists():
            print(f"Spark's classes were not kept, and the tests take longer:\n{done.stderr}")
        else:
            made.rename(classes())


def choose(environment: MutableMapping[str, str] = os.environ) -> str:
    """The zone of this run, which is set in the environment for all its processes."""
    turn = datetime.now(UTC).toordinal() % len(ZONES)
    zone = environment.get(VARIABLE) or ZONES[turn]
    if zone not in available_timezones():
        raise pytest.UsageError(f"{VARIABLE}={zone} is no time zone. Ours: {', '.join(ZONES)}")
    environment[VARIABLE] = zone
    options = environment.get(OPTIONS, "").split()
    wanted = [*SHORT_LIVED, f"-Duser.timezone={zone}"]
    if classes().exists():
        wanted += [f"-XX:SharedArchiveFile={classes()}", *QUIET]
    environment[OPTIONS] = " ".join([*options, *(one for one in wanted if one not in options)])
    return zone


if __name__ == "__main__":
    keep_classes()
