"""Copies from and to servers: the same, and sound, over the network too."""

from __future__ import annotations

import random

import pytest

import offsetlog
from tests.engine.copy.sameness import contents, is_sound, live

pytestmark = pytest.mark.filterwarnings("ignore::offsetlog.OffsetLogWarning")


@pytest.mark.parametrize("server", ["moto", "sftp"])
def test_there_and_back(request, tmp_path, server):
    """From a disk to a server, brought up to date there, and from the server to a disk. The offsets
    table is a Delta table on S3, and a chain behind sftp."""
    url, options = request.getfixturevalue(server)
    there, back = f"{url}/{tmp_path.name}", str(tmp_path / "back")
    rng = random.Random(server)
    with offsetlog.open(str(tmp_path / "log")) as log:
        log.create_topic("a", partitions=2)
        live(log, rng, 12)
        for _ in range(2):
            log.copy(there, **options)
            assert contents(there, **options) == contents(str(tmp_path / "log"))
            is_sound(there, **options)
            live(log, rng, 4)
        log.copy(there, **options)
        with offsetlog.open(there, **options) as remote:
            remote.copy(back)
        assert contents(back) == contents(str(tmp_path / "log"))
        is_sound(back)
