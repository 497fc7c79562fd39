"""Spark's answers about logs in random states are those of the model in
``tests/generators/answers``, whoever reads, in whatever zone the JVM and the session are."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.generators.answers import run, spark_ways
from tests.generators.answers.world import World
from tests.generators.registry import WITH

HISTORIES = max(6, int(os.environ.get("OFFSETLOG_HISTORIES", "0")) // 10)


@pytest.fixture
def asking(spark: Any) -> Iterator[None]:
    spark_ways.use(spark)
    yield
    spark_ways.use(None)


def test_what_spark_reads_is_what_the_model_says(asking: None, tmp_path: Path) -> None:
    counts = Counter[str]()
    for seed in range(1, HISTORIES + 1):
        counts.update(run(World(seed, tmp_path / str(seed)), {}))
    asked = {what.split(WITH)[1] for what in counts if WITH in what}
    assert asked <= spark_ways.SPARK_WAYS.keys() and len(asked) > 3
