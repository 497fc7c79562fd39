"""One Spark session for all tests of a process: starting the JVM is the dear part."""

from __future__ import annotations

import fcntl
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyspark
import pytest

from offsetlog.environment import delta_jar, version_of
from offsetlog.spark_jar import spark_jar
from pyspark_offsetlog.runtime.jar import SETTING

ROOT = Path(__file__).resolve().parents[2]
IVY = ROOT / ".cache" / "ivy"


@contextmanager
def _one_downloads() -> Iterator[None]:
    """Ivy's folders are not made for two JVMs that fill them at once: the first one of a line
    downloads Delta alone."""
    IVY.mkdir(parents=True, exist_ok=True)
    package = delta_jar(pyspark.__version__, version_of("delta-spark")) or ""
    jar = IVY / "jars" / f"{'_'.join(package.split(':')[:2])}-{package.rpartition(':')[2]}.jar"
    with (IVY / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not package or jar.exists():
            fcntl.flock(lock, fcntl.LOCK_UN)
        yield


@pytest.fixture(scope="session")
def jar() -> Path:
    """What the JVM runs, of the sources as they are; without ``javac`` there is none."""
    build = ROOT / "spark_plugin" / "java" / "build.py"
    done = subprocess.run([sys.executable, build], check=True, capture_output=True, text=True)
    return Path(done.stdout.strip())


@pytest.fixture(scope="session")
def spark(jar: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    import offsetlog.spark

    os.environ["PYSPARK_PYTHON"] = sys.executable
    place = tmp_path_factory.mktemp("spark")
    with _one_downloads():
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
                # A Python that starts slowly, on a busy machine, is no failure.
                "spark.python.authSocketTimeout": "120s",
                "spark.local.dir": str(place / "local"),
                "spark.sql.warehouse.dir": str(place / "warehouse"),
                "spark.sql.streaming.stopTimeout": "60s",
            },
        )
    session.sparkContext.setLogLevel("ERROR")
    yield session
    session.stop()


@pytest.fixture(scope="module", params=["jvm", pytest.param("python", marks=pytest.mark.in_python)])
def tasks_in(request: pytest.FixtureRequest, spark: Any) -> Iterator[str]:
    """Where tasks of ours run: each test that uses it runs on both paths, in one session. In
    ``python`` it is as where there is no jar."""
    jar = spark_jar(spark.version)
    if request.param == "jvm" and jar.path is None:
        pytest.skip(f"no jar for the JVM: {jar.reason}")
    spark.conf.set(SETTING, "auto" if request.param == "jvm" else "rows")
    yield request.param
    spark.conf.unset(SETTING)
