"""A filter that is pushed down gives the rows that it gives upon rows which were read whole."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.spark_plugin.live import opened, source

TIMES = {0: [5000, 1000, 3000, 9000, 2000, 2000], 1: [4000, 1000, 2000, 2000], 2: []}
LONG = bytes(100_000)
"""Rows of that length lie in segments."""
PLACE = ("topic", "partition", "offset")
FILTERS = (
    "partition <=> null",
    "not (partition = 1 or offset > 2)",
    "not (partition = 1 and offset > 2)",
    "partition = 1 or offset = 2",
    "partition in (1, null)",
    "partition not in (1, null)",
    "partition in (0) and partition in (1)",
    "cast(partition as string) = '1' and offset > 1.5",
    "offset in (1, 5, null)",
    "offset > 9223372036854775807",
    "offset < 0 or offset <=> null",
    "timestamp = timestamp_millis(2000)",
    "timestamp >= timestamp_micros(2000001)",
    "timestamp > timestamp_micros(1999999) and offset < 5",
    "timestamp in (timestamp_millis(1000), null)",
    "timestamp > '1970-01-01 00:00:02' or topic = 'a'",
    "timestamp > timestamp'1960-01-01 00:00:00'",
    "topic in ('a', 'c', null)",
    "topic collate utf8_lcase = 'A'",
    "not topic = 'a' and partition is not null",
)


@pytest.fixture(scope="module")
def root(tasks_in: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    place = tmp_path_factory.mktemp("filters")
    with opened(place) as log:
        for topic in ("a", "b"):
            log.create_topic(topic, partitions=3)
            with log.producer() as producer:
                for partition, times in TIMES.items():
                    for at, time in enumerate(times):
                        producer.send(
                            topic,
                            b"%d" % at + LONG if at % 2 else None,
                            key=b"k" if at % 3 else None,
                            headers=[("h", b"1")] if at == 1 else None,
                            partition=partition,
                            timestamp=time,
                        )
        log.topic("a").delete_records({0: 1})
        yield place / "log"


def test_filters_give_the_same_rows_pushed_down_or_not(spark: Any, root: Path) -> None:
    frame = source(spark, root, subscribe="a,b").select(*PLACE, "timestamp")
    kept = spark.createDataFrame(frame.collect(), frame.schema)
    assert kept.count() == 19
    for condition in FILTERS:
        pushed, plain = (
            sorted(map(tuple, rows.where(condition).select(*PLACE).collect()))
            for rows in (frame, kept)
        )
        assert pushed == plain, condition


def test_any_columns_in_any_order(spark: Any, root: Path) -> None:
    full = source(spark, root, subscribe="a,b", includeHeaders="true")
    kinds = {field.name: field.dataType.simpleString() for field in full.schema}
    rows = full.collect()
    chance = random.Random(3)
    for count in (1, 1, 2, 3, 4, 5, 6, 7, 8):
        names = chance.sample(list(kinds), count)
        schema = ", ".join(f"{name} {kinds[name]}" for name in names)
        reader = spark.read.format("offsetlog").schema(schema).option("subscribe", "a,b")
        found = reader.load(str(root)).collect()
        assert found[0].__fields__ == names
        wanted = sorted(str([row[name] for name in names]) for row in rows)
        assert sorted(str(list(row)) for row in found) == wanted, names


def test_the_filters_of_one_query_are_none_of_the_next(spark: Any, root: Path) -> None:
    """Nor of the other side of a union. Spark 4.2 would use what is left by one for all."""
    frame = source(spark, root, subscribe="a,b")
    assert frame.count() == 19
    for _ in range(2):
        assert frame.where("offset < 2").count() == 7
        assert frame.count() == 19
        assert frame.where("partition = 1 or offset = 2").count() == 10
    zero, one = frame.where("partition = 0"), frame.where("partition = 1")
    assert (zero.count(), one.count()) == (11, 8)
    assert zero.union(one).count() == 19
    assert zero.union(frame).count() == frame.union(one).count() + 3 == 30
    assert zero.where("offset < 2").join(frame.select("offset"), "offset").count() == 11
