"""On a standalone cluster, a master and two workers on loopback, over S3."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import offsetlog
from tests.servers.process import Place
from tests.spark import spark_cluster
from tests.spark.drivers import drive
from tests.spark.story import BRIEF, EXPECTED


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
