"""One Spark session for all tests of a process: starting the JVM is the dear part."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[2]
IVY = ROOT / ".cache" / "ivy"


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    import offsetlog.spark

    IVY.mkdir(parents=True, exist_ok=True)
    os.environ["PYSPARK_PYTHON"] = sys.executable
    place = tmp_path_factory.mktemp("spark")
    session = offsetlog.spark.session(
        "offsetlog tests",
        master="local[2]",
        config={
            "spark.ui.enabled": "false",
            "spark.sql.shuffle.partitions": "2",
            # Some users have it on. It must change no row.
            "spark.sql.python.filterPushdown.enabled": "true",
            # Delta looks at a table in fifty tasks; ours are small.
            "spark.databricks.delta.snapshotPartitions": "2",
            "spark.jars.ivy": str(IVY),
            "spark.local.dir": str(place / "local"),
            "spark.sql.warehouse.dir": str(place / "warehouse"),
            "spark.sql.streaming.stopTimeout": "60s",
        },
    )
    session.sparkContext.setLogLevel("ERROR")
    yield session
    session.stop()
