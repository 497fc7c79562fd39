"""The jar with which Spark's JVM reads segments by itself, put in place where there is one.

Invariants:

1. Where there is no jar it is built, if there is a ``javac``. Without one, or with a jar that does
   not fit, Python reads: one line says why, and nothing else differs but the speed. Only
   ``spark.offsetlog.reader`` = ``jvm`` makes that an error.
2. A jar of another version of offsetlog is not put in place. If a session has one nevertheless, the
   class in it sees the difference and leaves the reading to Python.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pyspark

from offsetlog.errors import InvalidRequestError
from offsetlog.logs import get_logger
from offsetlog.spark_jar import COMMAND, ready_jar, spark_jar
from offsetlog.values import did_you_mean
from pyspark_offsetlog.lines import jvm
from pyspark_offsetlog.runtime.user_errors import warn_once

logger = get_logger(__name__)

SETTING = "spark.offsetlog.reader"
READERS = ("auto", "jvm", "python", "rows")
JARS = "spark.jars"
OURS = "offsetlog-spark-"
"""How the names of our jars begin."""


def with_jar(config: Mapping[str, Any]) -> dict[str, Any]:
    """The settings of a new session, with the jar if there is one."""
    jar = _wanted(pyspark.__version__, config.get(SETTING))
    if jar is None:
        return dict(config)
    jars = [each for each in str(config.get(JARS, "")).split(",") if each]
    return {**config, JARS: ",".join([*jars, jar])}


def add_jar(spark: Any) -> None:
    """Give a session that runs the jar, if it has none; its executors get it with their next
    task. Spark Connect's server has its own jars."""
    listed = jvm.jars(spark)
    if listed is None or any(name.rpartition("/")[2].startswith(OURS) for name in listed):
        return
    jar = _wanted(spark.version, spark.conf.get(SETTING, None))
    if jar is not None:
        quote = '"' if "'" in jar else "'"
        spark.sql(f"ADD JAR {quote}{jar}{quote}")


def _wanted(version: str, reader: str | None) -> str | None:
    """The path of the jar; an error if it is a must and there is none."""
    reader = "auto" if reader is None else reader
    if reader not in READERS:
        raise InvalidRequestError(
            f"{SETTING} is {reader!r}, which is no reader.", did_you_mean(reader, READERS)
        )
    jar = spark_jar(version) if reader == "rows" else ready_jar(version)
    if jar.path is None:
        if reader == "jvm":
            raise InvalidRequestError(
                f"{SETTING} is jvm, and the JVM has no reader: {jar.reason}.",
                f"Set {SETTING} to auto, and Python reads where the JVM does not.",
            )
        logger.info("Python reads segments, not Spark's JVM: %s.", jar.reason)
        if reader == "auto":
            warn_once(
                f"Python reads and writes for Spark, which is slower: {jar.reason}. With a javac "
                f"'{COMMAND}' makes a jar for the JVM."
            )
    return jar.path
