"""Prometheus' ``promtool``: the machine's own, else the one in Debian's package, which is fetched
once into ``.cache/promtool`` of the checkout. None where neither can be had."""

from __future__ import annotations

import fcntl
import shutil
import subprocess
from functools import lru_cache
from pathlib import Path

from tests.servers.process import ROOT

PACKAGE = "prometheus"


@lru_cache
def install() -> Path | None:
    """The program."""
    own = shutil.which("promtool")
    if own is not None:
        return Path(own)
    home = ROOT / ".cache" / "promtool"
    program = home / "usr" / "bin" / "promtool"
    home.mkdir(parents=True, exist_ok=True)
    with (home / ".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not program.exists() and shutil.which("apt-get") and shutil.which("dpkg-deb"):
            _run("apt-get", "-q", "download", PACKAGE, folder=home)
            for package in home.glob("*.deb"):
                _run("dpkg-deb", "-x", str(package), str(home), folder=home)
                package.unlink()
                (home / "usr" / "bin" / "prometheus").unlink(missing_ok=True)
    return program if program.exists() else None


def _run(*command: str, folder: Path) -> None:
    subprocess.run(command, cwd=folder, capture_output=True, timeout=120, check=False)
