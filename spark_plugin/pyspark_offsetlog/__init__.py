"""offsetlog for Spark: ``format("offsetlog")``.

Spark imports top-level packages that are called ``pyspark_...`` and asks them for a
``DefaultSource``; that is all that this name is for. What a user imports is ``offsetlog.spark``.
"""

from __future__ import annotations

import pyspark

from offsetlog.environment import check_spark

try:
    from pyspark_offsetlog.datasource import OffsetLogDataSource as DefaultSource
except ImportError:
    check_spark(pyspark.__version__)
    raise

__all__ = ["DefaultSource"]
