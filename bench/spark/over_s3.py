"""As a program: a Spark of its own with Hadoop's client for S3, which reads as it is told.

A line of the standard input names who reads all rows: ``scan`` (Spark, of plain Parquet), ``jvm``
or ``python``; with ``check`` before it, their number is compared. Each is answered by its seconds.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from bench.spark import jobs
from bench.spark.session import CORES, DRIVER_MEMORY


def settings(endpoint: str, jars: str) -> dict[str, str]:
    """Spark's, with the client set up for a server of one's own."""
    s3a = {
        "endpoint": endpoint,
        "endpoint.region": "us-east-1",
        "access.key": "bench",
        "secret.key": "bench",
        "path.style.access": "true",
        "connection.ssl.enabled": "false",
        # The new ones keep files in memory, and the next round would measure that.
        "input.stream.type": "classic",
    }
    return {f"spark.hadoop.fs.s3a.{name}": value for name, value in s3a.items()} | {
        "spark.driver.extraClassPath": f"{jars}/*",
        "spark.driver.memory": DRIVER_MEMORY,
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.ui.enabled": "false",
        "spark.log.level": "OFF",
    }


def main(bucket: str, endpoint: str, rows: str, jars: str, place: str) -> None:
    """Answer until the input ends."""
    import offsetlog.spark

    config = settings(endpoint, jars) | {
        "spark.local.dir": str(Path(place, "local")),
        "spark.sql.warehouse.dir": str(Path(place, "warehouse")),
    }
    spark = offsetlog.spark.session("bench", master=f"local[{CORES}]", delta=False, config=config)
    options = {
        "storage.endpoint_url": endpoint,
        "storage.key": "bench",
        "storage.secret": "bench",
    }

    def frame(reader: str) -> Any:
        if reader == "scan":
            return jobs.read_files(spark, f"s3a://{bucket}/scan")
        return jobs.read_topic(spark, f"s3://{bucket}/log", **options)

    def read(reader: str, is_check: bool) -> float:
        if is_check:
            jobs.checked(frame(reader), int(rows))
            if reader == "jvm":
                jobs.checked_jvm(frame(reader), int(rows))
        return jobs.seconds(lambda: jobs.into_noop(frame(reader)))

    for line in sys.stdin:
        *check, reader = line.split()
        if reader == "scan":
            took = read(reader, bool(check))
        else:
            with jobs.tasks_in(spark, reader):
                took = read(reader, bool(check))
        sys.stdout.write(f"took {took}\n")
        sys.stdout.flush()
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
