"""Metrics of a log, under the names that kafka_exporter made known.

``offsetlog metrics`` prints them once or serves them, and the page has them on ``/metrics``, where
Prometheus and collectors of OpenTelemetry scrape them. They read through the client, as any
program does.
"""

from offsetlog.metrics.exposition import CONTENT_TYPE, exposition
from offsetlog.metrics.metrics import Metrics

__all__ = ["CONTENT_TYPE", "Metrics", "exposition"]
