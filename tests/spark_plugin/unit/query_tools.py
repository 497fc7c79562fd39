"""What tests of a query start from: where its log lies, the topic in it, and a query of it all."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from pyspark_offsetlog.options.spec import LogAddress
from pyspark_offsetlog.runtime.open_logs import open_log
from tests.spark_plugin.unit.engine import Engine


def log_of_orders(partitions: int) -> Callable[..., Any]:
    """The fixture ``log`` of a module: the log at ``root``, with the topic ``orders``."""

    @pytest.fixture(name="log")
    def made(root: Path | str) -> Any:
        log = open_log(LogAddress(str(root)))
        log.create_topic("orders", partitions=partitions)
        return log

    return made


def earliest(root: str, **given: Any) -> Engine:
    return Engine(root, startingOffsets="earliest", **{"subscribe": "orders", **given})
