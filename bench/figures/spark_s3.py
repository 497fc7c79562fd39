"""Spark reads a topic from S3: ours beside its scan of Parquet files with the same rows.

Both ask a real S3 server on loopback through a relay, which adds the latency of a network to each
request and counts it. The scan, and ours in Spark's JVM, read through Hadoop's client for S3;
``_python`` through fsspec, whose columns Python hands over.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from bench.figure import Case, Figure, Rig, Setting
from bench.peers import seaweed
from bench.peers.jars import Package, fetch
from bench.peers.process import PeerUnavailableError
from bench.spark.rows import FEWER, Rows, rows_of
from bench.spark.session import folder
from tests.servers.relay import Proxy

LATENCY = 0.015
"""Seconds. A store in the same region takes 10 to 30 ms for a first byte."""
HADOOP = "3.5.0"
"""That of the Spark that is measured."""
CLIENT = (
    Package("org.apache.hadoop", "hadoop-aws", HADOOP),
    # 690 MB; what of it is used can't be had alone, since the client names classes shaded in it.
    Package("software.amazon.awssdk", "bundle", "2.35.4"),
    Package("software.amazon.s3.analyticsaccelerator", "analyticsaccelerator-s3", "1.3.1"),
)
SCAN = "Spark's Parquet scan over s3a"
FIGURES = (
    Figure("spark_s3_source", "rows/s", SCAN, 1.5, "higher"),
    Figure("spark_s3_source_python", "rows/s", SCAN, 0.7, "higher"),
    Figure("spark_s3_requests", "requests", SCAN, 1.0, "lower"),
    Figure("spark_s3_requests_python", "requests", SCAN, 1.0, "lower"),
)


def _named(*measured: float) -> dict[str, float]:
    return {figure.name: value for figure, value in zip(FIGURES, measured, strict=True)}


class _Reading:
    """A Spark that reads over S3 (``spark/over_s3.py``), and the relay before it."""

    def __init__(self, process: subprocess.Popen[str], proxy: Proxy, rows: int) -> None:
        self._process = process
        self._proxy = proxy
        self._rows = rows

    def ask(self, words: str) -> tuple[float, float]:
        """Rows a second, and requests."""
        assert self._process.stdin is not None and self._process.stdout is not None
        with self._proxy.counted() as asked:
            self._process.stdin.write(f"{words}\n")
            self._process.stdin.flush()
            answer = self._process.stdout.readline().split()
        if answer[:1] != ["took"]:
            raise PeerUnavailableError(f"Spark did not read over S3 ({words})")
        return self._rows / float(answer[1]), len(asked)

    def ours(self) -> dict[str, float]:
        jvm, python = self.ask("jvm"), self.ask("python")
        return _named(jvm[0], python[0], jvm[1], python[1])

    def peer(self) -> dict[str, float]:
        rate, requests = self.ask("scan")
        return _named(rate, rate, requests, requests)


def _upload(server: seaweed.S3Server, rows: Rows) -> None:
    import s3fs

    fs = s3fs.S3FileSystem(**server.options(), skip_instance_cache=True)
    for name in ("log", "scan"):
        fs.put(f"{rows.place / name}/", f"{server.bucket}/{name}/", recursive=True)


@contextmanager
def _rig(setting: Setting) -> Iterator[Rig]:
    jars = fetch(f"s3a-{HADOOP}", CLIENT, setting.cache.resolve(), alone=True)
    rows = rows_of(FEWER, setting)
    log = setting.work / "spark.log"
    with seaweed.running(setting.work) as server, Proxy(server.port, latency=LATENCY) as proxy:
        _upload(server, rows)
        words: list[Any] = [server.bucket, proxy.url, rows.count, jars, folder(setting)]
        command = [sys.executable, "-m", "bench.spark.over_s3", *map(str, words)]
        with (
            log.open("wb") as errors,
            subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=errors, text=True
            ) as process,
        ):
            reading = _Reading(process, proxy, rows.count)
            for reader in ("scan", "jvm", "python"):
                reading.ask(f"check {reader}")
            yield reading
            assert process.stdin is not None
            process.stdin.close()


CASES = (Case("spark_s3", FIGURES, _rig),)
