"""moto: an S3 server in Python, from ``moto[server]``.

It is not locked inside; that its rounds have one winner each is luck of its interpreter's
lock, measured, not promised.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from tests.servers.process import Place, Server, answers, free_port, program
from tests.servers.seaweedfs import make_bucket

BUCKET = "offsetlog"


@contextmanager
def running() -> Iterator[Place]:
    port = free_port()
    server = Server(
        lambda _: [program("moto_server"), "-H", "127.0.0.1", "-p", str(port)],
        lambda: answers(f"http://127.0.0.1:{port}/moto-api/"),
    ).start()
    try:
        url = f"http://127.0.0.1:{port}"
        options = {"key": "moto", "secret": "moto-secret", "endpoint_url": url}
        make_bucket(options, BUCKET)
        yield Place(f"s3://{BUCKET}", options, port)
    finally:
        server.stop()
