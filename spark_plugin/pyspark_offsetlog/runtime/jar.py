"""The jar with which Spark's JVM reads segments by itself, put in place where there is one.

Invariants:

1. Without the jar, or with one that does not fit, Python reads: one line in the log says why, and
   nothing else differs. Only ``spark.offsetlog.reader`` = ``jvm`` makes that an error.
2. A jar of another version of offsetlog is not put in place. If a session has one nevertheless, the
   class in it sees the difference and leaves the reading to Python.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

import pyspark

from offsetlog.environment import SparkJar, spark_jar
from offsetlog.errors import InvalidRequestError
from offsetlog.logs import get_logger
from offsetlog.values import did_you_mean
from pyspark_offsetlog.lines import jvm

logger = get_logger(__name__)

SETTING = "spark.offsetlog.reader"
READERS = ("auto", "jvm", "python", "rows")
JARS = "spark.jars"


def with_jar(config: Mapping[str, Any]) -> dict[str, Any]:
    """The settings of a new session, with the jar if there is one."""
    jar = _wanted(spark_jar(pyspark.__version__), config.get(SETTING))
    if jar is None:
        return dict(config)
    jars = [each for each in str(config.get(JARS, "")).split(",") if each]
    return {**config, JARS: ",".join([*jars, jar])}


def add_jar(spark: Any) -> None:
    """Give a session that runs the jar, if it has none; its executors get it with their next
    task. Spark Connect's server has its own jars."""
    listed = jvm.jars(spark)
    if listed is None:
        return
    jar = _wanted(spark_jar(spark.version), spark.conf.get(SETTING, None))
    if jar is not None and os.path.basename(jar) not in {
        name.rpartition("/")[2] for name in listed
    }:
        quote = '"' if "'" in jar else "'"
        spark.sql(f"ADD JAR {quote}{jar}{quote}")


def _wanted(jar: SparkJar, reader: str | None) -> str | None:
    """The path of the jar; an error if it is a must and there is none."""
    reader = "auto" if reader is None else reader
    if reader not in READERS:
        raise InvalidRequestError(
            f"{SETTING} is {reader!r}, which is no reader.", did_you_mean(reader, READERS)
        )
    if jar.path is None:
        if reader == "jvm":
            raise InvalidRequestError(
                f"{SETTING} is jvm, and the JVM has no reader: {jar.reason}.",
                f"Set {SETTING} to auto, and Python reads where the JVM does not.",
            )
        logger.info("Python reads segments, not Spark's JVM: %s.", jar.reason)
    return jar.path
