"""Metrics of a log, under the names that kafka_exporter made known.

``offsetlog metrics`` prints them once, the page serves them on ``/metrics``, and ``push`` sends
them by OpenTelemetry. They read through the client, as any program does.
"""

from offsetlog.metrics.exposition import CONTENT_TYPE, exposition
from offsetlog.metrics.metrics import Metrics

__all__ = ["CONTENT_TYPE", "Metrics", "exposition"]
