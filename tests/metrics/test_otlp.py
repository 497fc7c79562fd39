"""Metrics as a collector of OpenTelemetry gets them: the same samples as a scrape."""

from __future__ import annotations

import logging
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import (
    ExportMetricsServiceRequest,
)

import offsetlog
from offsetlog.metrics import Metrics
from offsetlog.metrics.otlp import Collector
from tests.cli.shell import PROGRAM, environment
from tests.cli.shell import offsetlog as command
from tests.metrics.scrapes import Series, committed, parsed, written
from tests.waiting import until


class Receiver(ThreadingHTTPServer):
    """A collector: keeps what it got, and answers with ``status``."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.requests: list[tuple[str, ExportMetricsServiceRequest]] = []
        self.status = 200

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"

    def wait_for(self, count: int) -> None:
        until(lambda: len(self.requests) >= count, 20)


class _Handler(BaseHTTPRequestHandler):
    server: Receiver

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        self.server.requests.append((self.path, ExportMetricsServiceRequest.FromString(body)))
        self.send_response(self.server.status)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, *_: object) -> None:
        pass


@contextmanager
def receiving() -> Iterator[Receiver]:
    with Receiver() as receiver:
        thread = threading.Thread(target=receiver.serve_forever, args=(0.02,), daemon=True)
        thread.start()
        yield receiver
        receiver.shutdown()
        thread.join()


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    with receiving() as one:
        yield one


@pytest.fixture
def root(root) -> str:
    with offsetlog.open(str(root)) as log:
        log.create_topic("orders", partitions=2)
        written(log, "orders", 5, partition=0)
        committed(log, "billing", {("orders", 0): 2})
    return str(root)


def series_of(request: ExportMetricsServiceRequest) -> Series:
    found: Series = {}
    for metric in request.resource_metrics[0].scope_metrics[0].metrics:
        for point in metric.gauge.data_points:
            labels = {pair.key: pair.value.string_value for pair in point.attributes}
            number = point.as_int if point.HasField("as_int") else point.as_double
            found[metric.name, tuple(sorted(labels.items()))] = number
    return found


def aged(series: Series) -> Series:
    """Without what the clock changes."""
    return {key: n for key, n in series.items() if not key[0].endswith("_seconds")}


def test_a_collector_gets_what_a_scrape_shows(root, receiver) -> None:
    with offsetlog.open(root) as log, Collector(receiver.url) as collector:
        metrics = Metrics(log)
        metrics.send(collector)
        scraped = parsed(metrics.text())
    [(path, request)] = receiver.requests
    assert path == "/v1/metrics"
    sent = series_of(request)
    assert aged(sent) == aged(scraped) and sent.keys() == scraped.keys()
    [resource] = request.resource_metrics
    about = {pair.key: pair.value.string_value for pair in resource.resource.attributes}
    assert about["service.name"] == "offsetlog"
    assert about["service.version"] == offsetlog.__version__
    units = {metric.name: metric.unit for metric in resource.scope_metrics[0].metrics}
    assert units["offsetlog_consumergroup_lag_seconds"] == "s"
    assert units["offsetlog_topic_bytes"] == "By"
    assert "1" not in units.values()


def test_the_environment_names_the_service(root, receiver, monkeypatch) -> None:
    monkeypatch.setenv("OTEL_SERVICE_NAME", "our-log")
    monkeypatch.setenv("OTEL_RESOURCE_ATTRIBUTES", "deployment.environment=prod")
    with offsetlog.open(root) as log, Collector(f"{receiver.url}/own/path") as collector:
        Metrics(log).send(collector)
    [(path, request)] = receiver.requests
    assert path == "/own/path"
    about = {p.key: p.value.string_value for p in request.resource_metrics[0].resource.attributes}
    assert about["service.name"] == "our-log" and about["deployment.environment"] == "prod"


def test_the_command_sends_once(root, receiver) -> None:
    result = command("--root", root, "metrics", "--otlp", receiver.url)
    assert (result.status, result.text, result.err) == (0, "", "")
    assert len(receiver.requests) == 1


@pytest.mark.parametrize("status", [400, 401, 404])
def test_a_refusal_is_said_with_its_reason_and_without_secrets(root, receiver, status) -> None:
    receiver.status = status
    url = receiver.url.replace("//", "//someone:pa55word-of-mine@")
    result = command("--root", root, "metrics", "--otlp", url)
    assert result.status == 1 and result.text == ""
    assert len(result.err.splitlines()) == 1 and "did not take the metrics" in result.err
    assert str(status) in result.err and "pa55word" not in result.err


def test_a_collector_that_is_not_there_is_an_error_of_one_line(root, monkeypatch) -> None:
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_TIMEOUT", "1")
    result = command("--root", root, "metrics", "--otlp", "http://127.0.0.1:9")
    assert result.status == 1 and len(result.err.splitlines()) == 1
    assert "http://127.0.0.1:9" in result.err


@pytest.mark.parametrize(
    ("words", "what"),
    [
        (["--every", "30s"], "--every needs --otlp"),
        (["--otlp", "localhost:4318"], "is not the address of a collector"),
        (["--otlp", "grpc://localhost:4317"], "is not the address of a collector"),
        (["--otlp", "http://localhost:4318", "--every", "10ms"], "too short"),
        (["--otlp", "http://localhost:4318", "--every", "often"], "is not a duration"),
    ],
)
def test_mistakes(root, words, what) -> None:
    result = command("--root", root, "metrics", *words)
    assert result.status == 2 and what in result.err and len(result.err.splitlines()) == 1


def test_without_the_packages_the_extra_is_named(root, monkeypatch) -> None:
    name = "opentelemetry.exporter.otlp.proto.http.metric_exporter"
    monkeypatch.setitem(sys.modules, name, None)
    result = command("--root", root, "metrics", "--otlp", "http://localhost:4318")
    assert result.status == 2 and "pip install opentelemetry-sdk" in result.err


def test_every_goes_on_through_failures_until_it_is_ended(root) -> None:
    """The collector fails, the log goes away and comes back, and SIGTERM ends it without a word."""
    with receiving() as receiver:
        words = ["--root", root, "metrics", "--otlp", receiver.url, "--every", "1s"]
        process = subprocess.Popen(
            [*PROGRAM, *words], env=environment(), stdout=subprocess.PIPE, stderr=subprocess.PIPE,
            text=True,
        )  # fmt: skip
        try:
            receiver.wait_for(1)
            receiver.status = 400
            receiver.wait_for(2)
            receiver.status = 200
            receiver.wait_for(4)
            process.terminate()
            out, err = process.communicate(timeout=20)
        finally:
            process.kill()
    assert process.returncode == 143 and out == ""
    lines = err.splitlines()
    assert lines and all("warning: this round failed" in line for line in lines), err


def test_a_program_pushes_in_the_background(root, receiver, caplog) -> None:
    with offsetlog.open(root) as log, Metrics(log).push(receiver.url, every=0.05):
        receiver.wait_for(2)
        receiver.status = 400
        with caplog.at_level(logging.WARNING, "offsetlog.metrics.otlp"):
            receiver.wait_for(4)
            receiver.status = 200
            receiver.wait_for(6)
    assert any("were not sent" in record.message for record in caplog.records)
    count = len(receiver.requests)
    time.sleep(0.2)
    assert len(receiver.requests) == count
    assert not [t for t in threading.enumerate() if t.name == "offsetlog-metrics"]


def test_nothing_of_opentelemetry_loads_before_it_is_used() -> None:
    code = (
        "import sys, offsetlog.metrics, offsetlog.cli.metrics;"
        "print([m for m in sys.modules if m.startswith(('opentelemetry', 'prometheus'))])"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, env=environment(), check=True
    )
    assert done.stdout == "[]\n"
