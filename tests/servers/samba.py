"""Samba: a real SMB server, from Debian's packages.

The packages are fetched into ``.cache/samba`` and unpacked there; nothing is installed. Where they
can't be had (another system, no network), ``missing`` says why, and who needs the server skips.
``follow symlinks = no``, as SECURITY.md asks of an administrator.
"""

from __future__ import annotations

import os
import pwd
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path

from tests.servers.process import ROOT, Place, Server, free_port, listens

USER, PASSWORD, SHARE = "offsetlog", "offsetlog-tests-secret", "LOG"
CACHE = ROOT / ".cache" / "samba"
PACKAGES = (
    "samba", "samba-common", "samba-common-bin", "samba-libs", "libldb2", "libtalloc2", "libtdb1",
    "libtevent0", "libwbclient0", "libpopt0", "liblmdb0",
)  # fmt: skip
CONFIG = """
[global]
    server role = standalone server
    smb ports = {port}
    interfaces = 127.0.0.1
    bind interfaces only = yes
    disable netbios = yes
    load printers = no
    disable spoolss = yes
    server min protocol = SMB2
    passdb backend = tdbsam:{folder}/passdb.tdb
    username map = {folder}/users
    private dir = {folder}
    lock directory = {folder}
    state directory = {folder}
    cache directory = {folder}
    pid directory = {folder}
    ncalrpc dir = {folder}/ncalrpc
    log level = 0
    logging = file
    log file = {folder}/samba.log
[{share}]
    path = {folder}/share
    read only = no
    follow symlinks = no
"""


@cache
def missing() -> str | None:
    """Why there is no Samba here; None where there is. Fetches it the first time."""
    if not (CACHE / "done").exists():
        if shutil.which("apt-get") is None or shutil.which("dpkg") is None:
            return "Samba comes from Debian's packages, and there is no apt-get here"
        problem = _fetch()
        if problem:
            return problem
    tried = subprocess.run(
        [_program("smbd"), "--version"], env=_env(), capture_output=True, text=True
    )
    return None if tried.returncode == 0 else f"Samba does not start: {tried.stderr.strip()[-200:]}"


def _fetch() -> str | None:
    """Why it can't be had. Two that fetch it at once do no harm."""
    CACHE.parent.mkdir(exist_ok=True)
    apart = Path(tempfile.mkdtemp(prefix="samba-", dir=CACHE.parent))
    try:
        got = subprocess.run(
            ["apt-get", "download", *PACKAGES],
            cwd=apart,
            capture_output=True,
            text=True,
            timeout=120,
        )
        if got.returncode:
            return f"Samba's packages can't be fetched: {got.stderr.strip()[-200:]}"
        for package in apart.glob("*.deb"):
            subprocess.run(["dpkg", "-x", str(package), str(apart)], check=True)
            package.unlink()
        (apart / "done").touch()
        with suppress(OSError):  # Somebody was faster.
            apart.rename(CACHE)
    except (OSError, subprocess.SubprocessError) as error:
        return f"Samba's packages can't be unpacked: {error}"
    finally:
        shutil.rmtree(apart, ignore_errors=True)
    return None


def _program(name: str) -> str:
    [path] = [path for path in CACHE.glob(f"usr/*bin/{name}") if path.is_file()]
    return str(path)


def _env() -> dict[str, str]:
    libraries = [str(path) for path in (CACHE / "usr" / "lib").glob("*-linux-gnu*")]
    libraries += [f"{path}/samba" for path in libraries]
    return {**os.environ, "LD_LIBRARY_PATH": ":".join(libraries)}


@contextmanager
def running() -> Iterator[tuple[Place, Path]]:
    """The share, and the folder in which its files lie."""
    port = free_port()

    def command(folder: Path) -> list[str]:
        (folder / "share").mkdir()
        (folder / "ncalrpc").mkdir()
        config = folder / "smb.conf"
        config.write_text(CONFIG.format(port=port, folder=folder, share=SHARE))
        owner = pwd.getpwuid(os.getuid()).pw_name
        (folder / "users").write_text(f"{owner} = {USER}\n")
        subprocess.run(
            [_program("pdbedit"), "-s", str(config), "-a", "-u", owner, "-t"],
            input=f"{PASSWORD}\n{PASSWORD}\n", env=_env(), text=True, check=True,
            capture_output=True,
        )  # fmt: skip
        return [_program("smbd"), "-F", "--no-process-group", "-s", str(config), "-p", str(port)]

    server = Server(command, lambda: listens(port), env=_env()).start()
    try:
        options = {"username": USER, "password": PASSWORD, "port": port}
        yield Place(f"smb://127.0.0.1/{SHARE}", options), server.folder / "share"
    finally:
        server.stop()
