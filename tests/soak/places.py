"""The storages of the campaign, each behind what can go wrong with it.

1. A local root lies on a small disk of its own where we may mount one, so that it can be full;
   where we may not, writers are told now and then that theirs is.
2. A server is met through a proxy that drops answers after the server has acted, and is silent
   for some seconds, now and then for longer than a call waits.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

from offsetlog.storage.fsspec import CALL_SECONDS
from tests.servers import azurite, fake_gcs, seaweedfs
from tests.servers.relay import Proxy

SMALL_DISK = "512m"
SHORT_SILENCE = 3.0
LONG_SILENCE = CALL_SECONDS + 15


class Site(NamedTuple):
    name: str
    url: str
    options: dict[str, Any]
    session_ms: int
    hurt: Callable[[], str]
    """Lets one thing go wrong, and says what; empty where nothing could be done."""


@contextlib.contextmanager
def local(folder: Path) -> Iterator[Site]:
    disk = folder / "disk"
    disk.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", f"size={SMALL_DISK}", "tmpfs", str(disk)]
    is_small = os.geteuid() == 0 and not subprocess.run(mount, capture_output=True).returncode

    def fill() -> str:
        if not is_small:
            return ""
        filler = disk / "filler"
        with contextlib.suppress(OSError), filler.open("wb", buffering=0) as file:
            while file.write(bytes(1 << 20)):
                continue
        import time

        time.sleep(0.3)
        filler.unlink()
        return "full disk"

    try:
        yield Site("local", str(disk / "log"), {}, 1500, fill)
    finally:
        if is_small:
            subprocess.run(["umount", "-l", str(disk)], check=True)


def _served(server: Any, name: str, upload: str) -> Callable[[Path], Any]:
    @contextlib.contextmanager
    def site(folder: Path) -> Iterator[Site]:
        with server.running() as place, Proxy(place.http_port) as proxy:
            options = dict(place.options)
            if name == "azurite":
                options["connection_string"] = azurite.connection_string(proxy.port)
            else:
                options["endpoint_url"] = proxy.url

            times = itertools.count(1)

            def hurt() -> str:
                time = next(times)
                if time % 4:
                    proxy.lose(2, upload, "_log")
                    return "lost answer"
                seconds = LONG_SILENCE if time % 48 == 0 else SHORT_SILENCE
                proxy.be_silent(seconds, acts=time % 8 == 0)
                return "silence" if seconds == SHORT_SILENCE else "long silence"

            yield Site(name, f"{place.url}/{folder.name}", options, 6000, hurt)

    return site


SITES: dict[str, Callable[[Path], Any]] = {
    "local": local,
    "seaweedfs": _served(seaweedfs, "seaweedfs", "PUT"),
    "azurite": _served(azurite, "azurite", "PUT"),
    "gcs": _served(fake_gcs, "gcs", "POST"),
}
