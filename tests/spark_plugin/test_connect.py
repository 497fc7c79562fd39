"""Spark Connect: the client has no JVM, and the source is found by name on the server."""

from __future__ import annotations

from typing import Any

import pytest

from tests.spark_plugin.drivers import drive
from tests.spark_plugin.story import BRIEF, EXPECTED

pytestmark = pytest.mark.every_line


@pytest.fixture(scope="module")
def told(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    return drive("on_connect", tmp_path_factory.mktemp("connect"))


def test_the_story(told: dict[str, Any]) -> None:
    assert told["session"].startswith("pyspark.sql.connect")
    assert told["story"] == {name: EXPECTED[name] for name in BRIEF}


def test_registered_by_hand(told: dict[str, Any]) -> None:
    assert told["registered"] == 60


def test_views_through_the_client(told: dict[str, Any]) -> None:
    assert told["views"][0] == 0 and told["views"][1] > 2


def test_foreach_batch_and_its_lag(told: dict[str, Any]) -> None:
    assert told["batches"]["counts"] == [40, 20]
    assert told["batches"]["lags"][-1] == 0
    assert told["batches"]["bytes are known"]


def test_an_error_is_one_line(told: dict[str, Any]) -> None:
    assert "There is no topic 'odrers'. Did you mean 'orders'?" in told["error"]
    assert "Traceback" not in told["error"] and "\tat " not in told["error"]
    assert len(told["error"]) < 300
