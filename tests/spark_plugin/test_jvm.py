"""Spark's tests run where a JVM that takes times for its own zone's is seen."""

from __future__ import annotations

from typing import Any

import pytest

from tests.spark_plugin import jvm

IN_1850 = -3_786_825_600_000_000
"""The first of January, in microseconds."""


@pytest.mark.every_line
def test_the_jvm_is_in_the_zone_of_the_run(spark: Any) -> None:
    zone = spark._jvm.java.util.TimeZone.getDefault().getID()
    assert zone == jvm.choose()
    assert zone not in ("UTC", spark.conf.get("spark.sql.session.timeZone"))


@pytest.mark.every_line
def test_each_zone_shows_times_that_go_through_javas_old_calendar(spark: Any) -> None:
    """By seconds before 1900, and not at all in UTC."""
    times = spark._jvm.org.apache.spark.sql.catalyst.util.DateTimeUtils
    zone = spark._jvm.java.util.TimeZone
    chosen, off = zone.getDefault(), {}
    try:
        for name in ("UTC", *jvm.ZONES):
            zone.setDefault(zone.getTimeZone(name))
            java = times.toJavaTimestamp(IN_1850).getTime() * 1000
            off[name] = (java - IN_1850) // 1_000_000
    finally:
        zone.setDefault(chosen)
    assert off.pop("UTC") == 0
    assert all(off.values()) and len(off) == len(jvm.ZONES), off


def test_days_take_turns_and_the_environment_chooses() -> None:
    environment = {jvm.OPTIONS: "-Xss4m"}
    zone = jvm.choose(environment)
    assert zone in jvm.ZONES and environment[jvm.VARIABLE] == zone == jvm.choose(environment)
    options = environment[jvm.OPTIONS].split()
    assert options[:4] == ["-Xss4m", *jvm.SHORT_LIVED, f"-Duser.timezone={zone}"]
    assert len(options) == len({*options})
    assert jvm.choose({jvm.VARIABLE: "Asia/Tokyo"}) == "Asia/Tokyo"
    with pytest.raises(pytest.UsageError, match="Mars/Olympus is no time zone"):
        jvm.choose({jvm.VARIABLE: "Mars/Olympus"})
