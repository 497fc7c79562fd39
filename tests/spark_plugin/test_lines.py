"""What each line of Spark does: the story on all of them, and what 4.0 and 4.1 do otherwise."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyspark
import pytest

from offsetlog.environment import SPARK_LINES, spark_line
from pyspark_offsetlog.lines import jvm
from pyspark_offsetlog.lines.classes import FILTERS_KEPT_APART, STARTS_ARE_GIVEN
from pyspark_offsetlog.runtime.jar import SETTING
from pyspark_offsetlog.runtime.log4j_traces import SHORT, SPARKS
from tests.spark_plugin.live import (
    Live,
    fill,
    keeps_limits,
    lags,
    opened,
    places,
    source,
    with_delta,
)
from tests.spark_plugin.story import EXPECTED, story

pytestmark = pytest.mark.every_line
before_4_2 = pytest.mark.skipif(STARTS_ARE_GIVEN, reason="of Spark before 4.2")
GROUP = {"subscribe": "orders", "startingOffsets": "earliest", "group.id": "g"}
WRAPPER = "spark.sql.streaming.triggerAvailableNowWrapper.enabled"


@pytest.fixture
def in_rows(spark: Any) -> Iterator[None]:
    """Reads as without the jar."""
    spark.conf.set(SETTING, "rows")
    yield
    spark.conf.unset(SETTING)


def available_now(spark: Any, place: Path, **given: Any) -> list[int]:
    """The offsets that a run with ``availableNow`` reads."""
    seen: list[int] = []
    query = (
        source(spark, place / "log", stream=True, **{**GROUP, **given})
        .writeStream.foreachBatch(lambda f, _: seen.extend(r.offset for r in f.collect()))
        .option("checkpointLocation", str(place / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    assert query.awaitTermination(90)
    return sorted(seen)


@pytest.mark.every_line(without_jar=True)
def test_the_story(spark: Any, tmp_path: Path) -> None:
    assert story(spark, str(tmp_path / "log"), {}, tmp_path) == EXPECTED


def test_which_line_it_is(spark: Any) -> None:
    line = spark_line(spark.version)
    assert line in SPARK_LINES and spark.version == pyspark.__version__
    assert (line in ("4.2", "4.3")) == STARTS_ARE_GIVEN
    assert not FILTERS_KEPT_APART, "then docs/versions.md has more to say of it"


def test_the_parts_of_spark_that_are_not_public(spark: Any) -> None:
    """Where they are missing all works, with less said; that is seen here."""
    assert jvm.finds_source(spark, "offsetlog") and not jvm.finds_source(spark, "nothing")
    assert jvm.replace_log_pattern(spark, SHORT, SPARKS)
    assert jvm.replace_log_pattern(spark, SPARKS, SHORT)


@with_delta
def test_delta_where_there_is_a_jar(spark: Any, tmp_path: Path) -> None:
    import offsetlog
    import offsetlog.spark

    with opened(tmp_path) as log:
        log.create_topic("t")
        log.group("g").reset("t", to="earliest", dry_run=False)
    facts = offsetlog.spark.offsets(spark, str(tmp_path / "log"), "g", delta=True)
    assert [row.offset for row in facts.collect() if row.kind == "reset"] == [0]


@pytest.mark.usefixtures("orders")
def test_available_now_reads_all_in_batches_within_the_limits(
    spark: Any, log: Any, tmp_path: Path
) -> None:
    """Before Spark 4.2 by the class in the JVM; also after a reset, and once more after a batch
    that failed."""
    if not keeps_limits(spark):
        pytest.skip("there is no jar")
    fill(log, "orders", {0: 9, 1: 3})
    given = {**GROUP, "maxOffsetsPerTrigger": 4}
    root, checkpoint, now = tmp_path / "log", tmp_path / "c", {"availableNow": True}
    with Live(spark, root, checkpoint, now, **given) as live:
        live.fail_at = 1
        assert "batch 1 fails on purpose" in live.error()
    with Live(spark, root, checkpoint, now, **given) as live:
        live.finished()
    assert sorted(live.batches) == [1, 2]
    assert places(live.rows) == {("orders", 0): [*range(3, 9)], ("orders", 1): [1, 2]}
    assert lags(log) == {("orders", 0): 0, ("orders", 1): 0}
    assert log.group("g").describe().state == "Empty"
    log.group("g").reset("orders", to="earliest", dry_run=False)
    with Live(spark, root, checkpoint, now, **given) as live:
        live.finished()
    assert places(live.rows) == {("orders", 0): [*range(9)], ("orders", 1): [*range(3)]}
    assert len(live.batches) > 2
    assert lags(log) == {("orders", 0): 0, ("orders", 1): 0}


@before_4_2
@pytest.mark.usefixtures("orders", "in_rows")
def test_without_the_jar_available_now_is_a_single_batch(
    spark: Any, log: Any, tmp_path: Path
) -> None:
    """Limits hold for it, and the group learns of it at the next start."""
    fill(log, "orders", {0: 9})
    assert available_now(spark, tmp_path, maxOffsetsPerTrigger=4) == [0, 1, 2, 3]
    # Nothing is committed yet. While the query is still a member its lag is that of its start.
    assert lags(log) in ({}, {("orders", 0): 9, ("orders", 1): 0})
    assert available_now(spark, tmp_path) == [4, 5, 6, 7, 8]
    assert lags(log) == {("orders", 0): 5, ("orders", 1): 0}
    assert available_now(spark, tmp_path) == []
    assert lags(log) == {("orders", 0): 0, ("orders", 1): 0}


@before_4_2
@pytest.mark.usefixtures("orders", "in_rows")
def test_the_wrapper_of_available_now_is_refused(spark: Any, log: Any, tmp_path: Path) -> None:
    """Spark asks then where the query ends before it says where it starts."""
    fill(log, "orders", {0: 3})
    assert available_now(spark, tmp_path) == [0, 1, 2]
    fill(log, "orders", {0: 3})
    spark.conf.set(WRAPPER, "true")
    try:
        with pytest.raises(Exception, match=WRAPPER):
            available_now(spark, tmp_path)
    finally:
        spark.conf.unset(WRAPPER)
    assert available_now(spark, tmp_path) == [3, 4, 5]
