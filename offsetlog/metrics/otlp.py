"""Sending metrics to a collector of OpenTelemetry, by OTLP over HTTP.

Invariants:

1. The packages of OpenTelemetry load when a ``Collector`` is made, and not before.
2. One look a round: all metrics of a round are of the same moment and travel in one request.
3. A round that fails is an error of one line, with what the exporter had to say; the next round
   is tried as if nothing had been. No secret of the address or of the headers shows.
4. Timeouts, headers, certificates and resource attributes are what OpenTelemetry's environment
   variables say.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from typing import Any
from urllib.parse import urlsplit, urlunsplit

from offsetlog import redact
from offsetlog.errors import InvalidRequestError, OffsetLogError, StorageError
from offsetlog.logs import get_logger
from offsetlog.metrics.families import Samples

PATH = "/v1/metrics"
_EXPORTERS_LOGGER = "opentelemetry.exporter.otlp"
logger = get_logger(__name__)


class Collector:
    """A collector at a URL, such as ``http://localhost:4318``."""

    def __init__(self, url: str) -> None:
        endpoint = _endpoint(url)
        try:
            from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter
            from opentelemetry.sdk.metrics.export import MetricExportResult
            from opentelemetry.sdk.resources import OTELResourceDetector, Resource
        except ModuleNotFoundError as error:
            raise InvalidRequestError(
                f"{error.name} is not installed.",
                "Install it with: pip install opentelemetry-sdk "
                "opentelemetry-exporter-otlp-proto-http",
            ) from None
        from offsetlog import __version__

        self._redact = redact.Redactor(url)
        self.url = redact.safe_url(endpoint)
        self._success = MetricExportResult.SUCCESS
        self._exporter: Any = OTLPMetricExporter(endpoint=endpoint)
        about = {"service.name": "offsetlog", "service.version": __version__}
        # What the environment says wins.
        self._resource = Resource.create(about).merge(OTELResourceDetector().detect())
        self._version = __version__

    def send(self, samples: Samples, at_ns: int) -> None:
        """One round; ``at_ns`` is when the samples were seen."""
        reasons = _Reasons(self._redact)
        exporters_logger = logging.getLogger(_EXPORTERS_LOGGER)
        exporters_logger.addHandler(reasons)
        try:
            result = self._exporter.export(_to_otlp(samples, at_ns, self._resource, self._version))
        finally:
            exporters_logger.removeHandler(reasons)
        if result is not self._success:
            raise StorageError(
                f"The collector at {self.url} did not take the metrics: {reasons.last}.",
                retryable=True,
            )

    def close(self) -> None:
        """End what is on its way."""
        self._exporter.shutdown()

    def __enter__(self) -> Collector:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class Push:
    """Rounds in a thread of their own, until ``stop``."""

    def __init__(
        self, collector: Collector, send: Callable[[Collector], None], every: float
    ) -> None:
        self._collector = collector
        self._send = send
        self._every = every
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, name="offsetlog-metrics", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        while not self._stopped.is_set():
            try:
                self._send(self._collector)
            except OffsetLogError as error:
                logger.warning("metrics were not sent: %s", error)
            except Exception:  # noqa: BLE001 - the next round is tried all the same
                logger.warning("metrics were not sent", exc_info=True)
            self._stopped.wait(self._every)

    def stop(self) -> None:
        """End it; a round on its way is waited for."""
        self._stopped.set()
        self._thread.join()
        self._collector.close()

    def __enter__(self) -> Push:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()


class _Reasons(logging.Handler):
    """What the exporter says of a failure: its result does not."""

    def __init__(self, hide: Callable[[object], str]) -> None:
        super().__init__(logging.WARNING)
        self._hide = hide
        self.last = "it gave no reason"

    def emit(self, record: logging.LogRecord) -> None:
        self.last = self._hide(record.getMessage()).rstrip(".")


def _endpoint(url: str) -> str:
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.netloc:
        raise InvalidRequestError(
            f"{redact.safe_url(url)!r} is not the address of a collector.",
            "Use http:// or https://, such as http://localhost:4318.",
        )
    return urlunsplit(parts if parts.path.strip("/") else parts._replace(path=PATH))


def _to_otlp(samples: Samples, at_ns: int, resource: Any, version: str) -> Any:
    from opentelemetry.sdk.metrics.export import (
        Gauge,
        Metric,
        MetricsData,
        NumberDataPoint,
        ResourceMetrics,
        ScopeMetrics,
    )
    from opentelemetry.sdk.util.instrumentation import InstrumentationScope

    metrics = [
        Metric(
            family.name,
            family.help,
            family.unit,
            Gauge(
                [
                    NumberDataPoint(
                        dict(zip(family.labels, sample.labels, strict=True)),
                        at_ns,
                        at_ns,
                        sample.value,
                    )
                    for sample in its_samples
                ]
            ),
        )
        for family, its_samples in samples.items()
        if its_samples
    ]
    scope = ScopeMetrics(InstrumentationScope("offsetlog", version), metrics, "")
    return MetricsData([ResourceMetrics(resource, [scope], "")])
