"""Filters on times of before 1900, in JVMs of many zones: Spark hands them over in the calendar and
the zone of the JVM, which are not those of its timestamps."""

from __future__ import annotations

import datetime as dt
import random
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from pyspark_offsetlog.runtime.jar import SETTING
from tests.spark_plugin.java.private import Private, objects
from tests.spark_plugin.live import opened, source

ZONES = (
    "America/Los_Angeles",  # Its local mean time was 422 s before its first zone.
    "Europe/Amsterdam",
    "Asia/Kolkata",
    "Asia/Manila",  # It left a day out, in 1844.
    "America/Juneau",  # It had a day twice, in 1867.
    "Australia/Lord_Howe",
)
EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
RUN = 20
LONG = bytes(20_000)
"""A run of such values lies in a segment."""
WANTED = (
    dt.datetime(1677, 9, 22, tzinfo=dt.UTC),
    dt.datetime(1700, 1, 1, 12, tzinfo=dt.UTC),
    dt.datetime(1844, 12, 31, 20, tzinfo=dt.UTC),
    dt.datetime(1850, 6, 5, 4, 3, 2, 1000, tzinfo=dt.UTC),
    dt.datetime(1867, 10, 18, 15, 30, tzinfo=dt.UTC),
    dt.datetime(1883, 11, 18, 20, 3, tzinfo=dt.UTC),
    dt.datetime(1899, 12, 31, tzinfo=dt.UTC),
    dt.datetime(1969, 12, 31, 23, 59, 59, 999000, tzinfo=dt.UTC),
    dt.datetime(2026, 2, 3, 4, 5, 6, 789000, tzinfo=dt.UTC),
    dt.datetime(2262, 4, 11, tzinfo=dt.UTC),
)


def millis(time: dt.datetime) -> int:
    return (time - EPOCH) // dt.timedelta(milliseconds=1)


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A segment of each time, and an entry of each time."""
    with opened(tmp_path_factory.mktemp("times")) as log:
        log.create_topic("t", config={"retention.ms": "-1"})
        for value, count in ((LONG, RUN), (b"", 1)):
            for time in WANTED:
                with log.producer(linger_ms=60_000) as producer:
                    for _ in range(count):
                        producer.send("t", value, timestamp=millis(time))
        yield Path(log.url.removeprefix("file://"))


@contextmanager
def jvm_in(spark: Any, zone: str) -> Iterator[None]:
    """The JVM's own zone, which is not the session's. It is that of each thread at once."""
    zones = spark._jvm.java.util.TimeZone
    before = zones.getDefault()
    zones.setDefault(zones.getTimeZone(zone))
    try:
        yield
    finally:
        zones.setDefault(before)


def literal(time: dt.datetime) -> str:
    return f"timestamp_millis({millis(time)})"


def conditions(chance: random.Random) -> Iterator[tuple[str, int]]:
    """Each with the number of runs that pass it."""
    for at, time in enumerate(WANTED):
        yield f"timestamp = {literal(time)}", 1
        yield f"timestamp between {literal(time)} and {literal(time)}", 1
        yield f"timestamp in ({literal(time)}, {literal(WANTED[-1])})", 1 + (time != WANTED[-1])
        yield f"timestamp < {literal(time)}", at
        yield f"timestamp <= {literal(time)}", at + 1
        yield f"timestamp > {literal(time)}", len(WANTED) - at - 1
        micros = millis(time) * 1000 + chance.randrange(-999, 1000)
        first = at + (micros > millis(time) * 1000)
        yield f"timestamp >= timestamp_micros({micros})", len(WANTED) - first


@pytest.mark.parametrize("zone", ZONES)
def test_a_filter_finds_old_times_in_any_zone_of_the_jvm(spark: Any, root: Path, zone: str) -> None:
    chance = random.Random(zone)
    every = list(conditions(chance))
    sample = [every[7], *chance.sample(every, 7)]
    with jvm_in(spark, zone):
        for reader, some in {"auto": sample, "python": sample[:3], "rows": sample[-1:]}.items():
            spark.conf.set(SETTING, reader)
            for condition, runs in some:
                frame = source(spark, root, subscribe="t").where(condition)
                found = frame.count()
                assert found == runs * (RUN + 1), f"{reader}: {condition}"
    spark.conf.unset(SETTING)


@pytest.mark.parametrize("zone", ZONES)
def test_what_filters_say_of_times_leaves_out_no_time_that_passes(spark: Any, zone: str) -> None:
    """As Spark hands them over: in the calendar of ``java.sql``, or as instants."""
    jvm, chance = spark._jvm, random.Random(zone)
    utils = jvm.org.apache.spark.sql.catalyst.util.DateTimeUtils
    sources = jvm.org.apache.spark.sql.sources
    narrowed = Private(spark, "offsetlog.spark.source.Narrowed")
    given = spark.sparkContext._gateway.new_array(sources.Filter, 1)

    def may_have(pushed: Any, time: int) -> bool:
        given[0] = pushed
        return bool(narrowed.call("hasTimes", narrowed.call("by", None, given), time, time))

    with jvm_in(spark, zone):
        for turn in range(60):
            near = millis(chance.choice(WANTED)) + chance.randrange(-(10**7), 10**7)
            time = near if turn % 2 else chance.randrange(millis(WANTED[0]), millis(WANTED[-1]))
            micros = time * 1000 + chance.randrange(1000)
            for moment in (utils.toJavaTimestamp(micros), utils.microsToInstant(micros)):
                assert may_have(sources.LessThanOrEqual("timestamp", moment), time), micros
                assert may_have(sources.LessThan("timestamp", moment), time), micros
                assert may_have(sources.GreaterThan("timestamp", moment), time + 1), micros
                for pushed in (
                    sources.EqualTo("timestamp", moment),
                    sources.GreaterThanOrEqual("timestamp", moment),
                    sources.In("timestamp", objects(spark, moment)),
                ):
                    assert may_have(pushed, time), micros
                # It does leave out: by the most that two ways to count years differ.
                assert not may_have(sources.EqualTo("timestamp", moment), time + 4 * 86_400_000)


def test_a_stream_finds_them_too(spark: Any, root: Path, tmp_path: Path) -> None:
    found: list[int] = []
    for reader in ("auto", "python", "rows"):
        spark.conf.set(SETTING, reader)
        try:
            with jvm_in(spark, ZONES[0]):
                frame = source(spark, root, stream=True, subscribe="t", startingOffsets="earliest")
                old = frame.where(f"timestamp = {literal(WANTED[1])} or offset < 0").where(
                    f"timestamp <= {literal(WANTED[3])}"
                )
                writer = old.writeStream.foreachBatch(lambda rows, _: found.append(rows.count()))
                writer = writer.option("checkpointLocation", str(tmp_path / reader))
                assert writer.trigger(availableNow=True).start().awaitTermination(120)
        finally:
            spark.conf.unset(SETTING)
        assert sum(found) == RUN + 1, reader
        found.clear()
