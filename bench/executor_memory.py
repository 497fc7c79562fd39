"""As a program: the most memory that an executor of Spark takes while it reads all rows.

The executor is a process of its own, of a worker on this machine, with Spark's default heap.
The figure is VmHWM of its JVM and of each Python worker below it, added.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

from bench import processor_time
from bench.memory import high_water_mb
from bench.spark import jobs
from bench.spark.rows import KINDS, Rows

HEAP_MB = 1024
EXECUTOR = "CoarseGrainedExecutorBackend"
READS = 2


def _executor(app: str) -> int:
    """Process id of the executor of an application, which a worker started."""
    for process in Path("/proc").iterdir():
        try:
            words = (process / "cmdline").read_text(errors="replace").split("\0")
        except OSError:
            continue  # no process, or one that has ended
        if app in words and "java" in words[0] and any(EXECUTOR in word for word in words):
            return int(process.name)
    raise RuntimeError(f"the application {app} has no executor on this machine")


def main(reader: str, master: str, kind: str, place: str, count: str) -> float:
    """Megabytes of the executor; ``reader`` is ``scan``, or who reads ours."""
    import offsetlog.spark

    [data] = [one for one in KINDS if one.name == kind]
    rows = Rows(data, int(count), Path(place))
    spark = offsetlog.spark.session(
        "bench",
        master=master,
        delta=False,
        config={
            "spark.executor.memory": f"{HEAP_MB}m",
            "spark.driver.host": "127.0.0.1",
            "spark.driver.bindAddress": "127.0.0.1",
            "spark.ui.enabled": "false",
            "spark.log.level": "OFF",
        },
    )
    try:
        for _ in range(READS):
            if reader == "scan":
                jobs.into_noop(jobs.read_parquet(spark, rows))
            else:
                with jobs.tasks_in(spark, reader):
                    jobs.into_noop(jobs.read_ours(spark, rows))
        return sum(
            map(high_water_mb, processor_time.tree(_executor(spark.sparkContext.applicationId)))
        )
    finally:
        spark.stop()


if __name__ == "__main__":
    sys.stdout.write(json.dumps(main(*sys.argv[1:])) + "\n")
