"""Spark's log of an error of ours, without the Java trace, in sessions that offsetlog builds.

A notebook shows Spark's log between a cell and its error: some two hundred lines of Java for one
null in a column. Invariants:

1. Only lines of a trace that follows an error of ours are left out, and none of any other.
2. Only Spark's own default pattern is replaced; who configured the log gets what he configured.
"""

from __future__ import annotations

import os
from typing import Any

from pyspark.sql import SparkSession

from pyspark_offsetlog.runtime.user_errors import DEBUG

SPARKS = "%d{yy/MM/dd HH:mm:ss} %p %c{1}: %m%n%ex"
_OURS = r"(offsetlog\.errors\..*\R(?: SQLSTATE.*\R)?)"
_TRACE = r"(?:\s+(?:at|\.\.\.) .*(?:\R|$)|Caused by: .*offsetlog\.errors\..*\R| SQLSTATE.*\R)+"
SHORT = f"%d{{yy/MM/dd HH:mm:ss}} %p %c{{1}}: %replace{{%m%n%ex}}{{{_OURS}{_TRACE}}}{{$1}}"


def shorten(spark: SparkSession) -> None:
    """Show errors of ours as their message; what can't be done is left as it is."""
    if os.environ.get(DEBUG):
        return
    try:
        _replace_pattern(spark._jvm)
    except Exception:  # noqa: BLE001 - another logger, or Spark Connect: only looks are at stake
        return


def _replace_pattern(jvm: Any) -> None:
    core = jvm.org.apache.logging.log4j.core
    context = jvm.org.apache.logging.log4j.LogManager.getContext(False)
    root = context.getConfiguration().getRootLogger()
    console = root.getAppenders().get("console")
    if console is None or console.getLayout().getConversionPattern() != SPARKS:
        return
    layout = core.layout.PatternLayout.newBuilder().withPattern(SHORT).build()
    target = core.appender.ConsoleAppender.Target.SYSTEM_ERR
    builder = core.appender.ConsoleAppender.newBuilder()
    # Spark's own level for shells is a filter of the appender.
    builder.setName("console").setLayout(layout).setFilter(console.getFilter())
    shorter = builder.setTarget(target).build()
    shorter.start()
    root.removeAppender("console")
    root.addAppender(shorter, None, None)
    context.updateLoggers()
