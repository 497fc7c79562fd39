"""Spark's log of an error of ours, without the Java trace, in sessions that offsetlog builds.

A notebook shows Spark's log between a cell and its error: some two hundred lines of Java for one
null in a column. Invariants:

1. Only lines of a trace that follows an error of ours are left out, and none of any other.
2. Only Spark's own default pattern is replaced; who configured the log gets what he configured.
"""

from __future__ import annotations

import os

from pyspark.sql import SparkSession

from pyspark_offsetlog.lines.jvm import replace_log_pattern
from pyspark_offsetlog.runtime.user_errors import DEBUG

SPARKS = "%d{yy/MM/dd HH:mm:ss} %p %c{1}: %m%n%ex"
_OURS = r"(offsetlog\.errors\..*\R(?: SQLSTATE.*\R)?)"
_TRACE = r"(?:\s+(?:at|\.\.\.) .*(?:\R|$)|Caused by: .*offsetlog\.errors\..*\R| SQLSTATE.*\R)+"
SHORT = f"%d{{yy/MM/dd HH:mm:ss}} %p %c{{1}}: %replace{{%m%n%ex}}{{{_OURS}{_TRACE}}}{{$1}}"


def shorten(spark: SparkSession) -> None:
    """Show errors of ours as their message; what can't be done is left as it is."""
    if os.environ.get(DEBUG):
        return
    replace_log_pattern(spark, SPARKS, SHORT)
