"""Logs, and queries without Spark, for the tests here."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from engine import Checkpoint, Engine


@pytest.fixture
def running() -> Iterator[Callable[..., Engine]]:
    """Queries that are stopped at the end, so that none of their threads goes on."""
    made: list[Engine] = []

    def make(root: str, checkpoint: Checkpoint | None = None, **given: Any) -> Engine:
        made.append(Engine(root, checkpoint, **given))
        return made[-1]

    yield make
    for query in made:
        query.stop()
