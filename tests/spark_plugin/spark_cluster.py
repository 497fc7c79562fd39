"""A standalone Spark cluster on loopback: a master and workers, each a server of the tests. The
workers may see an empty disk where others have a folder.

Workers and executors find what is tested through PYTHONPATH, as they would find an installed
package.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pyspark

from tests.servers.process import Server, free_port, listens
from tests.spark_plugin.jvm import SHORT_LIVED

HOME = Path(pyspark.__file__).parent


def can_hide() -> bool:
    """Whether a process may have mounts of its own here."""
    if shutil.which("unshare") is None:
        return False
    mount = ["unshare", "-m", "mount", "-t", "tmpfs", "none", "/tmp"]
    return subprocess.run(mount, check=False, capture_output=True).returncode == 0


def _spark(port: int, kind: str, *arguments: str, hidden: Path | None = None) -> Server:
    command = [str(HOME / "bin" / "spark-class"), f"org.apache.spark.deploy.{kind}"]
    if hidden is not None:
        mount = 'mount -t tmpfs none "$0" && exec "$@"'
        command = ["unshare", "-m", "sh", "-c", mount, str(hidden), *command]
    env = {
        "SPARK_HOME": str(HOME),
        "SPARK_DAEMON_JAVA_OPTS": " ".join(SHORT_LIVED),
        "SPARK_DAEMON_MEMORY": "256m",
        "SPARK_LOCAL_IP": "127.0.0.1",
        "SPARK_NO_DAEMONIZE": "1",
    }
    return Server(
        lambda folder: [*command, *arguments, *_work_dir(kind, folder)],
        lambda: listens(port),
        seconds=90,
        env=env,
    )


def _work_dir(kind: str, folder: Path) -> list[str]:
    return ["--work-dir", str(folder / "work")] if kind.startswith("worker") else []


@contextmanager
def running(
    workers: int = 2, hidden: Path | None = None, cores: int = 1, memory_mb: int = 700
) -> Iterator[str]:
    """The master's URL. The workers see an empty disk in the folder ``hidden``."""
    port = free_port()
    url = f"spark://127.0.0.1:{port}"
    with ExitStack() as stack:
        ui = ["--webui-port", str(free_port())]
        master = _spark(port, "master.Master", "-h", "127.0.0.1", "-p", str(port), *ui)
        stack.callback(master.stop)
        master.start()
        for _ in range(workers):
            own = free_port()
            size = ["-c", str(cores), "-m", f"{memory_mb}m", "-h", "127.0.0.1", "-p", str(own)]
            ui = ["--webui-port", str(free_port())]
            worker = _spark(own, "worker.Worker", *size, *ui, url, hidden=hidden)
            stack.callback(worker.stop)
            worker.start()
        yield url


if __name__ == "__main__":
    with running() as master_url:
        print(master_url, os.getpid(), flush=True)
        input()
