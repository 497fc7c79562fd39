"""One fixture for each server: started when first asked for, once for a session.

Each gives a ``Place``: ``url, storage_options = place``.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.servers import azurite as azurite_server
from tests.servers import fake_gcs as fake_gcs_server
from tests.servers import latency_s3 as latency_s3_server
from tests.servers import moto as moto_server
from tests.servers import rclone as rclone_server
from tests.servers import samba as samba_server
from tests.servers import seaweedfs as seaweedfs_server
from tests.servers import sftp_server as asyncssh_server
from tests.servers import smb_server as impacket_server
from tests.servers.process import Place


@pytest.fixture(scope="session")
def seaweedfs() -> Iterator[Place]:
    with seaweedfs_server.running() as place:
        yield place


@pytest.fixture(scope="session")
def moto() -> Iterator[Place]:
    with moto_server.running() as place:
        yield place


@pytest.fixture(scope="session")
def azurite() -> Iterator[Place]:
    with azurite_server.running() as place:
        yield place


@pytest.fixture(scope="session")
def fake_gcs() -> Iterator[Place]:
    with fake_gcs_server.running() as place:
        yield place


@pytest.fixture(scope="session")
def sftp() -> Iterator[Place]:
    with asyncssh_server.running() as place:
        yield place


@pytest.fixture(scope="session")
def smb() -> Iterator[Place]:
    with impacket_server.running() as place:
        yield place


@pytest.fixture(scope="session")
def samba() -> Iterator[Place]:
    why = samba_server.missing()
    if why is not None:
        pytest.skip(why)
    with samba_server.running() as (place, _):
        yield place


@pytest.fixture(scope="session")
def rclone() -> Iterator[Place]:
    with rclone_server.running() as place:
        yield place


@pytest.fixture(scope="session")
def latency_s3() -> Iterator[Place]:
    """An S3 server with no latency: tests that want some start their own."""
    with latency_s3_server.running(put_ms=0, get_ms=0) as place:
        yield place
