"""conf/spark-defaults.conf: Spark reads it, knows each name, and it says what a session gets."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from offsetlog.environment import spark_line
from pyspark_offsetlog.runtime.session import SETTINGS
from tests.pages import ROOT
from tests.spark_plugin.live import with_delta

SAMPLE = ROOT / "conf" / "spark-defaults.conf"
SESSION_ONLY = {"spark.ui.showConsoleProgress", "spark.sql.session.timeZone"}
"""Of taste, and of a session on this machine."""


def load(spark: Any, path: Path) -> dict[str, str]:
    """As Spark's own launcher reads it."""
    loaded = spark._jvm.org.apache.spark.util.Utils.getPropertiesFromFile(str(path))
    read = loaded.iterator()
    pairs = {}
    while read.hasNext():
        pair = read.next()
        pairs[pair._1()] = pair._2()
    return pairs


def test_it_sets_what_a_session_of_ours_sets(spark: Any, tmp_path: Path) -> None:
    told = load(spark, SAMPLE)
    assert told and told.items() <= SETTINGS.items()
    all_on = tmp_path / "all.conf"
    all_on.write_text(re.sub(r"^# (spark\.[\w.]+ )", r"\1", SAMPLE.read_text(), flags=re.MULTILINE))
    everything = load(spark, all_on)
    assert everything.keys() >= SETTINGS.keys() - SESSION_ONLY
    for name, value in everything.items():
        if name in SETTINGS:
            assert value == SETTINGS[name], name


def test_spark_knows_each_name(spark: Any) -> None:
    find = spark._jvm.org.apache.spark.internal.config.ConfigEntry.findEntry
    names = re.findall(r"^(?:# )?(spark\.[\w.]+) ", SAMPLE.read_text(), flags=re.MULTILINE)
    assert len(names) == 9
    others = {"spark.sql.catalog.spark_catalog"}  # a catalog's name is the user's
    if spark_line(spark.version) == "4.0":
        others.add("spark.python.unix.domain.socket.enabled")
    assert [name for name in names if find(name) is None and name not in others] == []


@with_delta
def test_delta_is_the_one_that_a_session_gets(spark: Any) -> None:
    [package] = re.findall(r"io\.delta:\S+", SAMPLE.read_text())
    package = package.replace("_4.2_", f"_{spark_line(spark.version)}_")
    assert package in spark.conf.get("spark.jars.packages")
