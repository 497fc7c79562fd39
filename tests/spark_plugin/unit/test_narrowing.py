"""Filters narrow what is read, and never take a record away that passes them."""

from __future__ import annotations

import datetime as dt
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pyspark.sql import datasource

if not hasattr(datasource, "Filter"):
    pytest.skip("Spark 4.0 has no filters to push", allow_module_level=True)

from pyspark.sql.datasource import (
    EqualNullSafe,
    EqualTo,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    IsNotNull,
    LessThan,
    LessThanOrEqual,
    Not,
    StringStartsWith,
)

from pyspark_offsetlog.options.check import source_options
from pyspark_offsetlog.options.spec import LogAddress
from pyspark_offsetlog.runtime.open_logs import open_log
from pyspark_offsetlog.schema import source_schema
from pyspark_offsetlog.source import batch
from pyspark_offsetlog.source.filters import narrow
from pyspark_offsetlog.source.offsets import OffsetRange
from tests.spark_plugin.unit.engine import fresh_root

EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
TIMES = {0: [5000, 1000, 3000, 9000, 2000], 1: [4000] * 3, 2: []}


@pytest.fixture(scope="module")
def log() -> Any:
    log = open_log(LogAddress(fresh_root()))
    for topic in ("a", "b"):
        log.create_topic(topic, partitions=3)
        with log.producer() as producer:
            for partition, times in TIMES.items():
                for time in times:
                    producer.send(topic, b"", partition=partition, timestamp=time).result()
    return log


def moment(ms: int, micros: int = 0) -> dt.datetime:
    return EPOCH + dt.timedelta(milliseconds=ms, microseconds=micros)


ALL = [
    {"topic": topic, "partition": partition, "offset": offset, "timestamp": moment(time)}
    for topic in ("a", "b")
    for partition, times in TIMES.items()
    for offset, time in enumerate(times)
]
COMPARED = {
    EqualTo: lambda a, b: a == b,
    EqualNullSafe: lambda a, b: a == b,
    GreaterThan: lambda a, b: a > b,
    GreaterThanOrEqual: lambda a, b: a >= b,
    LessThan: lambda a, b: a < b,
    LessThanOrEqual: lambda a, b: a <= b,
}
values = {
    "topic": st.sampled_from(["a", "b", "c"]),
    "partition": st.integers(-1, 4),
    "offset": st.integers(-2, 7),
    "timestamp": st.builds(moment, st.sampled_from([0, 999, 1000, 4000, 9001]), st.integers(0, 9)),
}


@st.composite
def filters(draw: Any) -> Any:
    column = draw(st.sampled_from(sorted(values)))
    kind = draw(st.sampled_from([*COMPARED, In, Not, IsNotNull, StringStartsWith]))
    if kind is IsNotNull:
        return IsNotNull((column,))
    if kind is StringStartsWith:
        return StringStartsWith(("topic",), "a")
    if kind is In:
        return In((column,), tuple(draw(st.lists(values[column], max_size=3))))
    if kind is Not:
        return Not(EqualTo((column,), draw(values[column])))
    return kind((column,), draw(values[column]))


def passes(row: dict, one: Any) -> bool:
    if isinstance(one, Not):
        return not passes(row, one.child)
    if isinstance(one, IsNotNull):
        return True
    has = row[one.attribute[0]]
    if isinstance(one, StringStartsWith):
        return has.startswith(one.value)
    return has in one.value if isinstance(one, In) else COMPARED[type(one)](has, one.value)


@settings(max_examples=300, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(filters(), max_size=4))
def test_what_passes_is_read(log: Any, chosen: list) -> None:
    whole = [OffsetRange(t, p, 0, len(TIMES[p])) for t in ("a", "b") for p in TIMES]
    left = narrow(chosen).apply(log, whole)
    for row in ALL:
        if all(passes(row, one) for one in chosen):
            assert any(
                (r.topic, r.partition) == (row["topic"], row["partition"])
                and r.start <= row["offset"] < r.end
                for r in left
            )


@pytest.mark.parametrize(
    ("chosen", "left"),
    [
        ([EqualTo(("partition",), 1), EqualTo(("topic",), "b")], [("b", 1, 0, 3)]),
        ([In(("partition",), (1, 9)), In(("topic",), ("b", None))], [("b", 1, 0, 3)]),
        ([In(("partition",), (0, 1)), EqualTo(("partition",), 2)], []),
        ([GreaterThan(("offset",), 1), LessThan(("offset",), 3), EqualTo(("topic",), "a")],
         [("a", 0, 2, 3), ("a", 1, 2, 3)]),
        ([EqualTo(("offset",), 4)], [("a", 0, 4, 5), ("b", 0, 4, 5)]),
        ([EqualTo(("offset",), None)], []),
        ([GreaterThanOrEqual(("timestamp",), moment(9000))], [("a", 0, 3, 5), ("b", 0, 3, 5)]),
        ([GreaterThan(("timestamp",), moment(9000)), LessThanOrEqual(("offset",), 9)],
         [("a", 0, 3, 5), ("b", 0, 3, 5)]),
        ([EqualTo(("timestamp",), moment(9001))], []),
    ],
)  # fmt: skip
def test_what_is_left_out(log: Any, chosen: list, left: list) -> None:
    whole = [OffsetRange(t, p, 0, len(TIMES[p])) for t in ("a", "b") for p in TIMES if TIMES[p]]
    assert [tuple(r) for r in narrow(chosen).apply(log, whole)] == left


@pytest.mark.parametrize("kept_apart", [True, False])
def test_filters_narrow_only_where_spark_keeps_them_apart(
    log: Any, monkeypatch: pytest.MonkeyPatch, kept_apart: bool
) -> None:
    monkeypatch.setattr(batch, "FILTERS_KEPT_APART", kept_apart)
    given = {"path": log.url, "subscribe": "a,b", "minPartitions": "1"}
    reader = batch.OffsetLogReader(source_options(given, False), source_schema(False))
    filters = [EqualTo(("partition",), 1), GreaterThan(("offset",), 1)]
    assert list(reader.pushFilters(filters)) == filters
    tasks = sorted(tuple(w.range) for task in reader.partitions() for w in task.work)
    narrow = [("a", 1, 2, 3), ("b", 1, 2, 3)]
    whole = [("a", 0, 0, 5), ("a", 1, 0, 3), ("b", 0, 0, 5), ("b", 1, 0, 3)]
    assert tasks == (narrow if kept_apart else whole)
