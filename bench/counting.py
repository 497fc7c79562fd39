"""Counts what goes over the wire to an S3 server: the tests' relay in front of it.

The relay is for counts only: times are measured without it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tests.servers.process import Place
    from tests.servers.relay import Proxy


@contextmanager
def counted_store() -> Iterator[tuple[Place, Proxy]]:
    """An S3 server that answers at once, and the relay in front of it."""
    from tests.servers import latency_s3
    from tests.servers.relay import Proxy

    with latency_s3.running(0, 0) as place, Proxy(place.http_port) as proxy:
        yield place, proxy
