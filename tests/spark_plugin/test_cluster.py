"""On a standalone cluster on loopback: two workers over S3, and one that does not see the driver's
disk."""

from __future__ import annotations

import socket
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import offsetlog
from tests.servers.process import Place
from tests.spark_plugin import spark_cluster
from tests.spark_plugin.drivers import drive
from tests.spark_plugin.story import BRIEF, EXPECTED


@pytest.fixture(scope="module")
def told(seaweedfs: Place, tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Any]]:
    place: Path = tmp_path_factory.mktemp("cluster")
    with spark_cluster.running(workers=2) as master:
        yield drive("on_cluster", place, master, f"{seaweedfs.url}/cluster", seaweedfs.options)


def test_the_story_on_executors(told: dict[str, Any]) -> None:
    assert told["story"] == {name: EXPECTED[name] for name in BRIEF}
    assert told["workers"] == 2


def test_the_listener_on_the_driver(told: dict[str, Any]) -> None:
    assert told["groups"] == ["copier"]
    assert told["behind"] == [0, 0]


def test_a_relative_root(told: dict[str, Any]) -> None:
    assert told["relative"] == 1


def test_workers_with_another_version_say_so(told: dict[str, Any]) -> None:
    line = (
        f"ImportError: The Python of this Spark worker, {sys.executable}, has offsetlog 0.0.1; "
        f"the driver has {offsetlog.__version__}."
    )
    assert line in told["mixed"]
    assert "File " not in told["mixed"].partition("Driver stacktrace")[0]


@pytest.mark.skipif(not spark_cluster.can_hide(), reason="a process may have no own mounts here")
def test_executors_that_do_not_see_the_drivers_disk(tmp_path: Path) -> None:
    """As with a folder of the driver's, or a shared disk that is not mounted on one machine."""
    shared = tmp_path / "shared"
    shared.mkdir()
    with spark_cluster.running(workers=1, hidden=shared) as master:
        told = drive("on_blind_workers", tmp_path, master, shared / "log", seconds=300)
    for name in ("write", "read"):
        assert f"is not at file://{shared}/log, as the machine {socket.gethostname()}" in told[name]
    assert told["ends"] == {"0": 0, "1": 0}, "nothing is named that nobody has"
    assert told["few"] == 100, "rows that travel in the tasks' messages need no disk there"
    assert told["faults"] == 0
