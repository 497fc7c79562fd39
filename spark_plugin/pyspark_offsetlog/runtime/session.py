"""Spark sessions with what offsetlog needs.

Invariants:

1. What a user sets wins over what is set here.
2. A session that runs already is used as it is, as Spark does; nothing of it is changed, but
   the Python of a local one that nobody chose, where that has no offsetlog.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from typing import Any

import pyspark
from pyspark.errors import AnalysisException, PySparkRuntimeError
from pyspark.sql import SparkSession

from offsetlog.environment import (
    ask,
    check_spark,
    delta_jar,
    java,
    spark_checks,
    spark_line,
    version_of,
)
from offsetlog.errors import InvalidRequestError
from pyspark_offsetlog.lines.jvm import finds_source
from pyspark_offsetlog.runtime.jar import add_jar, with_jar
from pyspark_offsetlog.runtime.log4j_traces import shorten
from pyspark_offsetlog.runtime.user_errors import warn

SETTINGS = {
    # The driver talks to itself: the name of the machine need not resolve.
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    # Rows go from Python to the JVM through a socket of the filesystem: a quarter faster.
    "spark.python.unix.domain.socket.enabled": "true",
    "spark.sql.execution.arrow.maxRecordsPerBatch": "16384",
    "spark.ui.showConsoleProgress": "false",
    "spark.sql.session.timeZone": "UTC",
}


PACKAGES = "spark.jars.packages"
DELTA_SETTINGS = {
    "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
    "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
}
NOBODYS = "python3"
"""What PySpark takes where no Python was chosen."""


def build(
    app_name: str, master: str | None, delta: bool, config: Mapping[str, Any]
) -> SparkSession:
    _choose_python(config)
    config = with_jar(config)
    builder = SparkSession.builder.appName(app_name).master(master or "local[*]")
    for name, value in {**SETTINGS, **config, **(_delta(config) if delta else {})}.items():
        builder = builder.config(name, str(value))
    runs_already = SparkSession.getActiveSession() is not None
    spark = _started(builder, delta)
    if not runs_already:
        shorten(spark)
    register_source(spark)
    return spark


def _delta(config: Mapping[str, Any]) -> dict[str, str]:
    """Settings for Delta, if there is a jar of it for this Spark."""
    spark = pyspark.__version__
    jar = delta_jar(spark, version_of("delta-spark"))
    if jar is None:
        warn(
            f"There is no Delta for Spark {spark_line(spark)} yet, so this session has none. "
            "Nothing of offsetlog needs it; session(delta=False) says so without this warning."
        )
        return {}
    packages = str(config.get(PACKAGES, ""))
    if "io.delta:" not in packages:
        packages = f"{jar},{packages}".rstrip(",")
    return {
        **{name: config.get(name, value) for name, value in DELTA_SETTINGS.items()},
        PACKAGES: packages,
    }


def _started(builder: Any, delta: bool) -> SparkSession:
    """Spark tells of a JVM that ended in a trace, and not why; what it said itself is above."""
    try:
        spark: SparkSession = builder.getOrCreate()
    except PySparkRuntimeError as error:
        if error.getCondition() != "JAVA_GATEWAY_EXITED":
            raise
        [found] = [check for check in spark_checks(java()) if check.name == "java"]
        if not found.passed:
            raise InvalidRequestError(f"Spark can't start its Java: {found.detail}.") from None
        hint = "What it said stands above."
        if delta:
            hint += " If that is a download: session(delta=False) needs none."
        raise InvalidRequestError("Spark's Java ended before it was ready.", hint) from None
    return spark


def _choose_python(config: Mapping[str, Any]) -> None:
    """One Python for the driver and for the workers. Spark starts the workers of a source that
    it found by name with PYSPARK_DRIVER_PYTHON, and all others with PYSPARK_PYTHON; a notebook
    server in the former is nothing that a worker could be."""
    python = str(config.get("spark.pyspark.python") or os.environ.get("PYSPARK_PYTHON") or "")
    os.environ["PYSPARK_PYTHON"] = python or sys.executable
    drivers = os.path.basename(os.environ.get("PYSPARK_DRIVER_PYTHON", ""))
    if "spark.pyspark.python" in config or not drivers.startswith(("python", "pypy")):
        os.environ["PYSPARK_DRIVER_PYTHON"] = os.environ["PYSPARK_PYTHON"]


def register_source(spark: SparkSession) -> None:
    """Known by name is enough; registering it again would only make Spark warn."""
    from pyspark_offsetlog.datasource import OffsetLogDataSource

    # Of Spark Connect it is the server's.
    check_spark(spark.version)
    if not finds_source(spark, OffsetLogDataSource.name()):
        _set_python(spark)
        try:
            spark.dataSource.register(OffsetLogDataSource)
        except AnalysisException as error:
            # Spark Connect does not say what its server finds, and 4.0 refuses to replace that.
            if error.getCondition() != "DATA_SOURCE_ALREADY_EXISTS":
                raise
    add_jar(spark)


def _set_python(spark: SparkSession) -> None:
    """Where Spark's Python, "python3" of the PATH, is not this one (a notebook or an IDE that
    runs a virtual environment's), it would not find what is registered. On this machine it can
    still be changed; what a user chose, or a cluster has, is said to be wrong."""
    context = getattr(spark, "_sc", None)
    if context is None:
        return  # Spark Connect: the server's Python counts
    if context.pythonExec == NOBODYS and context.master.startswith("local"):
        context.pythonExec = context.getConf().get("spark.pyspark.python") or sys.executable
        return
    answer = ask(context.pythonExec)
    if answer is None or "error" in answer:
        why = "it is no Python that runs" if answer is None else answer["error"]
        raise InvalidRequestError(
            f"Spark's Python {context.pythonExec!r} has no offsetlog ({why}).",
            f"Set PYSPARK_PYTHON to one that has it, such as {sys.executable}, before the "
            "session starts; on a cluster, on all machines.",
        )
